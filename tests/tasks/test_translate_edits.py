"""Edits of a translation: the same JSON as for every model, against models that are changed by hand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from translators import small_translator

from glassformer.errors import InputError
from glassformer.tasks.translate import Translator
from glassformer.trace import trace

SOURCE, OTHER = "She liked to play.", "Lily was a girl in the park."
LENGTH = 10  # of the source, in tokens
HOW: dict[str, Any] = {"to": "fr", "max_new_tokens": 6}
Change = Callable[[int, torch.Tensor], torch.Tensor]


@contextmanager
def by_hand(model: Translator, site: str, change: Change) -> Iterator[None]:
    """Inside, a site is changed by a function of how often it was met before, and of its value."""
    met = iter(range(10_000))
    with trace(model.net, edits={site: lambda value: change(next(met), value)}):
        yield


def written(model: Translator, **how: Any) -> tuple[list[int], float]:
    out = model.translate(SOURCE, **HOW | how)
    return out.tokens, round(out.score, 9)


@pytest.fixture
def attending() -> Translator:
    return small_translator(seed=2)


@pytest.fixture
def recurrent() -> Translator:
    return small_translator("seq2seq", seed=3, bidirectional=True)


@pytest.mark.parametrize(
    "site", ["encoder.blocks.1.attn.mix[1]", "decoder.blocks.0.attn.mix[2]", "decoder.blocks.1.cross.mix[0]"]
)
def test_a_head_is_switched_off(attending: Translator, site: str) -> None:
    """As if its columns of the output matrix were 0, greedy and with beams; and only in that call."""
    plain = written(attending)
    found = [written(attending, edits=[{"site": site, "do": "zero"}], num_beams=n) for n in (1, 3)]
    assert written(attending) == plain
    path, head = site.removesuffix("]").split(".mix[")
    columns = slice(8 * int(head), 8 * int(head) + 8)
    with torch.no_grad():
        attending.net.get_submodule(path).proj.weight[:, columns] = 0
    assert found == [written(attending, num_beams=n) for n in (1, 3)]
    assert found[0] != plain


def test_the_context_vector_of_another_sentence(recurrent: Translator) -> None:
    """Step by step, as long as the translation of the other sentence has steps."""
    other = recurrent.translate(OTHER, to="fr", num_beams=1, max_new_tokens=4)
    ids = torch.tensor([[recurrent.net.config.start, *other.tokens]])
    with trace(recurrent.net, "decoder.attn.context") as seen, torch.no_grad():
        recurrent.net(torch.tensor([other.source_tokens]), ids)
    contexts = seen["decoder.attn.context"]  # (T, 1, E)

    def patched(step: int, value: torch.Tensor) -> torch.Tensor:
        return contexts[step].expand_as(value) if step < len(contexts) else value

    recurrent.settings["max_new_tokens"] = 4  # of the text that the edit names
    edits = [{"site": "decoder.attn.context", "do": "patch", "from": OTHER}]
    for beams in (1, 3):
        found = written(recurrent, edits=edits, num_beams=beams)
        with by_hand(recurrent, "decoder.attn.context", patched):
            assert found == written(recurrent, num_beams=beams)
    assert found != written(recurrent, num_beams=3)
    with recurrent.edit(edits, to="fr"):
        assert found == written(recurrent, num_beams=3)


@pytest.mark.parametrize("at", [1, -2])
@pytest.mark.parametrize(
    ("site", "step"),
    [("encoder.hidden", lambda at: at), ("encoder.hidden_back", lambda at: LENGTH - 1 - at)],
)
def test_a_state_of_the_encoder(
    recurrent: Translator, site: str, step: Callable[[int], int], at: int
) -> None:
    """A position of the source, whichever way it is read."""
    assert len(recurrent.encode_source(SOURCE, to="fr")) == LENGTH
    found = written(recurrent, edits=[{"site": site, "do": "scale", "by": -3, "at": [at]}], num_beams=1)
    wanted = step(at % LENGTH)
    with by_hand(recurrent, site, lambda met, value: -3 * value if met == wanted else value):
        assert found == written(recurrent, num_beams=1)
    assert found != written(recurrent, num_beams=1)


@pytest.mark.parametrize("kind", ["transformer", "seq2seq"])
def test_a_source_word_is_silenced(kind: str) -> None:
    """Scores far below 0 at its key are a mask that hides it from the decoder."""
    model = small_translator(kind, seed=2)
    out = model.translate(SOURCE, num_beams=1, **HOW)
    site = "decoder.attn.scores" if kind == "seq2seq" else "decoder.blocks.*.cross.scores"
    edits = [{"site": site, "do": "add", "value": -1e9, "keys": [3]}]
    found = out.edited(edits)

    net, source = model.net, torch.tensor([out.source_tokens])
    cache = net.new_cache(1, 9)
    memory = net.encode(source)
    if kind == "seq2seq":
        memory, cache.states = memory
        memory.mask[:, 3] = False
    else:
        memory.mask = torch.ones(1, 1, 1, source.shape[1], dtype=torch.bool)
        memory.mask[..., 3] = False
    cache.memory = memory
    with torch.no_grad():
        logits = net(source, torch.tensor([[net.config.start, *out.tokens]]), cache)[0]
    count = len(out.tokens)
    right = logits.log_softmax(-1)[torch.arange(count), out.tokens]
    np.testing.assert_allclose(found.after[:count], right, atol=1e-9)
    assert np.abs(found.after - found.before).max() > 1e-3


@pytest.mark.parametrize(
    ("kind", "site"),
    [
        ("transformer", "encoder.blocks.1.out"),
        ("transformer", "decoder.blocks.0.cross.v"),
        ("seq2seq", "encoder.states"),
        ("seq2seq", "encoder.hidden"),
    ],
)
def test_every_source_of_a_batch_ends_where_it_ends(kind: str, site: str) -> None:
    """The last position is that of each source, not that of the longest."""
    model = small_translator(kind, seed=3)
    edits = [{"site": site, "do": "scale", "by": 5, "at": [-1]}]
    texts = [SOURCE, OTHER, "She"]
    together = model.translate_many(texts, edits=edits, num_beams=1, **HOW)
    alone = [model.translate(text, edits=edits, num_beams=1, **HOW) for text in texts]
    assert [best.tokens for best, *_ in together] == [one.tokens for one in alone]
    assert [one.tokens for one in alone] != [
        model.translate(text, num_beams=1, **HOW).tokens for text in texts
    ]


@pytest.mark.parametrize("kind", ["transformer", "seq2seq"])
def test_questions_replay_the_edits(kind: str) -> None:
    """Behind a translation with edits, as inside of a block with them."""
    model = small_translator(kind, seed=3)
    site = "decoder.attn.scores" if kind == "seq2seq" else "decoder.blocks.1.cross.scores"
    edits = [{"site": site, "do": "zero", "at": [2]}]  # position 2 attends to all alike
    out = model.translate(SOURCE, edits=edits, **HOW)
    found = out.alignment() if kind == "seq2seq" else out.alignment(1, 0)
    np.testing.assert_allclose(found.weights[2], 1 / LENGTH, atol=1e-9)
    assert not np.allclose(found.weights[1], 1 / LENGTH, atol=1e-3)
    with model.edit(edits):
        inside = model.translate(SOURCE, **HOW)
        again = inside.alignment() if kind == "seq2seq" else inside.alignment(1, 0)
    np.testing.assert_allclose(found.weights, again.weights)
    assert "session" not in out.to_dict()
    assert out.to_dict().keys() == inside.to_dict().keys()


def test_positions_of_a_recurrent_decoder(recurrent: Translator) -> None:
    """The same ones while it writes, step by step, and when its text is read at once."""
    edits = [{"site": "decoder.hidden", "do": "scale", "by": -2, "at": [2]}]
    out = recurrent.translate(SOURCE, edits=edits, num_beams=1, **HOW)
    found = recurrent.translate(SOURCE, num_beams=1, **HOW).edited(edits)
    total = float(found.edited_logprobs[: len(out.tokens)].sum())
    assert total == pytest.approx(out.score, abs=1e-6)
    np.testing.assert_allclose(found.after[:2], found.before[:2], atol=1e-12)
    assert abs(found.after[2] - found.before[2]) > 1e-3


def test_side_by_side(recurrent: Translator) -> None:
    """Each token with its probability, also behind the edits; the longer translation sets the rows."""
    out = recurrent.translate(SOURCE, **HOW)
    edits = [{"site": "decoder.attn.context", "do": "zero"}]
    found = out.edited(edits)
    assert (found.text, found.edited) == (out.text, recurrent.translate(SOURCE, edits=edits, **HOW).text)
    assert found.text != found.edited
    assert [row[1] for row in found.rows[: len(found.tokens)]] == found.tokens
    assert [row[5] for row in found.rows[: len(found.edited_tokens)]] == found.edited_tokens
    assert len(found.rows) == max(len(found.tokens), len(found.edited_tokens))
    assert found.divergence.min() >= 0
    assert found.divergence.max() > 0.01
    assert f"becomes {found.edited!r}" in found.sentence()
    same = out.edited([{"site": "decoder.attn.context", "do": "scale", "by": 1}])
    assert f"stays {out.text!r}" in same.sentence()
    np.testing.assert_allclose(same.before, same.after)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (
            {"site": "encoder.hidden", "do": "zero", "at": [40]},
            "no source text had a position 40; the longest",
        ),
        ({"site": "decoder.attn.scores", "do": "zero", "keys": [40]}, "no source text had a position 40"),
        ({"site": "decoder.hidden", "do": "zero", "at": [40]}, "no text had a position 40"),
        (
            {"site": "encoder.states", "do": "zero", "keys": [1]},
            "only scores and pattern of attention have keys",
        ),
        (
            {"site": "decoder.attn.scores", "do": "zero", "keys": [-1]},
            "'keys' must be a list of positions from 0",
        ),
        ({"site": "blocks.0.attn", "do": "zero"}, "no site matches 'blocks.0.attn'"),
        ({"site": "encoder.states", "do": "patch", "from": " "}, "there is nothing to translate"),
    ],
)
def test_what_is_not_there(recurrent: Translator, edit: dict[str, Any], words: str) -> None:
    """One sentence each."""
    with pytest.raises((InputError, LookupError), match=words):
        recurrent.translate(SOURCE, edits=[edit], **HOW)

"""Beams and the greedy choice behind sources: token for token those of `transformers`, and a batch is its rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from marian import END, PAD, VOCAB, hugging_face, their_translations
from small import small_net
from transformers import MarianMTModel
from transformers.utils import logging

from glassformer.errors import InputError
from glassformer.generation.beam import Beam, beam_search
from glassformer.generation.decode import generate
from glassformer.generation.options import Options
from glassformer.hub.folder import load_folder
from glassformer.models.transformer import Transformer
from glassformer.nn.net import Net

Pair = tuple[MarianMTModel, Transformer]
NEAR = 2e-3  # two scores that are closer than this may change places between two implementations


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    """Small random models, theirs and ours, that like to end; the larger the weights, the surer they are."""
    logging.disable_progress_bar()
    made = []
    for seed, size, liking in ((0, 0.3, 4), (1, 0.4, 5), (2, 0.5, 6), (3, 0.4, 4)):
        theirs = hugging_face(seed, size=size)
        with torch.no_grad():
            theirs.final_logits_bias[0, END] += liking
            theirs.final_logits_bias[0, PAD] += 2  # likely, so that its ban has an effect
        folder = tmp_path_factory.mktemp("marian") / str(seed)
        theirs.save_pretrained(folder)
        made.append((theirs, load_folder(folder).model))
    return made


def some_sources(rng: np.random.Generator, count: int) -> list[list[int]]:
    """Rows of different lengths, each with its end token."""
    return [[*rng.integers(1, PAD, size=rng.integers(0, 12)).tolist(), END] for _ in range(count)]


def some_options(rng: np.random.Generator) -> dict[str, Any]:
    """Options of a search; the padding may be forbidden, and the end forced."""
    return {
        "num_return_sequences": int(rng.integers(1, 5)),
        "length_penalty": float(rng.choice([-1, 0, 0.6, 1, 2])),
        "early_stopping": [True, False, "never"][rng.integers(3)],
        "max_new_tokens": int(rng.integers(2, 16)),  # with a forced end, one token leaves nothing to choose
        "bad_words_ids": [[[PAD]], [[PAD], [7], [END]], [[PAD], [5, 6], [9, 9]]][rng.integers(3)],
        "renormalize_logits": bool(rng.integers(2)),
        "forced_eos_token_id": [None, END][rng.integers(2)],
    }


def our_beams(model: Net, sources: Sequence[Sequence[int]], **options: Any) -> list[list[Beam]]:
    prompts = [[PAD]] * len(sources)
    return list(beam_search(model.given(sources), prompts, options=Options(**options), ends=[END]))


def compare(pair: Pair, sources: list[list[int]], options: dict[str, Any]) -> tuple[list[Beam], int]:
    """All beams, which must be theirs, with their scores; and how often two of a source lie near each other."""
    theirs, ours = pair
    tokens, scores = their_translations(theirs, sources, **options)
    got = our_beams(ours, sources, **options)
    beams = [beam for found in got for beam in found]
    assert [beam.tokens for beam in beams] == tokens
    np.testing.assert_allclose([beam.score for beam in beams], scores, rtol=1e-4, atol=1e-5)
    near = sum(len(found) > 1 and found[0].score - found[1].score < NEAR for found in got)
    return beams, near


def test_four_beams_are_theirs(pairs: list[Pair]) -> None:
    """Batches of sources of different lengths; random penalties, ways to stop, and tokens that are forbidden."""
    rng = np.random.default_rng(0)
    finishes = []
    for case in range(20):
        beams, _ = compare(pairs[case % 4], some_sources(rng, 3), some_options(rng) | {"num_beams": 4})
        finishes += [beam.finish for beam in beams]
        assert not any(PAD in beam.tokens for beam in beams)
    assert 0.2 < finishes.count("stop") / len(finishes) < 0.8


@pytest.mark.slow
def test_a_thousand_sources_with_beams_are_theirs(pairs: list[Pair]) -> None:
    """Many more of the same. It prints how often the two best lie so near that another order would be fine."""
    rng = np.random.default_rng(100)
    near = 0
    for case in range(250):
        near += compare(pairs[case % 4], some_sources(rng, 4), some_options(rng) | {"num_beams": 4})[1]
    print(f"1000 sources, all the same; the two best within {NEAR} of each other: {near}")


def greedy(model: Net, sources: Sequence[Sequence[int]], **options: Any) -> list[tuple[tuple[int, ...], str]]:
    """The likeliest tokens and the finish of each source."""
    tokens: dict[int, list[int]] = {row: [] for row in range(len(sources))}
    finish = dict.fromkeys(tokens, "")
    chosen = Options(do_sample=False, **options)
    for event in generate(model.given(sources), [[PAD]] * len(sources), options=chosen, ends=[END]):
        if event.token is not None:
            tokens[event.prompt].append(event.token)
        finish[event.prompt] = event.finish or finish[event.prompt]
    return [(tuple(tokens[row]), finish[row]) for row in tokens]


@pytest.mark.parametrize("which", range(4))
def test_the_likeliest_tokens_are_theirs(which: int, pairs: list[Pair]) -> None:
    """Without beams, in the same batches."""
    theirs, ours = pairs[which]
    rng = np.random.default_rng(50 + which)
    for _ in range(3):
        options = some_options(rng)
        options = {name: options[name] for name in ("max_new_tokens", "bad_words_ids", "forced_eos_token_id")}
        sources = some_sources(rng, 4)
        tokens, _ = their_translations(theirs, sources, **options)
        assert [answer for answer, _ in greedy(ours, sources, **options)] == tokens


@pytest.mark.parametrize("beams", [1, 4])
def test_a_forced_end_takes_the_last_place(beams: int, pairs: list[Pair]) -> None:
    """A text that would have gone on has one token less than it may have, and is marked as cut."""
    ours, source = pairs[0][1], [[3, 4, 5, END]]

    def translate(**options: Any) -> tuple[tuple[int, ...], str]:
        how: dict[str, Any] = {"min_new_tokens": 7, "max_new_tokens": 7} | options
        if beams == 1:
            return greedy(ours, source, **how)[0]
        (found,) = our_beams(ours, source, num_beams=beams, **how)
        return found[0].tokens, found[0].finish

    free, cut = translate(), translate(forced_eos_token_id=END)
    assert (len(free[0]), free[1]) == (7, "length")
    assert (len(cut[0]), cut[1]) == (6, "length")
    assert translate(min_new_tokens=0, max_new_tokens=30, bad_words_ids=[[id] for id in range(1, VOCAB)]) == (
        (),
        "stop",
    )


def test_a_forced_end_is_drawn_too(pairs: list[Pair]) -> None:
    """Whatever the temperature and the filters, and at the edge of the context."""
    stepper = pairs[0][1].given([[3, 4, END]])
    context = pairs[0][1].context
    for options in (
        {"max_new_tokens": 5},
        {"max_new_tokens": 100},
        {"max_new_tokens": 5, "top_k": 0, "top_p": 0.5},
    ):
        chosen = Options(temperature=3.0, forced_eos_token_id=END, **options)
        events = list(generate(stepper, [[PAD]], options=chosen, known=VOCAB, forbidden=[END]))
        assert events[-1].token == END  # it is no end of a text here, and forbidden anywhere else
        assert [event.token == END for event in events[:-1]] == [False] * (len(events) - 1)
        assert len(events) == min(options["max_new_tokens"], context - 1)


def test_words_of_several_tokens_are_not_written(pairs: list[Pair]) -> None:
    """Each of their tokens may come, one behind the other they may not; nothing else changes."""
    ours, source = pairs[2][1], [[3, 4, 5, END]]
    how: dict[str, Any] = {"max_new_tokens": 12, "min_new_tokens": 12}
    ((free, _),) = greedy(ours, source, **how)
    first = free[4:6]
    ((other, _),) = greedy(ours, source, bad_words_ids=[list(first)], **how)
    starts = [at for at in range(11) if other[at : at + 2] == first]
    assert not starts
    assert other[: free.index(first[0]) + 1] == free[: free.index(first[0]) + 1]
    assert greedy(ours, source, bad_words_ids=[[*free[4:6], 48]], **how) == [(free, "length")]


@pytest.mark.parametrize("name", ["bad_words_ids", "forced_eos_token_id"])
def test_tokens_that_the_model_lacks_are_refused(name: str, pairs: list[Pair]) -> None:
    """By the name of the option."""
    value = VOCAB if name == "forced_eos_token_id" else [[1], [2, VOCAB]]
    with pytest.raises(
        InputError, match=rf"^{name}: {VOCAB} is not a token id of this model \(0 to {VOCAB - 1}\)"
    ):
        our_beams(pairs[0][1], [[3, END]], num_beams=2, **{name: value})


@pytest.mark.parametrize("kind", ["transformer", "seq2seq"])
@pytest.mark.parametrize("beams", [1, 3])
def test_a_batch_is_each_source_alone(kind: str, beams: int) -> None:
    """Tokens and scores, whatever else is in the batch, whenever the others end."""
    changes: dict[str, Any] = {"heads": 2, "head_bias": True} if kind == "transformer" else {}
    net = small_net(kind, 5, vocab=VOCAB, pad=PAD, start=PAD, **changes)
    with torch.no_grad():
        net.head.bias[END] += 2  # it likes to end
    sources = some_sources(np.random.default_rng(8), 6)
    for early_stopping in (True, False, "never"):
        how = {"max_new_tokens": 9, "early_stopping": early_stopping}
        if beams == 1:
            together: list[Any] = greedy(net, sources, max_new_tokens=9)
            alone = [greedy(net, [source], max_new_tokens=9)[0] for source in sources]
            assert together == alone
            continue
        together = our_beams(net, sources, num_beams=beams, num_return_sequences=beams, **how)
        assert len({len(found[0].tokens) for found in together}) > 1
        for found, source in zip(together, sources, strict=True):
            (right,) = our_beams(net, [source], num_beams=beams, num_return_sequences=beams, **how)
            assert [(beam.tokens, beam.finish) for beam in found] == [
                (beam.tokens, beam.finish) for beam in right
            ]
            np.testing.assert_allclose(
                [beam.score for beam in found], [beam.score for beam in right], rtol=1e-4
            )

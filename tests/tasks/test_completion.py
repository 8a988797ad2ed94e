"""Run once, then ask the result: every method beside the plain run of the model."""

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.errors import InputError, UnknownSite
from glassformer.tasks.complete import Completion, LanguageModel


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return gf.load("storyteller", engine="torch")


@pytest.fixture(scope="module")
def out(lm: LanguageModel) -> Completion:
    return lm.generate("Once upon a time", max_new_tokens=6, temperature=0)


def test_ranks_of_what_was_written(out: Completion) -> None:
    """At the last stage of a greedy text all ranks are 1, and the log-probabilities are those of the
    generation.
    """
    found = out.rankings()
    ranks, logprobs = found.ranks, found.logprobs
    assert ranks.shape == logprobs.shape == (1 + 2 * len(out.lm.net.blocks), 6)
    assert (ranks[-1] == 1).all()
    np.testing.assert_allclose(logprobs[-1], out.logprobs, atol=1e-4)
    assert (ranks[0] > 1).any()


def test_words_against_each_other(out: Completion) -> None:
    """By text or by id, after any position; the likelier one has the better rank."""
    found = out.rankings_watch([" girl", " boy"])
    ids = [out.lm.encode(" girl")[0], out.lm.encode(" boy")[0]]
    logits = torch.tensor(out.lm.logits(out.ids)[-1])
    right = [int((logits > logits[id]).sum()) + 1 for id in ids]
    assert found.ranks[-1].tolist() == right
    assert out.rankings_watch(ids).ranks.tolist() == found.ranks.tolist()
    assert out.rankings_watch([out.tokens[2]], position=len(out.prompt_tokens) + 1).ranks[-1].tolist() == [1]


def test_the_other_questions(out: Completion) -> None:
    """Each answers about the whole text, prompt and answer."""
    size = len(out.prompt_tokens) + 6
    assert out.attention(1, 0).weights.shape == (size, size)
    assert len(out.attention().rows) == len(out.lm.net.blocks) * out.lm.net.config.heads
    assert out.steps(1, 0).weights.sum() == pytest.approx(1)
    assert out.lens(k=2).top.shape == (1 + 2 * len(out.lm.net.blocks), size, 2)
    assert out.saliency(tested=False).shares.shape == (6, size - 1)
    parts = out.attribution(3)
    assert parts.token == out.tokens[3]
    assert parts.values.sum() == pytest.approx(parts.logit, abs=1e-4)
    assert parts.logit == pytest.approx(
        float(out.lm.logits(out.ids)[len(out.prompt_tokens) + 2, out.tokens[3]]), abs=1e-4
    )
    assert out.neurons([0]).nmf(3).patterns.shape == (3, size)
    assert [one.computed[0] for one in out.cache().steps] == [len(out.prompt_tokens), 1, 1, 1, 1, 1]


def test_attribution_of_any_token(out: Completion) -> None:
    """Of another token in the place of one that was generated, or after any position."""
    at = len(out.prompt_tokens) + 1
    girl = out.lm.encode(" girl")[0]
    logits = out.lm.logits(out.ids)
    for found in (out.attribution(2, token=" girl"), out.attribution(position=at, token=girl)):
        assert found.token == girl
        assert found.values.sum() == pytest.approx(float(logits[at, girl]), abs=1e-4)
    assert out.attribution(position=0).token == logits[0].argmax()
    with pytest.raises(InputError, match="or a position, not both"):
        out.attribution(1, position=0)


def test_one_where_several_may_be(lm: LanguageModel, out: Completion) -> None:
    """A text is one word, not its letters; a number is one layer; and one text is a corpus."""
    assert out.lens(watch=" girl").watched == out.lens(watch=[" girl"]).watched == lm.encode(" girl")
    assert out.rankings_watch(" girl").words == [" girl"]
    assert (out.neurons(1).activations == out.neurons([1]).activations).all()
    text = "The dog ran to the park"
    found = lm.examples(text, layer=1, neuron=17, k=1).examples
    assert [one.ids for one in found] == [
        one.ids for one in lm.examples([text], layer=1, neuron=17, k=1).examples
    ]


def test_names_that_ecco_gave(out: Completion) -> None:
    """The same answers."""
    assert (out.primary_attributions().shares == out.saliency(tested=False).shares).all()
    assert out.layer_predictions(topk=3).to_dict() == out.lens(3).to_dict()
    assert {row[1] for row in out.layer_predictions(position=-2).rows} == {len(out.ids) - 2}
    assert (out.run_nmf(2).patterns == out.neurons().nmf(2).patterns).all()
    assert (out.factors(2).patterns == out.neurons().factors(2).patterns).all()


def test_words_share_what_their_tokens_have(lm: LanguageModel) -> None:
    """Shares of a word are the sum over its tokens."""
    out = lm.generate("The unbelievable zebra was", max_new_tokens=2, temperature=0)
    tokens, joined = (out.saliency(by_word=by_word, tested=False) for by_word in (False, True))
    assert len(joined.tokens) < len(tokens.tokens)
    np.testing.assert_allclose(joined.shares.sum(1), 1, rtol=1e-5)
    size = len(lm.encode(" unbelievable"))
    assert joined.tokens[1] == " unbelievable"
    assert joined.shares[0, 1] == pytest.approx(tokens.shares[0, 1 : 1 + size].sum(), rel=1e-5)


def test_run_with_cache(lm: LanguageModel, out: Completion) -> None:
    """Keyed by our sites; TransformerLens' names and shapes are understood as well."""
    logits, cache = lm.run_with_cache("The cat sat")
    assert np.array_equal(logits[0].numpy(), lm.logits(lm.encode("The cat sat")))
    assert len(cache) == len(list(cache)) == 3 + 12 * len(lm.net.blocks)
    pattern = cache["blocks.1.attn.pattern"]
    assert cache["blocks.1.attn.hook_pattern"] is cache["pattern", 1] is pattern
    assert torch.equal(cache["z", 2], cache["blocks.2.attn.mix"].transpose(1, 2))
    assert cache["post", 0] is cache["blocks.0.mlp.neurons"]
    _, some = lm.run_with_cache(lm.encode("The cat sat"), "blocks.*.hook_resid_post", "final")
    assert list(some) == [*(f"blocks.{layer}.out" for layer in range(len(lm.net.blocks))), "final"]
    for name in ("blocks.0.mlp.hook_pre", "hook_pos_embed"):
        with pytest.raises(UnknownSite, match="has no counterpart; in a block there are hook_resid_pre"):
            cache[name]
    with pytest.raises(UnknownSite, match="'rubbish' is none of resid_pre"):
        cache["rubbish", 1]
    with pytest.raises(UnknownSite, match="it holds"):
        some["embed"]


def test_what_cannot_be_asked(lm: LanguageModel, out: Completion) -> None:
    """One sentence each."""
    nothing = lm.generate("Once", max_new_tokens=0)
    for call, words in (
        (nothing.rankings, "nothing was generated"),
        (nothing.saliency, "nothing was generated"),
        (nothing.cache, "this text has none"),
        (nothing.attribution, "nothing was generated; name a position"),
        (lambda: out.attribution(6), r"token 6 is out of range \(0 to 5 were generated\)"),
        (lambda: out.rankings_watch([]), "at least one token to watch"),
        (lambda: out.rankings_watch([" zebra zebra"]), "is not one token"),
        (lambda: out.rankings_watch([" girl"], position=99), "position 99 is out of range"),
        (lambda: out.layer_predictions(position=99), "position 99 is out of range"),
        (lambda: out.lens(k=0), "k must be between 1"),
        (lambda: Completion("", [1], 0, 0).lens(), "lost its model"),
    ):
        with pytest.raises(InputError, match=words):
            call()


def test_questions_that_make_no_sense(out: Completion) -> None:
    """One sentence each, not an error of Python's."""
    for ask, words in (
        (lambda: out.attention(head=0), "need a layer"),
        (lambda: out.attention(layer="x"), "layer 'x' is out of range"),  # type: ignore[arg-type]
        (lambda: out.attention(layer=1.5), "layer 1.5 is out of range"),  # type: ignore[arg-type]
        (lambda: out.lens().save("x.svg", width="wide"), "width must be between 120 and 10,000, not 'wide'"),
    ):
        with pytest.raises(InputError, match=words):
            ask()
    assert len(repr(out.lens())) < 2000
    assert out.cache().to_numpy()["steps"]["computed"].shape == (6, len(out.lm.net.blocks))
    assert out.saliency(tested=False).to_numpy()["scores"].ndim == 2


def test_a_position_may_be_a_word(lm: LanguageModel) -> None:
    """In every question that has one: the word's last token, or the text of a token; one place, or an error."""
    out = lm.generate("The unbelievable robot ran. The end", max_new_tokens=1, temperature=0)
    labels = out.lens().tokens
    robot = labels.index(" robot")
    assert out.steps(1, 0, position="robot").position == out.steps(1, 0, position=" robot").position == robot
    assert out.steps(1, 0, position="unbelievable").position == robot - 1
    assert out.steps(1, 0, position=labels[1]).position == 1  # a token that is no word
    assert out.residual("robot").position == out.rankings_watch(" was", position="robot").position == robot
    named, numbered = (out.attribution(position=at) for at in ("robot", robot))
    assert named.rows == numbered.rows
    assert out.lens().at("robot").rows == out.lens().at(robot).rows
    assert out.layer_predictions("robot").rows == out.layer_predictions(robot).rows
    for ask in (out.residual, lambda word: out.steps(1, 0, position=word), out.lens().at):
        with pytest.raises(InputError, match=f"'The' is at positions 0, {labels.index(' The')}; give one"):
            ask("The")
        with pytest.raises(InputError, match="'dog'"):
            ask("dog")

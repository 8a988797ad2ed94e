"""Edits: every kind of edit beside the same change made by hand, and the sweep beside one run a place."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from explain.models import KINDS, read
from explain.readings import reading
from small import Pair

import glassformer as gf
from glassformer.errors import InputError
from glassformer.explain import edits as module
from glassformer.explain.edits import Edit, direction, mean_over, sweep, values_at
from glassformer.explain.lens import attribution
from glassformer.explain.reading import Reading
from glassformer.generation.decode import generate
from glassformer.generation.options import Options

OTHER = [9, 9, 60, 3, 4, 5, 6, 7, 8, 1, 2, 3]


def logits(pair: Pair, ids: list[int], edits: dict[str, object] | None = None) -> torch.Tensor:
    with torch.no_grad(), gf.trace(pair.ours, edits=edits or {}):  # type: ignore[arg-type]
        return pair.ours(torch.tensor([ids]))[0]


def edited(pair: Pair, *edits: Edit) -> torch.Tensor:
    with module.edited(pair.ours, edits):
        return logits(pair, pair.ids)


def test_every_kind_of_edit(pair: Pair) -> None:
    """Each edit has its effect, on a head, on neurons, on the whole stream."""
    heads, head, stream, neuron = (
        "blocks.1.attn.mix",
        "blocks.1.attn.mix[2]",
        "blocks.0.out",
        "blocks.0.mlp.neurons[7]",
    )
    by_head = np.arange(24.0).reshape(3, 8)
    right = {
        "zero": (Edit(head, "zero"), {head: torch.zeros_like}),
        "scale": (Edit(neuron, "scale", by=-3.0), {neuron: lambda x: -3 * x}),
        "mean": (Edit(head, "mean", value=np.arange(8.0)), {head: lambda x: torch.arange(8.0) + 0 * x}),
        "mean of all heads": (
            Edit(heads, "mean", value=by_head),
            {heads: lambda x: torch.tensor(by_head)[:, None] + 0 * x},
        ),
        "mean of a neuron": (Edit(neuron, "mean", value=np.array(2.5)), {neuron: lambda x: 2.5 + 0 * x}),
        "every layer": (Edit("blocks.*.mlp", "zero"), {f"blocks.{n}.mlp": torch.zeros_like for n in (0, 1)}),
        "add": (
            Edit(stream, "add", by=0.5, value=np.arange(24.0)),
            {stream: lambda x: x + torch.arange(24.0) / 2},
        ),
        "sub-layer": (Edit("blocks.0.attn", "zero"), {"blocks.0.attn.out": torch.zeros_like}),
    }
    plain = logits(pair, pair.ids)
    for name, (edit, by_hand) in right.items():
        found = edited(pair, edit)
        torch.testing.assert_close(found, logits(pair, pair.ids, by_hand), rtol=0, atol=1e-12, msg=name)
        assert not torch.allclose(found, plain), name


def test_edits_of_one_site_follow_each_other(pair: Pair) -> None:
    """In the order of the list."""
    site = "blocks.0.out"
    found = edited(pair, Edit(site, "scale", by=2.0), Edit(site, "add", value=np.ones(24)))
    torch.testing.assert_close(found, logits(pair, pair.ids, {site: lambda x: 2 * x + 1}), rtol=0, atol=1e-12)
    all_of_them, one = "blocks.0.attn.mix", "blocks.0.attn.mix[1]"
    found = edited(
        pair, Edit(one, "scale", by=2.0), Edit(all_of_them, "zero"), Edit(one, "add", value=np.ones(8))
    )

    def only_one(x: torch.Tensor) -> torch.Tensor:
        x = torch.zeros_like(x)
        x[:, 1] = 1
        return x

    torch.testing.assert_close(found, logits(pair, pair.ids, {all_of_them: only_one}), rtol=0, atol=1e-12)


def test_no_position_sees_ahead(pair: Pair) -> None:
    """Whatever is done to scores, a later token changes nothing before it."""
    for edit in (Edit("blocks.0.attn.scores[1]", "zero"), Edit("blocks.1.attn.scores", "scale", by=-1.0)):
        with module.edited(pair.ours, [edit]):
            one, other = logits(pair, pair.ids), logits(pair, [*pair.ids[:-1], 3])
        assert one.isfinite().all()
        torch.testing.assert_close(one[:-1], other[:-1], rtol=0, atol=1e-12)


def test_parts_under_edits(pair: Pair) -> None:
    """What an edit puts on the stream is a part of its own, and all still add up."""
    for edit in (Edit("blocks.0.attn", "zero"), Edit("blocks.0.out", "add", value=np.arange(24.0))):
        with module.edited(pair.ours, [edit]):
            found = attribution(reading(pair), position=-1, token=40)
        assert "edits" in found.parts
        assert found.values.sum() == pytest.approx(found.logit, abs=1e-9)
    assert "edits" not in attribution(reading(pair), position=-1, token=40).parts


def test_at_some_positions(pair: Pair) -> None:
    """Elsewhere nothing changes."""

    def by_hand(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[:, [1, 11]] = 0
        return x

    found = edited(pair, Edit("blocks.0.out", "zero", at=(1, -1)))
    torch.testing.assert_close(found, logits(pair, pair.ids, {"blocks.0.out": by_hand}), rtol=0, atol=1e-12)
    torch.testing.assert_close(found[0], logits(pair, pair.ids)[0], rtol=0, atol=1e-12)


def by_hand(edit: Edit, prompt: int, size: int) -> Edit:
    """The same edit for a text that is read at once, at positions from the beginning."""
    if edit.at is None:
        return edit
    at = tuple(n + prompt if n < 0 else n for n in edit.at)
    value = edit.value
    if value is not None and edit.do == "patch":  # what is counted from the end is taken from the end
        value = value.copy()
        for n, place in zip(edit.at, at, strict=True):
            value[:, place] = edit.value[:, n]  # type: ignore[index]
    return Edit(edit.site, edit.do, edit.by, tuple(n for n in at if n < size), value)


@pytest.mark.parametrize("prompts", [[[5]], [[5, 17, 5, 17]], [[5, 17, 60], [5], [9, 9, 9, 9, 9]]])
@pytest.mark.parametrize("at", [(0,), (-1,), (2, 6), None])
@pytest.mark.parametrize("kind", ["gpt2", "gpt1", "gpt3"])
def test_edits_hold_while_a_text_is_generated(
    pair: Pair, kind: str, prompts: list[list[int]], at: tuple[int, ...] | None
) -> None:
    """Behind a cache and in a padded batch, an edit has the same positions as in a text read at once."""
    pair = pair if kind == "gpt2" else pair._replace(ours=KINDS[kind](3))
    own = values_at(reading(pair, [1, 2, 3, 4, 5, 6, 7, 8, 9]), ["blocks.0.attn.mix"])[
        "blocks.0.attn.mix"
    ].numpy()
    edits = [
        Edit("blocks.0.mlp.out", "add", value=np.arange(24.0) / 9, at=at),
        Edit("blocks.0.attn.mix", "patch", value=own, at=at or (0, 1, 2, 3, 4, 5, 6, 7, 8)),
        Edit("final", "scale", by=2.0, at=at),
    ]
    options = Options(max_new_tokens=4, temperature=0)
    with module.edited(pair.ours, edits):
        events = list(generate(pair.ours, prompts, options=options))
    for which, prompt in enumerate(prompts):
        written = [event for event in events if event.prompt == which]
        tokens = [event.token for event in written]
        assert None not in tokens
        whole = [*prompt, *tokens[:-1]]  # type: ignore[list-item]
        with module.edited(pair.ours, edits):
            again = reading(pair, whole, len(prompt)).run("logits", last=False)["logits"][0].detach()
        fixed = [by_hand(edit, len(prompt), len(whole)) for edit in edits]
        with module.edited(pair.ours, fixed):
            right = logits(pair, whole)
        torch.testing.assert_close(again, right, rtol=0, atol=1e-12)
        right = right.log_softmax(-1)[len(prompt) - 1 :]
        assert tokens == right.argmax(-1).tolist()
        assert [event.logprob for event in written] == pytest.approx(right.max(-1).values.tolist(), abs=1e-5)


def test_inside_and_outside(pair: Pair) -> None:
    """Behind the block the model is itself again, also after an error."""
    plain = logits(pair, pair.ids)
    with pytest.raises(ZeroDivisionError), module.edited(pair.ours, [Edit("blocks.0.attn", "zero")]):
        raise ZeroDivisionError
    torch.testing.assert_close(logits(pair, pair.ids), plain, rtol=0, atol=0)
    with (
        gf.trace(pair.ours, "blocks.0.attn.out") as seen,
        module.edited(pair.ours, [Edit("blocks.0.attn", "zero")]),
    ):
        pair.ours(torch.tensor([pair.ids]))
    assert seen["blocks.0.attn"].shape == (1, 12, 24)
    with module.edited(pair.ours, []), gf.trace(pair.ours, "logits") as seen:
        pair.ours(torch.tensor([pair.ids]))
    torch.testing.assert_close(seen["logits"][0].detach(), plain, rtol=0, atol=0)


def test_patching_all_of_a_layer_gives_the_other_text(pair: Pair) -> None:
    """And patching with the same values changes nothing."""
    for site in ("blocks.0.out", "blocks.1.attn.mix"):
        own = values_at(reading(pair), [site])[site].numpy()
        torch.testing.assert_close(
            edited(pair, Edit(site, "patch", value=own)), logits(pair, pair.ids), rtol=0, atol=0
        )
    other = values_at(reading(pair, OTHER), ["blocks.0.out"])["blocks.0.out"].numpy()
    torch.testing.assert_close(
        edited(pair, Edit("blocks.0.out", "patch", value=other)), logits(pair, OTHER), rtol=0, atol=1e-12
    )


def test_a_sweep_is_one_patch_after_the_other(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs side by side; all of the last layer's last place is all of the answer."""
    sites = ["blocks.0.out", "blocks.0.attn.mix", "blocks.1.out"]
    seen = []
    found = sweep(
        reading(pair),
        reading(pair, OTHER),
        sites=sites,
        answer=40,
        foil=41,
        progress=lambda *done: seen.append(done),
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]
    for number, site in enumerate(sites):
        own = values_at(reading(pair), [site])[site]
        for position in range(12):

            def by_hand(x: torch.Tensor, own: torch.Tensor = own, position: int = position) -> torch.Tensor:
                x = x.clone()
                x[..., position, :] = own[..., position, :]
                return x

            last = logits(pair, OTHER, {site: by_hand})[-1]
            assert found.patched[number, position] == pytest.approx(float(last[40] - last[41]), rel=1e-9)
    clean, corrupted = (
        float(logits(pair, ids)[-1, 40] - logits(pair, ids)[-1, 41]) for ids in (pair.ids, OTHER)
    )
    assert (found.clean, found.corrupted) == pytest.approx((clean, corrupted))
    assert found.restored[2, -1] == pytest.approx(1.0)
    np.testing.assert_allclose(found.restored[2, :-1], 0, atol=1e-9)
    monkeypatch.setattr("glassformer.explain.edits.ROWS", 5)
    np.testing.assert_allclose(
        sweep(reading(pair), reading(pair, OTHER), sites=sites, answer=40, foil=41).patched,
        found.patched,
        rtol=1e-12,
    )


def test_directions_and_means(pair: Pair) -> None:
    """A direction is the mean way between the last tokens; a mean is over all tokens of all texts."""
    pairs = [([1, 2, 3], [4, 5]), ([6], [7, 8, 9, 10])]
    site = "blocks.1.mid"
    ends = [[values_at(reading(pair, ids), [site])[site][-1].numpy() for ids in two] for two in pairs]
    np.testing.assert_allclose(
        direction([(reading(pair, a), reading(pair, b)) for a, b in pairs], site),
        np.mean([a - b for a, b in ends], 0),
        rtol=1e-5,
    )
    all_of_them = np.concatenate(
        [values_at(reading(pair, ids), [site])[site].numpy() for two in pairs for ids in two]
    )
    np.testing.assert_allclose(
        mean_over([reading(pair, ids) for two in pairs for ids in two], site), all_of_them.mean(0), rtol=1e-5
    )
    assert mean_over([reading(pair, [1, 2]), reading(pair, [3])], "blocks.0.attn.mix").shape == (3, 8)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda pair: Edit("blocks.0.out", "burn"), "do 'burn' is none of zero, mean, scale, add, patch"),
        (lambda pair: Edit("blocks.0.out", "add"), "blocks.0.out: add needs a value"),
        (
            lambda pair: edited(pair, Edit("blocks.0.out", "add", value=np.ones(5))),
            r"a value of shape \(5,\) does not fit",
        ),
        (
            lambda pair: edited(pair, Edit("blocks.0.out", "zero", at=(12,))),
            "no text had a position 12; the longest had 0 to 11",
        ),
        (lambda pair: edited(pair, Edit("blocks.9.out", "zero")), "no site matches 'blocks.9.out'"),
        (lambda pair: edited(pair, Edit("blocks.0.attn.mix[3]", "zero")), "this axis has 3 entries"),
        (
            lambda pair: edited(pair, Edit("blocks.0.out", "patch", value=np.ones((3, 24)), at=(3,))),
            "the other text has 0 to 2",
        ),
        (
            lambda pair: direction([(reading(pair), reading(pair, [1, 2]))], "blocks.0.attn.pattern"),
            "another shape for every text",
        ),
        (lambda pair: Edit("blocks.0.out", "mean"), "blocks.0.out: mean needs a value"),
        (
            lambda pair: sweep(reading(pair, [1, 2]), reading(pair, [1]), sites=["embed"], answer=0, foil=1),
            "as many tokens as each other, not 2 and 1",
        ),
        (
            lambda pair: sweep(reading(pair, [1]), reading(pair, [2]), sites=["embed"], answer=0, foil=97),
            "token 97 is out of range",
        ),
        (lambda pair: direction([], "embed"), "at least one pair"),
    ],
)
def test_what_is_not_there(pair: Pair, call: object, words: str) -> None:
    """One sentence each."""
    with pytest.raises((InputError, gf.GlassError), match=words):
        call(pair)  # type: ignore[operator]


@pytest.fixture
def translation() -> Reading:
    return read("translator", 4, [5, 17, 5, 17, 60, 5, 2])


def all_logits(text: Reading) -> torch.Tensor:
    return text.run("logits", last=False)["logits"][0].clone()


@pytest.mark.parametrize("site", ["encoder.blocks.0.attn.mix[1]", "decoder.blocks.0.cross.mix[0]"])
def test_a_head_of_any_stack(translation: Reading, site: str) -> None:
    """Without the head its columns of the output matrix have nothing to do."""
    plain = all_logits(translation)
    with module.edited(translation.net, [Edit(site, "zero")]):
        found = all_logits(translation)
    path, head = site.split(".mix")
    columns = slice(8 * int(head[1]), 8 * int(head[1]) + 8)
    with torch.no_grad():
        translation.net.get_submodule(path).proj.weight[:, columns] = 0  # type: ignore[attr-defined]
    torch.testing.assert_close(found, all_logits(translation), rtol=0, atol=1e-12)
    assert not torch.allclose(found, plain)


@pytest.mark.parametrize("site", ["encoder.blocks.0.mid", "encoder.embed", "decoder.blocks.1.cross.v"])
def test_positions_of_the_source(translation: Reading, site: str) -> None:
    """Count over the source where a site has its positions: 4 and -1 are its last token, 5 is none."""

    def without_last(value: torch.Tensor) -> torch.Tensor:
        new = value.clone()
        new[..., 4, :] = 0
        return new

    right = translation.run("logits", last=False, edits={site: without_last})["logits"][0]
    for prompt in (0, 2):
        text = replace(translation, prompt=prompt)
        for at in (4, -1):
            with module.edited(text.net, [Edit(site, "zero", at=(at,))]):
                assert torch.equal(all_logits(text), right)
    with (
        pytest.raises(InputError, match="no source text had a position 5; the longest had 0 to 4"),
        module.edited(translation.net, [Edit(site, "zero", at=(5,))]),
    ):
        all_logits(translation)


def test_queries_of_cross_attention_are_positions_of_the_text(translation: Reading) -> None:
    """Position 5, which the source does not have; nothing before it changes."""
    plain = all_logits(translation)
    for site in ("decoder.blocks.1.cross.q", "decoder.blocks.0.cross.pattern", "decoder.blocks.0.cross"):
        with module.edited(translation.net, [Edit(site, "scale", by=3.0, at=(5,))]):
            found = all_logits(translation)
        moved = (found - plain).abs().amax(-1) > 1e-9
        assert moved[5]
        assert not moved[:5].any()


def test_an_edit_of_both_stacks(translation: Reading) -> None:
    """A glob counts positions in each text; one that only the text has is a mistake in the source."""
    for at, mistaken in ((4, False), (6, True)):
        edits = [Edit("*blocks.0.mlp", "zero", at=(at,))]
        raises = pytest.raises(InputError, match="no source text had a position 6")
        with raises if mistaken else nullcontext(), module.edited(translation.net, edits):
            seen = translation.run("encoder.blocks.0.mlp.out", "decoder.blocks.0.mlp.out")
            assert not seen["decoder.blocks.0.mlp.out"][0, at].any()
            assert mistaken or not seen["encoder.blocks.0.mlp.out"][0, at].any()


def test_keys_are_hidden(pair: Pair) -> None:
    """Attention knockout: far below 0, a score is a mask; at once, behind a cache, and in a padded row."""
    net, ids, hidden = pair.ours, [5, 17, 60, 2, 9, 33], 2
    edits = [Edit("blocks.*.attn.scores", "add", value=np.array(-1e9), keys=(hidden,), at=(4, 5))]
    mask = torch.zeros(6, 6)
    mask[4:, hidden] = -1e9
    by_hand = {"blocks.*.attn.scores": lambda scores: scores + mask}
    right = reading(pair, ids).run("logits", last=False, edits=by_hand)["logits"][0]
    with module.edited(net, edits):
        found = all_logits(reading(pair, ids))
        cache = net.new_cache(2, 9, padding=np.array([0, 2]))
        rows = np.array([[1, 2, *ids[:4]], [0, 0, *ids[:4]]])
        net.step(rows, cache)
        stepped = [net.step(np.array([[token]] * 2), cache)[1] for token in ids[4:]]
    torch.testing.assert_close(found, right, rtol=0, atol=1e-9)
    assert not torch.allclose(found, all_logits(reading(pair, ids)))
    np.testing.assert_allclose(np.stack(stepped), right[4:].numpy(), atol=1e-4)

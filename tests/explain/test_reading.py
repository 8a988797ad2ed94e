"""A reading: one place that runs a model for an explanation, checks what it is given, and holds the lock."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from explain.models import SOURCE, read, toy
from explain.readings import reading
from small import Pair

import glassformer as gf
from glassformer.errors import InputError
from glassformer.explain.attention import masks, patterns, query_steps, value_weighted
from glassformer.explain.cache import steps
from glassformer.explain.edits import Edit, EditSession, edited, values_at
from glassformer.explain.faithfulness import faithfulness
from glassformer.explain.lens import attribution, inputs, lens, residual
from glassformer.explain.neurons import activations, examples
from glassformer.explain.reading import Reading, check_neuron, layer_sites, prompt_length
from glassformer.explain.saliency import METHODS, Target, saliency


def test_run_is_one_forward_pass_under_a_trace(pair: Pair) -> None:
    """The last position's logits, or all; some sites, in several rows; edits and gradients."""
    text = reading(pair)
    right = pair.ours(torch.tensor([pair.ids])).detach()
    assert text.run("logits")["logits"].shape == (1, 1, 97)
    torch.testing.assert_close(text.run("logits", last=False)["logits"], right, rtol=0, atol=0)
    seen = text.run("embed", "blocks.0.out", rows=3)
    assert list(seen) == ["embed", "blocks.0.out"]
    assert seen["embed"].shape == (3, 12, 24)
    zeroed = text.run("blocks.0.mid", "blocks.0.in", edits={"blocks.0.attn": torch.zeros_like})
    assert torch.equal(zeroed["blocks.0.mid"], zeroed["blocks.0.in"])
    seen = text.run("embed", "logits", grad=True)
    seen["logits"].sum().backward()
    assert seen.gradient("embed").any()
    pair.ours.zero_grad(set_to_none=True)


def test_a_run_without_the_edits_around_it(pair: Pair) -> None:
    """Sees the model as it is, and the trace around sees nothing of it."""
    text = reading(pair)
    plain = text.run("blocks.1.out")["blocks.1.out"]
    with (
        gf.trace(pair.ours, "final") as outer,
        edited(pair.ours, [Edit("blocks.0.attn", "zero")]),
    ):
        inner = text.run_unedited("blocks.1.out")["blocks.1.out"]
        changed = text.run("blocks.1.out")["blocks.1.out"]
    assert torch.equal(inner, plain)
    assert not torch.equal(changed, plain)
    assert outer["final"].shape == (1, 1, 24)  # of one run


def test_stacks(pair: Pair) -> None:
    """By prefix; without one, the last."""
    assert reading(pair).stack().layers == 2
    text = Reading(toy(), [1, 2])
    assert text.stack() == text.stack("encoder.") == text.net.stacks[0]
    assert layer_sites(text.stack(), "mlp.out", layers=[1]) == ["encoder.blocks.1.mlp.out"]
    with pytest.raises(InputError, match=r"stack 'decoder\.' does not exist; this model has: encoder"):
        text.stack("decoder.")


def test_two_texts() -> None:
    """The encoder reads the source, the decoder the text, and attends to the source from there."""
    text = read("translator", 1, [1, 2, 3])
    assert text.stack() == text.stack("decoder") == text.net.stacks[1]
    assert (text.ids_of("encoder"), text.ids_of("decoder"), text.ids_of()) == (SOURCE, [1, 2, 3], [1, 2, 3])
    assert text.axes(stack="encoder") == (SOURCE, SOURCE)
    assert text.axes() == ([1, 2, 3], [1, 2, 3])
    assert text.axes(part="cross") == ([1, 2, 3], SOURCE)
    assert text.check_position(-1, stack="encoder") == 4
    assert text.until(0).source == SOURCE
    seen = text.run("encoder.embed", "decoder.embed", "logits", rows=2)
    assert [tuple(value.shape) for value in seen.values()] == [(2, 5, 24), (2, 3, 24), (2, 1, 97)]
    with pytest.raises(InputError, match="stack 'middle' does not exist; this model has: encoder, decoder"):
        text.stack("middle")
    with pytest.raises(InputError, match=r"attention 'cross' does not exist in the stack encoder, .*: attn"):
        text.axes(stack="encoder", part="cross")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, "reads a source text beside the text, and none was given"),
        ([], "the source text is empty"),
        ([97], "token 97 is out of range"),
        ([1] * 9, "the source text: 9 tokens are 3 more than the model's context of 6"),
    ],
)
def test_a_source_that_cannot_be_read(source: list[int] | None, words: str) -> None:
    """It is checked as the text is."""
    text = replace(read("translator", 1, [1, 2]), source=source)
    text.net.context = 6  # type: ignore[misc]
    with pytest.raises(InputError, match=words):
        text.run("embed")


def test_a_source_for_a_model_of_one_text(pair: Pair) -> None:
    """Is refused."""
    with pytest.raises(InputError, match="this model reads one text"):
        replace(reading(pair), source=[1]).run("embed")


def test_checks(pair: Pair) -> None:
    """What is in range comes back, positions counted from 0."""
    text = reading(pair)
    assert [text.check_position(position) for position in (0, 11, -1, -12)] == [0, 11, 11, 0]
    assert (text.check_layer(1), text.check_head(2), text.check_token(96)) == (1, 2, 96)
    assert text.check_layers(None) == [0, 1]
    assert check_neuron(text.stack(), 95) == 95


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda text: text.check_position(12),
            r"position 12 is out of range \(the text has positions 0 to 11\)",
        ),
        (lambda text: text.check_position(-13), "position -13 is out of range"),
        (lambda text: text.check_layer(2), r"layer 2 is out of range \(0 to 1\)"),
        (lambda text: text.check_layer(-1), "layer -1 is out of range"),
        (lambda text: text.check_layer("1"), "layer '1' is out of range"),
        (lambda text: text.check_head(3), r"head 3 is out of range \(0 to 2\)"),
        (lambda text: text.check_token(97), r"token 97 is out of range \(0 to 96\)"),
        (lambda text: Reading(text.net, []).run("embed"), "the text is empty"),
        (lambda text: Reading(text.net, [1, 97]).run("embed"), "token 97 is out of range"),
        (lambda text: Reading(text.net, [0] * 41).run("embed"), "41 tokens are 1 more than .* context of 40"),
        (lambda text: Reading(text.net, [0] * 41).run_unedited("embed"), "41 tokens are 1 more"),
        (lambda text: text.run("blocks.7.out"), "no site matches 'blocks.7.out'"),
        (lambda text: residual(text, position=12), "position 12 is out of range"),
    ],
)
def test_what_is_out_of_range(pair: Pair, call: object, words: str) -> None:
    """One sentence each."""
    with pytest.raises(InputError, match=words):
        call(reading(pair))  # type: ignore[operator]
    assert prompt_length() == 0


def test_a_model_without_a_limit() -> None:
    """No text is too long for it."""
    assert Reading(toy(), [1] * 200).run("final")["final"].shape == (1, 1, 24)


def test_every_explanation_holds_the_lock(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever the model runs, and no longer; the lock may be held already by the same thread."""
    lock, held, depth = threading.RLock(), [], 0

    @contextmanager
    def counted() -> Iterator[None]:
        nonlocal depth
        with lock:
            depth += 1
            yield
            depth -= 1

    class Lock:
        def __enter__(self) -> None:
            self.inner = counted()
            self.inner.__enter__()

        def __exit__(self, *error: object) -> None:
            self.inner.__exit__(None, None, None)

    run = type(pair.ours).forward

    def forward(self: object, *given: object, **named: object) -> object:
        held.append(depth)
        return run(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(type(pair.ours), "forward", forward)
    text = Reading(pair.ours, pair.ids, 5, Lock())
    targets = [Target(11, 3)]
    for method in METHODS:
        found = saliency(text, targets, method=method, steps=2)
    questions = [
        lambda: faithfulness(text, found),
        lambda: (lens(text), residual(text, position=0), inputs(text)),
        lambda: attribution(text, position=4, token=3),
        lambda: (patterns(text), masks(text), value_weighted(text, layer=0)),
        lambda: query_steps(text, layer=0, head=0, position=0),
        lambda: activations(text),
        lambda: examples(pair.ours, [pair.ids], neurons=[(0, 0)], lock=Lock()),
        lambda: steps(text),
        lambda: values_at(text, ["final"]),
    ]
    for question in questions:
        question()
        with lock:
            question()
    assert set(held) == {1}
    assert depth == 0


def test_a_cut_text_keeps_its_prompt(pair: Pair) -> None:
    """An edit at the last token of the prompt stays there, however much of the text a question needs."""
    edit = Edit("blocks.0.out", "zero", at=(-1,))
    for prompt in (0, 5):
        text = reading(pair, prompt=prompt)
        for position in (2, 4, 7, 11):
            with edited(pair.ours, [edit]):
                found = attribution(text, position=position, token=40).logit
                right = float(text.run("logits", last=False)["logits"][0, position, 40])
            assert found == pytest.approx(right, rel=1e-9)


def test_a_session_is_entered_for_every_run(pair: Pair) -> None:
    """Once per step of a generation, or inside of itself, it makes each change once; outside, none."""
    session = EditSession(pair.ours, [Edit("blocks.0.out", "scale", by=2.0), Edit("final", "zero", at=(9,))])
    plain = reading(pair).run("logits")["logits"]
    cache = pair.ours.new_cache(1, 12)
    assert torch.equal(reading(pair).run("logits")["logits"], plain)
    for part in ([0, 1, 2], [3], [4]):
        ids = torch.tensor([[pair.ids[at] for at in part]])
        with session, torch.no_grad():
            step = pair.ours(ids, cache, last=True)
        pair.ours(ids)  # outside: the positions of this run are not the session's
    with edited(pair.ours, [Edit("blocks.0.out", "scale", by=2.0)]):
        right = reading(pair, pair.ids[:5]).run("logits")["logits"]
    torch.testing.assert_close(step, right, rtol=0, atol=1e-12)
    assert torch.equal(reading(pair).run("logits")["logits"], plain)

    with pytest.raises(InputError, match="final: no text had a position 9; the longest had 0 to 4"):
        session.finish()
    with session, session:
        twice = reading(pair).run("blocks.0.out")["blocks.0.out"]
    torch.testing.assert_close(twice, 2 * reading(pair).run("blocks.0.out")["blocks.0.out"])
    session.finish()  # by now one had


def test_a_session_after_an_error(pair: Pair) -> None:
    """Leaves nothing behind, and can be used again; one that never ran has no mistake to report."""
    session = EditSession(pair.ours, [Edit("blocks.0.attn", "zero", at=(50,))])
    plain = reading(pair).run("logits")["logits"]
    with pytest.raises(ZeroDivisionError), session:
        raise ZeroDivisionError
    session.finish()
    assert torch.equal(reading(pair).run("logits")["logits"], plain)
    assert pair.ours.tracer is None
    with session:
        reading(pair).run("logits")
    with pytest.raises(InputError, match="no text had a position 50"):
        session.finish()
    with pytest.raises(gf.GlassError, match=r"no site matches 'blocks\.9\.out'"):
        EditSession(pair.ours, [Edit("blocks.9.out", "zero")])


def test_sites_are_resolved_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of a generation does not pay for it."""
    session = EditSession(pair.ours, [Edit("blocks.*.mlp", "zero")])
    monkeypatch.setattr("glassformer.explain.edits.sites", lambda net: pytest.fail("resolved again"))
    for _ in range(2):
        with session:
            out = reading(pair).run("blocks.*.mlp.out")
            assert not any(value.any() for value in out.values())

"""Handles: which backend generates, edits that belong to a call or to a thread, weights that were changed by
hand.
"""

import json
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from small import small_model, small_tokenizer

import glassformer as gf
from glassformer.errors import GlassError, InputError
from glassformer.tasks.backends import TorchBackend, fingerprint
from glassformer.tasks.complete import LanguageModel

ZERO = [{"site": "blocks.*.attn", "do": "zero"}]
HOW: dict[str, Any] = {"max_new_tokens": 8, "temperature": 0, "seed": 0}


@pytest.fixture
def lm() -> LanguageModel:
    """A small model in torch."""
    tokenizer = small_tokenizer()
    return LanguageModel(small_model(vocab=len(tokenizer)), tokenizer, name="small")


@pytest.fixture
def both() -> LanguageModel:
    """The model that ships, by the native engine where it was built."""
    return gf.load("storyteller")


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start work in another thread; what it returns comes into the list."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    return thread, found


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_an_edit_of_one_thread_is_not_seen_by_another(engine: str) -> None:
    """Whether it waits (torch) or not (the native engine), another thread gets the text of the model without
    edits.
    """
    lm = gf.load("storyteller", engine=engine)
    plain = lm.generate("The cat", **HOW).text
    with lm.edit(ZERO):
        edited = lm.generate("The cat", **HOW).text
        thread, found = in_thread(lambda: lm.generate("The cat", **HOW).text)
        thread.join(timeout=0.5)
        assert lm.generate("The cat", **HOW).text == edited
        if lm.engine is None:
            assert thread.is_alive(), "the other thread must wait for the lock"
    thread.join()
    assert edited != plain
    assert found == [plain]


def test_a_generation_that_has_begun_is_not_edited_by_another_thread(lm: LanguageModel) -> None:
    """Between two of its steps another thread edits the model; the steps wait."""
    whole = lm.generate("Once upon", **HOW).tokens
    stream = lm.stream("Once upon", **HOW)
    next(stream)
    inside, leave = threading.Event(), threading.Event()

    def edit() -> None:
        with lm.edit(ZERO):
            inside.set()
            leave.wait()

    thread, _ = in_thread(edit)
    inside.wait()
    threading.Timer(0.2, leave.set).start()
    for _ in stream:
        pass
    thread.join()
    assert stream.completion.tokens == whole


def test_edits_of_a_call(lm: LanguageModel) -> None:
    """The same as inside `with`, for this call alone; also in streams and batches."""
    plain = lm.generate("Once upon", **HOW)
    with lm.edit(ZERO):
        edited = lm.generate("Once upon", **HOW)
    assert edited.tokens != plain.tokens
    assert lm.generate("Once upon", edits=ZERO, **HOW) == edited
    assert lm.generate("Once upon", **HOW) == plain
    stream = lm.stream("Once upon", edits=ZERO, **HOW)
    next(stream)
    assert lm.generate("Once upon", **HOW) == plain  # between two steps of it
    for _ in stream:
        pass
    assert stream.completion.tokens == edited.tokens
    many = lm.generate_many(["Once upon", "a little"], edits=ZERO, **HOW)
    assert many[0].tokens == edited.tokens
    beams = lm.generate("Once upon", edits=ZERO, num_beams=2, max_new_tokens=4, seed=0)
    with lm.edit(ZERO):
        assert lm.generate("Once upon", num_beams=2, max_new_tokens=4, seed=0) == beams


def test_edits_of_a_call_that_never_apply_are_refused(lm: LanguageModel) -> None:
    """A position that no text reached; a site that does not exist."""
    far = [{"site": "blocks.0.attn", "do": "zero", "at": [39]}]
    with pytest.raises(InputError, match="39"):
        lm.generate("Once", edits=far, max_new_tokens=3)
    with pytest.raises(InputError, match=r"blocks\.7"):
        lm.generate("Once", edits=[{"site": "blocks.7.attn", "do": "zero"}])


def test_a_stream_must_end_inside_the_block_it_began_in(lm: LanguageModel) -> None:
    """It would gain or lose edits halfway, silently; a trace on the way changes nothing."""
    with lm.edit(ZERO):
        stream = lm.stream("Once upon", **HOW)
        next(stream)
        with lm.trace("final"):
            next(stream)
        of_call = lm.stream("Once upon", edits=ZERO, **HOW)
        next(of_call)
    plain = lm.stream("Once upon", **HOW)
    next(plain)
    for one in (stream, of_call):
        with pytest.raises(GlassError, match="edits= to the call"):
            next(one)
    with lm.edit(ZERO), pytest.raises(GlassError, match="edits= to the call"):
        next(plain)


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_threads_that_generate_with_and_without_edits_at_once(engine: str) -> None:
    """Every one gets its own text, by its own backend, every time; none waits for ever."""
    lm = gf.load("storyteller", engine=engine)
    lm.net  # noqa: B018  (a user has it, so it is looked at before every generation)
    plain = lm.generate("The cat", **HOW)
    edited = lm.generate("The cat", edits=ZERO, **HOW)
    out = lm.generate("The cat", **HOW)
    found: dict[str, list[Any]] = {"plain": [], "edited": [], "again": []}

    def work(name: str, how: Callable[[], Any]) -> None:
        for _ in range(5):
            found[name].append(how())

    jobs = {
        "plain": lambda: lm.generate("The cat", **HOW),
        "edited": lambda: lm.generate("The cat", edits=ZERO, **HOW),
        "again": lambda: out.lens().top[-1, -1, 0],
    }
    threads = [threading.Thread(target=work, args=job, daemon=True) for job in jobs.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    assert [(one.tokens, one.engine) for one in found["plain"]] == [(plain.tokens, plain.engine)] * 5
    assert [one.tokens for one in found["edited"]] == [edited.tokens] * 5
    assert len(set(map(int, found["again"]))) == 1


def test_a_text_of_a_call_with_edits_is_explained_with_them(lm: LanguageModel) -> None:
    """By the model that generated it, and the answer names it."""
    out = lm.generate("Once upon", edits=ZERO, **HOW)
    with lm.edit(ZERO):
        inside = lm.generate("Once upon", **HOW)
        want = inside.lens().to_numpy()
    got = out.lens()
    for name, values in want.items():
        if values is not None and values.dtype.kind == "f":
            torch.testing.assert_close(torch.tensor(got.to_numpy()[name]), torch.tensor(values))
    assert [best[0].token for best in out.top(1)] == out.tokens
    assert "edits: zero blocks.0.attn.out and 1 more" in got.made
    assert "edits" not in lm.generate("Once upon", **HOW).lens().made


def test_a_trace_of_a_part_of_the_model_is_seen(both: LanguageModel) -> None:
    """Torch generates, so that the trace is not empty."""
    net = both.net
    with gf.trace(net.blocks[0], "attn.out") as seen:
        both.generate("Once upon", **HOW)
    assert seen["attn.out"].any()


def test_the_lock_is_reentrant_and_blocks_nest(lm: LanguageModel) -> None:
    """A question inside `with edit`, a trace inside, an edit inside an edit."""
    scale = [{"site": "blocks.1.mlp", "do": "scale", "by": 3}]
    with lm.edit(ZERO), lm.edit(scale), lm.trace("blocks.0.attn.out") as seen:
        both = lm.generate("Once upon", **HOW)
    assert not seen["blocks.0.attn.out"].any()
    assert both == lm.generate("Once upon", edits=[*ZERO, *scale], **HOW)
    assert lm.generate("Once upon", **HOW).tokens != both.tokens


def swap_rows(matrix: torch.Tensor) -> None:
    """Exchange two rows: sums over columns stay the same."""
    matrix[[5, 6]] = matrix[[6, 5]].clone()


CHANGES: dict[str, Callable[[Any], object]] = {
    "data": lambda net: net.blocks[2].mlp.down.weight.data.mul_(0),
    "one row": lambda net: net.blocks[0].mlp.up.weight.data[17].zero_(),
    "one number": lambda net: net.norm.bias.data[3].add_(5.0),
    "rows exchanged": lambda net: net.tokens.weight.data.copy_(net.tokens.weight.data.roll(1, 0)),
    "in place": lambda net: net.norm.weight.detach().mul_(2),
    "a new parameter": lambda net: setattr(
        net.norm, "weight", torch.nn.Parameter(torch.zeros_like(net.norm.weight))
    ),
    "all signs": lambda net: [parameter.data.neg_() for parameter in net.parameters()],
    "times four": lambda net: net.blocks[1].mlp.up.weight.data.mul_(4),
    "two rows negated": lambda net: net.blocks[1].mlp.up.weight.data[3:5].neg_(),
    "two rows swapped": lambda net: swap_rows(net.tokens.weight.data),
    "an epsilon": lambda net: setattr(net.norm, "eps", 0.5),
    "numpy": lambda net: net.norm.weight.detach().numpy().fill(0),
    "a hook": lambda net: net.blocks[0].register_forward_hook(lambda module, given, made: made * 0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_weights_changed_by_hand_generate(both: LanguageModel, change: str) -> None:
    """Not the quantized weights of before, however they were changed."""
    if both.engine is None:
        pytest.skip("the native engine was not built: there was no C++ compiler")
    assert both.backend is both.engine
    net = both.net
    assert both.backend is both.engine  # merely asking for it changes nothing
    CHANGES[change](net)
    assert isinstance(both.backend, TorchBackend)
    alone = LanguageModel(net, both.tokenizer)
    ids = [5, 6, 7]
    assert both.generate(ids, **HOW).tokens == alone.generate(ids, **HOW).tokens
    assert both.generate(ids, **HOW).engine == "torch float32"


def test_weights_that_are_put_back_are_the_engine_s_again(both: LanguageModel) -> None:
    """The fingerprint is of the numbers, not of how often they were written."""
    if both.engine is None:
        pytest.skip("the native engine was not built: there was no C++ compiler")
    weight = both.net.norm.weight
    before = weight.detach().clone()
    weight.data.mul_(2)
    assert both.backend is not both.engine
    weight.data.copy_(before)
    assert both.backend is both.engine


def test_the_fingerprint_sees_every_number() -> None:
    """In every type and layout; and nothing but the numbers."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        net = small_model(dtype=dtype)
        first = fingerprint(net)
        assert fingerprint(small_model(dtype=dtype)) == first
        for name, parameter in net.named_parameters():
            before = parameter.detach().clone()
            parameter.data.view(-1)[parameter.numel() // 2] += 1
            assert fingerprint(net) != first, name
            parameter.data.copy_(before)
        assert fingerprint(net) == first


def test_the_model_s_own_settings(tmp_path: Any) -> None:
    """`generation_config.json` gives the defaults and the end tokens; what is given goes first."""
    tokenizer = small_tokenizer()
    plain = LanguageModel(small_model(vocab=len(tokenizer)), tokenizer)
    folder = tmp_path / "model"
    plain.save(folder)
    greedy = plain.generate("Once upon", max_new_tokens=6, temperature=0)
    ends = [greedy.tokens[3], tokenizer.end]
    settings = {
        "do_sample": False,
        "max_new_tokens": 6,
        "eos_token_id": ends,
        "max_length": 3,
        "pad_token_id": 1,
    }
    (folder / "generation_config.json").write_text(json.dumps(settings))
    for engine in ("auto", "torch"):
        lm = gf.load(str(folder), engine=engine)
        assert lm.ends == frozenset(ends)
        assert lm.options().greedy
        assert lm.options(temperature=0.9).temperature == 0.9
        assert not lm.options(temperature=0.9).greedy
        assert lm.options(max_new_tokens=2).max_new_tokens == 2
        if engine == "torch":
            out = lm.generate("Once upon")
            assert (out.tokens, out.finish_reason) == (greedy.tokens[:3], "stop")


def test_a_saved_model_keeps_its_settings(tmp_path: Any) -> None:
    """Those of its `generation_config.json` that are known here, and all of its end tokens."""
    tokenizer = small_tokenizer()
    LanguageModel(small_model(vocab=len(tokenizer)), tokenizer).save(tmp_path / "one")
    settings = {
        "num_beams": 2,
        "forced_eos_token_id": 7,
        "bad_words_ids": [[5]],
        "eos_token_id": [7, tokenizer.end],
    }
    (tmp_path / "one" / "generation_config.json").write_text(json.dumps(settings))
    one = gf.load(str(tmp_path / "one"), engine="torch")
    one.save(tmp_path / "two")
    two = gf.load(str(tmp_path / "two"), engine="torch")
    assert two.settings == one.settings == {key: settings[key] for key in list(settings)[:3]}
    assert two.ends == one.ends == {7, tokenizer.end}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1}, "temperature"),
        ({"top_k": "many"}, "top_k"),
        ({"eos_token_id": "end"}, "eos_token_id"),
        ({"eos_token_id": [1, -2]}, "eos_token_id"),
    ],
)
def test_settings_that_cannot_be(tmp_path: Any, settings: dict[str, Any], message: str) -> None:
    """One sentence that names the file and the setting."""
    tokenizer = small_tokenizer()
    LanguageModel(small_model(vocab=len(tokenizer)), tokenizer).save(tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(settings))
    with pytest.raises(InputError, match=rf"generation_config\.json: .*{message}"):
        gf.load(str(tmp_path / "model"))


def test_top_asks_the_backend(both: LanguageModel) -> None:
    """The native engine's own opinion, without torch's model being loaded."""
    if both.engine is None:
        pytest.skip("the native engine was not built: there was no C++ compiler")
    first = both.top("Once upon a", 3)[0]
    assert first.text == " time"
    assert both._net is None
    assert both.top("Once upon a", 3)[0].probability == first.probability


def test_a_probe_is_trained_on_the_cache(lm: LanguageModel) -> None:
    """The values of `run_with_cache` are ordinary tensors: they are learned from, and changed in place."""
    _, cache = lm.run_with_cache(lm.encode("The cat sat on the mat. The dog ran."))
    stream = cache["blocks.0.out"][0]  # (T, D)
    labels = torch.arange(len(stream)) % 2
    probe = torch.nn.Linear(stream.shape[1], 2)
    torch.nn.init.zeros_(probe.weight)
    optimizer = torch.optim.Adam(probe.parameters(), lr=0.01)
    losses = []
    for _ in range(20):
        loss = torch.nn.functional.cross_entropy(probe(stream), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    stream += 1


def test_run_with_cache_takes_sites_one_by_one_or_as_a_list(lm: LanguageModel) -> None:
    """Also under the names of TransformerLens."""
    wanted = ["blocks.0.hook_resid_post", "final"]
    _, listed = lm.run_with_cache("The cat", wanted)
    _, separate = lm.run_with_cache("The cat", *wanted)
    assert list(listed) == list(separate) == ["blocks.0.out", "final"]


def test_logits_of_a_text_are_those_of_its_ids(lm: LanguageModel) -> None:
    ids = lm.encode("The cat sat")
    np.testing.assert_array_equal(lm.logits("The cat sat"), lm.logits(ids))
    np.testing.assert_array_equal(lm.next_logits("The cat sat"), lm.next_logits(ids))
    assert lm.logits("The cat sat").shape[0] == len(ids)


def test_names_of_transformerlens_are_translated_in_errors(lm: LanguageModel) -> None:
    """A trace, its edits, edits as data and a sweep take our names alone."""
    theirs, error = "blocks.0.attn.hook_z", "'blocks.0.attn.hook_z' is called 'blocks.0.attn.mix' here"
    with pytest.raises(InputError, match=error), lm.trace(theirs):
        pass
    with pytest.raises(InputError, match=error), lm.trace(edits={theirs: torch.zeros_like}):
        pass
    with pytest.raises(InputError, match=error), lm.trace(edits=[(theirs, torch.zeros_like)]):
        pass
    with pytest.raises(InputError, match=error), lm.edit([{"site": theirs, "do": "zero"}]):
        pass
    with pytest.raises(InputError, match=error):
        lm.sweep("The cat", "The dog", answer=1, foil=2, sites=theirs)


def test_run_with_cache_takes_tensors_and_batches(lm: LanguageModel) -> None:
    """A batch has one row for every prompt, each as if it were alone."""
    texts = ["The cat sat", "The dog ran"]
    rows = [lm.encode(text) for text in texts]
    alone = torch.cat([lm.run_with_cache(text)[0] for text in texts])
    for batch in (texts, rows, torch.tensor(rows), np.array(rows)):
        logits, cache = lm.run_with_cache(batch)
        torch.testing.assert_close(logits, alone)
        assert cache["resid_post", -1].shape[:2] == alone.shape[:2]
    one, _ = lm.run_with_cache(torch.tensor(rows[0]))
    torch.testing.assert_close(one, alone[:1])
    with pytest.raises(InputError, match="prompts of a batch must have one length, not 3 and 2 tokens"):
        lm.run_with_cache([rows[0][:3], rows[1][:2]])
    with pytest.raises(InputError, match="out of range"):
        lm.run_with_cache([10**6])


def test_a_text_is_read_as_its_tokens(lm: LanguageModel) -> None:
    """`reading` takes a text as well as ids, and does not take it letter by letter."""
    assert lm.reading("The cat").ids == lm.encode("The cat")

"""A model and its tokenizer together: texts in, texts out, and a result that answers for itself."""

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.errors import InputError
from glassformer.generation.options import Options
from glassformer.models.gpt import GPT, Config
from glassformer.tasks.complete import Completion, LanguageModel, Stream, complete
from glassformer.tasks.load import load
from glassformer.tokenizers import Tokenizer, train_tokenizer

WORDS = "Once upon a time there was a little girl who had a red ball. She saw the cat and the cat saw her; they ran away. é 中"
END = "<|endoftext|>"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """A small vocabulary, learned from one sentence."""
    return train_tokenizer([WORDS] * 4, 300)


def make(
    tokenizer: Tokenizer | None, *, vocab: int, seed: int = 1, context: int = 64, prefers_letters: bool = True
) -> LanguageModel:
    """A small GPT with random weights that has opinions, with or without a vocabulary."""
    model = (
        GPT(Config(layers=2, heads=2, width=16, vocab=vocab, context=context, tied=False))
        .initialize(seed)
        .eval()
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(10)
        model.norm.bias[0] = 3.0
        if tokenizer is not None:  # plain letters are likelier than torn characters and the end
            for id in range(len(tokenizer)):
                model.head.weight[id, 0] = (
                    2.0 if tokenizer.decode([id]).isascii() and id != tokenizer.end else -3.0
                )
    return LanguageModel(model, tokenizer, name="tiny")


@pytest.fixture(scope="module")
def lm(tokenizer: Tokenizer) -> LanguageModel:
    """A model with a few more ids than its vocabulary has tokens."""
    return make(tokenizer, vocab=len(tokenizer) + 7)


@pytest.fixture(scope="module")
def bare() -> LanguageModel:
    """A model without a vocabulary."""
    return make(None, vocab=50)


def teacher_forced(lm: LanguageModel, completion: Completion) -> list[float]:
    """The log-probabilities of an answer, from one reading of the whole text."""
    with torch.inference_mode():
        logits = lm.model(torch.tensor([completion.prompt_tokens + completion.tokens]))[0].double()
    start = len(completion.prompt_tokens) - 1
    return [
        float(row[id]) for row, id in zip(logits[start:].log_softmax(-1), completion.tokens, strict=False)
    ]


# One answer.


@pytest.mark.parametrize("seed", range(5))
def test_all_parts_of_a_result_agree(lm: LanguageModel, tokenizer: Tokenizer, seed: int) -> None:
    """Text, tokens, pieces, log-probabilities, alternatives and plain data agree."""
    got = lm.generate("Once upon", seed=seed, max_new_tokens=20)
    assert got.prompt == "Once upon"
    assert got.prompt_tokens == tokenizer.encode("Once upon")
    assert (got.choice, got.seed) == (0, seed)
    assert len(got.tokens) == len(got.logprobs) == len(got.pieces) == 20
    assert got.finish_reason == "length"
    assert got.text == tokenizer.decode(got.tokens)
    assert got.pieces == [tokenizer.decode([id]) for id in got.tokens]
    assert str(got) == "Once upon" + got.text
    np.testing.assert_allclose(got.logprobs, teacher_forced(lm, got), atol=1e-4)
    top = got.top(5)
    assert [len(candidates) for candidates in top] == [5] * 20
    every = got.top(len(tokenizer))
    for id, logprob, candidates in zip(got.tokens, got.logprobs, every, strict=True):
        assert {candidate.token: candidate.logprob for candidate in candidates}[id] == pytest.approx(
            logprob, abs=1e-4
        )
    assert got.to_dict() == {
        "prompt": "Once upon",
        "prompt_tokens": tokenizer.encode("Once upon"),
        "text": got.text,
        "tokens": got.tokens,
        "pieces": got.pieces,
        "logprobs": got.logprobs,
        "finish_reason": "length",
        "choice": 0,
        "seed": seed,
        "engine": "torch float32",
    }
    assert json.loads(json.dumps(got.to_dict())) == got.to_dict()


def test_greedy_tokens_lead_their_alternatives(lm: LanguageModel, tokenizer: Tokenizer) -> None:
    """The likeliest token is the first of the candidates, which come in order, with probabilities that belong
    to them.
    """
    got = lm.generate("the cat", do_sample=False, max_new_tokens=15)
    sampled = lm.generate("the cat", seed=1, temperature=2.0, max_new_tokens=15)
    top = got.top(4)
    assert [candidates[0].token for candidates in top] == got.tokens
    assert [candidates[0].token for candidates in sampled.top(1)] != sampled.tokens
    for candidates in top:
        assert [candidate.logprob for candidate in candidates] == sorted(
            (c.logprob for c in candidates), reverse=True
        )
        for candidate in candidates:
            assert candidate.text == tokenizer.decode([candidate.token])
            assert candidate.probability == pytest.approx(np.exp(candidate.logprob))
    assert 0.5 < sum(candidate.probability for candidate in got.top(300)[0]) <= 1
    assert lm.generate("the cat", do_sample=False, max_new_tokens=0).top() == []


def test_top_of_a_prompt_is_what_comes_next(lm: LanguageModel, tokenizer: Tokenizer) -> None:
    """The candidates after a prompt are those of the first token of its answer, and so on for the others;
    none without a token is among them.
    """
    got = lm.generate("She saw", do_sample=False, max_new_tokens=3)
    for n, candidates in enumerate(got.top(6)):
        for ours, theirs in zip(lm.top(got.ids[: n - 3], 6), candidates, strict=True):
            assert (ours.token, ours.text) == (theirs.token, theirs.text)
            assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-4)
    assert lm.top("She saw", 1)[0].token == got.tokens[0]
    assert len(lm.top("She saw")) == 10
    assert sorted(candidate.token for candidate in lm.top("She saw", 10**6)) == list(range(len(tokenizer)))
    assert lm.top(tokenizer.encode("She saw"), 6) == lm.top("She saw", 6)
    assert lm.top() == lm.top([tokenizer.end or 0])
    for k in (0, -1, 1.5, True, None, "3"):
        with pytest.raises(InputError, match=r"^k must be a whole number"):
            lm.top("She saw", k)  # type: ignore[arg-type]


def test_a_stream_is_the_whole_in_pieces(lm: LanguageModel) -> None:
    """For many seeds and stop strings, a stream gives the text and the result of `generate`."""
    pieces = 0
    for seed in range(12):
        stop = ["a", "e t"][: seed % 3]
        stream = lm.stream("Once", seed=seed, max_new_tokens=20, stop=stop, temperature=1.5)
        assert isinstance(stream, Stream)
        emitted, so_far = [], ""
        for piece in stream:
            emitted.append(piece)
            so_far += piece
            assert stream.completion.text == so_far
        whole = lm.generate("Once", seed=seed, max_new_tokens=20, stop=stop, temperature=1.5)
        assert stream.completion == whole
        assert "".join(emitted) == whole.text
        pieces += len(emitted)
    assert pieces > 60


def test_a_stream_comes_while_it_is_written(lm: LanguageModel) -> None:
    """The first pieces are there before the last tokens are chosen."""
    stream = lm.stream("Once", seed=1, max_new_tokens=30)
    for _ in range(4):
        next(stream)
    assert len(stream.completion.tokens) == 4
    assert stream.completion.finish_reason == ""
    assert len([*stream]) == 26
    assert stream.completion.finish_reason == "length"
    with pytest.raises(StopIteration):
        next(stream)


def test_leaving_a_stream_is_clean(lm: LanguageModel, recwarn: pytest.WarningsRecorder) -> None:
    """What came so far stays, nothing is left behind, and the model answers the next prompt as usual."""
    want = lm.generate("Once", seed=1, max_new_tokens=10)
    for count in range(4):
        stream = lm.stream("Once", seed=1, max_new_tokens=10)
        emitted = [next(stream) for _ in range(count)]
        kept = stream.completion
        del stream
        assert kept.text == "".join(emitted)
        assert kept.tokens == want.tokens[:count]
        assert lm.generate("Once", seed=1, max_new_tokens=10) == want
    gc.collect()
    assert len(recwarn) == 0


def test_a_cancelled_answer_keeps_what_it_has(lm: LanguageModel) -> None:
    """The reason is `cancelled`, the text is that of the tokens so far."""
    want = lm.generate("Once", seed=1, max_new_tokens=10)
    asked = iter(range(100))
    stream = lm.stream("Once", seed=1, max_new_tokens=10, cancelled=lambda: next(asked) == 3)
    text = "".join(stream)
    assert stream.completion.finish_reason == "cancelled"
    assert stream.completion.tokens == want.tokens[:3]
    assert text == stream.completion.text
    asked = iter(range(100))
    many = lm.generate_many(["Once", "the"], seed=1, max_new_tokens=10, cancelled=lambda: next(asked) == 3)
    assert [(len(each.tokens), each.finish_reason) for each in many] == [(3, "cancelled")] * 2


# How an answer ends.


def test_stop_strings_end_the_text_and_are_not_in_it(lm: LanguageModel) -> None:
    """Text before the stop string, the reason `stop`, tokens up to the one that completed it."""
    met = 0
    for seed in range(8):
        free = lm.generate("Once", seed=seed, max_new_tokens=30)
        for stop in (free.text[5:6], free.text[8:11], "never there"):
            got = lm.generate("Once", seed=seed, max_new_tokens=30, stop=stop)
            assert got == lm.generate("Once", seed=seed, max_new_tokens=30, stop=[stop])
            assert got.text == free.text.split(stop)[0]
            assert got.tokens == free.tokens[: len(got.tokens)]
            assert len(got.tokens) == len(got.logprobs)
            if stop in free.text:
                assert got.finish_reason == "stop"
                assert stop in lm.generate(got.prompt_tokens, seed=seed, max_new_tokens=len(got.tokens)).text
                if len(got.tokens) > 1:
                    assert (
                        stop
                        not in lm.generate(
                            got.prompt_tokens, seed=seed, max_new_tokens=len(got.tokens) - 1
                        ).text
                    )
                met += 1
            else:
                assert got == free
    assert met >= 16


def test_a_beginning_of_a_stop_string_comes_in_the_end(lm: LanguageModel) -> None:
    """What was held back because it might have been one is part of the text once nothing follows."""
    free = lm.generate("Once", seed=3, max_new_tokens=12)
    stop = free.text[-3:] + "Z"
    emitted = [*lm.stream("Once", seed=3, max_new_tokens=12, stop=stop)]
    assert "".join(emitted) == free.text
    assert emitted[-1].endswith(free.text[-3:])


@pytest.mark.parametrize("stop", ["", [""], ["a", ""], [5], [None], 5, [b"a"]])
def test_strange_stop_strings_are_refused(lm: LanguageModel, stop: Any) -> None:
    """What is no text, or empty, cannot stop one; the message names the field, and comes before the first
    token.
    """
    with pytest.raises(InputError, match=r"^stop\b"):
        lm.generate("Once", stop=stop)
    with pytest.raises(InputError, match=r"^stop\b"):
        lm.stream("Once", stop=stop)


def test_the_end_token_ends_an_answer(lm: LanguageModel, tokenizer: Tokenizer) -> None:
    """Nothing of it is in the text; with `min_new_tokens` it waits."""
    assert tokenizer.end is not None
    likely = {tokenizer.end: 18.0}
    got = [lm.generate("Once", seed=seed, max_new_tokens=30, logit_bias=likely) for seed in range(8)]
    assert {each.finish_reason for each in got} == {"stop"}
    assert len({len(each.tokens) for each in got}) > 1
    for each in got:
        assert tokenizer.end not in each.tokens
        assert END not in each.text
        assert each.text == tokenizer.decode(each.tokens)
    late = lm.generate(
        "Once", seed=0, max_new_tokens=30, min_new_tokens=25, logit_bias={tokenizer.end: 100.0}
    )
    assert (len(late.tokens), late.finish_reason) == (25, "stop")


def test_the_edge_of_the_context(lm: LanguageModel) -> None:
    """A full prompt gets nothing, a prompt that is too long is refused with the number, one with room is
    filled up.
    """
    full = lm.generate([1] * 64)
    assert (full.tokens, full.text, full.finish_reason) == ([], "", "context")
    for call in (lm.generate, lm.stream):
        with pytest.raises(InputError, match=r"65 tokens, 1 more than the model's context of 64"):
            call([1] * 65)
    with pytest.raises(InputError, match=r"66 tokens, 2 more"):
        lm.top([1] * 66)
    edge = lm.generate([1] * 40, max_new_tokens=100)
    assert (len(edge.tokens), edge.finish_reason) == (24, "context")
    assert len(edge.top(2)) == 24
    on = lm.generate([1] * 70, max_new_tokens=100, overflow="slide")
    assert (len(on.tokens), on.finish_reason) == (100, "length")


# Prompts.


def test_ids_are_as_good_as_text(lm: LanguageModel, tokenizer: Tokenizer) -> None:
    """The ids of a text give the answer of the text; lists and tuples alike."""
    ids = tokenizer.encode("the cat saw")
    want = lm.generate("the cat saw", seed=4, max_new_tokens=10)
    for prompt in (ids, tuple(ids)):
        assert lm.generate(prompt, seed=4, max_new_tokens=10) == want
    assert want.prompt == "the cat saw"


def test_an_empty_prompt_starts_from_the_end_of_text(lm: LanguageModel, tokenizer: Tokenizer) -> None:
    """No text, no ids and the end token itself are the same beginning; the prompt that is shown is empty."""
    want = lm.generate([tokenizer.end or 0], seed=2, max_new_tokens=8)
    assert want.prompt_tokens == [tokenizer.end]
    for prompt in ("", [], ()):
        got = lm.generate(prompt, seed=2, max_new_tokens=8)
        assert (got.tokens, got.text, got.prompt_tokens) == (want.tokens, want.text, [tokenizer.end])
        assert str(got) == got.text
    assert lm.generate(seed=2, max_new_tokens=8).tokens == want.tokens
    assert lm.generate(END, special=True, seed=2, max_new_tokens=8).tokens == want.tokens
    assert lm.generate(" ", seed=2, max_new_tokens=8).prompt_tokens == tokenizer.encode(" ")
    assert [each.tokens for each in lm.generate_many(["", []], seed=2, max_new_tokens=8)] == [want.tokens] * 2
    assert lm.generate_many([]) == []
    assert lm.generate("", max_new_tokens=0).text == ""


def test_special_tokens_are_plain_text_unless_asked_for(lm: LanguageModel, tokenizer: Tokenizer) -> None:
    """A prompt cannot contain a special token; `special` allows one."""
    text = f"the cat{END}the"
    plain = lm.generate(text, seed=1, max_new_tokens=5)
    assert tokenizer.end not in plain.prompt_tokens
    assert tokenizer.decode(plain.prompt_tokens) == text
    meant = lm.generate(text, seed=1, max_new_tokens=5, special=True)
    assert meant.prompt_tokens.count(tokenizer.end or 0) == 1
    assert tokenizer.decode(meant.prompt_tokens) == text
    assert meant.tokens != plain.tokens
    assert lm.stream(text, special=True).completion.prompt_tokens == meant.prompt_tokens
    assert lm.generate_many([text], special=True, max_new_tokens=1)[0].prompt_tokens == meant.prompt_tokens
    assert lm.encode(text) == plain.prompt_tokens
    assert lm.encode(text, special=True) == meant.prompt_tokens


@pytest.mark.parametrize("id", [-1, 2**31, 2**63, 10**30, 1.5, 1.0, True, None, "1", "", [], [1]])
def test_strange_ids_are_refused(lm: LanguageModel, id: Any) -> None:
    """What is no id of this model is refused wherever ids are taken, in words."""
    calls: list[Callable[[], Any]] = [
        lambda: lm.generate([1, id]),
        lambda: lm.stream([1, id]),
        lambda: lm.top([1, id]),
        lambda: lm.generate_many([[1], [1, id]]),
        lambda: lm.generate([1, id], num_beams=2),
    ]
    for call in calls:
        with pytest.raises(InputError, match="token id"):
            call()


@pytest.mark.parametrize("id", [-1, 307, 2**31, 2**63, 1.5, True, None, "1"])
def test_strange_ids_are_refused_in_a_bias(lm: LanguageModel, id: Any) -> None:
    """The same for the ids of a bias; the last id of the model is fine."""
    assert lm.model.vocab == 307
    with pytest.raises(InputError, match=r"^logit_bias"):
        lm.generate("Once", logit_bias={id: 1.0})
    assert lm.generate("Once", logit_bias={306: 1.0}, max_new_tokens=1).finish_reason == "length"


@pytest.mark.parametrize("prompt", [None, 5, 1.5, {"a": 1}, b"Once"])
def test_what_is_neither_text_nor_ids_is_refused(lm: LanguageModel, prompt: Any) -> None:
    """A prompt is a text or a sequence of ids."""
    with pytest.raises(InputError, match="prompt"):
        lm.generate(prompt)


# Many answers.


def test_many_answers_come_prompt_by_prompt_and_choice_by_choice(lm: LanguageModel) -> None:
    """In the order of the prompts, each with its choices, each as it would be alone."""
    prompts = ["Once", "the cat saw her", "", "a red ball", "Once"]
    got = lm.generate_many(iter(prompts), seed=7, num_return_sequences=3, max_new_tokens=8, temperature=1.2)
    assert [(each.prompt, each.choice) for each in got] == [
        (prompt, choice) for prompt in prompts for choice in range(3)
    ]
    assert {each.seed for each in got} == {7}
    for which, prompt in enumerate(prompts):
        assert got[3 * which].tokens == lm.generate(prompt, seed=7, max_new_tokens=8, temperature=1.2).tokens
        assert len({str(each.tokens) for each in got[3 * which : 3 * which + 3]}) == 3
        for each in got[3 * which : 3 * which + 3]:
            np.testing.assert_allclose(each.logprobs, teacher_forced(lm, each), atol=1e-4)
    assert [each.text for each in got[:3]] == [each.text for each in got[12:]]


def test_many_answers_stop_one_by_one(lm: LanguageModel) -> None:
    """A stop string ends the answer that contains it, and no other."""
    prompts = ["Once", "the cat", "She", "a"]
    how = {"seed": 5, "num_return_sequences": 2, "max_new_tokens": 20, "temperature": 0.8}
    free = lm.generate_many(prompts, **how)
    got = lm.generate_many(prompts, **how, stop="h")
    assert {each.finish_reason for each in got} == {"stop", "length"}
    for with_stop, without in zip(got, free, strict=True):
        assert with_stop.text == without.text.split("h")[0]
        assert with_stop.finish_reason == ("stop" if "h" in without.text else "length")


@pytest.mark.parametrize("call", ["generate", "stream"])
def test_one_answer_is_one(lm: LanguageModel, call: str) -> None:
    """Several answers come from `generate_many`, and nothing else pretends to give them."""
    with pytest.raises(InputError, match=r"^num_return_sequences"):
        getattr(lm, call)("Once", num_return_sequences=2)
    with pytest.raises(InputError, match=r"^num_return_sequences"):
        getattr(lm, call)("Once", num_return_sequences=0)


def test_beam_search_answers_best_first(lm: LanguageModel, tokenizer: Tokenizer) -> None:
    """The answers of beam search are whole results too; stop strings are refused there."""
    got = lm.generate_many(
        ["Once", "the"], num_beams=4, num_return_sequences=3, max_new_tokens=8, length_penalty=0.0
    )
    assert [(each.prompt, each.choice) for each in got] == [
        (prompt, choice) for prompt in ("Once", "the") for choice in range(3)
    ]
    for each in got:
        assert each.text == tokenizer.decode(each.tokens)
        np.testing.assert_allclose(each.logprobs, teacher_forced(lm, each), atol=1e-4)
        assert each.finish_reason in ("stop", "length")
    sums = [sum(each.logprobs) for each in got if each.finish_reason == "length"]
    assert len(sums) == 6
    assert sums[:3] == sorted(sums[:3], reverse=True)
    assert [*lm.stream("Once", num_beams=4, max_new_tokens=8, length_penalty=0.0)] == [got[0].text]
    with pytest.raises(InputError, match=r"^stop: beam search"):
        lm.generate("Once", num_beams=2, stop="a")


# Seeds.


def test_a_seed_is_drawn_where_none_is_given(lm: LanguageModel) -> None:
    """The seed of a result gives the same text again."""
    got = [lm.generate("Once", max_new_tokens=12, temperature=2.0) for _ in range(4)]
    got += [lm.generate("Once", max_new_tokens=12, temperature=2.0, seed=None)]
    assert len({each.seed for each in got}) == 5
    assert len({each.text for each in got}) == 5
    for each in got:
        assert lm.generate("Once", max_new_tokens=12, temperature=2.0, seed=each.seed) == each


def test_a_seed_means_the_same_text_after_a_restart(lm: LanguageModel, tmp_path: Path) -> None:
    """Saved, loaded in another process and asked again, the model gives the same answer."""
    lm.save(tmp_path / "tiny")
    loaded = load(str(tmp_path / "tiny"), engine="torch")
    requests = [
        {"prompt": prompt, "seed": seed, "max_new_tokens": 12}
        for prompt in ("Once", "the cat", "")
        for seed in range(4)
    ]
    here = [loaded.generate(**request).to_dict() for request in requests]
    assert len({str(each["tokens"]) for each in here}) > 8
    code = """
import json, sys
import torch
torch.set_num_threads(1)
from glassformer.tasks.load import load
lm = load(sys.argv[1], engine="torch")
print(json.dumps([lm.generate(**request).to_dict() for request in json.loads(sys.argv[2])]))
"""
    command = [sys.executable, "-W", "error", "-c", code, str(tmp_path / "tiny"), json.dumps(requests)]
    child = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert child.stderr == ""
    assert json.loads(child.stdout) == here
    assert [loaded.generate(**request).to_dict() for request in requests[::-1]] == here[::-1]
    assert complete(model=str(tmp_path / "tiny"), engine="torch", **requests[3]).to_dict() == here[3]
    for request, each in zip(requests, here, strict=True):
        saved = lm.generate(**request)
        assert (saved.text, saved.tokens, saved.finish_reason) == (
            each["text"],
            each["tokens"],
            each["finish_reason"],
        )
        np.testing.assert_allclose(saved.logprobs, each["logprobs"], atol=1e-4)


def test_the_same_request_twice_is_the_same(lm: LanguageModel) -> None:
    """Text, tokens and log-probabilities to the last bit."""
    for seed in range(12):
        first, second = (lm.generate("She saw the", seed=seed, max_new_tokens=6) for _ in range(2))
        assert first == second
        assert first.logprobs == second.logprobs


# Without a vocabulary.


def test_a_model_without_a_vocabulary_takes_ids_and_shows_numbers(bare: LanguageModel) -> None:
    """Ids in, ids out; the text is their numbers, and stop strings work on it."""
    got = bare.generate([1, 2, 3], seed=1, max_new_tokens=6)
    assert len(got.tokens) == 6
    assert got.prompt == "<1><2><3>"
    assert got.text == "".join(f"<{id}>" for id in got.tokens)
    assert got.pieces == [f"<{id}>" for id in got.tokens]
    assert [candidate.text for candidate in bare.top([1], 3)] == [
        f"<{candidate.token}>" for candidate in bare.top([1], 3)
    ]
    assert len(bare.top([1], 100)) == 50
    assert "".join(bare.stream([1, 2, 3], seed=1, max_new_tokens=6)) == got.text
    stop = f"<{got.tokens[3]}>"
    assert bare.generate([1, 2, 3], seed=1, max_new_tokens=6, stop=stop).text == got.text.split(stop)[0]
    np.testing.assert_allclose(got.logprobs, teacher_forced(bare, got), atol=1e-4)
    assert bare.generate([1], num_beams=2, max_new_tokens=3).text.count("<") == 3


def test_a_model_without_a_vocabulary_takes_no_text(bare: LanguageModel) -> None:
    """The error names the remedy, also where there is nothing to start from."""
    with pytest.raises(InputError, match=r"no vocabulary: put its tokenizer\.json"):
        bare.generate("Once")
    with pytest.raises(InputError, match=r"no vocabulary: put its tokenizer\.json"):
        bare.generate("")
    for call in (bare.generate, bare.stream, bare.top):
        with pytest.raises(InputError, match=r"empty prompt needs a vocabulary with <\|endoftext\|>"):
            call([])


# What else is refused, and what is shown.


def test_several_prompts_are_for_generate_many(lm: LanguageModel) -> None:
    """A list of texts is not taken for token ids; the error names what takes it."""
    with pytest.raises(InputError, match=r"several prompts go to lm\.generate_many"):
        lm.generate(["Once", "One"])  # type: ignore[arg-type,list-item]
    with pytest.raises(InputError, match=r"^unknown option 'zzz'; known: .*overflow, stop, edits, special$"):
        lm.generate("Once", zzz=1)
    with pytest.raises(InputError, match=r"^unknown option 'zzz'; known: .*overflow$"):
        lm.top("Once", zzz=1)


def test_options_are_checked_before_anything_is_done(lm: LanguageModel) -> None:
    """Unknown and impossible options are named, by all ways to ask."""
    for call in (lm.generate, lm.stream, lambda prompt, **options: lm.generate_many([prompt], **options)):
        with pytest.raises(InputError, match=r"did you mean 'temperature'\? Known: max_new_tokens"):
            call("Once", temprature=1.0)
        for name, value in {
            "temperature": -1,
            "top_p": 0,
            "max_new_tokens": -1,
            "seed": 2**64,
            "num_beams": 0,
        }.items():
            with pytest.raises(InputError, match=rf"^{name} must be"):
                call("Once", **{name: value})
    assert set(Options.__dataclass_fields__) >= {
        "temperature",
        "top_p",
        "max_new_tokens",
        "seed",
        "num_beams",
    }


def test_ids_beyond_the_vocabulary_are_never_generated(tokenizer: Tokenizer) -> None:
    """Where the model has more ids than the vocabulary, those are out of reach, though they are likely."""
    lm = make(tokenizer, vocab=len(tokenizer) + 7)
    with torch.no_grad():
        lm.model.head.weight[len(tokenizer) :, 0] = 5.0
    known = len(tokenizer)
    assert lm.logits(lm.encode("Once"))[-1].argmax() >= known
    for options in ({"do_sample": False}, {"seed": 1, "temperature": 2.0, "top_k": 0}, {"num_beams": 3}):
        got = lm.generate("Once", max_new_tokens=20, **options)
        assert len(got.tokens) > 0
        assert max(got.tokens) < known
        np.testing.assert_allclose(got.logprobs, teacher_forced(lm, got), atol=1e-4)


def test_a_result_without_its_model_is_refused(lm: LanguageModel) -> None:
    """What needs the model cannot be asked of plain data, and models are no part of a comparison or of what
    is shown.
    """
    got = lm.generate("Once", seed=1, max_new_tokens=3)
    orphan = Completion(
        got.prompt, got.prompt_tokens, 0, 1, got.tokens, got.text, got.logprobs, got.finish_reason
    )
    assert orphan == got
    assert "LanguageModel" not in repr(got)
    for ask in (orphan.top, orphan.to_dict, lambda: orphan.pieces):
        with pytest.raises(InputError, match="lost its model"):
            ask()
    assert repr(lm).startswith("LanguageModel('tiny', ")
    assert repr(lm).endswith("torch float32, context 64)")


def test_generating_leaves_the_model_as_it_was(lm: LanguageModel) -> None:
    """No weight changes, no gradient is left."""
    before = {name: value.clone() for name, value in lm.model.state_dict().items()}
    lm.generate("Once", max_new_tokens=5)
    lm.generate_many(["Once", "the"], num_beams=3, max_new_tokens=5)
    lm.top("Once")
    for name, value in lm.model.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(parameter.grad is None for parameter in lm.model.parameters())

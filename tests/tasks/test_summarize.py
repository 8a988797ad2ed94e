"""Summaries: the cut by rule, batches, GPT-2's way without training, and ROUGE with its baseline."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from decoders import small_decoder
from small import TEXT, small_model, small_tokenizer

from glassformer.data.pairs import Pair
from glassformer.errors import InputError
from glassformer.generation.options import Options
from glassformer.tasks import summarize as module
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.evaluate_pairs import evaluate_summaries, read_references, read_test_set, target_loss
from glassformer.tasks.rouge import rouge
from glassformer.tasks.summarize import cut_source, first_sentences

SHORT, LONG = "She liked to play.", TEXT[:300]


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return small_decoder(5, "<summarize>")


def plain() -> LanguageModel:
    return LanguageModel(small_model(1, vocab=300), small_tokenizer(300), name="plain")


def test_the_cut_leaves_room_for_tag_and_summary() -> None:
    """The beginning is kept; without a limit nothing is cut; a summary that fills the context is refused."""
    assert cut_source([1, 2, 3, 4, 5], context=8, room=4) == ([1, 2, 3], 2)
    assert cut_source([1, 2, 3], context=8, room=4) == ([1, 2, 3], 0)
    assert cut_source([1, 2, 3], context=8, room=4, behind=3) == ([1], 2)
    assert cut_source([1, 2, 3], context=None, room=4) == ([1, 2, 3], 0)
    with pytest.raises(InputError, match="a summary of 8 tokens leaves no room for a text in a context of 8"):
        cut_source([1], context=8, room=8)


def test_a_summary_is_written_behind_the_tag(lm: LanguageModel) -> None:
    """As a prompt of the same tokens is continued; what was cut is said."""
    tokenizer = lm.tokenizer
    assert tokenizer is not None
    found = lm.summarize(LONG, num_beams=1, max_new_tokens=7)
    ids = lm.encode(LONG)
    prompt = [*ids[: 64 - 1 - 7], tokenizer.special["<summarize>"]]
    right = lm.generate(prompt, num_beams=1, do_sample=False, max_new_tokens=7)
    assert found.prompt_tokens == prompt
    assert found.tokens == right.tokens
    assert found.left_out == len(ids) - 56
    assert found.cut == f"the text has {len(ids)} tokens; the first 56 were read, the rest cut"
    assert found.to_dict()["left_out"] == found.left_out
    assert lm.summarize(SHORT, num_beams=1, max_new_tokens=3).cut == ""


def test_several_are_as_each_alone(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, whatever their lengths and however many fit into memory together."""
    texts = [LONG, SHORT, "Lily", TEXT[20:90], "the park"]
    alone = [lm.summarize(text, max_new_tokens=5).tokens for text in texts]
    assert len({tuple(one) for one in alone}) > 2
    done: list[tuple[int, int]] = []
    found = lm.summarize_many(texts, max_new_tokens=5, progress=lambda *now: done.append(now))
    assert [one.tokens for one in found] == alone
    assert [one.source for one in found] == texts
    assert done == [(5, 5)]
    monkeypatch.setattr(module, "MEMORY", 1)
    assert [one.tokens for one in lm.summarize_many(texts, max_new_tokens=5)] == alone


def test_settings_of_the_model(lm: LanguageModel) -> None:
    """Four beams, unless its folder recommends something else; what is given wins."""
    own = LanguageModel(lm.net, lm.tokenizer, settings={"num_beams": 1, "max_new_tokens": 3})
    assert len(own.summarize(SHORT).tokens) <= 3
    assert own.summarize(SHORT).tokens == lm.summarize(SHORT, num_beams=1, max_new_tokens=3).tokens
    four = lm.summarize(SHORT, max_new_tokens=6)
    assert four.tokens == lm.summarize(SHORT, num_beams=4, max_new_tokens=6).tokens


def test_zero_shot_as_in_the_paper() -> None:
    """100 tokens behind "TL;DR:", drawn from the 2 likeliest, of which the first three sentences are kept."""
    lm = LanguageModel(small_model(1, vocab=300, context=128), small_tokenizer(300), name="plain")
    found = lm.summarize(LONG, zero_shot=True, seed=3)
    behind = lm.encode("\nTL;DR:")
    kept = lm.encode(LONG)[: 128 - 100 - len(behind)]
    assert found.prompt_tokens == [*kept, *behind]
    how = Options(top_k=2, temperature=1.0, max_new_tokens=100, seed=3)
    right = lm.generate(
        found.prompt_tokens,
        **{name: getattr(how, name) for name in ("top_k", "temperature", "max_new_tokens", "seed")},
    )
    assert found.tokens == right.tokens
    assert found.text == first_sentences(right.text, 3)
    other = lm.summarize(LONG, zero_shot=True, seed=4)
    assert other.tokens != found.tokens


def test_sentences() -> None:
    """A mark and a blank end one."""
    assert first_sentences("  One 3.5. Two! Three? Four.") == "One 3.5."
    assert first_sentences("One. Two!  Three? Four.", 3) == "One. Two! Three?"
    assert first_sentences("no end") == "no end"


@pytest.mark.parametrize(
    ("make", "text", "how", "words"),
    [
        (
            plain,
            "a",
            {},
            r"plain cannot summarize .*no <summarize>; `glass finetune plain --task summarize --data PAIRS`",
        ),
        (lambda: small_decoder(1), " ", {}, "there is nothing to summarize: the text is empty"),
        (
            lambda: small_decoder(1),
            "a",
            {"max_new_tokens": 64},
            "leaves no room for a text in a context of 64",
        ),
        (lambda: small_decoder(1), "a", {"num_beams": 0}, "num_beams must be a whole number"),
    ],
)
def test_bad_input(make: Any, text: str, how: dict[str, Any], words: str) -> None:
    """One sentence."""
    with pytest.raises(InputError, match=words):
        make().summarize(text, **how)


def test_rouge_and_the_first_sentence_beside_it(lm: LanguageModel, tmp_path: Path) -> None:
    """Means over all texts, in percent, by the best of several references."""
    path = tmp_path / "test.jsonl"
    lines = [
        {"source": "Lily ran. She fell.", "target": "Lily fell", "references": ["Lily fell", "She ran"]},
        {"source": "A park. Rain!", "target": "the rain"},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    pairs = read_test_set([str(path)])
    references = read_references([str(path)], pairs)
    assert references == [["Lily fell", "She ran"], ["the rain"]]
    found = evaluate_summaries(lm, pairs, references=references, max_new_tokens=6)
    assert [one.name for one in found] == [
        "rouge1", "rouge2", "rougeL", "lead sentence, rouge1", "lead sentence, rouge2", "lead sentence, rougeL",
    ]  # fmt: skip
    lead = [rouge("Lily ran.", references[0]), rouge("A park.", references[1])]
    assert found[3].score == pytest.approx(100 * (lead[0]["rouge1"] + lead[1]["rouge1"]) / 2) == 25
    assert "of up to 2 references the best" in found[0].signature
    assert [one.cut for one in found] == [0] * 6
    long = [Pair("Lily ran. " * 99, "Lily fell")] * 2
    assert evaluate_summaries(lm, long, references=[["a"]] * 2, max_new_tokens=6)[0].cut == 2
    ours = [
        rouge(lm.summarize(pair.source, max_new_tokens=6).text, right)
        for pair, right in zip(pairs, references, strict=True)
    ]
    assert found[0].score == pytest.approx(50 * sum(one["rouge1"] for one in ours))
    path.write_text(json.dumps({"source": "a", "target": "b", "references": "b"}) + "\n")
    with pytest.raises(InputError, match="line 1: references should be a list of texts"):
        read_references([str(path)], read_test_set([str(path)]))


def test_the_loss_of_a_summary(lm: LanguageModel) -> None:
    """Behind a text that is cut as in the training; the end of a summary that is cut is not learned."""
    tokenizer = lm.tokenizer
    assert tokenizer is not None
    short = LanguageModel(lm.net, tokenizer, settings={"max_new_tokens": 4})
    pairs = [Pair(LONG, "Lily"), Pair(SHORT, "xyzwvut")]
    found = target_loss(short, pairs, name="two")
    nats, count = 0.0, 0
    rows = [
        (lm.encode(LONG)[:59], [*lm.encode("Lily"), tokenizer.end]),
        (lm.encode(SHORT), lm.encode("xyzwvut")[:4]),
    ]
    assert len(rows[0][1]) <= 4
    for source, target in rows:
        ids = [*source, tokenizer.special["<summarize>"], *target]
        logp = lm.net(torch.tensor([ids[:-1]]))[0].log_softmax(-1)
        nats -= sum(logp[at - 1, ids[at]].item() for at in range(len(source) + 1, len(ids)))
        count += len(target)
    assert found.tokens == count
    assert found.loss == pytest.approx(nats / count, rel=1e-9)

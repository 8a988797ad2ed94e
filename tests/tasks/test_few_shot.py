"""Examples in the prompt: as many as fit, the last ones, and what was dropped is reported."""

import json
from pathlib import Path

import pytest

import glassformer as gf
from glassformer.errors import InputError
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.few_shot import few_shot, read_examples

EXAMPLES = [f"Q: {n} and {n}? A: {2 * n}" for n in range(40)]


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return gf.load("storyteller")


def test_all_examples_precede_the_question(lm: LanguageModel) -> None:
    made = few_shot(lm, "Q: 3 and 3? A:", examples=EXAMPLES[:4])
    assert made.prompt == "\n".join([*EXAMPLES[:4], "Q: 3 and 3? A:"])
    assert (made.used, made.dropped, made.summary()) == (4, 0, "")


@pytest.mark.parametrize("reserve", [1, 50, 200, 0])
def test_the_last_examples_that_fit_are_used(lm: LanguageModel, reserve: int) -> None:
    """One more would not fit; the sentence counts what was dropped."""
    context = lm.backend.context
    assert context == 512
    made = few_shot(lm, "Q: 3 and 3? A:", examples=EXAMPLES, reserve=reserve)
    assert made.dropped
    assert made.used + made.dropped == 40
    assert made.prompt == "\n".join([*EXAMPLES[made.dropped :], "Q: 3 and 3? A:"])
    assert len(lm.encode(made.prompt)) + made.room <= context
    one_more = "\n".join([*EXAMPLES[made.dropped - 1 :], "Q: 3 and 3? A:"])
    assert len(lm.encode(one_more)) + made.room > context
    assert made.summary().startswith(f"{made.dropped} of 40 examples")
    assert made.room == (reserve or 128)


def test_a_question_that_does_not_fit_is_refused(lm: LanguageModel) -> None:
    with pytest.raises(InputError, match=r"the question alone has [\d,]+ tokens and 128 are reserved"):
        few_shot(lm, "word " * 600, examples=EXAMPLES)


def test_examples_of_files(tmp_path: Path) -> None:
    """Lines of JSON, or a text with blank lines."""
    pairs = [("sea otter =>", " loutre"), ("cheese =>", " fromage")]
    lines = [json.dumps({"prompt": one, "completion": two}) for one, two in pairs]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert read_examples(tmp_path / "a.jsonl") == ["sea otter => loutre", "cheese => fromage"]
    (tmp_path / "b.txt").write_text("one\ntwo\n\n \nthree\n")
    assert read_examples(tmp_path / "b.txt") == ["one\ntwo", "three"]
    with pytest.raises(InputError, match="no such file"):
        read_examples(tmp_path / "c.txt")

"""GPT-1's input transformations, row by row, and how rows become batches."""

import numpy as np
import pytest
from small import small_tokenizer

from glassformer.data.pairs import PairStream
from glassformer.data.transformations import SPECIAL, Examples, Transformation
from glassformer.errors import InputError
from glassformer.tokenizers.extend import with_special

TOKENIZER = with_special(small_tokenizer(300), SPECIAL)
START, DELIMITER, EXTRACT, PAD = (TOKENIZER.special[name] for name in SPECIAL)
A, B, C = (TOKENIZER.encode(text) for text in ("a girl", "the park", "play outside"))


def test_new_tokens_come_behind_the_vocabulary() -> None:
    """Text has the ids that it had, and the special tokens survive a file."""
    plain = small_tokenizer(300)
    assert (START, DELIMITER, EXTRACT, PAD) == (300, 301, 302, 303)
    assert TOKENIZER.encode("Once upon <|start|>") == plain.encode("Once upon <|start|>")
    assert TOKENIZER.end == plain.end
    assert with_special(TOKENIZER, SPECIAL).special == TOKENIZER.special


@pytest.mark.parametrize(("task", "texts", "rows"), [
    ("classify", ["a girl"], [[START, *A, EXTRACT]]),
    ("entail", ["a girl", "the park"], [[START, *A, DELIMITER, *B, EXTRACT]]),
    ("similar", ["a girl", "the park"], [[START, *A, DELIMITER, *B, EXTRACT], [START, *B, DELIMITER, *A, EXTRACT]]),
    ("choose", ["a girl", "the park", "play outside"], [[START, *A, DELIMITER, *B, EXTRACT], [START, *A, DELIMITER, *C, EXTRACT]]),
])  # fmt: skip
def test_every_task_is_a_sequence(task: str, texts: list[str], rows: list[list[int]]) -> None:
    """As figure 1 of the paper draws them."""
    assert Transformation(task, TOKENIZER).rows(texts) == rows
    assert Transformation(task, TOKENIZER, context=max(map(len, rows))).rows(texts) == rows


def test_a_vocabulary_without_the_tokens_does_without() -> None:
    """A model that was trained elsewhere reads the text as it is."""
    assert Transformation("classify", small_tokenizer(300)).rows(["a girl"]) == [A]


def test_what_is_too_long_is_refused_or_cut() -> None:
    """By how many tokens; the longest text gives way."""
    texts, size = ["a girl " * 9, "the park"], len(TOKENIZER.encode("a girl " * 9)) + len(B) + 3
    with pytest.raises(
        InputError, match=rf"{size} tokens are {size - 12} more than the model's context of 12; .*--cut"
    ):
        Transformation("entail", TOKENIZER, context=12).rows(texts)
    (row,) = Transformation("entail", TOKENIZER, context=12, cut=True).rows(texts)
    assert len(row) == 12
    assert row[0] == START
    assert row[-1 - len(B) :] == [*B, EXTRACT]


def test_batches_know_their_rows() -> None:
    """Rows of several examples, filled up; which are whose, and where each ends."""
    examples = Examples.of([[[1, 2, 3], [4, 5]], [[6]], [[7, 8], [9], [10]]], [0, 0, 2], pad=99)
    assert examples.lengths.tolist() == [5, 1, 4]
    arrays = examples.batch([2, 0]).arrays
    assert arrays["ids"].tolist() == [[7, 8, 99], [9, 99, 99], [10, 99, 99], [1, 2, 3], [4, 5, 99]]
    assert arrays["at"].tolist() == [1, 0, 0, 2, 1]
    assert arrays["rows"].tolist() == [[0, 1, 2], [3, 4, -1]]
    assert arrays["target"].tolist() == [2, 0]
    assert arrays["target"].dtype == np.int64
    assert [numbers for numbers, _ in examples.in_order(batch=2)] == [[1, 2], [0]]


def test_a_stream_gives_every_example_once_an_epoch() -> None:
    """And says how many steps that is."""
    examples = Examples.of([[[n]] for n in range(12)], [float(n) for n in range(12)], pad=0)
    stream = PairStream(examples, batch=4, seed=1)
    assert stream.epoch_steps == 3
    assert sorted(stream.draw(12)) == list(range(12))
    assert examples.batch([3]).arrays["target"].dtype == np.float32
    with pytest.raises(InputError, match="batch: 13 examples are more than the 12"):
        PairStream(examples, batch=13, seed=1)

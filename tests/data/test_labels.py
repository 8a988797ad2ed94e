"""Labeled texts from files."""

from pathlib import Path

import pytest

from glassformer.data.labels import Labeled, held_apart, read_labeled
from glassformer.errors import InputError


def test_a_text_a_line(tmp_path: Path) -> None:
    """Its label is behind the last tab."""
    path = tmp_path / "texts.tsv"
    path.write_text("a fine film\t1\n a\tb \t0\n")
    assert read_labeled(path, by_word=False) == [
        Labeled(("a fine film",), ("1",)),
        Labeled(("a\tb",), ("0",)),
    ]


def test_a_word_a_line(tmp_path: Path) -> None:
    """Empty lines part sentences, however many there are, and the last one needs none."""
    path = tmp_path / "words.tsv"
    path.write_text("\nTime\tNOUN\nflies\tVERB\n\n\nStop\tVERB")
    assert read_labeled(path, by_word=True) == [
        Labeled(("Time", "flies"), ("NOUN", "VERB")),
        Labeled(("Stop",), ("VERB",)),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("good\t1\nno label\n", "line 2: no tab between a text and its label: 'no label'"),
        ("good\t1\n\t1\n", "line 2: the text is empty"),
        ("good\t \n", "line 1: the label is empty"),
        ("", "holds no labeled texts"),
    ],
)
def test_a_broken_file_is_refused_by_its_line(tmp_path: Path, text: str, message: str) -> None:
    """With what is wrong there."""
    path = tmp_path / "texts.tsv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_labeled(path, by_word=False)


def test_no_text_is_on_both_sides() -> None:
    """Copies stay together; about the share that was asked for is held out."""
    texts = [Labeled((f"text {number % 500}",), ("1",)) for number in range(1000)]
    learn, held = held_apart(texts, 0.2)
    assert len(learn) + len(held) == 1000
    assert 120 < len(held) < 280
    assert not {text.words for text in learn} & {text.words for text in held}

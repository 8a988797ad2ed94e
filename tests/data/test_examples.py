"""Examples from files of one's own: .csv, .jsonl and .tsv, and one sentence for whatever is wrong."""

import gzip
from pathlib import Path

import pytest

from glassformer.data.examples import (
    Columns,
    Example,
    check_labels,
    classes_of,
    held_apart,
    numbers_of,
    read_examples,
)
from glassformer.errors import InputError


def written(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def test_a_csv_of_ones_own(tmp_path: Path) -> None:
    """Quotes, commas and line ends inside of a text; the columns by their usual names or by given ones."""
    path = written(tmp_path, "a.csv", 'id,text,label\n1,"good, ""very""\ngood",yes\n2,bad,no\n')
    assert read_examples(path, "classify") == [
        Example(('good, "very"\ngood',), "yes"),
        Example(("bad",), "no"),
    ]
    other = written(tmp_path, "b.csv", "review,stars\nfine,5\n")
    assert read_examples(other, "classify", columns=Columns(("review",), "stars")) == [
        Example(("fine",), "5")
    ]


def test_lines_of_json(tmp_path: Path) -> None:
    """Numbers and truth values are labels too; empty lines are passed over."""
    path = written(tmp_path, "a.jsonl", '{"text": "a", "label": 1}\n\n{"text": "b", "label": true}\n')
    assert read_examples(path, "classify") == [Example(("a",), "1"), Example(("b",), "true")]


def test_columns_between_tabs(tmp_path: Path) -> None:
    """As the house reads them: the text first, the label last. By number, as CoLA's; by name, as GLUE's others."""
    path = written(tmp_path, "a.tsv", "a text\t1\nanother\tone\t0\n")
    with pytest.raises(InputError, match=r"line 2: it has 3 columns, and the first line 2"):
        read_examples(written(tmp_path, "h.tsv", "sentence\tlabel\na\tb\tc\n"), "classify")
    assert read_examples(path, "classify") == [Example(("a text",), "1"), Example(("another\tone",), "0")]
    cola = written(tmp_path, "cola.tsv", 'gj04\t1\t\tThe "sailors" rode.\n')
    assert read_examples(cola, "classify", columns=Columns(("4",), "2")) == [
        Example(('The "sailors" rode.',), "1")
    ]
    rte = gzip.compress(b"index\tsentence1\tsentence2\tlabel\n0\tIt rains.\tIt is wet.\tentailment\n")
    (tmp_path / "rte.tsv.gz").write_bytes(rte)
    assert read_examples(tmp_path / "rte.tsv.gz", "entail") == [
        Example(("It rains.", "It is wet."), "entailment")
    ]
    plain = written(tmp_path, "p.tsv", "one\tother\t4.5\n")
    assert read_examples(plain, "similar") == [Example(("one", "other"), "4.5")]


def test_answers_are_a_list_or_columns(tmp_path: Path) -> None:
    """The context first, then the answers."""
    wanted = [Example(("It rained.", "She stayed in.", "She got a tan."), "0")]
    line = '{"context": "It rained.", "answers": ["She stayed in.", "She got a tan."], "label": 0}\n'
    assert read_examples(written(tmp_path, "a.jsonl", line), "choose") == wanted
    csv = "premise,choice1,choice2,label\nIt rained.,She stayed in.,She got a tan.,0\n"
    assert read_examples(written(tmp_path, "a.csv", csv), "choose") == wanted


def test_without_labels(tmp_path: Path) -> None:
    """What is to be classified needs no label; one behind the text is not part of it."""
    path = written(tmp_path, "a.tsv", "a text\t1\n")
    assert read_examples(path, "classify", labeled=False) == [Example(("a text",))]
    other = written(tmp_path, "a.csv", "text\nhello\n")
    assert read_examples(other, "classify", labeled=False) == [Example(("hello",))]


@pytest.mark.parametrize(("name", "content", "columns", "message"), [
    ("a.csv", "id,body\n1,x\n", Columns(), r"a.csv: no column for a text to classify \(none of text, sentence, review, content\); its columns are id, body; name one with --text-column"),
    ("a.csv", "id,text\n1,x\n", Columns(("body",), ""), "a.csv: no column for 'body'; its columns are id, text; name one with --text-column"),
    ("a.csv", "id,text\n1,x\n", Columns(), r"no column for the label \(none of label, .*name one with --label-column"),
    ("a.csv", "text,stars\nx,5\n", Columns(("text",), "score"), "no column for 'score'; its columns are text, stars"),
    ("a.csv", "text,label\nx\n", Columns(), "line 2: it has 1 columns, and the first line 2"),
    ("a.csv", "text,label\n  ,yes\n", Columns(), "line 2: the text is empty"),
    ("a.csv", "text,label\nx,\n", Columns(), "line 2: the label, in the column 'label', is empty"),
    ("a.csv", 'text,label\n"x\n', Columns(), "not a line of a .csv file"),
    ("a.csv", "text,label\n", Columns(), "a.csv holds no examples"),
    ("a.jsonl", "[1]\n", Columns(), "line 1: not a JSON object"),
    ("a.jsonl", '{"text": 3, "label": "x"}\n', Columns(), "line 1: the column 'text' holds '3', which is no text"),
    ("a.jsonl", '{"text": "a", "label": null}\n', Columns(), "line 1: the label, in the column 'label', is empty"),
    ("a.tsv", "no tab\n", Columns(), "line 1: no tab between a text and its label: 'no tab'"),
    ("a.tsv", "a\tb\n", Columns(("4",), "2"), "line 1: no column for '4'; its columns are 1, 2"),
])  # fmt: skip
def test_bad_files_are_one_sentence(
    tmp_path: Path, name: str, content: str, columns: Columns, message: str
) -> None:
    """It names the file, the line and the column."""
    with pytest.raises(InputError, match=message):
        read_examples(written(tmp_path, name, content), "classify", columns=columns)


def test_labels_become_classes_or_numbers() -> None:
    """More than two numbers are a score of two texts; in any other task they are classes."""
    some = [Example(("a", "b"), label) for label in ("0.5", "3", "4.75")]
    assert classes_of(some, "similar") == ()
    assert numbers_of(some, (), task="similar") == [0.5, 3.0, 4.75]
    assert classes_of(some, "entail") == ("0.5", "3", "4.75")
    assert classes_of(some[:2], "similar") == ("0.5", "3")
    assert numbers_of(some[:2], ("0.5", "3"), task="similar") == [0, 1]
    assert numbers_of([Example(("c", "x", "y"), "1")], (), task="choose") == [1]


def test_labels_that_do_not_fit_are_refused() -> None:
    """One label alone, a label that the head lacks, a word for a number, an answer that does not exist."""
    same = [Example(("a",), "yes")] * 3
    with pytest.raises(
        InputError, match="all 3 examples have the label 'yes'; there must be at least two labels"
    ):
        classes_of(same, "classify")
    with pytest.raises(InputError, match="the label 'yes' is none of the head's: good, bad"):
        numbers_of(same, ("good", "bad"), task="classify")
    with pytest.raises(InputError, match="the label 'yes' is no number, and the head says numbers"):
        numbers_of(same, (), task="similar")
    for label in ("2", "-1", "x"):
        with pytest.raises(
            InputError, match=f"the label '{label}' is not the number of an answer, counted from 0 to 1"
        ):
            numbers_of([Example(("c", "x", "y"), label)], (), task="choose")


def test_labels_that_look_like_texts_are_refused() -> None:
    """Most of them different, and none a number: the label is in another column."""
    other = [Example((f"gj{n}",), f"Sentence {n}.") for n in range(11)] + [Example(("x",), "*")] * 9
    with pytest.raises(
        InputError, match=r"20 examples have 12 different labels, as 'Sentence 0.', which look like texts;"
    ):
        check_labels(other, "classify")
    check_labels(other[:19], "classify")  # so few may all be different
    check_labels([*other, Example(("x",), "7")], "classify")
    check_labels(other + other[11:], "classify")
    check_labels(other, "similar")


def test_what_is_held_out_shares_no_first_text() -> None:
    """Several hypotheses of a premise stay together."""
    examples = [Example((f"premise {n // 3}", f"hypothesis {n}"), str(n % 2)) for n in range(300)]
    learn, held = held_apart(examples, 0.2)
    assert len(learn) + len(held) == 300
    assert 30 <= len(held) <= 90
    assert not {one.texts[0] for one in learn} & {one.texts[0] for one in held}

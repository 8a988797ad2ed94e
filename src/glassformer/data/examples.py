"""Examples for tasks: one text or several, and a label. From .csv, .jsonl and .tsv files of one's own."""

import csv
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.data.sources import read_lines
from glassformer.errors import InputError

# What columns are usually called, for each text of a task, and for the label.
FIRST = ("premise", "first", "sentence1", "text1", "question1")
SECOND = ("hypothesis", "second", "sentence2", "text2", "question2")
TEXTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "classify": (("text", "sentence", "review", "content"),),
    "entail": (FIRST, SECOND),
    "similar": (FIRST, SECOND),
    "choose": (("context", "premise", "question", "text"),),
}
READ = {"classify": 1, "entail": 2, "similar": 2}  # how many texts a task reads; to choose, any number
ANSWERS = ("answers", "choices", "endings", "options")  # a list in one column; or columns as answer1, answer2
ANSWER = re.compile(r"(answer|choice|ending|option)[_ ]?\w")
LABELS = ("label", "score", "class", "sentiment", "answer", "target")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?")
MANY = 20  # examples of which most have a label of their own only if the labels are texts
NUMBERED = re.compile("[1-9][0-9]{0,3}")  # a column by its number, in a file without names


class Example(NamedTuple):
    """What a task reads, and what it should say: a class, a number, or the number of the right answer.

    The texts of several answers are the context and then the answers.
    """

    texts: tuple[str, ...]
    label: str = ""


class Columns(NamedTuple):
    """Which columns hold the texts and the label: names, or numbers from 1 on; none: the usual names."""

    texts: tuple[str, ...] = ()
    label: str = ""


USUAL = Columns()


def read_examples(path: Path, task: str, *, columns: Columns = USUAL, labeled: bool = True) -> list[Example]:
    """The examples of a file, also packed as .gz or .zst; those to be labeled need no column for it.

    .csv: the first line names the columns. .jsonl: an object a line. Any other name: columns between tabs,
    the texts first and the label last, unless the first line names them.
    """
    rows = list(_rows(path, task, columns))
    found = [_example(row, task, columns=columns, labeled=labeled) for row in rows]
    if not found:
        raise InputError(f"{path} holds no examples")
    return found


class _Row(NamedTuple):
    """The cells of a line by column, in order, and where it is; `named` is False if columns have numbers."""

    where: str
    path: Path
    cells: dict[str, Any]
    named: bool = True


def _rows(path: Path, task: str, columns: Columns) -> Iterator[_Row]:
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    if name.endswith(".jsonl"):
        yield from _json_rows(path)
        return
    comma = name.endswith(".csv")
    lines = _csv_lines(path) if comma else _tab_lines(path)
    given = [one for one in (*columns.texts, columns.label) if one]
    numbered = bool(given) and all(NUMBERED.fullmatch(one) for one in given)
    header: list[str] | None = None
    for number, cells in lines:
        if not any(cell.strip() for cell in cells):
            continue
        if header is None:
            named = not numbered and (comma or bool(given) or _is_header(cells, task))
            header = [cell.strip() for cell in cells] if named else []
            if named:
                continue
        where = f"{path}, line {number}"
        names = header or [str(at) for at in range(1, len(cells) + 1)]
        if len(cells) != len(names):
            raise InputError(f"{where}: it has {len(cells)} columns, and the first line {len(names)}")
        yield _Row(where, path, dict(zip(names, cells, strict=True)), bool(header))


def _json_rows(path: Path) -> Iterator[_Row]:
    for number, line in enumerate(list(read_lines(path)), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise InputError(f"{where}: not a JSON object: {line[:60]!r}") from None
        if not isinstance(value, dict):
            raise InputError(f"{where}: not a JSON object: {line[:60]!r}")
        yield _Row(where, path, value)


def _csv_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((f"{line}\n" for line in list(read_lines(path))), strict=True)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not a line of a .csv file ({error})") from None


def _tab_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(list(read_lines(path)), 1):
        yield number, line.split("\t")


def _is_header(cells: Sequence[str], task: str) -> bool:
    """Whether a first line names its columns as they are usually called."""
    names = {cell.strip() for cell in cells}
    return all(names & set(usual) for usual in TEXTS[task]) and bool(names & set(LABELS))


def _example(row: _Row, task: str, *, columns: Columns, labeled: bool) -> Example:
    if not row.named and not columns.texts:
        texts, label = _by_place(row, task, labeled=labeled)
    else:
        texts = [_text(row, name) for name in _text_columns(row, task, columns.texts)]
        label = _label(row, columns.label) if labeled else ""
    whole = [part for one in texts for part in (one if isinstance(one, list) else [one])]
    stripped = tuple(part.strip() for part in whole)
    check_texts(stripped, task, where=f"{row.where}: ")
    return Example(stripped, label)


def check_texts(texts: Sequence[str], task: str, *, where: str = "") -> None:
    """Refuse an empty text, and as many texts as a task does not read."""
    needed = READ.get(task)
    if needed is not None and len(texts) != needed:
        raise InputError(f"{where}to {task} takes {needed} text{'s' if needed > 1 else ''}, not {len(texts)}")
    if needed is None and len(texts) < 3:
        raise InputError(f"{where}to choose takes a context and at least two answers")
    for number, text in enumerate(texts, 1):
        if not text.strip():
            raise InputError(f"{where}{'the text' if len(texts) == 1 else f'text {number}'} is empty")


def _by_place(row: _Row, task: str, *, labeled: bool) -> tuple[list[Any], str]:
    """Texts and label of a line without names: the texts first, and the label last."""
    cells = list(row.cells.values())
    if labeled and len(cells) < 2:
        raise InputError(f"{row.where}: no tab between a text and its label: {cells[0][:60]!r}")
    if not labeled:  # behind the texts there may be labels, which were not asked for
        return cells[: READ.get(task)], ""
    texts, label = cells[:-1], cells[-1].strip()
    if task == "classify":
        texts = ["\t".join(texts)]
    if not label:
        raise InputError(f"{row.where}: the label is empty")
    return texts, label


def _text_columns(row: _Row, task: str, given: Sequence[str]) -> list[str]:
    """The columns of the texts: as given, or as they are usually called."""
    if given:
        return list(given)
    found = []
    for usual in TEXTS[task]:
        name = next((one for one in usual if one in row.cells), None)
        if name is None:
            raise _missing(row, f"a text to {task} (none of {', '.join(usual)})", "--text-column")
        found.append(name)
    if task == "choose":
        listed = [one for one in ANSWERS if one in row.cells]
        several = listed or [one for one in row.cells if ANSWER.fullmatch(one)]
        if not several:
            raise _missing(row, f"the answers (none of {', '.join(ANSWERS)}, answer1 …)", "--text-column")
        found += several
    return found


def _text(row: _Row, name: str) -> str | list[str]:
    """The text in a column; a list of texts for a list of answers."""
    if name not in row.cells:
        raise _missing(row, repr(name), "--text-column")
    value = row.cells[name]
    several = value if isinstance(value, list) else [value]
    if not all(isinstance(one, str) for one in several):
        raise InputError(f"{row.where}: the column {name!r} holds {str(value)[:40]!r}, which is no text")
    return list(several) if isinstance(value, list) else str(value)


def _label(row: _Row, given: str) -> str:
    name = given or next((one for one in LABELS if one in row.cells), "")
    if not name or name not in row.cells:
        what = repr(given) if given else f"the label (none of {', '.join(LABELS)})"
        raise _missing(row, what, "--label-column")
    value = row.cells[name]
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or not isinstance(value, str | int | float) or not str(value).strip():
        raise InputError(f"{row.where}: the label, in the column {name!r}, is empty or no text or number")
    return str(value).strip()


def _missing(row: _Row, what: str, flag: str) -> InputError:
    columns = ", ".join(map(str, list(row.cells)[:12]))
    where = row.path if row.named else row.where
    return InputError(f"{where}: no column for {what}; its columns are {columns}; name one with {flag}")


def held_apart(examples: Sequence[Example], share: float) -> tuple[list[Example], list[Example]]:
    """Examples to learn from, and about a `share` held out, by a hash of the first text.

    Examples that share it, as several hypotheses of a premise do, stay on one side.
    """
    limit = share * (1 << 32)
    out = [zlib.crc32(one.texts[0].casefold().encode()) < limit for one in examples]
    learn = [one for one, held in zip(examples, out, strict=True) if not held]
    return learn, [one for one, held in zip(examples, out, strict=True) if held]


def classes_of(examples: Sequence[Example], task: str) -> tuple[str, ...]:
    """The classes of examples in order; none where the label is a number to learn, or of an answer.

    Two texts are compared by a number where all labels are numbers, of more than two different values.
    """
    if task == "choose":
        return ()
    labels = sorted({one.label for one in examples})
    if task == "similar" and len(labels) > 2 and all(_is_number(label) for label in labels):
        return ()
    if len(labels) < 2:
        raise InputError(
            f"all {len(examples):,} examples have the label {labels[0]!r}; there must be at least two labels"
        )
    return tuple(labels)


def check_labels(examples: Sequence[Example], task: str) -> None:
    """Refuse labels that look like texts: those of another column than the one that was meant."""
    labels = {one.label for one in examples}
    if task not in ("classify", "entail") or len(examples) < MANY or 2 * len(labels) <= len(examples):
        return
    if not any(_is_number(label) for label in labels):
        raise InputError(
            f"{len(examples):,} examples have {len(labels):,} different labels, as"
            f" {examples[0].label[:40]!r}, which look like texts; name the columns with"
            " --text-column and --label-column"
        )


def numbers_of(examples: Sequence[Example], classes: Sequence[str], *, task: str) -> list[float] | list[int]:
    """Labels as what is learned: the number of a class, a number as it is, the number of an answer."""
    if classes:
        places: Mapping[str, int] = {label: place for place, label in enumerate(classes)}
        unknown = sorted({one.label for one in examples} - set(classes))
        if unknown:
            raise InputError(f"the label {unknown[0]!r} is none of the head's: {', '.join(classes)}")
        return [places[one.label] for one in examples]
    if task == "choose":
        return [_answer_number(one) for one in examples]
    odd = next((one.label for one in examples if not _is_number(one.label)), None)
    if odd is not None:
        raise InputError(f"the label {odd!r} is no number, and the head says numbers")
    return [float(one.label) for one in examples]


def _answer_number(example: Example) -> int:
    count = len(example.texts) - 1
    if not re.fullmatch("[0-9]{1,4}", example.label) or int(example.label) >= count:
        raise InputError(
            f"the label {example.label!r} is not the number of an answer, counted from 0 to {count - 1}"
        )
    return int(example.label)


def _is_number(text: str) -> bool:
    return NUMBER.fullmatch(text) is not None

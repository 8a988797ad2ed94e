"""What every answer has: typed values, a table, drawings, a sentence; and the text that is asked about."""

import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeVar, dataclass_transform

import numpy as np

from glassformer.errors import InputError, check_position, counted, warn
from glassformer.figures.labels import number, readable
from glassformer.figures.marks import Spec
from glassformer.tokenizers.tokenizer import pieces, source_tokenizer
from glassformer.tokenizers.words import words

if TYPE_CHECKING:
    from glassformer.explain.reading import Reading
    from glassformer.figures.view import View
    from glassformer.tokenizers import Tokenizer

SCHEMA = 2  # of `Answer.to_dict`; grows when a field changes its name or meaning

Array = np.ndarray[Any, Any]
Cell = str | int | float | bool | None
Drawing = Callable[[], Spec]
Progress = Callable[[int, int], object]  # by default `report`: to the caller that waits for the answer
Format = Literal["text", "token", "count", "rank", "share", "signed", "number", "bool"]


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, and how its cells are shown.

    `key` columns identify a row, so a table that is broken into parts repeats them. Columns of one `group`
    (above 0) stay side by side.
    """

    name: str
    format: Format = "text"
    key: bool = False
    group: int = 0


@dataclass(frozen=True)
class Table:
    """Rows under typed columns."""

    columns: list[Column]
    rows: list[list[Cell]]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: columns with their formats, and rows."""
        columns = [{"name": one.name, "format": one.format, "key": one.key} for one in self.columns]
        return {"columns": columns, "rows": plain(self.rows)}

    def to_csv(self) -> str:
        """As a .csv file has it."""
        from glassformer.figures.view import csv_text

        return csv_text(self.names, self.rows)

    def to_frame(self) -> Any:
        """As pandas has it."""
        from glassformer.figures.view import frame

        return frame(self.names, self.rows)

    def where(self, column: str, value: Cell) -> "Table":
        """Only the rows that have this value in a column."""
        if column not in self.names:
            raise InputError(f"the table has no column {column!r}; it has {', '.join(self.names)}")

        at = self.names.index(column)
        rows = [row for row in self.rows if row[at] == value]
        if not rows:
            raise InputError(f"no row has {value!r} in the column {column!r}")
        return Table(self.columns, rows)

    def largest(self, column: str, size: Callable[[Any], float] = float) -> list[Any]:
        """The row with the largest value in a column; cells without a number come last."""
        at = self.names.index(column)

        def size_of(row: list[Cell]) -> float:
            cell = row[at]
            missing = cell is None or cell != cell  # nan differs from itself
            return -np.inf if missing else size(cell)

        return max(self.rows, key=size_of)


Kind = TypeVar("Kind", bound="Answer")


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False)
def answer(kind: type[Kind]) -> type[Kind]:
    """Make a class an answer: a frozen dataclass, compared by identity because it holds arrays."""
    return dataclass(frozen=True, kw_only=True, repr=False, eq=False)(kind)


@answer
class Answer:
    """An answer to a question: its values as typed fields, a table for people, drawings, and one sentence."""

    kind: ClassVar[str]

    caption: str
    tokens: list[str]
    made: str = ""  # how the text came about
    table_note: str = ""  # which rows the table selects; pictures show other things and do not have it
    filters: tuple[tuple[str, Cell], ...] = ()  # (column, value) pairs that the table's rows must have

    # What every kind of answer says for itself.

    def make_table(self) -> Table:
        """The table, with all the rows that it has for people."""
        raise NotImplementedError

    def every(self) -> Table:
        """All rows, when the table shows a selection."""
        return self.table()

    def draw(self) -> Spec:
        """The one drawing of an answer that has one."""
        raise NotImplementedError

    @property
    def views(self) -> dict[str, Drawing]:
        """Its drawings by name; the first is the default."""
        return {self.kind: self.draw}

    def finding(self) -> str:
        """The most important thing to see, as the end of a sentence."""
        return self.first_row()

    # What follows from that.

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.caption.partition(chr(10))[0]!r}, {counted(len(self.rows), 'row')})"
        )

    @cached_property
    def _table(self) -> Table:
        table = self.make_table()
        for column, value in self.filters:
            table = table.where(column, value)
        return table

    def table(self) -> Table:
        """The table for people."""
        return self._table

    @property
    def rows(self) -> list[list[Cell]]:
        """The rows of its table."""
        return self._table.rows

    @property
    def columns(self) -> list[str]:
        """The names of its table's columns."""
        return self._table.names

    def at(self, position: int | str) -> Self:
        """The answer with the table of one position: a number, from the end if below 0, or a token's text."""
        if isinstance(position, str):
            position = self._position_of(position)
        return self.where("position", check_position(len(self.tokens), position))

    def _position_of(self, text: str) -> int:
        """The position of the one token with a text."""
        found = [at for at, token in enumerate(self.tokens) if token.strip() == text.strip()]
        if len(found) == 1:
            return found[0]
        if not found:
            raise InputError(f"no token here is {text!r}; give the number of a position")
        raise InputError(f"{text!r} is at positions {', '.join(map(str, found[:8]))}; give one of them")

    def where(self, column: str, value: Cell) -> Self:
        """The answer with only those rows of its table that have a value in a column."""
        self.table().where(column, value)
        return dataclasses.replace(self, filters=(*self.filters, (column, value)))

    def sentence(self) -> str:
        """Alternative text: the caption, and the most important thing to see."""
        title = self.caption.partition("\n")[0]
        return f"{title}: {self.finding()}." if self.rows else f"{title}."

    def first_row(self) -> str:
        """The first row of a table that is in order."""
        return f"first of {counted(len(self.rows), 'row')}: {self._row(0)}"

    def last_row(self) -> str:
        """The last row of a table that runs through stages or steps."""
        return f"at the end: {self._row(-1)}"

    def _row(self, at: int) -> str:
        cells = zip(self.columns, self.rows[at], strict=True)
        return ", ".join(f"{name} {_described(value)}" for name, value in cells)

    def data(self) -> dict[str, Any]:
        """Its own fields by name."""
        common = {one.name for one in dataclasses.fields(Answer)}
        own = (one.name for one in dataclasses.fields(self) if one.name not in common)
        return {name: getattr(self, name) for name in own}

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it: values that are not finite are null."""
        about = {"kind": self.kind, "schema": SCHEMA, "caption": self.caption, "made": self.made}
        values = {name: plain(value) for name, value in self.data().items()}
        note = {"table_note": self.table_note} if self.table_note else {}
        return about | {"tokens": self.tokens, "values": values} | self.table().to_dict() | note

    def to_csv(self) -> str:
        """All rows, as a .csv file has them."""
        return self.every().to_csv()

    def to_frame(self) -> Any:
        """The table, as pandas has it."""
        return self.table().to_frame()

    def to_numpy(self) -> dict[str, Any]:
        """The values as arrays, by name."""
        return {name: arrays(value) for name, value in self.data().items() if not _is_label(value)}

    def view(self, drawing: str | None = None) -> "View":
        """The picture, as data; some kinds of answers have several."""
        # Here and below, not at the top: `glass generate` draws nothing and must start fast.
        from importlib.metadata import version

        from glassformer.figures.view import VERSION, View

        drawing = next(iter(self.views)) if drawing is None else drawing
        if drawing not in self.views:
            known = ", ".join(self.views)
            raise InputError(f"{drawing!r} is not a drawing of {self.kind}; there is {known}")

        title, _, rest = self.caption.partition("\n")
        paragraphs = map(readable, rest.split("\n\n"))
        remarks = [*paragraphs, self.made, f"Glassformer {version('glassformer')}"]
        about: Spec = {
            "view": VERSION,
            "title": readable(title),
            "sentence": readable(self.sentence()),
            "caption": " · ".join(filter(None, remarks)),
        }

        spec = self.views[drawing]()
        if "title" in spec:
            spec["title"] = readable(spec["title"])
        table = {"columns": self.columns, "rows": plain(self.rows)}
        return View(about | spec | {"table": table})

    def to_html(self, drawing: str | None = None, *, theme: str | None = None) -> str:
        """One self-contained page with the live picture."""
        return self.view(drawing).to_html(theme=theme)

    def save(self, path: str | Path, *, drawing: str | None = None, **how: Any) -> Path:
        """Write a picture (.svg, .png, .pdf, .html) or the values (.json, .csv).

        How: `width`, `theme` ("dark"), `scale` (pixels of a .png per unit of the drawing).
        """
        from glassformer.figures.view import check_format, write

        path = Path(path)
        kind = check_format(path)
        if kind == ".csv":
            write(path, self.to_csv().encode())
        elif kind == ".json":
            whole = self.to_dict() | {"view": self.view(drawing).spec}
            write(path, (json.dumps(whole, ensure_ascii=False) + "\n").encode())
        else:
            self.view(drawing).save(path, **how)
        return path

    def show(self, drawing: str | None = None) -> None:
        """Show the picture: live in a notebook, as text on a terminal."""
        self.view(drawing).show()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return self.view()._repr_mimebundle_()

    def title_of_some(self, what: str, *, shown: int, total: int) -> Spec:
        """A title that says so when a drawing does not show everything; nothing when it does."""
        title = self.caption.partition("\n")[0]
        return {} if shown >= total else {"title": f"{title}; the first {shown} of {total} {what}"}


def _described(value: Cell) -> str:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return number(value)
    return "none" if value is None else repr(value)


def _is_label(value: Any) -> bool:
    return isinstance(value, str | bool) or value is None


def arrays(value: Any) -> Any:
    """Records become arrays by field name, and a list of records one array a field."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: arrays(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: arrays(one) for name, one in value.items()}
    if isinstance(value, list) and value and dataclasses.is_dataclass(value[0]):
        names = [one.name for one in dataclasses.fields(value[0])]
        columns = {name: [getattr(record, name) for record in value] for name in names}
        return {name: _stacked(column) for name, column in columns.items()}
    return value if value is None else _stacked(value)


def _stacked(column: Any) -> Any:
    """One array, or the list itself where its parts have several lengths."""
    try:
        return np.asarray(column)
    except ValueError:
        return column


def plain(value: Any) -> Any:
    """Values as JSON has them; −∞ and nan are null."""
    if value is None or type(value) in (str, int, bool):  # most cells of a table; what follows takes longer
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {_key(name): plain(one) for name, one in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.integer | np.bool_) else value


def _key(name: Any) -> str:
    return " ".join(map(str, name)) if isinstance(name, tuple) else str(name)


class Reader(Protocol):
    """A model that reads: what explanations need of its handle."""

    @property
    def name(self) -> str: ...
    @property
    def tokenizer(self) -> "Tokenizer | None": ...
    @property
    def lock(self) -> AbstractContextManager[Any]: ...
    @property
    def net(self) -> Any: ...
    @property
    def capabilities(self) -> frozenset[str]: ...
    def encode(self, prompt: str | Sequence[int], *, special: bool = False) -> list[int]: ...
    def reading(
        self, ids: Sequence[int], *, prompt: int = 0, source: Sequence[int] | None = None
    ) -> "Reading": ...
    def reading_of(self, text: str) -> "Reading": ...
    def check_sites(self, sites: Iterable[str]) -> None: ...


class Subject(Reader, Protocol):
    """A model that can be asked: what questions need of its handle."""

    def logits(self, ids: Sequence[int]) -> Array: ...
    def next_logits(self, ids: Sequence[int]) -> Array: ...
    def in_torch(self) -> AbstractContextManager[Any]: ...


class Writer(Subject, Protocol):
    """A model that also generates."""

    def generate(self, prompt: str | Sequence[int] = "", **options: Any) -> Any: ...


@dataclass(frozen=True)
class Text:
    """The text that a question is about: tokens, of which the first `prompt` were given (0: all of them).

    `source` is the second text of a model that reads two.
    """

    lm: Subject
    ids: list[int]
    prompt: int = 0
    logprobs: list[float] | None = field(default=None, repr=False)  # of the generated tokens
    scores: Array | None = field(default=None, repr=False)  # (V,) of the next token, if they are known
    source: list[int] | None = None
    is_source: bool = False  # read by the vocabulary of sources, where a model has one of its own

    @property
    def net(self) -> Any:
        """The torch module."""
        return self.lm.net

    @property
    def tokenizer(self) -> "Tokenizer | None":
        """The vocabulary of this text."""
        tokenizer = self.lm.tokenizer
        return source_tokenizer(tokenizer) if self.is_source and tokenizer is not None else tokenizer

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.lm.name

    @property
    def capabilities(self) -> frozenset[str]:
        """What the model can do."""
        return self.lm.capabilities

    @property
    def generated(self) -> list[int]:
        """The tokens that the model generated."""
        return self.ids[self.prompt :] if self.prompt else []

    @property
    def blank(self) -> int | None:
        """The token that explanations put in a token's place: the end of text, or none."""
        return None if self.tokenizer is None else self.tokenizer.end

    def next_logits(self) -> Array:
        """The scores of the next token (V,), by the backend that generates unless they are known."""
        return self.lm.next_logits(self.ids) if self.scores is None else self.scores

    def reading(self) -> "Reading":
        """The whole text, to be run through the model."""
        return self.lm.reading(self.ids, prompt=self.prompt, source=self.source)

    def name_of(self, stack: str = "", part: str = "attn") -> str:
        """The name of the model; of a stack, if it has several; and of attention to another text."""
        reading = self.reading()
        several = len(reading.net.stacks) > 1
        names = [self.name, reading.stack(stack).name if several else ""]
        names += ["cross-attention"] if part != "attn" else []
        return ", ".join(filter(None, names))

    def read_by(self, stack: str = "") -> "Text":
        """The text whose tokens are at the positions of a stack: this one, or the source."""
        reading = self.reading()
        return self._with(reading.ids_of(stack), source=reading.is_source(stack))

    def source_text(self) -> "Text":
        """The source, as a text of its own."""
        return self._with(self.reading().check_source(), source=True)

    def axes(self, *, stack: str = "", part: str = "attn") -> "tuple[Text, Text]":
        """The texts of both axes of a pattern: that of the queries, and the one they attend to."""
        reading = self.reading()
        queries, sources = reading.axes(stack=stack, part=part)
        of_source = reading.is_source(stack)
        crosses = of_source or reading.crosses(stack=stack, part=part)
        return self._with(queries, source=of_source), self._with(sources, source=crosses)

    def _with(self, ids: list[int], *, source: bool) -> "Text":
        """A text of these tokens alone, for its words and labels; of the `source`, or of the target."""
        same = ids == self.ids and source == self.is_source
        return self if same else Text(self.lm, ids, is_source=source)

    def replayed(self) -> "Text":
        """What the model read while it generated: all but the last token, which it never read."""
        if not self.generated:
            raise InputError("there is no token to explain: nothing was generated")
        return dataclasses.replace(self, ids=self.ids[:-1])

    @property
    def whole(self) -> str:
        """The text itself; bytes that are no whole character are shown as U+FFFD."""
        return b"".join(pieces(self.tokenizer, self.ids)).decode("utf-8", "replace")

    @cached_property
    def labels(self) -> list[str]:
        """The text of every token."""
        return labels(self.tokenizer, self.ids)

    def labels_of(self, ids: Sequence[int], *, after: int | None = None) -> list[str]:
        """The texts of tokens that do not follow each other, but could each follow the token `after`."""
        return [label(self.tokenizer, id, after=after) for id in ids]

    def words(self) -> tuple[list[range], list[str]]:
        """The words of the text: which tokens each is made of, and its text."""
        if self.tokenizer is None:
            raise InputError(f"{self.name} has no vocabulary, so its tokens make no words")

        parts = pieces(self.tokenizer, self.ids)
        special = set(self.tokenizer.special.values())
        marks = [at for at, id in enumerate(self.ids) if id in special]  # a word each: they are no text
        edges = sorted({0, len(parts), *marks, *(at + 1 for at in marks)})
        groups = [
            range(start + group.start, start + group.stop)
            for start, end in itertools.pairwise(edges)
            for group in words(parts[start:end])
        ]
        joined = (b"".join(parts[at] for at in group) for group in groups)
        return groups, [one.decode("utf-8", "backslashreplace") for one in joined]

    def find_token(self, word: str | int) -> int:
        """The one token that a word is; a number is one already."""
        return find_token(self.lm, word)

    def positions(self, word: str | int) -> list[int]:
        """The positions of a word: a number, or its text, with or without the blank before it."""
        return [at for place in self._places(word) for at in place]

    def position(self, word: str | int) -> int:
        """The one position that is meant: a number, or a word (of its tokens, the last) or a token's text."""
        places = self._places(word)
        if len(places) > 1:
            listed = ", ".join(str(place[-1]) for place in places[:8])
            raise InputError(f"{word!r} is at positions {listed}; give one of them")
        return places[0][-1]

    def _places(self, word: str | int) -> list[range]:
        """Where a word is, or else a token of this text; a number is a position already."""
        word = str(word)
        if re.fullmatch(r"-?[0-9]{1,9}", word):
            at = check_position(len(self.ids), int(word))
            return [range(at, at + 1)]
        if self.tokenizer is None:
            raise InputError(f"{self.name} has no vocabulary; give positions as numbers")

        groups, names = self.words()
        tokens = [range(at, at + 1) for at in range(len(self.ids))]
        for places, texts in ((groups, names), (tokens, self.labels)):
            alike = [at for at, text in zip(places, texts, strict=True) if text.strip() == word.strip()]
            if alike:
                return alike
        known = " ".join(name.strip() for name in names)
        shown = readable(known[:200]) + ("…" if len(known) > 200 else "")
        raise InputError(f"the word {word!r} is not in the text; its words are {shown}")


def labels(tokenizer: "Tokenizer | None", ids: Sequence[int]) -> list[str]:
    """The texts of tokens that follow each other; part of a character is shown as its bytes."""
    return [piece.decode("utf-8", "backslashreplace") for piece in pieces(tokenizer, ids)]


def vocabulary_of(tokenizer: "Tokenizer", model: str) -> str:
    """Which vocabulary made tokens, for a title: the name of its model, if that is known, and its size."""
    size = f"vocabulary of {counted(len(tokenizer), 'token')}"
    return f"{model}, {size}" if model else size


def label(tokenizer: "Tokenizer | None", id: int, *, after: int | None = None) -> str:
    """The text of one token, as it would be behind the token `after`."""
    (piece,) = pieces(tokenizer, [id], after=after)
    return piece.decode("utf-8", "backslashreplace")


def several(given: Any) -> list[Any]:
    """A list of what was given; a text or a number alone is a list of one."""
    return [given] if isinstance(given, str | int) else list(given)


def find_token(lm: Subject, word: str | int) -> int:
    """The one token that a word is; a number is one already.

    A word without its blank may be a token too, but one that hardly ever begins a word: that is a warning.
    """
    if isinstance(word, int):
        return word
    if not word:
        raise InputError("an empty text is no token")

    ids = lm.encode(word)
    if len(ids) == 1:
        if word[0].isalpha() and len(lm.encode(f" {word}")) == 1:
            warn(f"{word!r} and ' {word}' are two tokens; did you mean ' {word}', the word inside a text?")
        return ids[0]
    parts = " + ".join(f"'{name}'" for name in labels(lm.tokenizer, ids))
    bare = not word.startswith(" ")
    hint = f"; a word inside a text begins with a blank: ' {word.strip()}'" if bare else ""
    raise InputError(f"{word!r} is not one token but {parts}{hint}")

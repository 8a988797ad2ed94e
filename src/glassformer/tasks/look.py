"""An answer to a question about a model: numbers, a table and a picture; and the names by which people ask."""

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glassformer.errors import InputError
from glassformer.figures.labels import readable
from glassformer.figures.view import PICTURES, View, csv_text, frame, write
from glassformer.tokenizers.tokenizer import pieces
from glassformer.tokenizers.words import words

if TYPE_CHECKING:
    from glassformer.tasks.complete import LanguageModel

Array = np.ndarray[Any, Any]
Progress = Callable[[int, int], object]
Table = tuple[list[str], list[list[Any]]]  # columns and rows


@dataclass(frozen=True)
class Look:
    """An answer: the numbers as they are, a table of them for people, and a picture."""

    kind: str
    caption: str
    tokens: list[str]
    numbers: Any = field(repr=False)
    columns: list[str]
    rows: list[list[Any]] = field(repr=False)
    every: "Table | None" = field(
        default=None, repr=False, compare=False
    )  # the whole, where the table is a choice of it
    seen: Any = field(default=None, repr=False, compare=False)  # what only a picture needs
    made: str = ""  # how the text came about

    def at(self, position: int) -> "Look":
        """Only the lines of one position, counted from the end if it is below 0."""
        size = len(self.tokens)
        if not -size <= position < size:
            raise InputError(f"position {position} is not there; the text has positions 0 to {size - 1}")
        return self.having("position", position % size)

    def having(self, column: str, value: Any) -> "Look":
        """Only the lines that have this in a column."""
        rows = [row for row in self.rows if row[self.columns.index(column)] == value]
        if not rows:
            raise InputError(f"{column} {value!r} is not there")
        return dataclasses.replace(self, rows=rows)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data: the numbers, and the table that is made of them."""
        about = {"kind": self.kind, "caption": self.caption, "made": self.made, "tokens": self.tokens}
        return about | {"numbers": plain(self.numbers)} | self.table()

    def table(self) -> dict[str, Any]:
        """The table, as plain data."""
        return {"columns": self.columns, "rows": plain(self.rows)}

    def to_csv(self) -> str:
        """The table; where that is a choice, all of it."""
        return csv_text(*(self.every or (self.columns, self.rows)))

    def to_frame(self) -> Any:
        """The table, as pandas has it."""
        return frame(self.columns, self.rows)

    def to_numpy(self) -> Any:
        """The numbers: one array, or several by their names."""
        if isinstance(self.numbers, np.ndarray):
            return self.numbers
        return arrays(self.numbers)

    def view(self, drawing: str | None = None) -> View:
        """The picture, as data; of some kinds of answers there are several."""
        from glassformer.tasks.drawing import view_of

        return view_of(self, drawing)

    def to_html(self, drawing: str | None = None, *, theme: str | None = None) -> str:
        """One page that needs nothing else, with the live picture."""
        return self.view(drawing).to_html(theme=theme)

    def save(self, path: str | Path, *, drawing: str | None = None, **how: Any) -> Path:
        """Write a picture (.svg, .png, .pdf, .html) or the numbers (.json, .csv). How: `width`, `theme` ("dark")."""
        path = Path(path)
        kind = path.suffix.lower()
        if kind == ".csv":
            write(path, self.to_csv().encode())
        elif kind == ".json":
            write(
                path,
                (
                    json.dumps(self.to_dict() | {"view": self.view(drawing).spec}, ensure_ascii=False) + "\n"
                ).encode(),
            )
        elif kind in PICTURES:
            self.view(drawing).save(path, **how)
        else:
            raise InputError(f"{path}: a picture is saved as {', '.join(PICTURES)}, numbers as .json or .csv")
        return path

    def show(self, drawing: str | None = None) -> None:
        """Show the picture: live in a notebook, as text on a terminal."""
        self.view(drawing).show()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return self.view()._repr_mimebundle_()


def arrays(value: Any) -> Any:
    """Records become arrays by their names, and many records alike become one."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: arrays(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: arrays(one) for name, one in value.items()}
    if isinstance(value, list) and value and dataclasses.is_dataclass(value[0]):
        return {
            one.name: np.array([getattr(row, one.name) for row in value])
            for one in dataclasses.fields(value[0])
        }
    return value if value is None else np.asarray(value)


def plain(value: Any) -> Any:
    """Numbers as JSON has them; what is not a number (−∞, nan) is null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {
            " ".join(map(str, key)) if isinstance(key, tuple) else str(key): plain(one)
            for key, one in value.items()
        }
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.integer | np.bool_) else value


def labels(lm: "LanguageModel", ids: Sequence[int]) -> list[str]:
    """The text of every token; half a character is shown as its bytes, an id that is no token as its number."""
    known = 0 if lm.tokenizer is None else len(lm.tokenizer)
    return [lm.bytes_of(id).decode("utf-8", "backslashreplace") if id < known else f"<{id}>" for id in ids]


def words_of(lm: "LanguageModel", ids: Sequence[int]) -> tuple[list[range], list[str]]:
    """The words of a text: which tokens each is made of, and its text."""
    if lm.tokenizer is None:
        raise InputError("this model has no vocabulary, so its tokens make no words")
    parts = pieces(lm.tokenizer, ids)
    groups = words(parts)
    return groups, [
        b"".join(parts[at] for at in group).decode("utf-8", "backslashreplace") for group in groups
    ]


def find_token(lm: "LanguageModel", word: str | int) -> int:
    """The one token that a word is; a number is one already."""
    if isinstance(word, int):
        return word
    ids = lm.encode(word)
    if not word:
        raise InputError("an empty text is no token")
    if len(ids) != 1:
        pieces = " + ".join(f"'{name}'" for name in labels(lm, ids))
        hint = (
            "" if word.startswith(" ") else f"; a word inside a text begins with a blank: ' {word.strip()}'"
        )
        raise InputError(f"{word!r} is not one token but {pieces}{hint}")
    return ids[0]


def places_of(lm: "LanguageModel", ids: Sequence[int], word: str | int) -> list[int]:
    """The positions of a word in a text: a number, or its text, with or without the blank before it."""
    word = str(word)
    if re.fullmatch(r"-?\d+", word, re.ASCII):
        return [int(word) % len(ids)] if -len(ids) <= int(word) < len(ids) else _nowhere(word, len(ids))
    if lm.tokenizer is None:
        raise InputError("this model has no vocabulary; name positions by their numbers")
    groups, names = words_of(lm, ids)
    found = [
        at for group, name in zip(groups, names, strict=True) if name.strip() == word.strip() for at in group
    ]
    if not found:
        known = " ".join(name.strip() for name in names)
        shown = readable(known[:200]) + ("…" if len(known) > 200 else "")
        raise InputError(f"the word {word!r} is not in the text; its words are {shown}")
    return found


def _nowhere(word: str, size: int) -> list[int]:
    raise InputError(f"position {word} is not there; the text has positions 0 to {size - 1}")

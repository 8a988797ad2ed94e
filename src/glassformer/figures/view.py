"""A view: plain data that describes a picture. It can be drawn, shown and saved."""

import csv
import io
import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.errors import InputError
from glassformer.figures.layout import KINDS, ROOM, figure
from glassformer.figures.marks import Spec
from glassformer.figures.packing import packed, short, unpacked
from glassformer.figures.svg import svg
from glassformer.files import MEGABYTE, read_bytes

__all__ = [
    "PICTURES",
    "VERSION",
    "View",
    "check_format",
    "csv_text",
    "frame",
    "packed",
    "script",
    "short",
    "write",
]

VERSION = 3  # of the JSON of a view; marks have their own
READS = (1, 2, 3)  # later ones only added keys, so earlier views are drawn as they are
PICTURES = (".svg", ".png", ".pdf", ".html")
NUMBERS = (".json", ".csv")
REQUIRED = {"kind", "title", "sentence", "caption", "table"}
LARGEST = 1024 * MEGABYTE  # of a view that is loaded
SCALE = 2.0  # pixels of a PNG for a unit of the drawing


def check_format(path: str | Path) -> str:
    """The suffix of a file, in lower case; an error if neither a picture nor its numbers have that form."""
    suffix = Path(path).suffix.lower()
    if suffix not in PICTURES + NUMBERS:
        pictures, numbers = ", ".join(PICTURES), " or ".join(NUMBERS)
        raise InputError(f"{path}: a picture is saved as {pictures}, numbers as {numbers}")
    return suffix


@dataclass(frozen=True)
class View:
    """A picture as data; `spec` is what `docs/views.md` describes."""

    spec: Spec

    def to_svg(self, *, width: float = ROOM, theme: str = "light") -> str:
        """A vector picture of at most this width."""
        return svg(figure(self.spec, _width(width)), self.spec, theme=_theme(theme))

    def to_marks(self, *, width: float = ROOM) -> Spec:
        """The picture laid out in at most this width, as plain data that `views.js` draws beside the view."""
        return figure(self.spec, _width(width)).to_json()

    def to_text(self, width: int = 80, *, color: bool = True) -> str:
        """The drawing for a terminal of `width` columns; with escape codes, or with digits in their place."""
        from glassformer.figures.terminal import drawn

        return drawn(self.spec, width, colored=color)

    def to_html(self, *, theme: str | None = None) -> str:
        """One self-contained page: the live drawing and its table. Without a theme: the reader's colors."""
        from glassformer.figures.page import page

        return page(self.spec, None if theme is None else _theme(theme))

    def to_player(self, *, theme: str | None = None) -> str:
        """One page that plays the notes of a roll."""
        from glassformer.figures.player import player

        return player(self.spec, None if theme is None else _theme(theme))

    def to_png(self, *, width: float = ROOM, theme: str = "light", scale: float = SCALE) -> bytes:
        """Pixels, `scale` for each unit of the drawing."""
        drawing = self.to_svg(width=width, theme=theme)
        return bytes(_converter().svg_to_png(drawing, scale=_scale(scale)))

    def to_pdf(self, *, width: float = ROOM, theme: str = "light") -> bytes:
        """Vectors for a paper."""
        return bytes(_converter().svg_to_pdf(self.to_svg(width=width, theme=theme)))

    def save(
        self, path: str | Path, *, width: float = ROOM, theme: str | None = None, scale: float = SCALE
    ) -> Path:
        """Write a picture (.svg, .png, .pdf, .html), its table (.csv) or the view itself (.json).

        A page is as wide as its window, and in the reader's colors unless a theme is named; others are light.
        `scale` is of a .png: its pixels for each unit of the drawing.
        """
        path = Path(path)
        suffix = check_format(path)
        _scale(scale)
        if suffix == ".html":
            _width(width)
            data = self.to_html(theme=theme)
        elif suffix == ".csv":
            data = csv_text(self.spec["table"]["columns"], self.spec["table"]["rows"])
        elif suffix == ".json":
            data = json.dumps(self.spec, ensure_ascii=False, allow_nan=False) + "\n"
        else:
            more = {"scale": scale} if suffix == ".png" else {}
            data = getattr(self, f"to_{suffix[1:]}")(width=width, theme=theme or "light", **more)
        write(path, data.encode() if isinstance(data, str) else data)
        return path

    def to_frame(self) -> Any:
        """Its table, as pandas has it."""
        return frame(self.spec["table"]["columns"], self.spec["table"]["rows"])

    def to_numpy(self) -> Any:
        """The numbers that are drawn: an array, several by name, or a list for panels; nan is a gap."""
        return drawn_numbers(self.spec)

    def show(self) -> None:
        """Live in a notebook, as text on a terminal."""
        from glassformer.figures.show import show

        show(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        from glassformer.figures.show import bundle

        return bundle(self)

    @classmethod
    def load(cls, path: str | Path) -> "View":
        """A view that was saved as .json."""
        content = read_bytes(Path(path), LARGEST, kind=InputError)
        try:
            spec = json.loads(content)
        except (ValueError, RecursionError):
            raise InputError(f"{path}: is not JSON") from None
        if isinstance(spec, dict) and isinstance(spec.get("view"), dict):
            spec = spec["view"]  # the file is that of an answer, which holds its view
        if not isinstance(spec, dict) or not set(spec) >= REQUIRED or spec["kind"] not in [*KINDS]:
            raise InputError(f"{path}: is not a view that this version can draw")
        if spec.get("view") not in READS:
            known = " and ".join(map(str, READS))
            raise InputError(
                f"{path}: is a view of version {spec.get('view')!r}; this Glassformer draws versions {known}"
            )
        view = cls(spec)
        try:  # drawn once here, so that a later drawing cannot fail on some key deep inside
            view.to_svg(), view.to_text(), view.to_numpy()
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise InputError(f"{path}: is not a view that this version can draw ({error!r:.200})") from None
        return view


def drawn_numbers(spec: Spec) -> Any:
    """What `View.to_numpy` gives."""
    if spec["kind"] == "panels":
        return [drawn_numbers(one) for one in spec["panels"]]
    if spec["kind"] != "roll" and "series" in spec:
        return {one["name"]: np.array(one["values"], dtype=float) for one in spec["series"]}
    if spec["kind"] == "roll":
        return np.array(spec["notes"], dtype=float)
    if spec["kind"] == "slots":
        return np.array(spec["columns"], dtype=float)
    if spec["kind"] == "matrix":
        return unpacked(spec["values"])
    return np.array(spec.get("values", spec.get("edges", [])), dtype=float)


def csv_text(columns: list[str], rows: list[list[Any]]) -> str:
    """A table, as a .csv file has it."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([columns, *rows])
    return out.getvalue()


def frame(columns: list[str], rows: list[list[Any]]) -> Any:
    """A table, as pandas has it."""
    try:
        import pandas
    except ImportError:
        raise InputError("a frame needs one more library: pip install 'glassformer[notebook]'") from None
    return pandas.DataFrame(rows, columns=columns)


def write(path: Path, data: bytes) -> None:
    """Write a file, or raise an error with the reason."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None


def script() -> str:
    """`views.js`, which draws views live."""
    return resources.files("glassformer.figures").joinpath("views.js").read_text(encoding="utf-8")


def _width(width: float) -> float:
    if not isinstance(width, int | float) or not 120 <= width <= 10_000:
        raise InputError(f"width must be between 120 and 10,000, not {width!r}")
    return float(width)


def _scale(scale: float) -> float:
    if not isinstance(scale, int | float) or not 0.5 <= scale <= 10:
        raise InputError(f"scale must be between 0.5 and 10, not {scale!r}")
    return float(scale)


def _theme(theme: str) -> str:
    if theme not in ("light", "dark"):
        raise InputError(f"theme must be light or dark, not {theme!r}")
    return theme


def _converter() -> Any:
    try:
        import vl_convert
    except ImportError:
        raise InputError(
            "PNG and PDF need one more library: pip install 'glassformer[figures]'; .svg needs none"
        ) from None
    return vl_convert

"""Files to documents: text, lines of JSON, columns of tables, MIDI, packed or not, and folders of these.

Everything is read as a stream: a file of gigabytes is never in memory.
"""

import contextlib
import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from glassformer.errors import InputError
from glassformer.files import read_bytes
from glassformer.tokenizers.midi import LARGEST, read_midi
from glassformer.tokenizers.midi import SUFFIXES as MIDI
from glassformer.tokenizers.music import Performance
from glassformer.tokenizers.train import text_pieces

TABLES = (".csv", ".tsv")
KINDS = (".txt", ".md", ".jsonl")
PACKINGS = ("", ".gz", ".zst")
SUFFIXES = tuple(kind + packing for kind in KINDS for packing in PACKINGS)
# How other files begin -> what they are, and what to do.
OTHER_FORMATS = {
    b"%PDF-": "a PDF; extract its text first, as with `pdftotext FILE`",
    b"PK\x03\x04": "a zip archive, as .docx and .epub are; unpack it, or save it as plain text",
    b"\x1f\x8b": "packed by gzip; give it a name that ends in .gz, as .txt.gz",
    b"\x28\xb5\x2f\xfd": "packed by zstd; give it a name that ends in .zst, as .txt.zst",
    b"\x89PNG": "a picture, which has no text to learn from",
    b"\xff\xd8\xff": "a picture, which has no text to learn from",
    b"\xff\xfe": "UTF-16 text; convert it, as with `iconv -f UTF-16 -t UTF-8 FILE`",
    b"\xfe\xff": "UTF-16 text; convert it, as with `iconv -f UTF-16 -t UTF-8 FILE`",
}
MAX_LINE = 1 << 28
MAX_RATIO, RATIO_FROM = 100, 1 << 26  # text never packs so well; a bomb does


class Piece(NamedTuple):
    """A part of a document, or a whole one."""

    text: str
    learn: bool = True  # whether a model shall learn to write it, or is only given it to read
    last: bool = True  # whether the document ends with it
    cut: bool = False  # whether it was cut off there, so that this is no place to learn how documents end


def find_files(path: Path) -> list[Path]:
    """The files of a source: itself, or every file of text, or of music, in a folder, by name."""
    if path.is_file():
        return [path]
    if path.parts[:1] in (("http:",), ("https:",)):
        address = str(path).replace(":/", "://", 1)
        raise InputError(f"{address} is a web address; download it first, as with `curl -O {address}`")
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: neither a regular file nor a folder")
    if not path.is_dir():
        raise InputError(f"{path}: there is no such file or folder of text")
    inside = (file for file in path.rglob("*") if file.name.lower().endswith((*SUFFIXES, *MIDI)))
    files = [file for file in inside if file.is_file()]
    seen = [file for file in files if not any(part.startswith(".") for part in file.relative_to(path).parts)]
    # A folder of music may have a text beside it, and a folder of texts a tune: what there is more of counts.
    texts = sorted(file for file in seen if not is_midi(file))
    tunes = sorted(file for file in seen if is_midi(file))
    found = tunes if len(tunes) > len(texts) else texts
    if not found:
        raise InputError(f"{path}: the folder holds no text ({', '.join(KINDS)}, also packed as .gz or .zst)")
    return found


def read_pieces(
    path: Path, *, field: str = "text", watch: Callable[[bytes], object] | None = None
) -> Iterator[Piece]:
    """The documents of one file. `watch` is handed the raw bytes of the file as they are read.

    A MIDI file is one document: what is played, in the words of `Performance`.
    """
    if is_midi(path):
        yield _read_midi(path, watch)
        return
    with _opened(path, watch) as file:
        name = path.name.removesuffix(".gz").removesuffix(".zst")
        if name.endswith(TABLES):
            yield from _read_table(file, path, field, comma=name.endswith(".csv"))
        else:
            lines = name.endswith(".jsonl")
            yield from _read_lines(file, path, field) if lines else _read_text(file, path)


def is_midi(path: Path) -> bool:
    """Whether a file is music, by its name."""
    return path.name.lower().endswith(MIDI)


def _read_midi(path: Path, watch: Callable[[bytes], object] | None) -> Piece:
    if watch is not None:
        watch(read_bytes(path, LARGEST, kind=InputError))
    events = Performance()
    return Piece(events.decode(events.events(read_midi(path))))


@contextlib.contextmanager
def _opened(path: Path, watch: Callable[[bytes], object] | None = None) -> Iterator[BinaryIO]:
    """The unpacked content of a file; what goes wrong with it becomes one sentence."""
    try:
        with path.open("rb") as raw, _unpacked(_Watched(raw, watch), path) as file:
            yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is damaged, or not packed by gzip: {error}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None


def read_texts(path: Path, *, field: str = "text") -> Iterator[str]:
    """Whole documents of a source, one after the other; for sources that are not large."""
    parts: list[str] = []
    for file in find_files(path):
        for piece in read_pieces(file, field=field):
            parts.append(piece.text)
            if piece.last:
                yield "".join(parts)
                parts = []


def read_corpus(sources: Iterable[str | Path]) -> Iterator[str]:
    """Texts as they are, and those of files and folders (a `Path` each) as a stream, long ones in pieces."""
    for source in sources:
        if isinstance(source, str):
            yield source
            continue
        for file in find_files(source):
            waiting = ""
            for piece in read_pieces(file):
                # A text is streamed in pieces that end between words: the last may be a single word. It
                # stays with the piece before it, or the model would read it without its context.
                if piece.last:
                    yield waiting + piece.text
                elif waiting:
                    yield waiting
                waiting = "" if piece.last else piece.text


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file, packed or not, without their ends; a file that is missing is refused."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    with _opened(path) as file:
        yield from (line.rstrip("\r\n") for line in _decoded_lines(file, path))


def _decoded_lines(file: BinaryIO, path: Path) -> Iterator[str]:
    """Every line as text, with its end."""
    number = 0
    while line := file.readline(MAX_LINE):
        number += 1
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}, line {number}: not UTF-8 text ({error.reason} at byte {error.start})"
            ) from None


def _read_table(file: BinaryIO, path: Path, field: str, *, comma: bool) -> Iterator[Piece]:
    """Every row is a document: the cell in the column that the first row calls `field`."""
    lines = _decoded_lines(file, path)
    rows: Iterator[list[str]] = (line.rstrip("\r\n").split("\t") for line in lines)
    if comma:
        rows = csv.reader(lines, strict=True)
    blank = True
    try:
        names = [name.strip() for name in next(rows, [])]
        if field not in names:
            raise InputError(
                f"{path}: no column {field!r}; its first line has {', '.join(names[:12])[:120]};"
                " name the column of the texts with --field"
            )
        for number, cells in enumerate(rows, 2):
            if any(cells) and len(cells) != len(names):
                raise InputError(
                    f"{path}, row {number}: it has {len(cells)} columns, and the first row {len(names)}"
                )
            text = cells[names.index(field)] if any(cells) else ""
            if text.strip():
                blank = False
                yield Piece(text)
    except csv.Error as error:
        raise InputError(f"{path}: not a .csv file ({error})") from None
    if blank:
        raise InputError(f"{path} holds no text")


def _read_text(file: BinaryIO, path: Path) -> Iterator[Piece]:
    """A text file is one document, however long."""
    start = cast(io.BufferedReader, file).peek(8)
    for first, what in OTHER_FORMATS.items():
        if start.startswith(first):
            raise InputError(f"{path} is not plain text but {what}")
    waiting, blank = "", True
    for number, text in enumerate(text_pieces(file, path)):
        if "\0" in text:
            raise InputError(f"{path} is not text: it holds NUL bytes")
        if waiting:
            yield Piece(waiting, last=False)
        waiting = text.removeprefix("\ufeff") if number == 0 else text
        blank = blank and not waiting.strip()
    if blank:
        raise InputError(f"{path} holds no text")
    yield Piece(waiting)


def _read_lines(file: BinaryIO, path: Path, field: str) -> Iterator[Piece]:
    """Every line is a document: JSON with a text (`"whole": false`: it was cut), prompt and completion, or
    `pieces`, of which some are only read: the turns of a conversation.
    """
    number, blank = 0, True
    while line := file.readline(MAX_LINE):
        number += 1
        if len(line) == MAX_LINE:
            raise InputError(
                f"{path}, line {number}: longer than {MAX_LINE >> 20} MB; is this a file of JSON lines?"
            )
        if not line.strip():
            continue
        pieces = _read_line(line, f"{path}, line {number}", field)
        blank = blank and not pieces
        yield from pieces
    if blank:
        raise InputError(f"{path} holds no text")


def _read_line(line: bytes, where: str, field: str) -> list[Piece]:
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except (ValueError, RecursionError):
        raise InputError(f"{where}: not a JSON object: {_start(line)}") from None
    if not isinstance(value, dict):
        raise InputError(f"{where}: not a JSON object: {_start(line)}")
    if isinstance(value.get(field), str):
        return [Piece(value[field], cut=value.get("whole") is False)] if value[field] else []
    prompt, completion = value.get("prompt"), value.get("completion")
    if isinstance(prompt, str) and isinstance(completion, str):
        return [Piece(prompt, learn=False, last=False), Piece(completion)] if completion else []
    if isinstance(value.get("pieces"), list):
        return _pieces(value["pieces"], where)
    has = ", ".join(map(repr, list(value)[:8])) or "nothing"
    raise InputError(f"{where}: no text under {field!r}, nor a prompt with a completion; the line has {has}")


def _pieces(given: list[Any], where: str) -> list[Piece]:
    """Pieces of one document: `{"text": …, "learn": true or false}` each."""
    found = []
    for number, one in enumerate(given, 1):
        text = one.get("text") if isinstance(one, dict) else None
        if not isinstance(text, str) or not isinstance(one.get("learn"), bool):
            raise InputError(f"{where}: piece {number} needs a text, and learn: true or false")
        found.append(Piece(text, learn=one["learn"], last=number == len(given)))
    return found if any(piece.learn and piece.text for piece in found) else []


def _start(line: bytes) -> str:
    return repr(line[:40].decode("utf-8", "replace").strip())


@contextlib.contextmanager
def _unpacked(raw: "_Watched", path: Path) -> Iterator[BinaryIO]:
    file = cast(BinaryIO, io.BufferedReader(raw, 1 << 20))
    if path.suffix == ".gz":
        with gzip.GzipFile(fileobj=file) as packed:
            yield _bounded(packed, raw, path)
    elif path.suffix == ".zst":
        try:
            import zstandard
        except ImportError:
            raise InputError(
                f"{path}: reading zstd needs one more library: pip install 'glassformer[data]'"
            ) from None
        try:
            reader = _Frames(file, zstandard.ZstdDecompressor().decompressobj)
            yield _bounded(reader, raw, path)
        except (zstandard.ZstdError, EOFError) as error:
            raise InputError(f"{path} is damaged, or not packed by zstd: {error}") from None
    else:
        yield file


class _Watched(io.RawIOBase):
    """A file that reports the bytes that are read, and counts them."""

    def __init__(self, file: Any, watch: Callable[[bytes], object] | None) -> None:
        self.file, self.watch, self.done = file, watch, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.file.read(len(buffer))
        buffer[: len(data)] = data
        self.done += len(data)
        if data and self.watch is not None:
            self.watch(data)
        return len(data)


def _bounded(unpacked: Any, packed: _Watched, path: Path) -> BinaryIO:
    """What comes out of a packed file, as long as it is no bomb."""

    def check(_: bytes) -> None:
        if watched.done > max(RATIO_FROM, MAX_RATIO * packed.done):
            raise InputError(f"{path}: unpacks to more than {MAX_RATIO} times its size, which no text does")

    watched = _Watched(unpacked, check)
    return cast(BinaryIO, io.BufferedReader(watched, 1 << 20))


class _Frames:
    """The content of a zstd file, frame by frame.

    Each must be complete: the library's own reader accepts half a frame as a whole one.
    """

    def __init__(self, file: BinaryIO, begin: Callable[[], Any]) -> None:
        self.file, self.begin, self.ready = file, begin, b""
        self.frame: Any = None

    def read(self, size: int) -> bytes:
        while not self.ready:
            ended = self.frame is None or self.frame.eof
            data = (self.frame.unused_data if self.frame and ended else b"") or self.file.read(
                1 << 10
            )  # a bomb comes bit by bit
            if not data:
                if not ended:
                    raise EOFError("it ends before the end was marked")
                return b""
            if ended:
                self.frame = self.begin()
            self.ready = self.frame.decompress(data)
        part, self.ready = self.ready[:size], self.ready[size:]
        return part

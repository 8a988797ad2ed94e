"""`multipart/form-data`, read as it arrives: no file is kept in memory, and every part has a limit."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from glassformer.server.errors import ApiError

MOST_PARTS = 16
MOST_HEADERS = 8 * 1024  # bytes of the headers of one part
BOUNDARY = re.compile(
    r"""(?:^|;)\s*boundary=(?:"([\w'()+,./:=? -]{1,70})"|([\w'()+,./:=?-]{1,70}))\s*(?:;|$)""", re.ASCII
)
PARAMETER = re.compile(r';[ \t]*([a-z]+\*?)=(?:"((?:[^"\\]|\\.)*)"|([^;"\s]*))', re.IGNORECASE)


@dataclass(frozen=True)
class Part:
    """The beginning of a part: a field, or a file, which has a file name."""

    name: str
    filename: str | None


@dataclass
class Multipart:
    """Takes pieces of a body and gives the beginnings of parts, each followed by its data, piece by piece."""

    delimiter: bytes
    done: bool = False
    parts: int = 0
    _buffer: bytearray = field(default_factory=lambda: bytearray(b"\r\n"))  # before the first delimiter
    _state: str = "before"

    @classmethod
    def of(cls, content_type: str) -> "Multipart":
        """A reader for the boundary that the header Content-Type names."""
        kind, _, rest = content_type.partition(";")
        found = BOUNDARY.search(rest)
        if kind.strip().lower() != "multipart/form-data" or found is None:
            raise _broken("Content-Type must be multipart/form-data with a boundary")
        return cls(b"\r\n--" + (found[1] or found[2]).encode())

    def feed(self, data: bytes) -> Iterator[Part | bytes]:
        """What one more piece of the body holds."""
        self._buffer += data
        while not self.done:
            step = getattr(self, f"_{self._state}")()
            if step is None:  # more must come first
                return
            yield from step

    def _before(self) -> list[Part | bytes] | None:
        """Nothing may come before the first delimiter."""
        if len(self._buffer) < len(self.delimiter):
            return None
        if not self._buffer.startswith(self.delimiter):
            raise _broken("the body does not begin with its boundary")
        del self._buffer[: len(self.delimiter)]
        self._state = "between"
        return []

    def _between(self) -> list[Part | bytes] | None:
        """After a delimiter: the end, or a new part."""
        if len(self._buffer) < 2:
            return None
        mark = bytes(self._buffer[:2])
        if mark == b"--":
            self.done = True
            self._buffer.clear()
            return []
        if mark != b"\r\n":
            raise _broken("a boundary is not followed by a line end")
        self._state = "headers"
        return []

    def _headers(self) -> list[Part | bytes] | None:
        end = self._buffer.find(b"\r\n\r\n")
        if max(end, 0) > MOST_HEADERS or (end < 0 and len(self._buffer) > MOST_HEADERS):
            raise _broken(f"a part has more than {MOST_HEADERS:,} bytes of headers")
        if end < 0:
            return None
        self.parts += 1
        if self.parts > MOST_PARTS:
            raise _broken(f"the body has more than {MOST_PARTS} parts")
        part = _part(bytes(self._buffer[:end]))
        del self._buffer[: end + 4]
        self._state = "data"
        return [part]

    def _data(self) -> list[Part | bytes] | None:
        end = self._buffer.find(self.delimiter)
        if end < 0:
            # The last bytes may be the first of a delimiter.
            sure = len(self._buffer) - len(self.delimiter) + 1
            if sure <= 0:
                return None
            data = bytes(self._buffer[:sure])
            del self._buffer[:sure]
            return [data]
        data = bytes(self._buffer[:end])
        del self._buffer[: end + len(self.delimiter)]
        self._state = "between"
        return [data] if data else []


def _part(headers: bytes) -> Part:
    """The name of a part, and the file name, by its header Content-Disposition."""
    for line in headers.decode("utf-8", "replace").split("\r\n"):
        key, _, value = line.partition(":")
        if key.strip().lower() != "content-disposition":
            continue
        given = {found[1].lower(): _unquoted(found) for found in PARAMETER.finditer(value)}
        if value.strip().lower().startswith("form-data") and given.get("name"):
            return Part(given["name"], given.get("filename"))
    raise _broken("a part has no name")


def _unquoted(found: "re.Match[str]") -> str:
    return found[3] if found[2] is None else re.sub(r"\\(.)", r"\1", found[2])


def _broken(why: str) -> ApiError:
    return ApiError(400, f"the body cannot be read: {why}", code="invalid_multipart")

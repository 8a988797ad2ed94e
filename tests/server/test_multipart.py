"""Forms with a file, cut anywhere: the same parts, and nothing without a bound."""

import hypothesis
import pytest
from hypothesis import strategies

from glassformer.server.errors import ApiError
from glassformer.server.multipart import MOST_HEADERS, MOST_PARTS, Multipart, Part

TYPE = "multipart/form-data; boundary=cut"


def form(*parts: tuple[str, bytes], boundary: bytes = b"cut") -> bytes:
    """A body: each part is what follows `form-data; ` in its header, and its content."""
    found = b""
    for header, content in parts:
        found += b"--" + boundary + b"\r\nContent-Disposition: form-data; " + header.encode() + b"\r\n\r\n"
        found += content + b"\r\n"
    return found + b"--" + boundary + b"--\r\n"


def read(body: bytes, size: int = 1 << 16, kind: str = TYPE) -> list[tuple[Part, bytes]]:
    """The parts of a body that arrives in pieces of a size."""
    reader = Multipart.of(kind)
    parts: list[tuple[Part, bytes]] = []
    for start in range(0, len(body), size):
        for piece in reader.feed(body[start : start + size]):
            if isinstance(piece, Part):
                parts.append((piece, b""))
            else:
                parts[-1] = (parts[-1][0], parts[-1][1] + piece)
        assert len(reader._buffer) <= max(MOST_HEADERS, size) + len(reader.delimiter)
    assert reader.done, "the body has no end"
    return parts


TRICKY = b'\r\n--cu\r\n--cutt\r\r\n--\r\n\r\n\0"'


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1 << 16])
def test_the_same_parts_however_the_body_is_cut(size: int) -> None:
    """A content that looks nearly like a boundary is content."""
    body = form(('name="purpose"', b"fine-tune"), ('name="file"; filename="a.jsonl"', TRICKY[:6] + b"x"))
    assert read(body, size) == [
        (Part("purpose", None), b"fine-tune"),
        (Part("file", "a.jsonl"), TRICKY[:6] + b"x"),
    ]


@hypothesis.settings(max_examples=200, deadline=None, database=None)
@hypothesis.given(content=strategies.binary(max_size=300), size=strategies.integers(1, 60))
def test_any_content_survives(content: bytes, size: int) -> None:
    """Byte for byte, unless it holds the boundary."""
    hypothesis.assume(b"\r\n--cut" not in b"\r\n" + content + b"\r\n")
    assert read(form(('name="file"; filename="x"', content)), size)[0][1] == content


def test_names() -> None:
    """Quoted, plain, and with quotes inside."""
    names = ['name="a"; filename="b;c.jsonl"', 'filename="d"; name=e', r'name="f"; filename="a\"b"']
    found = [part for part, _ in read(form(*((name, b"") for name in names)))]
    assert found == [Part("a", "b;c.jsonl"), Part("e", "d"), Part("f", 'a"b')]


@pytest.mark.parametrize(("body", "why"), [
    (b"junk" + form(('name="a"', b"")), "does not begin"),
    (b"--cutting\r\n", "line end"),
    (b"--cut\r\nX: y\r\n\r\n", "no name"),
    (b"--cut\r\nContent-Disposition: attachment; name=a\r\n\r\n", "no name"),
    (b"--cut\r\nX: " + b"y" * 2 * MOST_HEADERS, "headers"),
    (b"--cut\r\nX: " + b"y" * 2 * MOST_HEADERS + b"\r\n\r\n", "headers"),
    (form(*[('name="a"', b"")] * (MOST_PARTS + 1)), "parts"),
])  # fmt: skip
def test_what_is_no_form(body: bytes, why: str) -> None:
    """One sentence, at once."""
    with pytest.raises(ApiError, match=why):
        read(body, 1000)


@pytest.mark.parametrize(
    "kind",
    ["multipart/form-data", "multipart/mixed; boundary=a", f"multipart/form-data; boundary={'a' * 71}"],
)
def test_what_has_no_boundary(kind: str) -> None:
    """Missing, of another type, or too long to be one."""
    with pytest.raises(ApiError, match="boundary"):
        Multipart.of(kind)
    assert Multipart.of('multipart/form-data; charset=utf-8; boundary="a b"').delimiter == b"\r\n--a b"

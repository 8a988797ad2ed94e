"""Files become documents: every kind and packing, as a stream; what is broken is named in one sentence."""

import gzip
import json
import random
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard

from glassformer.data.sources import (
    KINDS,
    MAX_RATIO,
    PACKINGS,
    RATIO_FROM,
    Piece,
    find_files,
    read_corpus,
    read_pieces,
    read_texts,
)
from glassformer.errors import InputError
from glassformer.tokenizers import train, train_tokenizer
from glassformer.tokenizers.midi import write_midi
from glassformer.tokenizers.score import Note, Score

TEXT = "Fünf Ähren,\r\n  two spaces\tand a tab – 日本語 👍🏽\n\n'tis <|endoftext|> no end\n"
SHORT = "Ähren, Ähren und Ähren\n"
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".zst": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
}


def put(path: Path, content: str | bytes) -> Path:
    """A file, compressed as its name requires."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(PACK[path.suffix if path.suffix in PACK else ""](data))
    return path


def replace(path: Path, content: bytes | bytearray) -> None:
    """Another file of the same name: a disk waits for one that is written over."""
    path.unlink()
    path.write_bytes(content)


def lines(*values: object) -> str:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)


def error_of(path: Path, **how: str) -> str:
    """The one sentence with which a file is refused; it names the file."""
    with pytest.raises(InputError) as caught:
        list(read_pieces(path, **how))  # type: ignore[arg-type]
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return message.replace(str(path), "FILE")


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_in_every_packing(kind: str, packing: str, tmp_path: Path) -> None:
    """A text file is one document, to the character; of a file of JSON lines, every line is one."""
    content = lines({"text": TEXT}, {"text": "two"}) if kind == ".jsonl" else TEXT
    path = put(tmp_path / f"a{kind}{packing}", content)
    assert list(read_texts(path)) == ([TEXT, "two"] if kind == ".jsonl" else [TEXT])
    pieces = list(read_pieces(path))
    assert all(piece.learn for piece in pieces)
    assert sum(piece.last for piece in pieces) == (2 if kind == ".jsonl" else 1)


def test_any_other_name_is_text(tmp_path: Path) -> None:
    """A file that is named by itself is read as text, whatever its name."""
    assert list(read_texts(put(tmp_path / "jsonl", lines({"text": "a"})))) == ['{"text": "a"}\n']
    assert list(read_texts(put(tmp_path / "README", TEXT))) == [TEXT]


@pytest.mark.parametrize("packing", [".gz", ".zst"])
def test_several_packed_parts_are_one_file(packing: str, tmp_path: Path) -> None:
    """As `cat a.gz b.gz` makes them, an empty part among them."""
    path = tmp_path / f"a.txt{packing}"
    path.write_bytes(b"".join(PACK[packing](part.encode()) for part in ("one ", "", "two ", "three")))
    assert list(read_texts(path)) == ["one two three"]


def test_a_folder(tmp_path: Path) -> None:
    """All its texts in the order of their names, nested ones too; hidden files, hidden folders and other
    kinds are not read.
    """
    names = ["a/z.txt", "a.md.zst", "b.jsonl.gz", "c.txt", "a/b/deep.md"]
    for name in names:
        put(tmp_path / name, lines({"text": name}) if "jsonl" in name else name)
    for name in (".hidden.txt", ".git/x.txt", "a/.b/x.txt", "x.csv", "txt", "x.txt.bak", "x.txt.bz2"):
        put(tmp_path / name, "no")
    (tmp_path / "folder.txt").mkdir()
    right = ["a/b/deep.md", "a/z.txt", "a.md.zst", "b.jsonl.gz", "c.txt"]
    assert [str(file.relative_to(tmp_path)) for file in find_files(tmp_path)] == right
    assert list(read_texts(tmp_path)) == right


def test_a_folder_inside_a_hidden_one(tmp_path: Path) -> None:
    """Hidden is what is hidden below the folder that was asked for."""
    file = put(tmp_path / ".cache" / "texts" / "a.txt", "a")
    assert find_files(file.parent) == [file]
    with pytest.raises(InputError, match=r"the folder holds no text \(\.txt, \.md, \.jsonl"):
        find_files(tmp_path)


def test_nothing_there(tmp_path: Path) -> None:
    """A name of nothing, and a folder of nothing."""
    with pytest.raises(InputError, match=r"nowhere\.txt: there is no such file or folder of text"):
        find_files(tmp_path / "nowhere.txt")
    with pytest.raises(InputError, match="the folder holds no text"):
        list(read_texts(tmp_path))
    assert error_of(tmp_path / "nowhere.txt") == "FILE cannot be read: No such file or directory"
    assert error_of(tmp_path) == "FILE cannot be read: Is a directory"


@pytest.mark.parametrize("packing", PACKINGS)
def test_the_mark_before_a_text(packing: str, tmp_path: Path) -> None:
    """A byte order mark at the beginning goes, one only; elsewhere it is a character like any other."""
    assert list(read_texts(put(tmp_path / f"a.txt{packing}", "\ufeffa \ufeffb"))) == ["a \ufeffb"]
    assert list(read_texts(put(tmp_path / f"b.txt{packing}", "\ufeff\ufeffa"))) == ["\ufeffa"]
    assert list(read_texts(put(tmp_path / f"c.jsonl{packing}", "\ufeff" + lines({"text": "\ufeffc"})))) == [
        "\ufeffc"
    ]
    assert error_of(put(tmp_path / "d.txt", "\ufeff")) == "FILE holds no text"


def test_line_ends(tmp_path: Path) -> None:
    """A text keeps its own; lines of JSON may end in any way, and the last need not end at all."""
    text = "a\r\nb\rc\nd\r\n"
    assert list(read_texts(put(tmp_path / "a.txt", text))) == [text]
    assert list(read_texts(put(tmp_path / "a.jsonl", '{"text": "a\\r\\n"}\r\n{"text": "b"}'))) == [
        "a\r\n",
        "b",
    ]


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_text_longer_than_a_chunk(packing: str, tmp_path: Path) -> None:
    """Comes in pieces, which together are the text and have the ids that the whole text has."""
    words = [
        "Drei",
        "Chinesen\nmit",
        "dem",
        "",
        "Kontrabaß",
        "日本語",
        "I'll",
        "12",
        "\r\n",
        "saßen",
        "👍🏽",
        "Straßen",
        "...",
    ]
    text = "\ufeff" + " ".join(random.Random(1).choices(words, k=220_000))
    assert len(text.encode()) > 1.3 * train.CHUNK
    pieces = list(read_pieces(put(tmp_path / f"a.txt{packing}", text)))
    assert "".join(piece.text for piece in pieces) == text[1:]
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert all(piece.learn for piece in pieces)
    assert 2 <= len(pieces) <= 3
    near = [(before.text[-100:], after.text[:100]) for before, after in pairwise(pieces)]
    tokenizer = train_tokenizer([text[:5000]], 400)
    for before, after in near:
        assert tokenizer.encode(before) + tokenizer.encode(after) == tokenizer.encode(before + after)


def test_pieces_have_the_ids_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever chunks of a few bytes may end, inside a character or a run of blanks too."""
    text = (TEXT + " \n \n  a  b\n\n\nc'll \t d") * 3
    tokenizer, path = train_tokenizer([text], 330), put(tmp_path / "a.txt", text)
    right, counts = tokenizer.encode(text), set()
    for size in range(1, 60):
        monkeypatch.setattr(train, "CHUNK", size)
        pieces = list(read_pieces(path))
        assert [id for piece in pieces for id in tokenizer.encode(piece.text)] == right
        assert list(read_texts(path)) == [text]
        counts.add(len(pieces))
    assert max(counts) > 30


def test_prompts(tmp_path: Path) -> None:
    """A prompt is read and not learned; with its completion it is one document. A text goes before both."""
    given = [
        {"prompt": "Q", "completion": "A"},
        {"prompt": "", "completion": "B"},
        {"text": "T", "prompt": "Q", "completion": "A"},
    ]
    path = put(tmp_path / "a.jsonl", lines(*given))
    right = [
        Piece("Q", learn=False, last=False),
        Piece("A"),
        Piece("", learn=False, last=False),
        Piece("B"),
        Piece("T"),
    ]
    assert list(read_pieces(path)) == right
    assert list(read_texts(path)) == ["QA", "B", "T"]


def test_pieces_of_a_line(tmp_path: Path) -> None:
    """One document, of which some is learned and some only read; a line that teaches nothing is passed over."""
    turns = [{"text": "Q", "learn": False}, {"text": "A", "learn": True}, {"text": "R", "learn": False}]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"pieces": one}) + "\n" for one in (turns, turns[:1], [], turns[1:2])))
    assert list(read_pieces(path)) == [
        Piece("Q", learn=False, last=False),
        Piece("A", learn=True, last=False),
        Piece("R", learn=False, last=True),
        Piece("A"),
    ]
    for wrong in ([1], [{"text": "a"}], [{"text": 1, "learn": True}], [{"text": "a", "learn": 1}]):
        path.write_text(json.dumps({"pieces": wrong}))
        with pytest.raises(InputError, match="line 1: piece 1 needs a text, and learn: true or false"):
            list(read_pieces(path))


def test_cut_texts(tmp_path: Path) -> None:
    """Only a plain `false` means that a text was cut."""
    path = put(
        tmp_path / "a.jsonl",
        lines(*({"text": "T", "whole": whole} for whole in (False, True, None, 0, "no"))),
    )
    assert [piece.cut for piece in read_pieces(path)] == [True, False, False, False, False]


def test_a_field_of_another_name(tmp_path: Path) -> None:
    """Is read instead, and asked for by its name."""
    path = put(tmp_path / "a.jsonl", lines({"text": "no", "story": "yes"}))
    assert list(read_texts(path, field="story")) == ["yes"]
    assert list(read_texts(path)) == ["no"]
    assert "no text under 'tale', nor a prompt" in error_of(path, field="tale")


def test_lines_without_text_are_passed_over(tmp_path: Path) -> None:
    """Blank ones, and empty documents; the numbers of the others stay those of the file."""
    path = put(
        tmp_path / "a.jsonl", '\n  \r\n{"text": ""}\n{"prompt": "Q", "completion": ""}\n{"text": "a"}\n\n'
    )
    assert list(read_pieces(path)) == [Piece("a")]
    with path.open("a") as file:
        file.write("oops\n")
    assert error_of(path) == "FILE, line 7: not a JSON object: 'oops'"


def test_good_lines_come_before_a_bad_one(tmp_path: Path) -> None:
    """Nothing is read ahead: lines are handed out as they come."""
    pieces = read_pieces(put(tmp_path / "a.jsonl", '{"text": "a"}\noops\n'))
    assert next(pieces) == Piece("a")
    with pytest.raises(InputError, match="line 2"):
        next(pieces)


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", b""),
        ("a.txt", b" \r\n\t \xc2\xa0\n"),
        ("a.jsonl", b""),
        ("a.jsonl", b"\n \r\n\n"),
        ("a.jsonl", b'{"text": ""}\n'),
        ("a.jsonl", b'\n{"text": ""}\n\n{"prompt": "Q", "completion": ""}\n'),
    ],
)
def test_no_text(name: str, content: bytes, packing: str, tmp_path: Path) -> None:
    """An empty file, blanks only, or lines that are all empty."""
    assert error_of(put(tmp_path / (name + packing), content)) == "FILE holds no text"


LATIN = "; if it is Latin-1 or Windows text, convert it, as with `iconv -f WINDOWS-1252 -t UTF-8 FILE`"


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"text\0more", "FILE is not text: it holds NUL bytes"),
        (
            "a.txt",
            "Straße".encode("latin-1"),
            "FILE is not UTF-8 text: invalid continuation byte at byte 4" + LATIN,
        ),
        ("a.txt", "Straße".encode()[:5], "FILE is not UTF-8 text: unexpected end of data at byte 4" + LATIN),
        ("a.txt", b"\x89PNG\r\n", "FILE is not plain text but a picture, which has no text to learn from"),
        ("a.txt", b"\x80\r\n", "FILE is not UTF-8 text: invalid start byte at byte 0" + LATIN),
        (
            "a.txt",
            "a b".encode("utf-16"),
            "FILE is not plain text but UTF-16 text; convert it, as with `iconv -f UTF-16 -t UTF-8 FILE`",
        ),
        (
            "a.txt",
            b"PK\x03\x04",
            "FILE is not plain text but a zip archive, as .docx and .epub are; unpack it, or save it as plain text",
        ),
        (
            "a.jsonl",
            b'{"text": "a"}\n{"text": "\xdf"}\n',
            "FILE, line 2: not UTF-8 text (invalid continuation byte at byte 10)",
        ),
        ("a.jsonl", b'{"text": "a"}\n\n{"text": \n', "FILE, line 3: not a JSON object: '{\"text\":'"),
        ("a.jsonl", b'["text"]\n', "FILE, line 1: not a JSON object: '[\"text\"]'"),
        ("a.jsonl", b"null\n", "FILE, line 1: not a JSON object: 'null'"),
        ("a.jsonl", b'"' + b"x" * 99 + b'"', "FILE, line 1: not a JSON object: '\"" + "x" * 39 + "'"),
        ("a.jsonl", b"[" * 100_000, "FILE, line 1: not a JSON object: '" + "[" * 40 + "'"),
        ("a.jsonl", b"1" * 5000, "FILE, line 1: not a JSON object: '" + "1" * 40 + "'"),
        (
            "a.jsonl",
            b'{"text": "a"}\n{"title": "b", "body": "c", "text": 5}\n',
            "FILE, line 2: no text under 'text', nor a prompt with a completion; the line has 'title', 'body', 'text'",
        ),
        (
            "a.jsonl",
            b"{}",
            "FILE, line 1: no text under 'text', nor a prompt with a completion; the line has nothing",
        ),
        (
            "a.jsonl",
            b'{"prompt": "Q"}',
            "FILE, line 1: no text under 'text', nor a prompt with a completion; the line has 'prompt'",
        ),
    ],
)
def test_what_is_no_text_is_refused(
    name: str, content: bytes, message: str, packing: str, tmp_path: Path
) -> None:
    """In one sentence that names the line or the byte."""
    assert error_of(put(tmp_path / (name + packing), content)) == message


def test_the_byte_is_that_of_the_file(tmp_path: Path) -> None:
    """Far behind the first chunk too."""
    path = put(tmp_path / "a.txt", b"word " * 300_000 + b"\xff")
    assert error_of(path) == "FILE is not UTF-8 text: invalid start byte at byte 1500000" + LATIN
    late = put(tmp_path / "b.txt", b"word " * 300_000 + b"\0")
    assert error_of(late) == "FILE is not text: it holds NUL bytes"


def test_a_line_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line longer than memory is refused, not read."""
    monkeypatch.setattr("glassformer.data.sources.MAX_LINE", 1 << 20)
    fits = lines({"text": "x" * ((1 << 20) - 20)})
    assert len(next(read_texts(put(tmp_path / "a.jsonl", fits)))) == (1 << 20) - 20
    path = put(tmp_path / "b.jsonl", lines({"text": "a"}) + lines({"text": "x" * (1 << 20)}))
    assert error_of(path) == "FILE, line 2: longer than 1 MB; is this a file of JSON lines?"


@pytest.mark.parametrize("packing", [".gz", ".zst"])
@pytest.mark.parametrize("kind", [".txt", ".jsonl"])
def test_a_packed_file_that_is_cut_off(kind: str, packing: str, tmp_path: Path) -> None:
    """Wherever it ends, that is noticed: half a text does not pass for a whole one."""
    content = lines({"text": TEXT}, {"text": "two"}) if kind == ".jsonl" else TEXT
    path = put(tmp_path / f"a{kind}{packing}", content)
    whole = path.read_bytes()
    for size in range(1, len(whole)):
        replace(path, whole[:size])
        assert error_of(path).startswith(
            f"FILE is damaged, or not packed by {'gzip' if packing == '.gz' else 'zstd'}: "
        ), size


@pytest.mark.parametrize("packing", [".gz", ".zst"])
def test_a_packed_file_with_a_wrong_bit(packing: str, tmp_path: Path) -> None:
    """Any bit: it is noticed, or it was one of the few that do not touch the text."""
    path = put(tmp_path / f"a.txt{packing}", SHORT)
    whole, harmless = path.read_bytes(), 0
    for bit in range(8 * len(whole)):
        harmed = bytearray(whole)
        harmed[bit // 8] ^= 1 << bit % 8
        replace(path, harmed)
        try:
            assert list(read_texts(path)) == [SHORT]
            harmless += 1
        except InputError as error:
            assert str(path) in str(error)  # noqa: PT017
    assert harmless <= 80  # the time, the system and the like in the header of gzip


@pytest.mark.parametrize(
    ("name", "by"),
    [("a.txt.gz", "gzip"), ("a.jsonl.gz", "gzip"), ("a.txt.zst", "zstd"), ("a.md.zst", "zstd")],
)
def test_not_packed_at_all(name: str, by: str, tmp_path: Path) -> None:
    """A name that promises a packing which the file does not have."""
    path = tmp_path / name
    path.write_text(TEXT)
    assert error_of(path).startswith(f"FILE is damaged, or not packed by {by}: ")


@pytest.mark.parametrize("packing", [".gz", ".zst"])
@pytest.mark.parametrize(("name", "limit"), [("a.txt", 1 << 22), ("a.jsonl", RATIO_FROM)])
def test_a_bomb(name: str, limit: int, packing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred megabytes of blanks in a few kilobytes are given up before they fill the memory."""
    monkeypatch.setattr("glassformer.data.sources.RATIO_FROM", limit)
    path = tmp_path / (name + packing)
    path.write_bytes(PACK[packing](b" " * (1 << 20)) * 200)
    assert path.stat().st_size < 1 << 18
    assert error_of(path) == f"FILE: unpacks to more than {MAX_RATIO} times its size, which no text does"


@pytest.mark.parametrize("packing", [".gz", ".zst"])
def test_text_that_packs_well_is_no_bomb(
    packing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small files may pack as well as they like, large ones as well as text does."""
    path = put(tmp_path / f"a.txt{packing}", "all work and no play " * 50_000)
    assert 300 * path.stat().st_size < 1_050_000 < RATIO_FROM
    assert sum(len(text) for text in read_texts(path)) == 1_050_000
    monkeypatch.setattr("glassformer.data.sources.RATIO_FROM", 1000)
    assert "100 times" in error_of(path)
    plain = "".join(random.Random(0).choices("abcdefghij ", k=50_000))
    assert list(read_texts(put(tmp_path / f"b.txt{packing}", plain))) == [plain]


def test_without_the_library_for_zstd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest works, and the error names what to install."""
    path, other = put(tmp_path / "a.txt.zst", TEXT), put(tmp_path / "a.txt.gz", TEXT)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert error_of(path) == "FILE: reading zstd needs one more library: pip install 'glassformer[data]'"
    assert list(read_texts(other)) == [TEXT]


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("kind", [".txt", ".jsonl"])
def test_watch_gets_the_bytes_of_the_file(kind: str, packing: str, tmp_path: Path) -> None:
    """The raw bytes, packed as they are, every one once and in order."""
    text = random.Random(0).randbytes(750_000).hex()
    path = put(tmp_path / f"a{kind}{packing}", lines({"text": text}) if kind == ".jsonl" else text)
    seen: list[bytes] = []
    read = "".join(piece.text for piece in read_pieces(path, watch=seen.append))
    assert read == text
    assert b"".join(seen) == path.read_bytes()
    assert max(map(len, seen)) <= 1 << 20


def test_a_corpus_is_texts_and_files(tmp_path: Path) -> None:
    """A text is itself; a path is a file or a folder of them, read when its turn comes."""
    put(tmp_path / "folder" / "b.jsonl", lines({"text": "two"}, {"text": "three"}))
    put(tmp_path / "folder" / "a.txt.gz", "one")
    found = read_corpus(["nothing.txt", tmp_path / "folder", tmp_path / "nowhere"])
    assert [next(found) for _ in range(4)] == ["nothing.txt", "one", "two", "three"]
    with pytest.raises(InputError, match="nowhere: there is no such file"):
        next(found)


def test_the_last_word_of_a_file_stays_in_its_document(tmp_path: Path) -> None:
    """A file is streamed in pieces that end between words; the end of one is no document of its own."""
    text = "Lily had a big red ball. The dog ra"
    put(tmp_path / "a.txt", text)
    put(tmp_path / "b.jsonl", lines({"prompt": "two and ", "completion": "three"}))
    assert list(read_corpus([tmp_path])) == [text, "two and three"]


def test_music_is_read_as_words(tmp_path: Path) -> None:
    """A MIDI file is one document; a folder is of music if it holds more music than text."""
    events = "SET_VELOCITY<80> NOTE_ON<60> TIME_SHIFT<500> NOTE_OFF<60>"
    content = write_midi(Score.of([Note(0, 0.5, 60)]))
    for name in ("a.mid", "deep/b.MIDI"):
        put(tmp_path / name, content)
    put(tmp_path / "readme.txt", "about it")
    seen: list[bytes] = []
    assert list(read_pieces(tmp_path / "a.mid", watch=seen.append)) == [Piece(events)]
    assert seen == [content]
    assert [file.name for file in find_files(tmp_path)] == ["a.mid", "b.MIDI"]
    assert list(read_texts(tmp_path)) == [events, events]
    for name in ("more.txt", "still more.txt"):
        put(tmp_path / name, "a text")
    assert {file.suffix for file in find_files(tmp_path)} == {".txt"}
    put(tmp_path / "a.mid", content[:-4])
    with pytest.raises(InputError, match=r"a\.mid: is a damaged MIDI file"):
        list(read_pieces(tmp_path / "a.mid"))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz"])
def test_a_column_of_a_table(tmp_path: Path, name: str) -> None:
    """Each text is a document, without the other columns; quotes and line ends are those of .csv."""
    tab = name == "a.tsv"
    rows = ["id,review,stars", "1,Good film.,5", "", "2,,3", "3,Bad.,1"]
    content = "\n".join(row.replace(",", "\t") if tab else row for row in rows) + "\n"
    wanted = ["Good film.", "Bad."]
    if not tab:
        content, wanted = content + '4,"Two lines,\nquoted",2\n', [*wanted, "Two lines,\nquoted"]
    path = put(tmp_path / name, content)
    assert list(read_texts(path, field="review")) == wanted
    assert "no column 'text'; its first line has id, review, stars; name the column" in error_of(path)
    assert "row 2: it has 2 columns, and the first row 3" in error_of(
        put(tmp_path / f"b{name}", content.split("\n")[0] + ("\n1\tx" if tab else "\n1,x")), field="review"
    )


def test_a_table_without_text_is_refused(tmp_path: Path) -> None:
    """No rows, and quotes that do not end."""
    assert "holds no text" in error_of(put(tmp_path / "a.csv", "text\n"))
    assert "not a .csv file" in error_of(put(tmp_path / "b.csv", 'text\n"x'))

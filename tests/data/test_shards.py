"""Tokens on disk: nothing is lost, done once, known by hash; whatever happens to the files is noticed and
made good.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer import durable
from glassformer.data import shards
from glassformer.data.shards import Corpus, Row, open_corpus, prepare
from glassformer.errors import InputError
from glassformer.tokenizers import ByteBPE, Tokenizer, train_tokenizer

END = "<|endoftext|>"
BYTES = train_tokenizer(["abc"], 257)
WORDS = train_tokenizer(["the cat sat on the mat, the end " * 9], 280)


class Spy:
    """Counts the texts that are tokenized; may stop the work at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.fail_at, encode = 0, -1, ByteBPE.encode

        def counted(tokenizer: ByteBPE, text: str, **how: bool) -> list[int]:
            self.count += 1
            if self.count == self.fail_at:
                raise KeyboardInterrupt
            return encode(tokenizer, text, **how)

        monkeypatch.setattr(ByteBPE, "encode", counted)

    def since(self) -> int:
        """How many since it was asked last."""
        count, self.count = self.count, 0
        return count


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return Spy(monkeypatch)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without waiting for the disk, where that is not the question."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def put(path: Path, *documents: object) -> Path:
    """A file of JSON lines; a document is a text or a prompt with its completion."""
    values = [document if isinstance(document, dict) else {"text": document} for document in documents]
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def prompts(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"prompt": prompt, "completion": completion} for prompt, completion in pairs]


def ids_of(row: Row | None) -> list[int]:
    assert row is not None
    return row.read(0, len(row))[0].tolist()  # type: ignore[no-any-return]


def text_of(row: Row | None, tokenizer: Tokenizer = WORDS) -> str:
    return tokenizer.decode(ids_of(row))


def joined(documents: Iterable[str]) -> str:
    return END + "".join(document + END for document in documents)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def rows_of(corpus: Corpus) -> list[list[int]]:
    return [ids_of(row) for row in (corpus.train, corpus.held_out) if row is not None]


def test_nothing_is_lost(tmp_path: Path) -> None:
    """The rows, as text again, are the documents with an end between them; an end that a text only writes
    about is none.
    """
    documents = ["the cat", f"not the {END}!", " ", "日本語\r\n", *(f"the mat {i}" for i in range(16))]
    corpus = prepare(put(tmp_path / "a.jsonl", *documents), WORDS, held_out=0.1)
    held = [documents[9], documents[19]]
    assert text_of(corpus.held_out) == joined(held)
    assert text_of(corpus.train) == joined(text for text in documents if text not in held)
    assert ids_of(corpus.train).count(WORDS.end or 0) == 19
    assert corpus.train.read(0, 5)[1] is None
    assert corpus.train.read(0, 5)[0].dtype == np.int64


@pytest.mark.parametrize(
    ("share", "documents"), [(0.05, 100), (0.1, 57), (0.25, 8), (1 / 3, 9), (0.5, 7), (0.9, 30), (0.01, 250)]
)
@pytest.mark.usefixtures("quick")
def test_the_share_that_is_held_out(share: float, documents: int, tmp_path: Path) -> None:
    """Every n-th document, spread evenly, the first never; no more than the share, and no less by a whole
    document.
    """
    texts = [f"<{i}>" for i in range(documents)]
    corpus = prepare(put(tmp_path / "a.jsonl", *texts), WORDS, held_out=share)
    assert corpus.held_out is not None
    held = [int(part.strip("<>")) for part in text_of(corpus.held_out).split(END)[1:-1]]
    assert len(held) == int(documents * share)
    assert 0 not in held
    steps = np.diff([-1, *held])
    assert set(steps) <= {int(1 / share), int(1 / share) + 1} if share <= 0.5 else steps.max() <= 2
    train = text_of(corpus.train).split(END)[1:-1]
    assert [f"<{i}>" for i in range(documents) if i not in held] == train
    assert corpus.notes["documents"] == documents


def test_nothing_is_held_out(tmp_path: Path) -> None:
    """If that is asked for."""
    corpus = prepare(put(tmp_path / "a.jsonl", "a", "b"), WORDS, held_out=0)
    assert (text_of(corpus.train), corpus.held_out) == (joined("ab"), None)


@pytest.mark.parametrize("length", [1, 2, 9, 10, 11, 1003, 1115])
@pytest.mark.parametrize("share", [0.1, 0.05])
@pytest.mark.usefixtures("quick")
def test_of_one_text_the_end_is_held_out(length: int, share: float, tmp_path: Path) -> None:
    """Cut at the usual place: text[: int(n * 0.9)], one token to a byte."""
    text = "".join(random.Random(length).choices("abc \n", k=length - 1)) + "."
    path = tmp_path / "a.txt"
    path.write_text(text)
    corpus = prepare(path, BYTES, held_out=share)
    cut = int(length * (1 - share))
    assert text_of(corpus.train, BYTES) == END + text[:cut]
    assert text_of(corpus.held_out, BYTES) == text[cut:] + END
    assert len(corpus.train) == 1 + cut


def test_of_few_documents_the_end_is_held_out(tmp_path: Path) -> None:
    """Too few for the share: the end of the row, and still nothing is lost."""
    corpus = prepare(put(tmp_path / "a.jsonl", "a" * 50, "b" * 50), BYTES)
    assert text_of(corpus.train, BYTES) == END + "a" * 50 + END + "b" * 44
    assert text_of(corpus.held_out, BYTES) == "b" * 6 + END


@pytest.mark.usefixtures("quick")
def test_a_folder_is_one_row(tmp_path: Path) -> None:
    """File after file, in the order of the names; a text file is one document."""
    (tmp_path / "texts" / "b").mkdir(parents=True)
    (tmp_path / "texts" / "a.txt").write_text("the cat\n\nsat on")
    put(tmp_path / "texts" / "b" / "c.jsonl", "one", "two")
    (tmp_path / "texts" / "d.md").write_text("the mat")
    corpus = prepare(tmp_path / "texts", WORDS, held_out=0.25)
    assert text_of(corpus.train) == joined(["the cat\n\nsat on", "one", "two"])
    assert text_of(corpus.held_out) == joined(["the mat"])


@pytest.mark.usefixtures("quick")
def test_a_text_in_pieces_is_one_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However a text is read, its tokens are those of the whole, and all its pieces go to the same row."""
    text = "the cat  sat\n\n on the mat 'll end " * 20
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / name).write_text(text)
    whole = prepare(tmp_path, WORDS, held_out=0.5)
    monkeypatch.setattr("glassformer.tokenizers.train.CHUNK", 50)
    os.utime(tmp_path / "a.txt", (1, 1))
    pieces = prepare(tmp_path, WORDS, held_out=0.5)
    assert pieces.train.folder != whole.train.folder
    assert rows_of(pieces) == rows_of(whole)
    assert ids_of(pieces.held_out) == [WORDS.end, *WORDS.encode(text), WORDS.end]


def test_what_is_known_of_it(tmp_path: Path) -> None:
    """Documents, tokens and bytes are counted, the source is known by its hash."""
    path = put(tmp_path / "a.jsonl", "äh", "b", "cd", *prompts(("e", "f")))
    notes = prepare(path, BYTES, held_out=0.5).notes
    assert notes["documents"] == 4
    assert notes["tokens"] == {"train": 1 + 4 + 3, "held_out": 1 + 2 + 3}
    assert notes["text_bytes"] == {"train": 5, "held_out": 3}
    assert notes["sha256"] == [shards.hash_file(path)]
    assert notes["source"] == str(path)


def test_prompts_are_masked(tmp_path: Path) -> None:
    """What is only to be read is masked, token by token; ends and completions are to be learned."""
    path = put(tmp_path / "a.jsonl", *prompts(("QQ", "A"), ("", "B")), "text", *prompts(("Q", "CC")))
    corpus = prepare(path, BYTES, held_out=0.5)
    train, held_out = corpus.train, corpus.held_out
    assert held_out is not None
    ids, mask = train.read(0, len(train))
    assert BYTES.decode(ids.tolist()) == joined(["QQA", "text"])
    assert mask is not None
    assert mask.tolist() == [True, False, False] + [True] * 7
    ids, mask = held_out.read(0, len(held_out))
    assert BYTES.decode(ids.tolist()) == joined(["B", "QCC"])
    assert mask is not None
    assert mask.tolist() == [True, True, True, False, True, True, True]


def test_the_end_of_a_cut_text_is_masked(tmp_path: Path) -> None:
    """Documents are separated as usual, but the cut is not learned as the end of a text."""
    path = put(tmp_path / "a.jsonl", {"text": "ab", "whole": False}, {"text": "c", "whole": True}, "d")
    ids, mask = prepare(path, BYTES, held_out=0.0).train.read(0, 8)
    assert BYTES.decode(ids.tolist()) == joined(["ab", "c", "d"])
    assert mask is not None
    assert mask.tolist() == [True, True, True, False, True, True, True, True]


def test_a_mask_only_where_there_is_one(tmp_path: Path) -> None:
    """A row without prompts has no file for it."""
    corpus = prepare(put(tmp_path / "a.jsonl", *prompts(("Q", "A")), "b"), BYTES, held_out=0.5)
    names = {path.name for path in corpus.train.folder.iterdir()}
    assert names == {"index.json", "train-00000.tokens", "train-00000.mask", "held_out-00000.tokens"}


def test_done_once(tmp_path: Path, spy: Spy) -> None:
    """The second time nothing is tokenized and nothing written; progress is reported for the work alone."""
    path = tmp_path / "texts"
    path.mkdir()
    one, two = (
        put(path / f"{name}.jsonl", *(f"the cat {i}" for i in range(15))).stat().st_size for name in "ab"
    )
    reported: list[tuple[int, int]] = []
    first = prepare(path, WORDS, progress=lambda done, total: reported.append((done, total)))
    assert reported == [(one, one + two), (one + two, one + two)]
    assert spy.since() == 30
    before = {file: file.stat().st_mtime_ns for file in first.train.folder.iterdir()}
    second = prepare(path, WORDS, progress=lambda done, total: reported.append((0, 0)))
    assert spy.since() == 0
    assert (0, 0) not in reported
    assert {file: file.stat().st_mtime_ns for file in first.train.folder.iterdir()} == before
    assert rows_of(second) == rows_of(first)
    assert second.notes == first.notes == open_corpus(first.train.folder).notes
    assert second.digest == first.digest


@pytest.mark.usefixtures("quick")
def test_done_again_if_anything_is_different(tmp_path: Path, spy: Spy) -> None:
    """Another size, another time, another vocabulary, share or field: each is work of its own, and what was
    done stays.
    """
    path = put(tmp_path / "a.jsonl", *({"text": f"the cat {i}", "other": f"sat {i}"} for i in range(9)))
    digests = [prepare(path, WORDS).digest]
    for how in ({"held_out": 0.2}, {"field": "other"}):
        digests.append(prepare(path, WORDS, **how).digest)  # type: ignore[arg-type]
        assert spy.since() > 0
    for text in ("the cat sat", "a tin man"):  # of one size
        digests.append(prepare(path, train_tokenizer([text], 260)).digest)
        assert spy.since() > 0
    prepare(path, WORDS)
    assert spy.since() == 0
    time = path.stat().st_mtime_ns
    os.utime(path, ns=(time, time + 1))
    assert prepare(path, WORDS).digest == digests[0]  # the same tokens in the end
    assert spy.since() == 9
    path.write_text(path.read_text() + '{"text": "more"}\n')
    os.utime(path, ns=(time, time))
    digests.append(prepare(path, WORDS).digest)
    assert spy.since() == 10
    assert len(set(digests)) == len(digests)


@pytest.mark.usefixtures("quick")
def test_another_file_in_the_folder(tmp_path: Path, spy: Spy) -> None:
    """Counts; a file that is not read does not."""
    (tmp_path / "texts").mkdir()
    put(tmp_path / "texts" / "a.jsonl", "a")
    prepare(tmp_path / "texts", WORDS)
    (tmp_path / "texts" / "notes.csv").write_text("b")
    spy.since()
    prepare(tmp_path / "texts", WORDS)
    assert spy.since() == 0
    put(tmp_path / "texts" / "b.jsonl", "b")
    assert text_of(prepare(tmp_path / "texts", WORDS, held_out=0).train) == joined("ab")


@pytest.mark.usefixtures("quick")
def test_damage_is_detected_and_repaired(tmp_path: Path, spy: Spy) -> None:
    """A bit, an end, a file that is gone, in any of the files: the work is done again and is what it was."""
    path = put(tmp_path / "a.jsonl", "a", *prompts(("b", "c")), "d", "e")
    corpus = prepare(path, BYTES, held_out=0.5)
    folder, work = corpus.train.folder, spy.since()
    whole, draw = contents(folder), random.Random(0)
    assert set(whole) >= {"index.json", "train-00000.tokens", "held_out-00000.tokens", "held_out-00000.mask"}
    for number in range(100):
        name = sorted(whole)[number % len(whole)]
        data = bytearray(whole[name])
        (folder / name).unlink()
        if 10 <= number < 20:
            (folder / name).write_bytes(data[: draw.randrange(len(data))])
        elif 20 <= number < 25:
            (folder / name).write_bytes(data + b"\0")
        elif number >= 25:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            (folder / name).write_bytes(data)
        again = prepare(path, BYTES, held_out=0.5)
        assert spy.since() == work, (number, name)
        assert contents(folder) == whole
    assert rows_of(again) == rows_of(corpus)
    prepare(path, BYTES, held_out=0.5)
    assert spy.since() == 0
    shutil.rmtree(folder)
    assert rows_of(prepare(path, BYTES, held_out=0.5)) == rows_of(corpus)


@pytest.mark.usefixtures("quick")
def test_what_is_left_of_one_that_was_killed(tmp_path: Path, spy: Spy) -> None:
    """Half a folder under a name of its own: swept away by the next; the work of others is left alone."""
    path = put(tmp_path / "a.jsonl", "a", "b")
    folder = prepare(path, WORDS).train.folder
    left, others = folder.parent / f".{folder.name}.abc", folder.parent / ".0123456789.abc"
    for one in (left, others):
        one.mkdir()
        (one / "train-00000.tokens").write_bytes(b"half")
    spy.since()
    prepare(path, WORDS)
    assert spy.since() == 0
    assert (left.exists(), others.exists()) == (False, True)


@pytest.mark.usefixtures("quick")
def test_one_that_is_stopped_leaves_nothing(tmp_path: Path, spy: Spy) -> None:
    """Ctrl-C in the middle, or a bad line: nothing half done remains, and the next call does it all."""
    path = put(tmp_path / "a.jsonl", *"abcdef")
    spy.fail_at = 4
    with pytest.raises(KeyboardInterrupt):
        prepare(path, WORDS)
    (lock,) = shards.machine.home().joinpath("data").iterdir()
    assert lock.suffix == ".lock"
    spy.fail_at = -1
    assert text_of(prepare(path, WORDS, held_out=0).train) == joined("abcdef")
    bad = tmp_path / "b.jsonl"
    bad.write_text('{"text": "a"}\noops\n')
    with pytest.raises(InputError, match=r"b\.jsonl, line 2: not a JSON object"):
        prepare(bad, WORDS)
    inside = [one for one in lock.parent.iterdir() if one.suffix != ".lock"]
    assert [open_corpus(one).notes["source"] for one in inside] == [str(path)]


@pytest.mark.usefixtures("quick")
def test_files_are_closed_when_it_fails(tmp_path: Path) -> None:
    """Nothing stays open, and so nothing keeps room on the disk."""
    bad = tmp_path / "a.jsonl"
    bad.write_text('{"text": "a"}\noops\n')
    with pytest.raises(InputError) as caught:
        prepare(bad, WORDS)
    mine = [os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.exists() or one.is_symlink()]
    assert not [one for one in mine if ".tokens" in one or ".mask" in one]
    assert "line 2" in str(caught.value)


def test_a_disk_that_does_not_take_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence with the folder in it, and nothing left there."""
    path = put(tmp_path / "a.jsonl", "a", "b")

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "sync", full)
    with pytest.raises(
        InputError, match=r"data: the tokens could not be written \(No space left on device\)"
    ):
        prepare(path, WORDS)
    assert [one.suffix for one in shards.machine.home().joinpath("data").iterdir()] == [".lock"]


def test_a_home_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no folder can be made, one sentence reports it."""
    (tmp_path / "home").write_text("a file")
    monkeypatch.setenv("GLASSFORMER_HOME", str(tmp_path / "home"))
    with pytest.raises(InputError, match="could not be written"):
        prepare(put(tmp_path / "a.jsonl", "a", "b"), WORDS)


def test_two_at_once(tmp_path: Path, spy: Spy) -> None:
    """One does the work, the other waits for it, and both have the same."""
    path = put(tmp_path / "a.jsonl", *(f"the cat {i}" for i in range(200)))
    start, found = threading.Barrier(4), []

    def work() -> None:
        start.wait()
        found.append(rows_of(prepare(path, WORDS)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert spy.since() == 200
    assert len(found) == 4
    assert all(one == found[0] for one in found)


TWO = """
import sys, time
from pathlib import Path
from glassformer.data.shards import prepare
from glassformer.tokenizers import ByteBPE, train_tokenizer
encode, texts = ByteBPE.encode, []
ByteBPE.encode = lambda self, text: texts.append(text) or time.sleep(0.01) or encode(self, text)
tokenizer = train_tokenizer(["abc"], 257)
print("ready", flush=True)
sys.stdin.readline()
print(prepare(Path(sys.argv[1]), tokenizer).digest, len(texts))
"""


def test_two_processes_at_once(tmp_path: Path) -> None:
    """Across processes too."""
    path = put(tmp_path / "a.jsonl", *(f"the cat {i}" for i in range(20)))
    command = [sys.executable, "-c", TWO, str(path)]
    pipe = subprocess.PIPE
    children = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    (one, first), (two, second) = (child.communicate(timeout=60)[0].split() for child in children)
    assert one == two == prepare(path, BYTES).digest
    assert sorted([int(first), int(second)]) == [0, 20]


@pytest.mark.parametrize("size", [1, 3, 7, 36, 37, 1000])
@pytest.mark.usefixtures("quick")
def test_shards_are_one_row(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the files: across their borders and around the end, tokens and masks are those of the
    plain row.
    """
    monkeypatch.setattr(shards, "SHARD", size)
    path = put(tmp_path / "a.jsonl", "the cat", *prompts(("sat on ", "the mat,")), "the end")
    row = prepare(path, BYTES, held_out=0).train
    right = np.array(BYTES.encode(joined(["the cat", "sat on the mat,", "the end"]), special=True))
    learn = np.array([1] * 9 + [0] * 7 + [1] * 17, dtype=bool)
    assert len(row) == len(right) == len(learn) == 33
    assert len(list(row.folder.glob("*.tokens"))) == len(list(row.folder.glob("*.mask"))) == -(-33 // size)
    assert all(file.stat().st_size <= 2 * size for file in row.folder.glob("*.tokens"))
    for start in range(0, 80, 5):
        for count in (1, 2, 6, 7, 8, 33, 34, 90):
            ids, mask = row.read(start, count)
            places = np.arange(start, start + count) % 33
            assert ids.tolist() == right[places].tolist()
            assert mask is not None
            assert mask.tolist() == learn[places].tolist()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.tuples(st.integers(0, 45), st.integers(0, 45)),
    st.integers(0, 200),
    st.integers(1, 120),
)
def test_a_stretch_is_a_ring(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], ends: tuple[int, int], start: int, count: int
) -> None:
    """A part of a row is a row of its own, which begins again where it began."""
    folder, total = tmp_path_factory.getbasetemp(), sum(sizes)
    low, high = sorted(end % (total + 1) for end in ends)
    if low == high:
        low, high = 0, total
    edges = np.cumsum([0, *sizes])
    parts: list[dict[str, Any]] = []
    for number, size in enumerate(sizes):
        name = f"ring-{edges[number]}-{size}"
        np.arange(edges[number], edges[number] + size, dtype=np.uint16).tofile(folder / name)
        parts.append({"name": name, "tokens": size})
    row = Row(folder, parts, "uint16", start=low, stop=high)
    assert len(row) == high - low
    ids, mask = row.read(start, count)
    assert ids.tolist() == [low + (start + i) % (high - low) for i in range(count)]
    assert mask is None


class Large:
    """A vocabulary of any size, one token to a character, counted from its end."""

    prefix_space = False

    def __init__(self, size: int) -> None:
        self.end, self.size = size - 1, size

    def __len__(self) -> int:
        return self.size

    def encode(self, text: str) -> list[int]:
        return [self.size - ord(character) for character in text]

    def to_json(self) -> str:
        return f"{self.size}"


@pytest.mark.parametrize(
    ("size", "dtype", "width"), [(65_536, "uint16", 2), (65_537, "uint32", 4), (200_000, "uint32", 4)]
)
def test_large_vocabularies_need_wider_tokens(size: int, dtype: str, width: int, tmp_path: Path) -> None:
    """Two bytes where they are enough, four where not; every id comes back."""
    corpus = prepare(put(tmp_path / "a.jsonl", "ab"), Large(size), held_out=0)  # type: ignore[arg-type]
    assert corpus.notes["dtype"] == dtype
    assert ids_of(corpus.train) == [size - 1, size - 97, size - 98, size - 1]
    assert (corpus.train.folder / "train-00000.tokens").stat().st_size == 4 * width


@pytest.mark.parametrize("share", [-0.1, 1.0, 5, float("nan")])
def test_a_share_that_makes_no_sense(share: float, tmp_path: Path) -> None:
    """Is refused before anything is done."""
    with pytest.raises(InputError, match="held_out must be at least 0 and less than 1"):
        prepare(put(tmp_path / "a.jsonl", "a"), WORDS, held_out=share)


def test_a_vocabulary_without_an_end(tmp_path: Path) -> None:
    """Cannot keep documents apart."""
    with pytest.raises(InputError, match=r"needs a vocabulary with <\|endoftext\|>"):
        prepare(put(tmp_path / "a.jsonl", "a"), train_tokenizer(["abc"], 256, special=()))


def test_a_text_of_nothing(tmp_path: Path) -> None:
    """Lines, but nothing in them: refused, and nothing is kept."""
    (tmp_path / "a.jsonl").write_text("\n\n")
    with pytest.raises(InputError, match=r"a\.jsonl holds no text"):
        prepare(tmp_path / "a.jsonl", WORDS)


CHILD = """
import sys
from pathlib import Path
from glassformer.data.shards import prepare
from glassformer.tokenizers import train_tokenizer

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

path = Path(sys.argv[1])
with path.open() as file:
    tokenizer = train_tokenizer([file.read(100_000)], 1000)
corpus = prepare(path, tokenizer)
count = sum(len(corpus.train.read(at, 1 << 16)[0]) for at in range(0, len(corpus.train), 1 << 16))
print(len(corpus.train), len(corpus.held_out), count, peak())
"""


@pytest.mark.slow
def test_memory_of_a_hundred_megabytes_of_text(tmp_path: Path) -> None:
    """A text file is prepared and read in memory that does not grow with it: a child stays below 400 MB."""
    if not Path("/proc/self/status").exists():
        pytest.skip("the high-water mark of memory is read from /proc")
    draw, path = random.Random(0), tmp_path / "a.txt"
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(1, 9))) for _ in range(5000)]
    with path.open("w") as file:
        while file.tell() < 100_000_000:
            file.write(" ".join(draw.choices(words, k=150_000)) + "\n")
    done = subprocess.run([sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    train, held_out, read, kilobytes = map(int, done.stdout.split())
    print(f"{train + held_out:,} tokens, {kilobytes / 1024:.0f} MB")
    assert train + held_out > 20_000_000
    assert held_out / (train + held_out) == pytest.approx(0.05, rel=1e-3)
    assert train <= read
    assert 20 < kilobytes / 1024 < 400


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("file", "name"), [
    ("my tales.jsonl", "my-tales-"), ("…éà.jsonl", ""), ("x" * 60 + ".jsonl", "x" * 40 + "-"), (".a.b.jsonl", "a-b-"),
])  # fmt: skip
def test_what_is_kept_has_the_name_of_its_text(tmp_path: Path, file: str, name: str) -> None:
    """Before the hash, so that a person can see which text a folder belongs to."""
    prepare(put(tmp_path / file, "a"), WORDS, held_out=0)
    folder, lock = sorted(shards.machine.home().joinpath("data").iterdir())
    assert re.fullmatch(rf"{name}[0-9a-f]{{24}}", folder.name)
    assert lock.name == f"{folder.name}.lock"

"""Vocabulary files with every fault we could think of: refused with a reason, or loaded to the same ids."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bad_files import refused, tiny_tokenizer

from glassformer.hub.vocabulary import load_tokenizer
from glassformer.tokenizers.bpe import END_OF_TEXT, SYMBOL_OF

SAMPLES = [
    "the cat sat on the mat and that was that; the hat, the bat",
    "  The\tCAT's 12 naïve – 日本語 🐈‍⬛ \r\n\n  ",
    "".join(map(chr, range(300))),
    f"a{END_OF_TEXT}the{END_OF_TEXT}",
]


class Files:
    """What a good vocabulary consists of; a fault changes a part of it."""

    def __init__(self) -> None:
        whole = json.loads(tiny_tokenizer().to_json())
        self.vocab: dict[Any, Any] = whole["model"]["vocab"] | {END_OF_TEXT: tiny_tokenizer().end}
        self.merges: list[Any] = [list(merge) for merge in tiny_tokenizer().merges]
        self.whole = whole

    def write_pair(
        self, folder: Path, change: Callable[[bytes], bytes] = bytes, name: str = "merges.txt"
    ) -> None:
        texts = {
            "vocab.json": json.dumps(self.vocab).encode(),
            "merges.txt": "".join(
                ["#version: 0.2\n", *(" ".join(merge) + "\n" for merge in self.merges)]
            ).encode(),
        }
        texts[name] = change(texts[name])
        for file, text in texts.items():
            (folder / file).write_bytes(text)

    def write_single(self, folder: Path, change: Callable[[bytes], bytes] = bytes) -> None:
        self.whole["model"] |= {"vocab": self.vocab, "merges": self.merges}
        (folder / "tokenizer.json").write_bytes(change(json.dumps(self.whole).encode()))


Fault = Callable[[Files], object]
FORMS = {"pair": Files.write_pair, "single": Files.write_single}


def loads_exactly(folder: Path) -> None:
    """The folder's tokenizer gives the same ids as the good one, to every sample, with and without special
    tokens.
    """
    good, loaded = tiny_tokenizer(), load_tokenizer(folder)
    assert loaded is not None
    assert len(loaded) == len(good)
    for text in SAMPLES:
        assert loaded.encode(text) == good.encode(text)
        assert loaded.encode(text, special=True) == good.encode(text, special=True)
        assert loaded.decode(loaded.encode(text)) == text


def test_samples_distinguish_vocabularies() -> None:
    """The samples use the special token and most of the merges, so that a lost one shows."""
    good = tiny_tokenizer()
    used = {id for text in SAMPLES for id in good.encode(text, special=True)}
    assert good.end in used
    assert len([id for id in used if len(good.bytes_of(id)) > 1]) >= 8


@pytest.mark.parametrize("form", FORMS)
def test_good_files_load_exactly(tmp_path: Path, form: str) -> None:
    """Both forms of the good vocabulary give its ids."""
    FORMS[form](Files(), tmp_path)
    loads_exactly(tmp_path)


def last(files: Files) -> str:
    """The last ordinary token, made by the last merge."""
    return "".join(files.merges[-1])


def renamed(files: Files, old: str, new: str) -> None:
    files.vocab = {new if symbol == old else symbol: id for symbol, id in files.vocab.items()}


def without(files: Files, *symbols: str) -> None:
    """Drop tokens, and close the ranks."""
    kept = [symbol for symbol in sorted(files.vocab, key=files.vocab.__getitem__) if symbol not in symbols]
    files.vocab = {symbol: id for id, symbol in enumerate(kept)}
    for token in files.whole["added_tokens"]:
        token["id"] = files.vocab[token["content"]]


# Faults of the content: each is written in both forms.
CONTENT: dict[str, tuple[Fault, str]] = {
    "no token for the byte 0x00": (lambda f: without(f, SYMBOL_OF[0]), "0x00"),
    "no token for the blank": (lambda f: without(f, SYMBOL_OF[32]), "0x20"),
    "no token for 0xff": (lambda f: without(f, SYMBOL_OF[255]), "0xff"),
    "no token for any byte": (lambda f: (without(f, *SYMBOL_OF.values()), f.merges.clear()), "256 of the 256"),
    "no tokens": (lambda f: (f.vocab.clear(), f.merges.clear(), f.whole["added_tokens"].clear()), "256 of the 256"),
    "byte tokens as bytes are": (lambda f: renamed(f, SYMBOL_OF[32], " "), "0x20"),
    "id twice": (lambda f: f.vocab.update({last(f): 5}), "ids"),
    "id left out": (lambda f: f.vocab.pop(last(f)), "ids"),
    "id negative": (lambda f: f.vocab.update({last(f): -1}), "ids"),
    "id too large": (lambda f: f.vocab.update({last(f): 10**6}), "ids"),
    "id beyond 64 bits": (lambda f: f.vocab.update({last(f): 2**70}), "ids"),
    "ids from 1": (lambda f: f.vocab.update({s: i + 1 for s, i in f.vocab.items() if s != END_OF_TEXT}), "ids"),
    "id a fraction": (lambda f: f.vocab.update({"a": float(f.vocab["a"])}), "whole number"),
    "id a text": (lambda f: f.vocab.update({"a": str(f.vocab["a"])}), "whole number"),
    "id a switch": (lambda f: f.vocab.update({min(f.vocab, key=f.vocab.__getitem__): False}), "whole number"),
    "id null": (lambda f: f.vocab.update({"a": None}), "whole number"),
    "id a list": (lambda f: f.vocab.update({"a": [f.vocab["a"]]}), "whole number"),
    "token empty": (lambda f: renamed(f, last(f), ""), "byte symbols"),
    "token with a blank": (lambda f: renamed(f, last(f), "a b"), "byte symbols"),
    "token in other letters": (lambda f: renamed(f, last(f), "日本"), "byte symbols"),
    "token half a character": (lambda f: renamed(f, last(f), "\ud800"), "byte symbols"),
    "token with an escape sequence": (lambda f: renamed(f, last(f), "\x1b[2J"), "byte symbols"),
    "token very long": (lambda f: renamed(f, last(f), "日" * 100_000), "byte symbols"),
    "merge of an unknown left": (lambda f: f.merges.append(["zzz", "a"]), "'zzz' is not in the vocabulary"),
    "merge of an unknown right": (lambda f: f.merges.append(["a", "zzz"]), "'zzz' is not in the vocabulary"),
    "merge to an unknown whole": (lambda f: f.merges.append(["z", "z"]), "'zz' is not in the vocabulary"),
    "merge to the special token": (lambda f: f.merges.append(["<", END_OF_TEXT[1:]]), "not in the vocabulary"),
    "merge of very long parts": (lambda f: f.merges.append(["z" * 100_000, "z" * 100_000]), "not in the vocabulary"),
    "merge with an escape sequence": (lambda f: f.merges.append(["\x1b[2J", "a"]), "not in the vocabulary"),
    "merge twice": (lambda f: f.merges.append(f.merges[0]), "twice"),
    "merge twice in a row": (lambda f: f.merges.insert(3, f.merges[3]), "twice"),
    "merge of three": (lambda f: f.merges.append(["t", "h", "e"]), "not a pair"),
    "merge of one": (lambda f: f.merges.append(["the"]), "not a pair"),
    "merge with an empty left": (lambda f: f.merges.append(["", "a"]), "not a pair"),
    "merge with an empty right": (lambda f: f.merges.append(["a", ""]), "not a pair"),
    "merge of nothing": (lambda f: f.merges.insert(4, [""]), "not a pair"),
    "last merge lost": (lambda f: f.merges.pop(), "merge"),
    "middle merge lost": (lambda f: f.merges.pop(4), "merge"),
    "half of the merges lost": (lambda f: f.merges.__delitem__(slice(6, None)), "merge"),
    "all merges lost": (lambda f: f.merges.clear(), "merge"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("fault", "reason"), CONTENT.values(), ids=CONTENT)
def test_false_content_is_refused(tmp_path: Path, fault: Fault, reason: str, form: str) -> None:
    """A vocabulary that could not give the right ids is refused, in either form."""
    files = Files()
    fault(files)
    FORMS[form](files, tmp_path)
    with refused(tmp_path, reason):
        load_tokenizer(tmp_path)


def per_line(change: Callable[[int, bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda text: b"\n".join(change(i, line) for i, line in enumerate(text.split(b"\n")))


# Texts of merges.txt that mean the same.
SAME_MERGES: dict[str, Callable[[bytes], bytes]] = {
    "CRLF": lambda text: text.replace(b"\n", b"\r\n"),
    "CRLF here and there": per_line(lambda i, line: line + b"\r" * (i % 2)),
    "byte-order mark": lambda text: b"\xef\xbb\xbf" + text,
    "byte-order mark and CRLF": lambda text: b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"),
    "no version": lambda text: text.split(b"\n", 1)[1],
    "another version": lambda text: text.replace(b"0.2", b"0.3 - made by hand"),
    "no end of line at the end": lambda text: text.rstrip(b"\n"),
    "blank lines at the end": lambda text: text + b"\n\r\n\n",
}

# Texts of merges.txt that mean something else, or nothing.
OTHER_MERGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda text: b"",
    "version only": lambda text: text.split(b"\n")[0],
    "blank lines only": lambda text: b"\n" * 1000,
    "CR only": lambda text: text.replace(b"\n", b"\r"),
    "all in one line": lambda text: text.replace(b"\n", b" "),
    "blank line inside": per_line(lambda i, line: line + b"\n" * (i == 5)),
    "version inside": per_line(lambda i, line: line + b"\n#version: 0.2" * (i == 5)),
    "blank line before": lambda text: b"\n" + text,
    "comment inside": per_line(lambda i, line: line + b"\n# ranks from here" * (i == 5)),
    "tabs": lambda text: text.replace(b" ", b"\t"),
    "two blanks": per_line(lambda i, line: line.replace(b" ", b"  ") if i else line),
    "blank at the start": per_line(lambda i, line: b" " + line if i == 3 else line),
    "blank at the end": per_line(lambda i, line: line + b" " if i == 3 else line),
    "no-break space": per_line(lambda i, line: line.replace(b" ", b"\xc2\xa0") if i else line),
    "with counts": per_line(lambda i, line: line + b" 1234" if i else line),
    "cut in a line": lambda text: text[:-2],
    "cut in a character": lambda text: text[: text.index("Ġ".encode()) + 1],
    "cut at a line": lambda text: text[: text.rindex(b"\n", 0, -1) + 1],
    "cut in the middle": lambda text: text[: len(text) // 2],
    "Latin-1": lambda text: text.replace("Ġ".encode(), b"\xe9"),
    "UTF-16": lambda text: text.decode().encode("utf-16"),
    "UTF-16 without mark": lambda text: text.decode().encode("utf-16-le"),
    "blanks for Ġ": lambda text: text.replace("Ġ".encode(), b" "),
    "NUL inside": lambda text: text[:40] + b"\0" + text[40:],
    "JSON": lambda text: json.dumps(text.decode().split("\n")).encode(),
    "twice": lambda text: text + text.split(b"\n", 1)[1],
    "one line of 100 MB": lambda text: b"a" * (100 << 20),
    "one line of 20 MB": lambda text: b"a" * (20 << 20),
    "one line of 8 M parts": lambda text: b"a " * (8 << 20),
    "2 M lines": lambda text: b"t h\n" * (2 << 20),
    "16 M blank lines": lambda text: b"\n" * (16 << 20),
}  # fmt: skip


@pytest.mark.parametrize("change", SAME_MERGES.values(), ids=SAME_MERGES)
def test_merges_in_another_spelling_load_exactly(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    """Ends of lines, a byte-order mark and a missing version change no id."""
    Files().write_pair(tmp_path, change)
    loads_exactly(tmp_path)


@pytest.mark.parametrize("change", OTHER_MERGES.values(), ids=OTHER_MERGES)
def test_broken_merges_are_refused(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    """A list of merges that is cut, mixed up or no list of merges is refused, however long it is."""
    Files().write_pair(tmp_path, change)
    with refused(tmp_path):
        load_tokenizer(tmp_path)


def tokens_of(whole: dict[str, Any]) -> list[dict[str, Any]]:
    added: list[dict[str, Any]] = whole["added_tokens"]
    return added


# Changes to tokenizer.json that mean the same.
SAME_SINGLE: dict[str, Fault] = {
    "merges as texts": lambda f: f.merges.__setitem__(slice(None), [" ".join(merge) for merge in f.merges]),
    "no type": lambda f: f.whole["model"].pop("type"),
    "unknown keys": lambda f: f.whole.update({"auto_map": "trap.Trap", "comment": [1, {"a": None}]}),
    "no decoder": lambda f: f.whole.pop("decoder"),
    "no normalizer": lambda f: f.whole.pop("normalizer"),
    "no use_regex": lambda f: f.whole["pre_tokenizer"].pop("use_regex", None),
    "special token not in the vocabulary": lambda f: f.vocab.pop(END_OF_TEXT),
    "special token listed twice": lambda f: tokens_of(f.whole).append(dict(tokens_of(f.whole)[0])),
    "tokens in another order": lambda f: setattr(f, "vocab", dict(sorted(f.vocab.items()))),
    "an unknown token that is never needed": lambda f: f.whole["model"].update(unk_token=END_OF_TEXT),
}  # fmt: skip

# Changes to tokenizer.json that mean something else, or nothing.
OTHER_SINGLE: dict[str, Fault] = {
    "another model": lambda f: f.whole["model"].update(type="WordPiece"),
    "model a list": lambda f: f.whole["model"].update(type=["BPE"]),
    "no pre-tokenizer": lambda f: f.whole.pop("pre_tokenizer"),
    "pre-tokenizer null": lambda f: f.whole.update(pre_tokenizer=None),
    "pre-tokenizer a text": lambda f: f.whole.update(pre_tokenizer="ByteLevel"),
    "another pre-tokenizer": lambda f: f.whole["pre_tokenizer"].update(type="Whitespace"),
    "pre-tokenizers in a row": lambda f: f.whole.update(
        pre_tokenizer={"type": "Sequence", "pretokenizers": [f.whole["pre_tokenizer"]]}
    ),
    "words not cut": lambda f: f.whole["pre_tokenizer"].update(use_regex=False),
    "normalizer": lambda f: f.whole.update(normalizer={"type": "Lowercase"}),
    "chance": lambda f: f.whole["model"].update(dropout=0.5),
    "prefix inside words": lambda f: f.whole["model"].update(continuing_subword_prefix="##"),
    "suffix at the end of words": lambda f: f.whole["model"].update(end_of_word_suffix="</w>"),
    "merges a text": lambda f: setattr(f, "merges", "t h"),
    "merges an object": lambda f: setattr(f, "merges", {"t": "h"}),
    "merges null": lambda f: setattr(f, "merges", None),
    "merge a number": lambda f: f.merges.append(5),
    "merge null": lambda f: f.merges.append(None),
    "merge of numbers": lambda f: f.merges.append([1, 2]),
    "merge an object": lambda f: f.merges.append({"t": 0, "h": 1}),
    "merge of lists": lambda f: f.merges.append([["t"], ["h"]]),
    "vocabulary a list": lambda f: setattr(f, "vocab", list(f.vocab)),
    "vocabulary null": lambda f: setattr(f, "vocab", None),
    "added tokens an object": lambda f: f.whole.update(added_tokens={END_OF_TEXT: 1}),
    "added tokens null": lambda f: f.whole.update(added_tokens=None),
    "added token a text": lambda f: tokens_of(f.whole).append(END_OF_TEXT),
    "added token without id": lambda f: tokens_of(f.whole)[0].pop("id"),
    "added token without content": lambda f: tokens_of(f.whole)[0].pop("content"),
    "added token with another id": lambda f: tokens_of(f.whole)[0].update(id=3),
    "added token with an id as text": lambda f: tokens_of(f.whole)[0].update(id=str(tokens_of(f.whole)[0]["id"])),
    "added token with an id beyond": lambda f: tokens_of(f.whole).append({"content": "<x>", "id": 10**9}),
    "added token with the id of another": lambda f: tokens_of(f.whole).append({"content": "<x>", "id": 7}),
    "added token that is a byte": lambda f: tokens_of(f.whole).append({"content": "a", "id": f.vocab["a"]}),
    "added token that is a merge": lambda f: tokens_of(f.whole).append({"content": "at", "id": f.vocab["at"]}),
    "added token empty": lambda f: tokens_of(f.whole).append({"content": "", "id": len(f.vocab)}),
    "added token half a character": lambda f: tokens_of(f.whole).append({"content": "\ud800", "id": len(f.vocab)}),
    "added token twice with two ids": lambda f: tokens_of(f.whole).extend(
        {"content": "<x>", "id": id} for id in (len(f.vocab) + 1, len(f.vocab))
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", SAME_SINGLE.values(), ids=SAME_SINGLE)
def test_tokenizer_file_in_another_spelling_loads_exactly(tmp_path: Path, change: Fault) -> None:
    """What may be left out, added or written otherwise changes no id."""
    files = Files()
    change(files)
    files.write_single(tmp_path)
    loads_exactly(tmp_path)


@pytest.mark.parametrize("change", OTHER_SINGLE.values(), ids=OTHER_SINGLE)
def test_broken_tokenizer_file_is_refused(tmp_path: Path, change: Fault) -> None:
    """A file that asks for another way of encoding, or has another form, is refused by name."""
    files = Files()
    change(files)
    files.write_single(tmp_path)
    with refused(tmp_path / "tokenizer.json"):
        load_tokenizer(tmp_path)


# Faults of any JSON file: written to vocab.json and to tokenizer.json.
BROKEN_JSON: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda text: b"",
    "cut": lambda text: text[:-1],
    "cut in half": lambda text: text[: len(text) // 2],
    "list": lambda text: b"[" + text + b"]",
    "null": lambda text: b"null",
    "empty object": lambda text: b"{}",
    "key twice": lambda text: text.replace(b'"a":', b'"a": 0, "a":', 1),
    "NaN": lambda text: text.replace(b"{", b'{"x": NaN, ', 1),
    "nested 100,000 deep": lambda text: text.replace(
        b"{", b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b",", 1
    ),
    "rest behind it": lambda text: text + b"{}",
    "not UTF-8": lambda text: text.replace(b'"a"', b'"\xff"'),
    "UTF-16": lambda text: text.decode().encode("utf-16"),
    "65 MB": lambda text: text.ljust(65 << 20),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("change", BROKEN_JSON.values(), ids=BROKEN_JSON)
def test_broken_json_is_refused(tmp_path: Path, change: Callable[[bytes], bytes], form: str) -> None:
    """Broken JSON is refused with the name of the file that holds it."""
    if form == "pair":
        Files().write_pair(tmp_path, change, "vocab.json")
    else:
        Files().write_single(tmp_path, change)
    with refused(tmp_path / ("vocab.json" if form == "pair" else "tokenizer.json")):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("space", [b"\xef\xbb\xbf", b"\r\n \t"])
def test_space_before_json_changes_nothing(tmp_path: Path, space: bytes, form: str) -> None:
    """A byte-order mark or blanks before the JSON change no id."""
    if form == "pair":
        Files().write_pair(tmp_path, lambda text: space + text, "vocab.json")
    else:
        Files().write_single(tmp_path, lambda text: space + text)
    loads_exactly(tmp_path)


@pytest.mark.parametrize("lost", ["vocab.json", "merges.txt"])
def test_half_of_a_pair_is_refused(tmp_path: Path, lost: str) -> None:
    """A vocabulary without its merges, or merges without a vocabulary, is not the same as no vocabulary at
    all.
    """
    assert load_tokenizer(tmp_path) is None
    Files().write_pair(tmp_path)
    (tmp_path / lost).unlink()
    with refused(tmp_path, lost):
        load_tokenizer(tmp_path)


def test_corpus_is_large() -> None:
    """There are at least sixty broken files."""
    assert 2 * len(CONTENT) + len(OTHER_MERGES) + len(OTHER_SINGLE) + 2 * len(BROKEN_JSON) >= 60

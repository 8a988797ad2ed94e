"""The tokenizer beside three others: tiktoken, `tokenizers` and `transformers`; and its files, in every form."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tiktoken
import tokenizers as fast
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.errors import InputError
from glassformer.hub.vocabulary import load_tokenizer
from glassformer.tokenizers import ByteBPE, Tokenizer, train_tokenizer, train_word_tokenizer

END = "<|endoftext|>"
PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""

BLANKS = " \t\n\r\x0b\x0c\x1c\x1f\x85\xa0\u1680\u180e\u2003\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"
MARKS = "\u0301\u0308\u0327\u0338\u0483\u05b0\u0651\u093f\u0e31\u20e3\u3099\ufe0f\U000e0100"
DIGITS = "0123456789²½٣५৭Ⅷ①〇一𝟘𑁧"
RIGHT_TO_LEFT = "אבגדהוםןץابتثجحخںهٱ\u061c\u200e\u200f\u202a\u202e\u202c\u2066\u2069"
HAN_AND_KIN = (
    "的一是不了人我在有他这为之大来以个中上们々〆ヶあいうえおアイウエオーっ가나다라한국어。、「」𠮷𪚥"
)
ACCENTS = "àéîõüßœÆøłžŞıİſΩπЖяЪქአกขคअआஅತមᄀ"
EMOJI = [
    "😀",
    "👨‍👩‍👧‍👦",
    "🏳️‍🌈",
    "👍🏽",
    "🇩🇪",
    "🇺",
    "1️⃣",
    "👩🏿‍🚀",
    "❤️",
    "\u200d",
    "☺",
    "🧑\u200d",
    "🫠",
    "\U0001fae9",
]
SHORTENED = [
    "'s",
    "'t",
    "'re",
    "'ve",
    "'m",
    "'ll",
    "'d",
    "'S",
    "'RE",
    "’s",
    "''",
    "'",
    "'l",
    "'v",
    "I'm",
    "we'll've",
    "'sd",
    "o'clock",
]
CODE = [
    "def f(x):\n    return x**2\n", "if (a&&b) {\r\n\t\tc++;\r\n}", "<a href='#'>", "x = 1e-9; y=0xFF", "/* */", "://", "{{",
    "}}}}", "===", "    ", "\t\t", "-" * 16, "\\n\\t\"", "$$", "SELECT * FROM t;", "__init__", "a_b-c.d", "#!/bin/sh\n", "^^^^",
]  # fmt: skip
WORDS = [
    "the",
    "The",
    "hello",
    "tokenizer",
    " of",
    "antidisestablishmentarianism",
    "a",
    "I",
    "XYZZY",
    "naïve",
    "straße",
    "q",
]
SPECIAL = [END, "<|", "|>", "<|endoftext", "endoftext|>", "<|ENDOFTEXT|>", "<<|endoftext|>>", END * 2]


def some(alphabet: str) -> Callable[[random.Random], str]:
    """Fragments of up to 6 characters of an alphabet."""
    return lambda rng: "".join(rng.choices(alphabet, k=rng.randint(1, 6)))


def one(things: list[str]) -> Callable[[random.Random], str]:
    """Fragments that are one of a list."""
    return lambda rng: rng.choice(things)


def scalar(rng: random.Random, end: int = 0x110000) -> str:
    """Any character that Unicode has room for."""
    code = rng.randrange(end - 0x800)
    return chr(code if code < 0xD800 else code + 0x800)


FRAGMENTS: list[Callable[[random.Random], str]] = [
    *map(some, (BLANKS, MARKS, DIGITS, RIGHT_TO_LEFT, HAN_AND_KIN, ACCENTS)),
    *map(one, (EMOJI, SHORTENED, CODE, WORDS, WORDS, SPECIAL)),
    some("".join(map(chr, [*range(32), *range(127, 160)]))),
    some("".join(map(chr, range(32, 127)))),
    lambda rng: rng.choice(BLANKS) * rng.randint(1, 12),
    lambda rng: " " * rng.randint(1, 3),
    lambda rng: rng.choice("aAe0-^=.'\n") * rng.randint(1, 20),
    lambda rng: "".join(scalar(rng) for _ in range(rng.randint(1, 4))),
    lambda rng: "".join(scalar(rng, 0x10000) for _ in range(rng.randint(1, 4))),
    lambda rng: rng.choice("aeionß") + rng.choice(MARKS),
]


def nasty_strings(count: int, seed: int) -> Iterator[str]:
    """Mixtures of everything that has ever broken a tokenizer; the same ones for the same seed."""
    rng = random.Random(seed)
    pool = [rng.choice(FRAGMENTS)(rng) for _ in range(min(4 * count, 20_000))]
    for _ in range(count):
        yield "".join(rng.choices(pool, k=rng.randint(2, 5)))


@pytest.fixture(scope="module")
def judge(gpt2_vocabulary: Path) -> tiktoken.Encoding:
    """The `gpt2` of tiktoken, made from the files at hand."""
    ids = json.loads((gpt2_vocabulary / "encoder.json").read_text(encoding="utf-8"))
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    byte_of = {chr(byte): byte for byte in plain}
    byte_of |= {chr(256 + i): byte for i, byte in enumerate(sorted(set(range(256)) - set(plain)))}
    special = {END: ids.pop(END)}
    ranks = {bytes(byte_of[char] for char in symbol): id for symbol, id in ids.items()}
    return tiktoken.Encoding(
        "gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special, explicit_n_vocab=50257
    )


def differences(gpt2: Tokenizer, judge: tiktoken.Encoding, surrounding: str, codes: range) -> list[str]:
    """The characters of a range that, so surrounded, get other ids than tiktoken gives."""
    wrong: list[str] = []
    for start in codes[::4096]:
        chars = [
            chr(code) for code in range(start, min(start + 4096, codes.stop)) if not 0xD800 <= code < 0xE000
        ]
        texts = [surrounding.replace("{}", char) for char in chars]
        whole = "".join(texts)
        if gpt2.encode(whole) != judge.encode_ordinary(whole):
            found = [
                f"U+{ord(c):04X}"
                for c, t in zip(chars, texts, strict=True)
                if gpt2.encode(t) != judge.encode_ordinary(t)
            ]
            wrong += found or [f"between U+{start:04X} and U+{start + 4095:04X}"]
    return wrong


@pytest.mark.parametrize(("surrounding", "codes"), [
    ("  {}'s", range(0x10000)),
    ("  {}'s", range(0x10000, 0x34000)),
    ("{}", range(0x34000, 0xE0000)),
    ("  {}'s", range(0xE0000, 0xE1000)),
    ("{}", range(0xE1000, 0x110000)),
])  # fmt: skip
def test_every_character_as_in_tiktoken(
    gpt2: Tokenizer, judge: tiktoken.Encoding, surrounding: str, codes: range
) -> None:
    """Every character of Unicode; where any is assigned, so placed that letter, blank and sign get different
    ids.
    """
    assert differences(gpt2, judge, surrounding, codes) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "surrounding",
    ["{}", "  {}'s", "a{}b", " {} ", "1{}1", "\n{}{}\n", "x {}1 'll{}", "{}\u0301", "的{}的", "!{}'re"],
)
def test_every_character_everywhere(gpt2: Tokenizer, judge: tiktoken.Encoding, surrounding: str) -> None:
    """Every character of Unicode in every kind of company."""
    assert differences(gpt2, judge, surrounding, range(0x110000)) == []


def test_surroundings_distinguish_letters_blanks_and_signs(judge: tiktoken.Encoding) -> None:
    """A letter taken for a sign, or a blank for a letter, would change the ids of the surroundings."""
    cut = {char: judge.decode_tokens_bytes(judge.encode_ordinary(f"  {char}'s")) for char in "δ٣\u2003→"}
    assert cut["δ"][-1] == cut["٣"][-1] == cut["\u2003"][-1] == b"'s"
    assert cut["→"][-1] == b"s"
    assert cut["\u2003"][:2] == [b" ", b" "] or cut["\u2003"][0] == b"  "
    assert cut["δ"][0] == b" "
    assert cut["δ"][1].startswith(b" \xce")


def test_every_id_as_in_tiktoken(gpt2: Tokenizer, judge: tiktoken.Encoding) -> None:
    """All 50,257 ids have the same bytes and the same text, and the text gets the same ids again."""
    assert len(gpt2) == judge.n_vocab == 50257
    assert gpt2.end == judge.eot_token == 50256
    themselves = 0
    for id in range(50257):
        assert gpt2.bytes_of(id) == judge.decode_single_token_bytes(id)
        text = gpt2.decode([id])
        assert text == judge.decode([id])
        again = gpt2.encode(text, special=True)
        assert again == judge.encode(text, allowed_special="all")
        assert gpt2.decode(again) == text
        themselves += again == [id]
    assert (
        49_000 < themselves < 50_257
    )  # bytes that are no text, and tokens that the pattern cuts, do not come back


def test_rows_of_ids_decode_as_in_tiktoken(gpt2: Tokenizer, judge: tiktoken.Encoding) -> None:
    """Random ids, most of them no valid UTF-8 together, decode to the same bytes and the same text."""
    rng = random.Random(5)
    broken = [id for id in range(50256) if "\ufffd" in judge.decode([id])]
    for _ in range(3000):
        ids = [
            rng.choice(broken) if rng.random() < 0.5 else rng.randrange(50257)
            for _ in range(rng.randint(0, 12))
        ]
        assert b"".join(map(gpt2.bytes_of, ids)) == judge.decode_bytes(ids)
        assert gpt2.decode(ids) == judge.decode(ids)
    assert gpt2.decode(iter([15496, 995])) == "Hello world"


def check_string(gpt2: Tokenizer, judge: tiktoken.Encoding, text: str) -> None:
    ids = gpt2.encode(text)
    assert ids == judge.encode_ordinary(text), ascii(text)
    assert gpt2.decode(ids) == text, ascii(text)


def test_100_000_nasty_strings(gpt2: Tokenizer, judge: tiktoken.Encoding) -> None:
    """The ids are tiktoken's and the text comes back whole."""
    texts = dict.fromkeys(nasty_strings(102_000, seed=12))
    assert len(texts) >= 100_000
    for text in texts:
        check_string(gpt2, judge, text)


def test_a_long_text(gpt2: Tokenizer, judge: tiktoken.Encoding) -> None:
    """More strings in a row than are processed at once."""
    text = "".join(nasty_strings(15_000, seed=31))
    assert len(text) > 200_000
    check_string(gpt2, judge, text)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_a_million_nasty_strings(gpt2: Tokenizer, judge: tiktoken.Encoding, seed: int) -> None:
    """The same for ten times as many."""
    for text in nasty_strings(100_000, seed):
        check_string(gpt2, judge, text)


@settings(max_examples=200, deadline=None)
@given(text=st.text() | st.text("'sStTlLvVeErRdDmM \n\t.0aé’\u2003"))
def test_any_string(gpt2: Tokenizer, judge: tiktoken.Encoding, text: str) -> None:
    """Whatever is thought up: tiktoken's ids, and the text comes back whole."""
    check_string(gpt2, judge, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "\ufeffa",
        "a\ufeff",
        "\ufffe\uffff",
        "\ufffd",
        "\u202eabc",
        "a\0b\0",
        "\ufeff\ufeff",
        "\r\n\r\n",
    ],
)
def test_odd_strings(gpt2: Tokenizer, judge: tiktoken.Encoding, text: str) -> None:
    """Nothing, NUL, byte-order marks, noncharacters and changes of direction are text like any other."""
    check_string(gpt2, judge, text)
    assert (gpt2.encode(text) == []) == (text == "")


@pytest.mark.parametrize(("text", "seen_as"), [
    ("\ud800", "\ufffd"),
    ("\udfff.", "\ufffd."),
    ("a\ud83db", "a\ufffdb"),
    ("\ude00\ud83d", "\ufffd\ufffd"),
    ("\ud83d\ude00", "😀"),
    ("\ud83d\ud83d\ude00\ude00", "\ufffd😀\ufffd"),
    ("\ufeff\ud800", "\ufeff\ufffd"),
    (" \udc80's", " \ufffd's"),
])  # fmt: skip
@pytest.mark.parametrize("special", [False, True])
def test_lone_surrogates(
    gpt2: Tokenizer, judge: tiktoken.Encoding, text: str, seen_as: str, special: bool
) -> None:
    """Half a character becomes U+FFFD as in tiktoken; two halves that belong together become the character."""
    assert gpt2.encode(text, special=special) == judge.encode_ordinary(text) == judge.encode_ordinary(seen_as)
    assert gpt2.decode(gpt2.encode(text, special=special)) == seen_as


def test_special_tokens_are_plain_text(gpt2: Tokenizer, judge: tiktoken.Encoding) -> None:
    """A person cannot end the text by writing so."""
    for text in (END, f"a{END}b", f" {END} ", END * 3, f"\n\n{END}\n\n"):
        ids = gpt2.encode(text)
        assert ids == judge.encode(text, disallowed_special=())
        assert 50256 not in ids
        assert gpt2.decode(ids) == text


def test_special_tokens_when_asked_for(gpt2: Tokenizer, judge: tiktoken.Encoding) -> None:
    """With `special` they are their ids, and the text around them is cut as in tiktoken."""
    assert gpt2.encode(END, special=True) == [50256]
    assert gpt2.encode(f"Hi{END} there", special=True) == [17250, 50256, 612]
    rng = random.Random(3)
    met = 0
    for text in nasty_strings(3000, seed=77):
        at = rng.randint(0, len(text))
        text = text[:at] + rng.choice(["", END, END + " ", "\n" + END]) + text[at:]
        ids = gpt2.encode(text, special=True)
        assert ids == judge.encode(text, allowed_special={END}), ascii(text)
        assert ids.count(50256) == text.count(END)
        assert gpt2.decode(ids) == text
        met += 50256 in ids
    assert 1800 < met < 3000


def test_longest_special_token_wins() -> None:
    """Where two special tokens begin at the same place, the longer one is meant; here and in `tokenizers`."""
    tokenizer = train_tokenizer(["some text"], 259, special=("<|a", "<|a|>", "?+*"))
    assert tokenizer.special == {"<|a": 256, "<|a|>": 257, "?+*": 258}
    assert tokenizer.encode("<|a|><|a<|a|?+*", special=True) == [257, 256, 256, tokenizer.encode("|")[0], 258]
    assert fast.Tokenizer.from_str(tokenizer.to_json()).encode("<|a|><|a<|a|?+*").ids == [
        257,
        256,
        256,
        91,
        258,
    ]
    assert max(tokenizer.encode("<|a|><|a<|a|?+*")) < 256
    assert tokenizer.end is None


@pytest.mark.parametrize("id", [-1, 50257, 2**31, 2**63, 1.5, None, "a"])
def test_ids_that_are_none(gpt2: Tokenizer, id: int) -> None:
    """An id outside the vocabulary is refused with the ids that there are."""
    with pytest.raises(InputError, match=r"is not a token id of this vocabulary \(0 to 50256\)"):
        gpt2.bytes_of(id)
    with pytest.raises(InputError, match="is not a token id"):
        gpt2.decode([0, id])


def test_three_forms_of_file(gpt2: Tokenizer, gpt2_vocabulary: Path, tmp_path: Path) -> None:
    """`encoder.json` + `vocab.bpe`, `vocab.json` + `merges.txt` and `tokenizer.json` are one tokenizer."""
    pair, bare, single = tmp_path / "pair", tmp_path / "bare", tmp_path / "single"
    for folder in (pair, bare, single):
        folder.mkdir()
    shutil.copy(gpt2_vocabulary / "encoder.json", pair / "vocab.json")
    shutil.copy(gpt2_vocabulary / "vocab.bpe", pair / "merges.txt")
    shutil.copy(gpt2_vocabulary / "encoder.json", bare / "vocab.json")
    head, _, rest = (gpt2_vocabulary / "vocab.bpe").read_text(encoding="utf-8").partition("\n")
    assert head.startswith("#version")
    (bare / "merges.txt").write_text(rest.rstrip("\n"), encoding="utf-8", newline="\r\n")
    (single / "tokenizer.json").write_text(gpt2.to_json(), encoding="utf-8")
    texts = list(nasty_strings(400, seed=4))
    ids = [gpt2.encode(text, special=True) for text in texts]
    for folder in (pair, bare, single):
        other = load_tokenizer(folder)
        assert other is not None
        assert other.merges == gpt2.merges
        assert len(other.merges) == 50000
        assert other.special == gpt2.special == {END: 50256}
        assert [other.bytes_of(id) for id in range(len(other))] == [gpt2.bytes_of(id) for id in range(50257)]
        assert [other.encode(text, special=True) for text in texts] == ids
    assert load_tokenizer(tmp_path) is None


def test_json_in_the_tokenizers_library(gpt2: Tokenizer) -> None:
    """What `to_json` writes loads there and gives the same ids and texts."""
    theirs = fast.Tokenizer.from_str(gpt2.to_json())
    assert theirs.get_vocab_size() == 50257
    for text in nasty_strings(2000, seed=8):
        ids = gpt2.encode(text, special=True)
        assert theirs.encode(text).ids == ids, ascii(text)
        assert theirs.decode(ids, skip_special_tokens=False) == text


def test_json_in_transformers(gpt2: Tokenizer, tmp_path: Path) -> None:
    """A folder with `tokenizer.json` loads there, by either door, and gives the same ids and texts."""
    from transformers import AutoTokenizer, GPT2TokenizerFast

    config = {"tokenizer_class": "GPT2Tokenizer", "model_max_length": 1024, "add_prefix_space": False}
    config |= {"bos_token": END, "eos_token": END, "unk_token": END}
    (tmp_path / "tokenizer.json").write_text(gpt2.to_json(), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    for theirs in (GPT2TokenizerFast.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)):
        assert len(theirs) == 50257
        assert theirs.eos_token_id == gpt2.end
        for text in nasty_strings(300, seed=9):
            ids = gpt2.encode(text, special=True)
            assert theirs(text)["input_ids"] == ids, ascii(text)
            assert theirs.decode(ids, clean_up_tokenization_spaces=False) == text


def test_prefix_space(gpt2: Tokenizer) -> None:
    """With `prefix_space` a text begins as if after a blank, also in the file."""
    vocab = json.loads(gpt2.to_json())["model"]["vocab"]
    spaced = ByteBPE(vocab, gpt2.merges, special=gpt2.special, prefix_space=True)
    theirs = fast.Tokenizer.from_str(spaced.to_json())
    for text in ("Hello", " Hello", "  Hello", "\nHello", "'s", END, f"a{END}b", ""):
        expected = gpt2.encode(text if text.startswith(" ") or not text else " " + text)
        assert spaced.encode(text) == expected
        assert [id for word in spaced.watch(text) for id in word.ids] == expected
        assert spaced.encode(text, special=True) == theirs.encode(text).ids
    assert spaced.encode("Hello") != gpt2.encode("Hello")
    assert not gpt2.prefix_space


def small_vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    tokenizer = train_tokenizer(["low lower lowest"], 262, special=())
    return json.loads(tokenizer.to_json())["model"]["vocab"], list(tokenizer.merges)


@pytest.mark.parametrize(("spoil", "message"), [
    (lambda vocab, merges: vocab.update({"xy": 300}), "ids are not the numbers from 0 on"),
    (lambda vocab, merges: vocab.update({"xy": 5}), "ids are not the numbers from 0 on"),
    (lambda vocab, merges: vocab.update({"b" * 3: vocab.pop("b")}), "no token for 1 of the 256 bytes, the first 0x62"),
    (lambda vocab, merges: vocab.update({"x y": len(vocab)}), "'x y' is not written in byte symbols"),
    (lambda vocab, merges: vocab.update({"": len(vocab)}), "'' is not written in byte symbols"),
    (lambda vocab, merges: merges.append(merges[0]), "holds a pair twice"),
    (lambda vocab, merges: merges.append(("x", "y")), r"merge 6 \('x' \+ 'y'\): 'xy' is not in the vocabulary"),
    (lambda vocab, merges: merges.insert(0, ("xy", "z")), "merge 0 .*'xy' is not in the vocabulary"),
    (lambda vocab, merges: merges.pop(), "no merge makes the token"),
    (lambda vocab, merges: vocab.update({"xy": len(vocab)}), "no merge makes the token 'xy'"),
])  # fmt: skip
def test_broken_vocabularies(
    spoil: Callable[[dict[str, int], list[tuple[str, str]]], object], message: str
) -> None:
    """Each way to be wrong is refused in a sentence of its own; the same vocabulary unspoilt is taken."""
    vocab, merges = small_vocabulary()
    assert len(merges) == 6
    assert len(ByteBPE(vocab, merges)) == 262
    spoil(vocab, merges)
    with pytest.raises(InputError, match=message):
        ByteBPE(vocab, merges)


@pytest.mark.parametrize("token", ["", "<\ud800>"], ids=["empty", "half a character"])
def test_special_tokens_that_are_no_text(token: str) -> None:
    """A special token has to be something that can be in a text."""
    vocab, merges = small_vocabulary()
    assert len(ByteBPE(vocab, merges, special={"<>": 262})) == 263
    with pytest.raises(InputError, match=r"the special token .* is no text"):
        ByteBPE(vocab, merges, special={token: 262})


def test_shown(gpt2: Tokenizer) -> None:
    """Byte symbols are shown as text, lone bytes by number."""
    assert gpt2.shown("ĠHello") == " Hello"
    assert gpt2.shown("ĊĉĠ") == "\n\t "
    assert gpt2.shown("<|endoftext|>") == "<|endoftext|>"
    assert gpt2.shown("Ã©") == "é"
    assert gpt2.shown("Ã") == "\\xc3"
    assert gpt2.shown("aâĤ¬Ã") == "a€\\xc3"


@pytest.mark.parametrize("train", [train_tokenizer, train_word_tokenizer])
def test_more_special_tokens(train: Callable[..., Tokenizer]) -> None:
    """Behind the others; texts are cut as before, and a token that is there already keeps its id."""
    before = train(["the park and the rain " * 5], 300)
    after = before.with_special(["<to-fr>", "<|endoftext|>", "<to-fr>", "<summarize>"])
    assert after.special == before.special | {"<to-fr>": len(before), "<summarize>": len(before) + 1}
    assert len(after) == len(before) + 2
    assert after.end == before.end
    text = "the rain <to-fr> park"
    assert after.encode(text) == before.encode(text)
    assert after.encode(text, special=True).count(after.special["<to-fr>"]) == 1
    assert after.decode([after.special["<summarize>"]]) == "<summarize>"

"""The merges one by one: the same tokens as `encode`, in the order of the book."""

import random
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.tokenizers import ByteBPE, MergeStep, Tokenizer, WatchedWord, train_tokenizer
from glassformer.tokenizers.bpe import BYTE_OF, SYMBOL_OF

TEXTS = {
    "rhyme": "how much wood would a woodchuck chuck if a woodchuck could chuck wood\n" * 5,
    "runs": "aaaaaaaa aaaa aa a bbbb abab ababab aabb\n" * 9 + "    \n\n\n  \t\t",
    "scripts": "déjà vu, Straße, 日本語の日本, 😀😀👍🏽 שלום שלום привет привет 12 1212 121212 it's we'll\n"
    * 4,
}


def naive_merges(symbols: str, ranks: Mapping[tuple[str, str], int]) -> tuple[list[MergeStep], list[str]]:
    """Byte pair encoding as in the paper: look at every pair, merge the lowest-ranked, leftmost first, start
    again.
    """
    pieces, steps = list(symbols), []
    while True:
        there = [(ranks[pair], at) for at, pair in enumerate(pairwise(pieces)) if pair in ranks]
        if not there:
            return steps, pieces
        rank, at = min(there)
        steps.append(MergeStep((pieces[at], pieces[at + 1]), rank, at))
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]


def check_word(word: WatchedWord, tokenizer: Tokenizer, ranks: Mapping[tuple[str, str], int]) -> None:
    """One word by every promise that it makes."""
    steps, pieces = naive_merges(word.symbols, ranks)
    assert word.steps == steps
    assert word.pieces == pieces
    assert word.pieces_after(0) == list(word.symbols)
    assert word.pieces_after(len(word.steps)) == word.pieces
    for number, (pair, rank, at) in enumerate(word.steps):
        before, after = word.pieces_after(number), word.pieces_after(number + 1)
        assert (before[at], before[at + 1]) == pair
        assert after[at] == "".join(pair)
        assert len(after) == len(before) - 1
        assert "".join(after) == word.symbols
        assert rank == ranks[pair] == min(ranks[two] for two in pairwise(before) if two in ranks)
    assert not any(two in ranks for two in pairwise(word.pieces))
    assert [tokenizer.bytes_of(id) for id in word.ids] == [
        bytes(BYTE_OF[char] for char in piece) for piece in word.pieces
    ]


def check_text(text: str, tokenizer: Tokenizer, ranks: Mapping[tuple[str, str], int]) -> None:
    """All words of a text together are the text, and their ids those of `encode`."""
    words = tokenizer.watch(text)
    assert [id for word in words for id in word.ids] == tokenizer.encode(text), ascii(text)
    seen = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert "".join(word.symbols for word in words) == "".join(SYMBOL_OF[byte] for byte in seen.encode())
    for word in words:
        assert word.symbols
        check_word(word, tokenizer, ranks)


def ranks_of(merges: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
    return {pair: rank for rank, pair in enumerate(merges)}


@pytest.fixture(scope="module")
def gpt2_ranks(gpt2: Tokenizer) -> dict[tuple[str, str], int]:
    return ranks_of(gpt2.merges)


@pytest.fixture(scope="module", params=TEXTS)
def small(request: pytest.FixtureRequest) -> Tokenizer:
    """Small vocabularies, each from a text of another kind."""
    return train_tokenizer([TEXTS[request.param]], 257 + 40)


def test_the_book_example() -> None:
    """The merges of `low` and `er`, worked out by hand."""
    merges = [("l", "o"), ("e", "r"), ("lo", "w"), ("low", "er")]
    symbols = [*SYMBOL_OF.values(), "lo", "er", "low", "lower"]
    tokenizer = ByteBPE({symbol: id for id, symbol in enumerate(symbols)}, merges)
    (word,) = tokenizer.watch("lower")
    assert word.symbols == "lower"
    assert word.steps == [(("l", "o"), 0, 0), (("e", "r"), 1, 2), (("lo", "w"), 2, 0), (("low", "er"), 3, 0)]
    assert [word.pieces_after(step) for step in range(5)] == [
        ["l", "o", "w", "e", "r"], ["lo", "w", "e", "r"], ["lo", "w", "er"], ["low", "er"], ["lower"]
    ]  # fmt: skip
    assert word.pieces == ["lower"]
    assert word.ids == [259]
    assert [piece for word in tokenizer.watch("lo we") for piece in word.pieces] == ["lo", "Ġ", "w", "e"]


def test_nothing_to_watch(gpt2: Tokenizer) -> None:
    """An empty text has no words; a single byte has no steps."""
    assert gpt2.watch("") == []
    assert gpt2.watch("a") == [WatchedWord("a", [], ["a"], [64])]


def test_words_are_cut_by_the_pattern(gpt2: Tokenizer) -> None:
    """A blank goes with the word behind it, a contraction is a piece of its own, half a character is U+FFFD."""
    words = ["".join(word.symbols) for word in gpt2.watch("It's  12 cats\n\n!")]
    assert words == ["It", "'s", "Ġ", "Ġ12", "Ġcats", "Ċ", "Ċ", "!"]
    assert gpt2.watch("\ud800") == gpt2.watch("\ufffd") != []


@pytest.mark.parametrize("text", [
    *TEXTS.values(),
    "The quick brown fox jumps over the lazy dog. It's 1234567890 o'clock!!! antidisestablishmentarianism",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "======================= ------------- \n\n\n\n\n\n\n        \t\t\t\t x",
    "👨‍👩‍👧‍👦👨‍👩‍👧‍👦 e\u0301e\u0301e\u0301 \ud83d <|endoftext|><|endoftext|> \0\0\0",
], ids=range(7))  # fmt: skip
def test_gpt2_step_by_step(gpt2: Tokenizer, gpt2_ranks: dict[tuple[str, str], int], text: str) -> None:
    """Every step of GPT-2's merges keeps every promise."""
    check_text(text, gpt2, gpt2_ranks)


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=60) | st.text("aehinorst 's0\n=", max_size=60))
def test_gpt2_any_text(gpt2: Tokenizer, gpt2_ranks: dict[tuple[str, str], int], text: str) -> None:
    """The same for whatever is thought up."""
    check_text(text, gpt2, gpt2_ranks)


def test_gpt2_every_token(gpt2: Tokenizer, gpt2_ranks: dict[tuple[str, str], int]) -> None:
    """Texts of random tokens in a row, which have the longest merges there are."""
    rng = random.Random(2)
    steps = 0
    for _ in range(300):
        text = gpt2.decode(rng.randrange(50256) for _ in range(6))
        check_text(text, gpt2, gpt2_ranks)
        steps += sum(len(word.steps) for word in gpt2.watch(text))
    assert steps > 3000


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=40) | st.text("abchwodu \n", max_size=120))
def test_small_any_text(small: Tokenizer, text: str) -> None:
    """A vocabulary of one's own is watched as well."""
    check_text(text, small, ranks_of(small.merges))


def test_small_own_text(small: Tokenizer) -> None:
    """The text from which a vocabulary was learnt uses every one of its merges."""
    used: set[int] = set()
    for text in TEXTS.values():
        check_text(text, small, ranks_of(small.merges))
        used |= {step.rank for word in small.watch(text) for step in word.steps}
    assert used == set(range(len(small.merges)))


@st.composite
def jumbled_merges(draw: st.DrawFn) -> list[tuple[str, str]]:
    """Merges in any order: a pair may rank before those that make its parts, and two pairs may make one
    token.
    """
    known = ["a", "b", "c"]
    pairs: dict[tuple[str, str], None] = {}
    for _ in range(draw(st.integers(1, 9))):
        pair = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        pairs[pair] = None
        if "".join(pair) not in known:
            known.append("".join(pair))
    return list(draw(st.permutations(list(pairs))))


@settings(max_examples=150, deadline=None)
@given(
    merges=jumbled_merges(), texts=st.lists(st.text("abc", min_size=1, max_size=24), min_size=1, max_size=6)
)
def test_merges_in_any_order(merges: list[tuple[str, str]], texts: list[str]) -> None:
    """Ranks that no training would give are followed, too: the lowest first, the leftmost of equals."""
    symbols = [*SYMBOL_OF.values(), *dict.fromkeys(a + b for a, b in merges)]
    tokenizer = ByteBPE({symbol: id for id, symbol in enumerate(symbols)}, merges)
    for text in texts:
        check_text(text, tokenizer, ranks_of(merges))


def test_special_tokens_can_be_watched(gpt2: Tokenizer) -> None:
    """They are made by no merge; without being asked for they are plain text."""
    text = "one<|endoftext|> two"
    for special in (True, False):
        assert [id for word in gpt2.watch(text, special=special) for id in word.ids] == gpt2.encode(
            text, special=special
        )
    assert any(word.pieces == ["<|endoftext|>"] and not word.steps for word in gpt2.watch(text, special=True))


def test_a_word_that_comes_again_is_merged_once() -> None:
    """A text of a million characters has few different words; each is one object."""
    tokenizer = train_tokenizer([TEXTS["rhyme"]], 300)
    words = tokenizer.watch("wood chuck wood wood")
    assert words[2] is words[3]
    assert words[0] is not words[2]  # the first has no blank before it
    assert [word.symbols for word in words] == ["wood", "Ġchuck", "Ġwood", "Ġwood"]

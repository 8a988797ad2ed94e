"""Text to tokens and back: nothing may be lost."""

import random
from collections.abc import Iterator

from glassformer.answers.verification import Check
from glassformer.tokenizers import Tokenizer
from glassformer.tokenizers.word_bpe import UNKNOWN, WordBPE

TEXTS = (
    "Hello, world!", "  two blanks,\tone tab\r\nand\n\nlines ", "don't, I'll, we've", "3.14159 ≈ π", "",
    "naïve café, Ångström", "Καλημέρα κόσμε", "Привет, мир", "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया",
    "こんにちは世界", "안녕하세요", "👩‍👩‍👧‍👦 🏳️‍🌈", "e\u0301 \u200b \ufeff \x00 \x1b[31m",
    "<|endoftext|>", "a" * 500,
)  # fmt: skip
RANDOM = 300
SEED = 0


def round_trip(tokenizer: Tokenizer) -> Iterator[Check]:
    """Encode and decode texts of many scripts, and strings of random characters.

    GPT-1's vocabulary lower-cases and drops what it lacks: there, a text that came back once must come back
    the same again.
    """
    texts = [*TEXTS, *random_strings(RANDOM)]
    lossy = isinstance(tokenizer, WordBPE)
    if lossy:
        returned = (tokenizer.decode(tokenizer.encode(text)) for text in texts)
        texts = [text for text in returned if UNKNOWN not in text]
    form = " in its own lower case" if lossy else ""
    yield Check(
        name="tokenizer",
        compared=f"{len(texts)} texts{form}: encoded and decoded, as given",
        unit="changed",
        measured=sum(back_and_forth(tokenizer, text) != text for text in texts),
        limit=0,
        mutant="one id + 1",
        mutant_measured=sum(back_and_forth(tokenizer, text, shift=1) != text for text in texts),
    )


def back_and_forth(tokenizer: Tokenizer, text: str, *, shift: int = 0) -> str:
    """Encode and decode; with `shift`, the first id is another."""
    ids = tokenizer.encode(text)
    if ids:
        ids[0] = (ids[0] + shift) % len(tokenizer)
    return tokenizer.decode(ids)


def random_strings(count: int) -> list[str]:
    """Strings of characters from everywhere in Unicode, the same ones every time."""
    draw = random.Random(SEED)
    ranges = [(0x20, 0x7E), (0x0, 0x2FF), (0x370, 0x1FFF), (0x2000, 0xD7FF), (0xE000, 0x10FFFF)]

    def character() -> str:
        return chr(draw.randint(*draw.choice(ranges)))

    return ["".join(character() for _ in range(draw.randint(1, 40))) for _ in range(count)]

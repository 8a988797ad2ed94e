"""The translator's pairs: English and French sentences of Tatoeba, sorted into three files without leaks.

    python recipes/tatoeba.py DATA runs/tatoeba

DATA holds tatoeba_en_fr/eng-fra.txt.gz. What is written: train, dev and test, each as .en and .fr, line by line. Sentences
that share a translation, however many steps apart, are in one part, so that no sentence is in two. Some pairs
to train on are there a second time as people type them in haste: "je suis étudiant", without capital letter and
full stop. Counts, leaks and hashes are printed.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from glassformer.data.pairs import Pair, read_pairs, without_leaks
from glassformer.durable import hash_file

TEST, DEV = 0.02, 0.01
SHORT = 3  # words: all pairs of short sentences are also there in haste
EVERY = 8  # and one in so many of the others
WORD = re.compile(r"[^\W\d_]+")
PLAIN = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"'})


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the translator's training text.")
    parser.add_argument("data", type=Path, help="the folder of the raw pairs")
    parser.add_argument("out", type=Path, help="the folder to write to")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)

    pairs = [tidy(pair) for pair in read_pairs([asked.data / "tatoeba_en_fr" / "eng-fra.txt.gz"])]
    pairs = list(dict.fromkeys(pairs))
    rest, test = without_leaks(pairs, TEST)
    train, dev = without_leaks(rest, TEST + DEV)  # by the same hash: what is below TEST is gone already

    train = list(dict.fromkeys([*train, *in_haste(train)]))

    parts = {"train": train, "dev": dev, "test": test}
    for name, part in parts.items():
        files = [asked.out / f"{name}.{language}" for language in ("en", "fr")]
        for side, file in enumerate(files):
            file.write_text("".join(f"{pair[side]}\n" for pair in part), encoding="utf-8")
        others = [pair for other, pairs in parts.items() if other != name for pair in pairs]
        hashes = " and ".join(hash_file(file)[:16] for file in files)
        print(
            f"{name}: {len(part):,} pairs, {leaks(part, others)} sentences also in another part, sha256 {hashes}"
        )


def tidy(pair: Pair) -> Pair:
    """Plain blanks and quotation marks, as people type them."""
    return Pair(*(" ".join(half.translate(PLAIN).split()) for half in pair))


def in_haste(pairs: Sequence[Pair]) -> Iterator[Pair]:
    """Short pairs and some others, without the capital letter at the beginning and the mark at the end."""
    inside = [Counter(word for pair in pairs for word in WORD.findall(pair[side])[1:]) for side in (0, 1)]
    for number, pair in enumerate(pairs):
        if len(pair.source.split()) <= SHORT or number % EVERY == 0:
            source, target = (hasty(half, words) for half, words in zip(pair, inside, strict=True))
            if source and target:
                yield Pair(source, target)


def hasty(sentence: str, inside: Counter[str]) -> str:
    """One sentence; its first word stays as it is where it is also written so `inside` sentences: I, Paris."""
    first = WORD.match(sentence)
    if first and inside[first[0].lower()] >= inside[first[0]]:
        sentence = sentence[0].lower() + sentence[1:]
    return sentence.rstrip(".!? ")


def leaks(part: Sequence[Pair], others: Sequence[Pair]) -> int:
    """How many sentences of one part are in the others, whatever their case."""
    return sum(
        len({pair[side].casefold() for pair in part} & {pair[side].casefold() for pair in others})
        for side in (0, 1)
    )


if __name__ == "__main__":
    main()

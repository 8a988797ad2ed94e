"""The storyteller's text: stories and tales as they come, brought into one form and sorted into four files.

    python recipes/stories.py DATA runs/stories

DATA holds synthetic_train, tinystories_train and tales_train (.jsonl.gz). What is written: simple (stories by
a small model), tinystories (those it learned from), tales (told in minutes) and books (told in hours), each
in an order of its own; a vocabulary, learned from three parts of stories and one of tales; and credits.md,
who wrote the tales. The hashes of all that is read and written are printed.
"""

import argparse
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glassformer.durable import hash_file
from glassformer.tokenizers.train import train_tokenizer

SEED = 2026
PLAIN = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "—": "-", "…": "..."})


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the storyteller's training text.")
    parser.add_argument("data", type=Path, help="the folder of the raw stories")
    parser.add_argument("out", type=Path, help="the folder to write to")
    parser.add_argument("--vocab", type=int, default=4096, help="tokens of the vocabulary")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    files: dict[str, list[dict[str, Any]]] = {"simple": [], "tinystories": [], "tales": [], "books": []}
    for record in read(asked.data / "synthetic_train.jsonl.gz"):
        files["simple"].append({"text": tidy(record["text"]), "whole": record["whole"]})
    for record in read(asked.data / "tinystories_train.jsonl.gz"):
        files["tinystories"].append({"text": record["text"]})
    owed: dict[str, set[str]] = {}
    for record in read(asked.data / "tales_train.jsonl.gz"):
        files["books" if record["kind"] == "book" else "tales"].append({"text": record["text"]})
        owed.setdefault(licence(record["licence"]), set()).add(record["author"])
    (asked.out / "credits.md").write_text(credits(owed), encoding="utf-8")
    for name, records in files.items():
        random.Random(SEED).shuffle(records)
        path = asked.out / f"{name}.jsonl"
        path.write_text(
            "".join(json.dumps(record) + "\n" for record in records if record["text"]), encoding="utf-8"
        )
        size = sum(len(record["text"]) for record in records) / 1e6
        print(f"{len(records):7,} documents {size:6.1f} MB  sha256 {hash_file(path)[:16]}  {path}")
    stories = [record["text"] for record in files["simple"] + files["tinystories"]]
    tales = "\n\n".join(record["text"] for record in files["tales"] + files["books"])[
        : sum(map(len, stories)) // 3
    ]
    folder = asked.out / "vocabulary"
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(
        train_tokenizer([*stories, tales], asked.vocab).to_json(), encoding="utf-8"
    )
    print(
        f"{asked.vocab:7,} tokens               sha256 {hash_file(folder / 'tokenizer.json')[:16]}  {folder}"
    )


def licence(said: str) -> str:
    """Under which of a few licences a tale came."""
    if "StoryWeaver" in said:
        return "CC BY 4.0, Pratham Books' StoryWeaver"
    if "African Storybook" in said:
        return "CC BY, African Storybook"
    return "public domain in the United States, or CC0"


def credits(owed: dict[str, set[str]]) -> str:
    """Who is owed thanks, licence by licence."""
    parts = ["# Who wrote the tales that the storyteller read\n"]
    for under, authors in sorted(owed.items()):
        parts.append(f"**{under}**: {'; '.join(sorted(filter(None, authors), key=str.casefold))}.\n")
    return "\n".join(parts)


def tidy(text: str) -> str:
    """In the form of the others: plain quotation marks, an empty line between paragraphs."""
    return "\n\n".join(line.strip() for line in text.translate(PLAIN).split("\n") if line.strip())


def read(path: Path) -> Iterator[dict[str, Any]]:
    print(f"reading sha256 {hash_file(path)[:16]}  {path.name}")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


if __name__ == "__main__":
    main()

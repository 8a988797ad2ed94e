"""Texts and their summaries as pairs: SciTLDR (abstract → one sentence) and leads of Wikipedia (body → lead).

    python recipes/summaries.py DATA runs/summaries

DATA holds scitldr and wiki_lead_summ. What is written: scitldr-train.jsonl, -valid and -test, and the same of
wiki-lead; lines of JSON with a source and a target. Where a text has several summaries, all are its
`references`, and the first is the target. WikiText's marks are turned back into plain text. Counts and hashes
are printed.
"""

import argparse
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glassformer.durable import hash_file

SCITLDR = {"train": "train", "valid": "dev", "test": "test"}
WIKI = {"train": "train", "valid": "valid", "test": "test"}
# WikiText writes "1 @,@ 000", "well @-@ known", "the end ." and `" quoted "`.
JOINED = re.compile(r" @([-,.])@ ")
BEFORE, AFTER = re.compile(r" ([.,;:!?%)\]'’])"), re.compile(r"([(\[$£]) ")
ENDINGS = re.compile(r" (n't|'(?:s|re|ve|ll|d|m))\b")
HEADING = re.compile(r"\s*=.*=\s*")
QUOTED = re.compile(r'" ([^"]*?) "')


def main() -> None:
    parser = argparse.ArgumentParser(description="Make pairs of texts and summaries.")
    parser.add_argument("data", type=Path, help="the folder that holds scitldr and wiki_lead_summ")
    parser.add_argument("out", type=Path, help="the folder to write to")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for name, file in SCITLDR.items():
        found = [scitldr(record) for record in records(asked.data / "scitldr" / f"{file}.jsonl.gz")]
        write(asked.out / f"scitldr-{name}.jsonl", found)
    for name, file in WIKI.items():
        found = [wiki(record) for record in records(asked.data / "wiki_lead_summ" / f"{file}.jsonl.gz")]
        write(asked.out / f"wiki-lead-{name}.jsonl", found)


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a packed file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def scitldr(record: dict[str, Any]) -> dict[str, Any]:
    """An abstract, whose sentences are a list, and its summaries: several in the test set."""
    targets = [tidy(target) for target in record["target"]]
    pair: dict[str, Any] = {"source": tidy(" ".join(record["source"])), "target": targets[0]}
    return pair | ({"references": targets} if len(targets) > 1 else {})


def wiki(record: dict[str, Any]) -> dict[str, Any]:
    """The body of an article without its headings, and its lead."""
    body = "\n".join(line for line in record["body"].split("\n") if not HEADING.fullmatch(line))
    return {"source": tidy(plain(body)), "target": tidy(plain(record["lead"]))}


def plain(text: str) -> str:
    """WikiText as people write: marks joined to their words. Words that it lacks stay `<unk>`."""
    text = QUOTED.sub(r'"\1"', JOINED.sub(r"\1", text))
    return AFTER.sub(r"\1", BEFORE.sub(r"\1", ENDINGS.sub(r"\1", text)))


def tidy(text: str) -> str:
    """One line, one blank between words."""
    return " ".join(text.split())


def write(path: Path, pairs: list[dict[str, Any]]) -> None:
    """One pair a line."""
    path.write_text("".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in pairs), encoding="utf-8")
    print(f"{len(pairs):6,} pairs, sha256 {hash_file(path)[:16]}  {path}")


if __name__ == "__main__":
    main()

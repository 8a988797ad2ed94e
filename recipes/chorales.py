"""The composer's music: Bach's chorales as words on a grid of 16th notes, in three files.

    python recipes/chorales.py DATA runs/chorales

DATA holds jsb_chorales/jsb-16th-voices.json.gz. What is written, twice: in runs/chorales/ahead-16 the soprano is written
one bar ahead of the other voices, so that these are written with the coming melody in sight; in runs/chorales/ahead-0
it is not. train.jsonl, valid.jsonl and test.jsonl are the usual split. transposed.jsonl are the pieces to train on in
every key in which each voice stays within what it sings anywhere in them. Counts and hashes are printed.
"""

import argparse
import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from glassformer.durable import hash_file
from glassformer.tokenizers.music import SILENT, Chorale, Grid

AHEAD = (0, 16)  # steps
FURTHEST = 6  # semitones of a transposition


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the composer's training music.")
    parser.add_argument("data", type=Path, help="the folder of the raw chorales")
    parser.add_argument("out", type=Path, help="the folder to write to")
    asked = parser.parse_args()
    splits = read_chorales(asked.data)
    parts = splits | {"transposed": list(transposed(splits["train"]))}
    for ahead in AHEAD:
        folder = asked.out / f"ahead-{ahead}"
        folder.mkdir(parents=True, exist_ok=True)
        events = Chorale(ahead)
        for name, pieces in parts.items():
            file = folder / f"{name}.jsonl"
            lines = (json.dumps({"text": events.decode(events.lay(piece))}) + "\n" for piece in pieces)
            file.write_text("".join(lines), encoding="utf-8")
            cells = 4 * sum(map(len, pieces))
            print(f"{file}: {len(pieces):,} pieces, {cells:,} cells, sha256 {hash_file(file)[:16]}")


def read_chorales(data: Path) -> dict[str, list[Grid]]:
    """train, valid and test."""
    with gzip.open(data / "jsb_chorales" / "jsb-16th-voices.json.gz") as file:
        found: dict[str, list[Grid]] = json.load(file)
    return found


def transposed(pieces: Sequence[Grid]) -> Iterator[Grid]:
    """Every piece in its own key and in others."""
    lowest, highest = ranges(pieces)
    for piece in pieces:
        low, high = ranges([piece])
        down = max(-FURTHEST, *(least - here for least, here in zip(lowest, low, strict=True)))
        up = min(FURTHEST, *(most - here for most, here in zip(highest, high, strict=True)))
        for by in range(down, up + 1):
            yield [[pitch if pitch == SILENT else pitch + by for pitch in step] for step in piece]


def ranges(pieces: Sequence[Grid]) -> tuple[list[int], list[int]]:
    """The lowest and the highest pitch of every voice."""
    sung = [
        [step[voice] for piece in pieces for step in piece if step[voice] != SILENT] for voice in range(4)
    ]
    return [min(pitches) for pitches in sung], [max(pitches) for pitches in sung]


if __name__ == "__main__":
    main()

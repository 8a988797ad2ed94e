"""Piano performances as words: the ASAP collection, in three files by piece.

    python recipes/performances.py DATA runs/performances

DATA holds asap_midi/asap_perf.zip. All performances of one piece are in one file, so that no piece is in two: those
whose name has a hash below a tenth are test.jsonl, the next tenth valid.jsonl. Counts and hashes are printed.
The recordings are under CC BY-NC-SA 4.0: a model of them is not shipped.
"""

import argparse
import hashlib
import json
import zipfile
from pathlib import Path, PurePosixPath

from glassformer.durable import hash_file
from glassformer.tokenizers.midi import read_midi
from glassformer.tokenizers.music import Performance
from glassformer.tokenizers.score import Note, Score

TENTH = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description="Make training music from performances.")
    parser.add_argument("data", type=Path, help="the folder of the raw performances")
    parser.add_argument("out", type=Path, help="the folder to write to")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    events = Performance()
    parts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    with zipfile.ZipFile(asked.data / "asap_midi" / "asap_perf.zip") as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".mid"):
                score = from_the_first_note(read_midi(archive.read(name)))
                parts[part_of(str(PurePosixPath(name).parent))].append(events.decode(events.events(score)))
    for name, texts in parts.items():
        file = asked.out / f"{name}.jsonl"
        file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        count = sum(text.count(" ") + 1 for text in texts)
        print(f"{file}: {len(texts):,} performances, {count:,} events, sha256 {hash_file(file)[:16]}")


def part_of(piece: str) -> str:
    """The file that a piece belongs to, by its name."""
    share = int(hashlib.sha256(piece.encode()).hexdigest()[:8], 16) / (1 << 32)
    return "test" if share < TENTH else "valid" if share < 2 * TENTH else "train"


def from_the_first_note(score: Score) -> Score:
    """A performance without the silence before it."""
    start = score.notes[0].start
    notes = (Note(note.start - start, note.end - start, *note[2:]) for note in score.notes)
    return Score.of(notes, quarter=score.quarter)


if __name__ == "__main__":
    main()

"""glass neurons: where one fires."""

import json
from pathlib import Path


def test_where_a_neuron_fires(tmp_path: Path, printed) -> None:
    """In all files of a corpus."""
    (tmp_path / "one.jsonl").write_text('{"text": "A dog ran."}\n{"text": "The cat sat on the mat."}\n')
    (tmp_path / "two.txt").write_text("Once upon a time there was a bird.")
    found = json.loads(
        printed("neurons", "--examples", "1.17", "-k", "2", "--corpus", str(tmp_path), "--json")
    )
    examples = found["values"]["examples"]
    assert len(examples) == len(found["rows"]) == 2
    assert examples[0]["activation"] >= examples[1]["activation"]

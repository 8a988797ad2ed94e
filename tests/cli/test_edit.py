"""glass edit: what was tried by flags is kept in a file."""

import json
from pathlib import Path

TEXT = "The cat sat. The cat"


def test_a_file_that_holds_no_edits(tmp_path: Path, printed) -> None:
    """A list of something else is one sentence, too."""
    for content, words in (
        ('["from"]', "edit 0 is 'from', not an object"),
        ('[{"site": "embed", "do": "patch", "from": 3}]', "a text"),
    ):
        (tmp_path / "edits.json").write_text(content)
        assert words in printed("edit", "--edit", str(tmp_path / "edits.json"), TEXT, code=2)


def test_edits_are_kept_in_a_file(tmp_path: Path, printed) -> None:
    """What was tried by flags, `glass edit --edit` and `glass generate --edit` do again."""
    kept = tmp_path / "edits.json"
    how = ["-n", "6", "--temperature", "0", "--json"]
    flags = ["--zero", "blocks.0.attn.mix[1]", "--toward", "happy", "--away", "sad", "--at", "2", "--by", "3"]
    first = json.loads(printed("edit", *flags, "--save", str(kept), *how, TEXT))
    assert json.loads(printed("edit", "--edit", str(kept), *how, TEXT)) == first
    assert first["values"]["text"] != first["values"]["edited"]
    for arguments, key in ((["--edit", str(kept)], "edited"), ([], "text")):
        assert json.loads(printed("generate", *arguments, *how, TEXT))["text"] == first["values"][key]

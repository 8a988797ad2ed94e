"""The record of a job: two processes write to it, and a line that a kill has cut off is dropped."""

from pathlib import Path

from glassformer.server.events import EventLog


def test_a_cut_line_is_dropped_and_the_next_one_is_whole(tmp_path: Path) -> None:
    """On a line of its own: joined to the cut one, it would be lost with it."""
    log = EventLog(tmp_path / "events.jsonl")
    log.append("created", "one")
    with log.path.open("ab") as file:
        file.write(b'{"id": "cut o')
    again = EventLog(log.path)
    assert [one["message"] for one in again.new()] == ["one"]
    again.append("step", "two", step=1)
    assert [one["message"] for one in again.new()] == ["two"]
    assert [one["data"] for one in EventLog(log.path).new()] == [
        {"event": "created"},
        {"event": "step", "step": 1},
    ]


def test_a_damaged_line_hurts_no_other(tmp_path: Path) -> None:
    """Neither no JSON, nor no object."""
    log = EventLog(tmp_path / "events.jsonl")
    assert log.new() == []
    log.path.write_bytes(b"\x00\xff{\n[1]\n{}\n")
    log.append("created", "fine \ud800")
    assert [one["message"] for one in log.new()] == ["fine ?"]

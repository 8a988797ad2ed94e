"""What happened to a job, as lines of JSON in its folder: the job's process and the server both write there.

The file is the only record. A status is what follows from its lines, so nothing is lost that was written,
whoever is killed; a line that was cut off by a kill is dropped.
"""

import json
import os
import secrets
import time
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class EventLog:
    """Events in a file: appended, and read on from where one has read to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0  # bytes

    def append(self, event: str, message: str, *, level: str = "info", **data: Any) -> None:
        """Write one event, on the disk before this returns: `data` has the `event` and its numbers."""
        line = {
            "id": f"ftevent-{secrets.token_hex(12)}",
            "object": "fine_tuning.job.event",
            "created_at": int(time.time()),
            "level": level,
            "message": message,
            "type": "metrics" if event in ("step", "evaluated") else "message",
            "data": {"event": event, **data},
        }
        # One write of a whole line: the other process may append at the same time.
        text = (json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8", "replace")
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, text)
            if event != "step":  # steps are many, and none of them decides anything
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def repair(self) -> None:
        """Drop a last line that was cut off; only while no other process writes."""
        if not self.path.is_file():
            return
        with self.path.open("r+b") as file:
            content = file.read()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                file.truncate(whole)
                os.fsync(file.fileno())

    def new(self) -> list[Event]:
        """The events that were not read yet."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                content = file.read()
        except FileNotFoundError:
            return []
        whole = content.rfind(b"\n") + 1
        self._read += whole
        found = []
        for line in content[:whole].splitlines():
            try:
                event = json.loads(line)
            except ValueError:  # damaged: the others still count
                continue
            if isinstance(event, dict) and isinstance(event.get("data"), dict):
                found.append(event)
        return found

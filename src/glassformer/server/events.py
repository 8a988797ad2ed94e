"""What happened to a job, as lines of JSON in its folder: the job's process and the server both write there.

The file is the only record. A status is what follows from its lines, so nothing is lost that was written,
whichever process is killed; a line that a kill has cut off is skipped.
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
        text = (json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8", "replace")
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            # One write of a whole line, because the other process may append at the same time; on a line of
            # its own, even if a kill has cut off the one before it.
            os.write(descriptor, text if _ends_a_line(descriptor) else b"\n" + text)
            if event != "step":  # steps are many, and none of them decides anything
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

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
            except ValueError:  # cut off or damaged: the others still count
                continue
            if isinstance(event, dict) and isinstance(event.get("data"), dict):
                found.append(event)
        return found


def _ends_a_line(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"

"""The metrics of a training: `metrics.jsonl`, one line an event; TensorBoard files, if it is installed."""

import contextlib
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

from glassformer.durable import replace_file
from glassformer.files import read_json_lines


class MetricsLog:
    """Writes as things happen; after a crash it goes on where the training does, with no step in it twice."""

    def __init__(self, folder: Path, *, tensorboard: bool) -> None:
        self.path = folder / "metrics.jsonl"
        self.file: Any = None
        self.board: Any = None
        if tensorboard and importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(folder / "tensorboard"))

    def write(self, step: int, **facts: Any) -> None:
        """Log what happened at a step."""
        if self.file is None:
            # Only now is it known from which step the training goes on: lines from there on are written
            # again.
            self._truncate(step)
            self.file = self.path.open("a", encoding="utf-8")
        self.file.write(json.dumps({"step": step, **facts}, ensure_ascii=False) + "\n")
        self.file.flush()
        if self.board is not None:
            self._write_board(step, facts)

    def _write_board(self, step: int, facts: dict[str, Any]) -> None:
        for name, fact in facts.items():
            if isinstance(fact, float):
                self.board.add_scalar(name, fact, step)
            elif isinstance(fact, str):
                self.board.add_text(name, fact, step)

    def close(self) -> None:
        """Have everything on the disk."""
        with contextlib.suppress(OSError):  # a full disk: the write before this one has failed and said so
            if self.file is not None:
                try:
                    os.fsync(self.file.fileno())
                finally:
                    self.file.close()
        if self.board is not None:
            self.board.close()

    def _truncate(self, step: int) -> None:
        """Drop the lines of steps that are now done again, and a last line that was cut off."""
        lines = read_json_lines(self.path) if self.path.is_file() else []
        kept = [line for line in lines if type(line.get("step")) is int and line["step"] < step]
        replace_file(self.path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept))

"""The diary of a training: `metrics.jsonl`, one line for everything that happens; TensorBoard files, if it is installed."""

import contextlib
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

from glassformer.durable import replace_file


class Diary:
    """Writes as things happen; after a crash it goes on where the training does, and no step stands in it twice."""

    def __init__(self, folder: Path, *, tensorboard: bool) -> None:
        self.path = folder / "metrics.jsonl"
        self.board: Any = None
        if tensorboard and importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(folder / "tensorboard"))
        self.file: Any = None

    def write(self, step: int, **facts: Any) -> None:
        """Write down what happened at a step."""
        if self.file is None:
            self._forget_from(step)
            self.file = self.path.open("a", encoding="utf-8")
        self.file.write(json.dumps({"step": step, **facts}, ensure_ascii=False) + "\n")
        self.file.flush()
        for name, fact in facts.items() if self.board is not None else ():
            if isinstance(fact, float):
                self.board.add_scalar(name, fact, step)
            elif isinstance(fact, str):
                self.board.add_text(name, fact, step)

    def close(self) -> None:
        """Have everything on the disk."""
        with contextlib.suppress(OSError):  # a full disk: whoever wrote has heard of it
            if self.file is not None:
                try:
                    os.fsync(self.file.fileno())
                finally:
                    self.file.close()
        if self.board is not None:
            self.board.close()

    def _forget_from(self, step: int) -> None:
        """Drop what was written by steps that are now done again, and a last line that was cut off."""
        kept = [line for line in read_lines(self.path) if line["step"] < step]
        replace_file(self.path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a diary, up to the first that is broken."""
    lines: list[dict[str, Any]] = []
    if path.is_file():
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]:
            try:
                lines.append(json.loads(line))
            except ValueError:
                break
    return lines

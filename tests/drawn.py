"""Every drawing of some answers."""

import json
from collections.abc import Iterator
from typing import Any

from glassformer.answers.answer import Answer as Look


def drawings(*groups: dict[str, Look]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and view of each, as it comes out of a JSON file."""
    for group in groups:
        for name, look in group.items():
            for drawing in look.views:
                yield f"{name} {drawing}", json.loads(json.dumps(look.view(drawing).spec, allow_nan=False))

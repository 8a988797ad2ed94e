"""Write src/bundled.json: the article's example as the storyteller reads it, which the page shows at once."""

import json
from pathlib import Path

from glassformer.server.insides import read
from glassformer.server.served import Served
from glassformer.server.settings import Settings
from glassformer.tasks.load import load

EXAMPLE = "A robot must obey the orders given it"
MODEL = "storyteller"
DIGITS = 5


def rounded(value: object) -> object:
    """Numbers with as many digits as a picture shows."""
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return {key: rounded(one) for key, one in value.items()} if isinstance(value, dict) else value


def bundled() -> str:
    """The file's content."""
    model = load(MODEL)
    served = Served(MODEL, model, Settings())
    reading = read(served, model.encode(EXAMPLE))
    return json.dumps(rounded(reading), ensure_ascii=False, separators=(",", ":")) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("src").joinpath("bundled.json").write_text(bundled(), encoding="utf-8")

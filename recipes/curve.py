"""The curve of a training, as a picture: loss over tokens, of every step and of the held-out text.

    python recipes/curve.py runs/first/metrics.jsonl runs/second/metrics.jsonl -o curve.svg

Several runs are drawn one after the other, as parts of one training.
"""

import argparse
from pathlib import Path

from glassformer.answers.training import curve


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the curve of a training.")
    parser.add_argument(
        "metrics", type=Path, nargs="+", help="metrics.jsonl of the run, or of its parts in their order"
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, help="the picture: .svg, .png, .pdf, .html"
    )
    asked = parser.parse_args()
    curve(asked.metrics).save(asked.output)


if __name__ == "__main__":
    main()

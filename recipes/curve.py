"""The curve of a training, as a picture: loss over tokens, of every step and of the held-out text.

    python recipes/curve.py runs/first/metrics.jsonl runs/second/metrics.jsonl -o curve.svg

Several runs are drawn one after the other, as parts of one training.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 360, 56, 44, 16, 16
POINTS = 400  # of the line of the steps: each is the mean of its stretch
INK, STEPS, HELD_OUT, GRID = "#333333", "#56b4e9", "#d55e00", "#dddddd"
Point = tuple[float, float]


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the curve of a training.")
    parser.add_argument("metrics", type=Path, nargs="+", help="metrics.jsonl of the run, or of its parts in their order")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the picture, .svg")
    asked = parser.parse_args()
    steps, held_out = read(asked.metrics)
    asked.output.write_text(draw(steps, held_out), encoding="utf-8")


def read(files: Sequence[Path]) -> tuple[list[Point], list[Point]]:
    """(millions of tokens, loss) of every step, and of every measurement."""
    steps: list[Point] = []
    held_out: list[Point] = []
    before = 0.0
    for file in files:
        tokens = before
        for line in map(json.loads, file.read_text().splitlines()):
            if "tokens" in line:
                tokens = before + line["tokens"] / 1e6
                steps.append((tokens, line["loss"]))
            elif "held_out" in line:
                held_out.append((tokens, line["held_out"]))
        before = tokens
    return steps, held_out


def draw(steps: Sequence[Point], held_out: Sequence[Point]) -> str:
    size = max(1, len(steps) // POINTS)
    line = [mean(steps[i : i + size]) for i in range(0, len(steps), size)]
    end = steps[-1][0]
    low = min(loss for _, loss in [*line, *held_out]) - 0.05
    high = min(max(loss for _, loss in line), low + 2.5)  # the first steps would press the rest together

    def place(point: Point) -> str:
        x = LEFT + point[0] / end * (WIDTH - LEFT - RIGHT)
        y = TOP + (high - min(point[1], high)) / (high - low) * (HEIGHT - TOP - BOTTOM)
        return f"{x:.1f},{y:.1f}"

    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for loss in ticks(low, high):
        x, y = place((0, loss)).split(",")
        parts.append(f'<path d="M{x} {y}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y}" dy="4" text-anchor="end">{loss:g}</text>')
    for tokens in ticks(0, end):
        x, y = place((tokens, low)).split(",")
        parts.append(f'<text x="{x}" y="{float(y) + 18}" text-anchor="middle">{tokens:g}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">million tokens</text>')
    parts.append(f'<polyline fill="none" stroke="{STEPS}" stroke-width="1.5" points="{" ".join(map(place, line))}"/>')
    parts.append(f'<polyline fill="none" stroke="{HELD_OUT}" stroke-width="2" points="{" ".join(map(place, held_out))}"/>')
    for number, (name, colour) in enumerate({"steps": STEPS, "held-out text": HELD_OUT}.items()):
        line_y = TOP + 16 + 18 * number
        parts.append(f'<path d="M{WIDTH - 240} {line_y}h24" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{WIDTH - 208}" y="{line_y}" dy="4">{name}, nats a token</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12"'
    return "\n".join([f'{head} fill="{INK}">', "<title>Loss over tokens</title>", *parts, "</svg>\n"])


def mean(points: Sequence[Point]) -> Point:
    return sum(x for x, _ in points) / len(points), sum(y for _, y in points) / len(points)


def ticks(low: float, high: float) -> list[float]:
    """Round numbers between two others, five to ten of them."""
    step = next(s for s in (10.0**e * m for e in range(-3, 6) for m in (1, 2, 5)) if (high - low) / s <= 10)
    return [step * n for n in range(int(-(-low // step)), int(high // step) + 1)]


if __name__ == "__main__":
    main()

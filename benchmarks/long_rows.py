"""Memory and time of one training step on one long row: dense attention beside GPT-3's bands.

    python benchmarks/long_rows.py [--lengths 1000 2000 4000] [--json FILE]

The Transformer-Decoder, which was trained to write the leads of Wikipedia, read segments of up to 4,000 tokens.
A model of 6 blocks × 256 with 8,000 tokens learns the end of a row, as a summary is learned. Every number comes
from a process of its own: the most memory that it ever had, less what it had before the step.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LENGTHS = [500, 1000, 2000, 4000]
SIZES: dict[str, Any] = {"layers": 6, "heads": 4, "width": 256, "vocab": 8000}
SUMMARY = 128  # tokens at the end of a row that are learned
# Every third layer dense, or all of them; dropout needs the whole pattern of a dense layer.
VARIANTS: dict[str, dict[str, Any]] = {
    "band of 256, one layer in six dense": {"stride": 6},
    "band of 256, every second layer dense, as GPT-3": {"stride": 2},
    "dense": {"stride": 1},
    "dense, with dropout": {"stride": 1, "dropout": 0.1},
    "dense, with dropout, but not of attention": {"stride": 1, "dropout": 0.1, "attention_dropout": False},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="tokens of a row")
    parser.add_argument("--json", type=Path, help="also write the figures into a file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(measure(asked.child, asked.lengths[0])))
        return
    found = []
    for name in VARIANTS:
        for length in asked.lengths:
            command = [sys.executable, __file__, "--child", name, "--lengths", str(length)]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found.append({"attention": name, "tokens": length, **json.loads(out)})
            one = found[-1]
            print(
                f"{name:<48} {length:>6,} tokens {one['megabytes']:>8,.0f} MB {one['seconds']:>7.2f} s",
                flush=True,
            )
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")


def measure(name: str, length: int) -> dict[str, float]:
    """One step, in this process."""
    import torch

    from glassformer.models.gpt import GPT3, GPT3Config
    from glassformer.training.objectives import learned_token

    torch.set_num_threads(1)
    config = GPT3Config(**SIZES, context=length, window=256, **VARIANTS[name])
    net = GPT3(config).initialize(0).train()
    # A short row first: what libraries set aside once is not the row's.
    for size in (64, length):
        ids = torch.randint(0, SIZES["vocab"], (1, size + 1), generator=torch.Generator().manual_seed(0))
        mask = (torch.arange(size) >= size - SUMMARY)[None]
        before, began = peak(), time.perf_counter()
        torch.autograd.backward(learned_token(net, {"ids": ids, "mask": mask}))
    return {"megabytes": round(peak() - before, 1), "seconds": round(time.perf_counter() - began, 3)}


def peak() -> float:
    """The most memory that this process ever had, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()

"""Speed of the plain path beside Hugging Face: GPT-2 small, fp32, 2 threads, both in one run.

    python benchmarks/decode.py [--rounds 7] [--json FILE]

Each side lives in a process of its own; samples are taken in turn, and one that was disturbed by other
processes is taken again. Random weights at the true size: they have the speed of trained ones.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from sides import Peer, arguments, compare, in_turn

SIDES = ("glassformer", "transformers")
WORK = {  # name -> prompt tokens, new tokens, rows
    "decode, batch 1 (64 + 128)": (64, 128, 1),
    "decode, batch 8 (64 + 32)": (64, 32, 8),
    "prefill 512": (512, 1, 1),
}
THREADS = 2


def serve(side: str, folder: str) -> None:
    """A child: load the model, then answer requests on stdin with seconds on stdout."""
    import torch

    torch.set_num_threads(THREADS)
    run = serve_ours(folder) if side == "glassformer" else serve_theirs(folder)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        prompt, new, rows = json.loads(line)
        ids = [[(7 * i + 13 * row) % 50000 for i in range(prompt)] for row in range(rows)]
        began = time.perf_counter()
        made = run(ids, new)
        seconds = time.perf_counter() - began
        assert made == rows * new, f"{side} made {made} tokens, not {rows * new}"
        print(json.dumps(seconds), flush=True)


def serve_ours(folder: str) -> Any:
    """Our whole path: `generate_many` with all that it does for every token."""
    import glassformer as gf

    lm = gf.load(folder, engine="torch")

    def run(ids: list[list[int]], new: int) -> int:
        return sum(len(out.tokens) for out in lm.generate_many(ids, max_new_tokens=new, temperature=0.0))

    return run


def serve_theirs(folder: str) -> Any:
    """Hugging Face's `generate`, greedy, with its default attention."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    model.eval()

    def run(ids: list[list[int]], new: int) -> int:
        rows = torch.tensor(ids)
        out = model.generate(
            rows,
            attention_mask=torch.ones_like(rows),
            max_new_tokens=new,
            min_new_tokens=new,
            do_sample=False,
            pad_token_id=0,
        )
        return int(out[:, rows.shape[1] :].numel())

    return run


def make_checkpoint(folder: Path) -> None:
    """GPT-2 small with random weights, as `transformers` writes it."""
    if (folder / "model.safetensors").is_file():
        return
    code = f"from transformers import GPT2Config, GPT2LMHeadModel; GPT2LMHeadModel(GPT2Config()).save_pretrained({str(folder)!r})"
    subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def main() -> None:
    parser = arguments(__doc__, rounds=7)
    parser.add_argument("--checkpoint", type=Path, default=Path("runs/bench/gpt2"))
    given = parser.parse_args()
    if given.serve:
        serve(*given.serve)
        return
    make_checkpoint(given.checkpoint)
    peers = {side: Peer.of(__file__, side, str(given.checkpoint), threads=THREADS) for side in SIDES}
    report: dict[str, Any] = {}
    for name, work in WORK.items():
        samples, disturbed = in_turn(peers, work, given.rounds)
        prompt, new, rows = work
        report[name] = compare(name, prompt if name.startswith("prefill") else new * rows, samples, disturbed)
    for peer in peers.values():
        peer.end()
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()

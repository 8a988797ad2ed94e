"""How the shipped `storyteller` was trained: simple stories, a vocabulary of its own, a small GPT-2.

    python recipes/storyteller.py [FOLDER OF STORIES] [--steps N] [--out FOLDER]

The stories are jsonl files with a `text` a line. Prints a line every 50 steps, saves every 250; the last save is the model.
"""

import argparse
import math
import os
import time
from pathlib import Path

import torch

from glassformer.data.corpus import Windows, join_tokens, read_texts
from glassformer.hub.folder import save_folder
from glassformer.models.gpt import GPT, Config
from glassformer.tokenizers import Tokenizer, train_tokenizer
from glassformer.training.loop import Schedule, fit
from glassformer.training.objectives import next_token

SHAPE = Config(layers=4, heads=5, width=160, vocab=2048, context=512)
SCHEDULE = Schedule(steps=3000, lr=3e-3, lr_floor=1e-4, warmup=100)
TRAIN = ("synthetic_train.jsonl.gz", "tinystories_train.jsonl.gz")
HELD_OUT = "tinystories_val.jsonl.gz"
BATCH, SEED = 8, 2026
DATA = Path(os.environ.get("GLASSFORMER_DATA", "../shared/data"))


@torch.inference_mode()
def bits_per_byte(model: GPT, tokenizer: Tokenizer, texts: list[str]) -> float:
    """−log2 p of the first 900 characters of 80 texts, a byte."""
    nats, size = 0.0, 0
    for text in texts[:80]:
        ids = [tokenizer.end or 0, *tokenizer.encode(text[:900])][: model.context]
        batch = torch.tensor([ids])
        nats += next_token(model, batch).item() * (len(ids) - 1)
        size += sum(len(tokenizer.bytes_of(id)) for id in ids[1:])
    return nats / math.log(2) / size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stories", type=Path, nargs="?", default=DATA / "stories")
    parser.add_argument("--steps", type=int, default=SCHEDULE.steps)
    parser.add_argument("--out", type=Path, default=Path("runs/storyteller"))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)

    stories = [text for name in TRAIN for text in read_texts(given.stories / name)]
    held_out = list(read_texts(given.stories / HELD_OUT))
    tokenizer = train_tokenizer(stories, SHAPE.vocab)
    tokens = join_tokens(stories, tokenizer)
    model = GPT(SHAPE).initialise(SEED)
    print(f"{len(stories):,} stories, {len(tokens):,} tokens, {SHAPE.parameters:,} parameters", flush=True)

    began = time.time()
    windows = Windows(tokens, context=SHAPE.context, batch=BATCH, seed=SEED)
    schedule = Schedule(**{**vars(SCHEDULE), "steps": given.steps})
    for at in fit(model, windows, next_token, schedule):
        done = at.step + 1
        if done % 50 == 0:
            print(
                f"step {done}/{given.steps}  loss {at.loss:.3f}  lr {at.lr:.1e}  {at.tokens_per_second:,.0f} tokens/s",
                flush=True,
            )
        if done % 250 == 0 or done == given.steps:
            save_folder(given.out, model, tokenizer, dtype=torch.float16)
            bits = bits_per_byte(model, tokenizer, held_out)
            print(f"saved after {(time.time() - began) / 60:.1f} min: {bits:.3f} bits per byte on {HELD_OUT}", flush=True)


if __name__ == "__main__":
    main()

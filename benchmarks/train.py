"""Speed of training beside the Hugging Face Trainer and a bare loop: fp32, 2 threads, all in one run.

    python benchmarks/train.py [--rounds 5] [--json FILE] [--only characters|gpt2]

`characters`: 11 M parameters (6 × 384, 65 symbols), 12 rows of 256. `gpt2`: GPT-2 small, 4 rows of 256. Each
side is its real loop, which trains on and on; it is held between samples. AdamW, clipping and a cosine
schedule for all, no dropout.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sides import Peer, arguments, compare, in_turn

from glassformer import machine

SIDES = ("glassformer", "Trainer", "bare loop")
WORK = {  # name -> layers, heads, width, vocabulary, rows, steps of a sample
    "characters": (6, 6, 384, 65, 12, 4),
    "gpt2": (12, 12, 768, 50257, 4, 1),
}
CONTEXT, THREADS, ENDLESS = 256, 2, 1_000_000
SCHEDULE: dict[str, Any] = {"lr": 1e-3, "warmup": 100, "weight_decay": 0.1, "clip": 1.0}


def serve(side: str, work: str) -> None:
    """A child: train on and on, held after every sample until the next is asked for."""
    if side == "glassformer":
        machine.keep_memory()  # as `glass train` does, before torch starts
    import torch

    torch.set_num_threads(THREADS)
    tokens = np.random.default_rng(0).integers(0, WORK[work][3], 1 << 20).astype(np.uint16)
    steps = {"glassformer": ours, "Trainer": theirs, "bare loop": bare}[side](work, tokens)
    next(steps)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        for _ in range(json.loads(line)):
            next(steps)
        print(json.dumps(time.perf_counter() - began), flush=True)


def ours(work: str, tokens: Any) -> Iterator[None]:
    """Our loop, with its shards, its stream and its events."""
    from glassformer.data.batches import Stream
    from glassformer.data.shards import Row
    from glassformer.models.gpt import GPT, Config
    from glassformer.training.hyperparameters import Hyperparameters
    from glassformer.training.loop import fit
    from glassformer.training.objectives import next_token

    layers, heads, width, vocab, rows, _ = WORK[work]
    folder = Path(tempfile.mkdtemp())
    tokens.tofile(folder / "row")
    stream = Stream(
        [Row(folder, [{"name": "row", "tokens": len(tokens)}], "uint16")], context=CONTEXT, seed=0
    )
    model = GPT(Config(layers=layers, heads=heads, width=width, vocab=vocab, context=CONTEXT)).initialize(0)
    for _ in fit(
        model,
        stream,
        objective=next_token,
        hyperparameters=Hyperparameters(steps=ENDLESS, batch=rows, **SCHEDULE),
    ):
        yield


def theirs(work: str, tokens: Any) -> Iterator[None]:
    """The Hugging Face Trainer, held by a callback after every step."""
    import queue
    import threading

    import torch
    import transformers

    layers, heads, width, vocab, rows, _ = WORK[work]
    config = transformers.GPT2Config(
        n_layer=layers, n_head=heads, n_embd=width, vocab_size=vocab, n_positions=CONTEXT, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, use_cache=False,
    )  # fmt: skip
    go: queue.Queue[int] = queue.Queue()
    done: queue.Queue[int] = queue.Queue()

    class Hold(transformers.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            done.put(1)
            go.get()

    class Windows(torch.utils.data.Dataset[dict[str, Any]]):
        def __len__(self) -> int:
            return (len(tokens) - 1) // CONTEXT

        def __getitem__(self, index: int) -> dict[str, Any]:
            ids = torch.from_numpy(tokens[index * CONTEXT : (index + 1) * CONTEXT].astype(np.int64))
            return {"input_ids": ids, "labels": ids}

    arguments = transformers.TrainingArguments(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=rows, max_steps=ENDLESS, learning_rate=SCHEDULE["lr"],
        warmup_steps=int(SCHEDULE["warmup"]), lr_scheduler_type="cosine", weight_decay=SCHEDULE["weight_decay"],
        max_grad_norm=SCHEDULE["clip"], logging_steps=10, save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    model: Any = transformers.GPT2LMHeadModel
    trainer = transformers.Trainer(
        model=model(config), args=arguments, train_dataset=Windows(), callbacks=[Hold()],
        data_collator=transformers.default_data_collator,
    )  # fmt: skip
    trainer.remove_callback(transformers.PrinterCallback)
    threading.Thread(target=trainer.train, daemon=True).start()
    while True:
        done.get()
        yield
        go.put(1)


def bare(work: str, tokens: Any) -> Iterator[None]:
    """A model and a loop as bare as they can be, in nanoGPT's manner."""
    import math

    import torch
    import torch.nn.functional as F
    from torch import Tensor, nn

    layers, heads, width, vocab, rows, _ = WORK[work]

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Tensor) -> Tensor:
            B, T, D = x.shape
            q, k, v = (
                part.view(B, T, heads, D // heads).transpose(1, 2)
                for part in self.qkv(self.ln1(x)).split(D, dim=2)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(B, T, D))
            y = self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))
            return torch.add(x, y)

    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(CONTEXT, width)
            self.blocks, self.ln = nn.ModuleList(Block() for _ in range(layers)), nn.LayerNorm(width)
            self.head = nn.Linear(width, vocab, bias=False)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)
            self.head.weight = self.wte.weight

        def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
            x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
            for block in self.blocks:
                x = block(x)
            return F.cross_entropy(self.head(self.ln(x)).flatten(0, 1), targets.flatten())

    model = Bare()
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": SCHEDULE["weight_decay"]},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=SCHEDULE["lr"], betas=(0.9, 0.95), fused=True)
    for step in range(ENDLESS):
        rate = SCHEDULE["lr"] * (min(1, step / SCHEDULE["warmup"]) + math.cos(math.pi * step / ENDLESS)) / 2
        for group in optimizer.param_groups:
            group["lr"] = rate
        starts = torch.randint(len(tokens) - CONTEXT - 1, (rows,)).tolist()
        batch = torch.stack([torch.from_numpy(tokens[i : i + CONTEXT + 1].astype(np.int64)) for i in starts])
        loss = model(batch[:, :-1], batch[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), SCHEDULE["clip"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 0:
            loss.item()
        yield


def main() -> None:
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--only", choices=list(WORK))
    given = parser.parse_args()
    if given.serve:
        serve(*given.serve)
        return
    report = {}
    for name in [given.only] if given.only else WORK:
        peers = {side: Peer.of(__file__, side, name, threads=THREADS) for side in SIDES}
        *_, rows, steps = WORK[name]
        samples, disturbed = in_turn(peers, steps, given.rounds)
        report[name] = compare(name, rows * CONTEXT * steps, samples, disturbed)
        for peer in peers.values():
            peer.end()
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""What can be measured of a storyteller, as the tables and samples of its card.

    python recipes/card.py runs/storyteller DATA

DATA holds tinystories_val and tales_val (.jsonl.gz), which no training may see.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch

import glassformer as gf
from glassformer.data.sources import read_texts
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.evaluate import evaluate

OPENING = "Once upon a time"
FIRST_SENTENCES = [
    "Once upon a time, there was a little dragon who was afraid of the dark.",
    "Tom and his sister Mia found a small red key in the garden.",
    "One rainy day, a cat named Pip wanted to learn how to swim.",
]
SAMPLES, GREEDY = 20, 3
REPEATED, TRIES = 40, 32  # tokens of a row that is said twice, and how many such rows
STRONG = 0.3  # share of a head's attention from which it is named


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a storyteller for its card.")
    parser.add_argument("model", help="the model's folder")
    parser.add_argument("data", type=Path, help="the folder of the held-out stories")
    asked = parser.parse_args()
    lm = gf.load(asked.model)
    for part in (figures(lm, asked.data), inside(lm, asked.data), samples(lm)):
        print(*part, "", sep="\n", flush=True)


def figures(lm: LanguageModel, data: Path) -> Iterator[str]:
    """Bits per byte on text it never saw."""
    yield "## Figures\n\n| held out | bits per byte |\n|---|---|"
    for name in ("tinystories_val", "tales_val"):
        found = next(evaluate(lm, str(data / f"{name}.jsonl.gz"), documents=80, characters=900))
        yield f"| {name} | {found.bits_per_byte:.4f} |"


def inside(lm: LanguageModel, data: Path) -> Iterator[str]:
    """What its heads look at, and where the next token becomes sure."""
    stories = [lm.encode(text) for text in list(read_texts(data / "tinystories_val.jsonl.gz"))[:40]]
    rows = torch.tensor([[lm.tokenizer.end, *ids[:120]] for ids in stories if len(ids) >= 120])  # type: ignore[union-attr]
    yield "## Inside\n"
    yield f"On {len(rows)} held-out stories, 120 tokens each:\n"
    with gf.trace(lm.net, "blocks.*.attn.pattern", "blocks.*.out") as seen:
        final = lm.net(rows)
    for site, pattern in seen.items():
        if site.endswith("pattern"):
            before = pattern.diagonal(-1, dim1=2, dim2=3)[..., 1:].mean((0, 2))
            first = pattern[:, :, 2:, 0].mean((0, 2))
            yield f"- {site}: previous token {shares(before)}; first token {shares(first)}"
    chosen = final.argmax(-1)
    yield "\n| after block | likeliest token is already the last block's | its probability | bits a token |\n|---|---|---|---|"
    for layer in range(lm.net.config.layers):
        logits = lm.net.head(lm.net.norm(seen[f"blocks.{layer}.out"]))
        same = (logits.argmax(-1) == chosen).float().mean()
        chance = logits.softmax(-1).gather(-1, chosen[..., None]).mean()
        bits = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), rows[:, 1:].flatten()
        ) / torch.log(torch.tensor(2))
        yield f"| {layer} | {same:.0%} | {chance:.0%} | {bits:.2f} |"
    draw = torch.Generator().manual_seed(0)
    random = torch.randint(0, lm.net.vocab - 1, (TRIES, REPEATED), generator=draw)
    yield from twice(lm, random, f"{TRIES} rows of {REPEATED} tokens drawn at random")
    yield from twice(lm, rows[:, 1 : REPEATED + 1], f"The first {REPEATED} tokens of each story")


def twice(lm: LanguageModel, rows: torch.Tensor, what: str) -> Iterator[str]:
    """Rows that are said twice: which heads look at what followed last time, and whether that helps."""
    both = torch.cat([rows, rows], 1)
    with gf.trace(lm.net, "blocks.*.attn.pattern") as seen:
        logits = lm.net(both)
    yield f"\n{what}, each said twice:\n"
    for site, pattern in seen.items():
        after = pattern.diagonal(1 - REPEATED, dim1=2, dim2=3)[..., 1:].mean(
            (0, 2)
        )  # from a token to what followed it before
        yield f"- {site}: what followed last time {shares(after)}"
    right = (logits[:, :-1].argmax(-1) == both[:, 1:]).float()
    once, again = right[:, : REPEATED - 1].mean(), right[:, REPEATED:].mean()
    yield f"\nGuessed right: {once:.0%} of the first saying, {again:.0%} of the second."


def shares(values: torch.Tensor) -> str:
    """The share of every head, the strong ones in bold."""
    return " ".join(f"**{value:.2f}**" if value >= STRONG else f"{value:.2f}" for value in values.tolist())


def samples(lm: LanguageModel) -> Iterator[str]:
    """Unedited: the opening with one seed after the other, a first sentence, and always the likeliest token."""
    yield f'## {SAMPLES} samples, unedited\n\nThe defaults, prompt "{OPENING}".\n'
    for seed in range(1, SAMPLES + 1):
        yield from quoted(f"Seed {seed}", str(lm.generate(OPENING, seed=seed)))
    yield "## First sentences of others\n\nThe defaults, seed 1.\n"
    for sentence in FIRST_SENTENCES:
        yield from quoted("", str(lm.generate(sentence, seed=1)))
    yield "## Greedy\n\nAlways the likeliest token.\n"
    for prompt in (OPENING, "One day", "There was a small boy named")[:GREEDY]:
        yield from quoted("", str(lm.generate(prompt, temperature=0)))


def quoted(title: str, text: str) -> Iterator[str]:
    if title:
        yield f"**{title}**\n"
    yield "\n".join(f"> {line}".rstrip() for line in text.strip().split("\n")) + "\n"


if __name__ == "__main__":
    main()

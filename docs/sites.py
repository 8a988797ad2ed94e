"""Write docs/sites.md, the table of what can be seen inside a model, from a real run of one.

python docs/sites.py
"""

from pathlib import Path

import torch

from glassformer.hub.transformerlens import BLOCK, POSITIONS_FIRST
from glassformer.models.gpt import GPT, Config
from glassformer.trace import AXES, sites_of

SIZES = {"B": 2, "T": 5, "D": 24, "H": 3, "K": 8, "N": 96, "V": 97}
WHAT = {
    "embed": "token and position, added: what goes into the first block",
    "in": "the residual stream as a block finds it",
    "attn.q": "queries",
    "attn.k": "keys",
    "attn.v": "values",
    "attn.scores": "q·k ÷ √K, with −∞ for what lies ahead",
    "attn.pattern": "softmax of the scores: who looks at whom",
    "attn.mix": "each head's mixture of values",
    "attn.out": "what attention adds to the stream: the heads, projected",
    "mid": "the stream after attention",
    "mlp.neurons": "the neurons of the feed-forward layer, after their activation",
    "mlp.out": "what the feed-forward layer adds to the stream",
    "out": "the stream as the block leaves it",
    "final": "the stream after the final norm",
    "logits": "a score for every token of the vocabulary",
}


def table() -> str:
    """The page."""
    config = Config(layers=2, heads=SIZES["H"], width=SIZES["D"], vocab=SIZES["V"], context=9)
    ids = torch.arange(SIZES["B"] * SIZES["T"]).view(SIZES["B"], SIZES["T"])
    seen = sites_of(GPT(config).initialize(0).eval(), ids)
    theirs = {ours: name for name, ours in BLOCK.items()}
    rows = []
    for site, value in seen.items():
        if site.startswith("blocks.1"):
            continue
        short = site.removeprefix("blocks.0.")
        name = theirs.get(short, "")
        letters = _letters(value, short)
        indexed = "head" if letters.startswith("(B, H") else "neuron"
        rows.append(
            f"| `{site.replace('blocks.0', 'blocks.i')}` | {letters} | {WHAT[short]}"
            f" | {f'`[{indexed}]`' if short.rpartition('.')[2] in AXES else ''}"
            f" | {f'`blocks.i.{name}`' if name else ''}{', positions before heads' if short in POSITIONS_FIRST else ''} |"
        )
    return HEAD + "\n".join(rows) + TAIL


def _letters(value: torch.Tensor, site: str) -> str:
    """A shape in letters; the last axis of who looks at whom runs over sources."""
    names = {size: letter for letter, size in SIZES.items()}
    letters = [names[size] for size in value.shape]
    if site in ("attn.scores", "attn.pattern"):
        letters[-1] = "S"
    return f"({', '.join(letters)})"


HEAD = """\
# What there is to see

Every value below has a name, its *site*, under which it can be read, edited and differentiated (`gf.trace`, `lm.edit`,
`lm.run_with_cache`). This page is written by `python docs/sites.py` from a run of GPT-2; a test compares.

Shapes: B batch, T positions, S source positions, D width, H heads, K head width, N neurons, V vocabulary.

| site | shape | what it is | index | in TransformerLens |
|---|---|---|---|---|
"""
TAIL = """

An **address** is a site, with an index where one head or neuron is meant: `blocks.5.attn.mix[1]`, `blocks.3.mlp.neurons[17]`.
`blocks.2.attn` and `blocks.2.mlp` are short for their `.out`. A `*` is one name between dots, as in `blocks.*.out`; at the
beginning or the end it is any number of names.

`logits, cache = lm.run_with_cache(text)` holds all of them. The names on the right are understood too, with TransformerLens'
shapes, and so are its short ones: `cache["pattern", 3]`, `cache["resid_post", 3]`. Weights are never altered on loading, so
values compare with `from_pretrained_no_processing`. It has names for a few more values (norms before they are applied, neurons
before their activation, tokens and positions before they are added); those have no site here.
"""

if __name__ == "__main__":
    (Path(__file__).parent / "sites.md").write_text(table(), encoding="utf-8")

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

Every value below has a name, its *site*, under which it can be read, edited and differentiated (`gf.trace`, `lm.trace`;
`lm.edit` and `lm.run_with_cache` on top of them). Values without a name here (what a norm returns, neurons before their
activation, the row of a token before that of its position is added) cannot be reached. This page is written by
`python docs/sites.py` from a run of GPT-2; a test compares.

Shapes: B batch, T positions, S source positions, D width, H heads, K head width, N neurons, V vocabulary.

| site | shape | what it is | index | in TransformerLens |
|---|---|---|---|---|
"""
TAIL = """

An **address** is a site, with an index where one head or neuron is meant: `blocks.5.attn.mix[1]`, `blocks.3.mlp.neurons[17]`.
`blocks.2.attn` and `blocks.2.mlp` are short for their `.out`. A `*` is one name between dots, as in `blocks.*.out`; at the
beginning or the end it is any number of names. Where places are edited or patched one by one, `blocks.*.attn.mix[*]` is every
head of every layer.

## Models with a source

A Transformer has the same sites twice, below `encoder.` and `decoder.`; its decoder blocks also have those of the attention to the source, `decoder.blocks.i.cross.…`, and `mid2` behind it. A recurrent
network takes a step a token, so that its sites have an axis of steps first:

| site | shape | what it is |
|---|---|---|
| `encoder.hidden`, `decoder.hidden` | (T, B, D) | the state after every token |
| `encoder.forwards.i.…`, `decoder.cells.i.…` | (T, B, D) | the gates of a cell: `reset`, `update`, `new` of a GRU; `input`, `forget`, `new`, `output`, `cell` of an LSTM |
| `encoder.states` | (B, T, D) | what the decoder may read of the source |
| `decoder.attn.scores`, `.pattern` | (T, B, 1, 1, S) | how every source token is scored, and weighed |
| `decoder.attn.context` | (T, B, D) | the weighted sum: the context vector |

## Reading and editing with functions

```python
import glassformer as gf

lm = gf.load("storyteller")
with lm.trace("blocks.*.attn.pattern") as seen:
    lm.generate("Once upon a time", max_new_tokens=3, temperature=0)
print(seen["blocks.0.attn.pattern"].shape)  # one more axis: a prompt, then two single tokens
print([value.shape[-2] for value in seen.each("blocks.0.attn.pattern")])  # [4, 1, 1]

with lm.trace("final", edits={"blocks.2.attn.mix[1]": lambda mix: mix * 0}) as seen:
    lm.generate("Once upon a time", max_new_tokens=1, temperature=0)
```

The values can be read when the `with` block has ended. A site that was met by N > 1 forward passes has the shape (N, …); where
their sizes differ, each axis is as long as the longest, and shorter values have zeros at the end. `seen.each(site)` has them
one by one, in their own shapes. While generating, `final` and `logits` hold the last position only. An edit is a function of one argument, the value of its site, and returns the new value in the
same shape and dtype. `gf.trace(lm.net, …)` does the same on a bare module; there, what other threads run on it meanwhile is
seen and edited too, while `lm.trace` makes them wait. With `grad=True` a run of `lm.net` can be differentiated:
[an example](gpt2.md#seeing-inside).

## Coming from TransformerLens

`logits, cache = lm.run_with_cache(text)` holds every site, as ordinary tensors without a gradient. It takes a text, token ids,
a tensor (B, T), or a list of texts of one length; an empty text is one end-of-text token. `lm.run_with_cache(text, *sites)`
holds some sites. The names on the right are understood too, with TransformerLens' shapes,
and so are the short ones: `cache["pattern", 3]`, `cache["resid_post", -1]`.

- **No token is put in front.** TransformerLens prepends `<|endoftext|>` (BOS) to a text by default; here a text is its own
  tokens. To compare, give it `prepend_bos=False`, or give ids that begin with `lm.tokenizer.end` here.
- **Weights are never altered on loading.** Values compare with those of its version 4 after
  `bridge = TransformerBridge.boot_transformers(name)` and `bridge.enable_compatibility_mode(no_processing=True)`, which has the
  names on the right; in versions before 4 with `HookedTransformer.from_pretrained_no_processing(name)`.
- **Its names are for reading.** Edits (`lm.edit`, `edits=` of a trace) take the sites on the left, in our shapes: heads before
  positions, and a function of one argument instead of a hook of two. A `value` of an edit comes from the site's own name,
  `cache["blocks.1.attn.mix"][0]`: the axes of `cache["z", 1]` are in another order, which is not noticed in a text with as
  many positions as the model has heads.
- **No counterpart**: `hook_embed`, `hook_pos_embed`, `ln*.hook_scale` and `hook_normalized`, `mlp.hook_pre`, and
  `attn.hook_result`, what each head adds to the stream: a head's `mix` times its columns of the matrix `attn.proj`. The part of
  it that raises a logit is in `out.attribution()`, head by head.

| there | here |
|---|---|
| `model.to_tokens(text)` | `lm.encode(text)`, a list |
| `model.cfg` | `lm.net.config` |
| `model.W_E`, `model.W_U` | `lm.net.tokens.weight`, `lm.net.head.weight.T` |
| `names_filter` | `lm.run_with_cache(text, "blocks.*.out")` |
| `model.run_with_hooks(…)` | `lm.trace(edits={site: function})`, and run `lm.net` inside |
| `cache.accumulated_resid(…)` | `out.lens()` |
| `cache.logit_attrs(…)` | `out.attribution()` |
"""

if __name__ == "__main__":
    (Path(__file__).parent / "sites.md").write_text(table(), encoding="utf-8")

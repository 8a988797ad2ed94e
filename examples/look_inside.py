"""Which earlier token does each head look at most, when the model reads the last one?"""

import torch

import glassformer as gf

lm = gf.load("storyteller")
ids = lm.encode("The cat sat on the mat. The cat sat on the")
with torch.no_grad(), gf.trace(lm.net, "blocks.*.attn.pattern") as seen:
    lm.net(torch.tensor([ids]))

for site, pattern in seen.items():
    for head, weights in enumerate(pattern[0, :, -1]):  # (H, S): the last position's row
        best = int(weights.argmax())
        print(
            f"{site}[{head}]  {weights[best]:>4.0%} on {lm.piece(ids[best])!r} ({len(ids) - 1 - best} back)"
        )

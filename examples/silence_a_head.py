"""Switch one attention head off and see what changes in the ten likeliest next tokens."""

import torch

import glassformer as gf

lm = gf.load("storyteller", engine="torch")  # as the runs with edits: to compare
prompt = "Lily and Tom went to the park. Tom gave the ball to"
print("whole:   ", [one.text for one in lm.top(prompt, 5)])
for head in range(lm.net.config.heads):
    with gf.trace(lm.net, edits={f"blocks.2.attn.mix[{head}]": torch.zeros_like}):
        print(f"without {head}:", [one.text for one in lm.top(prompt, 5)])

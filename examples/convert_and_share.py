"""A model made here opens in `transformers`: save a folder, load it there, compare the numbers."""

import tempfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import glassformer as gf

lm = gf.load("storyteller")
with tempfile.TemporaryDirectory() as folder:
    lm.save(f"{folder}/mine")
    theirs = AutoModelForCausalLM.from_pretrained(f"{folder}/mine")
    ids = AutoTokenizer.from_pretrained(f"{folder}/mine")("Once upon a time", return_tensors="pt")[
        "input_ids"
    ]

ours = torch.from_numpy(lm.logits(ids[0].tolist()))
with torch.no_grad():
    print("largest difference of a logit:", (ours - theirs(ids).logits[0]).abs().max().item())

"""python bare.py FOLDER: the engine without a server. Each line `[number, tokens]` is answered with its seconds."""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from serve.client import prompt

import glassformer as gf

lm = gf.load(sys.argv[1], engine="native")
print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    number, tokens = json.loads(line)
    began = time.perf_counter()
    found = lm.generate(
        prompt(number),
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        temperature=0.0,
        prompt_lookup_num_tokens=0,  # texts of a server's batch are written token by token
    )
    seconds = time.perf_counter() - began
    assert len(found.tokens) == tokens, f"{len(found.tokens)} tokens came, not {tokens}"
    print(json.dumps(seconds), flush=True)

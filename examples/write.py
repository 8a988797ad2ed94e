"""Write a story, then ask how probable every token was."""

import glassformer as gf

lm = gf.load("storyteller")
out = lm.generate("Once upon a time, there was a", max_new_tokens=30, seed=1)
print(out)
print()
for piece, logprob, candidates in zip(out.pieces, out.logprobs, out.top(3), strict=True):
    others = ", ".join(f"{one.text!r} {one.probability:.0%}" for one in candidates)
    print(f"{piece!r:>14}  {2.718281828**logprob:>4.0%}   likeliest: {others}")

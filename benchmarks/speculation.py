"""Prompt lookup beside plain decoding, in one process: how many times as fast, on texts of several kinds.

    python benchmarks/speculation.py [--rounds 7] [--tokens 192] [--checkpoint runs/bench/gpt2]

Both sides generate the same texts in turn, and the median of the ratios counts; tokens and log-probabilities
must be equal. Some texts are the model's own, drawn or greedy. Others are dictated: the engine does all its
work, and then the next token of a given text gets the highest score, so that code, lists and quotations can
be measured with any weights. GPT-2 small has random weights, and is measured if it is there (decode.py makes
it). All texts are cut into the storyteller's tokens.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import glassformer as gf
from glassformer.engine.native import Engine
from glassformer.generation.decode import Event, generate
from glassformer.generation.options import Options

ROOT = Path(__file__).parents[1]
PROMPT = 160  # tokens of a dictated text that are its prompt
DRAFT = Options().prompt_lookup_num_tokens
STORY = """A little mouse lived in a big red barn behind the farmer's house. Every night the mouse went to the
kitchen to look for cheese. One night a gray cat sat at the kitchen door, and the mouse could not get in. So the
mouse asked the old owl for help. The owl flew to the roof and called, and the cat went out to see who it was.
The mouse ran in, took the cheese, and gave half of it to the owl. From then on they were friends, and when the
moon was bright the owl told the mouse what it had seen from above: the river, the hills and the far city."""
QUOTING = f"{STORY}\n\nSummary. " + "".join(f'We read: "{one}." ' for one in STORY.split(". "))
NAMES = ("Tom", "Lily", "Ben", "Mia", "Sam", "Anna", "Tim", "Sue", "Max", "Joe", "Amy", "Bob")
LIST = "".join(
    f'{{"name": "{name}", "age": {at + 3}, "likes": ["red ball", "dog"], "friends": {7 * at % 5}}},\n'
    for at, name in enumerate(NAMES)
)


class Dictated:
    """The native engine, made to choose a given text: all of its work is done."""

    def __init__(self, engine: Engine, text: list[int]) -> None:
        self.engine, self.text = engine, text

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def step(self, ids: Any, cache: Any) -> Any:
        logits = self.engine.step(ids, cache)
        logits[0, self.text[cache.length]] = 1e4
        return logits

    def step_all(self, ids: Any, cache: Any) -> Any:
        first = cache.length + 1
        logits = self.engine.step_all(ids, cache)
        count = ids.shape[1]
        logits[0, np.arange(count), self.text[first : first + count]] = 1e4
        return logits


def run(model: Any, prompt: list[int], options: Options) -> tuple[float, list[Event]]:
    """Seconds, and what came."""
    began = time.perf_counter()
    events = list(generate(model, [prompt], options=options))
    return time.perf_counter() - began, events


def compare(work: "list[Work]", *, rounds: int) -> dict[str, Any]:
    """Ratios of plain decoding's time to that with prompt lookup, round by round; the first one warms up."""
    ratios, accepted, drafted = [], 0, 0
    for turn in range(rounds + 1):
        seconds = dict.fromkeys((0, DRAFT), 0.0)
        for model, prompt, options in work:
            made = {}
            for most in (0, DRAFT) if turn % 2 else (DRAFT, 0):
                taken, made[most] = run(model, prompt, Options(prompt_lookup_num_tokens=most, **options))
                seconds[most] += taken
            plain, ahead = ([event[1:] for event in made[most]] for most in (0, DRAFT))
            assert plain == ahead, "prompt lookup changed a token or a log-probability"
            drafts = made[DRAFT][-1].continuation.drafts
            accepted, drafted = accepted + drafts.accepted, drafted + drafts.drafted
        if turn:
            ratios.append(seconds[0] / seconds[DRAFT])
    return {
        "ratio": statistics.median(ratios),
        "rounds": ratios,
        "accepted per text": accepted / (rounds + 1) / len(work),
        "drafted per text": drafted / (rounds + 1) / len(work),
    }


Work = tuple[Any, list[int], dict[str, Any]]  # a model, a prompt, options


def works(engine: Engine, encode: Any, tokens: int) -> Iterator[tuple[str, list[Work]]]:
    """What is measured: the name of a kind of text, and its texts."""
    files = {
        "code": ("src/glassformer/cli/flags.py", "src/glassformer/hub/gpt2.py"),
        "prose": ("docs/engine.md", "CONTRIBUTING.md"),
    }
    texts = {kind: [(ROOT / name).read_text() for name in names] for kind, names in files.items()}
    texts |= {"a list": [LIST], "a summary that quotes": [QUOTING]}
    for kind, given in texts.items():
        work: list[Work] = []
        for text in given:
            ids = encode(text)[: PROMPT + tokens + 1]
            options = {"temperature": 0.0, "max_new_tokens": len(ids) - PROMPT - 1}
            work.append((Dictated(engine, ids), ids[:PROMPT], options))
        yield f"{kind}, dictated", work
    story, listed = encode("Once upon a time"), encode(LIST)[:PROMPT]
    count = {"max_new_tokens": tokens}
    drawn = [{"temperature": 0.7, "top_k": 40, "seed": seed} | count for seed in range(3)]
    wild = [{"temperature": 1.0, "top_k": 0, "seed": seed} | count for seed in range(3)]
    yield "greedy", [(engine, story, {"temperature": 0.0} | count)]
    yield "greedy after a list", [(engine, listed, {"temperature": 0.0} | count)]
    yield "drawn among 40", [(engine, story, options) for options in drawn]
    yield "drawn among all", [(engine, story, options) for options in wild]
    yield "drawn after a list", [(engine, listed, options) for options in drawn]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--checkpoint", type=Path, default=Path("runs/bench/gpt2"))
    parser.add_argument("--json", type=Path, help="write the figures here")
    given = parser.parse_args()

    teller = gf.load("storyteller", engine="native")
    models = {"storyteller": teller}
    if given.checkpoint.is_dir():
        models["GPT-2 small"] = gf.load(str(given.checkpoint), engine="native")
    report: dict[str, Any] = {}
    for name, lm in models.items():
        assert lm.engine is not None
        for kind, work in works(lm.engine, teller.encode, given.tokens):
            found = report[f"{name}: {kind}"] = compare(work, rounds=given.rounds)
            rounds = found["rounds"]
            print(
                f"{name + ', ' + kind:<48} {found['ratio']:.2f} × ({min(rounds):.2f} to {max(rounds):.2f});"
                f" {found['accepted per text']:.0f} of {found['drafted per text']:.0f} drafted tokens accepted",
                flush=True,
            )
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()

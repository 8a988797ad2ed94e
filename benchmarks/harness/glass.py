"""Glassformer's models for the lm-evaluation-harness (`pip install lm-eval`).

    python benchmarks/harness/glass.py storyteller --tasks stories --include-path benchmarks/harness --limit
    100

Any model that `glassformer.load` knows, any task the harness knows; `--include-path` names a folder of task
files of your own.
"""

import argparse
import json
from typing import Any

import lm_eval
import torch
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

import glassformer as gf


class GlassLM(LM):  # type: ignore[misc]
    """The three questions of the harness, answered by a `LanguageModel`."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.lm = gf.load(name, engine="torch")

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """log p of a continuation after a context, and whether it is what greedy decoding would write."""
        answers = []
        for request in requests:
            context, continuation = request.args
            before = self.lm.encode(context)
            answers.append(self._score(before, self._behind(context, continuation)))
        return answers

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """log p of a whole text from `<|endoftext|>` on, every token once, in windows of the model's context."""
        return [self._rolling(self.lm.encode(""), self.lm.encode(request.args[0])) for request in requests]

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """What the model writes after a prompt, up to one of the given texts."""
        answers = []
        for request in requests:
            prompt, how = request.args
            ids = self.lm.encode(prompt)
            new = min(int(how.get("max_gen_toks", 128)), self.lm.model.context // 2)
            ids = ids[-(self.lm.model.context - new) :]
            temperature = float(how.get("temperature", 0.0)) if how.get("do_sample") else 0.0
            out = self.lm.generate(
                ids, max_new_tokens=new, stop=how.get("until", ()), temperature=temperature, seed=0
            )
            answers.append(out.text)
        return answers

    def _behind(self, context: str, continuation: str) -> list[int]:
        """The tokens of a continuation, cut from those of the whole, as the harness does it."""
        whole, before = self.lm.encode(context + continuation), self.lm.encode(context)
        return whole[len(before) :] if whole[: len(before)] == before else self.lm.encode(continuation)

    def _rolling(self, start: list[int], ids: list[int]) -> float:
        size, total = self.lm.model.context - 1, 0.0
        for begin in range(0, len(ids), size):
            before = start if begin == 0 else ids[begin - 1 : begin]
            total += self._score(before, ids[begin : begin + size])[0]
        return total

    @torch.inference_mode()
    def _score(self, before: list[int], ids: list[int]) -> tuple[float, bool]:
        row = [*before, *ids][-(self.lm.model.context + 1) :]
        logp = torch.log_softmax(torch.from_numpy(self.lm.logits(row[:-1]))[-len(ids) :].double(), -1)
        wanted = torch.tensor(ids)
        return float(logp.gather(1, wanted[:, None]).sum()), bool((logp.argmax(-1) == wanted).all())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--tasks", required=True, help="names, separated by commas")
    parser.add_argument("--include-path", help="a folder with task files")
    parser.add_argument("--limit", type=int, help="examples of each task")
    given = parser.parse_args()
    manager = TaskManager(include_path=given.include_path)
    found = lm_eval.simple_evaluate(
        GlassLM(given.model),
        tasks=given.tasks.split(","),
        task_manager=manager,
        limit=given.limit,
        bootstrap_iters=0,
    )
    print(json.dumps(found["results"], indent=2, default=str))


if __name__ == "__main__":
    main()

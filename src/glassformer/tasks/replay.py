"""Replay: a generation again, to the bit, from the recipe that the answer of a server carries.

A recipe is what `"explain": {"recipe": true}` adds to an answer: the prompt's ids, the options with their
seed, the backend, a checksum of the weights, the edits, and the tokens with their log-probabilities.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from glassformer.errors import GlassError, InputError
from glassformer.generation.batching import GenerationRequest, generate_alone
from glassformer.tasks.backends import fingerprint
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.completion import Completion
from glassformer.tasks.load import load
from glassformer.tasks.options import check_options
from glassformer.tokenizers import TextStream

# Key -> type of what a recipe must have.
NEEDED: dict[str, type] = {
    "model": str,
    "weights": str,
    "engine": str,
    "prompt_ids": list,
    "token_ids": list,
    "logprobs": list,
    "choice": int,
    "options": dict,
    "stop": list,
    "stop_token_ids": list,
    "edits": list,
}


@dataclass(frozen=True)
class Replay:
    """A recipe whose keys were checked."""

    recipe: dict[str, Any]

    @classmethod
    def read(cls, data: Any) -> "list[Replay]":
        """The recipes of a JSON value: one itself, or those of an answer's choices."""
        if isinstance(data, dict) and isinstance(data.get("choices"), list):
            found = [_recipe_of(choice) for choice in data["choices"]]
        else:
            found = [_recipe_of(data) or data]
        recipes = [cls(one) for one in found if one is not None]
        if not recipes:
            raise InputError('the answer has no recipe; ask with "explain": {"recipe": true}')
        for one in recipes:
            one._check()
        return recipes

    def _check(self) -> None:
        if not isinstance(self.recipe, dict):
            raise InputError("a recipe must be a JSON object")
        for key, kind in NEEDED.items():
            if not isinstance(self.recipe.get(key), kind):
                raise InputError(f"the recipe's {key!r} is missing, or not a {kind.__name__}")

    def load(self, model: str | None = None, *, offline: bool = False) -> LanguageModel:
        """The model of the recipe, or another name of it, on the backend that chose the tokens."""
        kind, _, number = str(self.recipe["engine"]).partition(" ")
        how = {"quantize": number} if kind == "native" else {"dtype": number or "float32"}
        name = model or str(self.recipe["model"])
        lm = load(name, engine=kind, offline=offline, **how).expect(LanguageModel)
        if fingerprint(lm.net) != self.recipe["weights"]:
            raise InputError(f"{name} has other weights than the model of the recipe")
        return lm

    def run(self, lm: LanguageModel) -> Completion:
        """The same generation, which can be asked like any other; an error if a bit of it differs."""
        recipe = self.recipe
        options = dict(recipe["options"])
        if "logit_bias" in options:  # JSON has texts as keys
            options["logit_bias"] = {int(id): bias for id, bias in options["logit_bias"].items()}
        request = GenerationRequest(
            prompt=recipe["prompt_ids"],
            options=check_options(options),
            choice=recipe["choice"],
            ends=lm.ends,
            known=None if lm.tokenizer is None else len(lm.tokenizer),
        )
        completion = Completion(
            lm.text_of(request.prompt),
            list(request.prompt),
            request.choice,
            request.options.seed,
            model=lm,
            settings=request.options.summary(),
            engine=lm.backend.name,
        )
        with lm.edit(recipe["edits"]) if recipe["edits"] else nullcontext():
            ids = self._write(completion, request)
        if (ids, completion.logprobs) != (recipe["token_ids"], recipe["logprobs"]):
            raise GlassError(f"the replay differs from the recipe: it has the text {completion.text!r}")
        return completion

    def _write(self, completion: Completion, request: GenerationRequest) -> list[int]:
        """Fill a completion; the ids that were generated, the one that ended the text included."""
        lm, stop_ids = completion.lm, self.recipe["stop_token_ids"]
        stream = TextStream(lm.bytes_of, tuple(self.recipe["stop"]), after=request.prompt[-1])
        ids = []
        for output in generate_alone(lm.backend, request):
            if output.error is not None:
                raise output.error
            found = output.token or output.end
            if found is not None:
                ids.append(found.id)
            if output.token is not None and output.token.id not in stop_ids:
                completion.tokens.append(output.token.id)
                completion.logprobs.append(output.token.logprob)
                completion.text += stream.push(output.token.id)
            if output.finish or stream.stopped or (found is not None and found.id in stop_ids):
                completion.finish_reason = output.finish or "stop"
                break
        completion.text += stream.finish()
        return ids


def _recipe_of(choice: Any) -> Any:
    """The recipe that a choice of an answer carries, if it does."""
    explained = choice.get("explain") if isinstance(choice, dict) else None
    return explained.get("recipe") if isinstance(explained, dict) else None

"""What a model generated, which can be asked how it came about. Every answer is an `Answer`.

A question replays the text once, as it was generated: with the edits of the call, if it had any. A text that
was generated inside `with lm.edit(…)` must be asked inside it too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from glassformer.answers import ask
from glassformer.errors import InputError
from glassformer.generation.sampling import log_softmax
from glassformer.generation.speculation import Drafts
from glassformer.tasks.explained import Explained
from glassformer.tasks.options import check_options

if TYPE_CHECKING:
    from glassformer.answers.answer import Text
    from glassformer.answers.beams import Beams
    from glassformer.answers.lens import Lens
    from glassformer.answers.neurons import Factors
    from glassformer.answers.saliency import Saliency
    from glassformer.answers.tokens import Candidate, Probabilities, Top
    from glassformer.explain.edits import EditSession
    from glassformer.tasks.complete import LanguageModel

Array = np.ndarray[Any, Any]
ECCO = {"ig": "integrated_gradients", "saliency": "gradient"}  # what its methods are called there


@dataclass
class Completion(Explained):
    """What a model generated, how sure it was, and what one can ask about it.

    Positions count over prompt and answer together.
    """

    prompt: str
    prompt_tokens: list[int]
    choice: int
    seed: int
    tokens: list[int] = field(default_factory=list)  # after a stop string, including those that it is made of
    text: str = ""  # up to the stop string
    logprobs: list[float] = field(default_factory=list)
    # "stop": ended by itself or by a stop string; "length": by max_new_tokens; "context": it is full;
    # "cancelled"
    finish_reason: str = ""
    model: "LanguageModel | None" = field(default=None, repr=False, compare=False)
    settings: str = field(default="", compare=False)  # how tokens were chosen, in a few words
    engine: str = field(default="", compare=False)  # the backend that chose them
    seconds: float = field(default=0.0, compare=False)  # from the start of the call to its last token
    session: "EditSession | None" = field(default=None, repr=False, compare=False)  # edits of the call
    # Tokens that were read before they were chosen; their number depends on the speed of the machine.
    drafts: Drafts = field(default_factory=Drafts, repr=False, compare=False)
    _gap: float | None = field(default=None, init=False, repr=False, compare=False)

    def __str__(self) -> str:
        return self.prompt + self.text

    @property
    def lm(self) -> "LanguageModel":
        """The model that generated this."""
        if self.model is None:
            raise InputError("this result has lost its model")
        return self.model

    @property
    def ids(self) -> list[int]:
        """Prompt and answer."""
        return [*self.prompt_tokens, *self.tokens]

    @property
    def pieces(self) -> list[str]:
        """The text of every token of the answer."""
        return [self.lm.piece(id) for id in self.tokens]

    def to_dict(self) -> dict[str, Any]:
        """Everything that the same seed gives again, as plain data."""
        return {
            "prompt": self.prompt,
            "prompt_tokens": self.prompt_tokens,
            "text": self.text,
            "tokens": self.tokens,
            "pieces": self.pieces,
            "logprobs": self.logprobs,
            "finish_reason": self.finish_reason,
            "choice": self.choice,
            "seed": self.seed,
            "engine": self.engine,
        }

    def made(self) -> str:
        """How this came about: how tokens were chosen, by which backend, and how near torch is to that."""
        how = f"generated: {self.settings}"
        if self.session is not None and self.session.edits:
            first, *others = self.session.edits
            more = f" and {len(others)} more" if others else ""
            how += f", edits: {first.do} {first.site}{more}"
        if self.lm.engine is None or self.engine != self.lm.engine.name:
            return how
        gap = self.gap()
        near = "" if gap is None else f" (log-probabilities within {gap:.1g} of torch's)"
        return f"{how}, {self.engine}{near}"

    def gap(self) -> float | None:
        """The largest distance between the log-probabilities of the generated tokens and torch's.

        None if it is unknown: nothing was generated, the text outgrew the context, or the model is edited.
        """
        backend = self.lm.backend
        fits = backend.context is None or len(self.ids) - 1 <= backend.context
        comparable = bool(self.tokens) and fits and backend is self.lm.engine
        if self._gap is None and comparable:
            rows = self._replayed_logits()
            ours = [log_softmax(row)[token] for row, token in zip(rows, self.tokens, strict=True)]
            self._gap = float(np.abs(np.array(ours) - np.array(self.logprobs)).max())
        return self._gap

    def _replayed_logits(self) -> Array:
        """(N, V): the torch model's logits where each generated token was chosen."""
        import torch

        reading = self.lm.reading(self.ids[:-1], prompt=len(self.prompt_tokens))
        with self._replaying(), torch.inference_mode():
            logits = reading.run("logits", last=False)["logits"][0]  # (T, V)
        chosen: Array = logits[len(self.prompt_tokens) - 1 :].float().cpu().numpy()
        return chosen

    @contextmanager
    def _replaying(self) -> Iterator[None]:
        """Inside, the model runs with the edits of the call that generated this."""
        if self.session is None:
            yield
            return
        with self.lm.lock, self.session:
            yield

    def _text(self) -> "Text":
        from glassformer.answers.answer import Text  # here: generating needs no answers, and starts faster

        return Text(self.lm, self.ids, len(self.prompt_tokens), self.logprobs)

    def _ask(self, name: str, **how: Any) -> Any:
        with self._replaying():
            found = super()._ask(name, **how)
        return replace(found, made=self.made()) if self.settings else found

    # Questions that need what a completion knows; the others are those of every text that a model wrote.

    def top(self, k: int = 10) -> "list[list[Candidate]]":
        """For every token of the answer, the k likeliest tokens at its place: one replay of the text."""
        if not self.tokens:
            return []
        context = self.lm.net.context
        if context is not None and len(self.ids) - 1 > context:
            raise InputError("top(): this text outgrew the context and cannot be replayed as a whole")
        from glassformer.answers.answer import Text

        found = []
        for at, scores in enumerate(self._replayed_logits(), start=len(self.prompt_tokens)):
            before = Text(self.lm, self.ids[:at], scores=scores)
            found.append(cast("Top", ask("top", before, k=k)).candidates)
        return found

    def probabilities(self) -> "Probabilities":
        """How sure the model was of every token that it generated."""
        found: Probabilities = self._ask("probabilities")
        return found

    def beams(self, num_beams: int = 2, **options: Any) -> "Beams":
        """A beam search for as many tokens after the same prompt, as a tree; options as in `generate`."""
        usual = {"max_new_tokens": max(1, len(self.tokens))}
        chosen = check_options({**usual, "num_beams": num_beams, **options})
        found: Beams = self._ask("beams", options=chosen, ends=self.lm.ends)
        return found

    def _stack(self) -> Any:
        """The stack whose end the output reads."""
        return self.lm.net.stacks[-1]

    # The same questions under the names that Ecco gave them.

    def primary_attributions(self, attr_method: str = "grad_x_input") -> "Saliency":
        """Ecco's name for `saliency`."""
        return self.saliency(ECCO.get(attr_method, attr_method), tested=False)

    def layer_predictions(
        self, position: str | int | None = None, layer: int | None = None, *, topk: int = 10
    ) -> "Lens":
        """Ecco's name for `lens`; after one position or all, of one layer or all."""
        found = self.lens(topk)
        if position is not None:
            found = found.at(position)
        if layer is not None:
            found = found.where("stage", self._stack().site(layer, "out"))
        return found

    def run_nmf(
        self,
        n_components: int = 10,
        from_layer: int | None = None,
        *,
        to_layer: int | None = None,
        seed: int = 0,
    ) -> "Factors":
        """Ecco's name for `factors`; `to_layer` is the first that is left out."""
        layers = range(self._stack().layers)[from_layer:to_layer]
        return self.factors(n_components, layers=list(layers), seed=seed)

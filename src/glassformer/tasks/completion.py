"""What a model generated, which can be asked how it came about. Every answer is an `Answer`.

A question replays the text once, as it was generated: with the edits of the call, if it had any. A text that
was generated inside `with lm.edit(…)` must be asked inside it too.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from glassformer.answers import ask
from glassformer.errors import InputError
from glassformer.generation.sampling import log_softmax

if TYPE_CHECKING:
    from glassformer.answers.attention import Attention, FoundHeads, Heads, Rollout, Steps
    from glassformer.answers.cache import Cache
    from glassformer.answers.lens import Attribution, Lens, Rankings, Residual, WatchedRankings
    from glassformer.answers.neurons import Clusters, Factors, Neurons
    from glassformer.answers.saliency import Saliency
    from glassformer.answers.tokens import Candidate, Probabilities, Top
    from glassformer.explain.edits import EditSession
    from glassformer.tasks.complete import LanguageModel

Array = np.ndarray[Any, Any]
Word = str | int
ECCO = {"ig": "integrated_gradients", "saliency": "gradient"}  # what its methods are called there


@dataclass
class Completion:
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
    session: "EditSession | None" = field(default=None, repr=False, compare=False)  # edits of the call
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
        """Everything, as plain data."""
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

    def _ask(self, name: str, **how: Any) -> Any:
        from glassformer.answers.answer import Text  # here: generating needs no answers, and starts faster

        text = Text(self.lm, self.ids, len(self.prompt_tokens), self.logprobs)
        with self._replaying():
            found = ask(name, text, **how)
        return replace(found, made=self.made()) if self.settings else found

    # Questions: see `glassformer.answers.QUESTIONS`.

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

    def attention(
        self,
        layer: int | None = None,
        head: int | None = None,
        *,
        by_word: bool = False,
        values: bool = False,
        **where: str,
    ) -> "Attention | Heads":
        """Where a head attends, or a layer on average; without a layer, what kind of head each is.

        Where, here and below: `stack` of a model that has several (the last), and `part`, "attn" or "cross".
        """
        if layer is not None:
            found: Attention = self._ask(
                "attention", layer=layer, head=head, by_word=by_word, values=values, **where
            )
            return found
        if head is not None or values or by_word:
            raise InputError("a head, its values and words need a layer")
        return self.heads(**where)

    def heads(self, **where: str) -> "Heads":
        """What kind of head each is."""
        found: Heads = self._ask("heads", **where)
        return found

    def find_heads(self, source: Word, target: Word, *, k: int = 10, **where: str) -> "FoundHeads":
        """Which heads attend from one word (or position) to another."""
        found: FoundHeads = self._ask("find_heads", source=source, target=target, k=k, **where)
        return found

    def steps(self, layer: int, head: int, *, position: int = -1, **where: str) -> "Steps":
        """The five steps of one query."""
        found: Steps = self._ask("steps", layer=layer, head=head, position=position, **where)
        return found

    def rollout(self, layer: int | None = None, *, by_word: bool = False, stack: str = "") -> "Rollout":
        """Attention through all layers of a stack, or up to one."""
        found: Rollout = self._ask("rollout", layer=layer, by_word=by_word, stack=stack)
        return found

    def lens(self, k: int = 5, *, watch: Sequence[Word] = ()) -> "Lens":
        """What each layer would predict at each position."""
        found: Lens = self._ask("lens", k=k, watch=watch)
        return found

    def rankings(self) -> "Rankings":
        """At which rank every layer had each generated token."""
        found: Rankings = self._ask("rankings")
        return found

    def rankings_watch(self, watch: Sequence[Word], *, position: int = -1) -> "WatchedRankings":
        """Some words against each other after a position: at which rank every layer had them."""
        found: WatchedRankings = self._ask("rankings_watch", watch=watch, position=position)
        return found

    def attribution(self, number: int = 0, *, foil: Word | None = None) -> "Attribution":
        """Which parts raised the logit of the generated token of this number, or its lead over a foil."""
        if not 0 <= number < len(self.tokens):
            raise InputError(f"token {number} is out of range (0 to {len(self.tokens) - 1} were generated)")
        position = len(self.prompt_tokens) - 1 + number
        found: Attribution = self._ask("attribution", position=position, token=self.tokens[number], foil=foil)
        return found

    def residual(self, position: int = -1) -> "Residual":
        """A position's vector through the layers: its length, what was added to it, what it would predict."""
        found: Residual = self._ask("residual", position=position)
        return found

    def saliency(self, method: str = "grad_x_input", *, foil: Word | None = None, **how: Any) -> "Saliency":
        """Which tokens made each generated one likely, or likelier than a foil, with the test of the answer.

        How: `steps` of integrated gradients, `by_word`, `tested` (False: no test, which is faster),
        `progress` (a function).
        """
        found: Saliency = self._ask("saliency", method=method, foil=foil, **how)
        return found

    def neurons(self, layers: Sequence[int] | None = None, *, k: int = 5, stack: str = "") -> "Neurons":
        """Which neurons fire at which tokens; `.factors(8)` and `.clusters(8)` group them."""
        found: Neurons = self._ask("neurons", layers=layers, k=k, stack=stack)
        return found

    def factors(
        self, count: int, *, layers: Sequence[int] | None = None, seed: int = 0, stack: str = ""
    ) -> "Factors":
        """A few patterns over the tokens, of which all neurons are mixtures."""
        found: Factors = self._ask("factors", count=count, layers=layers, seed=seed, stack=stack)
        return found

    def clusters(
        self, count: int, *, layers: Sequence[int] | None = None, seed: int = 0, stack: str = ""
    ) -> "Clusters":
        """Neurons that fire at the same tokens, in groups."""
        found: Clusters = self._ask("clusters", count=count, layers=layers, seed=seed, stack=stack)
        return found

    def cache(self) -> "Cache":
        """What the key-value cache held and saved while this was generated."""
        found: Cache = self._ask("cache")
        return found

    def _stack(self) -> Any:
        """The stack whose end the output reads."""
        return self.lm.net.stacks[-1]

    # The same questions under the names that Ecco gave them.

    def primary_attributions(self, attr_method: str = "grad_x_input") -> "Saliency":
        """Ecco's name for `saliency`."""
        return self.saliency(ECCO.get(attr_method, attr_method), tested=False)

    def layer_predictions(
        self, position: int | None = None, layer: int | None = None, *, topk: int = 10
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

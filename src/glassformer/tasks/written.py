"""What a model wrote, which can be asked how it came about. Every answer is a `Look`.

A question replays the text once, as it was written; inside `with lm.edit(…)` it is answered with the edits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from glassformer.errors import InputError
from glassformer.generation.sampling import log_softmax
from glassformer.tasks.later import Later

if TYPE_CHECKING:
    from glassformer.explain import surgery
    from glassformer.tasks import look, questions
    from glassformer.tasks import neurons as firing
    from glassformer.tasks.complete import LanguageModel
    from glassformer.tasks.look import Look, Progress
else:
    surgery = Later("glassformer.explain.surgery")
    look = Later("glassformer.tasks.look")
    firing, questions = Later("glassformer.tasks.neurons"), Later("glassformer.tasks.questions")

Foil = str | int | None
Question = TypeVar("Question", bound=Callable[..., Any])
ECCO = {"ig": "integrated_gradients", "saliency": "gradient"}  # what its methods are called there


def silent(done: int, total: int) -> None:
    """Progress that nobody watches."""


def replay(question: Question) -> Question:
    """A question for which what was written is read again, behind its prompt."""

    @wraps(question)
    def ask(self: "Completion", *given: Any, **named: Any) -> Any:
        with surgery.replayed(len(self.prompt_tokens)):
            found = question(self, *given, **named)
        return replace(found, made=self.made()) if isinstance(found, look.Look) and self.settings else found

    return cast(Question, ask)


@dataclass(frozen=True)
class Candidate:
    """A token that could come next."""

    token: int
    text: str
    probability: float
    logprob: float


@dataclass
class Completion:
    """What a model wrote, how sure it was, and what one can ask about it. Positions count over prompt and answer together."""

    prompt: str
    prompt_tokens: list[int]
    choice: int
    seed: int
    tokens: list[int] = field(default_factory=list)  # after a stop string, including those that it is made of
    text: str = ""  # up to the stop string
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str = ""  # "stop": ended by itself or by a stop string; "length"; "cancelled"
    model: "LanguageModel | None" = field(default=None, repr=False, compare=False)
    settings: str = field(default="", compare=False)  # how tokens were chosen, in a few words
    engine: str = field(default="", compare=False)  # who chose them
    _gap: float | None = field(default=None, init=False, repr=False, compare=False)

    def __str__(self) -> str:
        return self.prompt + self.text

    @property
    def pieces(self) -> list[str]:
        """The text of every token of the answer."""
        return [self.lm.piece(id) for id in self.tokens]

    @replay
    def top(self, k: int = 10) -> list[list[Candidate]]:
        """For every token of the answer, the k likeliest tokens at its place: one replay of the whole text."""
        if not self.tokens:
            return []
        if len(self.prompt_tokens) + len(self.tokens) - 1 > self.lm.model.context:
            raise InputError(
                "top(): this text slid over the edge of the context and cannot be replayed as a whole"
            )
        logits = self.lm.logits([*self.prompt_tokens, *self.tokens[:-1]])
        return [self.lm.candidates(row, k) for row in logits[len(self.prompt_tokens) - 1 :]]

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
        """How this came about: how tokens were chosen, by whom, and how near the torch model, which explains it, is to that."""
        told = f"written: {self.settings}"
        if self.lm.engine is None or self.engine != self.lm.engine.name:
            return told
        gap = self.gap()
        near = "" if gap is None else f" (log-probabilities within {gap:.1g} of torch's)"
        return f"{told}, {self.engine}{near}"

    def gap(self) -> float | None:
        """How far the log-probabilities of the written tokens lie from those that the torch model gives them, at most.

        None where nothing can be told: nothing was written, it slid over the edge of the context, or the model is edited.
        """
        whole = self.ids[:-1]
        if (
            self._gap is None
            and self.tokens
            and len(whole) <= (self.lm.backend.context or len(whole))
            and self.lm.backend is self.lm.engine
        ):
            rows = self.lm.logits(whole)[len(self.prompt_tokens) - 1 :]
            apart = [
                abs(log_softmax(row)[token] - said)
                for row, token, said in zip(rows, self.tokens, self.logprobs, strict=True)
            ]
            self._gap = float(max(apart))
        return self._gap

    @property
    def lm(self) -> "LanguageModel":
        """The model that wrote this."""
        if self.model is None:
            raise InputError("this result has lost its model")
        return self.model

    @property
    def ids(self) -> list[int]:
        """Prompt and answer."""
        return [*self.prompt_tokens, *self.tokens]

    @replay
    def probabilities(self) -> "Look":
        """How sure the model was of every token that it wrote."""
        return questions.sure(self.lm, self)

    @replay
    def journey(self, position: int = -1) -> "Look":
        """A position's vector on its way up: how long it is, what was added to it, what it would say."""
        return questions.journey(self.lm, self.ids, position)

    @replay
    def attention(
        self,
        layer: int | None = None,
        head: int | None = None,
        *,
        by_word: bool = False,
        values: bool = False,
    ) -> "Look":
        """Where a head looks, or a layer on average; without a layer, what kind of head each is."""
        if layer is None and (head is not None or values or by_word):
            raise InputError("a head, its values and words need a layer")
        if layer is None:
            return questions.heads(self.lm, self.ids)
        return questions.pattern(self.lm, self.ids, layer, head, by_word=by_word, values=values)

    @replay
    def search(self, source: str | int, target: str | int, k: int = 10) -> "Look":
        """Which heads look from one word (or position) to another."""
        return questions.search(self.lm, self.ids, source, target, k)

    @replay
    def steps(self, layer: int, head: int, position: int = -1) -> "Look":
        """The five steps of one query."""
        return questions.steps(self.lm, self.ids, layer, head, position)

    @replay
    def rollout(self, layer: int | None = None, *, by_word: bool = False) -> "Look":
        """Attention through all layers, or up to one."""
        return questions.flow(self.lm, self.ids, layer, by_word=by_word)

    @replay
    def lens(self, k: int = 5, watch: Sequence[str | int] = ()) -> "Look":
        """What each layer would say at each position."""
        return questions.lens(self.lm, self.ids, k=k, watch=watch)

    @replay
    def rankings(self) -> "Look":
        """At which rank every layer had each written token."""
        return questions.rankings(self.lm, self)

    @replay
    def rankings_watch(self, watch: Sequence[str | int], position: int = -1) -> "Look":
        """Some words against each other after a position (the last of the text): at which rank every layer had them."""
        return questions.watched(self.lm, self.ids, watch, position)

    @replay
    def parts(self, number: int = 0, *, foil: Foil = None) -> "Look":
        """Who spoke for the written token of this number, or for its lead over another one: embedding, heads, MLPs."""
        if not 0 <= number < len(self.tokens):
            raise InputError(f"token {number} is not there; {len(self.tokens)} were written, counted from 0")
        other = None if foil is None else look.find_token(self.lm, foil)
        return questions.parts(
            self.lm, self.ids, len(self.prompt_tokens) - 1 + number, self.tokens[number], other
        )

    @replay
    def saliency(
        self, method: str = "grad_x_input", *, foil: Foil = None, progress: "Progress" = silent, **how: Any
    ) -> "Look":
        """Which tokens made each written one likely, or likelier than a foil, with the test of the answer.

        How: `steps` of integrated gradients, `by_word`, `tested` (False: no test, which is faster).
        """
        other = None if foil is None else look.find_token(self.lm, foil)
        return questions.why(self.lm, self, method, foil=other, progress=progress, **how)

    @replay
    def neurons(self, layers: Sequence[int] | None = None, k: int = 5) -> "firing.Neurons":
        """Which neurons fire at which tokens; `.nmf(8)` and `.clusters(8)` say what they have in common."""
        return firing.neurons(self.lm, self.ids, layers, k)

    @replay
    def cache(self) -> "Look":
        """What the key-value cache kept and saved while this was written."""
        return questions.memory(self.lm, self)

    # The same questions under the names that Ecco gave them.

    def primary_attributions(self, attr_method: str = "grad_x_input") -> "Look":
        """Ecco's name for `saliency`."""
        return self.saliency(ECCO.get(attr_method, attr_method), tested=False)

    def layer_predictions(
        self, position: int | None = None, layer: int | None = None, topk: int = 10
    ) -> "Look":
        """Ecco's name for `lens`; after one position or all, of one layer or all."""
        found = self.lens(topk)
        found = found if position is None else found.at(position)
        return found if layer is None else found.having("stage", f"blocks.{layer}.out")

    def run_nmf(
        self,
        n_components: int = 10,
        from_layer: int | None = None,
        to_layer: int | None = None,
        *,
        seed: int = 0,
    ) -> "Look":
        """Ecco's name for `neurons(layers).nmf(…)`; `to_layer` is the first that is left out."""
        layers = range(len(self.lm.model.blocks))[from_layer:to_layer]
        return self.neurons(list(layers)).nmf(n_components, seed=seed)

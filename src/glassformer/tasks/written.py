"""What a model wrote can be asked how it came about. Every answer is a `Look`: numbers, and a table of them.

A question replays the text once, as it was written; inside `with lm.edit(…)` it is answered with the edits.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glassformer.errors import InputError
from glassformer.tasks import questions
from glassformer.tasks.look import Look, Progress, find_token
from glassformer.tasks.neurons import Neurons, neurons

if TYPE_CHECKING:
    from glassformer.tasks.complete import LanguageModel


class Written:
    """The questions. Positions count over prompt and answer together."""

    prompt_tokens: list[int]
    tokens: list[int]
    model: "LanguageModel | None"

    @property
    def ids(self) -> list[int]:
        """Prompt and answer."""
        return [*self.prompt_tokens, *self.tokens]

    def attention(
        self, layer: int | None = None, head: int | None = None, *, by_word: bool = False, values: bool = False
    ) -> Look:
        """Where a head looks, or a layer on average; without a layer, what kind of head each is."""
        if layer is None:
            return questions.heads(self.lm, self.ids)
        return questions.pattern(self.lm, self.ids, layer, head, by_word=by_word, values=values)

    def steps(self, layer: int, head: int, position: int = -1) -> Look:
        """The five steps of one query."""
        return questions.steps(self.lm, self.ids, layer, head, position)

    def lens(self, k: int = 5, watch: Sequence[str | int] = ()) -> Look:
        """What each layer would say at each position."""
        return questions.lens(self.lm, self.ids, k=k, watch=watch)

    def rankings(self) -> Look:
        """At which rank every layer had each written token."""
        return questions.rankings(self.lm, self)

    def rankings_watch(self, watch: Sequence[str | int], position: int = -1) -> Look:
        """Some words against each other after a position (the last of the text): at which rank every layer had them."""
        return questions.watched(self.lm, self.ids, watch, position)

    def parts(self, number: int = 0, *, foil: str | int | None = None) -> Look:
        """Who spoke for the written token of this number, or for its lead over another one: embedding, heads, MLPs."""
        if not 0 <= number < len(self.tokens):
            raise InputError(f"token {number} is not there; {len(self.tokens)} were written, counted from 0")
        other = None if foil is None else find_token(self.lm, foil)
        return questions.parts(self.lm, self.ids, len(self.prompt_tokens) - 1 + number, self.tokens[number], other)

    def saliency(
        self,
        method: str = "grad_x_input",
        *,
        foil: str | int | None = None,
        by_word: bool = False,
        tested: bool = True,
        progress: Progress = lambda done, total: None,
    ) -> Look:
        """Which tokens made each written one likely, or likelier than a foil, with the test of the answer."""
        other = None if foil is None else find_token(self.lm, foil)
        return questions.why(self.lm, self, method, foil=other, by_word=by_word, tested=tested, progress=progress)

    def neurons(self, layers: Sequence[int] | None = None, k: int = 5) -> Neurons:
        """Which neurons fire at which tokens; `.nmf(8)` and `.clusters(8)` say what they have in common."""
        return neurons(self.lm, self.ids, layers, k)

    def cache(self) -> Look:
        """What the key-value cache kept and saved while this was written."""
        return questions.memory(self.lm, self)

    # The same questions under the names that Ecco gave them.

    def primary_attributions(self, attr_method: str = "grad_x_input") -> Look:
        """Ecco's name for `saliency`."""
        return self.saliency(attr_method, tested=False)

    def layer_predictions(self, position: int | None = None, topk: int = 10) -> Look:
        """Ecco's name for `lens`, after one position or all."""
        return self.lens(topk).at(position) if position is not None else self.lens(topk)

    def run_nmf(self, n_components: int = 10, *, layers: Sequence[int] | None = None, seed: int = 0) -> Look:
        """Ecco's name for `neurons(layers).nmf(…)`."""
        return self.neurons(layers).nmf(n_components, seed=seed)

    @property
    def lm(self) -> "LanguageModel":
        """The model that wrote this."""
        if self.model is None:
            raise InputError("this result has lost its model")
        return self.model

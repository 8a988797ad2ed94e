"""What one can ask about a text that a model wrote: the questions that completions and translations share."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glassformer.answers import ask
from glassformer.errors import InputError

if TYPE_CHECKING:
    from glassformer.answers.answer import Text
    from glassformer.answers.attention import Attention, FoundHeads, Heads, Rollout, Steps
    from glassformer.answers.cache import Cache
    from glassformer.answers.lens import Attribution, Lens, Rankings, Residual, WatchedRankings
    from glassformer.answers.neurons import Clusters, Factors, Neurons
    from glassformer.answers.saliency import Saliency

Word = str | int
PATTERNS = ("attention", "heads", "find_heads", "steps")  # questions about one pattern of attention


class Explained:
    """A text that a model wrote. Questions: see `glassformer.answers.QUESTIONS`."""

    def _text(self) -> "Text":
        """The text that the questions are about."""
        raise NotImplementedError

    def _ask(self, name: str, **how: Any) -> Any:
        if name in PATTERNS and how.get("stack") == "cross":  # the last stack's attention to the source
            how |= {"stack": "", "part": "cross"}
        return ask(name, self._text(), **how)

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

        Where, here and below: `stack` of a model that has several, "encoder", "decoder" (meant if none is
        named) or "cross", from the decoder to the source.
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

    def steps(self, layer: int, head: int, *, position: Word = -1, **where: str) -> "Steps":
        """The five steps of one query. Positions, here and below: a number, or a word that is there once."""
        found: Steps = self._ask("steps", layer=layer, head=head, position=position, **where)
        return found

    def rollout(self, layer: int | None = None, *, by_word: bool = False, stack: str = "") -> "Rollout":
        """Attention through all layers of a stack, or up to one."""
        found: Rollout = self._ask("rollout", layer=layer, by_word=by_word, stack=stack)
        return found

    def lens(self, k: int = 5, *, watch: Word | Sequence[Word] = ()) -> "Lens":
        """What each layer would predict at each position."""
        found: Lens = self._ask("lens", k=k, watch=watch)
        return found

    def rankings(self) -> "Rankings":
        """At which rank every layer had each generated token."""
        found: Rankings = self._ask("rankings")
        return found

    def rankings_watch(self, watch: Word | Sequence[Word], *, position: Word = -1) -> "WatchedRankings":
        """Some words against each other after a position: at which rank every layer had them."""
        found: WatchedRankings = self._ask("rankings_watch", watch=watch, position=position)
        return found

    def attribution(
        self,
        number: int | None = None,
        *,
        token: Word | None = None,
        position: Word | None = None,
        foil: Word | None = None,
    ) -> "Attribution":
        """Which parts raised the logit of the generated token `number` (the first), or its lead over a foil.

        Another `token` can be asked about at its place; or, instead of a number, any `position`, and the
        token that is likeliest after it.
        """
        if position is None:
            text = self._text()
            number = check_number(text, number or 0)
            position = text.prompt - 1 + number
            token = text.generated[number] if token is None else token
        elif number is not None:
            raise InputError("attribution: give the number of a generated token or a position, not both")
        found: Attribution = self._ask("attribution", position=position, token=token, foil=foil)
        return found

    def residual(self, position: Word = -1) -> "Residual":
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

    def neurons(
        self, layers: int | Sequence[int] | None = None, *, k: int = 5, first: int = 128, stack: str = ""
    ) -> "Neurons":
        """Which neurons fire at which tokens; `.factors(8)` and `.clusters(8)` group them.

        Its drawing `grid` shows the `first` neurons of each layer as they are.
        """
        found: Neurons = self._ask("neurons", layers=layers, k=k, first=first, stack=stack)
        return found

    def factors(
        self, count: int, *, layers: int | Sequence[int] | None = None, seed: int = 0, stack: str = ""
    ) -> "Factors":
        """A few patterns over the tokens, of which all neurons are mixtures."""
        found: Factors = self._ask("factors", count=count, layers=layers, seed=seed, stack=stack)
        return found

    def clusters(
        self, count: int, *, layers: int | Sequence[int] | None = None, seed: int = 0, stack: str = ""
    ) -> "Clusters":
        """Neurons that fire at the same tokens, in groups."""
        found: Clusters = self._ask("clusters", count=count, layers=layers, seed=seed, stack=stack)
        return found

    def cache(self) -> "Cache":
        """What the key-value cache held and saved while this was generated."""
        found: Cache = self._ask("cache")
        return found


def check_number(text: "Text", number: int) -> int:
    """The number of a generated token, counted from 0."""
    count = len(text.generated)
    if not count:
        raise InputError("nothing was generated; name a position instead")
    if not 0 <= number < count:
        raise InputError(f"token {number} is out of range (0 to {count - 1} were generated)")
    return number

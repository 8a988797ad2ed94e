"""The four shapes of recurrent networks, drawn from four small networks that are run."""

from typing import TYPE_CHECKING, Any, cast

from glassformer.answers import ask
from glassformer.hub.families import family

if TYPE_CHECKING:
    from glassformer.answers.shapes import Shapes

READ, WRITTEN = 4, 4  # tokens


def shapes() -> "Shapes":
    """One to many, many to one, many to many in step, and with encoder and decoder: each by a run."""
    from glassformer.answers.shapes import Example

    text, target = [*range(2, 2 + READ)], [*range(1, 1 + WRITTEN)]
    sizes = {"width": 8, "vocab": 16, "layers": 1, "bidirectional": False}
    one_label = _built("rnn", shape="classify", **sizes)
    labels = _built("rnn", shape="tag", **sizes)
    writer = _built("seq2seq", reads="last", **sizes)
    examples = [
        Example(writer, "a word or a picture becomes a sentence", [text[:1], target]),
        Example(one_label, "a text gets a label", [text]),
        Example(labels, "each word of a text gets a tag", [text]),
        Example(writer, "a sentence is read, then its translation written", [text[:-1], target[:-1]]),
    ]
    return cast("Shapes", ask("shapes", examples))


def _built(kind: str, **sizes: Any) -> Any:
    found = family(kind)
    return found.build(found.config(**sizes)).initialize(0).eval()

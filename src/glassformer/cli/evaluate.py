"""glass eval"""

from typing import TYPE_CHECKING, Any

from glassformer.cli import flags
from glassformer.cli.flags import Loading, argument, option
from glassformer.cli.printing import log, out, print_json
from glassformer.errors import counted

if TYPE_CHECKING:
    from glassformer.tasks.evaluate import Measurement


@flags.verb
@argument("model", "A shipped name, a folder, a run, a hub id or a name from `glass models`.")
@argument("what", "wikitext2, lambada, or a file or folder of text or JSON lines.")
@option("--stride", default=0, help="How far windows move in the second measurement; 0: half a window.")
@option("--documents", default=0, help="Only the first N documents; 0: all.")
@option("--characters", default=0, help="Only the first N characters of each; 0: all.")
@option("--field", default="text", help="The key under which a line of JSON has its text.")
@option("--engine", default="torch", help=flags.ENGINE)
@flags.loading(flags.revision, flags.device, flags.dtype, flags.offline)
@flags.as_json
def evaluate(what: str, loading: Loading, as_json: bool, **how: Any) -> None:
    """How well a model knows a text that it has not seen.

    \b
    glass eval runs/shakespeare part.txt     perplexity and bits per byte, without overlap and with a stride
    glass eval gpt2 wikitext2                the raw test set; read from GLASSFORMER_DATA
    glass eval gpt2 lambada                  the last word of a passage: accuracy and perplexity
    glass eval gpt2 wikitext2 --engine native    what eight bits cost

    Windows are as long as the model's context, first without overlap, then moving by a stride of half a
    window, so that nearly every token is predicted from at least half a window. Bits per byte divide by the
    length of the text instead of its tokens: they can be compared between vocabularies, perplexities cannot.
    Lower is better. The protocol is printed with every figure.
    """
    from glassformer.cli.progress import progress_bar
    from glassformer.tasks.evaluate import evaluate as measure
    from glassformer.tasks.evaluate import was_trained_on

    lm = loading.load_language_model()
    if was_trained_on(loading.model, what, revision=loading.revision):
        log(f"{loading.model} was trained on {what}: the figures do not say how well it predicts new text.")
    with progress_bar(what) as progress:
        found = list(measure(lm, what, progress=progress, **how))
    if as_json:
        print_json([one.to_dict() for one in found])
        return
    for one in found:
        out(f"{one.name}:  {'  '.join(figures_of(one))}", f"  {one.protocol}")


def figures_of(one: "Measurement") -> list[str]:
    """The figures of a measurement, each in a few words."""
    figures = [] if one.accuracy is None else [f"accuracy {one.accuracy:.2%}"]
    figures += [
        f"perplexity {one.perplexity:.2f}",
        f"loss {one.loss:.4f} nats a token",
        counted(one.tokens, "token"),
    ]
    if one.bits_per_byte is not None:
        figures.append(f"{one.bits_per_byte:.4f} bits per byte")
    return figures

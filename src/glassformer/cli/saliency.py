"""glass saliency"""

from typing import TYPE_CHECKING, Any

from glassformer.answers import ask
from glassformer.cli import flags
from glassformer.cli.flags import TEXT, option
from glassformer.cli.question import Request, question
from glassformer.errors import InputError

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer, Text

SAMPLING = ("max_new_tokens", "temperature", "seed")


@flags.verb
@option("-n", "--max-new-tokens", default=5, help="Generate N tokens first, and explain those.")
@option("--target", type=TEXT, help="Explain this continuation of the text, instead of generating one.")
@option(
    "--method",
    default="grad_x_input",
    help="grad_x_input, gradient, integrated_gradients, occlusion or rollout.",
)
@option("--not", "foil", type=TEXT, help="Why not this token instead (' are')?")
@flags.by_word
@option("--steps", default=32, help="Of integrated gradients: more of them, and the gap closes.")
@option("--test/--no-test", "tested", default=True, help="Deletion, insertion, agreement with other methods.")
@flags.temperature
@flags.seed
@question
def saliency(request: Request, method: str, foil: str | None, target: str | None, **given: Any) -> "Answer":
    """Which earlier tokens made the next ones likely.

    \b
    glass saliency -n 3 "The little dog was very"          three tokens, and what each is owed to
    glass saliency --method occlusion "Once upon a"        by taking tokens away
    glass saliency -n 1 --not " are" "The keys to the"     why this one and not that one
    glass saliency --target " sad" "The dog was very"      why it would write this

    A share below 0 is evidence against the token. Gap: how far integrated gradients are from adding up.
    Deletion: tokens are made blank, the most salient first, and the area under the curve of the token's
    probability, relative to the full one, is measured (low is good). Insertion: they are put back in that
    order (high is good). Both are areas by the trapezoid rule over eleven points: of a few tokens they are
    coarse, and they exceed 1 where a blank helps. Random order is the baseline of both, the mean of five
    orders. A blank is the embedding of <|endoftext|>, at the token's position.
    """
    from glassformer.cli.progress import progress_bar

    if foil is not None and method == "rollout":
        raise InputError("--not has no meaning for rollout, which knows no next token")
    if method != "integrated_gradients":
        flags.refuse("steps", why="needs --method integrated_gradients")
    sampling = {name: given.pop(name) for name in SAMPLING}
    if target is not None:
        flags.refuse(*SAMPLING, why="does not go with --target, which is not generated")
        text = _continued(request, target)
        with progress_bar(method) as progress:
            return ask("saliency", text, method=method, foil=foil, progress=progress, **given)
    completion = request.generate(**sampling)
    with progress_bar(method) as progress:
        return completion.saliency(method, foil=foil, progress=progress, **given)


def _continued(request: Request, target: str) -> "Text":
    """The text with a continuation, which counts as generated."""
    from glassformer.answers.answer import Text

    text = request.about
    written = text.lm.encode(target)
    if not target or not written:
        raise InputError("--target: the continuation is empty")
    return Text(text.lm, [*text.ids, *written], len(text.ids))

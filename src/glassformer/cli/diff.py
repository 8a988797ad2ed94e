"""glass diff"""

from functools import partial
from typing import TYPE_CHECKING

from glassformer.answers import ask
from glassformer.cli import flags
from glassformer.cli.question import TWO_MODELS, Request, question

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer


@flags.verb
@flags.argument("one", "A model: a shipped name, a folder, a run, a hub id.")
@flags.argument("other", "Another one with the same vocabulary.")
@partial(question, models=TWO_MODELS)
def diff(request: Request, one: str, other: str) -> "Answer":
    """Two models on one text, token by token.

    \b
    glass diff storyteller runs/mine "Once upon a time, there was a dog."
    """
    prompt = request.prompt  # before the models, which take longer to load
    return ask("diff", request.loading.load(one), prompt, other=request.loading.load(other))

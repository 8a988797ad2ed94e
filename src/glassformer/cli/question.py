"""What the verbs that look inside a model share: a text and a model come in, an answer goes out."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.cli import flags
from glassformer.cli.flags import Loading, Picture
from glassformer.cli.printing import print_answer
from glassformer.errors import InputError

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer, Text
    from glassformer.tasks.completion import Completion
    from glassformer.tasks.model import Model


@dataclass(frozen=True)
class Request:
    """What a question is about. Nothing is read or loaded before a verb needs it."""

    text: str | None
    file: Path | None
    loading: Loading

    @cached_property
    def prompt(self) -> str:
        """The text; it must not be empty."""
        prompt = flags.read_text(self.text, self.file)
        if not prompt:
            raise InputError("there is nothing to explain: the text is empty")
        return prompt

    @cached_property
    def lm(self) -> "Model":
        """The model; in torch, which is what can be looked into."""
        return self.loading.load()

    @cached_property
    def about(self) -> "Text":
        """The text as the model's tokens."""
        from glassformer.answers.answer import Text

        prompt = self.prompt  # before the model, which takes longer to load
        if "source" in self.lm.capabilities:
            raise InputError(
                f"{self.lm.name} writes from a source: ask about a translation, as in"
                " glass translate --attention, --lens or --saliency"
            )
        self.lm.warn_of_blank(prompt)
        return Text(self.lm, self.lm.encode(prompt))

    def generate(self, **options: Any) -> "Completion":
        """The text, continued by the model."""
        from glassformer.tasks.complete import LanguageModel

        prompt = self.prompt  # before the model, which takes longer to load
        return self.lm.expect(LanguageModel).generate(prompt, **options)


ONE_MODEL = (flags.model, flags.device, flags.dtype, flags.revision, flags.offline)
TWO_MODELS = (flags.device, flags.dtype, flags.offline)


def question(
    ask: Callable[..., "Answer"], *, models: tuple[flags.Decorator, ...] = ONE_MODEL
) -> flags.Function:
    """Give a function from a request and its own flags to an answer the flags that all questions share."""

    @flags.text
    @flags.file
    @flags.loading(*models)
    @flags.picture_of_any_drawing
    @functools.wraps(ask)
    def answered(text: str | None, file: Path | None, loading: Loading, picture: Picture, **own: Any) -> None:
        picture.check()
        answer = ask(Request(text, file, loading), **own)
        print_answer(answer, picture)

    return answered

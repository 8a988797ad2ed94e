"""Tokenizers side by side: the same text in the tokens of every vocabulary on this machine."""

import shlex
from typing import TYPE_CHECKING

from glassformer.answers import ask
from glassformer.errors import GlassError
from glassformer.server.errors import invalid
from glassformer.server.insides import Recent
from glassformer.server.snippets import of_studio
from glassformer.tasks.tokenize import load_tokenizer

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer
    from glassformer.server.shelf import Shelf
    from glassformer.tokenizers import Tokenizer

KEPT = 8  # tokenizers that are in memory


class Vocabularies:
    """The tokenizers of the models on this machine; no weights are read."""

    def __init__(self, shelf: "Shelf", *, port: int) -> None:
        self.shelf, self.port = shelf, port
        self._kept: Recent[Tokenizer] = Recent(KEPT)

    def tokens(self, name: str, text: str) -> "tuple[Answer, dict[str, str]]":
        """A text in the tokens of a model, and the code that finds the same."""
        tokenizer = self._find(name)
        try:
            return ask("tokens", tokenizer, text, model=name), code(name, text, port=self.port)
        except GlassError as error:
            raise invalid("text", str(error)) from None

    def _find(self, name: str) -> "Tokenizer":
        kept = self._kept.get(name)
        if kept is not None:
            return kept
        typed = self.shelf.typed(name)
        try:
            return self._kept.put(name, load_tokenizer(typed, offline=True))
        except GlassError as error:
            raise invalid("name", str(error)) from None


def code(name: str, text: str, *, port: int) -> dict[str, str]:
    """How to find the same tokens elsewhere."""
    python = [
        "import glassformer as gf",
        f"answer = gf.load({name!r}).tokens({text!r})",
        'answer.save("tokens.svg")',
        "print(answer.to_frame())",
    ]
    command = shlex.join(["glass", "tokenize", "-m", name, "--", text])
    curl = of_studio("tokens", {"name": name, "text": text}, port=port)
    return {"Python": "\n".join(python), "Command line": command, "curl": curl}

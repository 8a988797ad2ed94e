"""What the studio's page about translations asks: one translation, and questions about how it was written."""

from typing import TYPE_CHECKING, Any

from glassformer.answers import check
from glassformer.errors import InputError
from glassformer.server.errors import invalid
from glassformer.server.insides import Recent

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer
    from glassformer.server.served import Served
    from glassformer.tasks.translated import Translated

KEPT = 16  # translations, and answers about them
Asked = dict[str, dict[str, type]]
PLACE: dict[str, type] = {"layer": int, "head": int}
WHERE: dict[str, type] = {"stack": str, "part": str}
# The questions, and the options of each.
ASKED: Asked = {
    "alignment": {**PLACE, "by_word": bool},
    "attention": {**PLACE, **WHERE},
    "heads": WHERE,
    "steps": {**PLACE, **WHERE, "position": int},
    "lens": {"k": int},
    "unroll": {},
    "journey": {"number": int},
    "saliency": {"method": str, "tested": bool, "number": int},
}
MOST = 10_000  # a number in an option


class Translations:
    """Translations and the answers about them, each made once."""

    def __init__(self) -> None:
        self._texts: Recent[Translated] = Recent(KEPT)
        self._answers: Recent[Answer] = Recent(KEPT)

    def translate(self, served: "Served", text: str, *, to: str | None) -> "Translated":
        """The translation of a text, in the lane's thread."""
        kept = self._texts.get((served.id, text, to))
        if kept is not None:
            return kept
        translate = getattr(served.model, "translate", None)
        if translate is None:
            raise invalid("model", f"{served.id} does not translate")
        if not text.strip():
            raise invalid("text", "there is nothing to translate: the text is empty")
        languages: list[str] = getattr(served.model, "languages", [])
        if to is not None and to not in languages:
            raise invalid(
                "to", f"must be one of {', '.join(languages)}" if languages else "is not a choice here"
            )
        try:
            found: Translated = translate(text, to=to)
        except InputError as error:
            raise invalid("text", str(error)) from None
        return self._texts.put((served.id, text, to), found)

    def details(self, served: "Served", text: str, *, to: str | None) -> dict[str, Any]:
        """A translation as the page shows it; of several languages, into the last if none is named."""
        model: Any = served.model
        languages = getattr(model, "languages", [])
        to = languages[-1] if languages and to is None else to
        found = self.translate(served, text, to=to)
        offered = [name for name in ASKED if self._offers(served, name)]
        return {
            "text": found.text,
            "score": found.score,
            "finish": found.finish_reason,
            "tokens": [model.piece(id) for id in found.tokens],
            "languages": languages,
            "to": to,
            "questions": offered,
            "stacks": self.axes(served, text, to=to),
        }

    def axes(self, served: "Served", text: str, *, to: str | None) -> list[dict[str, Any]]:
        """The stacks whose attention can be looked at: their layers, and the tokens of rows and columns."""
        model: Any = served.model
        if not self._offers(served, "steps"):
            return []
        whole = self.translate(served, text, to=to)._text()
        found = []
        for name, stack, part in _stacks(model):
            rows, columns = whole.axes(stack=stack, part=part)
            labels = {"rows": rows.labels, "columns": columns.labels}
            found.append({"name": name, "stack": stack, "part": part, **labels})
        return found

    def _offers(self, served: "Served", question: str) -> bool:
        try:
            check(question, served.model)
        except InputError:
            return False
        return True

    def answer(
        self, served: "Served", text: str, *, to: str | None, question: str, options: dict[str, Any]
    ) -> "Answer":
        """The answer to a question about a translation."""
        check_options(question, options, asked=ASKED)
        key = (served.id, text, to, question, repr(sorted(options.items())))
        kept = self._answers.get(key)
        if kept is not None:
            return kept
        try:
            asked = getattr(self.translate(served, text, to=to), question)
            found: Answer = asked(**options)
        except InputError as error:
            raise invalid(question, str(error)) from None
        return self._answers.put(key, found)


def _stacks(model: Any) -> list[tuple[str, str, str]]:
    """Name, stack and part of every kind of attention that a model has."""
    names = [stack.name for stack in model.net.stacks]
    if "source" not in model.capabilities:
        return [("decoder", "", "attn")]
    within = [(name, name, "attn") for name in names]
    return [*within, ("cross", "", "cross")]


def check_options(question: str, options: dict[str, Any], *, asked: Asked) -> None:
    """Refuse what is no question here, and options that it does not take."""
    if question not in asked:
        raise invalid("question", f"{question!r} is not asked here; there is {', '.join(asked)}")
    takes = asked[question]
    for name, value in options.items():
        if name not in takes:
            raise invalid(f"options.{name[:40]}", f"is not an option of {question}")
        if type(value) is not takes[name] or (isinstance(value, int) and not 0 <= value <= MOST):
            raise invalid(f"options.{name}", f"must be a {takes[name].__name__} in range")

"""What the page about tasks asks: why a text is of a class, and by which rows summaries are learned."""

import shlex
from typing import TYPE_CHECKING, Any

from glassformer.answers import ask
from glassformer.errors import InputError
from glassformer.server.errors import invalid
from glassformer.server.insides import Recent
from glassformer.server.snippets import of_studio
from glassformer.tasks.summarize import room_of
from glassformer.tasks.tags import SUMMARIZE

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer
    from glassformer.server.served import Served

KEPT = 16  # answers
Code = dict[str, str]


class Classes:
    """Answers about classes, each found once."""

    def __init__(self) -> None:
        self._answers: Recent[Answer] = Recent(KEPT)

    def saliency(
        self, served: "Served", text: str, *, label: str | None, method: str
    ) -> "tuple[Answer, Code]":
        """Which tokens of a text speak for a class (the likeliest), with the test of that answer."""
        classify = getattr(served.model, "classify", None)
        if classify is None or not hasattr(served.model, "saliency"):
            raise invalid("model", f"{served.id} has no classes of texts")
        code = _code(served, text, label=label, method=method)
        key = (served.id, text, label, method)
        kept = self._answers.get(key)
        if kept is not None:
            return kept, code
        try:
            found: Answer = classify(text).saliency(label, method=method)
        except InputError as error:
            raise invalid("text", str(error)) from None
        return self._answers.put(key, found), code


def _code(served: "Served", text: str, *, label: str | None, method: str) -> Code:
    name, which = served.id, "" if label is None else f"{label!r}, "
    python = [
        "import glassformer as gf",
        f"answer = gf.load({name!r}).classify({text!r}).saliency({which}method={method!r})",
        'answer.save("saliency.svg")',
        "print(answer.to_frame())",
    ]
    named = [] if label is None else ["--label", label]
    words = ["glass", "classify", "-m", name, "--saliency", *named, "--method", method, "--", text]
    body = {"model": name, "text": text, "label": label, "method": method}
    curl = of_studio("classes", body, port=served.settings.port)
    return {"Python": "\n".join(python), "Command line": shlex.join(words), "curl": curl}


def summary_rows(served: "Served", text: str, *, target: str) -> "tuple[Answer, Code]":
    """A text and its summary as the row that a decoder learns from: text, tag, summary."""
    tokenizer = served.tokenizer
    tag: Any = tokenizer.special.get(SUMMARIZE)
    if tag is None:
        raise invalid("model", f"the vocabulary of {served.id} has no tag {SUMMARIZE}")
    try:
        how = {"tag": tag, "model": served.id, "room": room_of(served.writer)}
        found = ask("pair_rows", tokenizer, [(text, target)], **how)
    except InputError as error:
        raise invalid("text", str(error)) from None
    python = [
        "import glassformer as gf",
        f"answer = gf.load({served.id!r}).pair_rows([({text!r}, {target!r})])",
        'answer.save("pair_rows.svg")',
        "print(answer.to_frame())",
    ]
    words = ["glass", "show", "-m", served.id, "--training-rows", text, "--target", target]
    body = {"model": served.id, "text": text, "target": target}
    curl = of_studio("summary_rows", body, port=served.settings.port)
    return found, {"Python": "\n".join(python), "Command line": shlex.join(words), "curl": curl}

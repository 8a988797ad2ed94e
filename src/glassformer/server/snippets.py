"""The code behind a picture: Python, the command line and curl, each of which gives the same numbers."""

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from glassformer.server.explain import OF_MODEL, OF_NOTHING, OF_TOKENIZER

if TYPE_CHECKING:
    from glassformer.server.served import Served

KEY = "GLASSFORMER_API_KEY"
PASSAGES, LINE = "passages.jsonl", r"%s\n"
Options = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A question about a text, as a page asked it."""

    served: "Served"
    question: str
    ids: Sequence[int]
    prompt: int  # tokens that were given; the others were generated
    options: Options
    drawing: str | None = None

    @property
    def text(self) -> str | None:
        """The text, if the model divides it into the same tokens."""
        return self._same(self.ids)

    @property
    def parts(self) -> tuple[str, str] | None:
        """What was given and what was generated, if both are divided into the same tokens."""
        given, generated = (self._same(part) for part in (self.ids[: self.prompt], self.ids[self.prompt :]))
        return None if given is None or generated is None else (given, generated)

    @property
    def is_given(self) -> bool:
        """Whether all of the text was given."""
        return self.prompt == len(self.ids)

    def _same(self, ids: Sequence[int]) -> str | None:
        model = self.served.model
        text = model.text_of(ids)
        return text if model.tokenizer is not None and list(model.encode(text)) == list(ids) else None


def code(asked: Asked) -> dict[str, str]:
    """How to ask the same elsewhere, by the name of the language."""
    made = {"Python": _python(asked)}
    command = _command(asked)
    if command is not None:
        made["Command line"] = command
    made["curl"] = _curl(asked)
    return made


def of_translation(
    served: "Served", text: str, *, to: str | None, question: str, options: Options
) -> dict[str, str]:
    """How to ask the same about a translation."""
    how = ", ".join(f"{name}={value!r}" for name, value in options.items())
    language = "" if to is None else f", to={to!r}"
    lines = [
        "import glassformer as gf",
        f"model = gf.load({served.id!r})",
        f"answer = model.translate({text!r}{language}).{question}({how})",
        f'answer.save("{question}.svg")',
    ]
    body = {"model": served.id, "text": text, "to": to, "question": question, "options": options}
    made = {"Python": "\n".join(lines)}
    words = ["glass", "translate", "-m", served.id, *([] if to is None else ["--to", to])]
    made["Command line"] = shlex.join([*words, *_translation_flags(question, options), "--", text])
    return made | {"curl": of_studio("translation/view", body, port=served.settings.port)}


def _translation_flags(question: str, options: Options) -> list[str]:
    """The flags of `glass translate` that ask a question."""
    words = {"heads": ["--attention"], "steps": ["--steps", str(options.get("position", -1))]}
    found = words.get(question, [f"--{question}"])
    found += [str(options.get("number", 0))] if question == "journey" else []
    found += ["--of", str(options["number"])] if question == "saliency" and "number" in options else []
    for name, flag in (("layer", "--layer"), ("head", "--head")):
        found += [flag, str(options[name])] if name in options else []
    found += ["--words"] if options.get("by_word") else []
    if options.get("part") == "cross":
        return [*found, "--cross"]
    return [*found, "--stack", options["stack"]] if options.get("stack") else found


def of_model(name: str, *, port: int) -> dict[str, str]:
    """How to count a model's parameters elsewhere."""
    lines = [
        "from glassformer.answers import ask",
        "from glassformer.tasks import library",
        f"answer = ask('parameters', library.describe({name!r}, offline=True))",
        'answer.save("parameters.svg")',
        "print(answer.to_frame())",
    ]
    command = f"glass show {shlex.quote(name)}"
    curl = of_studio("models/parameters", {"name": name}, port=port)
    return {"Python": "\n".join(lines), "Command line": command, "curl": curl}


# Python


def _python(asked: Asked) -> str:
    lines, ask = _python_answer(asked)
    if "ask(" in ask:
        lines.insert(1, "from glassformer.answers import ask")
    drawing = "" if asked.drawing is None else f", drawing={asked.drawing!r}"
    save = f'answer.save("{asked.question}.svg"{drawing})'
    return "\n".join([*lines, ask, save, "print(answer.to_frame())"])


def _python_answer(asked: Asked) -> tuple[list[str], str]:
    """The lines that load a model, and the one that asks."""
    question, options, text = asked.question, asked.options, asked.text
    how = "".join(f", {name}={value!r}" for name, value in options.items())
    load = ["import glassformer as gf", f"lm = gf.load({asked.served.id!r})"]
    given = repr(list(asked.ids)) if text is None else repr(text)
    if question in OF_NOTHING:
        return load, f"answer = ask({question!r}{how})"
    if question == "examples":
        rest = "".join(f", {name}={value!r}" for name, value in options.items() if name != "texts")
        return load, f"answer = lm.examples({options.get('texts')!r}{rest})"
    if question in OF_MODEL:
        return load, f"answer = ask({question!r}, lm{how})"
    if question == "top":
        return load, f"answer = lm.top({given}{how})"
    if question == "probabilities":
        return load, f"answer = lm.probabilities({given}, given={asked.prompt})"
    if question in OF_TOKENIZER:
        return load, f"answer = lm.{question}({asked.served.model.text_of(asked.ids)!r}{how})"
    ids = given if text is None else f"lm.encode({given})"
    generated = "" if asked.is_given else f", {asked.prompt}"
    load.insert(1, "from glassformer.answers.answer import Text")
    return load, f"answer = ask({question!r}, Text(lm, {ids}{generated}){how})"


# The command line


def _flags(*names: str, **others: str) -> Callable[[Options], list[str]]:
    """A function from options to flags: --name for each of the names, or another flag."""
    flags = {name: f"--{name.replace('_', '-')}" for name in names} | others

    def found(options: Options) -> list[str]:
        words = []
        for name, flag in flags.items():
            value = options.get(name)
            for one in value if isinstance(value, list) else [value]:
                words += [] if one is None else [flag, str(one)]
        return words

    return found


def _edited(options: Options) -> list[str]:
    edits = json.dumps(options.get("edits", []), ensure_ascii=False)
    count = str(options.get("max_new_tokens", 0))
    return ["--edit", edits, "--max-new-tokens", count, "-k", str(options.get("k", 10))]


def _neurons(options: Options) -> list[str]:
    return ["-k", str(options.get("k", 5)), *_flags("first", layers="--layer")(options)]


def _promotes(options: Options) -> list[str]:
    return ["--promotes", f"{options['layer']}.{options['neuron']}", "-k", str(options.get("k", 10))]


PLACE = _flags("layer", "head")


def _attention(options: Options) -> list[str]:
    return [*PLACE(options), *(["--words"] if options.get("by_word") else [])]


# Question -> the verb that asks it about a text, and the flags of its options.
VERBS: dict[str, tuple[str, Callable[[Options], list[str]]]] = {
    "attention": ("attention", _attention),
    "heads": ("attention", PLACE),
    "steps": ("attention", _flags("layer", "head", position="--steps")),
    "rollout": ("attention --rollout", _flags("layer")),
    "lens": ("lens --position all", _flags(k="-k")),
    "rankings_watch": ("lens", _flags("watch", "position")),
    "residual": ("lens --residual", _flags("position")),
    "tokens": ("tokenize", _flags()),
    "merges": ("tokenize --merges", _flags()),
    "embedding": ("tokenize --embedding", _flags()),
    "top": ("top", _flags("temperature", "top_k", "top_p", "min_p", k="-k")),
    "neurons": ("neurons", _neurons),
    "factors": ("neurons", _flags(count="--factors", layers="--layer")),
    "edit": ("edit", _edited),
}


def _command(asked: Asked) -> str | None:
    """The same on the command line; None where no verb asks it about these tokens."""
    question, options = asked.question, asked.options
    glass, model = ["glass"], ["-m", asked.served.id]
    shown = [] if asked.drawing is None else ["--as", asked.drawing]
    if question == "robot":
        return "glass attention --robot"
    if question == "promotes":
        return shlex.join([*glass, "neurons", *model, *_promotes(options)])
    if question == "examples":
        return _examples(asked)
    if question == "saliency" and asked.parts is not None and not asked.is_given:
        given, generated = asked.parts
        words = _flags("method", "steps", foil="--not")(options)
        words += [] if options.get("tested", True) else ["--no-test"]
        return shlex.join([*glass, "saliency", *model, *words, "--target", generated, "--", given])
    if question == "attribution" and asked.parts is not None:
        return _attribution(asked)
    if question == "probabilities" and asked.text is not None and asked.prompt == 1:
        return shlex.join([*glass, "top", "--each", *model, "--", asked.text])
    if question == "training_rows" and asked.text is not None:
        rows = ["--training-rows", asked.text, *_flags("window")(options)]
        return shlex.join([*glass, "show", *model, *rows])
    if question not in VERBS or asked.text is None or not asked.is_given:
        return None
    verb, flags = VERBS[question]
    return shlex.join([*glass, *verb.split(), *model, *flags(options), *shown, "--", asked.text])


def _attribution(asked: Asked) -> str | None:
    """`glass lens --attribution` is about the token after a text."""
    model, token = asked.served.model, asked.options.get("token")
    given = asked.ids[: asked.prompt]
    if asked.parts is None or asked.options.get("position") != len(given) - 1 or not isinstance(token, int):
        return None
    name = model.text_of([token])
    if list(model.encode(name)) != [token]:
        return None
    words = ["glass", "lens", "--attribution", "-m", asked.served.id, "--token", name]
    return shlex.join([*words, "--", asked.parts[0]])


def _examples(asked: Asked) -> str:
    """Two lines: the passages as a file, and the question about them."""
    options = asked.options
    rows = [json.dumps({"text": text}, ensure_ascii=False) for text in options.get("texts", [])]
    write = f"{shlex.join(['printf', LINE, *rows])} > {PASSAGES}"
    place = f"{options.get('layer')}.{options.get('neuron')}"
    words = ["glass", "neurons", "-m", asked.served.id, "--examples", place, "--corpus", PASSAGES]
    return f"{write}\n{shlex.join([*words, '-k', str(options.get('k', 5))])}"


# curl


def _curl(asked: Asked) -> str:
    """By the API that every client has, where that knows the question; else by the studio's own."""
    served, question = asked.served, asked.question
    if asked.text is not None and asked.is_given and question != "top":
        body = {"model": served.id, "prompt": asked.text, "echo": True, "max_tokens": 0}
        body["explain"] = {question: asked.options or True}
        return _request(served.settings.port, "/v1/completions", body)
    body = {"model": served.id, "ids": list(asked.ids), "prompt": asked.prompt, "question": question}
    return of_studio("view", body | {"options": asked.options}, port=served.settings.port)


def of_studio(path: str, body: dict[str, Any], *, port: int) -> str:
    """A request to the studio itself."""
    return _request(port, f"/studio/{path}", body)


def _request(port: int, path: str, body: dict[str, Any]) -> str:
    asked = json.dumps(body, ensure_ascii=False)
    key = f'-H "Authorization: Bearer ${KEY}"'
    url = f"http://127.0.0.1:{port}{path}"
    return f"curl {url} {key} -H 'Content-Type: application/json' \\\n  -d {shlex.quote(asked)}"

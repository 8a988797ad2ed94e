"""The code behind a picture: Python, the command line and curl, each of which gives the same numbers."""

import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glassformer.server.explain import OF_MODEL, OF_NOTHING, OF_TOKENIZER

if TYPE_CHECKING:
    from glassformer.server.served import Served
    from glassformer.tasks.compose import Composition

KEY = "GLASSFORMER_API_KEY"
VERBS = {  # question -> verb of the command line, and the flags of its options
    "attention": ("attention", {"layer": "--layer", "head": "--head"}),
    "heads": ("attention", {}),
    "steps": ("attention", {"layer": "--layer", "head": "--head", "position": "--steps"}),
    "rollout": ("attention --rollout", {"layer": "--layer"}),
    "lens": ("lens --position all", {"k": "-k"}),
    "rankings_watch": ("lens", {"watch": "--watch", "position": "--position"}),
    "residual": ("lens --residual", {"position": "--position"}),
    "tokens": ("tokenize", {}),
    "merges": ("tokenize --merges", {}),
    "top": ("top", {"k": "-k"}),
}


def code(
    served: "Served",
    question: str,
    *,
    ids: Sequence[int],
    prompt: int,
    options: dict[str, Any],
) -> dict[str, str]:
    """How to ask the same elsewhere, by the name of the language."""
    text = served.model.text_of(ids)
    same = served.model.tokenizer is not None and list(served.model.encode(text)) == list(ids)
    shown = text if same else None
    made = {"Python": _python(served, question, ids=ids, text=shown, prompt=prompt, options=options)}
    if shown is not None and question in VERBS and prompt == len(ids):
        made["Command line"] = _command(served, question, text=shown, options=options)
    if shown is not None and prompt == len(ids):
        made["curl"] = _curl(served, question, text=shown, options=options)
    return made


def of_translation(
    served: "Served", text: str, *, to: str | None, question: str, options: dict[str, Any]
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
    return {"Python": "\n".join(lines)}


ABOUT_PIECES = {"arcs": "--arcs", "note_saliency": "--saliency", "events": "--events", "roll": ""}


def of_piece(
    served: "Served", piece: "Composition", question: str, *, options: dict[str, Any]
) -> dict[str, str]:
    """How to ask the same about a piece; the command line reads it from the file that the page saves."""
    how = ", ".join(f"{name}={value!r}" for name, value in options.items())
    lines = [
        "import glassformer as gf",
        f"model = gf.load({served.id!r})",
        f"piece = model.hear({piece.text!r}, given={piece.given!r}, quarter={piece.score.quarter!r})",
        f"answer = piece.{question}({how})",
        f'answer.save("{question}.svg")',
    ]
    flag = [ABOUT_PIECES[question]] if ABOUT_PIECES[question] else []
    note = [str(options["note"])] if "note" in options else []
    layer = ["--layer", str(options["layer"])] if question == "arcs" and "layer" in options else []
    words = ["glass", "compose", "-m", served.id, "--prime", "piece.mid", "--seconds", "0"]
    command = shlex.join([*words, *flag, *note, *layer, "-o", f"{question}.svg"])
    made = {"Python": "\n".join(lines), "Command line": command}
    if question == "roll":
        body = {"model": served.id, "text": piece.text, "seconds": 0, "format": "mid"}
        made["curl"] = _request(served, "tasks/compose", body)
    return made


def of_model(name: str) -> dict[str, str]:
    """How to count a model's parameters elsewhere."""
    return {"Command line": f"glass show {shlex.quote(name)}"}


def _python(
    served: "Served",
    question: str,
    *,
    ids: Sequence[int],
    text: str | None,
    prompt: int,
    options: dict[str, Any],
) -> str:
    how = "".join(f", {name}={value!r}" for name, value in options.items())
    load = ["import glassformer as gf", f"lm = gf.load({served.id!r})"]
    if question in OF_NOTHING:
        asked = f"answer = ask({question!r}{how})"
    elif question in OF_MODEL:
        asked = f"answer = ask({question!r}, lm{how})"
    elif question in OF_TOKENIZER:
        whole = served.model.text_of(ids) if text is None else text
        asked = f"answer = lm.{question}({whole!r}{how})"
    else:
        given = f"lm.encode({text!r})" if text is not None else repr(list(ids))
        written = f", {prompt}" if prompt < len(ids) else ""
        load.insert(1, "from glassformer.answers.answer import Text")
        asked = f"answer = ask({question!r}, Text(lm, {given}{written}){how})"
    if "ask(" in asked:
        load.insert(1, "from glassformer.answers import ask")
    return "\n".join([*load, asked, f'answer.save("{question}.svg")', "print(answer.to_frame())"])


def _command(served: "Served", question: str, *, text: str, options: dict[str, Any]) -> str:
    verb, flags = VERBS[question]
    words = ["glass", *verb.split(), "-m", served.id]
    for name, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            words += [flags[name], str(one)] if name in flags else []
    return shlex.join([*words, "--", text])


def _curl(served: "Served", question: str, *, text: str, options: dict[str, Any]) -> str:
    body = {"model": served.id, "prompt": text, "echo": True, "max_tokens": 0}
    return _request(served, "completions", {**body, "explain": {question: options or True}})


def _request(served: "Served", path: str, body: dict[str, Any]) -> str:
    """A POST of JSON."""
    asked = json.dumps(body, ensure_ascii=False)
    url = f"http://127.0.0.1:{served.settings.port}/v1/{path}"
    key = f'-H "Authorization: Bearer ${KEY}"'
    return f"curl {url} {key} -H 'Content-Type: application/json' \\\n  -d {shlex.quote(asked)}"

"""Kinds of cases: each function draws a case from a seeded generator and puts its files into a folder."""

import json
import re
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import click

from attack.commands import (
    FAILING,
    LONG_VERBS,
    READ,
    READERS,
    SHORT_FINETUNE,
    SHORT_TRAINING,
    VALID,
    VALID_ELSE,
    WRITERS,
)
from attack.draw import NO_NUMBERS, Draw
from attack.material import make_unusual, unusual
from attack.process import Case
from glassformer.cli import VERBS, command_of

# Command lines


def commands(draw: Draw, folder: Path) -> Case:
    """A verb with arguments and flags, some of them hostile."""
    if draw.chance(0.06):
        return Case(_mistyped(draw))
    verb = draw.choice([*VERBS])
    arguments = ["train", *SHORT_TRAINING] if verb == "train" else [verb]
    chosen = [one for one in _parameters(verb) if not isinstance(one, click.Argument)]
    hostility = draw.choice((0.1, 0.4, 0.8))
    words: list[str] = []
    for one in draw.sample(chosen, min(len(chosen), draw.choice((0, 1, 2, 3, 4, 8)))):
        words += _flag(draw, one, folder, hostility)
    positional = _positional(draw, verb, folder, hostility)
    if verb == "finetune":
        words = [*SHORT_FINETUNE, *words]
    if any(one.name == "model" for one in chosen) and "-m" not in words and draw.chance(0.9):
        words += ["-m", draw.choice(VALID["model"])]
    arguments += [*words, *positional] if draw.chance(0.8) else [*positional, *words]
    stdin = draw.randbytes(draw.randint(0, 50))
    if draw.chance(0.5):
        stdin = draw.text().encode("utf-8", "surrogatepass")
    return Case(arguments, stdin=stdin, is_long=verb in LONG_VERBS or _is_much(arguments, folder))


def _is_much(arguments: list[str], folder: Path) -> bool:
    """Whether a command may need minutes: it has a large number, a long text or a huge file."""
    if any(len(word) > 1000 or re.search(r"\d{4}|e\d", word) for word in arguments):
        return True
    return any(path.lstat().st_size > 1 << 20 for path in folder.iterdir())


def _mistyped(draw: Draw) -> list[str]:
    """A verb with a letter missing, added or changed, or anything in its place."""
    if draw.chance(0.3):
        return [draw.text() for _ in range(draw.randint(1, 3))]
    verb = draw.choice([*VERBS])
    at = draw.randrange(len(verb))
    return [verb[:at] + draw.choice(("", "x", "é", verb[at].upper())) + verb[at + 1 :], draw.text()]


@cache
def _parameters(verb: str) -> list[click.Parameter]:
    return command_of(verb, []).params


def _positional(draw: Draw, verb: str, folder: Path, hostility: float) -> list[str]:
    """The arguments of a verb; in a few cases one is missing or added."""
    words = []
    for one in _parameters(verb):
        if isinstance(one, click.Argument) and (one.required or draw.chance(0.7)):
            words.append(_value(draw, one, folder, hostility / 2))
    if draw.chance(0.04):
        words.append(draw.text())
    return words[:-1] if draw.chance(0.04) else words


def _flag(draw: Draw, one: click.Parameter, folder: Path, hostility: float) -> list[str]:
    """One flag with its value."""
    name = draw.choice([*one.opts, *one.secondary_opts])
    if getattr(one, "is_flag", False):
        return [name] if draw.chance(0.95) else [f"{name}=1"]
    if draw.chance(0.02):
        return [name]
    values = [_value(draw, one, folder, hostility) for _ in range(one.nargs)]
    if one.nargs == 1 and name.startswith("--") and draw.chance(0.3):
        return [f"{name}={values[0]}"]
    return [name, *values]


def _value(draw: Draw, one: click.Parameter, folder: Path, hostility: float) -> str:
    """A value of a flag or an argument: valid, an unusual file, or anything."""
    name = one.name or ""
    kind = one.type.name
    is_file = kind == "path" or name in ("model", "one", "other", "what", "data", "tokenizer")
    if not draw.chance(hostility):
        if kind in ("integer", "float"):
            return draw.choice(("0", "1", "2", "3") if kind == "integer" else ("0", "0.5", "1", "0.9"))
        return draw.choice(VALID.get(name, VALID_ELSE))
    if is_file and draw.chance(0.7):
        return unusual(draw, folder)
    if kind in ("integer", "float"):
        return draw.number(whole=kind == "integer")
    return draw.text()


# Command lines that must be refused


def refusals(draw: Draw, folder: Path) -> Case:
    """A command that would succeed, with one mistake: exit code 2."""
    command = draw.choice([one for one in READERS + WRITERS if not one.startswith("--")])
    verb, *words = shlex.split(command)
    if "--help" in words:
        words.remove("--help")
    mistakes = [["--no-such-flag"], ["--no-such-flag=1"]]
    for one in _parameters(verb):
        name = one.opts[0]
        if isinstance(one, click.Argument):
            continue
        if isinstance(one.type, click.Choice):
            mistakes.append([name, draw.choice(("", "no-such-choice", "٣"))])
        elif one.type.name in ("integer", "float") and one.nargs == 1:
            mistakes.append([name, draw.choice(NO_NUMBERS)])
        elif one.name in ("model", "file", "corpus", "recipe"):
            mistakes.append([name, draw.choice(("./nowhere", "./text.txt/x", "./nowhere/x.json"))])
    return Case([verb, *words, *draw.choice(mistakes)], expected=(2,), stdin=b"the\n1\n")


# Files


def files(draw: Draw, folder: Path) -> Case:
    """A damaged file, and a command that reads it."""
    pattern = draw.choice([*READ])
    found = [path for path in folder.glob(pattern) if path.is_file() and path.suffix != ".md"]
    path = draw.choice(sorted(found))
    command = draw.choice(READ[pattern])
    if path.name == "ckpt.pt" and draw.chance(0.6):
        _put_pickle(draw, path)
    elif draw.chance(0.12):
        path.unlink()
        make_unusual(draw, path)
    else:
        path.write_bytes(draw.damaged(path.name, path.read_bytes()))
    if "checkpoints" in pattern and draw.chance(0.7):
        _seal(path)
    named = pattern.split("/")[0] if "/" in pattern else path.name
    name = str(folder / named) if draw.chance(0.1) else named
    words = [name if word == "{}" else word for word in shlex.split(command)]
    return Case(words, note=str(path.relative_to(folder)), is_long=words[0] in LONG_VERBS)


def _put_pickle(draw: Draw, path: Path) -> None:
    """A malicious pickle in the place of a checkpoint."""
    from pickles import NAMES, malicious

    name, form = draw.choice(NAMES), draw.randrange(12)
    content = malicious(name, path.parent / "canary", script=path.parent / "script.py", form=form)
    path.write_bytes(content if draw.chance(0.8) else draw.damaged_bytes(content))


def _seal(path: Path) -> None:
    """Give a damaged file of a checkpoint a correct hash, so that the code behind the check reads it."""
    from glassformer.durable import SEAL, hash_file, write_sealed

    folder = path.parent
    try:
        if path.suffix == ".json":
            value = json.loads(path.read_bytes())
            value.pop(SEAL, None)
            write_sealed(path, value)
        if path.name != "manifest.json":
            manifest = json.loads((folder / "manifest.json").read_bytes())
            manifest.pop(SEAL)
            manifest["files"][path.name] = {"size": path.stat().st_size, "sha256": hash_file(path)}
            write_sealed(folder / "manifest.json", manifest)
    except (ValueError, TypeError, AttributeError, RecursionError, OSError):
        pass  # it is no longer JSON or no longer a file, and stays so


# Streams and environments


PLACES = (
    "nowhere/x",
    "text.txt",
    "unusual",
    "",
    "/dev/null",
    "/proc/1/x",
    "relative",
    "a" * 5000,
    "~no-such-user",
    "\udcff",
)
ENVIRONMENT: dict[str, tuple[str, ...]] = {
    "GLASSFORMER_HOME": PLACES,
    "GLASSFORMER_DATA": PLACES,
    "HF_HOME": PLACES,
    "HOME": PLACES,
    "TMPDIR": ("nowhere", "text.txt", ""),
    "XDG_CACHE_HOME": PLACES,
    "HF_HUB_OFFLINE": ("1", "yes"),
    "HF_TOKEN": ("x", "é", "a\nb"),
    "OMP_NUM_THREADS": ("0", "-1", "x", "٣", "99999999999", "3.5", ""),
    "COLUMNS": ("0", "1", "-5", "x", "20", "99999999", "٣"),
    "LINES": ("0", "x", "-1"),
    "TERM": ("dumb", "", "xterm-256color", "\udcff"),
    "NO_COLOR": ("1", ""),
    "FORCE_COLOR": ("1", "x"),
    "CLICOLOR_FORCE": ("1",),
    "COLORTERM": ("truecolor",),
    "WORLD_SIZE": ("1", "x", "0", "-1", "٣"),
    "RANK": ("0", "1", "x", "-1"),
    "LOCAL_RANK": ("0", "x"),
    "MASTER_ADDR": ("127.0.0.1", "nowhere.invalid"),
    "MASTER_PORT": ("1", "x", "0", "99999"),
    "LANG": ("C", "tr_TR.UTF-8", "xx"),
    "LC_ALL": ("C", "POSIX"),
    "PYTHONHASHSEED": ("0",),
    "ONEDNN_MAX_CPU_ISA": ("x",),
    "TZ": ("x",),
    "PAGER": ("false",),
}


def streams(draw: Draw, folder: Path) -> Case:
    """Closed, full and broken streams, terminals, other encodings and environments, a full disk."""
    case = Case(shlex.split(draw.choice((*READERS, *FAILING) if draw.chance(0.7) else WRITERS)))
    kinds = ("file", "closed", "full", "pipe", "terminal", "null")
    case.stdout, case.stderr = (draw.choice(kinds) if draw.chance(0.6) else "file" for _ in range(2))
    case.stdin = draw.choice(
        (
            "closed",
            "null",
            "pipe",
            "zeros",
            b"the cat\n1\n",
            b"\xff\n\n0\n9\n",
            b"\0" * 99,
            draw.text().encode("utf-8", "replace"),
        )
    )
    case.encoding = draw.choice(("utf-8", "utf-8", "ascii", "latin-1", "cp1252"))
    for name in draw.some([*ENVIRONMENT], 3):
        case.environment[name] = draw.choice(ENVIRONMENT[name])
    if draw.chance(0.15):
        case.largest_file = draw.choice((0, 100, 5000, 40_000))
        case.stderr = "terminal"  # a file could not take the message
    case.is_long = case.arguments[0] in LONG_VERBS
    return case


# Interrupts


def interrupts(draw: Draw, folder: Path) -> Case:
    """Ctrl-C at a random moment of a command that would succeed; sometimes a second one."""
    case = Case(shlex.split(draw.choice(READERS + WRITERS)), stdin=b"the\n1\n")
    case.interrupts = (int(10 ** draw.uniform(0, 5)),)
    if draw.chance(0.2):
        case.interrupts += (int(10 ** draw.uniform(0, 3)),)
    case.stdout = draw.choice(("file", "file", "terminal", "pipe", "full"))
    if case.stdout != "full":
        case.expected = (0,)
    return case


# Values from Python code

OPTIONS = (
    "max_new_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "stop", "num_beams", "logit_bias",
    "num_return_sequences", "repetition_penalty", "edits", "special", "overflow", "nonsense",
)  # fmt: skip
KEYS = {
    "text": ("data", "vocab", "held_out"),
    "model": ("kind", "layers", "heads", "width"),
    "train": ("steps", "lr", "seed"),
}


def values(draw: Draw, folder: Path) -> Case:
    """Edits, views, options, recipes and prompts as JSON values, damaged or invented."""
    which = draw.choice([*VALUES, "view"])
    make, use = VALUES[which]
    given = make(draw, folder)
    return Case(call=lambda: use(given, folder), note=f"{which} {given!r}"[:500])


def _edits(draw: Draw, folder: Path) -> Any:
    try:
        return json.loads(draw.damaged_json((folder / "edits.json").read_bytes()))
    except (ValueError, RecursionError):
        return draw.value()


def _use_edits(given: Any, folder: Path) -> None:
    lm = _model(folder)
    with lm.edit(given):
        lm.top("the cat", 3)


def _view(draw: Draw, folder: Path) -> bytes:
    return draw.damaged("view.json", (folder / "view.json").read_bytes())


def _use_view(given: bytes, folder: Path) -> None:
    from glassformer.figures.view import View

    (folder / "view.json").write_bytes(given)
    view = View.load(folder / "view.json")
    view.to_svg()
    view.to_text()
    view.to_html()
    view.to_numpy()


def _options(draw: Draw, folder: Path) -> dict[str, Any]:
    return {name: draw.value() for name in draw.some(OPTIONS, 3)}


def _use_options(given: dict[str, Any], folder: Path) -> None:
    _model(folder).generate("the cat", **{"max_new_tokens": 3} | given)


def _recipe(draw: Draw, folder: Path) -> dict[str, Any]:
    return {name: {key: draw.value() for key in draw.some(keys, 2)} for name, keys in KEYS.items()}


def _use_recipe(given: dict[str, Any], folder: Path) -> None:
    from glassformer.tasks.recipe import Recipe

    Recipe.of(given).to_toml()


def _prompt(draw: Draw, folder: Path) -> Any:
    return draw.value()


def _use_prompt(given: Any, folder: Path) -> None:
    _model(folder).top(given, 3)


def _place(draw: Draw, folder: Path) -> dict[str, Any]:
    return {name: draw.value() for name in draw.some(("layer", "head"), 2)}


def _use_place(given: dict[str, Any], folder: Path) -> None:
    _model(folder).generate("the cat", max_new_tokens=2, seed=0).attention(**given)


def _model(folder: Path) -> Any:
    from glassformer.tasks.load import load

    return load(str(folder / "model"), engine="torch")


VALUES: dict[str, tuple[Callable[[Draw, Path], Any], Callable[[Any, Path], object]]] = {
    "edits": (_edits, _use_edits),
    "view": (_view, _use_view),
    "options": (_options, _use_options),
    "recipe": (_recipe, _use_recipe),
    "prompt": (_prompt, _use_prompt),
    "place": (_place, _use_place),
}


# The engine


def engine(draw: Draw, folder: Path) -> Case:
    """Random calls of the engine's binding."""
    seed = draw.randrange(2**32)

    def call() -> None:
        from engine.boundary import attack

        attack(seed, 200)

    return Case(call=call, note=f"python -m engine.boundary {seed} 200", expected=(0,))


# Each kind with its number of cases in a full run.
KINDS: dict[str, tuple[Callable[[Draw, Path], Case], int]] = {
    "commands": (commands, 180),
    "refusals": (refusals, 60),
    "files": (files, 180),
    "streams": (streams, 70),
    "interrupts": (interrupts, 60),
    "values": (values, 70),
    "engine": (engine, 4),
}
ALL = sum(count for _, count in KINDS.values())


def numbers(kind: str, cases: int = ALL) -> range:
    """The numbers of the cases of a kind in a run of about this many cases: at least one of each kind."""
    return range(max(1, round(KINDS[kind][1] * cases / ALL)))


def make(seed: int, kind: str, number: int, folder: Path) -> Case:
    """A case, the same one for the same seed, kind and number; its files are in the folder."""
    return KINDS[kind][0](Draw(f"{seed} {kind} {number}"), folder)

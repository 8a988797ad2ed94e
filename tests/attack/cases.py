"""Kinds of attack: each draws a case from a seeded generator, and puts its files into a folder."""

import json
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import click

from attack.draw import Draw
from attack.material import make_strange, strange
from attack.process import Case
from glassformer.cli import VERBS, command_of

# Verbs whose work may take long, and flags that ask for much of it.
LONG_VERBS = ("train", "finetune", "bench", "verify")
SOUND: dict[str, tuple[str, ...]] = {  # values of flags and arguments that are not refused, by their names
    "text": ("the cat sat", "the mat and that"), "prompt": ("the cat sat", ""), "model": ("model", "gpt3", "gpt1", "lora", "run"),
    "one": ("model",), "other": ("other", "lora"), "source": ("the hat", "ckpt.pt"), "what": ("text.txt", "tales.jsonl"), "recipe": ("recipe.toml",),
    "file": ("text.txt", "-"), "examples": ("examples.jsonl", "examples.txt", "1.17"), "edit": ("edits.json",), "file_of_edits": ("edits.json",),
    "corpus": ("text.txt", "tales.jsonl"), "data": ("text.txt", "tales.jsonl", "text.txt.gz"), "train": ("text.txt",), "tokenizer": ("model",),
    "output": ("x.svg", "x.png", "x.pdf", "x.html", "x.json", "x.csv", "x/y.svg", "."), "out": ("new",), "save": ("new.json",), "engine": ("auto", "native", "torch"),
    "device": ("cpu",), "dtype": ("float32", "float64", "bfloat16", "float16"), "revision": ("main",), "drawing": ("arcs", "rank", "grid"),
    "method": ("grad_x_input", "gradient", "integrated_gradients", "occlusion", "rollout"), "layers": ("0", "0-1"), "promotes": ("1.17",),
    "zero": ("blocks.0.attn.mix[1]", "blocks.*.mlp"), "mean": ("blocks.0.attn",), "scale": ("blocks.1.mlp.neurons[3]=5",), "patch": ("blocks.0.out",),
    "site": ("blocks.*.out",), "logit_bias": ("7=-100",), "stop": ("at",), "find_heads": ("cat",), "kind": ("gpt2", "gpt3", "gpt1"),
    "optimizer": ("adamw", "muon"), "schedule": ("cosine", "linear", "constant"), "precision": ("float32", "bfloat16"), "parallel": ("ddp", "fsdp"),
    "targets": ("attn.qkv", "mlp.*"), "freeze": ("tokens", "blocks.0.*"), "activation": ("gelu", "gelu_new"), "target": ("./converted", "kept"),
    "field": ("text",), "position": ("-1", "cat"), "watch": (" mat",), "token": (" mat",), "foil": (" cat",), "answer": (" mat",), "weights": ("1",),
}  # fmt: skip
# Flags that make a training short; a flag that is given later overrides one of these.
SHORT = [
    "--data",
    "text.txt",
    "--layers",
    "1",
    "--heads",
    "2",
    "--width",
    "16",
    "--context",
    "16",
    "--vocab",
    "270",
    "--steps",
    "2",
    "--batch",
    "2",
    "--no-tensorboard",
]
SHORT_FINETUNE = ["--data", "text.txt", "--steps", "2", "--batch", "2", "--no-tensorboard"]

# Whole commands that read a model, and that read other files.
MODEL = (
    "top -m {} the", "generate -n 3 -m {} 'the cat'", "generate -n 3 -m {} --engine native the", "generate -n 3 --engine torch --num-beams 2 -m {} the",
    "show {}", "show --json {}", "tokenize -m {} --merges the", "attention -m {} the", "lens --json -m {} the", "saliency -n 1 -m {} the",
    "neurons -m {} the", "edit --zero blocks.0.mlp -m {} the", "diff {} other the", "eval {} text.txt --characters 200", "show --update the {}",
    "finetune {} --data text.txt --steps 1 --batch 2 -o new", "finetune {} --data text.txt --lora --steps 1 --batch 2 -o new", "convert {} kept", "rm -y {}",
)  # fmt: skip
RUN = (
    "train run",
    "train run --steps 17",
    "show --curve run",
    "show --curve --json run",
    "generate -n 3 -m run the",
    "show run",
)
READERS: dict[str, tuple[str, ...]] = {
    "model/*": MODEL,
    "gpt3/*": MODEL,
    "gpt1/*": MODEL,
    "lora/*": MODEL,
    "run/*": RUN,
    "run/checkpoints/*/*": RUN[:2],
    "recipe.toml": ("train recipe.toml -o new", "finetune model recipe.toml -o new", "train --kind gpt3 recipe.toml -o new"),
    "text.txt*": ("train recipe.toml -o new --data {}", "eval model {}", "tokenize --train {} -o new", "top -m model -f {}", "neurons --examples 1.3 --corpus {} -m model"),
    "tales.jsonl": ("finetune model --data {} --steps 1 --batch 2 -o new", "eval model {} --field text", "neurons --examples 1.3 --corpus {} -m model"),
    "examples.*": ("generate -n 3 -m model --examples {} the",),
    "edits.json": ("edit --edit {} -m model 'the cat'", "generate -n 3 -m model --edit {} the", "edit --edit {} -n 0 --json -m model the"),
    "ckpt.pt": ("convert {} ./converted", "convert {} ./converted --heads 2 --tokenizer model", "top -m {} the"),
}  # fmt: skip


# Command lines


def commands(draw: Draw, folder: Path) -> Case:
    """A verb with arguments and flags, some of them hostile, some of them strange files."""
    if draw.chance(0.06):
        return Case(_mistyped(draw))
    verb = draw.choice([*VERBS])
    arguments = ["train", *SHORT] if verb == "train" else [verb]
    chosen = [one for one in _parameters(verb) if not isinstance(one, click.Argument)]
    hostility = draw.choice((0.1, 0.4, 0.8))
    words: list[str] = []
    for one in draw.sample(chosen, min(len(chosen), draw.choice((0, 1, 2, 3, 4, 8)))):
        words += _flag(draw, one, folder, hostility)
    positional = _positional(draw, verb, folder, hostility)
    if verb == "finetune":
        words = [*SHORT_FINETUNE, *words]
    if any(one.name == "model" for one in chosen) and "-m" not in words and draw.chance(0.9):
        words += ["-m", draw.choice(SOUND["model"])]
    arguments += [*words, *positional] if draw.chance(0.8) else [*positional, *words]
    stdin = (
        draw.text().encode("utf-8", "surrogatepass")
        if draw.chance(0.5)
        else draw.randbytes(draw.randint(0, 50))
    )
    return Case(arguments, stdin=stdin, is_long=verb in LONG_VERBS or hostility > 0.1)


def _mistyped(draw: Draw) -> list[str]:
    """A verb with a letter too few or too many, or anything in its place."""
    if draw.chance(0.3):
        return [draw.text() for _ in range(draw.randint(1, 3))]
    verb = draw.choice([*VERBS])
    at = draw.randrange(len(verb))
    return [verb[:at] + draw.choice(("", "x", "é", verb[at].upper())) + verb[at + 1 :], draw.text()]


@cache
def _parameters(verb: str) -> list[click.Parameter]:
    return command_of(verb, []).params


def _positional(draw: Draw, verb: str, folder: Path, hostility: float) -> list[str]:
    """The arguments of a verb; now and then one too few or too many."""
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
    """A value of a flag or an argument: sound, a strange file, or anything."""
    name = one.name or ""
    kind = one.type.name
    is_file = kind == "path" or name in ("model", "one", "other", "what", "data", "tokenizer")
    if not draw.chance(hostility):
        if kind in ("integer", "float"):
            return draw.choice(("0", "1", "2", "3") if kind == "integer" else ("0", "0.5", "1", "0.9"))
        return draw.choice(SOUND.get(name, WORDLIKE))
    if is_file and draw.chance(0.7):
        return strange(draw, folder)
    if kind in ("integer", "float"):
        return draw.number(whole=kind == "integer")
    return draw.text()


WORDLIKE = ("the", "cat", "1", "main")


# Files


def files(draw: Draw, folder: Path) -> Case:
    """A damaged file, and a command that reads it."""
    pattern = draw.choice([*READERS])
    path = draw.choice(
        sorted(path for path in folder.glob(pattern) if path.is_file() and path.suffix != ".md")
    )
    command = draw.choice(READERS[pattern])
    if path.name == "ckpt.pt" and draw.chance(0.6):
        _put_pickle(draw, path)
    elif draw.chance(0.06):
        path.unlink()
        make_strange(draw, path)
    else:
        path.write_bytes(draw.damaged(path.name, path.read_bytes()))
    if "checkpoints" in pattern and draw.chance(0.7):
        _seal(path)
    named = pattern.split("/")[0] if "/" in pattern else path.name
    name = str(folder / named) if draw.chance(0.1) else named
    words = [name if word == "{}" else word for word in shlex.split(command)]
    return Case(words, what=str(path.relative_to(folder)), is_long=words[0] in LONG_VERBS)


def _put_pickle(draw: Draw, path: Path) -> None:
    """A malicious pickle in the place of a checkpoint."""
    from pickles import NAMES, malicious

    name, form = draw.choice(NAMES), draw.randrange(12)
    content = malicious(name, path.parent / "canary", script=path.parent / "script.py", form=form)
    path.write_bytes(content if draw.chance(0.8) else draw.damaged_bytes(content))


def _seal(path: Path) -> None:
    """Make a damaged file of a checkpoint one that its manifest describes: what is behind the hashes is attacked."""
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
        pass  # no longer JSON, or no longer a file: as it is


# Streams and environments


PLACES = (
    "nowhere/x",
    "text.txt",
    "strange",
    "",
    "/dev/null",
    "/proc/1/x",
    "relative",
    "a" * 5000,
    "~no-such-user",
    "\udcff",
)
ENVIRONMENT: dict[str, tuple[str, ...]] = {
    "GLASSFORMER_HOME": PLACES, "GLASSFORMER_DATA": PLACES, "HF_HOME": PLACES, "HOME": PLACES, "TMPDIR": ("nowhere", "text.txt", ""), "XDG_CACHE_HOME": PLACES,
    "HF_HUB_OFFLINE": ("1", "yes"), "HF_TOKEN": ("x", "é", "a\nb"), "OMP_NUM_THREADS": ("0", "-1", "x", "٣", "99999999999", "3.5", ""),
    "COLUMNS": ("0", "1", "-5", "x", "20", "99999999", "٣"), "LINES": ("0", "x", "-1"), "TERM": ("dumb", "", "xterm-256color", "\udcff"),
    "NO_COLOR": ("1", ""), "FORCE_COLOR": ("1", "x"), "CLICOLOR_FORCE": ("1",), "COLORTERM": ("truecolor",), "WORLD_SIZE": ("1", "x", "0", "-1", "٣"),
    "RANK": ("0", "1", "x", "-1"), "LOCAL_RANK": ("0", "x"), "MASTER_ADDR": ("127.0.0.1", "nowhere.invalid"), "MASTER_PORT": ("1", "x", "0", "99999"),
    "LANG": ("C", "tr_TR.UTF-8", "xx"), "LC_ALL": ("C", "POSIX"), "PYTHONHASHSEED": ("0",), "ONEDNN_MAX_CPU_ISA": ("x",), "TZ": ("x",), "PAGER": ("false",),
}  # fmt: skip
OFTEN = (
    "top -m model 'the cat'", "generate -n 5 -m model the", "generate -m model --json -n 2 the", "tokenize -m model 'the cat'", "show model", "models", "models --json",
    "env", "env --json", "--help", "top --help", "--version", "attention -m model 'the cat'", "lens -m model 'the cat'", "neurons -m model 'the cat'", "genrate",
    "edit --zero blocks.0.mlp -m model -n 2 the", "saliency -n 1 -m model the", "generate -m model -i", "top -m model -i the", "show --curve run",
    "rm kept", "eval model text.txt --characters 100", "attention -m model -o x.svg 'the cat'", "generate -n 3 -m model -f -", "diff model other 'the cat'",
)  # fmt: skip
WRITERS = ("train recipe.toml -o new", "train run", "finetune model --data text.txt --steps 2 --batch 2 --lora -o new", "tokenize --train text.txt --vocab-size 270 -o new",
           "convert ckpt.pt kept", "edit --zero blocks.0.mlp --save new.json -m model the", "lens -m model -o x.html 'the cat'")  # fmt: skip


def streams(draw: Draw, folder: Path) -> Case:
    """Streams that are closed, full, broken, a terminal; another encoding; a strange environment; a full disk."""
    case = Case(shlex.split(draw.choice(OFTEN if draw.chance(0.7) else WRITERS)))
    ways = ("file", "closed", "full", "pipe", "terminal", "null")
    case.stdout, case.stderr = (draw.choice(ways) if draw.chance(0.6) else "file" for _ in range(2))
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
    """Ctrl-C at a random moment of a command that would succeed; once in a while a second one."""
    commands = [one for one in (*OFTEN, *WRITERS) if "genrate" not in one and not one.startswith("rm")]
    case = Case(shlex.split(draw.choice(commands)), sound=True, stdin=b"the\n1\n")
    case.interrupts = (int(10 ** draw.uniform(0, 5)),)
    if draw.chance(0.2):
        case.interrupts += (int(10 ** draw.uniform(0, 3)),)
    case.stdout = draw.choice(("file", "file", "terminal", "pipe", "full"))
    case.sound = case.stdout != "full"
    return case


# Values that Python code hands over

OPTIONS = (
    "max_new_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "stop", "num_beams", "logit_bias", "num_return_sequences",
    "repetition_penalty", "edits", "special", "overflow", "nonsense",
)  # fmt: skip
KEYS = {
    "text": ("data", "vocab", "held_out"),
    "model": ("kind", "layers", "heads", "width"),
    "train": ("steps", "lr", "seed"),
}


def values(draw: Draw, folder: Path) -> Case:
    """Edits, views, options, recipes and prompts as JSON has them, damaged or invented."""
    which = draw.choice([*VALUES])
    make, use = VALUES[which]
    given = make(draw, folder)
    return Case(call=lambda: use(given, folder), what=f"{which} {given!r}"[:500])


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

    return Case(call=call, what=f"python -m engine.boundary {seed} 200", sound=True)


KINDS: dict[str, tuple[Callable[[Draw, Path], Case], int]] = {
    "commands": (commands, 200),
    "files": (files, 200),
    "streams": (streams, 80),
    "interrupts": (interrupts, 60),
    "values": (values, 80),
    "engine": (engine, 4),
}


def make(seed: int, kind: str, number: int, folder: Path) -> Case:
    """A case, the same one for the same seed, kind and number; its files are in the folder."""
    return KINDS[kind][0](Draw(f"{seed} {kind} {number}"), folder)

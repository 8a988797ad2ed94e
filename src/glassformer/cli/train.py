"""glass train, glass finetune"""

import inspect
import os
import signal
import tomllib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer import machine
from glassformer.cli.options import Device, Json, Offline, print_json
from glassformer.cli.panel import Follower
from glassformer.errors import InputError
from glassformer.tasks.recipe import DEFAULT_KIND, Numbers, Recipe, Strings, flag_homes, hints, sections_of

DEFAULT_RANK = 8
# Defaults of fine-tuning: small steps, and few, for a model that knows something.
GENTLE = {"steps": 500, "batch": 8, "lr": 1e-4, "lr_end": 0.0, "warmup": 20, "eval_every": 100}
Out = Annotated[
    Path | None,
    typer.Option("-o", "--out", help="The folder of the run; the same one again goes on where it stopped."),
]
NOT_FOR_TRAIN = {"base", "rank", "alpha", "lora_dropout", "targets"}
NOT_FOR_FINETUNE = {"base", "tokenizer", "vocab"}
KEPT_BY_FINETUNE = {"dropout", "freeze"}  # of [model]; the rest is decided by the base

Command = Callable[..., None]


def with_recipe_flags(verb: str) -> Callable[[Command], Command]:
    """Give a verb a flag for every key of a recipe, with the keys of the kind of model that is named."""

    def decorate(function: Command) -> Command:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]

        def for_arguments(arguments: list[str]) -> Command:
            flags = _flags(verb, _kind(arguments) if verb == "train" else DEFAULT_KIND)
            parameters = [*own, *flags]
            function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
            function.__annotations__ |= {flag.name: flag.annotation for flag in flags}
            return function

        function.for_arguments = for_arguments  # type: ignore[attr-defined]
        return for_arguments([])

    return decorate


def _kind(arguments: list[str]) -> str:
    """The kind of model that a command line names: by --kind, or by its recipe."""
    for number, argument in enumerate(arguments):
        if argument.startswith("--kind="):
            return argument.removeprefix("--kind=")
        if argument == "--kind" and number + 1 < len(arguments):
            return arguments[number + 1]
    for argument in arguments:
        path = Path(argument)
        path = path / "recipe.toml" if path.is_dir() else path
        if path.suffix == ".toml" and path.is_file():
            return _kind_of_recipe(path)
    return DEFAULT_KIND


def _kind_of_recipe(path: Path) -> str:
    """The kind that a recipe names. What is wrong with the file is said when it is read as a recipe."""
    try:
        kind = tomllib.loads(path.read_text(encoding="utf-8"))["model"]["kind"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return DEFAULT_KIND
    return kind if isinstance(kind, str) else DEFAULT_KIND


def _flags(verb: str, kind: str) -> list[inspect.Parameter]:
    sections = sections_of(kind)
    usual = GENTLE if verb == "finetune" else {}
    flags = []
    for flag, (section, key) in flag_homes(sections).items():
        if verb == "train" and flag in NOT_FOR_TRAIN:
            continue
        if verb == "finetune" and (
            flag in NOT_FOR_FINETUNE or (section == "model" and key not in KEPT_BY_FINETUNE)
        ):
            continue
        one = next(one for one in fields(sections[section]) if one.name == key)
        flags.append(_flag(flag, one, hints(sections[section])[key], usual.get(flag, one.default)))
    return flags


def _flag(flag: str, one: Any, kind: Any, default: Any) -> inspect.Parameter:
    """One option of the command line. Its default is None, which means: as the recipe has it."""
    inner: Any = {Strings: list[str], Numbers: list[float]}.get(kind, kind)
    shown = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    help = one.metadata["help"]
    if shown and kind is not bool and default is not None:
        help += f" [{shown}]"
    name = flag.replace("_", "-")
    names = f"--{name}/--no-{name}" if kind is bool else f"--{name}"
    return inspect.Parameter(
        flag,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[inner | None, typer.Option(names, help=help, show_default=False)],
    )


@with_recipe_flags("train")
def train(
    recipe: Annotated[
        Path | None, typer.Argument(help="A recipe (.toml), or the folder of a run to go on with.")
    ] = None,
    *,
    out: Out = None,
    device: Device = "cpu",
    offline: Offline = False,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Train a model of your own, from text.

    \b
    glass train --data book.txt                    a small model, a vocabulary of its own; minutes
    glass train recipes/shakespeare.toml           a recipe; every key is also a flag
    glass train recipes/shakespeare.toml --lr 2e-3 --out runs/faster
    glass train --kind gpt3 --data book.txt        another kind of model; --kind gpt3 --help shows its keys
    glass train runs/shakespeare                   go on after a crash, bit by bit as if there had been none
    torchrun --nproc-per-node 2 -m glassformer train recipes/shakespeare.toml

    Everything is kept in a folder (--out): checkpoints, metrics.jsonl, and the model, which `glass generate
    -m FOLDER` runs. Ctrl-C saves and stops; the same command again goes on. Defaults are in [brackets].
    """
    chosen, folder = _recipe(recipe, flags)
    _run(chosen, out or folder or Path("runs") / _name(recipe, chosen), device, offline, as_json)


@with_recipe_flags("finetune")
def finetune(
    model: Annotated[
        str, typer.Argument(help="The model to go on from: a shipped name, a folder, a hub id, a run.")
    ],
    recipe: Annotated[Path | None, typer.Argument(help="A recipe (.toml).")] = None,
    *,
    lora: Annotated[
        bool,
        typer.Option(
            "--lora",
            help=f"Train thin matrices beside the layers (LoRA); --rank is {DEFAULT_RANK} unless given.",
        ),
    ] = False,
    out: Out = None,
    device: Device = "cpu",
    offline: Offline = False,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Fine-tune an existing model: all of it, parts of it (--freeze), or by LoRA.

    \b
    glass finetune storyteller --data tales.jsonl
    glass finetune gpt2 --data mails/ --lora --targets attn.qkv --targets mlp.up
    glass finetune storyteller --data tales.txt --freeze tokens --freeze "blocks.[01].*"

    Lines of JSON with a prompt and a completion teach the completion only. What --lora makes is a folder in
    PEFT's layout, which names its base; `glass generate -m FOLDER` runs it. Gentle defaults: a learning rate
    of 1e-4 (LoRA: 1e-3), 500 steps.
    """
    if lora and not flags.get("rank"):
        flags["rank"] = DEFAULT_RANK
    chosen, _ = _recipe(recipe, flags, base=model)
    name = f"{Path(model).name}-{_name(recipe, chosen)}"
    _run(chosen, out or Path("runs") / name, device, offline, as_json)


def _recipe(path: Path | None, flags: dict[str, Any], base: str = "") -> tuple[Recipe, Path | None]:
    """The recipe of a file or of a run's folder, changed by the given flags; and the run's folder."""
    folder = path if path is not None and path.is_dir() else None
    if folder is not None and not (folder / "recipe.toml").is_file():
        raise InputError(f"{folder}: holds no recipe.toml, so it is not the folder of a run")

    given = {key: value for key, value in flags.items() if value is not None and value != []}
    recipe = Recipe()
    if path is not None:
        recipe = Recipe.read(folder / "recipe.toml" if folder else path)
    elif base:
        recipe = recipe.changed(**GENTLE | ({"lr": 1e-3} if given.get("rank") else {}))
    if base:
        given["base"] = base

    if path is not None and folder is None and "data" not in given:
        given["data"] = [_find(source, path) for source in recipe.text.data]
    if "data" in given:
        given["data"] = [str(Path(source).expanduser().absolute()) for source in given["data"]]
    return recipe.changed(**given), folder


def _find(source: str, recipe: Path) -> str:
    """A text that a recipe names: as it stands, beside the recipe, or in GLASSFORMER_DATA."""
    places = [
        Path(source).expanduser(),
        recipe.parent / source,
        Path(os.environ.get("GLASSFORMER_DATA", ".")) / source,
    ]
    found = next((place for place in places if place.exists()), None)
    if found is None:
        raise InputError(
            f"{recipe}: its text {source} is neither here, nor beside the recipe, nor in GLASSFORMER_DATA;"
            " or give --data"
        )
    return str(found)


def _name(path: Path | None, recipe: Recipe) -> str:
    if path is not None:
        return path.stem
    if not recipe.text.data:
        return "text"
    return Path(recipe.text.data[0]).name.split(".")[0] or "text"


def _run(recipe: Recipe, out: Path, device: str, offline: bool, as_json: bool) -> None:
    machine.keep_memory()  # before torch is imported
    from glassformer.tasks.train import Finished, train

    stopper = Stopper()
    is_main = os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"
    follower = Follower(out, quiet=not is_main)
    end = None
    with stopper, follower:

        def progress(what: str, done: int, total: int) -> None:
            if stopper():  # there is nothing to save yet
                raise KeyboardInterrupt
            follower.progress(what, done=done, total=total)

        for event in train(recipe, out, device=device, offline=offline, progress=progress, stop=stopper):
            follower.show(event)
            end = event if isinstance(event, Finished) else end
    if not is_main:
        return
    if end is None:
        raise typer.Exit(follower.stopped(stopper.signal))

    model = out / "model"
    if as_json:
        print_json({"model": str(model), **vars(end)})
        return
    prompt = f' "{recipe.show.preview}"' if recipe.show.preview else ""
    print(f"{model}\n\nRun it:  glass generate -m {out}{prompt}")


class Stopper:
    """The first Ctrl-C or SIGTERM asks to save and stop; the second one ends at once."""

    def __init__(self) -> None:
        self.signal = 0
        self.before: dict[int, Any] = {}

    def __call__(self) -> bool:
        return bool(self.signal)

    def __enter__(self) -> "Stopper":
        for number in (signal.SIGINT, signal.SIGTERM):
            self.before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: object) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number

"""glass train, glass finetune"""

import inspect
import os
import signal
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer import machine
from glassformer.cli.options import Device, Json, Offline, print_json
from glassformer.cli.panel import Follower
from glassformer.errors import InputError
from glassformer.tasks.recipe import SECTIONS, Numbers, Recipe, Strings, hints

DEFAULT_RANK = 8
GENTLE = {
    "steps": 500,
    "batch": 8,
    "lr": 1e-4,
    "lr_end": 0.0,
    "warmup": 20,
    "eval_every": 100,
}  # for a model that knows something
Out = Annotated[
    Path | None,
    typer.Option("-o", "--out", help="The folder of the run; the same one again goes on where it stopped."),
]
NOT_FOR = {"train": {"base", "rank", "alpha", "lora_dropout", "targets"}, "finetune": {"base", "tokenizer", "vocab", "layers",
           "heads", "width", "context", "bias"}}  # fmt: skip


def with_recipe_flags(verb: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb a flag for every key of a recipe."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        usual = GENTLE if verb == "finetune" else {}
        flags = [
            _flag(one, kind, usual)
            for kind in SECTIONS.values()
            for one in fields(kind)
            if one.name not in NOT_FOR[verb]
        ]
        function.__signature__ = signature.replace(parameters=[*own, *flags])  # type: ignore[attr-defined]
        function.__annotations__ |= {flag.name: flag.annotation for flag in flags}
        return function

    return decorate


def _flag(one: Any, section: Any, usual_here: dict[str, Any]) -> inspect.Parameter:
    kind = hints(section)[one.name]
    default = usual_here.get(one.name, one.default)
    inner: Any = {Strings: list[str], Numbers: list[float]}.get(kind, kind)
    usual = (
        "" if kind is bool else " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    )
    name = one.name.replace("_", "-")
    names = f"--{name}/--no-{name}" if kind is bool else f"--{name}"
    help = one.metadata["help"] + (f" [{usual}]" if usual else "")
    return inspect.Parameter(
        one.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[inner | None, typer.Option(names, help=help, show_default=False)],
    )


@with_recipe_flags("train")
def train(
    recipe: Annotated[
        Path | None, typer.Argument(help="A recipe (.toml), or the folder of a run to go on with.")
    ] = None,
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
    glass train runs/shakespeare                   go on after a crash, bit by bit as if there had been none
    torchrun --nproc-per-node 2 -m glassformer train recipes/shakespeare.toml

    Everything is kept in a folder (--out): checkpoints, metrics.jsonl, and the model, which `glass generate -m FOLDER` runs.
    Ctrl-C saves and stops; the same command again goes on. Defaults are in [brackets].
    """
    chosen, folder = _recipe(recipe, flags)
    _run(chosen, out or folder or Path("runs") / _name(recipe, chosen), device, offline, as_json)


@with_recipe_flags("finetune")
def finetune(
    model: Annotated[
        str, typer.Argument(help="The model to go on from: a shipped name, a folder, a hub id, a run.")
    ],
    recipe: Annotated[Path | None, typer.Argument(help="A recipe (.toml).")] = None,
    lora: Annotated[
        bool,
        typer.Option(
            "--lora",
            help=f"Train thin matrices beside the layers (LoRA), rank {DEFAULT_RANK} if --rank says no other.",
        ),
    ] = False,
    out: Out = None,
    device: Device = "cpu",
    offline: Offline = False,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Teach a model that is there: all of it, parts of it (--freeze), or by LoRA.

    \b
    glass finetune storyteller --data tales.jsonl
    glass finetune gpt2 --data mails/ --lora --targets attn.qkv --targets mlp.up
    glass finetune storyteller --data tales.txt --freeze tokens --freeze "blocks.[01].*"

    Lines of JSON with a prompt and a completion teach the completion only. What --lora makes is a folder in PEFT's layout, which
    names its base; `glass generate -m FOLDER` runs it. Gentle defaults: a learning rate of 1e-4 (LoRA: 1e-3), 500 steps.
    """
    if lora and not flags.get("rank"):
        flags["rank"] = DEFAULT_RANK
    chosen, _ = _recipe(recipe, flags, base=model)
    name = f"{Path(model).name}-{_name(recipe, chosen)}"
    _run(chosen, out or Path("runs") / name, device, offline, as_json)


def _recipe(path: Path | None, flags: dict[str, Any], base: str = "") -> tuple[Recipe, Path | None]:
    """The recipe of a file or of a run's folder, with the flags that were given; and the run's folder."""
    folder = path if path is not None and path.is_dir() else None
    if folder is not None and not (folder / "recipe.toml").is_file():
        raise InputError(f"{folder}: holds no recipe.toml, so it is not the folder of a run")
    given = {key: value for key, value in flags.items() if value is not None and value != []}
    if base:
        gentle = GENTLE | ({"lr": 1e-3} if given.get("rank") else {})
        recipe = Recipe().changed(**gentle) if path is None else Recipe.read(path)
        given["base"] = base
    else:
        recipe = Recipe() if path is None else Recipe.read(folder / "recipe.toml" if folder else path)
    if path is not None and folder is None and "data" not in given:
        given["data"] = [_find(source, path) for source in recipe.text.data]
    if "data" in given:
        given["data"] = [str(Path(source).expanduser().absolute()) for source in given["data"]]
    return recipe.changed(**{key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}), folder


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
            f"{recipe}: its text {source} is neither here, nor beside the recipe, nor in GLASSFORMER_DATA; or give --data"
        )
    return str(found)


def _name(path: Path | None, recipe: Recipe) -> str:
    if path is not None:
        return path.stem
    return Path(recipe.text.data[0]).name.split(".")[0] or "text" if recipe.text.data else "text"


def _run(recipe: Recipe, out: Path, device: str, offline: bool, as_json: bool) -> None:
    machine.keep_memory()
    from glassformer.tasks.train import Finished, train

    asked = Stopper()
    first = os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"
    follower = Follower(out, quiet=not first)
    end = None
    with asked, follower:

        def progress(what: str, done: int, total: int) -> None:
            if asked():  # nothing is there to be saved yet
                raise KeyboardInterrupt
            follower.progress(what, done, total)

        for event in train(recipe, out, device=device, offline=offline, progress=progress, stop=asked):
            follower.show(event)
            end = event if isinstance(event, Finished) else end
    if not first:
        return
    if end is None:
        raise typer.Exit(follower.stopped(asked.signal))
    model = out / "model"
    if as_json:
        print_json({"model": str(model), **vars(end)})
    else:
        print(
            f"{model}\n\nRun it:  glass generate -m {out}"
            + (f' "{recipe.show.preview}"' if recipe.show.preview else "")
        )


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

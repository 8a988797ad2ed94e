"""glass train, glass finetune"""

import copy
import os
import signal
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import click

from glassformer import machine
from glassformer.cli import flags
from glassformer.cli.flags import PATH, Option, argument, option, switch
from glassformer.cli.printing import print_json
from glassformer.errors import InputError
from glassformer.files import MEGABYTE, read_json, read_text
from glassformer.tasks.finetune import DEFAULT_RANK, gentle, gentle_recipe
from glassformer.tasks.recipe import (
    DEFAULT_KIND,
    ExampleText,
    Numbers,
    Recipe,
    Strings,
    flag_homes,
    hints,
    kind_for,
    kind_with,
    objective_of,
    sections_of,
    task_with,
)

VERBS = {"target_token": "translate", "labels": "classify", "examples": "classify"}  # what runs what is made
NOT_FOR_TRAIN = {"base", "rank", "alpha", "lora_dropout", "targets"}
NOT_FOR_FINETUNE = {"base", "tokenizer", "vocab", "vocabularies"}
NOT_FOR_HEADS = {"lora", "rank", "alpha", "lora_dropout", "targets", "window"}
# Of [model]; the rest is decided by the base.
KEPT_BY_FINETUNE = {"dropout", "attention_dropout", "freeze", "task"}

OUT = "The folder of the run; the same one again goes on where it stopped."
LORA = f"Train low-rank matrices beside the layers (LoRA); --rank is {DEFAULT_RANK} unless given."


@dataclass(frozen=True)
class Run:
    """Where a training is kept and computed, and how its end is reported."""

    out: Path | None
    device: str
    offline: bool
    as_json: bool


run = flags.group(
    Run,
    "run",
    option("-o", "--out", type=PATH, help=OUT),
    flags.device,
    flags.offline,
    flags.as_json,
)


class ByRecipe(flags.Command):
    """A verb with the keys of a recipe. A key that only another kind of model has is answered by a hint."""

    def hint(self, ctx: click.Context, name: str) -> str:
        """The kind of model that has the option, else what is said of any verb's options."""
        flag = name.removeprefix("--").replace("-", "_")
        other = None if flag in NOT_FOR_TRAIN else kind_with(flag)
        if other is not None:
            return f"kind {other} has it: see `glass train --kind {other} --help`"
        task = task_with(flag)
        if task is not None:
            return f"task {task} has it: see `glass train --task {task} --help`"
        return super().hint(ctx, name)


def train(arguments: list[str]) -> click.Command:
    """The command, with a flag for every key of a recipe of the kind of model that the arguments name."""
    task = task_of(arguments)
    sections = sections_of(kind_of(arguments), task)
    return _with_recipe_flags(train_by_recipe, "train", sections, task=task)


def finetune(arguments: list[str]) -> click.Command:
    """The command, with a flag for every key of a recipe that does not belong to the base."""
    task = task_of(arguments)
    sections = sections_of(text_kind(arguments, task=task), task)
    return _with_recipe_flags(finetune_by_recipe, "finetune", sections, task=task)


@partial(flags.verb, kind=ByRecipe)
@argument("recipe", "A recipe (.toml), or the folder of a run to go on with.", type=PATH, required=False)
@run
def train_by_recipe(recipe: Path | None, run: Run, **given: Any) -> None:
    """Train a model of your own, from text.

    \b
    glass train --data book.txt                    a small model, a vocabulary of its own; minutes
    glass train recipes/shakespeare.toml           a recipe; every key is also a flag
    glass train recipes/shakespeare.toml --lr 2e-3 --out runs/faster
    glass train --kind gpt3 --data book.txt        another kind of model; --kind gpt3 --help shows its keys
    glass train --task translate --data pairs.tsv --languages en --languages fr    a decoder translates
    glass train runs/shakespeare                   go on after a crash, bit by bit as if there had been none
    torchrun --nproc-per-node 2 -m glassformer train recipes/shakespeare.toml

    Everything is kept in a folder (--out): checkpoints, metrics.jsonl, and the model, which `glass generate
    -m FOLDER` runs. Ctrl-C saves and stops; the same command again goes on. Defaults are in [brackets].
    """
    chosen, folder = _recipe(recipe, given)
    _run(chosen, run.out or folder or Path("runs") / _name(recipe, chosen), run)


@flags.verb
@flags.model_argument("The model to go on from: a shipped name, a folder, a hub id, a run.", before="recipe")
@argument("recipe", "A recipe (.toml).", type=PATH, required=False)
@switch("--lora", help=LORA)
@run
def finetune_by_recipe(model: str, recipe: Path | None, *, lora: bool, run: Run, **given: Any) -> None:
    """Fine-tune an existing model: all of it, parts of it (--freeze), or by LoRA.

    \b
    glass finetune storyteller --data tales.jsonl
    glass finetune gpt2 --data mails/ --lora --targets attn.qkv --targets mlp.up
    glass finetune storyteller --data tales.txt --freeze tokens --freeze "blocks.[01].*"
    glass finetune runs/de-en --data more.tsv --lora --targets attn.query    pairs, for one that translates
    glass finetune storyteller --task summarize --data pairs.jsonl           pairs, also translate
    glass finetune storyteller --task classify --data reviews.csv --text-column review --label-column stars
    glass finetune storyteller --task entail --data pairs.csv                also similar, choose

    --task X --help shows the keys of a task. classify, entail, similar and choose give the model a head,
    which `glass classify` uses and `glass eval` measures; their data is .csv, .jsonl or .tsv with a label in
    every row, such as

    \b
    classify    text,label                  A joy to watch.,good
    entail      premise,hypothesis,label    The cat sat.,A cat was sitting.,yes
    similar     first,second,score          A dog runs.,A dog is running.,4.6
    choose      {"context": "It rained.", "answers": ["She stayed in.", "She got a tan."], "label": 0}

    As in ULM-FiT: first without --task on the texts alone, then with --layer-decay 2.6 --unfreeze 1
    --schedule slanted-triangle.

    Lines of JSON with a prompt and a completion teach the completion only. What --lora makes is a folder in
    PEFT's layout, which names its base; `glass generate -m FOLDER` runs it. In Python, `gf.load(FOLDER)`
    merges it into the base, and `lm.save(…)` writes the merged model. Gentle defaults: a learning rate of
    1e-4 (LoRA: 1e-3), 500 steps; of a head 3e-4, 3 epochs.
    """
    if lora and given.get("rank") == 0:
        raise InputError("--lora and --rank 0 contradict each other: rank 0 means no LoRA")
    if lora and not given.get("rank"):
        given["rank"] = DEFAULT_RANK
    chosen, _ = _recipe(recipe, given, base=model)
    unused = [key for key in ("alpha", "lora_dropout", "targets") if given.get(key) not in (None, ())]
    if unused and not chosen.lora.rank:
        raise InputError(f"--{unused[0].replace('_', '-')} belongs to LoRA: give --lora too")
    name = f"{Path(model).name}-{_name(recipe, chosen)}" + ("-lora" if chosen.lora.rank else "")
    _run(chosen, run.out or Path("runs") / name, run)


# Flags from the keys of a recipe


def kind_of(arguments: list[str]) -> str:
    """The kind of model that a command line names: by --kind, or by its recipe."""
    return _named(arguments, "kind", section="model") or DEFAULT_KIND


def task_of(arguments: list[str]) -> str:
    """The task of a decoder that a command line names: by --task, or by its recipe; empty: none."""
    return _named(arguments, "task", section="text") or _named(arguments, "task", section="model")


def _named(arguments: list[str], key: str, *, section: str) -> str:
    """The value of a key that decides which other keys there are."""
    for number, word in enumerate(arguments):
        if word.startswith(f"--{key}="):
            return word.removeprefix(f"--{key}=")
        if word == f"--{key}" and number + 1 < len(arguments):
            return arguments[number + 1]
    for word in arguments:
        path = Path(word)
        path = path / "recipe.toml" if path.is_dir() else path
        if path.suffix == ".toml" and path.is_file():
            return _in_recipe(path, key, section=section)
    return ""


def text_kind(words: Sequence[str], *, task: str = "") -> str:
    """The kind of the first word that names a model here, if it learns from other data than plain text.

    With a `task`, the kind that it becomes.
    """
    kind = kind_for(_kind_of_first(words), task)
    return kind if objective_of(kind) != objective_of(DEFAULT_KIND) else DEFAULT_KIND


def _kind_of_first(words: Sequence[str]) -> str:
    """The kind of the first word that names a model here."""
    for word in words:
        if word.startswith("-") or Path(word).is_file():
            continue
        from glassformer.tasks.load import kind_of_base  # only here: it imports NumPy, which help need not

        kind = kind_of_base(word)
        if kind is not None:
            return kind
    return DEFAULT_KIND


def _in_recipe(path: Path, key: str, *, section: str) -> str:
    """What a recipe has there. What is wrong with the file is said when it is read as a recipe."""
    try:
        value = tomllib.loads(read_text(path, MEGABYTE))[section][key]
    except (ValueError, RecursionError, KeyError, TypeError):
        return ""
    return value if isinstance(value, str) else ""


def _with_recipe_flags(
    command: click.Command, verb: str, sections: dict[str, Any], *, task: str
) -> click.Command:
    """A copy of a command with a flag for every key of a recipe that concerns it; `task` is the named one."""
    head = sections["text"] is ExampleText
    usual = _shown_defaults(sections, verb=verb, task=task)
    whole = copy.copy(command)
    whole.params = [copy.copy(one) for one in command.params]
    for flag, (section, key) in flag_homes(sections).items():
        if not _concerns(verb, flag, section, key):
            continue
        one = next(one for one in fields(sections[section]) if one.name == key)
        default = usual.get(flag, one.default)
        whole.params.append(
            recipe_option(flag, hints(sections[section])[key], help=one.metadata["help"], default=default)
        )
    for parameter in whole.params:
        if head and parameter.name in NOT_FOR_HEADS and isinstance(parameter, Option):
            parameter.hidden = True  # still known, so that what is wrong with it is said
    return whole


def _shown_defaults(sections: dict[str, Any], *, verb: str, task: str) -> dict[str, Any]:
    """What the help shows as defaults, where it is not what the sections of a recipe have."""
    usual = dict(gentle(sections)) if verb == "finetune" else {}
    if sections["text"] is ExampleText:
        usual["task"] = task or "that of the model's head"
        if usual.get("epochs"):
            usual["steps"] = "as epochs says"
    return usual


def _concerns(verb: str, flag: str, section: str, key: str) -> bool:
    if verb == "train":
        return flag not in NOT_FOR_TRAIN
    return flag not in NOT_FOR_FINETUNE and (section != "model" or key in KEPT_BY_FINETUNE)


def recipe_option(flag: str, kind: Any, *, help: str, default: Any) -> Option:
    """One option. Its default is None, which means: as the recipe has it; that is shown in brackets."""
    name = flag.replace("_", "-")
    if kind is bool:
        return Option([f"--{name}/--no-{name}"], default=None, show_default=False, help=help)

    shown = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    if shown and default is not None:
        help += f" [{shown}]"
    if kind in (Strings, Numbers):
        item = str if kind == Strings else float
        return Option([f"--{name}"], multiple=True, type=item, show_default=False, help=help)
    return Option([f"--{name}"], type=_plain(kind), default=None, show_default=False, help=help)


def _plain(kind: Any) -> type[Any]:
    """What is typed for a key: the number or text itself, without None or a list of the choices."""
    if get_origin(kind) is Literal:
        return str
    if isinstance(kind, UnionType):
        kind = next(one for one in get_args(kind) if one is not type(None))
    found: type[Any] = kind
    return found


# What a command does


def _recipe(path: Path | None, flags: dict[str, Any], base: str = "") -> tuple[Recipe, Path | None]:
    """The recipe of a file or of a run's folder, changed by the given flags; and the run's folder."""
    folder = path if path is not None and path.is_dir() else None
    if folder is not None and not (folder / "recipe.toml").is_file():
        raise InputError(f"{folder}: holds no recipe.toml, so it is not the folder of a run")

    if path is not None and folder is None and path.is_file() and path.suffix != ".toml":
        raise InputError(
            f"{path} is not a recipe (.toml) or a run's folder; to train on it, give --data {path}"
        )

    given = {key: value for key, value in flags.items() if value not in (None, ())}
    recipe = Recipe()
    if path is not None:
        recipe = Recipe.read(folder / "recipe.toml" if folder else path)
    elif base:
        kind = text_kind([base], task=given.get("task", ""))
        recipe = gentle_recipe(kind, lora=bool(given.get("rank")))
        if isinstance(recipe.text, ExampleText):
            given = _own_task(base) | given
    if base:
        given["base"] = base

    for key in ("data", "validation"):
        named = getattr(recipe.text, key, ())
        if path is not None and folder is None and key not in given and named:
            given[key] = [_find(source, path) for source in named]
        if key in given:
            given[key] = [_absolute(source) for source in given[key]]
    chosen = recipe.changed(**given)
    if "window" in given and isinstance(chosen.text, ExampleText):
        raise InputError("--window: a head reads whole examples, which have no window")
    return chosen, folder


def _own_task(base: str) -> dict[str, str]:
    """The task of a model that has a head: to train it further is to train it for the same."""
    from glassformer.tasks.load import task_of_base

    task = task_of_base(base)
    return {} if task is None else {"task": task}


def _absolute(source: str) -> str:
    """A text that is found from any folder; a web address stays as it is, and is refused when it is read."""
    return source if "://" in source else str(Path(source).expanduser().absolute())


def _find(source: str, recipe: Path) -> str:
    """A text that a recipe names: as it is, beside the recipe, or in GLASSFORMER_DATA."""
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


def _run(recipe: Recipe, out: Path, run: Run) -> None:
    machine.keep_memory()  # before torch is imported
    from glassformer.cli.panel import Follower
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

        try:
            for event in train(
                recipe, out, device=run.device, offline=run.offline, progress=progress, stop=stopper
            ):
                follower.show(event)
                end = event if isinstance(event, Finished) else end
        except KeyboardInterrupt:
            if follower.at is not None:  # the second Ctrl-C: what is not saved is lost
                raise
    if not is_main:
        return
    if end is None:
        raise click.exceptions.Exit(follower.stopped(stopper.signal))

    model = out / "model"
    if run.as_json:
        print_json({"model": str(model), **vars(end)})
        return
    verb = _verb(recipe)
    print(model)
    print(f"\nRun it:   glass {verb} -m {out}{_example(recipe, verb)}")
    print(f"Keep it:  glass convert {out} NAME, then it is a model of `glass models`")
    if verb == "generate":
        print(f"Compare:  glass eval {out} TEXT, in bits per byte; the loss depends on the vocabulary")
    if verb == "classify":
        print(f"Measure:  glass eval {out} FILE, on examples with labels")
    if (elsewhere := _loads_elsewhere(model)) is not None:
        print(elsewhere)


def _verb(recipe: Recipe) -> str:
    """What runs the model that a recipe makes."""
    if recipe.task:
        return recipe.task
    if recipe.model.kind == "music":
        return "compose"
    return VERBS.get(objective_of(recipe.model.kind), "generate")


def _example(recipe: Recipe, verb: str) -> str:
    """What to run it on: the preview, and its language where there are two."""
    if verb == "summarize":
        return " FILE"
    languages: tuple[str, ...] = getattr(recipe.text, "languages", ())
    to = f" --to {languages[1]}" if getattr(recipe.text, "both_ways", False) else ""
    return to + (f' "{recipe.show.preview}"' if recipe.show.preview else "")


def _loads_elsewhere(model: Path) -> str | None:
    """How another library loads a model's folder; None for a kind that only we have."""
    from glassformer.tasks.load import base_of

    base = base_of(model, offline=True)
    if str(read_json(base / "config.json").get("model_type")).startswith("glass-"):
        return None
    if base == model:
        return f"transformers loads the folder {model}"
    return (
        f'peft loads it onto its base: PeftModel.from_pretrained(BASE, "{model}"),'
        f" where transformers loads BASE from {base}"
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

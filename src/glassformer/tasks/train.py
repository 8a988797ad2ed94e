"""Train: from text to a model that can be loaded, in a folder from which it can go on after anything.

runs/shakespeare/
  recipe.toml       everything that decides the training
  tokenizer.json    the vocabulary, if a new one was learned
  metrics.jsonl     every step, measurement and preview
  checkpoints/      the newest two and the best: see training/resume.py
  model/            the result: the best model by held-out text, or the newest
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from glassformer import machine
from glassformer.data.batches import Stream, in_order
from glassformer.data.shards import Corpus, prepare
from glassformer.data.sources import find_files, read_pieces
from glassformer.durable import hash_json, replace_file
from glassformer.errors import GlassError, InputError
from glassformer.hub.folder import load_folder, parse_dtype, save_folder
from glassformer.hub.locate import locate, shipped
from glassformer.hub.lora import Detour, is_adapter, read_adapter, save_adapter
from glassformer.hub.vocabulary import load_tokenizer
from glassformer.models.gpt import GPT, Config
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.loading import base_folder, find_device, load_adapted
from glassformer.tasks.metrics import Diary
from glassformer.tasks.recipe import Recipe
from glassformer.tokenizers import Tokenizer, train_tokenizer
from glassformer.training.distributed import World
from glassformer.training.loop import Event, Finished, Measured, Saved, Stepped, fit
from glassformer.training.lora import adapted_layers, attach
from glassformer.training.objectives import next_token
from glassformer.training.optim import freeze
from glassformer.training.plan import Plan
from glassformer.training.precision import autocast, choose_precision
from glassformer.training.resume import Keeper, find_fault

__all__ = ["Finished", "Measured", "Preview", "Said", "Saved", "Started", "Stepped", "train"]

RECIPE, MODEL, CHECKPOINTS = "recipe.toml", "model", "checkpoints"
MAY_CHANGE = {
    "data",
    "base",
    "parallel",
    "micro_batch",
}  # between one start and the next: text and weights are known by their hashes
ENOUGH = 200_000_000  # characters of each source from which a vocabulary is learned


@dataclass(frozen=True)
class Said:
    """A remark for people."""

    text: str


@dataclass(frozen=True)
class Started:
    """What is about to be trained, on what."""

    parameters: int
    trained: int
    tokens: int
    held_out: int
    steps: int
    folder: Path


@dataclass(frozen=True)
class Preview:
    """What the model writes by now."""

    step: int
    text: str


def train(
    recipe: Recipe,
    out: Path,
    *,
    device: str = "cpu",
    offline: bool = False,
    progress: Callable[[str, int, int], object] = lambda what, done, total: None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Event | Said | Started | Preview]:
    """Train as the recipe says, into the folder `out`; go on where it stopped, if it did. Under torchrun: together."""
    if not recipe.text.data:
        raise InputError("data: name at least one text to learn from")
    find_device(device)
    first = os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"
    with ExitStack() as stack:
        if first:
            stack.enter_context(_only_trainer(out))
        tokenizer = _tokenizer(recipe, out, offline, progress)
        corpora = _corpora(
            recipe, tokenizer, progress
        )  # by then all ranks have the text, however long that took
        world = World.join(device)
        stack.callback(world.leave)
        build = partial(_build, recipe, tokenizer, world, offline)
        with world.company():
            yield from _train(recipe, out, build, tokenizer, corpora, world, stop)


def _train(
    recipe: Recipe,
    out: Path,
    build: Callable[[], GPT],
    tokenizer: Tokenizer,
    corpora: list[Corpus],
    world: World,
    stop: Callable[[], bool],
) -> Iterator[Event | Said | Started | Preview]:
    remarks: list[str] = []
    model = build()
    window = recipe.train.window or model.context
    if window > model.context:
        raise InputError(f"window: {window} tokens are more than the model's context of {model.context}")
    stream = Stream(
        [c.train for c in corpora], context=window, seed=recipe.train.seed, weights=recipe.text.weights,
        beginning=tokenizer.end if recipe.text.aligned else None,
    )  # fmt: skip
    rows = [c.held_out for c in corpora if c.held_out is not None and len(c.held_out) > 1]
    held_out = partial(
        in_order,
        rows,
        context=window,
        batch=recipe.train.micro_batch or max(1, recipe.train.batch // world.size),
    )
    keeper = Keeper(out / CHECKPOINTS, {}, remarks.append)
    recipe = _settle(recipe, out, keeper, world, partial(_rehearse, model, stream, world))
    keeper.identity = _identity(recipe, model, corpora)
    if world.tell(hash_json(keeper.identity)) != hash_json(keeper.identity):
        raise InputError(f"rank {world.rank}: the text or the recipe is not the same as rank 0's")
    if recipe.show.preview_tokens and len(tokenizer.encode(recipe.show.preview)) >= model.context:
        raise InputError(f"preview: the text leaves no room in a context of {model.context} tokens")
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    tokens = sum(len(row) for row in stream.rows)
    yield Started(model.config.parameters, trained, tokens, sum(map(len, rows)), recipe.train.steps, out)
    diary = Diary(out, tensorboard=recipe.show.tensorboard) if world.first else None
    events = fit(
        model, stream, next_token, recipe.train,
        watch=recipe.watch, held_out=partial(held_out, tokens=recipe.watch.eval_tokens) if rows else None,
        keeper=keeper, world=world, stop=stop,
    )  # fmt: skip
    whole = recipe.train.parallel == "ddp" or world.size == 1  # whether this process has all of the model
    try:
        for event in events:
            yield from map(Said, remarks)
            remarks.clear()
            if diary is not None:
                _write(diary, event)
            yield event
            if isinstance(event, Measured) and world.first and whole and recipe.show.preview_tokens:
                preview = _preview(model, tokenizer, recipe, event.step)
                assert diary is not None
                diary.write(event.step, preview=preview.text)
                yield preview
            if isinstance(event, Saved) and event.best and world.first and whole:
                _export(out / MODEL, model, tokenizer, recipe, corpora, event.step)
            if isinstance(event, Finished) and world.first:
                step, loss = (event.step, None) if event.best is None else (event.best_step, event.best)
                if (fault := find_fault(keeper.path(step))) is not None and step != event.step:
                    yield Said(
                        f"{keeper.path(step)}, the best, is damaged ({fault}); the newest becomes the model instead"
                    )
                    step, loss = event.step, None
                _export(
                    out / MODEL, _with(build(), keeper.weights(step)), tokenizer, recipe, corpora, step, loss
                )
    except OSError as error:
        raise GlassError(
            f"{out} cannot be written to ({error.strerror or error}); give the same command again to go on"
        ) from None
    finally:
        if diary is not None:
            diary.close()


@contextmanager
def _only_trainer(out: Path) -> Iterator[None]:
    """Whoever trains in a folder is alone there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = FileLock(out / "lock", timeout=0)
        lock.acquire()
    except Timeout:
        raise InputError(
            f"{out}: another process trains there; wait for it, or give another folder (--out)"
        ) from None
    except OSError as error:
        raise InputError(f"{out}: cannot be written to ({error.strerror})") from None
    try:
        yield
    finally:
        lock.release()


def _tokenizer(
    recipe: Recipe, out: Path, offline: bool, progress: Callable[[str, int, int], object]
) -> Tokenizer:
    """The vocabulary: the base's, or a named model's, or a new one, learned from the text once."""
    name = recipe.model.base or recipe.text.tokenizer
    if name:
        folder = _base_folder(name, offline) if recipe.model.base else locate(name, offline=offline)
        found = load_tokenizer(folder)
        if found is None:
            raise InputError(f"{name}: the model has no vocabulary")
        return found
    out.mkdir(parents=True, exist_ok=True)
    with FileLock(out / "vocabulary.lock"):
        path, note = out / "tokenizer.json", out / "vocabulary.sha256"
        sources = [find_files(Path(source)) for source in recipe.text.data]
        stats = [[file.name, file.stat().st_size] for files in sources for file in files]
        asked = hash_json([recipe.text.vocab, recipe.text.field, stats])
        begun = bool(
            Keeper(out / CHECKPOINTS, {}).steps()
        )  # then it must stay; whether it fits is checked later
        if not path.is_file() or not (begun or (note.is_file() and note.read_text() == asked)):
            total = sum(min(ENOUGH, sum(file.stat().st_size for file in files)) for files in sources)
            done = 0

            def count(characters: int) -> None:
                nonlocal done
                done += characters
                progress("learning the vocabulary", done, max(done, total))

            learned = train_tokenizer(
                (t for files in sources for t in _some(files, recipe)), recipe.text.vocab, progress=count
            )
            replace_file(path, learned.to_json())
            replace_file(note, asked)
    learned_before = load_tokenizer(out)
    assert learned_before is not None
    return learned_before


def _some(files: list[Path], recipe: Recipe) -> Iterator[str]:
    taken = 0
    for file in files:
        for piece in read_pieces(file, field=recipe.text.field):
            yield piece.text
            taken += len(piece.text)
            if taken > ENOUGH:
                return


def _corpora(
    recipe: Recipe, tokenizer: Tokenizer, progress: Callable[[str, int, int], object]
) -> list[Corpus]:
    text = recipe.text
    return [
        prepare(
            Path(source), tokenizer, held_out=text.held_out, field=text.field,
            progress=partial(progress, f"tokenizing {Path(source).name}"),
        )
        for source in text.data
    ]  # fmt: skip


def _base_folder(name: str, offline: bool) -> Path:
    folder = locate(name, offline=offline)
    return base_folder(folder, read_adapter(folder).base, offline=offline) if is_adapter(folder) else folder


def _build(recipe: Recipe, tokenizer: Tokenizer, world: World, offline: bool) -> GPT:
    """The model as it is before the first step."""
    shape, plan, lora = recipe.model, recipe.train, recipe.lora
    dtype = parse_dtype("float64" if plan.precision == "float64" else "float32")
    if shape.base:
        folder = locate(shape.base, offline=offline)
        if is_adapter(folder) and lora.rank:
            raise InputError(
                f"{shape.base} is a LoRA folder, and LoRA beside LoRA cannot be kept; train without it, or merge first"
            )
        how: dict[str, Any] = {"dtype": dtype, "dropout": shape.dropout}
        loaded = (
            load_adapted(folder, offline=offline, **how) if is_adapter(folder) else load_folder(folder, **how)
        )
        model = loaded.model
        for (
            parameter
        ) in model.parameters():  # one layout in memory, whatever the file had: the same bits on every start
            parameter.data = parameter.data.contiguous()
    else:
        names = ("layers", "heads", "width", "context", "dropout", "bias")
        config = Config(**{name: getattr(shape, name) for name in names}, vocab=len(tokenizer))
        machine.check_memory(
            4 * config.parameters * dtype.itemsize, what=f"training {config.parameters:,} parameters"
        )
        model = GPT(config).initialise(plan.seed).to(dtype)
    if lora.rank:
        attach(
            model, lora.targets, rank=lora.rank, scale=lora.alpha / lora.rank, dropout=lora.lora_dropout, seed=plan.seed
        )  # fmt: skip
    freeze(model, shape.freeze)
    return model.to(world.device)


def _settle(recipe: Recipe, out: Path, keeper: Keeper, world: World, run: Callable[[Plan], object]) -> Recipe:
    """The recipe as it is carried out: what was decided at the first start stays decided."""
    path = out / RECIPE
    settled = (
        Recipe.read(path).train.precision if world.first and keeper.steps() and path.is_file() else "new"
    )
    settled = world.tell(settled)  # only rank 0 is sure to have the run's folder
    if settled != "new":
        if recipe.train.precision in ("auto", "bf16"):
            recipe = replace(recipe, train=replace(recipe.train, precision=settled))
        return recipe
    plan, why = choose_precision(recipe.train, world.device, run)
    plan = replace(plan, precision=world.tell(plan.precision))
    if why:
        keeper.say(f"precision {why}")
    recipe = replace(recipe, train=plan)
    if world.first:
        replace_file(path, recipe.to_toml())
    return recipe


def _rehearse(model: GPT, stream: Stream, world: World, plan: Plan) -> None:
    """The work of a step, without its consequences."""
    kept = list(stream.cursor)
    rows = world.share(stream.draw(plan.batch))
    stream.cursor = kept
    ids = stream.read(rows[: plan.micro_batch or len(rows)]).arrays["ids"]
    with autocast(plan, world.device):
        loss = next_token(model, {"ids": torch.as_tensor(ids, device=world.device)})
    loss.backward()  # type: ignore[no-untyped-call]
    model.zero_grad(set_to_none=True)


def _identity(recipe: Recipe, model: GPT, corpora: list[Corpus]) -> dict[str, Any]:
    sections = recipe.to_dict()
    facts = {
        key: value for name in ("text", "model", "lora", "train") for key, value in sections[name].items()
    }
    facts = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in facts.items()
        if key not in MAY_CHANGE
    }
    given = [p for name, p in model.named_parameters() if recipe.model.base and "lora_" not in name]
    hashes = [
        hashlib.sha256(value.detach().cpu().contiguous().numpy().tobytes()).hexdigest() for value in given
    ]
    return facts | {
        "text (sha256)": hash_json([c.digest for c in corpora]),
        "the base's weights (sha256)": hash_json(hashes),
    }


def _write(diary: Diary, event: Event) -> None:
    if isinstance(event, Stepped):
        diary.write(**vars(event))
    elif isinstance(event, Measured):
        diary.write(event.step, held_out=event.loss)


def _preview(model: GPT, tokenizer: Tokenizer, recipe: Recipe, step: int) -> Preview:
    show = recipe.show
    ids = tokenizer.encode(show.preview)
    room = model.context - max(1, len(ids))
    out = LanguageModel(model, tokenizer).generate(
        show.preview, max_new_tokens=min(show.preview_tokens, room), seed=0
    )
    return Preview(step, show.preview + out.text)


@torch.no_grad()
def _with(model: GPT, weights: Mapping[str, Tensor]) -> GPT:
    for name, parameter in model.named_parameters():
        if name in weights:
            parameter.copy_(weights[name])
    return model


def _export(
    folder: Path,
    model: GPT,
    tokenizer: Tokenizer,
    recipe: Recipe,
    corpora: list[Corpus],
    step: int,
    loss: float | None = None,
) -> None:
    """Write the model, or what LoRA learned, where `glass generate` finds it."""
    for left in folder.parent.glob(f".{folder.name}.*"):  # of one that was killed while it did this
        shutil.rmtree(left, ignore_errors=True)
    card = _card(folder.parent.name, recipe, corpora, step, loss)
    if recipe.lora.rank:
        detours = {
            name: Detour(layer.lora_a, layer.lora_b, layer.scale) for name, layer in adapted_layers(model)
        }
        base = recipe.model.base
        name = str(locate(base).resolve()) if Path(base).is_dir() and not shipped(base) else base
        save_adapter(folder, detours, base=name, dropout=recipe.lora.lora_dropout, card=card)
    else:
        save_folder(folder, model, tokenizer=tokenizer, card=card)


def _card(name: str, recipe: Recipe, corpora: list[Corpus], step: int, loss: float | None) -> str:
    sources = [
        f"- `{corpus.notes['source']}`: {corpus.notes['documents']:,} documents, {len(corpus.train):,} tokens to learn from,"
        f" {len(corpus.held_out or ()):,} held out; sha256 {', '.join(hash[:16] for hash in corpus.notes['sha256'][:8])}"
        for corpus in corpora
    ]
    measured = "" if loss is None else f" Loss on held-out text: {loss:.4f} nats a token."
    head = [f"# {name}", "", f"Trained by Glassformer for {step:,} steps.{measured}"]
    return "\n".join(
        [
            *head,
            "",
            "## Text",
            "",
            *sources,
            "",
            "## Recipe",
            "",
            "```toml",
            recipe.to_toml().rstrip(),
            "```",
            "",
        ]
    )

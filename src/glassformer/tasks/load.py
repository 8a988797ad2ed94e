"""Load a model: from a name to a handle. A model is quantized for the native engine once, and kept."""

from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.engine import reading
from glassformer.errors import CheckpointError, GlassError, InputError, warn
from glassformer.files import read_json
from glassformer.generation.options import Options
from glassformer.hub.families import family_of, kind_of, with_head
from glassformer.hub.generation_config import read_generation_config
from glassformer.hub.locate import as_path, locate

if TYPE_CHECKING:
    import torch

    from glassformer.engine.reading import FileReader
    from glassformer.hub.folder import Loaded
    from glassformer.tasks.complete import LanguageModel
    from glassformer.tokenizers import Tokenizer

# What a model is for -> the class of its handle. A model that is for something else is a plain `Model`, which
# can be looked into. To add a handle: a line here.
HANDLES = {
    frozenset({"writes"}): "glassformer.tasks.complete.LanguageModel",
    frozenset({"writes", "translates"}): "glassformer.tasks.decoder_translate.DecoderTranslator",
    frozenset({"writes", "source"}): "glassformer.tasks.translate.Translator",
    frozenset({"writes", "composes"}): "glassformer.tasks.compose.Composer",
    frozenset({"labels"}): "glassformer.tasks.label.Labeler",
    frozenset({"labels", "extracts"}): "glassformer.tasks.classify.TextClassifier",
}
# Others say how a model computes, or are offered by every language model.
PURPOSES = frozenset({"writes", "translates", "source", "encodes", "labels", "extracts", "draws", "composes"})


def load(
    name: str = "storyteller",
    *,
    engine: str = "auto",
    revision: str | None = None,
    device: str = "cpu",
    dtype: "str | torch.dtype" = "float32",
    offline: bool = False,
    quantize: str = "int8",
) -> "LanguageModel":
    """Load a model: a shipped name, a folder (also of LoRA), a hub id (`owner/name@revision`), a name
    from `glass models`.

    `engine`: native (quantized, fast), torch (as `dtype` and `device` say), or auto: native where it runs the
    model. `quantize`: the native engine's weights, int8, or int4: half the memory, faster, less exact. What
    comes back is the handle for what the model can do. It is typed as a `LanguageModel`, which models of all
    known families have; `.expect(…)` checks and types another one.
    """
    dtype = str(dtype).removeprefix("torch.")
    quantized_fits = device == "cpu" and dtype in ("float32", "fp32", "auto")  # as `wants_native` checks
    early = engine != "torch" and quantized_fits
    begun = _begin(str(name), revision=revision, quantize=quantize) if early else None
    from glassformer.engine import native, store
    from glassformer.tasks.backends import bits_named, wants_native
    from glassformer.tasks.load_native import load_kept, native_handle, quantized

    try_native = wants_native(engine, device=device, dtype=dtype)
    bits = bits_named(quantize, engine=engine)
    folder = locate(str(name), revision=revision, offline=offline)
    if try_native and (found := load_kept(folder, begun, bits=bits)) is not None:
        return native_handle(*found, name=str(name), folder=folder, offline=offline)

    base = base_of(folder, offline=offline)
    stamps = store.stamps(
        [folder, base]
    )  # before the weights are read: a file that changes meanwhile is noticed
    loaded = load_torch(folder, device=device, dtype=dtype, offline=offline)
    if try_native:
        reason = native.Engine.unsupported(loaded.family.kind, asdict(loaded.model.config))
        if not reason:
            found = quantized(folder, loaded, base=base, stamps=stamps, bits=bits)
            return native_handle(*found, name=str(name), folder=folder, offline=offline)
        if engine == "native":
            raise InputError(f"{name}: {reason}; use --engine torch")
        if loaded.model.capabilities & PURPOSES == {"writes"}:  # others never run on that engine
            warn(f"{name}: {reason}; torch is used instead")
    settings, ends = generation_of(base)
    handle = handle_for(loaded.model.capabilities, loaded.tokenizer)
    return handle(loaded.model, loaded.tokenizer, name=str(name), settings=settings, ends=ends)


def _begin(name: str, *, revision: str | None, quantize: str) -> "FileReader | None":
    """Begin to read what is kept of a model on this machine, while NumPy and what generates are imported."""
    try:
        folder = locate(name, revision=revision, offline=True)
    except GlassError:
        return None
    return reading.begin(folder, bits={"int4": 4}.get(quantize, 8))


def handle_for(capabilities: frozenset[str], tokenizer: "Tokenizer | None" = None) -> "type[LanguageModel]":
    """The class of the handle of a model with these capabilities, and of a decoder with these tags."""
    from glassformer.tasks.tags import purposes_of

    found = capabilities & PURPOSES
    if found == {"writes"}:
        found |= purposes_of(tokenizer) & PURPOSES
    path = HANDLES.get(found, "glassformer.tasks.model.Model")
    module, _, name = path.rpartition(".")
    handle: type[LanguageModel] = getattr(import_module(module), name)
    return handle


def handle_of(name: str) -> "type[LanguageModel]":
    """The class of the handle that a model on this machine would get; its weights are not read."""
    from glassformer.hub.vocabulary import load_tokenizer

    folder = base_of(locate(name, offline=True), offline=True)
    path = folder / "config.json"
    found = family_of(read_json(path), path)
    return handle_for(found.build.capabilities, load_tokenizer(folder, check=False))


def generation_of(folder: Path) -> tuple[dict[str, Any], frozenset[int]]:
    """The settings that a model's own `generation_config.json` recommends, checked; and its end tokens."""
    settings, ends = read_generation_config(folder)
    try:
        Options(**settings)
    except InputError as error:
        raise CheckpointError(f"{folder / 'generation_config.json'}: {error}") from None
    return settings, ends


def load_torch(
    folder: Path, *, device: str = "cpu", dtype: str = "float32", offline: bool = False
) -> "Loaded":
    """The torch model of a folder: a whole model, or a LoRA folder with its base."""
    from glassformer.hub.folder import load_folder, parse_dtype
    from glassformer.hub.lora import is_adapter

    how: dict[str, Any] = {"dtype": parse_dtype(dtype), "device": str(find_device(device))}
    return load_adapted(folder, offline=offline, **how) if is_adapter(folder) else load_folder(folder, **how)


def load_adapted(folder: Path, *, offline: bool = False, **how: Any) -> "Loaded":
    """A LoRA folder: the model that it names, with what it learned merged in."""
    import torch

    from glassformer.hub.folder import load_folder
    from glassformer.hub.lora import read_adapter, read_base
    from glassformer.training.lora import fold, insert

    loaded = load_folder(base_folder(folder, read_base(folder), offline=offline), **how)
    adapter = read_adapter(folder, family=loaded.family)
    try:
        insert(loaded.model, adapter.weights)
    except InputError as error:
        raise CheckpointError(f"{folder}: {error} {adapter.base[:100]!r}") from None
    fold(loaded.model)
    for name in adapter.weights:
        if not torch.stack(loaded.model.get_parameter(f"{name}.weight").aminmax()).isfinite().all():
            raise CheckpointError(
                f"{folder}: what it adds to {name} is too large for {loaded.model.tokens.weight.dtype}"
            )
    return replace(loaded, folder=folder)


def base_of(folder: Path, *, offline: bool = False) -> Path:
    """The folder of the vocabulary and the configuration: its own, or that of a LoRA folder's base."""
    if not (folder / "adapter_config.json").is_file():
        return folder
    from glassformer.hub.lora import is_adapter, read_base

    return base_folder(folder, read_base(folder), offline=offline) if is_adapter(folder) else folder


def kind_of_base(name: str) -> str | None:
    """The kind of a model that is on this machine; None if there is none of this name."""
    try:
        path = base_of(locate(name, offline=True), offline=True) / "config.json"
        return kind_of(read_json(path))
    except GlassError:
        return None


def takes_a_head(name: str) -> bool:
    """Whether a model on this machine is a decoder, which a head makes a classifier."""
    kind = kind_of_base(name)
    return kind is not None and with_head(kind) is not None


def task_of_base(name: str) -> str | None:
    """What the head of a model on this machine is for; None if it has none, or does not say."""
    try:
        task = read_json(base_of(locate(name, offline=True), offline=True) / "config.json").get("glass_task")
    except GlassError:
        return None
    return task if isinstance(task, str) else None


def base_folder(folder: Path, name: str, *, offline: bool = False) -> Path:
    """The folder of the model that a LoRA folder names: a path relative to it, or any other name."""
    from glassformer.hub.lora import is_adapter

    beside = as_path(str(folder.absolute() / name))
    base = locate(str(beside) if beside.is_dir() else name, offline=offline)
    if is_adapter(base):
        raise InputError(f"{folder}: its base {name} is a LoRA folder itself; merge that one first")
    return base


def find_device(name: str) -> "torch.device":
    """A device by its name, if this machine has it."""
    import torch

    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()  # `meta` has no numbers to bring back
    except (RuntimeError, AssertionError, ImportError):  # torch knows names for which it has no module here
        raise InputError(f"device {name!r} is not available; cpu always is") from None
    return device

"""Who computes: the native engine, or torch. A model is quantized for the native one once, and kept."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from threading import Thread

from glassformer import machine
from glassformer.engine import native, store
from glassformer.engine.quantize import pack
from glassformer.errors import InputError
from glassformer.hub.vocabulary import folder_tokenizer
from glassformer.tokenizers import Tokenizer

ENGINES = ("auto", "native", "torch")
Say = Callable[[str], object]
LARGE = 300_000_000  # bytes of a model whose quantization takes so long that a person should know of it


def status() -> str:
    """Which engine `auto` takes here, and why."""
    return native.status()


def wants_native(engine: str, *, device: str = "cpu", dtype: str = "float32") -> bool:
    """Whether the native engine is to speak; raises where it is asked for and cannot."""
    if engine not in ENGINES:
        raise InputError(f"engine {engine!r} is none of {', '.join(ENGINES)}")
    fits = device == "cpu" and dtype in ("float32", "fp32", "auto")
    if engine == "native" and not fits:
        raise InputError(
            f"the native engine computes in int8 on the cpu; device {device} and dtype {dtype} are for engine torch"
        )
    if engine == "native" and not native.ways():
        raise InputError(f"engine native is not here, there is {native.status()}")
    return engine != "torch" and fits and bool(native.ways())


def load_native(
    folder: Path, *, offline: bool = False, say: Say = lambda text: None
) -> tuple[native.Engine, Tokenizer | None]:
    """The engine of a folder's model, and the tokenizer; the first time, the model is quantized and kept."""
    note = store.find(folder)
    kept = tokenizer = None
    if note is not None:
        machine.check_memory(store.size(folder), what=str(folder))
        found: list[store.Kept | None] = []
        aside = Thread(target=lambda: found.append(store.read(folder, note)))
        aside.start()  # numbers are read and their hash taken while the vocabulary is put together
        tokenizer = folder_tokenizer(Path(note["told"]["tokenizer"]), note["config"]["vocab"], check=False)
        aside.join()
        kept = found[0] if found else None
    if kept is None:
        kept = _quantize(folder, offline, say)
        tokenizer = folder_tokenizer(Path(kept.told["tokenizer"]), kept.config["vocab"])
    return native.Engine(kept.config, kept.arrays), tokenizer


def _quantize(folder: Path, offline: bool, say: Say) -> store.Kept:
    from glassformer.hub.lora import is_adapter, read_adapter
    from glassformer.tasks.loading import base_folder, load_torch

    base = base_folder(folder, read_adapter(folder).base, offline=offline) if is_adapter(folder) else folder
    folders = [folder, base]
    before = store.stamps(folders)
    if sum(size for size, _ in before.values()) > LARGE:
        say(f"{folder.name}: bringing the weights to 8 bits for the native engine, once")
    model = load_torch(folder, offline=offline).model
    config = asdict(model.config)
    arrays = pack(config, {name: weights.detach().numpy() for name, weights in model.named_parameters()})
    told = {"tokenizer": str(base.absolute())}
    try:
        store.keep(folder, config, arrays, folders, before, **told)
    except OSError as error:  # a home that cannot be written to, or is full: the next start takes as long
        say(f"the quantized model could not be kept in {machine.home()}: {error.strerror or error}")
    note = store.find(folder)
    return (note and store.read(folder, note)) or store.Kept(config, arrays, told)

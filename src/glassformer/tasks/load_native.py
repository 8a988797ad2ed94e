"""Load a model for the native engine: its quantized form, which is kept, or is made and kept."""

from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer import machine
from glassformer.engine import native, store
from glassformer.engine.quantize import Array, pack
from glassformer.engine.reading import FileReader, begin, kept_size, place
from glassformer.errors import warn
from glassformer.hub.vocabulary import folder_tokenizer
from glassformer.tasks.load import HANDLES, generation_of, handle_for, load_torch

if TYPE_CHECKING:
    from glassformer.hub.folder import Loaded
    from glassformer.tasks.complete import LanguageModel
    from glassformer.tokenizers import Tokenizer

LARGE = 300_000_000  # bytes of a model whose quantization takes long enough for a message


def load_kept(
    folder: Path, begun: FileReader | None, *, bits: int
) -> "tuple[store.Kept, Tokenizer | None] | None":
    """The kept quantized form of a folder's model, and its tokenizer; None if there is no fresh one."""
    note = store.find(folder, bits=bits)
    if note is None:
        return None
    machine.check_memory(kept_size(folder, bits=bits), what=str(folder))
    # The numbers are read and hashed while the vocabulary is put together and what generates is imported.
    if begun is None or begun.path.parent != place(folder, bits=bits):  # the name now leads elsewhere
        begun = begin(folder, bits=bits)
    import_module(HANDLES[frozenset({"writes"})].rpartition(".")[0])
    tokenizer = folder_tokenizer(Path(note["about"]["base"]), note["config"]["vocab"], check=False)
    kept = store.read(folder, note, begun=begun)
    return None if kept is None else (kept, tokenizer)


def quantized(
    folder: Path, loaded: "Loaded", *, base: Path, stamps: store.Stamps, bits: int
) -> "tuple[store.Kept, Tokenizer | None]":
    """Quantize a model and keep the result for the next start."""
    if sum(size for size, _ in stamps.values()) > LARGE:
        takes = " (this takes a minute or more)" if bits == 4 else ""
        warn(f"{folder.name}: quantizing the weights to {bits} bits for the native engine, once{takes}")
    kept = store.Kept(
        asdict(loaded.model.config), _pack(loaded, base, bits=bits), {"base": str(base.absolute())}
    )
    try:
        store.keep(folder, kept, folders=[folder, base], stamps=stamps)
    except OSError as error:  # a home that is read-only or full: the next start takes as long
        warn(f"the quantized model could not be kept in {machine.home()}: {error.strerror or error}")
    note = store.find(folder, bits=bits)
    reread = None if note is None else store.read(folder, note)  # into large pages, which are read faster
    return reread or kept, loaded.tokenizer


def _pack(loaded: "Loaded", base: Path, *, bits: int) -> dict[str, Array]:
    """The quantized weights of a model; four bits are rounded by what the model reads in texts of its own."""
    config = asdict(loaded.model.config)
    weights = {name: values.detach().numpy() for name, values in loaded.model.named_parameters()}
    if bits == 8:
        return pack(config, weights)
    from glassformer.tasks.calibration import Calibration

    _, ends = generation_of(base)
    start = min(ends, default=config["vocab"] - 1)  # GPT-2's own end of text is its last token
    calibration = Calibration(loaded.model, native.Engine(config, pack(config, weights)), start=start)
    return pack(config, weights, bits=bits, importance=calibration.moments)


def native_handle(
    kept: store.Kept, tokenizer: "Tokenizer | None", *, name: str, folder: Path, offline: bool
) -> "LanguageModel":
    """The handle of a quantized model; its torch module is made when it is first asked for."""
    settings, ends = generation_of(Path(kept.about["base"]))

    def make() -> Any:
        return load_torch(folder, offline=offline).model

    engine = native.Engine(kept.config, kept.arrays)
    handle = handle_for(engine.capabilities, tokenizer)
    return handle(None, tokenizer, name=name, engine=engine, make=make, settings=settings, ends=ends)

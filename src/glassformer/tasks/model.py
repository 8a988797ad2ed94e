"""The handle of a model: its name, its tokenizer, its torch module, its backend, and the questions that every
model can be asked. A lock keeps threads apart.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import numpy as np

from glassformer.answers import ask
from glassformer.errors import GlassError, InputError, warn
from glassformer.generation.stepper import Logits, Scorer
from glassformer.tasks.backends import Backend, TorchBackend, fingerprint, is_observed
from glassformer.tokenizers import Tokenizer, pieces

if TYPE_CHECKING:
    import torch

    from glassformer.answers.answer import Text
    from glassformer.answers.diff import Diff
    from glassformer.answers.edits import Edits, Sweep
    from glassformer.answers.neurons import Examples, Promotes
    from glassformer.answers.tokens import Embedding, Merges, Tokens
    from glassformer.answers.training import PairRows, TrainingRows, Update
    from glassformer.data.sequences import Room
    from glassformer.engine.native import Engine
    from glassformer.explain.edits import EditSession
    from glassformer.explain.reading import Reading
    from glassformer.hub.transformerlens import Activations
    from glassformer.tasks.complete import LanguageModel
    from glassformer.trace import Edits as TraceEdits
    from glassformer.trace import Tracer

Prompt = str | Sequence[int]
Handle = TypeVar("Handle", bound="Model")


class Model:
    """What every loaded model has, whatever it can do.

    Where there is a native engine, the engine computes logits; `net`, in torch, is what one looks into, and
    is loaded when it is first asked for.
    """

    task: ClassVar[str] = "be looked into"  # what this handle is for, after "cannot"
    made_by: ClassVar[str] = ""  # the command that makes a model for it, as the end of a sentence
    verbs: ClassVar[
        tuple[str, ...]
    ] = ()  # what it offers: methods of a text, each a verb of the command line

    def __init__(
        self,
        net: Any | None,
        tokenizer: Tokenizer | None,
        *,
        name: str = "",
        engine: "Engine | None" = None,
        make: Callable[[], Any] | None = None,
        settings: dict[str, Any] | None = None,
        ends: Iterable[int] = (),
    ) -> None:
        """A torch module, or a function that makes it when it is first needed, beside an engine.

        `settings` and `ends` are the model's own: defaults of generation, and the tokens that end a text.
        """
        self.name, self.tokenizer, self.engine = name, tokenizer, engine
        self.settings = dict(settings or {})
        end = None if tokenizer is None else tokenizer.end
        self.ends = frozenset(ends) or frozenset(() if end is None else (end,))
        self.lock = threading.RLock()  # held by every run of the torch module, and while it is edited
        self._net, self._make = net, make
        self._warned_of_blank = False
        self._weights: str | None = None  # the fingerprint of the weights when `net` was handed out
        # The open blocks, and their thread. Only that thread changes them, because it holds the lock.
        # Another one may read them at any time: whatever it sees, the thread is not its own.
        self._thread = 0
        self._depth = 0  # of `with edit()` and `with trace()`
        self._edits: tuple[object, ...] = ()  # one object for each `with edit()`

    def __repr__(self) -> str:
        backend = self.backend
        return f"{type(self).__name__}({self.name!r}, {backend.name}, context {backend.context})"

    @property
    def net(self) -> Any:
        """The torch module, loaded when first asked for. If it is changed, it computes, not the engine."""
        net = self._load()
        if self.engine is not None and self._weights is None:
            self._weights = fingerprint(net)
        return net

    @property
    def model(self) -> Any:
        """Another name for `net`."""
        return self.net

    @property
    def capabilities(self) -> frozenset[str]:
        """What the model can do: `writes`, `attends`, … An engine knows it without loading torch."""
        if self.engine is not None:
            return self.engine.capabilities
        net = self._load()
        capabilities = set(net.capabilities)
        if net.stacks:
            capabilities.add("layers")
        if any(stack.neurons for stack in net.stacks):
            capabilities.add("neurons")
        return frozenset(capabilities)

    def expect(self, handle: type[Handle]) -> Handle:
        """This handle, if it is of a class; else a sentence that says what the model cannot do."""
        if isinstance(self, handle):
            return self
        known = ", ".join(sorted(self.capabilities))
        made_by = f"; {handle.made_by}" if handle.made_by else ""
        raise InputError(f"{self.name} cannot {handle.task}; its capabilities are: {known}{made_by}")

    # What computes.

    @property
    def backend(self) -> Backend:
        """What computes logits: the native engine, unless the torch module is edited, traced or changed."""
        if self.engine is None or self._inside() or self._changed():
            return self._torch_backend()
        return self.engine

    def _torch_backend(
        self, model: Scorer | None = None, *, session: "EditSession | None" = None
    ) -> TorchBackend:
        """The torch module, or a view of it that is bound to a source, with the edits of a call."""
        net = self._load()
        name = str(net.tokens.weight.dtype).replace(".", " ")  # torch float32
        check = self._same_edits()
        return TorchBackend(model or net, name, lock=self.lock, edits=session, check=check)

    def _changed(self) -> bool:
        """Whether the torch module no longer is the model that was quantized, or is observed by the user."""
        if self._net is None or self._weights is None:
            return False  # no user has it
        return is_observed(self._net) or fingerprint(self._net) != self._weights

    def logits(self, ids: Prompt) -> Logits:
        """Scores of the next token after every position (T, V), by the torch module."""
        ids = self.encode(ids) if isinstance(ids, str) else ids
        return np.asarray(self._torch_backend().logits(_row(ids))[0])

    def next_logits(self, ids: Prompt) -> Logits:
        """Scores of the next token after a text (V,), by the backend that generates."""
        ids = self.encode(ids) if isinstance(ids, str) else ids
        backend = self.backend
        return np.asarray(backend.step(_row(ids), backend.new_cache(1, len(ids)))[0])

    def _load(self) -> Any:
        with self.lock:
            if self._net is None:
                assert self._make is not None
                self._net = self._make()
            return self._net

    def encode(self, prompt: Prompt, *, special: bool = False) -> list[int]:
        """The ids of a text, or token ids as they are; `<|endoftext|>` for an empty prompt."""
        if isinstance(prompt, str):
            ids = self._vocabulary().encode(prompt, special=special)
        elif isinstance(prompt, bytes | bytearray) or not hasattr(prompt, "__iter__"):
            raise InputError(
                f"a prompt must be a text or a sequence of token ids, not {type(prompt).__name__}"
            )
        else:
            ids = prompt.tolist() if hasattr(prompt, "tolist") else list(prompt)  # of an array or a tensor
            if any(type(id) is not int for id in ids):
                raise InputError("a prompt of token ids must hold whole numbers only")
        if ids:
            return ids
        if self.tokenizer is None or self.tokenizer.end is None:
            raise InputError("an empty prompt needs a vocabulary with <|endoftext|> to start from")
        return [self.tokenizer.end]

    def warn_of_blank(self, prompt: Prompt) -> None:
        """Warn, once, of a text that ends with a blank where the blank before a word is part of its token.

        A blank alone is then a rare token, and what follows it is seldom a word.
        """
        if self._warned_of_blank or not isinstance(prompt, str) or not prompt[:-1].strip():
            return
        if prompt[-1:] != " " or self.tokenizer is None or len(self.tokenizer.encode(" a")) != 1:
            return
        self._warned_of_blank = True
        warn("the text ends with a blank, a token of its own; words begin with theirs: leave it out")

    def piece(self, id: int) -> str:
        """The text of one token; bytes that are no complete character are shown as U+FFFD."""
        return self.text_of([id])

    def bytes_of(self, id: int, after: int | None = None) -> bytes:
        """The bytes of one token, which follows the token `after`."""
        return pieces(self.tokenizer, [id], after=after)[0]

    def text_of(self, ids: Sequence[int], after: int | None = None) -> str:
        """The text of token ids, special ones included, which follow the token `after`."""
        return b"".join(pieces(self.tokenizer, ids, after=after)).decode("utf-8", "replace")

    def _vocabulary(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError(
                f"{self.name or 'this model'} has no vocabulary: put its tokenizer.json into its folder,"
                " or, in Python, give token ids instead of a text"
            )
        return self.tokenizer

    def reading(self, ids: Prompt, *, prompt: int = 0, source: Sequence[int] | None = None) -> "Reading":
        """A text for explanations; the first `prompt` tokens were given, the others were generated.

        `source` is the second text of a model that reads two.
        """
        from glassformer.explain.reading import Reading

        first = self.encode(ids) if isinstance(ids, str) else list(ids)
        second = None if source is None else list(source)
        return Reading(self._load(), first, prompt=prompt, lock=self.lock, source=second)

    def reading_of(self, text: str) -> "Reading":
        """A text that an edit names, as the model reads it."""
        return self.reading(self.encode(text))

    def check_sites(self, sites: Iterable[str]) -> None:
        """Refuse names of TransformerLens where values have our shapes, and say what they are called here."""
        from glassformer.hub.transformerlens import check_ours

        check_ours(sites)

    @contextmanager
    def edit(self, edits: "Edits", *, read: "Callable[[str], Reading] | None" = None) -> "Iterator[Model]":
        """Inside, the model runs with edits: a list of them, or a file that holds one. Other threads wait.

        A stream that began inside must end inside; or give `edits` to the call instead. `read` reads the
        texts that edits name, by default as `reading_of` does.
        """
        from glassformer.answers.edits import read_edits
        from glassformer.explain.edits import edited

        with self._exclusive():
            chosen = read_edits(self, edits, read=read)
            before = self._edits
            self._edits = (*before, object())
            try:
                with edited(self._load(), chosen):
                    yield self
            finally:
                self._edits = before

    def _session(self, edits: "Edits", *, read: "Callable[[str], Reading] | None" = None) -> "EditSession":
        """The edits of one call, to be entered around every run of it."""
        from glassformer.answers.edits import read_edits
        from glassformer.explain.edits import EditSession

        with self.lock:  # to read edits is to run the model: for its sites, and for texts that they name
            return EditSession(self._load(), read_edits(self, edits, read=read))

    @contextmanager
    def in_torch(self) -> "Iterator[Model]":
        """Inside, this thread generates by torch, not by the native engine."""
        with self._exclusive():
            yield self

    @contextmanager
    def trace(self, *sites: str, edits: "TraceEdits | None" = None, grad: bool = False) -> "Iterator[Tracer]":
        """Inside, values at some sites (all) are recorded, as by `gf.trace(lm.net)`. Other threads wait.

        `edits` maps a site to a function from its value to the new one. With `grad=True` the values stay in
        the graph of what runs with gradients: `lm.net(ids)`.
        """
        from glassformer.trace import trace

        edited = edits if isinstance(edits, Mapping) else [site for site, _ in edits or ()]
        self.check_sites([*sites, *edited])
        with self._exclusive(), trace(self._load(), *sites, edits=edits, grad=grad) as seen:
            yield seen

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the lock and remember which thread does."""
        with self.lock:
            before = self._thread
            self._thread = threading.get_ident()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                self._thread = before

    def _inside(self) -> bool:
        """Whether this thread is inside `edit`, `trace` or `in_torch`."""
        return self._depth > 0 and self._thread == threading.get_ident()

    def _same_edits(self) -> Callable[[], None]:
        """A check that the edits of now are in force: a stream must not gain or lose edits on its way."""
        begun = self._edits if self._inside() else ()

        def check() -> None:
            now = self._edits if self._inside() else ()
            if now != begun:
                raise GlassError(
                    "this stream did not begin inside the same `with lm.edit(…)`; give edits= to the call"
                )

        return check

    def run_with_cache(
        self, prompt: "Prompt | Sequence[Prompt] | torch.Tensor", *sites: str | Iterable[str]
    ) -> "tuple[torch.Tensor, Activations]":
        """Logits (B, T, V) and the values at some sites (all), also under TransformerLens' names.

        A prompt is a text, token ids (a list, or a tensor (T,) or (B, T)), or a list of such prompts, which
        must have as many tokens as each other. Sites are given one by one, or as a list.
        """
        import torch

        from glassformer.hub.transformerlens import Activations, our_site

        rows = self._rows(prompt)
        # Not inference_mode: its tensors can neither be trained on nor changed in place.
        names = [name for one in sites for name in ([one] if isinstance(one, str) else one)]
        with self.trace(*map(our_site, names)) as seen, torch.no_grad():
            net = self._load()
            logits: torch.Tensor = net(torch.tensor(rows, device=net.device))
        return logits, Activations(seen)

    def _rows(self, prompts: Any) -> list[list[int]]:
        """The ids of one prompt or several of one length: a batch."""
        if hasattr(prompts, "tolist"):
            prompts = prompts.tolist()
        several = isinstance(prompts, list | tuple) and bool(prompts) and not isinstance(prompts[0], int)
        rows = [self.encode(one) for one in (prompts if several else [prompts])]
        for row in rows:
            self.reading(row).check_ids()
            if len(row) != len(rows[0]):
                raise InputError(
                    f"prompts of a batch must have one length, not {len(rows[0])} and {len(row)} tokens"
                )
        return rows

    def save(self, folder: str | Path, *, dtype: str | None = None) -> None:
        """Write a folder that `load` reads, and `transformers` too where it knows the family.

        It holds all weights: of a model that was loaded from a LoRA folder, base and LoRA merged.
        """
        from glassformer.hub.folder import parse_dtype, save_folder
        from glassformer.hub.generation_config import write_generation_config

        kind = None if dtype is None else parse_dtype(dtype)
        generation = write_generation_config(self.settings, self.ends)
        save_folder(Path(folder), self._load(), tokenizer=self.tokenizer, dtype=kind, generation=generation)

    # Questions: see `glassformer.answers.QUESTIONS`. A model that lacks what one needs says so.

    def _text(self, ids: list[int]) -> "Text":
        from glassformer.answers.answer import Text  # here: generating needs no answers, and starts faster

        return Text(self, ids)

    def tokens(self, text: str) -> "Tokens":
        """The tokens that a text is made of."""
        return cast("Tokens", ask("tokens", self._vocabulary(), text, model=self.name))

    def merges(self, text: str) -> "Merges":
        """How the words of a text become tokens, merge by merge."""
        return cast("Merges", ask("merges", self._vocabulary(), text, model=self.name))

    def embedding(self, text: Prompt) -> "Embedding":
        """What goes into the first block: the row of each token, and that of its position."""
        return cast("Embedding", ask("embedding", self._text(self.encode(text))))

    def diff(self, other: "Model", text: Prompt) -> "Diff":
        """This model and another one on a text, token by token."""
        return cast("Diff", ask("diff", self, text, other=other))

    def sweep(
        self,
        clean: Prompt,
        corrupted: Prompt,
        *,
        answer: str | int,
        foil: str | int,
        sites: str | Sequence[str] = (),
    ) -> "Sweep":
        """Which sites and positions make the difference between two texts, by patching each of them.

        `sites`, one or several, are by default the ends of all blocks (`blocks.*.out`); all heads one by one
        are `blocks.*.attn.mix[*]`. `answer` and `foil` are the tokens whose logits are compared.
        """
        how = {"corrupted": corrupted, "answer": answer, "foil": foil, "sites": sites}
        return cast("Sweep", ask("sweep", self, clean, **how))

    def promotes(self, layer: int, neuron: int, *, k: int = 10) -> "Promotes":
        """The tokens that a neuron makes likelier when it fires."""
        return cast("Promotes", ask("promotes", self, layer=layer, neuron=neuron, k=k))

    def examples(
        self, texts: str | Path | Iterable[str | Path], *, layer: int, neuron: int, k: int = 5, **how: Any
    ) -> "Examples":
        """Where in many texts (`str`), or files of them (`Path`), a neuron fires most; or in one."""
        return cast("Examples", ask("examples", self, texts, layer=layer, neuron=neuron, k=k, **how))

    def training_rows(self, text: str, *, window: int = 8) -> "TrainingRows":
        """The rows of features and label that a text becomes for training."""
        how = {"window": window, "model": self.name}
        return cast("TrainingRows", ask("training_rows", self._vocabulary(), text, **how))

    def pair_rows(self, pairs: Sequence[tuple[str, str]], *, to: str | None = None) -> "PairRows":
        """Pairs of source and target as a decoder learns them: one sequence each, with a tag between."""
        from glassformer.tasks.tags import tag_for

        vocabulary = self._vocabulary()
        how = {"tag": tag_for(vocabulary, to), "model": self.name, "room": self._room(to)}
        return cast("PairRows", ask("pair_rows", vocabulary, pairs, **how))

    def _room(self, to: str | None) -> "Room | None":
        """What a pair is cut to, if the model was trained to summarize and no language is named."""
        if to is not None or "summarizes" not in self.capabilities:
            return None
        from glassformer.tasks.summarize import room_of  # here: hardly ever needed

        return room_of(cast("LanguageModel", self))

    def update(self, text: Prompt, *, lr: float = 0.001, k: int = 5) -> "Update":
        """One training step toward the last token of a text, on a copy: the model itself is not changed."""
        return cast("Update", ask("update", self._text(self.encode(text)), lr=lr, k=k))


def _row(ids: Sequence[int]) -> "np.ndarray[Any, np.dtype[np.int64]]":
    return np.array([list(ids)], dtype=np.int64)

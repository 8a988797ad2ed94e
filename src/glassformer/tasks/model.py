"""The handle of a model: its name, its tokenizer, its torch module, and the lock that keeps threads apart."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.errors import GlassError, InputError
from glassformer.tokenizers import Tokenizer, pieces

if TYPE_CHECKING:
    import torch

    from glassformer.answers.edits import Edits
    from glassformer.explain.reading import Reading
    from glassformer.hub.transformerlens import Activations
    from glassformer.trace import Tracer

Prompt = str | Sequence[int]


class Model:
    """What every loaded model has, whatever it can do."""

    def __init__(
        self,
        net: Any | None,
        tokenizer: Tokenizer | None,
        *,
        name: str = "",
        make: Callable[[], Any] | None = None,
    ) -> None:
        """A torch module, or a function that makes it when it is first needed."""
        self.name, self.tokenizer = name, tokenizer
        self.lock = threading.RLock()  # held by every run of the torch module, and while it is edited
        self._net, self._make = net, make
        # The open blocks, and their thread. Only that thread changes them, because it holds the lock.
        # Another one may read them at any time: whatever it sees, the thread is not its own.
        self._thread = 0
        self._depth = 0  # of `with edit()` and `with trace()`
        self._edits: tuple[object, ...] = ()  # one object for each `with edit()`

    @property
    def net(self) -> Any:
        """The torch module; it is loaded when it is first asked for."""
        return self._load()

    @property
    def model(self) -> Any:
        """Another name for `net`."""
        return self.net

    @property
    def capabilities(self) -> frozenset[str]:
        """What the model can do: `writes`, `attends`, …"""
        net = self._load()
        capabilities = set(net.capabilities)
        if net.stacks:
            capabilities.add("layers")
        if any(stack.neurons for stack in net.stacks):
            capabilities.add("neurons")
        return frozenset(capabilities)

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
            ids = list(prompt)
            if any(type(id) is not int for id in ids):
                raise InputError("a prompt of token ids must hold whole numbers only")
        if ids:
            return ids
        if self.tokenizer is None or self.tokenizer.end is None:
            raise InputError("an empty prompt needs a vocabulary with <|endoftext|> to start from")
        return [self.tokenizer.end]

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
            raise InputError("this model has no vocabulary; give token ids, or convert it with --tokenizer")
        return self.tokenizer

    def reading(
        self, ids: Sequence[int], *, prompt: int = 0, source: Sequence[int] | None = None
    ) -> "Reading":
        """A text for explanations; the first `prompt` tokens were given, the others were generated.

        `source` is the second text of a model that reads two.
        """
        from glassformer.explain.reading import Reading

        second = None if source is None else list(source)
        return Reading(self._load(), list(ids), prompt=prompt, lock=self.lock, source=second)

    @contextmanager
    def edit(self, edits: "Edits") -> "Iterator[Model]":
        """Inside, the model runs with edits: a list of them, or a file that holds one. Other threads wait.

        A stream that began inside must end inside; or give `edits` to the call instead.
        """
        from glassformer.answers.edits import read_edits
        from glassformer.explain.edits import edited

        with self._exclusive():
            chosen = read_edits(self, edits)
            before = self._edits
            self._edits = (*before, object())
            try:
                with edited(self._load(), chosen):
                    yield self
            finally:
                self._edits = before

    @contextmanager
    def in_torch(self) -> "Iterator[Model]":
        """Inside, this thread generates by torch, not by the native engine."""
        with self._exclusive():
            yield self

    @contextmanager
    def trace(self, *sites: str, **how: Any) -> "Iterator[Tracer]":
        """Inside, values at some sites (all) are recorded, as by `gf.trace(lm.net)`. Other threads wait."""
        from glassformer.hub.transformerlens import our_site
        from glassformer.trace import trace

        with self._exclusive(), trace(self._load(), *map(our_site, sites), **how) as seen:
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

    def run_with_cache(self, prompt: Prompt, *sites: str) -> "tuple[torch.Tensor, Activations]":
        """Logits (1, T, V) and the values at some sites (all), also under TransformerLens' names."""
        import torch

        from glassformer.hub.transformerlens import Activations

        ids = self.encode(prompt)
        with self.trace(*sites) as seen, torch.inference_mode():
            net = self._load()
            logits: torch.Tensor = net(torch.tensor([ids], device=net.device))
        return logits, Activations(seen)

    def save(self, folder: str | Path, *, dtype: str | None = None) -> None:
        """Write a folder that `load` reads, and `transformers` too where it knows the family."""
        from glassformer.hub.folder import parse_dtype, save_folder

        kind = None if dtype is None else parse_dtype(dtype)
        save_folder(Path(folder), self._load(), tokenizer=self.tokenizer, dtype=kind)

"""Complete a text: a model and its tokenizer together, and the result one can ask questions of."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glassformer import machine
from glassformer.answers import ask
from glassformer.answers.answer import Text
from glassformer.answers.tokens import Top
from glassformer.errors import InputError
from glassformer.generation.beam import beam_search
from glassformer.generation.decode import Event, check_prompt, generate, restrict
from glassformer.generation.options import Options
from glassformer.generation.sampling import log_softmax
from glassformer.generation.stepper import Stepper
from glassformer.hub.locate import locate
from glassformer.tasks.completion import Candidate, Completion
from glassformer.tasks.engines import Say, load_native, wants_native
from glassformer.tasks.later import Later
from glassformer.tokenizers import TextStream, Tokenizer

if TYPE_CHECKING:
    import torch

    from glassformer.answers import edits as editing
    from glassformer.answers.diff import Diff
    from glassformer.answers.edits import Edits, Sweep
    from glassformer.answers.neurons import Examples, Promotes
    from glassformer.answers.tokens import Embedding, Merges, Tokens
    from glassformer.answers.training import TrainingRows, Update
    from glassformer.engine.native import Engine
    from glassformer.explain import edits as operating
    from glassformer.explain.reading import Reading
    from glassformer.hub.transformerlens import Activations
    from glassformer.models.gpt import GPT
    from glassformer.tasks import loading
else:
    operating, loading = Later("glassformer.explain.edits"), Later("glassformer.tasks.loading")
    editing = Later("glassformer.answers.edits")

Prompt = str | Sequence[int]


class Stream(Iterator[str]):
    """The text of one completion, piece by piece; `completion` holds all that came so far."""

    def __init__(self, completion: Completion, events: Iterator[tuple[Completion, str]]) -> None:
        self.completion = completion
        self._events = events

    def __next__(self) -> str:
        return next(self._events)[1]


class LanguageModel:
    """A model that reads and writes text.

    With a native engine it is the engine that writes; `model`, in torch, is what one looks into, and is loaded when it is
    first asked for.
    """

    def __init__(
        self,
        model: "GPT | None",
        tokenizer: Tokenizer | None,
        name: str = "",
        *,
        engine: "Engine | None" = None,
        make: "Callable[[], GPT] | None" = None,
    ) -> None:
        """A model in torch, or an engine and a way to have the same model in torch."""
        self.tokenizer, self.name, self.engine = tokenizer, name, engine
        self._model, self._make, self._torch_speaks = model, make, False
        self._marks: list[tuple[int, int]] = []

    def __repr__(self) -> str:
        return f"LanguageModel({self.name!r}, {self.speaker()}, context {self.stepper.context})"

    @property
    def model(self) -> "GPT":
        """The model in torch."""
        if self._model is None:
            assert self._make is not None
            self._model = self._make()
            self._marks = self._changes()
        return self._model

    @property
    def stepper(self) -> Stepper:
        """Who chooses tokens: the native engine, unless the torch model is watched, edited, or was changed by hand."""
        if self.engine is None or self._torch_speaks:
            return self.model
        if self._model is not None and (self._model.tracer is not None or self._changes() != self._marks):
            return self._model
        return self.engine

    def speaker(self) -> str:
        """Who chooses tokens, in a few words."""
        if self.stepper is self.engine:
            return self.engine.name
        return str(self.model.tokens.weight.dtype).replace(".", " ")

    def threads(self) -> int:
        """How many threads compute."""
        if self.engine is not None:
            return self.engine.threads
        import torch

        return torch.get_num_threads()

    def _changes(self) -> list[tuple[int, int]]:
        """What tells that somebody set or altered a parameter of the torch model."""
        return [(id(parameter), parameter._version) for parameter in self.model.parameters()]

    def generate(self, prompt: Prompt = "", *, stop: str | Sequence[str] = (), **options: Any) -> Completion:
        """Continue a prompt (text, or token ids); an empty one starts from `<|endoftext|>`. Options: see `Options`."""
        if options.get("num_return_sequences", 1) != 1:
            raise InputError("num_return_sequences: several answers come from generate_many(prompts, …)")
        return self.generate_many([prompt], stop=stop, **options)[0]

    def generate_many(
        self,
        prompts: Iterable[Prompt],
        *,
        stop: str | Sequence[str] = (),
        cancelled: Callable[[], bool] | None = None,
        **options: Any,
    ) -> list[Completion]:
        """Continue several prompts at once, each `num_return_sequences` times; prompt by prompt, choice by choice."""
        if isinstance(prompts, str):
            raise InputError("prompts must be a list of prompts; one alone goes to generate()")
        completions, events = self._run(list(prompts), stop, cancelled, options)
        for _ in events:
            pass
        return completions

    def stream(
        self,
        prompt: Prompt = "",
        *,
        stop: str | Sequence[str] = (),
        cancelled: Callable[[], bool] | None = None,
        **options: Any,
    ) -> Stream:
        """Like `generate`, but iterate over the text while it is written. Leave the loop to end it."""
        if options.get("num_return_sequences", 1) != 1:
            raise InputError("num_return_sequences: a stream is one answer; several come from generate_many")
        completions, events = self._run([prompt], stop, cancelled, options)
        return Stream(completions[0], events)

    def encode(self, prompt: Prompt, *, special: bool = False) -> list[int]:
        """The ids of a prompt; `<|endoftext|>` for an empty one."""
        if not isinstance(prompt, str):
            if isinstance(prompt, bytes | bytearray) or not hasattr(prompt, "__iter__"):
                raise InputError(
                    f"a prompt must be a text or a sequence of token ids, not {type(prompt).__name__}"
                )
            ids = list(prompt)
            if any(type(id) is not int for id in ids):
                raise InputError("a prompt of token ids must hold whole numbers only")
        else:
            ids = self._text().encode(prompt, special=special)
        if ids:
            return ids
        if self.tokenizer is None or self.tokenizer.end is None:
            raise InputError("an empty prompt needs a vocabulary with <|endoftext|> to start from")
        return [self.tokenizer.end]

    def piece(self, id: int) -> str:
        """The text of one token; bytes that are no whole character are shown as U+FFFD."""
        return f"<{id}>" if self.tokenizer is None else self.tokenizer.decode([id])

    def candidates(self, logits: "np.ndarray[Any, Any]", k: int) -> list[Candidate]:
        """The k likeliest tokens of one row of logits."""
        if type(k) is not int or k < 1:
            raise InputError(f"k must be a whole number of at least 1, not {k!r}")
        logp = log_softmax(restrict(logits, None, None, may_end=True))
        known = len(logp) if self.tokenizer is None else len(self.tokenizer)
        best = np.argsort(-logp[:known], kind="stable")[:k]
        return [Candidate(int(i), self.piece(int(i)), float(np.exp(logp[i])), float(logp[i])) for i in best]

    def logits(self, ids: Sequence[int], *, last: bool = False) -> "np.ndarray[Any, np.dtype[np.float32]]":
        """Scores of every next token after every position (T, V), or after the last one (1, V), by the torch model."""
        import torch

        row = torch.tensor([list(ids)], device=self.model.tokens.weight.device)
        with torch.inference_mode():
            return np.asarray(self.model(row, last=last)[0].float().cpu().numpy())

    @property
    def net(self) -> "GPT":
        """The torch module."""
        return self.model

    @property
    def capabilities(self) -> frozenset[str]:
        """What the model can do, known without loading torch: the native engine runs decoders alone."""
        native = self.engine is not None and self._model is None
        return frozenset({"writes", "causal", "attends"}) if native else self.net.capabilities

    def reading(self, ids: Sequence[int], *, prompt: int = 0) -> "Reading":
        """A text to be explained; `prompt` says how many of its tokens were given (0: all)."""
        from glassformer.explain.reading import Reading

        return Reading(self.net, list(ids), prompt)

    # Questions: see `glassformer.answers.QUESTIONS`.

    def _ask(self, name: str, *about: Any, **how: Any) -> Any:
        return ask(name, *about, **how)

    def top(self, prompt: Prompt = "", k: int = 10, **options: Any) -> Top:
        """The k likeliest next tokens; with options (see `Options`), which of them may be drawn."""
        ids = self.encode(prompt)
        check_prompt(self.stepper, ids, Options())
        chosen = check_options({"temperature": 1.0, "top_k": 0} | options)
        found: Top = self._ask("top", Text(self, ids), k=k, options=chosen)
        return found

    def tokens(self, text: str) -> "Tokens":
        """The tokens that a text is made of."""
        found: Tokens = self._ask("tokens", self._text(), text)
        return found

    def merges(self, text: str) -> "Merges":
        """How the words of a text become tokens, merge by merge."""
        found: Merges = self._ask("merges", self._text(), text)
        return found

    def embedding(self, text: Prompt) -> "Embedding":
        """What goes into the first block: the row of each token, and that of its position."""
        found: Embedding = self._ask("embedding", Text(self, self.encode(text)))
        return found

    def diff(self, other: "LanguageModel", text: Prompt) -> "Diff":
        """This model and another one on a text, token by token."""
        found: Diff = self._ask("diff", self, text, other=other)
        return found

    def sweep(
        self, clean: Prompt, broken: Prompt, *, answer: str | int, foil: str | int, **how: Any
    ) -> "Sweep":
        """Which `sites` and positions carry what tells two texts apart: each is patched into the other text."""
        found: Sweep = self._ask("sweep", self, clean, broken=broken, answer=answer, foil=foil, **how)
        return found

    def promotes(self, layer: int, neuron: int, *, k: int = 10) -> "Promotes":
        """The tokens that a neuron makes likelier when it fires."""
        found: Promotes = self._ask("promotes", self, layer=layer, neuron=neuron, k=k)
        return found

    def examples(
        self, texts: Iterable[str], *, layer: int, neuron: int, k: int = 5, **how: Any
    ) -> "Examples":
        """Where in many texts a neuron fires most."""
        found: Examples = self._ask("examples", self, texts, layer=layer, neuron=neuron, k=k, **how)
        return found

    def training_rows(self, text: str, *, window: int = 8) -> "TrainingRows":
        """The rows of features and label that a text becomes for training."""
        found: TrainingRows = self._ask("training_rows", self._text(), text, window=window)
        return found

    def update(self, text: Prompt, *, lr: float = 0.001, k: int = 5) -> "Update":
        """One training step toward the last token of a text, on a copy: the model itself is not changed."""
        found: Update = self._ask("update", Text(self, self.encode(text)), lr=lr, k=k)
        return found

    @contextmanager
    def in_torch(self) -> "Iterator[LanguageModel]":
        """Inside, torch writes, not the native engine: to compare with what only torch can do."""
        before, self._torch_speaks = self._torch_speaks, True
        try:
            yield self
        finally:
            self._torch_speaks = before

    @contextmanager
    def edit(self, edits: "Edits") -> "Iterator[LanguageModel]":
        """Inside, the model is a changed one: parts off, patched, pushed. A list of edits, or a file that holds one."""
        with operating.edited(self.model, editing.read_edits(self, edits)):
            yield self

    def run_with_cache(self, prompt: Prompt, *sites: str) -> "tuple[torch.Tensor, Activations]":
        """Logits (1, T, V), and what was seen on the way at some sites (all), also under TransformerLens' names."""
        import torch

        from glassformer.hub.transformerlens import Activations, our_site
        from glassformer.trace import trace

        ids = torch.tensor([self.encode(prompt)], device=self.model.tokens.weight.device)
        with torch.inference_mode(), trace(self.model, *map(our_site, sites)) as seen:
            logits: torch.Tensor = self.model(ids)
        return logits, Activations(seen)

    def save(self, folder: str | Path, *, dtype: str | None = None) -> None:
        """Write a folder that `load` and `transformers` read."""
        from glassformer.hub.folder import parse_dtype, save_folder

        save_folder(
            Path(folder),
            self.model,
            tokenizer=self.tokenizer,
            dtype=None if dtype is None else parse_dtype(dtype),
        )

    def _run(
        self,
        prompts: list[Prompt],
        stop: str | Sequence[str],
        cancelled: Callable[[], bool] | None,
        given: dict[str, Any],
    ) -> tuple[list[Completion], Iterator[tuple[Completion, str]]]:
        if given.get("seed") is None:
            given = given | {"seed": int.from_bytes(os.urandom(4))}
        special = bool(given.pop("special", False))
        options = check_options(given)
        if not isinstance(stop, Sequence):
            raise InputError(f"stop must be a text or a sequence of texts, not {stop!r}")
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        ids = [self.encode(prompt, special=special) for prompt in prompts]
        stepper = self.stepper
        for which, prompt_ids in enumerate(ids):
            check_prompt(stepper, prompt_ids, options, which)
        self._check_cache(stepper, ids, options)
        completions = [
            Completion(
                prompt if isinstance(prompt, str) else self.text_of(prompt),
                tokens,
                choice,
                options.seed,
                settings=options.told(),
                engine=self.speaker(),
                model=self,
            )
            for prompt, tokens in zip(prompts, ids, strict=True)
            for choice in range(options.num_return_sequences)
        ]
        if options.num_beams > 1:
            if stops:
                raise InputError("stop: beam search looks at whole answers and knows no stop strings")
            return completions, self._search(stepper, completions, ids, options, cancelled)
        ends = [tokens[-1] for tokens in ids for _ in range(options.num_return_sequences)]
        streams = [TextStream(self.bytes_of, stops, after=end) for end in ends]
        return completions, self._sample(stepper, completions, ids, options, streams, cancelled)

    def _sample(
        self,
        stepper: Stepper,
        completions: list[Completion],
        ids: list[list[int]],
        options: Options,
        streams: list[TextStream],
        cancelled: Callable[[], bool] | None,
    ) -> Iterator[tuple[Completion, str]]:
        fresh = [""] * len(completions)

        def halt(event: Event) -> bool:
            at = event.prompt * options.num_return_sequences + event.choice
            assert event.token is not None
            fresh[at] = streams[at].push(event.token)
            return streams[at].stopped

        end = None if self.tokenizer is None else self.tokenizer.end
        known = None if self.tokenizer is None else len(self.tokenizer)
        for event in generate(stepper, ids, options, end=end, known=known, halt=halt, cancelled=cancelled):
            at = event.prompt * options.num_return_sequences + event.choice
            completion, piece, fresh[at] = completions[at], fresh[at], ""
            if event.token is not None and event.logprob is not None:
                completion.tokens.append(event.token)
                completion.logprobs.append(event.logprob)
            if event.finish is not None:
                completion.finish_reason = event.finish
                piece += streams[at].finish()
            completion.text += piece
            yield completion, piece

    def _search(
        self,
        stepper: Stepper,
        completions: list[Completion],
        ids: list[list[int]],
        options: Options,
        cancelled: Callable[[], bool] | None,
    ) -> Iterator[tuple[Completion, str]]:
        end = None if self.tokenizer is None else self.tokenizer.end
        known = None if self.tokenizer is None else len(self.tokenizer)
        for which, prompt in enumerate(ids):
            beams = beam_search(stepper, prompt, options, end=end, known=known, cancelled=cancelled)
            for choice, beam in enumerate(beams):
                completion = completions[which * options.num_return_sequences + choice]
                completion.tokens, completion.logprobs = list(beam.tokens), list(beam.logprobs)
                completion.finish_reason = beam.finish
                completion.text = self.text_of(beam.tokens)
                yield completion, completion.text

    def _check_cache(self, stepper: Stepper, ids: list[list[int]], options: Options) -> None:
        # Beams search one prompt at a time, and hold the cache twice while they choose who goes on.
        rows = len(ids) * options.num_return_sequences if options.num_beams == 1 else 2 * options.num_beams
        length = min(2 * stepper.context, max(map(len, ids), default=0) + options.max_new_tokens)
        machine.check_memory(
            stepper.cache_size(rows, length), what=f"a cache for {rows} answers of {length:,} tokens"
        )

    def _text(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError("this model has no vocabulary; give token ids, or convert it with --tokenizer")
        return self.tokenizer

    def bytes_of(self, id: int, after: int | None = None) -> bytes:
        """The bytes that a token adds to a text behind the token `after`."""
        return f"<{id}>".encode() if self.tokenizer is None else self.tokenizer.bytes_of(id, after)

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of token ids, special ones included."""
        before = [None, *ids[:-1]]
        return b"".join(map(self.bytes_of, ids, before)).decode("utf-8", "replace")


def load(
    name: str = "storyteller",
    *,
    engine: str = "auto",
    revision: str | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    offline: bool = False,
    say: Say = lambda text: None,
) -> LanguageModel:
    """Load a model: a shipped name, a folder (a LoRA folder too), a hub id (`owner/name@revision`), or a name kept at home.

    `engine`: native (int8, fast), torch (as `dtype` and `device` say), or auto: native where it is built and fits.
    """
    native = wants_native(engine, device=device, dtype=dtype)
    folder = locate(str(name), revision=revision, offline=offline)
    if native:
        spoken, tokenizer = load_native(folder, offline=offline, say=say)
        return LanguageModel(
            None,
            tokenizer,
            str(name),
            engine=spoken,
            make=lambda: loading.load_torch(folder, offline=offline).model,
        )
    loaded = loading.load_torch(folder, device=device, dtype=dtype, offline=offline)
    return LanguageModel(loaded.model, loaded.tokenizer, str(name))


def complete(
    prompt: Prompt = "", *, model: str = "storyteller", engine: str = "auto", **options: Any
) -> Completion:
    """Load a model and continue a prompt with it, in one call."""
    return load(model, engine=engine).generate(prompt, **options)


def check_options(given: dict[str, Any]) -> Options:
    """The options of a generation, or an error that names the one that is wrong."""
    unknown = set(given) - set(Options.__dataclass_fields__)
    if unknown:
        raise InputError(f"unknown option {min(unknown)!r}; known: {', '.join(Options.__dataclass_fields__)}")
    return Options(**given)

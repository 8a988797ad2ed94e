"""Complete a text: a language model, and the result one can ask questions of."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from glassformer import machine
from glassformer.answers import ask
from glassformer.errors import InputError
from glassformer.generation.beam import Beam, beam_search
from glassformer.generation.decode import Event, check_prompts, generate
from glassformer.generation.options import Options
from glassformer.generation.sampling import log_softmax, restrict
from glassformer.generation.stepper import Logits
from glassformer.tasks.backends import Backend, TorchBackend, fingerprint, is_observed
from glassformer.tasks.completion import Completion
from glassformer.tasks.model import Model, Prompt
from glassformer.tokenizers import TextStream, Tokenizer

if TYPE_CHECKING:
    from glassformer.answers.answer import Text
    from glassformer.answers.diff import Diff
    from glassformer.answers.edits import Edits, Sweep
    from glassformer.answers.neurons import Examples, Promotes
    from glassformer.answers.tokens import Candidate, Embedding, Merges, Tokens, Top
    from glassformer.answers.training import TrainingRows, Update
    from glassformer.engine.native import Engine
    from glassformer.explain.edits import EditSession

# What the models of the native engine can do, known without loading torch.
NATIVE = frozenset({"writes", "causal", "attends", "layers", "neurons"})
Pieces = Iterator[tuple[Completion, str]]
# Given one of these, a user wants to draw, or to stop or slide as beams cannot: the model's own settings for
# greedy or beam search step back.
SAMPLING = ("do_sample", "temperature", "top_k", "top_p", "min_p", "stop", "overflow")
SEARCHING = ("do_sample", "num_beams", "length_penalty", "early_stopping")


class Stream(Iterator[str]):
    """The text of one completion, piece by piece; `completion` holds all that came so far."""

    def __init__(self, completion: Completion, pieces: Pieces) -> None:
        self.completion = completion
        self._pieces = pieces

    def __next__(self) -> str:
        return next(self._pieces)[1]


class LanguageModel(Model):
    """A model that continues text.

    With a native engine it is the engine that generates; `net`, in torch, is what one looks into, and is
    loaded when it is first asked for.
    """

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
        """A torch module, or an engine and a way to make the torch module of the same model.

        `settings` and `ends` are the model's own: defaults of generation, and the tokens that end a text.
        """
        super().__init__(net, tokenizer, name=name, make=make)
        self.engine = engine
        self.settings = dict(settings or {})
        end = None if tokenizer is None else tokenizer.end
        self.ends = frozenset(ends) or frozenset(() if end is None else (end,))
        self._weights: str | None = None  # the fingerprint of the weights when `net` was handed out

    def __repr__(self) -> str:
        return f"LanguageModel({self.name!r}, {self.backend.name}, context {self.backend.context})"

    @property
    def net(self) -> Any:
        """The torch module, loaded when first asked for. If it is changed, it generates, not the engine."""
        net = self._load()
        if self.engine is not None and self._weights is None:
            self._weights = fingerprint(net)
        return net

    @property
    def backend(self) -> Backend:
        """What generates: the native engine, unless the torch module is edited, traced or was changed."""
        if self.engine is None or self._inside() or self._changed():
            return self._torch_backend()
        return self.engine

    def _changed(self) -> bool:
        """Whether the torch module no longer is the model that was quantized, or is observed by the user."""
        if self._net is None or self._weights is None:
            return False  # no user has it
        return is_observed(self._net) or fingerprint(self._net) != self._weights

    def generate(self, prompt: Prompt = "", **options: Any) -> Completion:
        """Continue a prompt (text, or token ids); an empty one starts from `<|endoftext|>`.

        Options: those of `Options`; `stop` (a text, or several), `edits` (a list, or a file) and `special`
        (whether `<|endoftext|>` in the prompt is the token). What is not given is as the model's makers
        recommend.
        """
        if options.get("num_return_sequences", 1) != 1:
            raise InputError("num_return_sequences: several answers come from generate_many(prompts, …)")
        return self.generate_many([prompt], **options)[0]

    def generate_many(self, prompts: Iterable[Prompt], **options: Any) -> list[Completion]:
        """Continue several prompts at once, each `num_return_sequences` times; results are prompt by prompt.

        `cancelled`, a function, is asked before every step.
        """
        if isinstance(prompts, str):
            raise InputError("prompts must be a list of prompts; a single one goes to generate()")
        completions, pieces = self._run(list(prompts), **options)
        for _ in pieces:
            pass
        return completions

    def stream(self, prompt: Prompt = "", **options: Any) -> Stream:
        """Like `generate`, but iterate over the text while it is generated. Leave the loop to end it."""
        if options.get("num_return_sequences", 1) != 1:
            raise InputError("num_return_sequences: a stream is one answer; several come from generate_many")
        completions, pieces = self._run([prompt], **options)
        return Stream(completions[0], pieces)

    def options(self, **given: Any) -> Options:
        """The options of a generation: what is given, else the model's own settings."""
        settings = self.settings
        if any(name in given for name in SAMPLING):
            settings = {name: value for name, value in settings.items() if name not in SEARCHING}
        return check_options(settings | {name: value for name, value in given.items() if name != "stop"})

    @property
    def capabilities(self) -> frozenset[str]:
        """What the model can do, known without loading torch: the native engine runs decoders alone."""
        return NATIVE if self.engine is not None else super().capabilities

    def logits(self, ids: Sequence[int]) -> Logits:
        """Scores of the next token after every position (T, V), by the torch module."""
        backend = TorchBackend(self._load(), lock=self.lock)
        return np.asarray(backend.logits(np.array([list(ids)], dtype=np.int64))[0])

    def next_logits(self, ids: Sequence[int]) -> Logits:
        """Scores of the next token after a text (V,), by the backend that generates."""
        backend, row = self.backend, np.array([list(ids)], dtype=np.int64)
        return np.asarray(backend.step(row, backend.new_cache(1, len(ids)))[0])

    def candidates(self, logits: "np.ndarray[Any, Any]", k: int) -> "list[Candidate]":
        """The k likeliest tokens of one row of logits."""
        from glassformer.answers.tokens import Candidate

        if type(k) is not int or k < 1:
            raise InputError(f"k must be a whole number of at least 1, not {k!r}")
        logp = log_softmax(restrict(logits))
        known = len(logp) if self.tokenizer is None else len(self.tokenizer)
        best = np.argsort(-logp[:known], kind="stable")[:k]
        return [Candidate(int(i), self.piece(int(i)), float(np.exp(logp[i])), float(logp[i])) for i in best]

    # Questions: see `glassformer.answers.QUESTIONS`.

    def _text(self, ids: list[int]) -> "Text":
        from glassformer.answers.answer import Text  # here: generating needs no answers, and starts faster

        return Text(self, ids)

    def _ask(self, name: str, *about: Any, **how: Any) -> Any:
        return ask(name, *about, **how)

    def top(self, prompt: Prompt = "", k: int = 10, **options: Any) -> "Top":
        """The k likeliest next tokens; with options (see `Options`), which of them may be drawn."""
        ids = self.encode(prompt)
        check_prompts(self.backend, [ids], options=Options())
        chosen = check_options({"temperature": 1.0, "top_k": 0} | options)
        found: Top = self._ask("top", self._text(ids), k=k, options=chosen)
        return found

    def tokens(self, text: str) -> "Tokens":
        """The tokens that a text is made of."""
        found: Tokens = self._ask("tokens", self._vocabulary(), text)
        return found

    def merges(self, text: str) -> "Merges":
        """How the words of a text become tokens, merge by merge."""
        found: Merges = self._ask("merges", self._vocabulary(), text)
        return found

    def embedding(self, text: Prompt) -> "Embedding":
        """What goes into the first block: the row of each token, and that of its position."""
        found: Embedding = self._ask("embedding", self._text(self.encode(text)))
        return found

    def diff(self, other: "LanguageModel", text: Prompt) -> "Diff":
        """This model and another one on a text, token by token."""
        found: Diff = self._ask("diff", self, text, other=other)
        return found

    def sweep(
        self, clean: Prompt, broken: Prompt, *, answer: str | int, foil: str | int, **how: Any
    ) -> "Sweep":
        """Which `sites` and positions carry what tells two texts apart, by patching each of them."""
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
        found: TrainingRows = self._ask("training_rows", self._vocabulary(), text, window=window)
        return found

    def update(self, text: Prompt, *, lr: float = 0.001, k: int = 5) -> "Update":
        """One training step toward the last token of a text, on a copy: the model itself is not changed."""
        found: Update = self._ask("update", self._text(self.encode(text)), lr=lr, k=k)
        return found

    def _run(
        self,
        prompts: list[Prompt],
        *,
        stop: str | Sequence[str] = (),
        edits: "Edits | None" = None,
        special: bool = False,
        cancelled: Callable[[], bool] | None = None,
        **given: Any,
    ) -> tuple[list[Completion], Pieces]:
        """The completions to be filled, and what fills them."""
        if given.get("seed") is None:
            given["seed"] = int.from_bytes(os.urandom(4))
        stops = _stop_strings(stop)
        options = self.options(**given, **({"stop": stops} if stops else {}))
        if stops and options.num_beams > 1:
            raise InputError("stop: beam search scores whole answers and knows no stop strings")
        ids = [self.encode(prompt, special=special) for prompt in prompts]
        session = None if edits is None else self._session(edits)
        backend = self.backend if session is None else self._torch_backend(session)
        self._check_memory(backend, ids, options)
        completions = []
        for prompt, tokens in zip(prompts, ids, strict=True):
            text = prompt if isinstance(prompt, str) else self.text_of(prompt)
            for choice in range(options.num_return_sequences):
                one = Completion(text, tokens, choice, options.seed, engine=backend.name, model=self)
                one.settings, one.session = options.summary(), session
                completions.append(one)

        known = None if self.tokenizer is None else len(self.tokenizer)
        how: dict[str, Any] = {"options": options, "ends": self.ends, "known": known, "cancelled": cancelled}
        if options.num_beams > 1:
            pieces = self._search(completions, beam_search(backend, ids, **how), options.num_return_sequences)
        else:
            streams = [TextStream(self.bytes_of, stops, after=one.prompt_tokens[-1]) for one in completions]
            pieces = self._sample(completions, generate(backend, ids, **how), streams)
        return completions, pieces if session is None else _finished(pieces, session)

    def _sample(
        self, completions: list[Completion], events: Iterator[Event], streams: list[TextStream]
    ) -> Pieces:
        each = 1 + max((one.choice for one in completions), default=0)
        for event in events:
            at = event.prompt * each + event.choice
            completion, stream, piece, finish = completions[at], streams[at], "", event.finish
            if event.token is not None and event.logprob is not None:
                completion.tokens.append(event.token)
                completion.logprobs.append(event.logprob)
                piece = stream.push(event.token)
                if stream.stopped:
                    event.continuation.stop()
                    finish = "stop"
            if finish is not None:
                completion.finish_reason = finish
                piece += stream.finish()
            completion.text += piece
            yield completion, piece

    def _search(self, completions: list[Completion], found: Iterator[list[Beam]], each: int) -> Pieces:
        for which, beams in enumerate(found):
            for choice, beam in enumerate(beams):
                completion = completions[which * each + choice]
                completion.tokens, completion.logprobs = list(beam.tokens), list(beam.logprobs)
                completion.finish_reason = beam.finish
                completion.text = self.text_of(beam.tokens, after=completion.prompt_tokens[-1])
                yield completion, completion.text

    def _session(self, edits: "Edits") -> "EditSession":
        from glassformer.answers.edits import read_edits
        from glassformer.explain.edits import EditSession

        with self.lock:  # to read edits is to run the model: for its sites, and for texts that they name
            return EditSession(self._load(), read_edits(self, edits))

    def _torch_backend(self, session: "EditSession | None" = None) -> TorchBackend:
        return TorchBackend(self._load(), lock=self.lock, edits=session, check=self._same_edits())

    def _check_memory(self, backend: Backend, ids: list[list[int]], options: Options) -> None:
        # Beams search one prompt at a time, and hold the cache twice while they choose which beams go on.
        rows = len(ids) * options.num_return_sequences if options.num_beams == 1 else 2 * options.num_beams
        length = max(map(len, ids), default=0) + options.max_new_tokens
        if backend.context is not None:
            length = min(2 * backend.context, length)
        what = f"a cache for {rows} answers of {length:,} tokens"
        machine.check_memory(backend.cache_size(rows, length), what=what)


def check_options(given: dict[str, Any]) -> Options:
    """The options of a generation, or an error that names the one that is wrong."""
    unknown = set(given) - set(Options.__dataclass_fields__)
    if unknown:
        raise InputError(f"unknown option {min(unknown)!r}; known: {', '.join(Options.__dataclass_fields__)}")
    return Options(**given)


def _stop_strings(stop: str | Sequence[str]) -> tuple[str, ...]:
    if not isinstance(stop, Sequence):
        raise InputError(f"stop must be a text or a sequence of texts, not {stop!r}")
    return (stop,) if isinstance(stop, str) else tuple(stop)


def _finished(pieces: Pieces, session: Any) -> Pieces:
    """The pieces of a generation with edits; at its end, an edit that never met its positions is an error."""
    yield from pieces
    session.finish()


def complete(
    prompt: Prompt = "", *, model: str = "storyteller", engine: str = "auto", **options: Any
) -> Completion:
    """Load a model and continue a prompt with it, in one call."""
    from glassformer.tasks.load import load

    return load(model, engine=engine).generate(prompt, **options)

"""Complete a text: a language model, and the result one can ask questions of."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from glassformer import machine
from glassformer.answers import ask
from glassformer.errors import InputError, check_at_least, counted
from glassformer.generation.beam import Beam, beam_search
from glassformer.generation.decode import Event, check_prompts, generate
from glassformer.generation.options import Options
from glassformer.generation.sampling import entropy_bits, log_softmax
from glassformer.generation.stepper import is_piecewise
from glassformer.tasks.backends import Backend
from glassformer.tasks.completion import Completion
from glassformer.tasks.model import Model, Prompt
from glassformer.tasks.options import check_options, plain_names
from glassformer.tasks.tags import purposes_of
from glassformer.tokenizers import TextStream

if TYPE_CHECKING:
    from glassformer.answers.edits import Edits
    from glassformer.answers.tokens import Probabilities, Top
    from glassformer.tasks.summarize import Summary

Pieces = Iterator[tuple[Completion, str]]
# Given one of these, a user wants to draw, or to stop or slide as beams cannot: the model's own settings for
# greedy or beam search step back.
SAMPLING = ("do_sample", "temperature", "top_k", "top_p", "min_p", "typical_p", "stop", "overflow")
SEARCHING = ("do_sample", "num_beams", "length_penalty", "early_stopping")


class Stream(Iterator[str]):
    """The text of one completion, piece by piece; `completion` holds all that came so far."""

    def __init__(self, completion: Completion, pieces: Pieces) -> None:
        self.completion = completion
        self._pieces = pieces

    def __next__(self) -> str:
        return next(self._pieces)[1]


class LanguageModel(Model):
    """A model that continues text."""

    task: ClassVar[str] = "continue a text"
    verbs: ClassVar[tuple[str, ...]] = ("generate", "summarize")

    @property
    def capabilities(self) -> frozenset[str]:
        """What the model can do, and what the tags in its vocabulary add: `translates`, `summarizes`."""
        return super().capabilities | purposes_of(self.tokenizer)

    def generate(self, prompt: Prompt = "", **options: Any) -> Completion:
        """Continue a prompt (text, or token ids); an empty one starts from `<|endoftext|>`.

        Options: max_new_tokens (384), temperature (0.7), top_k (40), top_p (1.0), seed (a new one) and all
        others of `Options`; `stop` (a text, or several), `edits` (a list, or a file) and `special` (whether
        `<|endoftext|>` in the prompt is the token). What is not given is as the model's makers recommend:
        `lm.options()` shows it.
        """
        if isinstance(prompt, list | tuple) and prompt and isinstance(prompt[0], str):
            raise InputError("several prompts go to lm.generate_many([…]); generate() takes one")
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

    def summarize(self, text: str, *, zero_shot: bool = False, **options: Any) -> "Summary":
        """Summarize a text, by a model that was trained to, or `zero_shot`, as GPT-2's paper did.

        Options are those of `Options`. Of a text that is too long the beginning is read: see `.left_out`.
        """
        return self.summarize_many([text], zero_shot=zero_shot, **options)[0]

    def summarize_many(
        self, texts: Iterable[str], *, zero_shot: bool = False, **options: Any
    ) -> "list[Summary]":
        """Summarize several texts."""
        from glassformer.tasks.summarize import summarize_many  # here: hardly ever needed

        return summarize_many(self, list(texts), zero_shot=zero_shot, **options)

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
        chosen = {name: value for name, value in given.items() if name != "stop"}
        return check_options(settings | plain_names(chosen), others=("stop", "edits", "special"))

    def top(self, prompt: Prompt = "", k: int = 10, **options: Any) -> "Top":
        """The k likeliest next tokens, by the backend that generates; with options, which may be sampled.

        Options are those of `Options`; by default nothing is cut off, and the temperature is 1.
        """
        ids = self.encode(prompt)
        self.warn_of_blank(prompt)
        check_prompts(self.backend, [ids], options=Options(max_new_tokens=0))
        chosen = check_options({"temperature": 1.0, "top_k": 0} | plain_names(options))
        found = cast("Top", ask("top", self._text(ids), k=k, options=chosen))
        return replace(found, made=f"computed by {self.backend.name}")

    def probabilities(self, text: Prompt, *, given: int = 1) -> "Probabilities":
        """How probable each token of a text is after those before it, by the backend that generates.

        The first `given` tokens count as given.
        """
        ids = self.encode(text)
        check_at_least(1, given=given)
        check_prompts(self.backend, [ids], options=Options(max_new_tokens=0))
        if len(ids) <= given:
            raise InputError(f"the text has {counted(len(ids), 'token')}; at least {given + 1} are needed")
        rows = self.backend.logits(np.array([ids], dtype=np.int64))[0][given - 1 : -1]  # (N, V)
        logprobs, entropies = [], []
        for row, id in zip(rows, ids[given:], strict=True):
            every = log_softmax(row)
            logprobs.append(float(every[id]))
            entropies.append(entropy_bits(every))
        about = replace(self._text(ids), prompt=given, logprobs=logprobs)
        found = cast("Probabilities", ask("probabilities", about))
        return replace(found, entropies=entropies, made=f"computed by {self.backend.name}")

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
        stops = _stop_strings(stop)
        options = self._options_of_call(given, stops)
        ids = [self.encode(prompt, special=special) for prompt in prompts]
        for prompt in prompts:
            self.warn_of_blank(prompt)
        session = None if edits is None else self._session(edits)
        backend = self.backend if session is None else self._torch_backend(session=session)
        if given.get("prompt_lookup_num_tokens") and not is_piecewise(backend):
            raise InputError(
                "prompt_lookup_num_tokens: only the native engine reads drafts, because its logits do not"
                f" depend on how many tokens a step has; {backend.name} decodes token by token (0)"
            )
        self._check_memory(backend, ids, options)

        about: dict[str, Any] = {"engine": backend.name, "settings": options.summary(), "session": session}
        completions = [
            Completion(self._shown(prompt), tokens, choice, options.seed, model=self, **about)
            for prompt, tokens in zip(prompts, ids, strict=True)
            for choice in range(options.num_return_sequences)
        ]
        pieces = self._pieces(backend, completions, options=options, stops=stops, cancelled=cancelled)
        return completions, _timed(pieces if session is None else _finished(pieces, session))

    def _shown(self, prompt: Prompt) -> str:
        return prompt if isinstance(prompt, str) else self.text_of(prompt)

    def _pieces(
        self,
        backend: Backend,
        completions: list[Completion],
        *,
        options: Options,
        stops: tuple[str, ...],
        cancelled: Callable[[], bool] | None,
    ) -> Pieces:
        """Fill completions, by beam search or by drawing token after token."""
        each = options.num_return_sequences
        ids = [one.prompt_tokens for one in completions[::each]]
        known = None if self.tokenizer is None else len(self.tokenizer)
        how: dict[str, Any] = {"options": options, "ends": self.ends, "known": known, "cancelled": cancelled}
        if options.num_beams > 1:
            return self._search(completions, beam_search(backend, ids, **how), each)
        streams = [TextStream(self.bytes_of, stops, after=one.prompt_tokens[-1]) for one in completions]
        return self._sample(completions, generate(backend, ids, **how), streams)

    def _options_of_call(self, given: dict[str, Any], stops: tuple[str, ...]) -> Options:
        """The options of one call; a seed is drawn where none is given."""
        if given.get("seed") is None:
            given["seed"] = int.from_bytes(os.urandom(4))
        if stops:
            given["stop"] = stops
        options = self.options(**given)
        if stops and options.num_beams > 1:
            raise InputError("stop: beam search scores whole answers and knows no stop strings")
        return options

    def _sample(
        self, completions: list[Completion], events: Iterator[Event], streams: list[TextStream]
    ) -> Pieces:
        each = 1 + max((one.choice for one in completions), default=0)
        for event in events:
            at = event.prompt * each + event.choice
            completion, stream, piece, finish = completions[at], streams[at], "", event.finish
            completion.drafts = event.continuation.drafts
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

    def _check_memory(self, backend: Backend, ids: list[list[int]], options: Options) -> None:
        # Beams search one prompt at a time, and hold the cache twice while they choose which beams go on.
        rows = len(ids) * options.num_return_sequences if options.num_beams == 1 else 2 * options.num_beams
        length = max(map(len, ids), default=0) + options.max_new_tokens
        if backend.context is not None:
            length = min(2 * backend.context, length)
        what = f"a cache for {counted(rows, 'answer')} of {counted(length, 'token')}"
        machine.check_memory(backend.cache_size(rows, length), what=what)


def _stop_strings(stop: str | Sequence[str]) -> tuple[str, ...]:
    if not isinstance(stop, Sequence):
        raise InputError(f"stop must be a text or a sequence of texts, not {stop!r}")
    return (stop,) if isinstance(stop, str) else tuple(stop)


def _timed(pieces: Pieces) -> Pieces:
    """The pieces; every completion learns how long it has taken so far."""
    start = time.monotonic()
    for completion, piece in pieces:
        completion.seconds = time.monotonic() - start
        yield completion, piece


def _finished(pieces: Pieces, session: Any) -> Pieces:
    """The pieces of a generation with edits; at its end, an edit that never met its positions is an error."""
    yield from pieces
    session.finish()


def complete(
    prompt: Prompt = "", *, model: str = "storyteller", engine: str = "auto", **options: Any
) -> Completion:
    """Load a model and continue a prompt with it, in one call."""
    from glassformer.tasks.load import load

    return load(model, engine=engine).expect(LanguageModel).generate(prompt, **options)

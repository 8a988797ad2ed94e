"""How to choose tokens: every knob, its default and its bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from glassformer.errors import InputError

MAX_CHOICES = 256
MAX_DRAFT = 256
Overflow = Literal["stop", "slide"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Names and meanings as in Hugging Face's `generate`; two penalties as in OpenAI's API."""

    max_new_tokens: int = 384
    min_new_tokens: int = 0
    do_sample: bool = True  # False: always the likeliest token
    temperature: float = 0.7  # 0: always the likeliest token
    top_k: int = 40  # 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0  # below 1: tokens of the expected surprise, as many as reach it together
    repetition_penalty: float = 1.0  # on the tokens of prompt and answer
    presence_penalty: float = 0.0  # on the tokens of the answer, once each
    frequency_penalty: float = 0.0  # on the tokens of the answer, once for each time they occur
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words_ids: Sequence[Sequence[int]] = ()  # tokens, or several in a row, that are never written
    forced_eos_token_id: int | None = None  # the token that the last place is left to
    seed: int = 0  # a LanguageModel draws one where none is given
    num_return_sequences: int = 1
    num_beams: int = (
        1  # above 1: beam search, which draws nothing: sampling, temperature, filters and seed are not used
    )
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    renormalize_logits: bool = False  # beams: tokens that may not be written lose their share of probability
    prompt_lookup_num_tokens: int = 7  # longest draft where a text repeats itself (speculation.py); 0: off
    overflow: Overflow = "stop"  # at the edge of the context: stop, or slide: continue with the last half

    @property
    def greedy(self) -> bool:
        return not self.do_sample or self.temperature == 0

    def summary(self) -> str:
        """How tokens are chosen, in a few words; settings at their defaults are left out."""
        if self.num_beams > 1:
            return f"{self.num_beams} beams"
        if self.greedy:
            return "always the likeliest token"
        names = {
            "top_k": "top-k",
            "top_p": "top-p",
            "min_p": "min-p",
            "typical_p": "typical-p",
            "repetition_penalty": "repetition penalty",
        }
        usual = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "repetition_penalty": 1.0}
        knobs = [
            f"{name} {getattr(self, key):g}"
            for key, name in names.items()
            if getattr(self, key) != usual[key]
        ]
        return ", ".join([f"temperature {self.temperature:g}", *knobs, f"seed {self.seed}"])

    def __post_init__(self) -> None:
        self._whole("max_new_tokens", 0, 1_000_000)
        self._whole("min_new_tokens", 0, 1_000_000)
        self._whole("top_k", 0, 1 << 31)
        self._whole("seed", 0, (1 << 64) - 1)
        self._whole("num_return_sequences", 1, MAX_CHOICES)
        self._whole("num_beams", 1, MAX_CHOICES)
        self._whole("prompt_lookup_num_tokens", 0, MAX_DRAFT)
        self._number("temperature", 0.0, 100.0)
        self._number("top_p", 0.0, 1.0, above=True)
        self._number("min_p", 0.0, 1.0)
        self._number("typical_p", 0.0, 1.0, above=True)
        self._number("repetition_penalty", 0.01, 100.0)
        self._number("presence_penalty", -100.0, 100.0)
        self._number("frequency_penalty", -100.0, 100.0)
        self._number("length_penalty", -10.0, 10.0)
        if 0 < self.temperature < 1e-4:
            raise InputError(
                f"temperature {self.temperature} is too small to divide by; 0 takes the likeliest token"
            )
        for name in ("do_sample", "renormalize_logits"):
            if type(getattr(self, name)) is not bool:
                raise InputError(f"{name} must be True or False, not {getattr(self, name)!r}")
        if type(self.early_stopping) is not bool and self.early_stopping != "never":
            raise InputError(f'early_stopping must be True, False or "never", not {self.early_stopping!r}')
        if self.overflow not in ("stop", "slide"):
            raise InputError(f"overflow must be 'stop' or 'slide', not {self.overflow!r}")
        if 1 < self.num_beams < self.num_return_sequences:
            raise InputError(
                f"num_return_sequences ({self.num_return_sequences}) is more than"
                f" num_beams ({self.num_beams})"
            )
        if self.num_beams > 1 and self.overflow == "slide":
            raise InputError("overflow: beam search ends at the edge of the context and does not slide")
        self._tokens()

    def _tokens(self) -> None:
        """Options that name tokens."""
        if not isinstance(self.logit_bias, Mapping):
            raise InputError(f"logit_bias must map token ids to numbers, not {self.logit_bias!r}")
        for id, bias in self.logit_bias.items():
            if not _is_id(id):
                raise InputError(f"logit_bias: {id!r} is not a token id")
            if not isinstance(bias, int | float) or isinstance(bias, bool) or not -1e4 <= bias <= 1e4:
                raise InputError(f"logit_bias: {bias!r} is not a number from -10,000 to 10,000")
        words = self.bad_words_ids
        if not isinstance(words, list | tuple) or not all(map(_is_word, words)):
            raise InputError(f"bad_words_ids must be lists of token ids, not {str(words)[:60]}")
        if self.forced_eos_token_id is not None and not _is_id(self.forced_eos_token_id):
            raise InputError(f"forced_eos_token_id {self.forced_eos_token_id!r} is not a token id")

    @property
    def named_tokens(self) -> dict[str, list[int]]:
        """The token ids in options, by the option: a model must know them."""
        forced = self.forced_eos_token_id
        return {
            "logit_bias": list(self.logit_bias),
            "bad_words_ids": [id for word in self.bad_words_ids for id in word],
            "forced_eos_token_id": [] if forced is None else [forced],
        }

    def _whole(self, name: str, low: int, high: int) -> None:
        value = getattr(self, name)
        if type(value) is not int or not low <= value <= high:
            raise InputError(f"{name} must be a whole number from {low} to {high:,}, not {value!r}")

    def _number(self, name: str, low: float, high: float, *, above: bool = False) -> None:
        value = getattr(self, name)
        fine = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
        if not fine or (above and value == low):
            raise InputError(
                f"{name} must be a number {'above' if above else 'from'} {low:g} to {high:g}, not {value!r}"
            )


def _is_id(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_word(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and all(map(_is_id, value))

"""Glassformer: the language model you can see through.

    import glassformer as gf
    lm = gf.load("storyteller")
    print(lm.generate("Once upon a time", max_new_tokens=40, seed=0))

Names are loaded when they are first used: importing the package loads no torch.
"""

from glassformer import interrupt

if interrupt.is_command():
    interrupt.install()  # before the imports below, which take longer

from importlib import import_module
from typing import TYPE_CHECKING, Any

from glassformer import machine

machine.guard_bf16()

if TYPE_CHECKING:
    from glassformer.errors import GlassError as GlassError
    from glassformer.tasks.classifier import Classifier as Classifier
    from glassformer.tasks.complete import LanguageModel as LanguageModel
    from glassformer.tasks.complete import complete as generate
    from glassformer.tasks.completion import Completion as Completion
    from glassformer.tasks.load import load as load
    from glassformer.tasks.shapes import shapes as shapes
    from glassformer.tokenizers import Tokenizer as Tokenizer
    from glassformer.tokenizers import train_tokenizer as train_tokenizer
    from glassformer.trace import trace as trace
    from glassformer.training.loop import fit as fit
    from glassformer.verification.verify import verify as verify

_HOMES = {
    "Classifier": ("glassformer.tasks.classifier", "Classifier"),
    "Completion": ("glassformer.tasks.completion", "Completion"),
    "GlassError": ("glassformer.errors", "GlassError"),
    "LanguageModel": ("glassformer.tasks.complete", "LanguageModel"),
    "Tokenizer": ("glassformer.tokenizers", "Tokenizer"),
    "fit": ("glassformer.training.loop", "fit"),
    "generate": ("glassformer.tasks.complete", "complete"),
    "load": ("glassformer.tasks.load", "load"),
    "shapes": ("glassformer.tasks.shapes", "shapes"),
    "trace": ("glassformer.trace", "trace"),
    "train_tokenizer": ("glassformer.tokenizers", "train_tokenizer"),
    "verify": ("glassformer.verification.verify", "verify"),
}

__all__ = [
    "Classifier",
    "Completion",
    "GlassError",
    "LanguageModel",
    "Tokenizer",
    "fit",
    "generate",
    "load",
    "shapes",
    "trace",
    "train_tokenizer",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return machine.installed("glassformer")
    if name not in _HOMES:
        raise AttributeError(f"module 'glassformer' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__

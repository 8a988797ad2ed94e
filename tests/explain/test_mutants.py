"""A test that cannot fail is none: each comparison is shown a fault, and sees it."""

import importlib
import inspect
import itertools
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest
import torch
from small import Pair, hugging_face, save_hugging_face

import glassformer as gf

CAPTUM, LENS, ATTENTION, NEURONS, WITNESS, EDITS, FAMILY, READING = (
    f"explain.test_{name}"
    for name in (
        "saliency",
        "lens",
        "attention",
        "neurons",
        "transformerlens",
        "edits",
        "family",
        "reading",
    )
)
# A mutant: a module, the code, its replacement; and the file and name of the test that has to fail.
MUTANTS = [
    (
        "saliency",
        "gradients[:, 0] * words if",
        "gradients[:, 0] + words if",
        CAPTUM,
        "test_gradients_are_captums",
    ),
    (
        "saliency",
        "weight[[target.token for",
        "2 * weight[[target.token for",
        CAPTUM,
        "test_gradients_are_captums",
    ),
    ("saliency", "(places + 1) / 2", "(places + 1.01) / 2", CAPTUM, "test_integrated_gradients_are_captums"),
    ("saliency", "fall = full - logits_with", "fall = 2 * full - logits_with", CAPTUM, "test_occlusion"),
    ("lens", "net.norm(states), net.head", "1 * states, net.head", LENS, "test_every_stage"),
    ("lens", '"entropy": stage.entropy', '"entropy": final.entropy', LENS, "test_every_stage"),
    ("stream", "centered * scale", "part * scale", WITNESS, "test_the_parts_of_a_logit"),
    (
        "lens",
        '"dhk,hk->hd", weight, mix',
        '"dhk,hk->hd", weight, mix.flip(0)',
        WITNESS,
        "test_the_parts_of_a_logit",
    ),
    (
        "attention",
        "numbers(seen.take(site)[0])",
        "numbers(seen.take(site)[0].flip(0))",
        ATTENTION,
        "test_patterns_are_those_of_transformers",
    ),
    ("attention", "dots / np.sqrt(len(query))", "dots / len(query)", ATTENTION, "test_the_five_steps"),
    (
        "neurons",
        "seen[site][0] for site in sites",
        "seen[site][0] + 1e-3 for site in sites",
        NEURONS,
        "test_activations_are_those_of_transformers",
    ),
    (
        "neurons",
        "made.components_[order]",
        "made.components_[order[::-1]]",
        NEURONS,
        "test_factors_are_scikit_learns",
    ),
    ("edits", "value + edit.by * given", "value + given", EDITS, "test_every_kind_of_edit"),
    (
        "edits",
        "self.now - cache.padding[:, None]",
        "self.now + cache.padding[:, None]",
        EDITS,
        "test_edits_hold_while_a_text_is_generated",
    ),
    # A post-norm model: a norm on the stream that is left out, a scale of the wrong stream, a bias that is
    # lost.
    ("lens", "parts.pass_norm(norm, stream + added)", "pass", FAMILY, "test_parts_add_up"),
    (
        "lens",
        "parts.pass_norm(norm, stream + added)",
        "parts.pass_norm(norm, stream)",
        FAMILY,
        "test_parts_add_up",
    ),
    ("lens", "if norm.bias is not None", "if False", FAMILY, "test_parts_add_up"),
    ("stream", "names.index(site) :]", "names.index(site) + 1 :]", FAMILY, "test_what_a_neuron_promotes"),
    # Masks: taken for causal, or blind to the band.
    (
        "attention",
        "visible=visible, distance",
        "visible=np.arange(len(k)) <= position, distance",
        FAMILY,
        "test_the_five_steps",
    ),
    ("attention", "able = (kind & mask)", "able = kind", FAMILY, "test_head_statistics_use_the_mask"),
    (
        "attention",
        "np.abs(_back(pattern.shape[-2:]))",
        "np.maximum(_back(pattern.shape[-2:]), 0)",
        FAMILY,
        "test_two_sided_statistics",
    ),
    # A text that is cut loses the end of its prompt.
    (
        "reading",
        "ids=self.ids[: position + 1], prompt=self.prompt or len(self.ids)",
        "ids=self.ids[: position + 1]",
        READING,
        "test_a_cut_text_keeps_its_prompt",
    ),
    (
        "edits",
        "elif cache is None and prompt_length():",
        "elif False:",
        EDITS,
        "test_edits_hold_while_a_text_is_generated",
    ),
]


def mutate(monkeypatch: pytest.MonkeyPatch, module: ModuleType, old: str, new: str) -> None:
    """Give every function of a module the code that it would have if the source of the module were changed."""
    source = inspect.getsource(module)
    assert source.count(old) == 1, f"{module.__name__} contains {old!r} {source.count(old)} times"
    scratch = ModuleType(module.__name__)
    scratch.__file__ = module.__file__
    exec(compile(source.replace(old, new), str(module.__file__), "exec"), vars(scratch))
    for name, function in functions(module).items():
        monkeypatch.setattr(function, "__code__", functions(scratch)[name].__code__)


def functions(module: ModuleType) -> dict[str, FunctionType]:
    """Its own functions, and the methods of its classes."""
    found: dict[str, FunctionType] = {}
    for name, thing in vars(module).items():
        if getattr(thing, "__module__", None) != module.__name__:
            continue
        inner = vars(thing) if isinstance(thing, type) else {}
        for label, value in {name: thing, **{f"{name}.{key}": value for key, value in inner.items()}}.items():
            bare = inspect.unwrap(value) if callable(value) else None
            if isinstance(bare, FunctionType) and bare.__code__.co_filename == str(module.__file__):
                found[label] = bare
    return found


def settings(names: Any, values: Any) -> list[dict[str, Any]]:
    """What a `parametrize` sets, each time."""
    return [{names: one} if isinstance(names, str) else dict(zip(names, one, strict=True)) for one in values]


def run(test: Callable[..., None], pair: Pair, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A test with its fixtures and all its parameters."""
    home = importlib.import_module(test.__module__)
    words = pair.theirs.transformer.wte(torch.tensor([pair.ids])).detach().requires_grad_()
    fixtures: dict[str, Any] = {"pair": pair, "words": words, "monkeypatch": monkeypatch}
    if home.__name__ == LENS:
        fixtures["right"] = inspect.unwrap(home.right)(pair)
    if home.__name__ == WITNESS:
        folder = save_hugging_face(hugging_face(3), folder)
        fixtures["both"] = home.Both(gf.load(str(folder), dtype="float64"), folder, pair.ids)
    marks = [mark.args for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    if home.__name__ == FAMILY:
        marks.append(("reading", [home.read(kind, 3, pair.ids) for kind in home.KINDS]))
    for some in itertools.product(*(settings(*mark) for mark in marks)):
        known = fixtures | {name: value for one in some for name, value in one.items()}
        test(**{name: known[name] for name in inspect.signature(test).parameters})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("module", "old", "new", "home", "name"), MUTANTS, ids=[f"{one[0]}: {one[2]}" for one in MUTANTS]
)
def test_a_fault_is_seen(
    module: str,
    old: str,
    new: str,
    home: str,
    name: str,
    pair: Pair,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The test passes without the fault, and fails with it."""
    test = getattr(importlib.import_module(home), name)
    run(test, pair, monkeypatch, tmp_path)
    mutate(monkeypatch, importlib.import_module(f"glassformer.explain.{module}"), old, new)
    with pytest.raises(AssertionError):
        run(test, pair, monkeypatch, tmp_path)

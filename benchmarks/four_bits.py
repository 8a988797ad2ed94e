"""What four-bit weights cost in bits per byte, by how they are chosen: the storyteller in torch, its weights rounded.

    python benchmarks/four_bits.py FILE … [--model storyteller] [--documents 0] [--only WORD …]

A row is a way to choose multipliers and roundings; figures are percent more bits per byte than float32,
without overlap. "its own text" are the moments of a matrix's inputs on stories that the model generated
(seeds 0 to 15). Activations are not rounded here.
"""

import argparse
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import glassformer as gf
from glassformer.engine.four_bits import dequantize4, quantize4
from glassformer.engine.quantize import quantize
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.evaluate import evaluate

Array = np.ndarray[Any, Any]
Rule = Callable[[str, Array], Array]
STORIES = 16
TIED = "tokens.weight"


def main() -> None:
    """Print one row for each way."""
    parser = argparse.ArgumentParser(description="Measure what four-bit weights cost.")
    parser.add_argument("files", nargs="+", type=Path, help="texts, as for glass eval")
    parser.add_argument("--model", default="storyteller")
    parser.add_argument("--documents", type=int, default=0, help="only the first N texts of each; 0: all")
    parser.add_argument("--only", nargs="*", default=[], help="ways whose name has one of these words")
    asked = parser.parse_args()
    lm = gf.load(asked.model, engine="torch").expect(LanguageModel)
    exact = {name: value.detach().clone() for name, value in lm.net.named_parameters()}
    right = [bits(lm, file, asked.documents) for file in asked.files]

    names = " | ".join(file.name for file in asked.files)
    print(f"| weights | {names} |\n|---|{'---|' * len(asked.files)}")
    for title, (rule, look_up) in ways(lm, exact).items():
        if asked.only and not any(word in title for word in asked.only):
            continue
        put(lm.net, exact, rule=rule, look_up=look_up)
        found = [bits(lm, file, asked.documents) for file in asked.files]
        over = [f"{now / before - 1:+.2%}" for now, before in zip(found, right, strict=True)]
        print(f"| {title} | {' | '.join(over)} |", flush=True)


def ways(lm: LanguageModel, exact: dict[str, torch.Tensor]) -> dict[str, tuple[Rule, Rule | None]]:
    """Each a rule for the matrices, and one for the embedding look-up (None: the output matrix's)."""
    gains = {name: importance(name, exact) for name in exact}
    own = moments(lm)

    def searched(name: str, weights: Array) -> Array:
        return restored(weights, None)

    def weighted(name: str, weights: Array) -> Array:
        return restored(weights, gains[name])

    def compensated(name: str, weights: Array) -> Array:
        return restored(weights, own[name])

    def coarser(name: str, weights: Array) -> Array:
        return restored(weights, own[name], group=64)

    return {
        "eight bits": (eight, None),
        "round to nearest, by the largest": (plain, None),
        "search": (searched, None),
        "search, weighted by the norms": (weighted, None),
        "search, weighted by the norms, look-up in int8": (weighted, eight),
        "compensated by its own text": (compensated, None),
        "compensated by its own text, look-up in int8": (compensated, eight),
        "compensated by its own text, look-up in int8, groups of 64": (coarser, eight),
    }


def restored(weights: Array, given: Array | None, *, group: int = 32) -> Array:
    """The weights after a way through four bits."""
    return dequantize4(quantize4(weights, importance=given, group=group), group=group)


def eight(name: str, weights: Array) -> Array:
    """The weights after a way through eight bits."""
    whole, scales = quantize(weights)
    rounded: Array = whole * scales[:, None]
    return rounded


def plain(name: str, weights: Array) -> Array:
    """Round to nearest in groups of 32, the largest to 7, multipliers in seven bits: nothing is searched."""
    grouped = weights.reshape(len(weights), -1, 32)
    largest = np.abs(grouped).max(axis=2) / 7
    scales = np.maximum(largest.max(axis=1, keepdims=True) / 127, np.finfo(np.float32).tiny)
    steps = (np.rint(largest / scales) * scales)[..., None]
    whole = np.rint(np.divide(grouped, steps, out=np.zeros_like(grouped), where=steps > 0))
    rounded: Array = (np.clip(whole, -8, 7) * steps).reshape(weights.shape)
    return rounded


def importance(name: str, exact: dict[str, torch.Tensor]) -> Array | None:
    """gain² + bias² of the norm before a matrix, where there is one."""
    block = ".".join(name.split(".")[:2])
    before = {"qkv": f"{block}.norm1", "up": f"{block}.norm2", "tokens": "norm"}
    for part, norm in before.items():
        if part in name:
            gain, bias = (exact[f"{norm}.{kind}"].numpy() for kind in ("weight", "bias"))
            squares: Array = gain**2 + bias**2
            return squares
    return None


@torch.inference_mode()
def moments(lm: LanguageModel) -> dict[str, Array]:
    """The mean of x xᵀ of every matrix's inputs x, on generated stories."""
    found: dict[str, Array] = {}
    hooks = []
    writer = gf.load(lm.name, engine="native").expect(LanguageModel)
    stories = [writer.generate("", seed=seed, temperature=1.0, top_k=0).ids for seed in range(STORIES)]
    for name, module in lm.net.named_modules():
        if isinstance(module, torch.nn.Linear):
            stored = TIED if name == "head" else f"{name}.weight"

            def see(module: object, given: tuple[torch.Tensor], stored: str = stored) -> None:
                rows = given[0].flatten(0, -2).double().numpy()
                found[stored] = found.get(stored, 0) + rows.T @ rows

            hooks.append(module.register_forward_pre_hook(see))
    for ids in stories:
        lm.net(torch.tensor([ids[: lm.backend.context]]))
    for hook in hooks:
        hook.remove()
    return found


def put(net: torch.nn.Module, exact: dict[str, torch.Tensor], *, rule: Rule, look_up: Rule | None) -> None:
    """Give a model the rounded weights."""
    for name, value in exact.items():
        if value.dim() < 2 or name == "positions.weight":
            continue
        rounded = torch.from_numpy(rule(name, value.numpy()))
        if name == TIED:
            net.get_submodule("head").weight = torch.nn.Parameter(rounded)
            used = rounded if look_up is None else torch.from_numpy(look_up(name, value.numpy()))
            net.get_submodule("tokens").weight = torch.nn.Parameter(copy.deepcopy(used))
        else:
            net.get_parameter(name).data.copy_(rounded)


def bits(lm: LanguageModel, file: Path, documents: int) -> float:
    """Bits per byte, without overlap."""
    measured = next(evaluate(lm, str(file), documents=documents)).bits_per_byte
    assert measured is not None
    return measured


if __name__ == "__main__":
    main()

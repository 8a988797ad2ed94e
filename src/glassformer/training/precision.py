"""bf16: only where it is safe, and only where it was measured to be faster."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch

from glassformer import machine
from glassformer.training.hyperparameters import Hyperparameters

GAIN = 1.1  # a smaller gain is not worth a coarser number
ROUNDS = 3

Rehearsal = Callable[[Hyperparameters], object]  # does the work of a step, without its consequences


def autocast(hyperparameters: Hyperparameters, device: torch.device) -> AbstractContextManager[object]:
    """Matrix products in bf16, where the hyperparameters say so."""
    if hyperparameters.precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16)
    return nullcontext()


def choose_precision(
    hyperparameters: Hyperparameters, device: torch.device, *, rehearse: Rehearsal
) -> tuple[Hyperparameters, str]:
    """Hyperparameters that ask for bf16 become ones that have it, or not; and the reason, in words."""
    if hyperparameters.precision not in ("auto", "bf16"):
        return hyperparameters, ""

    plain = replace(hyperparameters, precision="float32")
    coarse = replace(hyperparameters, precision="bf16")
    if device.type == "cpu" and machine.bf16() == "crashes":
        return plain, "float32: bf16 crashes on this machine"
    if device.type == "cuda" and not torch.cuda.is_bf16_supported():
        return plain, "float32: this GPU has no bf16"

    times: dict[str, list[float]] = {"float32": [], "bf16": []}
    for _ in range(ROUNDS + 1):
        for one in (plain, coarse):  # in turn: a machine that gets slower meanwhile slows both
            times[one.precision].append(_seconds(rehearse, one, device))

    ratio = min(times["float32"][1:]) / min(times["bf16"][1:])  # the first round warms up
    if ratio >= GAIN:
        return coarse, f"bf16: {ratio:.2f} × as fast"
    return plain, f"float32: bf16 is {ratio:.2f} × as fast"


def _seconds(rehearse: Rehearsal, hyperparameters: Hyperparameters, device: torch.device) -> float:
    began = time.perf_counter()
    rehearse(hyperparameters)
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # a GPU returns before it is done
    return time.perf_counter() - began

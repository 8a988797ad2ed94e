"""bf16: only where it is safe, and only where it was measured to be faster."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch

from glassformer import machine
from glassformer.training.plan import Plan

GAIN = 1.1  # less than this is not worth a coarser number
ROUNDS = 3


def autocast(plan: Plan, device: torch.device) -> AbstractContextManager[object]:
    """Products in bf16, where the plan says so."""
    return torch.autocast(device.type, torch.bfloat16) if plan.precision == "bf16" else nullcontext()


def choose_precision(plan: Plan, device: torch.device, run: Callable[[Plan], object]) -> tuple[Plan, str]:
    """A plan that wishes for bf16 becomes one that has it, or not; and why. `run` does the work of a step with a plan."""
    if plan.precision not in ("auto", "bf16"):
        return plan, ""
    plain, coarse = replace(plan, precision="float32"), replace(plan, precision="bf16")
    if device.type == "cpu" and machine.bf16() == "crashes":
        return plain, "float32: bf16 crashes on this machine"
    if device.type == "cuda" and not torch.cuda.is_bf16_supported():
        return plain, "float32: this GPU has no bf16"
    times: dict[str, list[float]] = {"float32": [], "bf16": []}
    for _ in range(ROUNDS + 1):
        for one in (plain, coarse):
            began = time.perf_counter()
            run(one)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times[one.precision].append(time.perf_counter() - began)
    ratio = min(times["float32"][1:]) / min(times["bf16"][1:])  # the first round warms up
    return (
        (coarse, f"bf16: {ratio:.2f} × as fast")
        if ratio >= GAIN
        else (plain, f"float32: bf16 is {ratio:.2f} × as fast")
    )

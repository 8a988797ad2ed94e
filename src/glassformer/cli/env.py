"""glass env"""

from typing import Annotated

import typer

from glassformer import machine
from glassformer.cli.options import Json, out, print_json


def env(
    probe: Annotated[
        bool, typer.Option("--probe", help="Try bf16 again, even if the answer is known.")
    ] = False,
    as_json: Json = False,
) -> None:
    """What this machine is and can do: versions, cores, instruction sets, bf16, engine, where models are kept.

    \b
    glass env            a table; the first time, bf16 is tried in a child process (some seconds)
    glass env --json     the same, as data
    """
    if probe:
        machine.bf16(probe_again=True)
    from glassformer.tasks.backends import status

    facts = machine.describe() | {"engine": status()}
    if as_json:
        print_json(facts)
        return
    facts["instruction sets"] = " ".join(facts["instruction sets"]) or "not told by this system"
    facts["memory available"] = f"{facts['memory available'] / 1e9:.1f} GB"
    width = max(map(len, facts))
    for name, fact in facts.items():
        out().print(f"{name:<{width}}  {fact}")

"""The options of a call: by whatever name they are known, checked, and named where one is wrong."""

from collections.abc import Mapping
from typing import Any

from glassformer.errors import InputError
from glassformer.generation.options import Options

# As The Illustrated Transformer has them.
ALIASES = {"beam_size": "num_beams", "top_beams": "num_return_sequences"}


def plain_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options by the names that they have here; an alias goes before the name that it stands for."""
    renamed = {ALIASES[name]: value for name, value in given.items() if name in ALIASES}
    return {name: value for name, value in given.items() if name not in ALIASES} | renamed


def check_options(given: Mapping[str, Any], *, others: tuple[str, ...] = ()) -> Options:
    """The options of a generation, or an error that names the one that is wrong; a call may have `others`."""
    given = plain_names(given)
    unknown = set(given) - set(Options.__dataclass_fields__)
    if unknown:
        import difflib  # here: it is needed hardly ever

        name, known = min(unknown), [*Options.__dataclass_fields__, *others]
        close = difflib.get_close_matches(name, known, n=1)
        meant = f"did you mean {close[0]!r}? Known" if close else "known"
        raise InputError(f"unknown option {name!r}; {meant}: {', '.join(known)}")
    return Options(**given)

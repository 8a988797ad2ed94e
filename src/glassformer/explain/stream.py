"""The residual stream: where it can be read, and what the norms on it do to one of its parts.

In pre-norm models (GPT-2) a part that was added to the stream stays as it is up to the final norm. In post-
norm models (GPT-1) the stream itself passes a norm after every addition (`net.stream_norm`). With its scale
held fixed, a norm is linear: it removes the mean and multiplies by its gain.
"""

from torch import Tensor, nn

from glassformer.explain.reading import Readable, module_of
from glassformer.nn.stack import Stack


def stages(stack: Stack) -> list[str]:
    """The sites of the residual stream, from the embedding on; one behind every part of a block."""
    sites = [stack.site(layer, part.after) for layer in range(stack.layers) for part in stack.parts]
    return [f"{stack.prefix}embed", *sites]


def last_stage(stack: Stack) -> str:
    """Where the residual stream ends: behind it are the final norm and the output matrix."""
    return stages(stack)[-1]


def stream_end(net: Readable) -> str:
    """The site whose values the final norm and the output matrix read.

    A recurrent network has no residual stream: what its steps give goes to the output matrix.
    """
    return last_stage(net.stacks[-1]) if net.stacks else "final"


def final_norm(net: Readable) -> nn.LayerNorm | None:
    """The norm between the last block and the output matrix; None in a model that has none."""
    return net.norm if isinstance(net.norm, nn.LayerNorm) else None


def norms_behind(net: Readable, stack: Stack, *, site: str) -> list[nn.LayerNorm]:
    """All norms that a part passes on its way to the output if it is added to the stream before `site`."""
    names = stages(stack)
    on_stream = [net.stream_norm(name) for name in names[names.index(site) :]]
    return [norm for norm in (*on_stream, final_norm(net)) if norm is not None]


def scale_of(norm: nn.LayerNorm, stream: Tensor) -> Tensor:
    """(…, 1): what a norm multiplies this stream (…, D) by, before its gain."""
    return (stream.var(-1, unbiased=False, keepdim=True) + norm.eps).rsqrt()


def pass_norm(norm: nn.LayerNorm, part: Tensor, *, scale: Tensor | float = 1.0) -> Tensor:
    """What a norm makes of a part of the stream (…, D), with its scale held fixed and without its bias.

    All parts together, and the bias, are what the norm makes of the whole stream.
    """
    centered = part - part.mean(-1, keepdim=True)
    passed: Tensor = centered * scale * norm.weight
    return passed


def name_of(net: Readable, norm: nn.Module) -> str:
    """The path of a module in the model: `blocks.0.norm1`."""
    names: dict[nn.Module, str] = {module: name for name, module in module_of(net).named_modules()}
    return names[norm]

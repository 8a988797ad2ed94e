"""Seeing inside: reading, editing and differentiating named values; and the traps of listening."""

import itertools
import subprocess
import sys
from typing import Any

import pytest
import torch
from small import small_model

from glassformer.errors import InputError, UnknownSite
from glassformer.models.gpt import GPT
from glassformer.trace import Tapped, parse_address, trace

IDS = torch.randint(0, 97, (2, 9), generator=torch.Generator().manual_seed(5))
ATTENTION = ["q", "k", "v", "scores", "pattern", "mix", "out"]
BLOCK = ["in", *(f"attn.{name}" for name in ATTENTION), "mid", "mlp.neurons", "mlp.out", "out"]
SITES = ["embed", *(f"blocks.{i}.{name}" for i in range(2) for name in BLOCK), "final", "logits"]


@pytest.fixture
def model() -> GPT:
    return small_model(4)


def test_all_sites_in_order(model: GPT) -> None:
    """A trace of everything holds every site, in the order of the computation."""
    with trace(model) as seen:
        model(IDS)
    assert list(seen) == SITES


def test_shapes(model: GPT) -> None:
    """The shapes that the letters promise."""
    B, T, D, H, K, N, V = 2, 9, 24, 3, 8, 96, 97
    with trace(model) as seen:
        model(IDS)
    shapes = {
        "q": (B, H, T, K),
        "scores": (B, H, T, T),
        "pattern": (B, H, T, T),
        "mix": (B, H, T, K),
        "out": (B, T, D),
    }
    for name, shape in shapes.items():
        assert seen[f"blocks.1.attn.{name}"].shape == shape
    assert seen["blocks.0.mlp.neurons"].shape == (B, T, N)
    assert seen["logits"].shape == (B, T, V)


def test_reading_changes_no_bit(model: GPT) -> None:
    """With every site watched, the output is the same to the last bit."""
    plain = model(IDS)
    with trace(model):
        watched = model(IDS)
    assert torch.equal(plain, watched)
    assert torch.equal(plain, model(IDS))


def test_a_pattern_is_a_pattern(model: GPT) -> None:
    """Rows sum to one, the future is dark, and it is what the fused kernel used."""
    with trace(model, "blocks.*.attn.*") as seen:
        model(IDS)
    pattern = seen["blocks.0.attn.pattern"]
    assert torch.allclose(pattern.sum(-1), torch.ones(2, 3, 9))
    assert (pattern.triu(1) == 0).all()
    assert torch.allclose(pattern @ seen["blocks.0.attn.v"], seen["blocks.0.attn.mix"], atol=1e-5)


def test_the_explicit_route_equals_the_fused_one(model: GPT) -> None:
    """An edit that changes nothing takes the other route and arrives at the same place, within 1e-5."""
    plain = model(IDS)
    with trace(model, edits={"blocks.*.attn.pattern": lambda p: p}):
        explicit = model(IDS)
    assert (plain - explicit).abs().max() <= 1e-5 * plain.abs().max()
    with trace(model, edits={"blocks.*.attn.scores": lambda s: s}):
        assert torch.equal(explicit, model(IDS))


@pytest.mark.parametrize("site", SITES)
def test_every_site_can_be_edited(model: GPT, site: str) -> None:
    """Doubling any value changes the logits; what is read is what was put there."""
    plain = model(IDS)
    edit = (lambda s: s - 1.0 * s.tril(-1)) if site.endswith("scores") else (lambda value: value * 2)
    with trace(model, site, edits={site: edit}) as seen:
        edited = model(IDS)
    assert not torch.equal(plain, edited)
    with trace(model, site) as before:
        model(IDS)
    changed = edit(before[site])
    assert torch.allclose(seen[site][changed.isfinite()], changed[changed.isfinite()], atol=1e-5)


@pytest.mark.parametrize("site", SITES)
def test_every_site_can_be_differentiated(model: GPT, site: str) -> None:
    """The gradient of a site predicts what a small change of it does."""
    model = model.double()
    with trace(model, site, grad=True) as seen:
        loss = model(IDS)[:, -1, 3].sum()
    loss.backward()
    gradient = seen.gradient(site)
    direction = torch.randn(gradient.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    if site.endswith("scores"):
        direction = direction.tril()
    with trace(model, edits={site: lambda value: value + 1e-5 * direction}):
        moved = model(IDS)[:, -1, 3].sum()
    assert gradient.abs().sum() > 0
    assert ((moved - loss) / 1e-5).item() == pytest.approx(
        (gradient * direction).sum().item(), rel=1e-2, abs=1e-4
    )


def test_an_edit_of_one_head_leaves_the_others(model: GPT) -> None:
    """An address with an index touches its head alone."""
    with trace(model, "blocks.1.attn.mix", edits={"blocks.1.attn.mix[1]": torch.zeros_like}) as seen:
        model(IDS)
    with trace(model, "blocks.1.attn.mix") as plain:
        model(IDS)
    assert (seen["blocks.1.attn.mix[1]"] == 0).all()
    for head in (0, 2):
        assert torch.equal(seen[f"blocks.1.attn.mix[{head}]"], plain[f"blocks.1.attn.mix[{head}]"])


def test_traces_end_in_any_order(model: GPT) -> None:
    """One that ends before one that began later leaves it alone, and nothing stays behind."""
    one, other = trace(model, "blocks.0.out"), trace(model, "blocks.1.out")
    first, second = one.__enter__(), other.__enter__()
    model(IDS)
    one.__exit__(None, None, None)
    model(IDS)
    other.__exit__(None, None, None)
    model(IDS)
    assert first["blocks.0.out"].shape == (*IDS.shape, 24)
    assert second["blocks.1.out"].shape == (2, *IDS.shape, 24)
    assert model.tracer is None


def test_a_star_is_one_name_between_dots(model: GPT) -> None:
    """At the beginning and at the end of a pattern, too."""
    right = {
        "blocks.*.out": ["blocks.0.out", "blocks.1.out"],
        "blocks.*.attn": ["blocks.0.attn.out", "blocks.1.attn.out"],
        "*.mlp.out": ["blocks.0.mlp.out", "blocks.1.mlp.out"],
        "blocks.1.m*": ["blocks.1.mid", "blocks.1.mlp.neurons", "blocks.1.mlp.out"],
        "f*l": ["final"],
    }
    for glob, sites in right.items():
        with trace(model, glob) as seen:
            model(IDS)
        assert list(seen) == sites
        assert seen.addresses(glob) == sites
    assert seen.addresses("final") == ["final"]
    with trace(model) as seen:
        model(IDS)
    assert seen.addresses("blocks.*.attn.mix[2]") == ["blocks.0.attn.mix[2]", "blocks.1.attn.mix[2]"]


def test_a_sublayer_is_its_output(model: GPT) -> None:
    """`blocks.0.attn` silenced means that the residual stream passes it unchanged."""
    with trace(model, "blocks.0.*", edits={"blocks.0.attn": torch.zeros_like}) as seen:
        model(IDS)
    assert torch.equal(seen["blocks.0.in"], seen["blocks.0.mid"])


@pytest.mark.parametrize("ask", ["blocks.9.out", "block.*", "blocks.0.attn.patern", "blocks.0.attn.score"])
def test_an_unknown_site_raises_and_lists_the_sites(model: GPT, ask: str) -> None:
    """A typing error is not silence."""
    with (
        pytest.raises(UnknownSite, match=r"blocks\.0…1\.attn\.scores, blocks\.0…1\.attn\.pattern"),
        trace(model, ask),
    ):
        model(IDS)
    with (
        pytest.raises(UnknownSite, match=r"embed, blocks\.0…1\.in, .*, final, logits"),
        trace(model, edits={ask: lambda v: v}),
    ):
        model(IDS)
    assert model.tracer is None


@pytest.mark.parametrize("address", ["", "a[b]", "blocks.0.out[1]", "x[", "blocks.0.attn.mix[-1]"])
def test_bad_addresses(address: str) -> None:
    """An address that means nothing is refused."""
    with pytest.raises(UnknownSite):
        parse_address(address)


def test_an_index_past_the_last_head(model: GPT) -> None:
    """The message gives their number."""
    with (
        pytest.raises(UnknownSite, match="3 entries"),
        trace(model, edits={"blocks.0.attn.q[3]": torch.zeros_like}),
    ):
        model(IDS)


def test_an_edit_must_keep_the_shape(model: GPT) -> None:
    """A broadcast is not taken for an edit."""
    with (
        pytest.raises(InputError, match="shapes must stay"),
        trace(model, edits={"embed": lambda value: value[:1]}),
    ):
        model(IDS)


def test_repeated_sites_stack(model: GPT) -> None:
    """Tokens of a generation: one trace, one leading axis."""
    cache = model.new_cache(1, 20)
    with torch.no_grad(), trace(model, "blocks.0.attn.pattern", "embed") as seen:
        for position in range(4):
            model(IDS[:1, position : position + 1], cache)
    assert seen["embed"].shape == (4, 1, 1, 24)
    pattern = seen["blocks.0.attn.pattern"]
    assert pattern.shape == (4, 1, 3, 1, 4)
    assert seen["blocks.0.attn.pattern[2]"].shape == (4, 1, 1, 4)
    assert torch.allclose(pattern.sum(-1), torch.ones(4, 1, 3, 1))


def test_passes_of_several_lengths(model: GPT) -> None:
    """Shorter values have zeros at the end of every axis; `each` has them in their own shapes."""
    with trace(model, "blocks.0.attn.pattern", "embed") as seen:
        model(IDS)
        model(IDS[:, :4])
    assert seen["embed"].shape == (2, 2, 9, 24)
    assert not seen["embed"][1, :, 4:].any()
    assert seen["embed"][1, :, :4].any(-1).all()
    long, short = seen.each("blocks.0.attn.pattern[1]")
    assert (long.shape, short.shape) == ((2, 9, 9), (2, 4, 4))
    assert torch.equal(seen["blocks.0.attn.pattern[1]"][1, :, :4, :4], short)
    with pytest.raises(UnknownSite, match="holds no site"):
        seen.each("final")


def test_values_are_read_after_the_block(model: GPT) -> None:
    """Inside of it, a sentence says so."""
    with trace(model, "embed") as seen:
        model(IDS)
        with pytest.raises(UnknownSite, match="'embed' can be read after the `with` block"):
            seen["embed"]
    assert seen["embed"].shape == (2, 9, 24)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda value: None, "the edit of embed returned None; it must return the new value, a tensor"),
        (lambda value, hook: value, "the edit of embed must be a function of one argument"),
        (lambda value: value.double(), "made torch.float64 out of torch.float32; the dtype must stay"),
    ],
)
def test_an_edit_that_cannot_be_used(model: GPT, edit: Any, message: str) -> None:
    """What is wrong with the function is said in one sentence."""
    with pytest.raises(InputError, match=message), trace(model, edits={"embed": edit}):
        model(IDS)


def test_only_a_module_is_traced(model: GPT) -> None:
    """The handle of a loaded model has a method of its own, which the message names."""
    handle: Any = type("Handle", (), {})()
    with pytest.raises(InputError, match=r"not Handle; of a loaded model: lm\.trace"), trace(handle):
        pass


def test_a_mistyped_site(model: GPT) -> None:
    """The nearest site is suggested, with a star where the mistyped one has one."""
    meant = r"did you mean 'blocks\.\*\.attn\.pattern'\?"
    with pytest.raises(UnknownSite, match=meant), trace(model, "blocks.*.atn.patern"):
        model(IDS)
    with trace(model) as seen:
        model(IDS)
    with pytest.raises(UnknownSite, match=r"did you mean 'blocks\.1\.mlp\.neurons'\?"):
        seen["blocks.1.mlp.neuron"]
    with pytest.raises(UnknownSite, match="'xyz'; it holds"):
        seen["xyz"]


def test_every_head_one_by_one(model: GPT) -> None:
    """`[*]` is each index of the axis."""
    with trace(model) as seen:
        model(IDS)
    heads = [f"blocks.{layer}.attn.mix[{head}]" for layer in range(2) for head in range(3)]
    assert seen.addresses("blocks.*.attn.mix[*]") == heads
    assert len(seen.addresses("blocks.1.mlp.neurons[*]")) == 96
    with pytest.raises(UnknownSite, match="take an index"):
        seen.addresses("blocks.0.out[*]")


def test_two_models_at_once(model: GPT) -> None:
    """A trace hangs on its model; another model is not traced."""
    other = small_model(8)
    with trace(model, "embed") as first, trace(other, "final") as second:
        model(IDS)
        other(IDS)
    assert list(first) == ["embed"]
    assert list(second) == ["final"]


def test_traces_nest(model: GPT) -> None:
    """An outer trace goes on listening and editing while an inner one looks; each keeps what it asked for."""
    with trace(model, "embed", edits={"blocks.0.attn.pattern": lambda p: p.flip(1)}) as outer:
        edited = model(IDS)
        with trace(model, "final", "blocks.0.attn.mix") as inner:
            again = model(IDS)
    assert torch.equal(edited, again)
    assert not torch.allclose(edited, model(IDS))
    assert list(inner) == ["blocks.0.attn.mix", "final"]
    assert outer["embed"].shape == (2, 2, 9, 24)
    assert model.tracer is None


def test_a_part_can_be_traced_inside_the_whole(model: GPT) -> None:
    """Two traces that share some modules do not disturb each other, whichever is the outer one."""
    block = model.blocks[0]
    with trace(model, "blocks.0.out") as whole, trace(block, "out") as part:
        model(IDS)
    with trace(block, "out") as first, trace(model, "blocks.0.out") as second:
        model(IDS)
    for seen in (part["out"], first["out"], second["blocks.0.out"]):
        assert torch.equal(seen, whole["blocks.0.out"])


def test_nothing_is_left_behind(model: GPT) -> None:
    """After a trace, also one that failed, no tracer is left; nothing enters the state."""
    names = set(model.state_dict())
    with pytest.raises(RuntimeError, match="stop here"), trace(model):
        raise RuntimeError("stop here")
    assert set(model.state_dict()) == names
    assert all(module.tracer is None for module in model.modules() if isinstance(module, Tapped))


def test_compiled_idle_taps_break_no_graph(model: GPT) -> None:
    """`fullgraph=True` accepts a model whose taps are idle."""
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert torch.allclose(compiled(IDS), model(IDS), atol=1e-5)


def test_compiled_models_are_traced(model: GPT) -> None:
    """A compiled model that has run before is seen when a trace begins, and is fast again afterwards."""
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        plain = compiled(IDS)
        with trace(model, "blocks.*.attn.pattern") as seen:
            compiled(IDS)
        assert len(seen) == 2
        with trace(model, edits={"blocks.0.attn": torch.zeros_like}):
            assert not torch.equal(compiled(IDS), plain)
        assert torch.allclose(compiled(IDS), plain)


@pytest.mark.slow
def test_the_compiler_is_loaded_only_to_compile() -> None:
    """It takes a second to load. A model that is compiled while a trace is open is seen all the same."""
    code = """
import sys, torch, glassformer as gf
from glassformer.trace import Tapped

class Doubled(Tapped):
    def forward(self, x):
        return self.tap("twice", 2 * x)

gf.load("storyteller", engine="torch").generate("Once", max_new_tokens=1).lens()
net, x = Doubled(), torch.ones(1)
with gf.trace(net) as seen:
    net(x)
    assert "torch._dynamo" not in sys.modules, "the compiler was loaded"
    torch.compile(net, backend="eager")(x)
assert seen["twice"].tolist() == [[2], [2]], "one of the two runs was not seen"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_gradient_needs_a_backward(model: GPT) -> None:
    """Reading it too early is an error."""
    with trace(model, "embed", grad=True) as seen:
        model(IDS)
    with pytest.raises(UnknownSite, match="backward"):
        seen.gradient("embed")


def test_gradients_need_a_graph(model: GPT) -> None:
    """Where the run built none, `grad=True` had no effect: that is said, not passed over."""
    with (
        pytest.raises(InputError, match="no value has a gradient"),
        trace(model, "embed", grad=True),
        torch.no_grad(),
    ):
        model(IDS)


def test_every_index_is_not_an_address_of_a_trace(model: GPT) -> None:
    """The message names the site that holds all heads together."""
    error = r"mix\[\*\]': leave \[\*\] out: 'blocks.\*.attn.mix' is the value of all together"
    with (
        pytest.raises(UnknownSite, match=error),
        trace(model, edits={"blocks.*.attn.mix[*]": torch.zeros_like}),
    ):
        model(IDS)


def test_gradients_of_repeated_sites_stack(model: GPT) -> None:
    """Two runs under one trace: two gradients."""
    with trace(model, "embed", grad=True) as seen:
        total = model(IDS).sum() + 2 * model(IDS).sum()
    total.backward()
    first, second = seen.gradient("embed")
    assert torch.allclose(2 * first, second, atol=1e-3)


def test_the_articles_table_of_shares() -> None:
    """The article's softmax is that of its scores over four; the second row is 48 % and 52 %."""
    scores = torch.tensor(
        [[0.11, 0.0, 0.81, 0.79], [0.19, 0.5, 0.3, 0.48], [0.53, 0.98, 0.95, 0.14], [0.81, 0.86, 0.38, 0.9]]
    )
    q, k = scores[None, None] * 2 / 4, torch.eye(4)[None, None]

    class Listener(Tapped):
        pass

    from glassformer.nn.attention import causal_mask, explicit_pattern

    pattern = explicit_pattern(Listener(), q, k, causal_mask(q.shape[2], k.shape[2]))[0, 0]
    assert pattern[1].tolist() == pytest.approx([0.48, 0.52, 0, 0], abs=0.005)
    for row, column in itertools.product(range(4), range(4)):
        assert (pattern[row, column] == 0) == (column > row)
    assert torch.allclose(pattern.sum(-1), torch.ones(4))

"""The Transformer's numbers: equal to an independent NumPy implementation, and the check bites."""

import itertools
from typing import Any

import pytest
import torch
from mutants import mutated
from oracles import largest_difference, transformer, waves
from small import shake
from torch import Tensor

from glassformer.errors import InputError
from glassformer.models.transformer import PRESETS, Config, Transformer
from glassformer.nn.positions import sinusoids
from glassformer.trace import trace

SIZES: dict[str, Any] = {
    "layers": 2, "decoder_layers": 1, "heads": 3, "width": 12, "neurons": 10, "vocab": 13, "context": 9, "pad": 3
}  # fmt: skip
PAD = SIZES["pad"]
SOURCES = [[1, 2, 12, 7, 0], [4, 5, 6]]
TARGETS = [[1, 6, 3, 7], [1, 12, 0, 5]]


def filled(rows: list[list[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])


def make(**choices: Any) -> Transformer:
    """A model in float64 whose every number is random."""
    model = Transformer(Config(**SIZES | choices)).initialize(1)
    shake(model, 2)
    return model.double().eval()


def differences(model: Any, right: Transformer) -> dict[str, float]:
    """The largest difference to the oracle at every site, over the rows of a padded batch."""
    with torch.no_grad(), trace(model) as seen:
        model(filled(SOURCES), torch.tensor(TARGETS))
    found: dict[str, float] = {}
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        expected = transformer(right.config, right.state_dict(), source, target)
        here = largest_difference(seen, expected, row)
        found = {site: max(found.get(site, 0.0), value) for site, value in here.items()}
    return found


@pytest.mark.parametrize("layout", ["alternating", "halves"])
@pytest.mark.parametrize("source_vocab", [0, 15])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("activation", ["relu", "swish", "gelu_erf", "gelu_tanh"])
def test_every_site_of_every_variant_equals_the_oracle(
    layout: str, source_vocab: int, tied: bool, activation: str
) -> None:
    """At most 1e-9, in a batch of sources of different lengths, whose rows the oracle computes alone."""
    for scaled, head_bias in itertools.product((True, False), repeat=2):
        model = make(
            layout=layout, source_vocab=source_vocab, tied=tied, activation=activation,
            scaled=scaled, head_bias=head_bias,
        )  # fmt: skip
        found = differences(model, model)
        worst = max(found, key=lambda site: found[site])
        assert found[worst] <= 1e-9, worst
        assert model.config.parameters == sum(parameter.numel() for parameter in model.parameters())


def test_more_layers_in_the_decoder_equal_the_oracle() -> None:
    """The number of layers is each stack's own; without one, the decoder has as many as the encoder."""
    for layers, decoder_layers in ((1, 3), (2, 0)):
        model = make(layers=layers, decoder_layers=decoder_layers)
        assert len(model.decoder.blocks) == decoder_layers or layers
        assert max(differences(model, model).values()) <= 1e-9


MODEL, ATTENTION, WAVES = "models/transformer.py", "nn/attention.py", "nn/positions.py"
MUTANTS: list[tuple[str, str, str, dict[str, Any]]] = [
    (MODEL, "self.scale * tokens(ids) + self.positions(ids, cache)", "self.scale * tokens(ids)", {}),
    (MODEL, "return math.sqrt(self.config.width) if", "return self.config.width if", {}),
    ("nn/positions.py", "start = 0 if cache is None else cache.length", "start = 1", {}),
    (MODEL, "self.norm1(x + self.drop(self.attn(x, k, v, mask))))\n        return", "self.norm1(self.attn(x, k, v, mask)))\n        return", {}),
    (MODEL, "self.norm2(x + self.drop(self.mlp(x)))", "x + self.norm2(self.mlp(x))", {}),
    (MODEL, "self.norm3(x + self.drop(self.mlp(x)))", "self.norm2(x + self.drop(self.mlp(x)))", {}),
    (MODEL, "self.cross(x, k, v, memory.mask)", "self.cross(x, k, v, None)", {}),
    (MODEL, "k, v = memory.keys_and_values(self.layer, self.cross)", "k, v = memory.keys_and_values(self.layer, self.attn)", {}),
    (MODEL, "k, v = memory.keys_and_values(self.layer, self.cross)", "k, v = memory.keys_and_values(0, self.cross)", {"decoder_layers": 2}),
    (MODEL, "causal = k.shape[2] == x.shape[1] > 1", "causal = False", {}),
    (MODEL, "mask = None if bool(real.all()) else real[:, None, None]", "mask = None", {}),
    (MODEL, "x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)", "x.view(*x.shape[:2], -1, self.heads).movedim(-1, 1)", {}),
    (MODEL, "mix.transpose(1, 2).flatten(2)", "mix.transpose(2, 3).flatten(1, 2).transpose(1, 2).flip(2)", {}),
    (MODEL, "x = self.vectors(self.source_tokens, source)", "x = self.vectors(self.tokens, source)", {"source_vocab": 13}),
    (MODEL, "self.head.weight = self.tokens.weight", "pass", {}),
    (ATTENTION, "q, k, v, attn_mask=mask, dropout_p=dropout, is_causal", "q, k, v, attn_mask=mask, dropout_p=dropout, scale=1.0, is_causal", {}),
    (WAVES, "base ** (pairs / width)", "base ** (pairs / (width - 2))", {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "old", "new", "choices"), MUTANTS, ids=[new[:40].strip() for _, _, new, _ in MUTANTS]
)
def test_the_oracle_catches_every_mutant(file: str, old: str, new: str, choices: dict[str, Any]) -> None:
    """A one-line defect moves a value by far more than the tolerance."""
    right = make(**choices)
    module = mutated(MODEL, file, old=old, new=new)
    wrong = module.Transformer(module.Config(**vars(right.config))).initialize(5).double().eval()
    state = {name: value for name, value in right.state_dict().items() if name != "head.weight"}
    wrong.load_state_dict(state, strict=False)  # the head is the token matrix, unless that is what is broken
    assert max(differences(wrong, right).values()) > 1e-6
    assert max(differences(right, right).values()) <= 1e-9


def test_the_position_vectors_of_four_words() -> None:
    """ "I am a robot" with a width of 4 and a base of 100; and the layout of Marian, beside the oracle's."""
    right = [
        [0.00, 1.00, 0.00, 1.00],
        [0.84, 0.54, 0.10, 1.00],
        [0.91, -0.42, 0.20, 0.98],
        [0.14, -0.99, 0.30, 0.96],
    ]
    assert [[round(x, 2) for x in row] for row in sinusoids(4, 4, base=100).tolist()] == right
    for layout in ("alternating", "halves"):
        ours = sinusoids(600, 24, layout=layout)
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.double(), torch.from_numpy(waves(600, 24, layout)), rtol=0, atol=1e-7)
    with pytest.raises(InputError, match="the width must be even, not 5"):
        sinusoids(4, 5)
    with pytest.raises(InputError, match="layout 'spiral' is none of alternating, halves"):
        sinusoids(4, 4, layout="spiral")


def test_published_sizes() -> None:
    """To the number; the paper's table 3 has 65 and 213 million."""
    counts = {name: config.parameters for name, config in PRESETS.items()}
    assert counts == {"transformer-base": 63_082_496, "transformer-big": 214_245_376}


def test_the_edge_of_the_context() -> None:
    """A source and a target may fill it; one token more is refused, with a cache too."""
    model = make()
    full, more = torch.ones(1, 9, dtype=int), torch.ones(1, 10, dtype=int)
    assert model(full, full).shape == (1, 9, 13)
    for inputs in ((more, full), (full, more)):
        with pytest.raises(InputError, match="10 tokens are 1 more than the model's context of 9"):
            model(*inputs)
    cache = model.new_cache(1, 12)
    model(full, full, cache)
    with pytest.raises(InputError, match="10 tokens are 1 more"):
        model(full, full[:, :1], cache)


@pytest.mark.parametrize(("choices", "words"), [
    ({"heads": 5}, "width 12 cannot be split into 5 heads"),
    ({"width": 15}, "width must be even for sinusoids, not 15"),
    ({"layers": 0}, "layers must be at least 1, not 0"),
    ({"source_vocab": -1}, "source_vocab must be at least 0, not -1"),
    ({"activation": "sine"}, "activation 'sine' is none of gelu_tanh"),
    ({"layout": "spiral"}, "layout 'spiral' is none of alternating, halves"),
    ({"dropout": 1.0}, "dropout must be at least 0 and less than 1, not 1.0"),
    ({"pad": 13}, "pad 13 is not a token id of the source's vocabulary"),
    ({"start": 13}, "start 13 is not a token id of the target's vocabulary"),
])  # fmt: skip
def test_what_it_refuses(choices: dict[str, Any], words: str) -> None:
    """One sentence that names the field."""
    with pytest.raises(InputError, match=words):
        Config(**SIZES | choices)


@pytest.mark.parametrize(
    "rows", [[0, 0, 0, 1, 1, 1], [1, 1, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1], [0, 1]], ids=str
)
def test_targets_that_share_a_source_are_as_with_their_own(rows: list[int]) -> None:
    """Beams of a source see its one row of keys, whatever rows were selected; a trace sees a row for each."""
    model = make()
    sources, start = filled(SOURCES), torch.tensor([[1], [1]])
    nexts = torch.tensor([[2 + row] for row in range(len(rows))])
    with torch.no_grad():
        cache = model.new_cache(2, 3)
        model(sources, start, cache)
        cache = cache.select(rows)
        again = cache.select(list(range(len(rows))))
        others = [cache.select(list(range(len(rows)))) for _ in range(2)]
        got = model(sources, nexts, cache)
        site = "decoder.blocks.0.cross.pattern"
        with trace(model, edits={site: lambda pattern: pattern}):
            edited = model(sources, nexts, others[0])
        with trace(model, edits={site: torch.zeros_like}):
            ablated = model(sources, nexts, others[1])
        with trace(model, "decoder.blocks.*.cross.*") as seen:
            traced = model(sources, nexts, again)
        with trace(model, "decoder.blocks.*.cross.pattern") as alone:
            whole = torch.cat([start[rows], nexts], dim=1)
            want = model(sources[rows], whole)[:, 1:]
    torch.testing.assert_close(got, want)
    assert torch.equal(traced, got)  # reading changes no bit
    torch.testing.assert_close(edited, got)
    assert not torch.equal(ablated, got)
    pattern = seen["decoder.blocks.0.cross.pattern"]  # (B, H, 1, S)
    torch.testing.assert_close(pattern, alone["decoder.blocks.0.cross.pattern"][:, :, 1:])


def test_beams_that_change_places_stay_with_their_source() -> None:
    """In place: within a source nothing of it is copied, and between sources its keys go along."""
    model = make()
    sources = filled(SOURCES)
    for order in ([1, 0, 3, 3], [0, 0, 2, 3], [2, 3, 0, 1], [0, 2, 2, 1]):
        with torch.no_grad():
            cache = model.new_cache(2, 4)
            model(sources, torch.tensor([[1], [1]]), cache)
            cache = cache.select([0, 0, 1, 1])
            model(sources, torch.tensor([[2], [4], [5], [6]]), cache)
            memory = cache.memory
            cache.reorder(order)
            got = model(sources, torch.tensor([[7], [8], [9], [10]]), cache)
            written = torch.tensor([[1, 2], [1, 4], [1, 5], [1, 6]])[order]
            whole = torch.cat([written, torch.tensor([[7], [8], [9], [10]])], dim=1)
            want = model(sources[[row // 2 for row in order]], whole)[:, 2:]
        torch.testing.assert_close(got, want)
        assert memory is not None
        assert cache.memory is not None
        same = [row // 2 for row in order] == [0, 0, 1, 1]
        assert (cache.memory.vectors is memory.vectors) == same

"""The recurrent model's numbers: equal to an independent NumPy implementation and to torch's own networks."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from mutants import mutated
from oracles import largest_difference, seq2seq
from small import shake
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.models.seq2seq import Config, Seq2Seq
from glassformer.nn.recurrent import CELLS, read
from glassformer.trace import trace

SIZES: dict[str, Any] = {"width": 6, "token_width": 5, "vocab": 13, "pad": 3}
PAD = SIZES["pad"]
SOURCES = [[12, 7], [1, 2, 5, 0]]
TARGETS = [[1, 6, 3], [1, 12, 3]]
# What the decoder gets of the source: every choice that makes a difference.
READS = [
    {"reads": "last"},
    {"reads": "last", "wiring": "after"},
    *({"reads": "mean", "wiring": wiring} for wiring in ("before", "after")),
    *(
        {"reads": "attention", "score": score, "wiring": wiring}
        for score in ("dot", "bilinear", "additive")
        for wiring in ("before", "after")
    ),
]


def filled(rows: list[list[int]], pad: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])


def make(**choices: Any) -> Seq2Seq:
    """A model in float64 whose every number is random."""
    model = Seq2Seq(Config(**SIZES | choices)).initialize(1)
    shake(model, 2)
    return model.double().eval()


def differences(model: Any, right: Seq2Seq) -> dict[str, float]:
    """The largest difference to the oracle at every site, over the rows of a padded batch."""
    with torch.no_grad(), trace(model) as seen:
        model(filled(SOURCES, PAD), torch.tensor(TARGETS))
    found: dict[str, float] = {}
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        expected = seq2seq(right.config, right.state_dict(), source, target)
        here = largest_difference(seen, expected, row)
        found = {site: max(found.get(site, 0.0), value) for site, value in here.items()}
    return found


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("source_vocab", [0, 15])
def test_every_site_of_every_variant_equals_the_oracle(
    cell: str, layers: int, bidirectional: bool, source_vocab: int
) -> None:
    """At most 1e-9, in a batch of sources of different lengths, whose rows the oracle computes alone."""
    for reads in READS:
        model = make(
            cell=cell, layers=layers, bidirectional=bidirectional, source_vocab=source_vocab, **reads
        )
        found = differences(model, model)
        worst = max(found, key=lambda site: found[site])
        assert found[worst] <= 1e-9, (reads, worst)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("reads", [reads for reads in READS if reads.get("score") != "dot"])
def test_a_decoder_of_another_width_equals_the_oracle(cell: str, reads: dict[str, str]) -> None:
    """A matrix for each layer leads from the encoder's last state to the decoder's first."""
    model = make(cell=cell, layers=2, bidirectional=True, decoder_width=7, **reads)
    assert max(differences(model, model).values()) <= 1e-9


MODEL, CELL = "models/seq2seq.py", "nn/recurrent.py"
BOTH = {"bidirectional": True}
MUTANTS: list[tuple[str, str, str, dict[str, Any]]] = [
    (CELL, "new + reset * from_new", "reset * (new + from_new)", {}),
    (CELL, "new + update * (h - new)", "h + update * (new - h)", {}),
    (CELL, "reset, update, new = x.chunk(3, -1)", "update, reset, new = x.chunk(3, -1)", {}),
    (CELL, "forget * c + let_in * new", "let_in * c + forget * new", {"cell": "lstm"}),
    (CELL, "let_out * torch.tanh(c), c", "let_out * c, c", {"cell": "lstm"}),
    (CELL, "torch.where(real, after, before)", "after", {}),
    (CELL, "hidden.append(state[0] * real)", "hidden.append(state[0])", {"reads": "mean"}),
    (CELL, "hidden[::-1] if backward else hidden", "hidden", BOTH),
    (CELL, "reversed(steps) if backward else steps", "steps", BOTH),
    (CELL, "torch.tanh(query[:, None] + keys)", "(query[:, None] + keys)", {}),
    (MODEL, "scores.masked_fill(~memory.mask[:, None, None], -torch.inf)", "scores", {}),
    (MODEL, "memory.states.sum(1) / tokens", "memory.states.mean(1)", {"reads": "mean"}),
    (MODEL, "parts = [s, context, x] if before", "parts = [x, context, s] if before", {"token_width": 6}),
    (MODEL, "torch.tanh(self.join(torch.cat(parts, -1)))", "self.join(torch.cat(parts, -1))", {}),
    (MODEL, "context = self.context(states[-1][0], memory)", "context = self.context(states[0][0], memory)", {"layers": 2}),
    (MODEL, "            context = self.context(s, memory)", "            context = self.context(s * 0, memory)", {"wiring": "after"}),
    (MODEL, "torch.tanh(bridge(tensor))", "bridge(tensor)", {"decoder_width": 7}),
    (MODEL, "            x = self.tap(name, h)\n", "            self.tap(name, h)\n", {"layers": 2, "token_width": 6, "reads": "last"}),
    (MODEL, "nn.Embedding(own, config.token_width) if own else self.tokens", "self.tokens", {"source_vocab": 13}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "old", "new", "choices"), MUTANTS, ids=[new.strip()[:40] for _, _, new, _ in MUTANTS]
)
def test_the_oracle_catches_every_mutant(file: str, old: str, new: str, choices: dict[str, Any]) -> None:
    """A one-line defect moves a value by far more than the tolerance."""
    right = make(**choices)
    module = mutated(MODEL, file, old=old, new=new)
    wrong = module.Seq2Seq(module.Config(**vars(right.config))).double().eval()
    wrong.load_state_dict(right.state_dict(), strict=False)
    assert max(differences(wrong, right).values()) > 1e-6
    assert max(differences(right, right).values()) <= 1e-9


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_an_encoder_is_torchs_own_network(cell: str, bidirectional: bool) -> None:
    """`torch.nn.GRU` and `torch.nn.LSTM` on packed sequences: states, and the last state of both layers."""
    model = make(cell=cell, layers=2, bidirectional=bidirectional)
    kind = {"gru": nn.GRU, "lstm": nn.LSTM}[cell]
    theirs = kind(5, 6, num_layers=2, bidirectional=bidirectional, batch_first=True).double()
    sides = {"": model.encoder.forwards, "_reverse": model.encoder.backwards}
    for suffix, cells in sides.items():
        for layer, one in enumerate(cells):
            for ours, name in ((one.input, "ih"), (one.hidden, "hh")):
                theirs.get_parameter(f"weight_{name}_l{layer}{suffix}").data = ours.weight.data
                theirs.get_parameter(f"bias_{name}_l{layer}{suffix}").data = ours.bias.data

    ids = filled(SOURCES, PAD)
    vectors = model.source_tokens(ids)
    packed = nn.utils.rnn.pack_padded_sequence(
        vectors, torch.tensor([len(row) for row in SOURCES]), batch_first=True, enforce_sorted=False
    )
    out, last = theirs(packed)
    states, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
    ours, our_last = model.encoder(vectors, ids != PAD)
    torch.testing.assert_close(ours, states, rtol=0, atol=1e-12)

    tensors = last if cell == "lstm" else (last,)
    for number, tensor in enumerate(tensors):  # (layers × directions, B, D)
        by_layer = tensor.unflatten(0, (2, -1))
        for layer in range(2):
            right = torch.cat(list(by_layer[layer]), -1)
            torch.testing.assert_close(our_last[layer][number], right, rtol=0, atol=1e-12)


def test_a_cell_in_float32_is_torchs_own() -> None:
    """One step at a time, `torch.nn.GRUCell` and `torch.nn.LSTMCell`."""
    for name, theirs in (("gru", nn.GRUCell(5, 6)), ("lstm", nn.LSTMCell(5, 6))):
        ours = CELLS[name](5, 6)
        ours.input.weight, ours.input.bias = theirs.weight_ih, theirs.bias_ih
        ours.hidden.weight, ours.hidden.bias = theirs.weight_hh, theirs.bias_hh
        x, state = torch.randn(3, 5), tuple(torch.randn(3, 6) for _ in range(ours.tensors))
        mine = ours(ours.input(x), state)
        its = theirs(x, state if name == "lstm" else state[0])
        for one, other in zip(mine, its if name == "lstm" else (its,), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


@pytest.mark.parametrize("cell", list(CELLS))
def test_padding_leaves_a_state_as_it_is(cell: str) -> None:
    """Wherever it is, in both directions; its own hidden state is 0."""
    torch.manual_seed(0)
    one = CELLS[cell](4, 3).double()
    x = torch.randn(1, 6, 4, dtype=torch.float64)
    mask = torch.tensor([[True, False, True, True, False, False]])
    for backward in (False, True):
        states, last = read(one, x, mask=mask, backward=backward)
        alone, alone_last = read(one, x[mask][None], mask=torch.ones(1, 3, dtype=bool), backward=backward)
        torch.testing.assert_close(states[mask][None], alone, rtol=0, atol=1e-12)
        assert not states[~mask].any()
        for tensor, other in zip(last, alone_last, strict=True):
            torch.testing.assert_close(tensor, other, rtol=0, atol=1e-12)


def test_the_parameters_of_every_variant_are_counted() -> None:
    """Without making any of them."""
    variants = itertools.product(("gru", "lstm"), (1, 2), (False, True), (12, 7), READS)
    for cell, layers, both, width, reads in variants:
        if reads.get("score") == "dot" and not (both and width == 12):
            continue
        config = Config(**SIZES, cell=cell, layers=layers, bidirectional=both, decoder_width=width, **reads)
        assert config.parameters == sum(parameter.numel() for parameter in Seq2Seq(config).parameters())


@pytest.mark.parametrize(("choices", "words"), [
    ({"cell": "rnn"}, "cell 'rnn' is none of gru, lstm"),
    ({"reads": "all"}, "reads 'all' is none of last, mean, attention"),
    ({"score": "cosine"}, "score 'cosine' is none of dot, bilinear, additive"),
    ({"wiring": "both"}, "wiring 'both' is none of before, after"),
    ({"layers": 0}, "layers must be at least 1, not 0"),
    ({"decoder_width": -1}, "decoder_width must be at least 0, not -1"),
    ({"dropout": 1.0}, "dropout must be at least 0 and less than 1, not 1.0"),
    ({"pad": 13}, "pad 13 is not a token id of the source's vocabulary"),
    ({"start": 13}, "start 13 is not a token id of the target's vocabulary"),
    ({"score": "dot", "decoder_width": 7}, "score dot needs states of one width: the encoder's have 6, the decoder's 7"),
])  # fmt: skip
def test_what_it_refuses(choices: dict[str, Any], words: str) -> None:
    """One sentence that names the field."""
    with pytest.raises(InputError, match=words):
        Config(**SIZES | choices)


def test_only_the_bottleneck_hides_where_a_word_was() -> None:
    """With `last`, an edit of the encoder's states changes no logit; with the others it does."""
    for reads in READS:
        model = make(**reads)
        inputs = filled(SOURCES, PAD), torch.tensor(TARGETS)
        before = model(*inputs)
        with trace(model, edits={"encoder.states": lambda states: states * 0}):
            after = model(*inputs)
        assert torch.equal(before, after) == (reads["reads"] == "last")
        assert np.isfinite(after.detach().numpy()).all()

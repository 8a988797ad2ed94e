"""The Music Transformer's numbers: equal to an independent NumPy implementation, and the check bites."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mutants import mutated
from oracles import largest_difference, music
from small import shake
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from glassformer.errors import CheckpointError, InputError
from glassformer.explain.attention import query_steps
from glassformer.explain.reading import Reading
from glassformer.hub.folder import load_folder, save_folder
from glassformer.models import music as music_model
from glassformer.models.music import POSITIONS, MusicConfig, MusicTransformer, RelativeAttention, skew
from glassformer.tokenizers.music import Chorale
from glassformer.trace import trace

SIZES: dict[str, Any] = {"layers": 2, "heads": 3, "width": 12, "neurons": 10, "vocab": 13, "context": 11}
FEW = 4  # queries at once: fewer than a row has, so that parts are put together
IDS = [[1, 2, 12, 7, 0, 4, 4, 9, 3], [5, 5, 6, 1, 2, 12, 7, 0, 11]]


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(music_model, "ROWS", FEW)


def make(**choices: Any) -> MusicTransformer:
    """A model in float64 whose every number is random."""
    model = MusicTransformer(MusicConfig(**SIZES | choices)).initialize(1)
    shake(model, 2)
    return model.double().eval()


def differences(model: Any, right: MusicTransformer) -> dict[str, float]:
    """The largest difference to the oracle at every site, over the rows of a batch."""
    with torch.no_grad(), trace(model) as seen:
        model(torch.tensor(IDS))
    found: dict[str, float] = {}
    for row, ids in enumerate(IDS):
        here = largest_difference(seen, music(right.config, right.state_dict(), ids), row)
        found = {site: max(found.get(site, 0.0), value) for site, value in here.items()}
    return found


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("reach", [0, 1, 4, 9])
@pytest.mark.parametrize("tied", [True, False])
def test_every_site_equals_the_oracle(positions: str, reach: int, tied: bool) -> None:
    """At most 1e-9; parameters are counted as they are."""
    model = make(positions=positions, reach=reach, tied=tied)
    found = differences(model, model)
    worst = max(found, key=lambda site: found[site])
    assert found[worst] <= 1e-9, worst
    assert model.config.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert ("blocks.1.attn.distance" in found) == (positions == "relative")


MODEL, ATTENTION = "models/music.py", "nn/attention.py"
MUTANTS: list[tuple[str, str, str, dict[str, Any]]] = [
    (MODEL, "F.pad(x, (1, 0)).flatten(-2)[..., T:]", "F.pad(x, (1, 0)).flatten(-2)[..., :-T]", {}),
    (MODEL, "F.pad(x, (1, 0))", "F.pad(x, (0, 1))", {}),
    (MODEL, "skew(q @ distances.transpose(-2, -1))", "q @ distances.transpose(-2, -1)", {}),
    (MODEL, "skew(q @ distances", "skew(2 * q @ distances", {}),
    (MODEL, "self.distances[:, -count:]", "self.distances[:, :count]", {}),
    (MODEL, "(0, 0, count - near.shape[1], 0)", "(0, 0, 0, count - near.shape[1])", {"reach": 4}),
    (MODEL, "distance)) / math.sqrt(q.shape[-1])", "distance))", {}),
    (MODEL, "self.terms(q / math.sqrt(q.shape[-1]), k)", "self.terms(q, k)", {}),
    (MODEL, "q @ k.transpose(-2, -1), skew", "q @ k.transpose(-2, -1) / 2, skew", {}),
    (MODEL, "(content + distance).masked_fill(~mask, -torch.inf)", "content + distance", {}),
    (MODEL, "rows = mask[..., start:end, :seen]", "rows = mask[..., :end - start, :seen]", {}),
    (MODEL, "return 0.02 * table[places]", "return table[places]", {"positions": "sinusoids"}),
    (MODEL, "if config.positions == \"sinusoids\" else Nowhere()", "if config.positions else Nowhere()", {}),
    (MODEL, "block = RelativeBlock if config.positions == \"relative\" else Block", "block = Block", {}),
    (ATTENTION, "return site.tap(\"pattern\", scores.softmax(-1))", "return site.tap(\"pattern\", scores.softmax(-2))", {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "old", "new", "choices"), MUTANTS, ids=[new[:40].strip() for _, _, new, _ in MUTANTS]
)
def test_the_oracle_catches_every_mutant(file: str, old: str, new: str, choices: dict[str, Any]) -> None:
    """A one-line defect moves a value by far more than the tolerance."""
    right = make(**choices)
    module = mutated(MODEL, file, old=old, new=new)
    module.ROWS = FEW  # type: ignore[attr-defined]
    wrong = module.MusicTransformer(module.MusicConfig(**asdict(right.config))).initialize(5).double().eval()
    wrong.load_state_dict(right.state_dict(), strict=False)
    assert max(differences(wrong, right).values()) > 1e-6
    assert max(differences(right, right).values()) <= 1e-9


@pytest.mark.parametrize(("queries", "sources"), [(1, 1), (7, 7), (1, 9), (4, 9)])
def test_skewing_equals_the_naive_form(queries: int, sources: int) -> None:
    """Scores by distance, moved, are scores by source: one gathered vector for each pair, the paper's equation 3."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 3, queries, 5, generator=generator, dtype=torch.float64)
    table = torch.randn(
        3, sources, 5, generator=generator, dtype=torch.float64
    )  # the farthest distance first
    moved = skew(q @ table.transpose(-2, -1))
    for i in range(queries):
        for j in range(sources - queries + i + 1):
            distance = sources - queries + i - j
            naive = (q[:, :, i] * table[:, sources - 1 - distance]).sum(-1)  # (B, H)
            assert torch.allclose(moved[:, :, i, j], naive, rtol=0, atol=1e-12)


class Largest(TorchDispatchMode):
    """The most numbers that a tensor with the head's width as its last axis has, of all that are computed inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, self.numbers, self.most = width, 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, list | tuple) else [out]:
            if isinstance(one, Tensor):
                self.most = max(self.most, one.numel())
                if one.shape[-1:] == (self.width,):
                    self.numbers = max(self.numbers, one.numel())
        return out


def relative_step(length: int) -> Largest:
    """Attention on a row, forward and backward."""
    config = MusicConfig(layers=1, heads=2, width=14, vocab=9, context=length)
    attention = RelativeAttention(config, 0)
    torch.nn.init.normal_(attention.distances)
    q, k, v = torch.randn(3, 1, 2, length, 7, generator=torch.Generator().manual_seed(0)).requires_grad_()
    with Largest(7) as largest:
        attention._mix(q, k, v, None, None).sum().backward()
    return largest


def test_the_relative_term_takes_memory_in_proportion() -> None:
    """Vectors of distances: twice as many for twice the events; and nothing is larger than the scores themselves."""
    first, second, third = (relative_step(length) for length in (128, 256, 512))
    assert second.numbers == 2 * first.numbers
    assert third.numbers == 2 * second.numbers
    assert (
        third.most <= 2 * 512 * 513
    )  # of two heads, with the column that skewing adds; a naive form has 7 times that


def test_behind_a_cache_distances_stay_what_they_are() -> None:
    """In steps of any length, beyond the reach too, and where rows are padded."""
    model = make(reach=4)
    whole = model(torch.tensor(IDS))
    padding = np.array([0, 2])
    cache = model.new_cache(2, 11, padding=padding)
    shifted = torch.tensor([[*IDS[0], 1, 1], [0, 0, *IDS[1]]])
    parts = torch.cat([model(part, cache) for part in shifted.split([4, 1, 1, 3, 2], 1)], 1)
    assert torch.allclose(parts[0, :9], whole[0], rtol=0, atol=1e-12)
    assert torch.allclose(parts[1, 2:], whole[1], rtol=0, atol=1e-12)


def test_a_few_queries_at_a_time_change_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither values nor gradients depend on how many are computed at once; and reading changes no bit."""
    model = make(reach=4)

    def step() -> tuple[Tensor, Tensor]:
        model.zero_grad()
        logits = model(torch.tensor(IDS))
        logits.square().mean().backward()
        grad = model.blocks[0].attn.distances.grad
        assert grad is not None
        return logits.detach(), grad.clone()

    parts = step()
    with trace(model, "blocks.*.attn.pattern"):
        assert torch.equal(model(torch.tensor(IDS)), parts[0])
    monkeypatch.setattr(music_model, "ROWS", 99)
    for part, whole in zip(parts, step(), strict=True):
        assert torch.allclose(part, whole, rtol=0, atol=1e-12)


def test_no_weight_of_attention_is_dropped() -> None:
    """In training all dropout is in the stream, whichever positions there are: all models train alike."""
    for positions in POSITIONS:
        model = make(positions=positions, dropout=0.5).train()
        assert [block.attn.dropout for block in model.blocks] == [0.0, 0.0]
        model.drop = torch.nn.Identity()
        for block in model.blocks:
            block.drop = torch.nn.Identity()
        assert torch.equal(model(torch.tensor(IDS)), model(torch.tensor(IDS)))


def test_the_steps_of_a_query_are_those_of_the_model() -> None:
    """What the distance adds belongs to them: their weights are the pattern that was computed."""
    model = make()
    reading = Reading(model, IDS[0], prompt=0)
    with torch.no_grad(), trace(model, "blocks.1.attn.pattern", "blocks.1.attn.mix") as seen:
        model(torch.tensor([IDS[0]]))
    for position in (0, 4, 8):
        steps = query_steps(reading, layer=1, head=2, position=position)
        np.testing.assert_allclose(steps.weights, seen["blocks.1.attn.pattern"][0, 2, position], atol=1e-12)
        np.testing.assert_allclose(steps.mix, seen["blocks.1.attn.mix"][0, 2, position], atol=1e-12)


def test_a_folder_brings_every_choice_back(tmp_path: Path) -> None:
    """Positions, reach and the vocabulary of events; what does not fit is refused."""
    for number, positions in enumerate(POSITIONS):
        net = make(positions=positions, reach=4, vocab=202).float()
        save_folder(tmp_path / str(number), net, tokenizer=Chorale(8))
        back = load_folder(tmp_path / str(number))
        assert back.model.config == net.config
        assert torch.equal(back.model(torch.tensor(IDS)), net(torch.tensor(IDS)))
        assert isinstance(back.tokenizer, Chorale)
        assert back.tokenizer.ahead == 8
    path = tmp_path / "0" / "config.json"
    path.write_text(path.read_text().replace('"relative"', '"wherever"'))
    with pytest.raises(CheckpointError, match="positions 'wherever' is none of relative, sinusoids, learned"):
        load_folder(tmp_path / "0")


def test_a_configuration_is_checked() -> None:
    """One sentence; a reach beyond the context is that of the context."""
    assert MusicConfig(reach=99, context=7).reach == 7
    with pytest.raises(InputError, match="reach must be at least 0, not -1"):
        MusicConfig(reach=-1)
    with pytest.raises(InputError, match="positions 'none' is none of"):
        MusicConfig(positions="none")

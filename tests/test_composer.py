"""The composer that ships: small, complete, and able to write four voices."""

import itertools
from pathlib import Path

import pytest
from composers import TUNE, tune
from safetensors import safe_open

import glassformer as gf
from glassformer.cli import run
from glassformer.tasks.compose import Composer
from glassformer.tokenizers.midi import read_midi, write_midi
from glassformer.tokenizers.music import SILENT, Grid, to_grid

FOLDER = Path(gf.__file__).parent / "pretrained" / "composer"
MOST = 8_000_000  # bytes
SUNG = ((55, 84), (48, 76), (43, 72), (36, 66))  # about what soprano, alto, tenor and bass sing


@pytest.fixture(scope="module")
def composer() -> Composer:
    return gf.load("composer").expect(Composer)


def test_it_is_small_and_whole() -> None:
    """In fp16, with its vocabulary, and a card that says what it learned from and what that cannot tell."""
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= MOST
    with safe_open(FOLDER / "model.safetensors", "np") as file:
        assert {str(file.get_slice(one).get_dtype()) for one in file.keys()} == {"F16"}  # noqa: SIM118 (it is no mapping)
    card = (FOLDER / "card.md").read_text()
    assert all(part in card for part in ("jsb_chorales", "held", "repeated", "longest", "Where it fails"))


def test_it_is_what_the_verb_runs(composer: Composer, tmp_path: Path) -> None:
    assert run(["compose", "-s", "7", "--seconds", "3", "-o", str(tmp_path / "new.mid")]) == 0
    right = composer.compose(seconds=3, seed=7)
    assert to_grid(read_midi(tmp_path / "new.mid", steady=True)) == to_grid(right.score)


def test_it_writes_four_voices(composer: Composer) -> None:
    """Within their ranges, seldom crossed, moving as voices do: neither one chord nor noise."""
    grid: Grid = []
    for seed in range(2):
        grid += to_grid(composer.compose(seconds=12, seed=seed).score)
    cells = [(voice, step[voice]) for step in grid for voice in range(4) if step[voice] != SILENT]
    outside = [not SUNG[voice][0] <= pitch <= SUNG[voice][1] for voice, pitch in cells]
    crossed = [any(SILENT < high < low for high, low in itertools.pairwise(step)) for step in grid]
    changes = [a[voice] != b[voice] for a, b in itertools.pairwise(grid) for voice in range(4)]
    leaps = [abs(a[0] - b[0]) for a, b in itertools.pairwise(grid) if SILENT not in (a[0], b[0])]
    assert len(cells) > 0.9 * 4 * len(grid)
    assert sum(outside) <= 0.02 * len(cells)
    assert sum(crossed) <= 0.1 * len(grid)
    assert 0.1 <= sum(changes) / len(changes) <= 0.5
    assert sum(leap > 7 for leap in leaps) <= 0.02 * len(leaps)


def test_it_harmonizes(composer: Composer, tmp_path: Path) -> None:
    """The melody stays, and three voices are below it."""
    write_midi(tune(), tmp_path / "tune.mid")
    grid = to_grid(composer.harmonize(tmp_path / "tune.mid", seed=1).score)
    assert [step[0] for step in grid] == TUNE
    assert sum(step[0] > step[3] for step in grid) >= 0.9 * len(grid)

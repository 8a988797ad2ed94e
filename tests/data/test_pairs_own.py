"""Which inputs are to be the model's own tokens: by chance that follows from the seed and the place alone."""

from functools import partial

import numpy as np
import pytest

from glassformer.data.pairs import OwnTokens, Pairs, PairStream, Rows

PAD = 0


def stream(true_share: float | None = None, *, batch: int = 8, seed: int = 3) -> OwnTokens:
    rows = [[1, *range(5, 5 + 3 + number % 5), 2] for number in range(40)]
    pairs = PairStream(Pairs(Rows.of(rows), Rows.of(rows), PAD), batch=batch, seed=seed)
    share = partial(lambda step: max(0.0, 1 - step / 10)) if true_share is None else lambda step: true_share
    return OwnTokens(pairs, true_share=share)


def test_the_share_is_that_of_the_step() -> None:
    """None at the first step, half at the fifth, all from the tenth on; never the start token, nor padding."""
    one = stream()
    shares = []
    for _ in range(60):
        batch = one.read(one.draw(8))
        own, mask = batch.arrays["own"], batch.arrays["mask"]
        assert not own[:, 0].any()
        assert not (own[:, 1:] & ~mask[:, :-1]).any()
        shares.append(own.sum() / mask[:, :-1].sum())
    assert shares[0] == 0
    assert 0.25 < np.mean(shares[4:7]) < 0.75
    assert set(shares[10:]) == {1.0}


def test_how_many_are_own_is_chance() -> None:
    """At a share of 0.7, three in ten, within three standard deviations of so many draws."""
    one = stream(0.7)
    batches = [one.read(one.draw(8)).arrays for _ in range(200)]
    own = sum(int(batch["own"].sum()) for batch in batches)
    draws = sum(int(batch["mask"][:, :-1].sum()) for batch in batches)
    assert abs(own - 0.3 * draws) < 3 * (draws * 0.21) ** 0.5


def test_parts_ranks_and_a_resume_give_the_same() -> None:
    """What a row reads does not depend on who reads it, nor on when."""
    whole = stream(0.5)
    rows = whole.draw(8)
    first = whole.read(rows).arrays["own"]
    for part in (slice(0, 3), slice(3, 8)):
        found = whole.read(rows[part]).arrays["own"]
        assert np.array_equal(found, first[part, : found.shape[1]])

    second = whole.read(whole.draw(8)).arrays["own"]
    resumed = stream(0.5)
    resumed.cursor = [8]
    assert np.array_equal(resumed.read(resumed.draw(8)).arrays["own"], second)
    assert resumed.cursor == whole.cursor == [16]


@pytest.mark.parametrize("other", ["seed", "place"])
def test_another_seed_or_place_gives_others(other: str) -> None:
    """So that no pair meets the same choice in every epoch."""
    one = stream(0.5)
    (_, pair), *_ = one.draw(8)
    other_one = stream(0.5, seed=4) if other == "seed" else one
    places = [(number, pair) for number in range(20)]
    shifted = places if other == "seed" else [(number + 40, pair) for number in range(20)]
    assert (one.read(places).arrays["own"] != other_one.read(shifted).arrays["own"]).any()

"""Prompt lookup: what is drafted, what drafts may cost, and that no result depends on them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from decoding import log_sums
from speculating import Case, Knowing, draft_always, equal_with_and_without, play, random_case, texts_of

from glassformer.generation.options import Options
from glassformer.generation.speculation import LOAN, SHARE, Budget, PromptLookup

Array = np.ndarray[Any, Any]
VOCAB, CONTEXT = 24, 32


class Memory:
    """The cache of `Numbers`: the ids that it was given."""

    def __init__(self, ids: Array, padding: Array, capacity: int) -> None:
        self.ids, self.padding, self.capacity = ids, padding, capacity

    @property
    def length(self) -> int:
        return int(self.ids.shape[1])

    def select(self, rows: Sequence[int]) -> "Memory":
        return Memory(self.ids[list(rows)], self.padding[list(rows)], self.capacity)

    def rewind(self, length: int) -> None:
        self.ids = self.ids[:, :length]


class Numbers:
    """A model of plain numbers: the scores depend on the last two tokens, the first, and their number."""

    def __init__(self, *, context: int = CONTEXT) -> None:
        rng = np.random.default_rng(1)
        self.vocab, self.context = VOCAB, context
        self.tables = rng.normal(scale=[[[3.0]], [[0.5]], [[0.2]]], size=(3, VOCAB, VOCAB))
        self.places = rng.normal(scale=0.2, size=(context + 1, VOCAB))
        self.steps: list[int] = []  # tokens of every step

    def new_cache(self, rows: int, capacity: int, *, padding: Array | None = None) -> Memory:
        void = np.zeros(rows, dtype=np.int64) if padding is None else padding
        return Memory(np.zeros((rows, 0), dtype=np.int64), void, capacity)

    def step(self, ids: Array, cache: Memory) -> Array:
        return self._read(ids, cache)[:, -1]

    def step_all(self, ids: Array, cache: Memory) -> Array:
        return self._read(ids, cache)

    def _read(self, ids: Array, cache: Memory) -> Array:
        first = cache.length
        cache.ids = np.concatenate([cache.ids, ids], axis=1)
        assert cache.length <= cache.capacity, "the cache is too small"
        self.steps.append(ids.shape[1])
        rows = [
            [self.scores(row[void : end + 1]) for end in range(first, cache.length)]
            for row, void in zip(cache.ids, cache.padding, strict=True)
        ]
        return np.array(rows, dtype=np.float32)

    def scores(self, row: Array) -> Array:
        assert len(row) <= self.context, "a token beyond the edge of the context"
        if not len(row):
            return np.zeros(VOCAB)
        near = self.tables[0, row[-1]] + self.tables[1, row[-2:][0]] + self.tables[2, row[0]]
        return np.asarray(near + self.places[len(row)])

    def log_sums(self, logits: Array) -> list[float]:
        return log_sums(logits)


# No result depends on a draft.


def test_random_generations_are_those_of_plain_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens, log-probabilities, ends, and how often the consumer is asked, with all options."""
    model = Numbers()
    equal_with_and_without(model, range(60), context=CONTEXT)
    draft_always(monkeypatch)
    total = equal_with_and_without(model, range(60, 180), context=CONTEXT)
    assert 100 < total.accepted < total.drafted


@pytest.mark.parametrize("right", [0, 1, 2, 3, 100])
def test_any_draft_gives_the_same(monkeypatch: pytest.MonkeyPatch, right: int) -> None:
    """Drafts that are wrong from the first token, from the second, …, and such that are right to the end."""
    model, accepted = Numbers(), 0
    for seed in range(40):
        case = random_case(seed, vocab=VOCAB, context=CONTEXT)
        want, asked, _ = play(model, case)
        texts = texts_of(case, want)
        draft_always(monkeypatch, lambda texts=texts: Knowing(texts, right=right, vocab=VOCAB))
        heard, asked_too, drafts = play(model, case, most=4)
        assert (heard, asked_too) == (want, asked), f"seed {seed}: {case}"
        accepted += sum(one.accepted for one in drafts)
    assert (accepted > 0) == (right > 0)


def test_a_right_draft_saves_steps_and_a_wrong_one_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt of 3 and 16 tokens more: 15 steps behind the prompt, or a fifth of them."""
    case = Case([[1, 2, 3]], Options(max_new_tokens=16, temperature=0.0))
    model = Numbers()
    want, _, _ = play(model, case)
    assert model.steps == [3] + [1] * 15
    for right, steps in ((100, [3, 5, 5, 5]), (0, None), (2, [3, 5, 5, 5, 5, 3])):
        texts = texts_of(case, want)
        draft_always(monkeypatch, lambda texts=texts, right=right: Knowing(texts, right=right, vocab=VOCAB))
        model = Numbers()
        heard, _, (drafts,) = play(model, case, most=4)
        assert heard == want
        if steps is None:
            assert len(model.steps) == 16
            assert drafts.accepted == 0
        else:
            assert model.steps == steps
    assert drafts.drafted == 18


def test_a_batch_is_read_ahead_when_one_row_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a batch go on at the same pace; the last of them, padded as it is, may go faster."""
    draft_always(monkeypatch)
    model = Numbers(context=64)
    case = Case([[1, 2, 3, 4, 5], [6, 6]], Options(max_new_tokens=50, temperature=0.0), stop_after=5)
    heard, _, _ = play(model, case)
    assert [one[0] for one in heard[3:8]] == [1, 0, 1, 1, 1]
    again, _, drafts = play(model, case, most=7)
    assert again == heard
    assert sorted(one.accepted > 0 for one in drafts) == [False, True]


def test_it_goes_on_where_a_text_slides(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last half of the context was read again, drafts are as long as before."""
    case = Case([[1, 2, 3]], Options(max_new_tokens=90, temperature=0.0, overflow="slide"))
    want, _, _ = play(Numbers(), case)
    texts = texts_of(case, want)
    draft_always(monkeypatch, lambda: Knowing(texts, right=100, vocab=VOCAB))
    model = Numbers()
    assert play(model, case, most=3)[0] == want
    half = CONTEXT // 2
    slides = [at for at, count in enumerate(model.steps) if count == half]
    assert len(slides) > 2
    assert all(model.steps[at + 1 : at + 4] == [4, 4, 4] for at in slides[:-1])


# What is drafted.


def drafted(tokens: Sequence[int], most: int = 7, *, chance: float = 0.0) -> list[int]:
    lookup = PromptLookup()
    for token in tokens:
        lookup.push(token)
    return lookup.draft(most, chance=chance)


def test_the_draft_is_what_followed_the_last_two_tokens() -> None:
    """Where they occurred last, or where a longer match began; a text that goes round goes on doing so."""
    assert drafted([1, 2, 3, 4, 5, 1, 2]) == [3, 4, 5, 1, 2, 3, 4]
    assert drafted([1, 2, 3, 4, 5, 1, 2], 2) == [3, 4]
    assert drafted([1, 2, 8, 1, 2, 9, 1, 2]) == [9, 1, 2, 9, 1, 2, 9]
    assert drafted([7, 1, 2, 8, 5, 5, 1, 2, 9, 7, 1, 2], 1) == [8]
    assert drafted([4, 4, 4]) == [4] * 7
    for nothing in ([], [1], [1, 1], [1, 2, 3], [1, 2, 3, 2]):
        assert drafted(nothing) == []
    assert drafted([1, 2, 1, 2], 0) == []


def test_only_what_is_likely_is_drafted() -> None:
    """After a long match more than after a short one, and nothing where guesses have been wrong."""
    repeated = list(range(10)) * 3
    assert len(drafted(repeated, chance=0.375)) == 7
    assert len(drafted([*range(10), 0, 1], chance=0.375)) < 7
    random = [int(id) for id in np.random.default_rng(0).integers(0, 3, size=300)]
    assert drafted(random, chance=0.0)
    assert drafted(random, chance=0.6) == []


def test_looking_up_takes_the_same_time_in_a_long_text() -> None:
    """No token is looked at twice, whatever the length: the text is an `Unread` list."""

    class Unread(list[int]):
        reads = 0

        def __getitem__(self, index: Any) -> Any:
            self.reads += 1
            return super().__getitem__(index)

    lookup = PromptLookup()
    lookup._tokens = text = Unread()
    for token in np.random.default_rng(0).integers(0, 9, size=5000):
        lookup.push(int(token))
    assert text.reads <= 2 * len(text)


# What drafts may cost.


def test_drafts_that_fail_end_soon_and_their_loss_is_bounded() -> None:
    """Whatever a step costs: all drafts together lose at most the loan, a small share, and the last draft."""
    for cost in (0.1, 0.3, 0.9):
        budget, lost, last = Budget(0), 0.0, 0.0
        for tokens in range(400):
            if most := max(0, min(7, budget.most(tokens))):
                last = cost * most
                budget.drafted(most, step=1.0 + last)
                lost += last
            else:
                budget.searched(0.0, step=1.0)
        assert 0 < lost <= LOAN + SHARE * 400 + 2 * last


def test_drafts_grow_with_success() -> None:
    """From one or two tokens to as many as are wanted."""
    budget, lengths = Budget(0), []
    budget.searched(0.0, step=1.0)
    for tokens in range(0, 80, 8):
        lengths.append(most := min(7, budget.most(tokens)))
        budget.drafted(most, step=1.0 + 0.2 * most)
        for _ in range(most):
            budget.saved()
    assert 1 <= lengths[0] <= 2
    assert lengths == sorted(lengths)
    assert lengths[-1] == 7


def test_looking_for_drafts_pauses_where_it_costs() -> None:
    """Where a step takes no longer than ten look-ups, few are made; where it takes long, all are."""
    for step, least, most in ((1e-4, 1, 60), (1e-2, 400, 400)):
        budget, made, pause = Budget(0), 0, 0
        for tokens in range(400):
            if tokens >= pause:
                budget.searched(1e-5, step=step)
                made, pause = made + 1, budget.pause()
        assert least <= made <= most


def test_one_interruption_does_not_end_it_all() -> None:
    """A step, or a look-up, during which another process ran."""
    budget = Budget(100)
    for _ in range(5):
        budget.searched(1e-6, step=1e-3)
    budget.searched(1.0, step=1e-3)
    budget.searched(1e-6, step=1.0)
    budget.drafted(1, step=1.0)
    assert budget.cost < 0.5
    assert budget.pause() < 300

"""Speculative decoding by prompt lookup: where a text repeats itself, several tokens are read in one step.

The last tokens are looked up in the text so far (prompt and answer). Those that followed them there are the
draft: they are read together with the last token, and the logits after each of them are kept. As long as the
tokens that are chosen equal the draft, the logits after them are there already. So a draft decides how much
is read in one step, and nothing else: tokens and log-probabilities are those of plain decoding, to the bit.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil
from typing import Protocol

import numpy as np

from glassformer.generation.stepper import Ids, Logits, PiecewiseStepper, RewindableCache

LONGEST = 8  # a match that is longer than this is as certain as one of this length
RATE = 1 / 16  # how fast a chance follows what is seen

# In units of the time that a step of one token takes:
LOAN, SHARE = 0.5, 0.005  # what drafts may lose at most: this, and this share of the time of plain decoding
USUAL_COST = 0.25  # of reading one more token in a step, as long as none was measured
MARGIN = 1.5  # a token is drafted if its chance is this many times its cost
RECENT = 9  # measurements of which the median counts


@dataclass
class Drafts:
    """How many tokens were drafted, and how many of them were chosen."""

    drafted: int = 0
    accepted: int = 0


class Drafter(Protocol):
    """Guesses how a text goes on."""

    def push(self, token: int) -> None:
        """The next token of the text is known."""

    def draft(self, most: int, *, chance: float) -> list[int]:
        """At most `most` tokens that may come next; above `chance` is the chance that all are right."""


class PromptLookup:
    """Drafts what followed the last tokens where they occurred before.

    Every token is guessed, also when nothing is drafted. So it is known how often a guess is right after a
    match of each length, and in a text that does not repeat itself nothing is drafted.
    """

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._after: dict[tuple[int, int], int] = {}  # two tokens -> the place after their last occurrence
        self._place = -1  # of the token that is the guess for the next one; -1: there is no guess
        self._match = 0  # how many tokens before that place are known to equal the last ones
        # The chance that a guess is right, by the length of the match: at first only a long one is trusted.
        self._chances = [0.0, 0.0, *(1 - 1 / match for match in range(2, LONGEST + 1))]

    def push(self, token: int) -> None:
        """The next token of the text is known; the time this takes does not depend on the text's length."""
        tokens = self._tokens
        guessed = self._place >= 0
        right = guessed and tokens[self._place] == token
        if guessed:
            match = min(self._match, LONGEST)
            self._chances[match] += RATE * (right - self._chances[match])

        pair = (tokens[-1] if tokens else -1, token)
        tokens.append(token)
        if right:
            self._place, self._match = self._place + 1, self._match + 1
        else:
            self._place, self._match = self._after.get(pair, -1), 2
        self._after[pair] = len(tokens)

    def draft(self, most: int, *, chance: float) -> list[int]:
        """What followed before, as far as the chance that all of it is right stays above `chance`."""
        draft: list[int] = []
        if self._place < 0:
            return draft
        all_right = 1.0
        for ahead in range(most):
            all_right *= self._chances[min(self._match + ahead, LONGEST)]
            if all_right <= chance:
                break
            place = self._place + ahead
            # What repeats the end of the text runs into the draft itself, and goes round in it.
            beyond = place - len(self._tokens)
            draft.append(self._tokens[place] if beyond < 0 else draft[beyond])
        return draft


def _median(values: Sequence[float]) -> float:
    """The middle one; `statistics` has this too, and takes long to import."""
    return sorted(values)[len(values) // 2]


class Budget:
    """Decides how many tokens may be drafted, so that drafts that fail and looking for them cost little.

    What was saved and what it cost is counted in steps of one token. Costs are measured during the run: they
    depend on the machine, the model and whatever else runs. No token depends on them.
    """

    def __init__(self, prompt: int) -> None:
        """`prompt` tokens have been read so far."""
        self._balance = LOAN + SHARE * USUAL_COST * prompt
        self._seconds: deque[float] = deque(maxlen=RECENT)  # of steps of one token
        self._costs = deque([USUAL_COST] * 3, maxlen=RECENT)  # of one more token in a step
        self.cost = USUAL_COST

    def most(self, tokens: int) -> int:
        """How many may be drafted after N tokens of the answer: few at first, more after success."""
        return int((self._balance + SHARE * tokens) / self.cost)

    def pause(self) -> int:
        """The number of tokens of the answer from which on one more may be drafted."""
        return ceil((self.cost - self._balance) / SHARE)

    def saved(self) -> None:
        """A drafted token was accepted: one step less."""
        self._balance += 1

    def searched(self, seconds: float, *, step: float) -> None:
        """Looking for a draft took this time, the step after it that time, and there was none."""
        self._seconds.append(step)
        # What takes far longer was interrupted; it must not end all further attempts.
        self._balance -= min(seconds / step, 0.1)

    def drafted(self, count: int, *, step: float) -> None:
        """A step of one token and `count` drafted ones took this time."""
        cost = USUAL_COST
        if len(self._seconds) == RECENT:  # the first steps after a prompt are slow, and no measure
            more = step / _median(self._seconds) - 1
            cost = min(max(more / count, 0.05), 1.0)
        self._balance -= cost * count
        self._costs.append(cost)
        self.cost = _median(self._costs)


class Speculation:
    """The logits after each token of one answer, some of them read before the token is chosen."""

    new_drafter: type[Drafter] = PromptLookup

    def __init__(self, model: PiecewiseStepper, *, prompt: Sequence[int], most: int, drafts: Drafts) -> None:
        """Drafts have at most `most` tokens, and are counted in `drafts`; `restart` comes first."""
        self._model, self._most, self._drafts = model, most, drafts
        self._drafter, self._budget = self.new_drafter(), Budget(len(prompt))
        for token in prompt:
            self._drafter.push(token)
        self._known = 0  # how many tokens of the answer the drafter knows
        self._pause = 0  # with fewer tokens of the answer than this, nothing is drafted

    def restart(self, cache: RewindableCache, *, end: int) -> None:
        """Go on behind a cache of one row with room for `end` tokens of the answer, drafted ones included."""
        self._cache, self._end = cache, end
        self._draft: list[int] = []  # the tokens that were read last, behind one that was chosen
        self._accepted = 0  # how many of them were chosen since
        self._logits: Logits  # (1, T, V): after that token, and after each one of the draft

    def step(self, answer: Sequence[int]) -> Logits:
        """The logits (1, V) after an answer that is one token longer than in the step before."""
        if len(answer) < self._pause:
            return self._model.step(np.array([answer[-1:]], dtype=np.int64), self._cache)
        began = time.perf_counter()
        draft, accepted = self._draft, self._accepted
        if accepted < len(draft):
            if draft[accepted] == answer[-1]:
                self._accepted += 1
                self._drafts.accepted += 1
                self._budget.saved()
                return self._logits[:, self._accepted]
            # The cache forgets what was drafted and not chosen.
            self._cache.rewind(self._cache.length - (len(draft) - accepted))
        return self._read(answer, began)

    def _read(self, answer: Sequence[int], began: float) -> Logits:
        """Read the last token of the answer, and a draft behind it."""
        for token in islice(answer, self._known, None):
            self._drafter.push(token)
        self._known = len(answer)
        budget = self._budget
        most = min(self._most, self._end - len(answer), budget.most(len(answer)))
        self._draft = draft = self._drafter.draft(most, chance=MARGIN * budget.cost)
        self._accepted = 0
        ids: Ids = np.array([[answer[-1], *draft]], dtype=np.int64)

        ready = time.perf_counter()
        if not draft:
            logits = self._model.step(ids, self._cache)
            budget.searched(ready - began, step=time.perf_counter() - ready)
            self._pause = budget.pause()
            return logits
        self._logits = self._model.step_all(ids, self._cache)
        budget.drafted(len(draft), step=time.perf_counter() - ready)
        self._drafts.drafted += len(draft)
        return self._logits[:, 0]

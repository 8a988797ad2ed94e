"""Saliency: which tokens made each generated one likely, with the test of that explanation."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from glassformer.answers.answer import Answer, Array, Cell, Column, Progress, Table, Text, answer
from glassformer.explain import saliency as salient
from glassformer.explain.faithfulness import Curves, agreement, faithfulness
from glassformer.figures.color import magnitude, signed
from glassformer.figures.labels import number, percent, quoted
from glassformer.figures.marks import Spec
from glassformer.figures.specs import curves, panels, strip
from glassformer.waiting import report

MOST_STRIPS = 12  # generated tokens that a picture shows
STRONGEST = 5  # sources of a token in the table


@answer
class Saliency(Answer):
    """Which earlier tokens (or words) made each generated token likely; N generated tokens, T sources.

    In a model that reads a source, such as a translator, the sources are the tokens of that.
    """

    kind = "saliency"

    method: str
    targets: list[salient.Target]
    target_words: list[str]
    scores: Array  # (N, T) of tokens, as the method gives them
    gaps: Array | None  # (N,) integrated gradients: how far the scores are from adding up, as a share
    shares: Array  # (N, T or words) sizes that add up to 1, below 0 for what makes the token less likely
    ends: Array  # (T or words,) how many tokens must have been read for a source to be there
    curves: Curves | None  # the test: probabilities while tokens are deleted and inserted
    deletion: Array | None  # (N,) area under each curve, as a share of the full probability: lower is better
    insertion: Array | None  # (N,) the same: higher is better
    random_order: Array | None  # (N,) the baseline of both: tokens deleted or inserted in random orders
    agreement: dict[str, float]  # with the other methods: Spearman's correlation
    source: list[str] | None = None  # the tokens that get the shares, where they are those of another text

    @property
    def given(self) -> list[str]:
        """The tokens that get the shares."""
        return self.tokens if self.source is None else self.source

    def sources(self, target: int) -> list[int]:
        """The tokens (or words) that came before a generated token."""
        there = np.flatnonzero(self.ends <= self.targets[target].position + 1)
        found: list[int] = there.tolist()
        return found

    def make_table(self) -> Table:
        """The strongest sources of every generated token; the test of a token is in the caption, once."""
        columns = [
            Column("position", "count", key=True),
            Column("token", "token", key=True),
            Column("source", "token", key=True),
            Column("share", "signed"),
        ]
        rows: list[list[Cell]] = []
        for n, target in enumerate(self.targets):
            strongest = sorted(self.sources(n), key=lambda at: -float(self.shares[n, at]))[:STRONGEST]
            for at in strongest:
                share = float(self.shares[n, at])
                rows.append([target.position + 1, self.target_words[n], self.given[at], share])
        return Table(columns, rows)

    def every(self) -> Table:
        """All sources of every generated token, in every row the tests of the token."""
        tests = _tests(self.gaps, self.curves)
        columns = [
            Column("position", "count", key=True),
            Column("token", "token", key=True),
            Column("source position", "count", key=True),
            Column("source", "token"),
            Column("share", "signed"),
            *(Column(name, "number") for name in tests),
        ]
        rows: list[list[Cell]] = []
        for n, target in enumerate(self.targets):
            tested = [float(values[n]) for values in tests.values()]
            for at in self.sources(n):
                share = float(self.shares[n, at])
                rows.append([target.position + 1, self.target_words[n], at, self.given[at], share, *tested])
        return Table(columns, rows)

    def draw(self) -> Spec:
        """For every generated token its sources in colors, and how fast it falls when they are taken away."""
        most = float(np.abs(self.shares).max()) or 1.0
        against = bool((self.shares < 0).any())
        name = "share of the saliency"
        scale = signed(f"{name}, against (−) or for (+)", most) if against else magnitude(name, most)

        shown = min(MOST_STRIPS, len(self.targets))
        parts = []
        for n in range(shown):
            parts.append(self._draw_sources(n, scale))
            if self.curves is not None:
                parts.append(self._draw_test(n, self.curves))
        across = 1 if self.curves is None else 2
        title = self.title_of_some("tokens", shown=shown, total=len(self.targets))
        return panels(parts, across=across, scale=scale, unit="percent") | title

    def _draw_sources(self, target: int, scale: Spec) -> Spec:
        sources = self.sources(target)
        return strip(
            [self.given[at] for at in sources],
            self.shares[target, sources],
            scale=scale,
            title=f"sources of {quoted(self.target_words[target])}",
            unit="percent",
            legend=False,
            room=560,
        )

    def _draw_test(self, target: int, tested: Curves) -> Spec:
        shares = {name: values[target] for name, values in tested.relative.items()}
        full = percent(float(tested.deletion[target, 0]))
        areas = {name: number(float(values[target])) for name, values in _tests(None, tested).items()}
        return curves(
            [float(x) for x in tested.fractions],
            shares,
            title="areas: " + ", ".join(f"{name} {area}" for name, area in areas.items()),
            height=72,
            width=320,
            y_title=f"probability of {quoted(self.target_words[target])} ÷ the full one, {full}",
            low=0,
            high=max(float(values.max()) for values in shares.values()),
            x_title="share of the tokens deleted or inserted, most salient first",
        )

    def finding(self) -> str:
        """The strongest source of the first generated token."""
        position, token, source, share = self.rows[0]
        share = percent(float(share or 0))
        return f"the strongest source of {token!r} at position {position} is {source!r}, {share}"


def saliency(
    text: Text,
    *,
    method: str = "grad_x_input",
    foil: str | int | None = None,
    steps: int = 32,
    tested: bool = True,
    by_word: bool = False,
    progress: Progress = report,
) -> Saliency:
    """Which tokens made the generated ones likely, or likelier than a foil, with the test of the explanation.

    `steps` is for integrated gradients. `tested` adds deletion, insertion and agreement with other methods.
    """
    before = text.replayed()
    other = None if foil is None else text.find_token(foil)
    first = text.prompt - 1  # the position after which the first token was generated
    targets = [salient.Target(first + n, token, other) for n, token in enumerate(text.generated)]

    parts = _parts_of(progress, 1 + len(salient.METHODS) if tested else 1)
    how: dict[str, Any] = {"steps": steps, "blank": text.blank, "source": text.source is not None}
    found = salient.saliency(before.reading(), targets, method=method, progress=next(parts), **how)
    tests, agreed = _test(before, found, how=how, parts=parts) if tested else (None, {})
    shares, sources, ends = _shares(before, found, by_word)

    target_words = text.labels[text.prompt :]
    caption = _caption(text, method, other, agreed)
    tested_by = _test_caption(_tests(found.gaps, tests))
    selected = f"the {STRONGEST} strongest of up to {len(sources)} sources of a token"
    return Saliency(
        caption="\n".join(filter(None, (caption, tested_by))),
        table_note=selected if len(sources) > STRONGEST else "",
        tokens=text.labels if found.source else sources if by_word else [*sources, target_words[-1]],
        source=sources if found.source else None,
        method=method,
        target_words=target_words,
        shares=shares,
        ends=ends,
        agreement=agreed,
        **_measured(found, tests),
    )


def class_saliency(
    text: Text,
    target: tuple[str, int],
    *,
    kept: Sequence[int] = (),
    method: str = "grad_x_input",
    tested: bool = True,
    by_word: bool = False,
    progress: Progress = report,
) -> Saliency:
    """Which tokens of a text speak for a class, named and numbered by `target`, with the test of that answer.

    The tokens at the positions `kept` belong to the task and not to its text: they get no share, and the test
    does not take them away.
    """
    name, number = target
    parts = _parts_of(progress, 1 + len(salient.METHODS) if tested else 1)
    how: dict[str, Any] = {"blank": text.blank}
    asked = [salient.Target(len(text.ids) - 1, number)]
    found = salient.saliency(text.reading(), asked, method=method, progress=next(parts), **how)
    found = _without(found, kept)
    tests, agreed = _test(text, found, how=how, parts=parts, kept=kept) if tested else (None, {})
    shares, sources, ends = _shares(text, found, by_word)
    caption = _caption(text, method, None, agreed)
    selected = f"the {STRONGEST} strongest of {len(sources)} sources"
    return Saliency(
        caption="\n".join(filter(None, (caption, _test_caption(_tests(found.gaps, tests))))),
        table_note=selected if len(sources) > STRONGEST else "",
        tokens=sources,
        method=method,
        target_words=[name],
        shares=shares,
        ends=ends,
        agreement=agreed,
        **_measured(found, tests),
    )


def _measured(found: salient.Saliency, tests: Curves | None) -> dict[str, Any]:
    """The fields of an answer that are as they were measured."""
    areas = (None,) * 3 if tests is None else (tests.deletion_area, tests.insertion_area, tests.random_area)
    names = ("deletion", "insertion", "random_order")
    measured = {"targets": found.targets, "scores": found.scores, "gaps": found.gaps, "curves": tests}
    return measured | dict(zip(names, areas, strict=True))


def _without(found: salient.Saliency, kept: Sequence[int]) -> salient.Saliency:
    """The same with scores of 0 at some positions."""
    scores = found.scores.copy()
    scores[:, list(kept)] = 0.0
    return dataclasses.replace(found, scores=scores)


def _shares(text: Text, found: salient.Saliency, by_word: bool) -> tuple[Array, list[str], Array]:
    """Signed shares of tokens or words, their texts, and where each is complete enough to be read."""
    shares = np.sign(found.scores) * found.shares  # (N, T)
    given = text.source_text() if found.source else text
    groups, words = (
        given.words() if by_word else ([range(n, n + 1) for n in range(len(given.ids))], given.labels)
    )
    joined = np.stack([shares[:, list(group)].sum(1) for group in groups], 1)
    # The source is read before the first token is written.
    return joined, words, np.array([0 if found.source else group.start + 1 for group in groups])


def _test(
    text: Text,
    found: salient.Saliency,
    *,
    how: dict[str, Any],
    parts: Iterator[Progress],
    kept: Sequence[int] = (),
) -> tuple[Curves, dict[str, float]]:
    """Deletion and insertion, and how far the other methods agree."""
    reading = text.reading()
    tests = faithfulness(reading, found, blank=text.blank, kept=kept, progress=next(parts))

    every = {found.method: found}
    for name in salient.methods_of(reading, source=found.source):
        if name != found.method:
            other = salient.saliency(reading, found.targets, method=name, progress=next(parts), **how)
            every[name] = _without(other, kept)
    agreed = {other: value for (one, other), value in agreement(every).items() if one == found.method}
    return tests, agreed


def _caption(text: Text, method: str, foil: int | None, agreed: dict[str, float]) -> str:
    caption = f"{text.name}: {method}"
    if foil is not None:
        (name,) = text.labels_of([foil])
        caption += f", contrasted with {quoted(name)}"
    if agreed:
        values = ", ".join(f"{name} {value:.2f}".replace("-", "−") for name, value in agreed.items())
        caption += f"; rank correlation with {values}"
    return caption


def _tests(gaps: Array | None, tested: Curves | None) -> dict[str, Array]:
    """The tests that were made, by name: one number for every generated token."""
    found = {} if gaps is None else {"completeness gap": gaps}
    if tested is None:
        return found
    areas = (tested.deletion_area, tested.insertion_area, tested.random_area)
    return found | dict(zip(("deletion", "insertion", "random order"), areas, strict=True))


def _test_caption(tests: dict[str, Array]) -> str:
    """The tests of one generated token, or their means over several."""
    if not tests:
        return ""
    count = len(next(iter(tests.values())))
    values = ", ".join(f"{name} {number(float(each.mean()))}" for name, each in tests.items())
    return values if count == 1 else f"{values} (means of {count} tokens)"


def _parts_of(progress: Progress, count: int) -> Iterator[Progress]:
    """One progress for work of several parts."""
    for n in range(count):

        def part(done: int, total: int, *, n: int = n) -> None:
            progress(round(100 * (n + done / max(1, total))), 100 * count)

        yield part

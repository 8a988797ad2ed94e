"""The logit lens: what every layer would predict, and which parts of the model raise a logit."""

import math
import re
from collections.abc import Sequence

import numpy as np

from glassformer.answers.answer import (
    Answer,
    Array,
    Cell,
    Column,
    Drawing,
    Table,
    Text,
    answer,
    label,
    several,
)
from glassformer.errors import InputError, counted
from glassformer.explain import lens as lensing
from glassformer.figures.color import magnitude, signed
from glassformer.figures.labels import number, percent, quoted
from glassformer.figures.marks import Spec
from glassformer.figures.specs import bars, curves, matrix, names

MOST_BARS = 24
STAGES = "N.mid after attention, N.out after the feed-forward layer of block N"


# lens: what every layer would predict


@answer
class Lens(Answer, lensing.Lens):
    """What each stage of the residual stream would predict at each position; S stages, T positions."""

    kind = "lens"

    likeliest: list[list[str]]  # (S, T) the text of the likeliest token
    watched_words: list[str]

    def make_table(self) -> Table:
        """A row for every stage and position."""
        columns = [
            Column("stage", key=True),
            Column("position", "count", key=True),
            Column("likeliest", "token"),
            Column("probability", "share"),
            Column("rank of next", "rank"),
            Column("logprob of next (nats)", "number"),
            Column("entropy (nats)", "number"),
            Column("KL divergence (nats)", "number"),
        ]
        columns += [Column(f"rank of {word!r}", "rank") for word in self.watched_words]

        rows: list[list[Cell]] = []
        for stage, at in np.ndindex(self.ranks.shape):
            chance = float(np.exp(self.top_logprobs[stage, at, 0]))
            row: list[Cell] = [self.stages[stage], at, self.likeliest[stage][at], chance]
            row += self._of_next(stage, at)
            row += [float(self.entropy[stage, at]), float(self.divergence[stage, at])]
            rows.append(row + self.watched_ranks[stage, at].tolist())
        return Table(columns, rows)

    def _of_next(self, stage: int, at: int) -> list[Cell]:
        """Rank and log-probability of the token that came next; nothing came after the last one."""
        if at == len(self.tokens) - 1:
            return [None, None]
        return [int(self.ranks[stage, at]), float(self.logprobs[stage, at])]

    @property
    def views(self) -> dict[str, Drawing]:
        """The likeliest tokens, colored by one of three numbers; or the ranks of the next tokens."""
        return {
            "probability": self.draw_probability,
            "rank": self.draw_rank,
            "entropy": self.draw_entropy,
            "divergence": self.draw_divergence,
        }

    def draw_probability(self) -> Spec:
        """Colored by the probability of the likeliest token."""
        scale = magnitude("probability of the likeliest token")
        values = np.exp(self.top_logprobs[..., 0])
        return self._draw(values, scale, "the likeliest token and its probability") | {"unit": "percent"}

    def draw_rank(self) -> Spec:
        """The rank of the token that came next; nothing came after the last one."""
        title = self._title("rank of the token that came next")
        ranks = self.ranks.astype(float)
        ranks[:, -1] = np.nan
        return _draw_ranks(self.stages, self.tokens, ranks=ranks) | {"title": title, "void": "–"}

    def draw_entropy(self) -> Spec:
        """Colored by entropy."""
        scale = magnitude("entropy (nats)", float(self.entropy.max()))
        return self._draw(self.entropy, scale, "the likeliest token, colored by entropy")

    def draw_divergence(self) -> Spec:
        """Colored by the KL divergence from the last stage."""
        what = "KL divergence from the last stage"
        scale = magnitude(f"{what} (nats)", float(self.divergence.max()))
        return self._draw(self.divergence, scale, f"the likeliest token, colored by {what}")

    def _title(self, what: str) -> str:
        """Which of the drawings it is."""
        return f"{self.caption}: {what}"

    def _draw(self, values: Array, scale: Spec, what: str) -> Spec:
        """The last stage on top."""
        return matrix(
            stage_names(self.stages[::-1]),
            names(self.tokens),
            values=values[::-1],
            scale=scale,
            texts=[names(row) for row in self.likeliest[::-1]],
            unit="",
            title=self._title(what),
            y_title=STAGES,
            x_title="the token read last",
        )

    def finding(self) -> str:
        """What the last stage predicts at the last position, and since which stage."""
        position = self.rows[-1][1]
        last = [row for row in self.rows if row[1] == position]
        *_, (_, _, predicted, chance, *_) = last
        since = next(row[0] for n, row in enumerate(last) if all(other[2] == predicted for other in last[n:]))
        unchanged = f", unchanged since {since}" if len(last) > 1 else ""
        token = self.tokens[int(position or 0)]
        return f"after {token!r} it predicts {predicted!r} ({percent(float(chance or 0))}){unchanged}"


class LiveLens:
    """The lens of a text while it is written: at each new token, what every stage would have said."""

    def __init__(self, text: Text, *, capacity: int, k: int) -> None:
        """`capacity` is how many tokens the text may come to have."""
        self._stepped = lensing.SteppedLens(text.reading().net, capacity=capacity, k=k)

    def step(self, text: Text, then: int) -> lensing.Lens:
        """At the end of the text so far, behind which the token `then` came."""
        return self._stepped.step(text.reading(), then)


def lens(text: Text, *, k: int = 5, watch: str | int | Sequence[str | int] = ()) -> Lens:
    """What each stage of the residual stream would predict at each position."""
    watched = [text.find_token(word) for word in several(watch)]
    found = lensing.lens(text.reading(), k=k, watch=watched)
    likeliest = []
    for row in found.top[..., 0].tolist():
        likeliest.append(
            [label(text.lm.tokenizer, id, after=at) for id, at in zip(row, text.ids, strict=True)]
        )
    return Lens(
        caption=f"{text.name}: logit lens",
        tokens=text.labels,
        likeliest=likeliest,
        watched_words=text.labels_of(watched),
        **vars(found),
    )


def _draw_ranks(stages: list[str], tokens: list[str], *, ranks: Array) -> Spec:
    """Ranks (S, T) in colors, the last stage on top; 1 is the darkest, and every power of ten a step.

    Where there is no token to rank, the rank is nan.
    """
    powers = range(math.ceil(math.log10(np.nan_to_num(ranks).max(initial=1))) + 1)
    steps = [[1 / (1 + power), f"{10**power:,}"] for power in powers]
    return matrix(
        stage_names(stages[::-1]),
        names(tokens),
        values=1 / (1 + np.log10(ranks[::-1])),
        scale=magnitude("rank") | {"steps": steps},
        texts=[["" if rank != rank else f"{rank:,.0f}" for rank in row] for row in ranks[::-1].tolist()],
        numeric=True,
        y_title=STAGES,
        x_title="the token read last",
    )


def stage_names(stages: Sequence[str]) -> list[str]:
    """Stages as they appear in pictures: `0.mid`."""
    return [stage.removeprefix("blocks.") for stage in without_stack(stages)]


def without_stack(sites: Sequence[str]) -> list[str]:
    """Sites without the prefix of their stack, if all are of one stack: `blocks.0.mid`."""
    matches = (re.match(r"(?:\w+\.)?(?=blocks\.|embed$)", site) for site in sites)
    stacks = {match[0] for match in matches if match is not None}
    prefix = stacks.pop() if len(stacks) == 1 else ""
    return [site.removeprefix(prefix) for site in sites]


# rankings: at which rank every layer had the tokens that were generated


@answer
class Rankings(Answer):
    """At which rank every stage had each generated token: 1 is the likeliest; (S, N)."""

    kind = "rankings"

    stages: list[str]
    ranks: Array
    logprobs: Array
    first: int  # the position of the first generated token

    def make_table(self) -> Table:
        """A row for every stage, a column for every token."""
        columns = [Column("stage", key=True)]
        columns += [Column(f"{self.first + n} {name!r}", "rank") for n, name in enumerate(self.tokens)]
        rows: list[list[Cell]] = [[stage, *self.ranks[n].tolist()] for n, stage in enumerate(self.stages)]
        return Table(columns, rows)

    def draw(self) -> Spec:
        """Ranks in colors, the last stage on top."""
        return _draw_ranks(self.stages, self.tokens, ranks=self.ranks) | {"x_title": "the token generated"}

    def finding(self) -> str:
        """The ranks in the last layer."""
        return _last_ranks(self)


def _last_ranks(found: Answer) -> str:
    ranks = zip(found.columns[1:], found.rows[-1][1:], strict=True)
    return "ranks in the last layer: " + ", ".join(f"{name} {rank:,}" for name, rank in ranks)


def rankings(text: Text) -> Rankings:
    """At which rank every layer had each generated token: 1 is the likeliest."""
    before = text.replayed()
    found = lensing.lens(before.reading(), k=1, then=text.ids[-1])
    after = slice(text.prompt - 1, None)  # the first token was predicted at the last position of the prompt
    return Rankings(
        caption=f"{text.name}: ranks of the generated tokens",
        tokens=text.labels[text.prompt :],
        stages=found.stages,
        ranks=found.ranks[:, after],
        logprobs=found.logprobs[:, after],
        first=text.prompt,
    )


@answer
class WatchedRankings(Answer):
    """At which rank every stage had some words after a position: (S, W)."""

    kind = "rankings_watch"

    stages: list[str]
    watched: list[int]
    words: list[str]
    ranks: Array
    logprobs: Array
    position: int

    def make_table(self) -> Table:
        """A row for every stage, a column for every word."""
        columns = [Column("stage", key=True), *(Column(repr(word), "rank") for word in self.words)]
        rows: list[list[Cell]] = [[stage, *self.ranks[n].tolist()] for n, stage in enumerate(self.stages)]
        return Table(columns, rows)

    def draw(self) -> Spec:
        """Ranks over the layers, 1 on top."""
        series = dict(zip(names(self.words), self.ranks.T, strict=True))
        return curves(
            stage_names(self.stages), series, log=True, down=True, y_title="rank", low=1, x_title=STAGES
        )

    def finding(self) -> str:
        """The ranks in the last layer."""
        return _last_ranks(self)


def rankings_watch(
    text: Text, *, watch: str | int | Sequence[str | int], position: str | int = -1
) -> WatchedRankings:
    """Some words against each other after a position: at which rank every layer had each of them."""
    reading = text.reading()
    at = text.position(position)
    tokens = [text.find_token(word) for word in several(watch)]
    if not tokens:
        raise InputError("name at least one token to watch, as in ' is'")
    found = lensing.lens(reading, k=1, watch=tokens)
    return WatchedRankings(
        caption=f"{text.name}: ranks after {quoted(text.labels[at])}, position {at}",
        tokens=text.labels,
        stages=found.stages,
        watched=tokens,
        words=text.labels_of(tokens, after=text.ids[at]),
        ranks=found.watched_ranks[:, at],
        logprobs=found.watched_logprobs[:, at],
        position=at,
    )


# attribution: which parts raise a logit


@answer
class Attribution(Answer, lensing.Attribution):
    """What each part of the model adds to the logit of a token, or to its lead over another."""

    kind = "attribution"

    def make_table(self) -> Table:
        """The components, the largest first."""
        order = np.argsort(-np.abs(self.values), kind="stable")
        columns = [Column("component", key=True), Column("contribution", "signed")]
        return Table(columns, [[self.parts[at], float(self.values[at])] for at in order])

    def draw(self) -> Spec:
        """Bars for and against the token; those of the smallest components are one bar."""
        rows = self.rows[:MOST_BARS]
        labels = without_stack([str(row[0]) for row in rows])
        values = [float(row[1] or 0) for row in rows]
        rest = self.rows[MOST_BARS:]
        if rest:
            labels.append(f"{counted(len(rest), 'other')} together")
            values.append(sum(float(row[1] or 0) for row in rest))
        return bars(labels, values)


def attribution(
    text: Text, *, position: str | int = -1, token: str | int | None = None, foil: str | int | None = None
) -> Attribution:
    """Which parts raise the logit of a token (by default the likeliest), or its lead over a foil."""
    reading = text.reading()
    at = text.position(position)
    chosen = lensing.likeliest(reading, position=at) if token is None else text.find_token(token)
    other = None if foil is None else text.find_token(foil)
    found = lensing.attribution(reading, position=at, token=chosen, foil=other)

    compared = text.labels_of([chosen] if other is None else [chosen, other], after=text.ids[at])
    names_of = " − ".join(quoted(name) for name in compared)
    what = "logit" if other is None else "logit difference"
    caption = f"{text.name}: logit attribution of {names_of}, {what} {number(found.logit)}"
    return Attribution(caption=caption, tokens=text.labels, **vars(found))


# residual: one position's vector through the layers


@answer
class Residual(Answer, lensing.Residual):
    """One position's residual stream, stage by stage: its norm, what was added, what it would predict."""

    kind = "residual"

    position: int
    stages: list[str]
    likeliest: list[str]
    probability: Array  # (S,) of the likeliest

    def make_table(self) -> Table:
        """A row for every stage."""
        columns = [
            Column("stage", key=True),
            Column("norm", "number"),
            Column("added norm", "number"),
            Column("cosine with the stage before", "number"),
            Column("likeliest", "token"),
            Column("probability", "share"),
        ]
        rows: list[list[Cell]] = []
        for n, stage in enumerate(self.stages):
            cosine = None if n == 0 else float(self.cosine[n])  # no stage is before the embedding
            sizes = [float(self.norm[n]), float(self.added[n])]
            rows.append([stage, *sizes, cosine, self.likeliest[n], float(self.probability[n])])
        return Table(columns, rows)

    def draw(self) -> Spec:
        """The last stage on top."""
        words = names(self.likeliest)
        values = []
        texts = []
        for n in reversed(range(len(self.stages))):
            norm, added, cosine = float(self.norm[n]), float(self.added[n]), float(self.cosine[n])
            chance = float(self.probability[n])
            # The word and its probability have a cell each: in a narrow picture one cell would lose its end.
            values.append([norm, added, cosine, chance, chance])
            turned = number(cosine) if n else ""  # no stage is before the embedding
            texts.append([number(norm), number(added), turned, words[n], percent(chance)])

        longest = max(float(self.norm.max()), float(self.added.max()), 1e-9)
        share = magnitude("")
        return matrix(
            stage_names(self.stages[::-1]),
            ["norm", "added", "cosine", "predicts", "prob."],
            values=values,
            scale=share,
            scales=[magnitude("", longest), magnitude("", longest), signed("", 1.0), share, share],
            y_title=STAGES,
            x_title="cosine with the stage before; norm and added share one color scale, the others run to 1",
            void="–",
            texts=texts,
            numeric=True,
            legend=False,
            cell=[92.0, 18.0],
        )

    def finding(self) -> str:
        """The last stage."""
        return self.last_row()


def residual(text: Text, *, position: str | int = -1) -> Residual:
    """A position's vector through the layers: its norm, what is added, what it would predict."""
    reading = text.reading()
    at = text.position(position)
    predicted = lensing.lens(reading, k=1)
    found = lensing.residual(reading, position=at)
    return Residual(
        caption=f"{text.name}: residual stream at {quoted(text.labels[at])}, position {at}",
        tokens=text.labels,
        position=at,
        stages=predicted.stages,
        likeliest=text.labels_of(predicted.top[:, at, 0].tolist(), after=text.ids[at]),
        probability=np.exp(predicted.top_logprobs[:, at, 0]),
        **vars(found),
    )

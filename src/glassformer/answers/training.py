"""Training: how its loss went, the rows that a sentence becomes, and one update with its numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glassformer.answers.answer import Answer, Array, Cell, Column, Table, Text, answer, labels, vocabulary_of
from glassformer.data.sequences import Room, Written, write, write_summary
from glassformer.errors import InputError, counted
from glassformer.figures.labels import number, percent, quoted
from glassformer.figures.marks import Spec
from glassformer.figures.specs import bars, curves, names, panels
from glassformer.files import read_json_lines
from glassformer.generation.sampling import log_softmax

if TYPE_CHECKING:
    from glassformer.tokenizers import Tokenizer

POINTS = 400  # of a curve: each is the mean of its stretch
CURVE_ROWS = 20  # of its table
TALLEST = 2.5  # nats above the lowest loss that a picture shows
WINDOW = 8  # tokens that a row of training data shows at most
MOST_BOXES = 400  # tokens that a picture of rows shows


# curve: how a training went


@answer
class Curve(Answer):
    """The loss of a training over its tokens; nan where one of the two was not measured."""

    kind = "curve"

    tokens_read: list[int]  # since the first step
    training: Array
    held_out: Array

    def make_table(self) -> Table:
        """Some points, evenly chosen, with the first, the best and the last."""
        every = self.every()
        return Table(every.columns, [every.rows[at] for at in self._chosen()])

    def every(self) -> Table:
        """A row for every point."""
        columns = [
            Column("tokens", "count", key=True),
            Column("training (nats)", "number"),
            Column("held out (nats)", "number"),
        ]
        losses = np.stack([self.training, self.held_out], 1).tolist()
        rows: list[list[Cell]] = []
        for tokens, pair in zip(self.tokens_read, losses, strict=True):
            rows.append([tokens, *(None if loss != loss else loss for loss in pair)])
        return Table(columns, rows)

    def _chosen(self) -> list[int]:
        """The points in the table."""
        count = len(self.tokens_read)
        if count <= CURVE_ROWS:
            return list(range(count))
        even = np.linspace(0, count - 1, CURVE_ROWS - 1).round().astype(int).tolist()
        return sorted({*even, self._best()})

    def _best(self) -> int:
        """The point with the lowest loss: on held-out text, where that was measured."""
        measured = self.held_out if np.isfinite(self.held_out).any() else self.training
        return int(np.argmin(np.where(np.isfinite(measured), measured, np.inf)))

    def draw(self) -> Spec:
        """Loss over tokens; what lies far above the rest is left out."""
        series = {"training": self.training, "held out": self.held_out}
        both = np.concatenate(list(series.values()))
        limit = float(np.min(both[np.isfinite(both)], initial=np.inf)) + TALLEST
        title = self.caption
        if (both > limit).any():
            series = {name: np.where(losses > limit, np.nan, losses) for name, losses in series.items()}
            title += f"; values above {number(limit)} are not shown"
        return curves(
            self.tokens_read,
            series,
            x_title="tokens",
            y_title="loss (nats per token)",
            height=260,
            title=title,
        )

    def finding(self) -> str:
        """The last point."""
        return self.last_row()


def curve(files: Sequence[Path]) -> Curve:
    """The loss of a training over its tokens; several metrics logs are parts of one training, in order."""
    steps: list[tuple[float, float]] = []
    held_out: list[tuple[float, float]] = []
    before = 0.0
    for file in files:
        tokens = before
        for line in _read_log(file):
            if _has_numbers(line, "tokens", "loss"):
                tokens = before + float(line["tokens"])
                steps.append((tokens, float(line["loss"])))
            elif _has_numbers(line, "held_out"):
                held_out.append((tokens, float(line["held_out"])))
        before = tokens
    if not steps:
        raise InputError(f"{files[0]}: is not the metrics.jsonl of a training, or has no step yet")

    means = dict(_thinned(steps))
    measured = dict(held_out)
    places = sorted({*means, *measured})
    last = files[-1]
    name = last.parent.name if last.name == "metrics.jsonl" else ", ".join(file.stem for file in files)
    return Curve(
        caption=f"{name}: loss in nats per token",
        tokens=[],
        table_note=_selection(len(places)),
        tokens_read=[round(x) for x in places],
        training=np.array([means.get(x, np.nan) for x in places]),
        held_out=np.array([measured.get(x, np.nan) for x in places]),
    )


def _selection(points: int) -> str:
    """Which points the table has, if it does not have all."""
    if points <= CURVE_ROWS:
        return ""
    return f"at most {CURVE_ROWS} of {points:,} points, evenly chosen, with the first, the best and the last"


def _read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics log, up to one that is still being written."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    return read_json_lines(path)


def _has_numbers(line: dict[str, Any], *keys: str) -> bool:
    """Whether a line has these figures; a loss that is not finite is one, too."""
    values = [line.get(key) for key in keys]
    return all(type(value) is float or (type(value) is int and abs(value) < 1 << 62) for value in values)


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """About `POINTS` points, each the mean of its stretch."""
    size = max(1, len(points) // POINTS)
    found = []
    for start in range(0, len(points), size):
        x, loss = np.mean(points[start : start + size], axis=0)
        found.append((float(x), float(loss)))
    return found


# training_rows: features and labels


@dataclass(frozen=True)
class TrainingRow:
    """One training example: the tokens that are given, and the token that must be predicted."""

    features: list[int]
    label: int


@answer
class TrainingRows(Answer):
    """The rows of features and label that a window makes of a text as it slides over it."""

    kind = "training_rows"

    window: int  # features of a row, at most
    training_rows: list[TrainingRow]

    def make_table(self) -> Table:
        """Every row: its features, its label."""
        columns = [
            Column("row", "count", key=True),
            Column("features", "token"),
            Column("label", "token"),
        ]
        rows: list[list[Cell]] = []
        for n in range(len(self.training_rows)):
            features, label = self._words(n)
            rows.append([n + 1, "".join(features), label])
        return Table(columns, rows)

    def _words(self, number: int) -> tuple[list[str], str]:
        """The texts of a row; its label is the token after `number`."""
        end = number + 1
        start = end - len(self.training_rows[number].features)
        return self.tokens[start:end], self.tokens[end]

    def draw(self) -> Spec:
        """A line of tokens for every row, with its label marked at the end."""
        rows: list[Spec] = []
        room = MOST_BOXES
        for n, row in enumerate(self.training_rows):
            room -= len(row.features) + 1
            if room < 0:
                rest = counted(len(self.training_rows) - n, "more row")
                rows.append({"note": "…", "pieces": [rest], "made": None})
                break
            features, label = self._words(n)
            rows.append({"note": f"row {n + 1}", "pieces": names([*features, label]), "made": len(features)})
        return {"kind": "boxes", "rows": rows}

    def finding(self) -> str:
        """How many rows there are, and the first of them."""
        features, label = self._words(0)
        count = counted(len(self.training_rows), "row")
        return f"{count}; the first asks for {label!r} after {''.join(features)!r}"


def training_rows(
    tokenizer: "Tokenizer", text: str, *, window: int = WINDOW, model: str = ""
) -> TrainingRows:
    """A text as rows of features and label: every token is the label of those before it, `window` at most.

    `model` is the name of the model whose tokenizer it is.
    """
    if type(window) is not int or window < 1:
        raise InputError(f"window must be a whole number of at least 1, not {window!r}")
    ids = tokenizer.encode(text)
    if len(ids) < 2:
        raise InputError("training rows need a text of at least two tokens: features, and a label after them")
    found = [TrainingRow(ids[max(0, end - window) : end], ids[end]) for end in range(1, len(ids))]
    return TrainingRows(
        caption=f"{vocabulary_of(tokenizer, model)}: training rows of {text[:60]!r}; the label is last",
        tokens=labels(tokenizer, ids),
        window=window,
        training_rows=found,
    )


# pair_rows: other work than to continue a text


@answer
class PairRows(Answer):
    """Pairs as one sequence each: the source and its tag are given, the target and its end are learned."""

    kind = "pair_rows"

    sequences: list[Written]

    def make_table(self) -> Table:
        """Every token that is read, the label that must follow it, and whether that is learned."""
        columns = [
            Column("row", "count", key=True),
            Column("position", "count", key=True),
            Column("token", "token"),
            Column("label", "token"),
            Column("learned", "bool"),
        ]
        rows: list[list[Cell]] = []
        for n, sequence in enumerate(self.sequences, 1):
            words = self._words(n - 1)
            for at in range(len(words) - 1):
                rows.append([n, at, words[at], words[at + 1], at + 1 >= sequence.given])
        return Table(columns, rows)

    def _words(self, number: int) -> list[str]:
        """The texts of the tokens of a row."""
        start = sum(len(one.ids) for one in self.sequences[:number])
        return self.tokens[start : start + len(self.sequences[number].ids)]

    def draw(self) -> Spec:
        """A line of tokens for every pair; those that are learned are filled."""
        rows = [
            {"note": f"row {n + 1}", "pieces": names(self._words(n)), "learned": sequence.given}
            for n, sequence in enumerate(self.sequences)
        ]
        return {"kind": "boxes", "rows": rows}

    def finding(self) -> str:
        """How much of the first row is learned."""
        first = self.sequences[0]
        learned = len(first.ids) - first.given
        return (
            f"{counted(len(self.sequences), 'row')}; of the first, {counted(first.given, 'token')} are given"
            f" and {learned} behind {self._words(0)[first.given - 1]!r} are learned"
        )


def pair_rows(
    tokenizer: "Tokenizer",
    pairs: Sequence[tuple[str, str]],
    *,
    tag: int,
    model: str = "",
    room: Room | None = None,
) -> PairRows:
    """Pairs of source and target as the sequences that a decoder learns from; `tag` is between them.

    With a `room`, they are texts with their summaries, cut as a training cuts them.
    """
    if not pairs or not all(half.strip() for pair in pairs for half in pair):
        raise InputError("training rows of pairs need a source and a target each, and neither may be empty")
    found, cuts = [], []
    for row, (source, target) in enumerate(pairs, 1):
        both = tokenizer.encode(source), tokenizer.encode(target)
        if room is None:
            found.append(write(*both, tag=tag, end=tokenizer.end))
            continue
        whole = write_summary(*both, tag=tag, end=tokenizer.end, **room._asdict())
        found.append(whole.row)
        cuts += [
            f"; cut off row {row}: the last {counted(count, 'token')} of its {half}"
            for half, count in (("source", whole.cut_source), ("target", whole.cut_target))
            if count
        ]
    (name,) = labels(tokenizer, [tag])
    rows = f"{vocabulary_of(tokenizer, model)}: training rows of pairs; what follows {name} is learned"
    return PairRows(
        caption=rows + "".join(cuts),
        tokens=[token for one in found for token in labels(tokenizer, one.ids)],
        sequences=found,
    )


# update: one training step


@answer
class Update(Answer):
    """One training step on one row: predict, compare with the label, update the weights, predict again."""

    kind = "update"

    label: int
    learning_rate: float
    loss: float
    loss_after: float
    gradient_norm: float
    step_norm: float  # how far the weights moved
    ids: list[int]  # the likeliest tokens before and after, and the label
    words: list[str]
    logits: Array  # of these tokens, before the update
    logits_after: Array
    probability: Array
    probability_after: Array

    @property
    def target(self) -> Array:
        """What the prediction should have been: 1 for the label, 0 for the others."""
        return np.array([float(id == self.label) for id in self.ids])

    @property
    def error(self) -> Array:
        """Probability less target: the gradient of the loss at each logit."""
        error: Array = self.probability - self.target
        return error

    def make_table(self) -> Table:
        """Prediction, error and update of the likeliest tokens and the label."""
        columns = [
            Column("token", "token", key=True),
            Column("logit", "number"),
            Column("probability", "share"),
            Column("target", "count"),
            Column("error", "signed"),
            Column("logit after", "number"),
            Column("probability after", "share"),
        ]
        rows: list[list[Cell]] = []
        for n, word in enumerate(self.words):
            before = [float(self.logits[n]), float(self.probability[n])]
            error = [int(self.target[n]), float(self.error[n])]
            after = [float(self.logits_after[n]), float(self.probability_after[n])]
            rows.append([word, *before, *error, *after])
        return Table(columns, rows)

    def draw(self) -> Spec:
        """Three panels: predict, error, and the prediction after the update."""
        words = names(self.words)
        error = (
            f"2 probability − target: loss {number(self.loss)}, gradient norm {number(self.gradient_norm)}"
        )
        after = f"3 after the update: loss {number(self.loss_after)}"
        every = np.stack([self.probability, self.error, self.probability_after])
        scale: Spec = {"low": float(every.min(initial=0)), "high": float(every.max()), "unit": "percent"}
        return panels(
            [
                bars(words, self.probability, title="1 predict (one scale for all three)", **scale),
                bars(words, self.error, title=error, **scale),
                bars(words, self.probability_after, title=after, **scale),
            ]
        )

    def finding(self) -> str:
        """What the update does to the label."""
        at = self.ids.index(self.label)
        one, other = percent(float(self.probability[at])), percent(float(self.probability_after[at]))
        losses = f"the loss from {number(self.loss)} to {number(self.loss_after)}"
        return f"the label {self.words[at]!r} goes from {one} to {other}, {losses}"


def update(text: Text, *, lr: float = 0.001, k: int = 5) -> Update:
    """One real training step on a text whose last token is the label; the model itself is not changed."""
    from glassformer.explain.update import update as updated

    if type(k) is not int or k < 1:
        raise InputError(f"k must be a whole number of at least 1, not {k!r}")
    found = updated(text.reading(), lr=lr)
    if not np.isfinite(found.after).all():
        raise InputError(f"lr {lr:g} is too large: after the update the logits are not finite")
    before, after = np.exp(log_softmax(found.before)), np.exp(log_softmax(found.after))

    known = len(before) if text.lm.tokenizer is None else len(text.lm.tokenizer)
    likeliest = [np.argsort(-chances[:known], kind="stable")[:k].tolist() for chances in (before, after)]
    ids: list[int] = list(dict.fromkeys([*likeliest[0], *likeliest[1], found.label]))
    ids.sort(key=lambda id: -before[id])

    label = text.labels[-1]
    given = text.whole.removesuffix(label)
    given = repr(given) if len(given) <= 40 else f"…{given[-40:]!r}"
    how = (
        f"loss {found.loss:.3f} → {found.loss_after:.3f}, gradient norm {found.gradient_norm:.3f}, lr {lr:g}"
    )
    return Update(
        caption=f"{text.name}: one update toward {quoted(label)} after {given}: {how}",
        tokens=text.labels,
        label=found.label,
        learning_rate=lr,
        loss=found.loss,
        loss_after=found.loss_after,
        gradient_norm=found.gradient_norm,
        step_norm=found.step_norm,
        ids=ids,
        words=text.labels_of(ids, after=text.ids[-2]),
        logits=found.before[ids],
        logits_after=found.after[ids],
        probability=before[ids],
        probability_after=after[ids],
    )

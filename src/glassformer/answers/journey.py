"""Journey: how one word of a translation came about, up through the encoder and then through the decoder."""

from dataclasses import dataclass

import numpy as np

from glassformer.answers.answer import Answer, Array, Cell, Column, Table, Text, answer
from glassformer.answers.lens import stage_names
from glassformer.errors import InputError
from glassformer.explain import attention as attending
from glassformer.explain import lens as lensing
from glassformer.explain.alignment import alignments
from glassformer.explain.stream import stages
from glassformer.figures.color import magnitude
from glassformer.figures.labels import number, percent, quoted
from glassformer.figures.marks import Spec
from glassformer.figures.specs import matrix, names, panels


@answer
class Journey(Answer):
    """The vector of a source token in the encoder, then that of the step that wrote a token; Z stages.

    Of all source tokens it is the one that the step attends to most.
    """

    kind = "journey"

    number: int  # which written token
    word: str
    stacks: list[str]  # (Z,) encoder or decoder
    stages: list[str]  # (Z,) sites
    norm: Array  # (Z,) of the vector
    added: Array  # (Z,) norm of what this stage changed
    attends: list[str]  # (Z,) the token that attention took most from; "" at other stages
    weight: Array  # (Z,) how much, mean of all heads; nan at other stages
    likeliest: list[str]  # (Z,) what the decoder would write at this stage; "" in the encoder
    probability: Array  # (Z,) nan in the encoder

    def make_table(self) -> Table:
        """A row for every stage."""
        columns = [
            Column("stage", key=True),
            Column("norm", "number"),
            Column("change", "number"),
            Column("attends most to", "token"),
            Column("weight", "share"),
            Column("would write", "token"),
            Column("probability", "share"),
        ]
        rows: list[list[Cell]] = []
        for n, stage in enumerate(self.stages):
            row: list[Cell] = [stage, float(self.norm[n]), float(self.added[n])]
            row += [self.attends[n], float(self.weight[n]), self.likeliest[n], float(self.probability[n])]
            rows.append(row)
        return Table(columns, rows)

    def draw(self) -> Spec:
        """The encoder, and above it the decoder, each with its last stage on top."""
        return panels([self._draw(stack) for stack in dict.fromkeys(reversed(self.stacks))])

    def _draw(self, stack: str) -> Spec:
        """One stack: how long the vector is, what it took, and what it would write."""
        every = [n for n, name in enumerate(self.stacks) if name == stack][::-1]
        longest = max(float(self.norm.max()), float(self.added.max()), 1e-9)
        share, long = magnitude(""), magnitude("", longest)
        values, texts = [], []
        for n in every:
            norm, added = float(self.norm[n]), float(self.added[n])
            weight, chance = float(self.weight[n]), float(self.probability[n])
            took, writes = names([self.attends[n], self.likeliest[n]])
            values.append([norm, added, weight, weight, chance, chance])
            texts.append([number(norm), number(added), took, _share(weight), writes, _share(chance)])
        columns, scales = ["norm", "change", "attends to", "", "would write", ""], [long, long, *[share] * 4]
        count = 6 if stack == self.stacks[-1] else 4
        return matrix(
            stage_names([self.stages[n] for n in every]),
            columns[:count],
            values=np.nan_to_num(np.array(values))[:, :count],
            scale=share,
            scales=scales[:count],
            texts=[row[:count] for row in texts],
            numeric=True,
            legend=False,
            title=stack,
            cell=[92.0, 18.0],
            label_columns=9,
        )

    def finding(self) -> str:
        """Since which stage the decoder would write the word."""
        wrote = [n for n, name in enumerate(self.stacks) if name == self.stacks[-1]]
        last = self.likeliest[wrote[-1]]
        since = next(n for n in wrote if all(self.likeliest[m] == last for m in wrote if m >= n))
        chance = percent(float(self.probability[wrote[-1]]))
        return f"the decoder would write {last!r} from {self.stages[since]} on, in the end with {chance}"


def _share(value: float) -> str:
    return "" if value != value else percent(value)


def journey(text: Text, *, number: int = 0, then: int | None = None) -> Journey:
    """The way of the source token that a step attends to most, and of the step that wrote the token `number`.

    `then` is the token that was written last and never read.
    """
    written = [*text.generated] if then is None else [*text.generated, then]
    if not 0 <= number < len(written):
        raise InputError(f"number {number} is out of range (0 to {len(written) - 1})")
    reading = text.reading()
    position = text.prompt - 1 + number
    source = int(alignments(reading).mean((0, 1))[position].argmax())
    ways = [_way(text, one.name, source if one.source else position) for one in reading.net.stacks]
    predicted = lensing.lens(reading, k=1)
    before = sum(len(way.stages) for way in ways[:-1])  # stages that the output does not read
    words = text.labels_of(predicted.top[:, position, 0].tolist(), after=text.ids[position])
    chances = np.exp(predicted.top_logprobs[:, position, 0])
    start, word = text.source_text().labels[source], Text(text.lm, written).labels[number]
    return Journey(
        caption=f"{text.name}: from {quoted(start)} to {quoted(word)}, token {number} of {len(written)}",
        tokens=text.labels,
        number=number,
        word=word,
        stacks=[way.stack for way in ways for _ in way.stages],
        stages=[stage for way in ways for stage in way.stages],
        norm=np.concatenate([way.norm for way in ways]),
        added=np.concatenate([way.added for way in ways]),
        attends=[token for way in ways for token in way.attends],
        weight=np.concatenate([way.weight for way in ways]),
        likeliest=[""] * before + words,
        probability=np.concatenate([np.full(before, np.nan), chances]),
    )


@dataclass(frozen=True)
class _Way:
    """One position through one stack."""

    stack: str
    stages: list[str]
    norm: Array
    added: Array
    attends: list[str]
    weight: Array


def _way(text: Text, name: str, position: int) -> _Way:
    reading = text.reading()
    stack = reading.stack(name)
    sites = stages(stack)
    moved = lensing.residual(reading, position=position, stack=name)
    attends, weight = [""] * len(sites), np.full(len(sites), np.nan)
    for part in stack.attention:
        _, sources = text.axes(stack=name, part=part.name)
        rows = attending.patterns(reading, stack=name, part=part.name)[:, :, position].mean(1)  # (L, S)
        for layer, row in enumerate(rows):
            at, best = sites.index(stack.site(layer, part.after)), int(row.argmax())
            attends[at], weight[at] = sources.labels[best], row[best]
    return _Way(name, sites, moved.norm, moved.added, attends, weight)

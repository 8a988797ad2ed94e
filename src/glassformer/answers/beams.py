"""Beam search as a tree: which beginnings were continued, which were dropped, and which ended best."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from glassformer.answers.answer import Answer, Cell, Column, Table, Text, answer, label
from glassformer.figures.color import magnitude
from glassformer.figures.labels import number, quoted
from glassformer.figures.marks import Spec
from glassformer.figures.specs import names, tree
from glassformer.generation.beam import NOWHERE, Step, beam_steps
from glassformer.generation.options import Options

MOST_NODES = 80  # with more of them, a picture leaves those out that were dropped at once


@dataclass(frozen=True)
class Node:
    """One way to continue a hypothesis."""

    step: int  # counted from 1
    parent: int | None  # the node that it continues; None in the first step
    token: int
    word: str
    logprob: float  # of the token
    total: float  # of all tokens up to here
    score: float | None  # of a finished one: total / length ** length_penalty
    fate: str  # "kept", "dropped", "finished", or "best"


@answer
class Beams(Answer):
    """The tree of a beam search; its tokens are those of the best hypothesis."""

    kind = "beams"

    num_beams: int
    nodes: list[Node]

    def make_table(self) -> Table:
        """A row for every continuation that was looked at, best first in each step."""
        columns = [
            Column("node", "count", key=True),
            Column("step", "count", key=True),
            Column("token", "token", key=True),
            Column("after", "token"),
            Column("parent", "count"),
            Column("probability", "share"),
            Column("sum of logprobs", "number"),
            Column("score", "number"),
            Column("fate"),
        ]
        rows: list[list[Cell]] = []
        for at, node in enumerate(self.nodes):
            before = "".join(self.nodes[one].word for one in self.way(at)[:-1])
            chance = float(np.exp(node.logprob))
            rows.append(
                [at, node.step, node.word, before, node.parent, chance, node.total, node.score, node.fate]
            )
        return Table(columns, rows)

    def way(self, at: int) -> list[int]:
        """The nodes from the beginning to one."""
        return way_to(self.nodes, at)

    @property
    def best(self) -> int:
        """The node at which the best hypothesis ends."""
        return next(at for at, node in enumerate(self.nodes) if node.fate == "best")

    def draw(self) -> Spec:
        """The tree, the best hypothesis marked; dropped continuations without a color."""
        shown = [at for at, node in enumerate(self.nodes) if node.fate != "dropped"]
        every = len(self.nodes) <= MOST_NODES
        if every:
            shown = list(range(len(self.nodes)))
        place = {at: n for n, at in enumerate(shown)}
        marked = set(self.way(self.best))
        words = names([self.nodes[at].word for at in shown])
        nodes = []
        for at, word in zip(shown, words, strict=True):
            node = self.nodes[at]
            chance = None if node.fate == "dropped" else float(np.exp(node.logprob))
            note = number(node.total) if node.score is None else f"score {number(node.score)}"
            nodes.append(
                {
                    "parent": None if node.parent is None else place[node.parent],
                    "label": word,
                    "value": chance,
                    "note": note,
                    "marked": at in marked,
                }
            )
        title = {} if every else {"title": f"{self.caption}; those that were kept"}
        return tree(nodes, scale=magnitude("probability of a token"), unit="percent", **title)

    def finding(self) -> str:
        """The best hypothesis, and the second best."""
        finished = [at for at, node in enumerate(self.nodes) if node.score is not None]
        ended = sorted(finished, key=lambda at: -_order(self.nodes[at]))
        found = [f"{quoted(self._words(at))} ({number(_order(self.nodes[at]))})" for at in ended[:2]]
        rest = f", before {found[1]}" if len(found) > 1 else ""
        return f"{len(ended)} of {len(self.nodes)} continuations end; the best is {found[0]}{rest}"

    def _words(self, at: int) -> str:
        return "".join(self.nodes[one].word for one in self.way(at)).strip()


def beams(
    text: Text, *, options: Options, ends: Collection[int] = (), forbidden: Collection[int] = ()
) -> Beams:
    """The search for what to write after the prompt of a text, as it was made by these options."""
    prompt = text.ids[: text.prompt] if text.prompt else text.ids
    model = text.reading().stepper()
    with text.lm.lock:
        steps = list(beam_steps(model, prompt, options=options, ends=ends, forbidden=forbidden))
    nodes = _nodes(text, steps, prompt[-1])
    best = max(range(len(nodes)), key=lambda at: _order(nodes[at]))
    nodes[best] = replace(nodes[best], fate="best")
    return Beams(
        caption=f"{text.name}: beam search, {options.num_beams} beams",
        tokens=[nodes[at].word for at in way_to(nodes, best)],
        num_beams=options.num_beams,
        nodes=nodes,
    )


def _order(node: Node) -> float:
    return -np.inf if node.score is None else node.score


def _nodes(text: Text, steps: list[Step], last: int) -> list[Node]:
    """The candidates of all steps behind a prompt with this last token."""
    nodes: list[Node] = []
    places: dict[tuple[int, ...], int] = {}
    for step, made in enumerate(steps, 1):
        kept = {beam.tokens for beam in made.running}
        scores = {beam.tokens: beam.score for beam in made.ended}
        for beam in made.candidates:
            if beam.total < NOWHERE / 2:  # it continues a beam that does not exist yet
                continue
            *before, token = beam.tokens
            fate = "finished" if beam.tokens in scores else "kept" if beam.tokens in kept else "dropped"
            places[beam.tokens] = len(nodes)
            nodes.append(
                Node(
                    step=step,
                    parent=places.get(tuple(before)),
                    token=token,
                    word=label(text.lm.tokenizer, token, after=before[-1] if before else last),
                    logprob=beam.logprobs[-1],
                    total=float(beam.total),
                    score=scores.get(beam.tokens),
                    fate=fate,
                )
            )
    return nodes


def way_to(nodes: Sequence[Node], at: int) -> list[int]:
    """The nodes from the beginning to one."""
    found = [at]
    while (parent := nodes[found[-1]].parent) is not None:
        found.append(parent)
    return found[::-1]

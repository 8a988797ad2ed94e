"""Edited: a translation beside the one that the model writes with edits."""

from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from glassformer.answers.alignment import source_of
from glassformer.answers.answer import Array, Cell, Column, Table, Text, answer
from glassformer.answers.attention import FromTo
from glassformer.answers.edits import Edits, described, read_file
from glassformer.errors import InputError
from glassformer.explain import edits as editing
from glassformer.figures.color import magnitude
from glassformer.figures.labels import number, quoted
from glassformer.figures.marks import Spec
from glassformer.figures.specs import panels, strip

if TYPE_CHECKING:
    from glassformer.explain.edits import EditSession


@answer
class EditedTranslation(FromTo):
    """N tokens of the translation, and M of the one with edits; `tokens` are those of the first."""

    kind = "edited"

    text: str
    edited: str
    edited_tokens: list[str]
    before: Array  # (N,) log-probability of each token of the translation
    after: Array  # (N,) and with the edits, behind the same tokens
    edited_logprobs: Array  # (M,) of each token of the edited translation, with the edits
    divergence: Array  # (N,) Kullback-Leibler, from before to after, nats, at each token's place

    def make_table(self) -> Table:
        """Token by token: both translations side by side."""
        columns = [
            Column("position", "count", key=True),
            Column("plain", "token", group=1),
            Column("probability", "share", group=1),
            Column("with edits", "share", group=1),
            Column("KL", "number", group=1),
            Column("edited", "token", group=2),
            Column("its probability", "share", group=2),
        ]
        shares = [np.exp(one).tolist() for one in (self.before, self.after)]
        plain = zip(self.tokens, *shares, self.divergence.tolist(), strict=True)
        edited = zip(self.edited_tokens, np.exp(self.edited_logprobs).tolist(), strict=True)
        rows: list[list[Cell]] = []
        for at, (one, other) in enumerate(zip_longest(plain, edited)):
            rows.append([at, *(one or [None] * 4), *(other or [None] * 2)])
        return Table(columns, rows)

    def draw(self) -> Spec:
        """Three lines: the translation, the same tokens with the edits, and what is written with them."""
        probability = magnitude("probability of a token")
        lines = [
            (self.tokens, self.before, "plain"),
            (self.tokens, self.after, "the same tokens, with the edits"),
            (self.edited_tokens, self.edited_logprobs, "edited"),
        ]
        last = len(lines) - 1
        return panels(
            [
                strip(
                    tokens, np.exp(values), scale=probability, title=title, legend=n == last, unit="percent"
                )
                for n, (tokens, values, title) in enumerate(lines)
            ]
        )

    def finding(self) -> str:
        """What the translation becomes, and where the edits act most."""
        most = int(self.divergence.argmax())
        nats = number(float(self.divergence[most]))
        how = f"the prediction changes most where {self.tokens[most]!r} was written (KL {nats} nats)"
        if self.edited == self.text:
            return f"the translation stays {self.text!r}; {how}"
        return f"{self.text!r} becomes {self.edited!r}; {how}"


def edited(
    text: Text,
    *,
    edits: Edits,
    session: "EditSession",
    other: Text,
    then: int | None = None,
    other_then: int | None = None,
) -> EditedTranslation:
    """A translation beside `other`, which was written with edits, those of the session.

    `then` and `other_then` are the tokens that were written last and never read.
    """
    listed = read_file(Path(edits)) if isinstance(edits, str | Path) else edits
    plain, before = _written(text, then)
    with text.lm.lock, session:
        _, after = _written(text, then)
        changed, logprobs = _written(other, other_then)
    if not (np.isfinite(after).all() and np.isfinite(logprobs).all()):
        raise InputError("edits: with these numbers the model's logits are not finite")

    divergence = (np.exp(before) * (before - after)).sum(-1)
    texts = [Text(text.lm, one.generated).whole.strip() if one.generated else "" for one in (text, other)]
    lines = f"\n\nplain: {texts[0]}\n\nedited: {texts[1]}\n"
    return EditedTranslation(
        caption=f"{text.name}: {quoted_source(text)} translated with {described(listed)}{lines}",
        tokens=Text(text.lm, plain).labels,
        source=source_of(text).labels,
        text=texts[0],
        edited=texts[1],
        edited_tokens=Text(text.lm, changed).labels,
        before=_of(before, plain),
        after=_of(after, plain),
        edited_logprobs=_of(logprobs, changed),
        divergence=np.maximum(divergence, 0.0),  # rounding can make 0 negative
    )


def quoted_source(text: Text) -> str:
    """The source without its end token and tags, for a title."""
    source = source_of(text)
    special = set() if source.tokenizer is None else set(source.tokenizer.special.values())
    words = [id for id in source.ids if id not in special]
    return quoted(Text(text.lm, words, is_source=source.is_source).whole.strip()).replace("␣", " ")


def _written(text: Text, then: int | None) -> tuple[list[int], Array]:
    """The tokens that were written, and the log-probabilities (N, V) where each was chosen."""
    written = [*text.generated] if then is None else [*text.generated, then]
    reading = (text if then is not None else text.replayed()).reading()
    return written, editing.log_probabilities(reading)[text.prompt - 1 :]


def _of(logprobs: Array, tokens: list[int]) -> Array:
    chosen: Array = logprobs[np.arange(len(tokens)), tokens]
    return chosen

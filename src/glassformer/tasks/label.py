"""Label: a model that classifies a text, or tags its words."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from glassformer.answers import ask
from glassformer.data.labels import Labeled
from glassformer.data.pairs import Pairs, Rows
from glassformer.errors import InputError
from glassformer.tasks.model import Model
from glassformer.tokenizers import Tokenizer

if TYPE_CHECKING:
    from glassformer.answers.shapes import Shapes

# Words as treebanks divide them: "n't" and "'s" are words of their own, and so is every punctuation mark.
WORD = re.compile(r"\w+(?=n['’]t\b)|n['’]t\b|['’]\w+|\w+|[^\w\s]", re.IGNORECASE)
ROWS = 32  # texts that are read at once


@dataclass(frozen=True)
class Label:
    """What a model says of a text or of a word."""

    text: str
    label: str
    probability: float
    probabilities: dict[str, float]

    def __str__(self) -> str:
        return self.label

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return dict(vars(self))


def encode_words(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[list[int], list[int]]:
    """The token ids of words, a blank before each but the first; and for every token, whose word it is."""
    ids: list[int] = []
    owners: list[int] = []
    for number, word in enumerate(words):
        found = tokenizer.encode(f" {word}" if number else word)
        ids += found
        owners += [number] * len(found)
    return ids, owners


class Labeler(Model):
    """A model that labels a text, or each of its words."""

    task: ClassVar[str] = "label a text"
    verbs: ClassVar[tuple[str, ...]] = ("classify", "tag")

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that it knows."""
        labels: tuple[str, ...] = self._load().config.labels
        return labels

    def classify(self, text: str) -> Label:
        """The label of a text."""
        return self.classify_many([text])[0]

    def classify_many(self, texts: Sequence[str]) -> list[Label]:
        """The labels of texts."""
        self._check("classify", "it tags words: use tag")
        return [label for (label,) in self._label([(text,) for text in texts])]

    def tag(self, text: str | Sequence[str]) -> list[Label]:
        """The labels of the words of a text, which may be divided into words already."""
        return self.tag_many([text])[0]

    def tag_many(self, texts: Sequence[str | Sequence[str]]) -> list[list[Label]]:
        """The labels of the words of texts."""
        self._check("tag", "it has one label for a text: use classify")
        return self._label([WORD.findall(text) if isinstance(text, str) else text for text in texts])

    def accuracy(self, texts: Sequence[Labeled]) -> tuple[int, int]:
        """How many labels it says as they are in labeled texts, and of how many."""
        found = self._label([text.words for text in texts])
        pairs = [
            pair
            for ours, text in zip(found, texts, strict=True)
            for pair in zip(ours, text.labels, strict=True)
        ]
        return sum(ours.label == label for ours, label in pairs), len(pairs)

    def shape(self, text: str) -> "Shapes":
        """The network unrolled over a text: many to one, or many to many in step."""
        from glassformer.answers.answer import labels
        from glassformer.answers.shapes import Example

        net, tags = self._load(), self._load().config.shape == "tag"
        words = WORD.findall(text) if tags else [text]
        if not text.strip():
            raise InputError("there is nothing to label: the text is empty")
        ids, owners = encode_words(self._vocabulary(), words)
        said = [one.label for one in (self.tag(words) if tags else [self.classify(text)])]
        last = {word: place for place, word in enumerate(owners)}
        above = [said[word] if last[word] == place else "" for place, word in enumerate(owners)]
        task = "each word gets a tag, at its last token" if tags else "the text gets a label"
        example = Example(net, task, [ids], labels(self.tokenizer, ids), above if tags else said)
        with self.lock:
            return cast("Shapes", ask("shapes", [example], model=self.name))

    def _check(self, shape: str, instead: str) -> None:
        if self._load().config.shape != shape:
            raise InputError(f"{self.name} cannot {shape} a text; {instead}")

    def _label(self, texts: Sequence[Sequence[str]]) -> list[list[Label]]:
        """The labels of every text: one for each of its words."""
        import torch

        tokenizer, net = self._vocabulary(), self._load()
        for number, words in enumerate(texts, 1):
            if not words or not all(word.strip() for word in words):
                raise InputError(f"text {number} is empty: there is nothing to label")
        encoded = [encode_words(tokenizer, words) for words in texts]
        rows = Rows.of([ids for ids, _ in encoded])
        found: list[list[Label]] = [[] for _ in texts]
        order = sorted(range(len(texts)), key=lambda number: len(encoded[number][0]))
        for start in range(0, len(order), ROWS):
            group = order[start : start + ROWS]
            ids = Pairs(rows, rows, net.config.pad).batch(group).arrays["source"]
            with self.lock, torch.inference_mode():
                scores = net(torch.as_tensor(ids, device=net.device)).softmax(-1).cpu()  # (B, T or 1, V)
            for row, number in zip(scores, group, strict=True):
                # The last token of a word decides: by then the whole word has been read.
                last = {word: place for place, word in enumerate(encoded[number][1])}
                places = last.values() if net.config.shape == "tag" else [0]
                picked = zip(texts[number], places, strict=True)
                found[number] = [self._made(word, row[place].tolist()) for word, place in picked]
        return found

    def _made(self, text: str, probabilities: list[float]) -> Label:
        named = dict(zip(self.labels, probabilities, strict=True))
        best = max(named, key=named.__getitem__)
        return Label(text, best, named[best], named)

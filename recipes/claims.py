"""What the articles say about translation, measured on the models of recipes/multi30k.py.

    python recipes/claims.py DATA runs/multi30k -o docs/multi30k.json

The three test sets of Multi30k are pooled. Intervals hold 95 %: of BLEU by drawing sentences again (1,000 times),
of shares by Wilson's formula. Words are linked by a lexicon that is learned from the training pairs (IBM model
1): a link is a German word whose likeliest English word is in the reference.

The file has one entry a run, NAME-SEED, with the run's own figures too, and is written after each of them. A run
that has an entry is not measured again, so that runs of several machines come together in one file;
docs/multi30k.py makes a page of it.
"""

import argparse
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gathered import finished, known, write
from multi30k import SHORT, TESTS, loaded, read

import glassformer as gf
from glassformer.data.pairs import Pair
from glassformer.tasks.evaluate_pairs import scorer, target_loss
from glassformer.tasks.translate import Translator
from glassformer.tokenizers.tokenizer import source_tokenizer

LENGTHS = ((1, 8), (9, 10), (11, 12), (13, 15), (16, 99))  # words of a source
POSITIONS = 5  # equal parts of a source
SURE, OFTEN = 0.4, 5  # the least probability of a link, and how often its German word must occur
FAR = 0.2  # of a sentence's length: what lies further from the diagonal is off it
DRAWN = 1000
WORD = re.compile(r"\w+")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what the articles claim.")
    parser.add_argument("data", type=Path, help="the folder that holds multi30k")
    parser.add_argument("runs", type=Path, help="the folder of the runs")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the file to write")
    asked = parser.parse_args()
    pairs = [pair for test in TESTS for pair in read(asked.data, test)]
    lexicon = Lexicon(read(asked.data, "train"))
    entries = known(asked.output)
    for folder, figures in finished(asked.runs):
        if folder.name in entries:
            continue
        entries[folder.name] = figures | measured(folder, pairs, lexicon)
        write(asked.output, entries)
        print(f"{folder.name} is measured", flush=True)


def measured(folder: Path, pairs: Sequence[Pair], lexicon: "Lexicon") -> dict[str, Any]:
    """All claims on one run."""
    files = [folder / f"{test}.txt" for test in TESTS]
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    model = loaded(folder)
    found: dict[str, Any] = {
        "lengths": by_length(lines, pairs),
        "recall": by_position(lines, pairs, lexicon),
    }
    if "source" not in model.net.capabilities:  # a decoder alone reads both texts in one row
        return found
    if looks_at(model) is not None:
        found["diagonal"] = off_diagonal(model, pairs, lexicon)
    return found | {"drift": drift(model, pairs), "longer": longer_than_trained(model, lines, pairs)}


def by_length(lines: Sequence[str], pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """BLEU by the number of words of the source: does one vector hold a long sentence?"""
    counts = [len(WORD.findall(pair.source)) for pair in pairs]
    return [
        {"words": [low, high], **bleu(lines, pairs, [n for n, count in enumerate(counts) if low <= count <= high])}
        for low, high in LENGTHS
    ]  # fmt: skip


def longer_than_trained(model: Translator, lines: Sequence[str], pairs: Sequence[Pair]) -> dict[str, Any]:
    """BLEU on pairs longer than any that the runs on short sentences have seen, and on the others.

    All encoder-decoders of these recipes learn the same vocabularies, so that they agree on which those are.
    """
    long = [
        max(len(model.encode_source(pair.source)), len(model.encode_target(pair.target))) > SHORT
        for pair in pairs
    ]
    return {
        "longer": bleu(lines, pairs, [n for n, one in enumerate(long) if one]),
        "others": bleu(lines, pairs, [n for n, one in enumerate(long) if not one]),
    }


def bleu(lines: Sequence[str], pairs: Sequence[Pair], chosen: Sequence[int]) -> dict[str, Any]:
    """BLEU of some sentences, with its interval."""
    metric = scorer("bleu", lowercase=True)
    score = metric.corpus_score(
        [lines[n] for n in chosen], [[pairs[n].target for n in chosen]], n_bootstrap=DRAWN
    )
    return {"sentences": len(chosen), "bleu": round(score.score, 2), "interval": round(score._ci, 2)}


def drift(model: Translator, pairs: Sequence[Pair]) -> dict[str, float]:
    """The loss behind the true tokens, and behind the model's own: what teacher forcing does not train for."""
    found = [target_loss(model, pairs, name="pooled", own=own).loss for own in (False, True)]
    return {"true": round(found[0], 4), "own": round(found[1], 4)}


class Lexicon:
    """The likeliest English word of German words, learned from pairs by IBM model 1."""

    def __init__(self, pairs: Sequence[Pair], rounds: int = 8) -> None:
        words = [[sorted(set(split(half))) for half in pair] for pair in pairs]
        numbers: list[dict[str, int]] = [{}, {}]
        for both in words:
            for taken, half in zip(numbers, both, strict=True):
                for word in half:
                    taken.setdefault(word, len(taken))
        sources, targets, places = [], [], []
        place = 0
        for source, target in words:
            ids = [numbers[0][word] for word in source]
            for word in target:
                sources += ids
                targets += [numbers[1][word]] * len(ids)
                places += [place] * len(ids)
                place += 1
        at = np.array(places)
        codes, links = np.unique(np.array(sources) * len(numbers[1]) + np.array(targets), return_inverse=True)
        chance = np.ones(len(codes))
        from_source = codes // len(numbers[1])
        for _ in range(rounds):
            share = chance[links] / np.bincount(at, chance[links])[at]
            counts = np.bincount(links, share)
            chance = counts / np.bincount(from_source, counts)[from_source]

        english = list(numbers[1])
        often = np.bincount(np.array([numbers[0][word] for both in words for word in both[0]]))
        best: dict[int, int] = {}
        for link in np.argsort(chance):
            best[int(from_source[link])] = int(link)
        self.words = {
            word: english[int(codes[best[number]] % len(english))]
            for word, number in numbers[0].items()
            if chance[best[number]] >= SURE and often[number] >= OFTEN
        }

    def links(self, pair: Pair) -> list[tuple[int, int]]:
        """Places of German words and of their English words, where both occur once."""
        source, target = split(pair.source), split(pair.target)
        return [
            (place, target.index(english))
            for place, word in enumerate(source)
            if (english := self.words.get(word)) and target.count(english) == 1 == source.count(word)
        ]


def split(text: str) -> list[str]:
    return WORD.findall(text.lower())


def by_position(lines: Sequence[str], pairs: Sequence[Pair], lexicon: Lexicon) -> list[dict[str, Any]]:
    """Recall of source words by their place: which part of a sentence is lost on the way?"""
    hits, counts = [0] * POSITIONS, [0] * POSITIONS
    for line, pair in zip(lines, pairs, strict=True):
        source, target, words = split(pair.source), split(pair.target), set(split(line))
        for place, to in lexicon.links(pair):
            part = min(POSITIONS - 1, place * POSITIONS // len(source))
            counts[part] += 1
            hits[part] += target[to] in words
    return [share(hit, count) for hit, count in zip(hits, counts, strict=True)]


def share(hits: int, count: int) -> dict[str, Any]:
    """A share with its interval, by Wilson's formula."""
    z, p = 1.96, hits / max(1, count)
    middle = (p + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    return {"of": count, "share": round(p, 4), "interval": [round(middle - half, 4), round(middle + half, 4)]}


@torch.inference_mode()
def off_diagonal(model: Translator, pairs: Sequence[Pair], lexicon: Lexicon) -> dict[str, Any]:
    """Where the decoder looks most when it is about to write a word of the reference.

    A pair is reordered if two of its links cross. A look is off the diagonal if it is further from the word's
    own place, both counted in lengths of their sentences, than FAR; it is right if it is at the linked word.
    """
    far = {True: [0, 0], False: [0, 0]}
    right = {True: [0, 0], False: [0, 0]}
    for pair in pairs:
        links = lexicon.links(pair)
        if not links:
            continue
        crossed = any((a - c) * (b - d) < 0 for a, b in links for c, d in links)
        for (place, to), look in zip(links, looks(model, pair, links), strict=True):
            lengths = len(split(pair.source)), len(split(pair.target))
            away = abs(look / lengths[0] - to / lengths[1]) > FAR
            far[crossed][0] += away
            far[crossed][1] += 1
            if abs(place / lengths[0] - to / lengths[1]) > FAR:
                right[crossed][0] += abs(look - place) < 1
                right[crossed][1] += 1
    return {
        "off the diagonal, reordered pairs": share(*far[True]),
        "off the diagonal, other pairs": share(*far[False]),
        "at the linked word, where that is off the diagonal": share(
            right[True][0] + right[False][0], right[True][1] + right[False][1]
        ),
    }


def looks_at(model: Translator) -> str | None:
    """The site of the attention from target to source; None where there is none."""
    if "recurrent" not in model.net.capabilities:
        return "decoder.blocks.*.cross.pattern"
    return "decoder.attn.pattern" if model.net.config.reads == "attention" else None


def looks(model: Translator, pair: Pair, links: Sequence[tuple[int, int]]) -> Iterator[int]:
    """For every link, the place of the source word that is looked at most when its target word begins."""
    net, site = model.net, looks_at(model)
    assert site is not None
    source, target = model.encode_source(pair.source), model.encode_target(pair.target)
    with gf.trace(net, site) as seen:
        net(torch.tensor([source]), torch.tensor([target[:-1]]))
    if "recurrent" in net.capabilities:
        weights = seen[site].reshape(len(target) - 1, -1)
    else:
        weights = torch.stack([one[0].mean(0) for one in seen.values()])[-1]  # the last block, all heads
    from_word = owners(model, source, pair.source, source_side=True)
    to_word = owners(model, target, pair.target, source_side=False)
    for _, to in links:
        step = to_word.index(to) - 1 if to in to_word else 0
        total = [0.0] * (max(from_word) + 1)
        for column, word in enumerate(from_word):
            if word >= 0:
                total[word] += float(weights[step, column])
        yield int(np.argmax(total))


def owners(model: Translator, ids: Sequence[int], text: str, *, source_side: bool) -> list[int]:
    """For every token the number of the word that it begins or belongs to; -1 for tags and ends."""
    assert model.tokenizer is not None
    tokenizer = source_tokenizer(model.tokenizer) if source_side else model.tokenizer
    special = set(tokenizer.special.values())
    spans = [[len(text[:end].encode()) for end in match.span()] for match in WORD.finditer(text)]
    found, at = [], 0
    for id in ids:
        if id in special:
            found.append(-1)
            continue
        begin, at = at, at + len(tokenizer.bytes_of(id))
        inside = [n for n, (first, last) in enumerate(spans) if first < at and begin < last]
        found.append(inside[0] if inside else -1)
    return found


if __name__ == "__main__":
    main()

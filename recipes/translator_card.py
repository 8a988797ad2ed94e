"""What can be measured of a translator, as the tables and samples of its card.

    python recipes/translator_card.py runs/translator runs/tatoeba

The second folder holds test.en and test.fr of recipes/tatoeba.py, which no training may see.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

import glassformer as gf
from glassformer.data.pairs import Pair
from glassformer.tasks.evaluate_pairs import evaluate_translations, read_test_set, scorer
from glassformer.tasks.translate import Translator

SAMPLES, WORST = 30, 10
ARTICLES = {
    "en": ["je suis étudiant", "merci", "Comment ça va ?"],
    "fr": ["I am a student", "thanks", "The animal didn't cross the street because it was too tired."],
}
SENTENCE = "The animal didn't cross the street because it was too {}."
REFERRED = {"tired": "animal", "wide": "street"}  # what "it" stands for
STRONG = 6  # heads that are named


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a translator for its card.")
    parser.add_argument("model", help="the model's folder")
    parser.add_argument("data", type=Path, help="the folder of the held-out pairs")
    asked = parser.parse_args()
    model = gf.load(asked.model).expect(Translator)
    files = [str(asked.data / f"test.{language}") for language in ("en", "fr")]
    tests = {to: read_test_set(files, reverse=to == "en") for to in directions(model)}
    for part in (figures(model, tests), articles(model), samples(model, tests), worst(model, tests)):
        print(*part, "", sep="\n", flush=True)
    if not model.net.capabilities & {"recurrent"}:
        print(*it(model), sep="\n")


def directions(model: Translator) -> Sequence[str]:
    """The languages that it writes; a model without tags reads French and writes English."""
    return model.languages or ["en"]


def tagged(model: Translator, to: str) -> str | None:
    return to if model.languages else None


def figures(model: Translator, tests: dict[str, list[Pair]]) -> Iterator[str]:
    """BLEU and chrF on pairs that it never saw."""
    yield "## Figures\n\n| to | pairs | BLEU | chrF |\n|---|---|---|---|"
    signatures = set()
    for to, pairs in tests.items():
        found = {one.name: one for one in evaluate_translations(model, pairs, to=tagged(model, to))}
        yield f"| {to} | {len(pairs):,} | {found['bleu'].score:.1f} | {found['chrf'].score:.1f} |"
        signatures |= {one.signature for one in found.values()}
    yield from (f"\n`{signature}`" for signature in sorted(signatures))


def articles(model: Translator) -> Iterator[str]:
    """The sentences of the articles."""
    yield "## The articles' sentences\n\n| to | source | written |\n|---|---|---|"
    for to in directions(model):
        for text in ARTICLES[to]:
            yield f"| {to} | {text} | {model.translate(text, to=tagged(model, to)).text} |"


def samples(model: Translator, tests: dict[str, list[Pair]]) -> Iterator[str]:
    """Pairs at even distances, as they come."""
    yield f"## {SAMPLES} samples, unedited\n\n| to | source | written | reference |\n|---|---|---|---|"
    for to, pairs in tests.items():
        count = SAMPLES // len(tests)
        chosen = [pairs[number * len(pairs) // count] for number in range(count)]
        found = model.translate_many([pair.source for pair in chosen], to=tagged(model, to))
        for pair, (best, *_) in zip(chosen, found, strict=True):
            yield f"| {to} | {pair.source} | {best.text} | {pair.target} |"


def worst(model: Translator, tests: dict[str, list[Pair]]) -> Iterator[str]:
    """Where it fails: the lowest chrF among the first 500 pairs of each direction."""
    yield f"## Where it fails: the {WORST} lowest by chrF of the first 500\n"
    yield "| to | source | written | reference | chrF |\n|---|---|---|---|---|"
    metric = scorer("chrf")
    for to, pairs in tests.items():
        found = model.translate_many([pair.source for pair in pairs[:500]], to=tagged(model, to))
        scored = [
            (metric.sentence_score(best.text, [pair.target]).score, pair, best.text)
            for pair, (best, *_) in zip(pairs, found, strict=False)
        ]
        for score, pair, text in sorted(scored)[: WORST // len(tests)]:
            yield f"| {to} | {pair.source} | {text} | {pair.target} | {score:.0f} |"


@torch.inference_mode()
def it(model: Translator) -> Iterator[str]:
    """Which heads link "it" to what it stands for, and to the word that decides that: in the encoder, or in a decoder
    that reads the source itself, where nothing looks ahead.
    """
    reads = "source" in model.net.capabilities
    yield '## What does "it" look at?\n'
    for last, meant in REFERRED.items():
        ids = model.encode_source(SENTENCE.format(last), to="fr")
        words = [model.tokenizer.decode([id]).strip() for id in ids]  # type: ignore[union-attr]
        with gf.trace(model.net, f"{'encoder.' if reads else ''}blocks.*.attn.pattern") as seen:
            (model.net.encode if reads else model.net)(torch.tensor([ids]))
        from_it = words.index("it")
        places = {
            word: [n for n, one in enumerate(words) if one and word.startswith(one)] for word in (meant, last)
        }
        rows: list[tuple[int, int, float, float]] = []
        for layer, pattern in enumerate(seen.values()):
            for head, weights in enumerate(pattern[0, :, from_it]):
                to_noun, to_adjective = (float(weights[places[word]].sum()) for word in (meant, last))
                rows.append((layer, head, to_noun, to_adjective))
        yield f"{SENTENCE.format(last)} Tokens: {' '.join(words)}. An even share is {1 / len(ids):.1%} a token.\n"
        yield f"| layer.head | it → {meant} | it → {last} |\n|---|---|---|"
        for layer, head, noun, adjective in sorted(rows, key=lambda row: -max(row[2:]))[:STRONG]:
            yield f"| {layer}.{head} | {noun:.1%} | {adjective:.1%} |"
        yield ""


if __name__ == "__main__":
    main()

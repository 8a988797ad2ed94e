"""One answer of every kind, for the tests that hold all of them to the same promises."""

import json
from pathlib import Path
from typing import NamedTuple

from composers import small_composer, tune
from translators import small_translator

from glassformer.answers import QUESTIONS, ask
from glassformer.answers.answer import Answer, Text
from glassformer.tasks import library
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.shapes import shapes


class Swept(NamedTuple):
    """Two texts of as many tokens, and the token that each makes likelier than the other does."""

    clean: str | list[int] = "The girl lost"
    corrupted: str | list[int] = "The boy lost"
    answer: str | int = " her"
    foil: str | int = " his"


GIRL_AND_BOY = Swept()


def every(lm: LanguageModel, text: str, folder: Path, *, swept: Swept = GIRL_AND_BOY) -> dict[str, Answer]:
    """An answer of every kind, by its kind."""
    found = [
        *_about(lm, text),
        *_of_model(lm, text, swept),
        *_of_files(folder),
        *_of_translation(lm.name, text),
        *_of_music(lm.name),
    ]
    by_kind = {one.kind: one for one in found}
    assert set(by_kind) == set(QUESTIONS)
    return by_kind


def _about(lm: LanguageModel, text: str) -> list[Answer]:
    """Asked of a generated text."""
    out = lm.generate(text, max_new_tokens=3, temperature=0)
    return [
        out.attention(1, 0),
        out.heads(),
        out.find_heads(2, 1),
        out.steps(1, 0, position=2),
        out.rollout(),
        out.lens(),
        out.rankings(),
        out.rankings_watch([5, 6, 7]),
        out.attribution(0),
        out.residual(),
        out.saliency(tested=True),
        out.neurons(),
        out.factors(2, layers=[0]),
        out.clusters(2, layers=[0]),
        out.cache(),
        out.probabilities(),
        out.beams(),
    ]


def _of_model(lm: LanguageModel, text: str, swept: Swept) -> list[Answer]:
    """Asked of a model."""
    other = LanguageModel(lm.net, lm.tokenizer, name="the other")
    off = [{"site": "blocks.0.attn", "do": "zero"}]
    return [
        lm.top(text, 12, top_k=5),
        lm.tokens(text),
        lm.merges(text),
        lm.embedding(text),
        lm.promotes(1, 3),
        lm.examples([text], layer=1, neuron=3),
        ask("edit", Text(lm, lm.encode(text)), edits=off, k=3, max_new_tokens=2),
        lm.diff(other, text),
        lm.sweep(swept.clean, swept.corrupted, answer=swept.answer, foil=swept.foil),
        lm.training_rows(text),
        lm.update(text),
    ]


def _of_files(folder: Path) -> list[Answer]:
    """Asked of files, or of nothing."""
    metrics = folder / "metrics.jsonl"
    steps = [{"step": n, "loss": 6 - n / 20, "tokens": 1000 * n} for n in range(1, 60)]
    metrics.write_text("".join(json.dumps(line) + "\n" for line in [*steps, {"step": 59, "held_out": 3.5}]))
    return [
        ask("robot"),
        ask("positions", count=20, width=16),
        ask("parameters", library.describe("storyteller")),
        ask("curve", [metrics]),
    ]


def _of_music(name: str) -> list[Answer]:
    """Asked of a piece: music has no text, and only its name may be anything."""
    model = small_composer()
    model.name = name
    out = model.harmonize(tune(), seed=5)
    return [out.roll(), out.events(), out.arcs(9), out.note_saliency(9)]


def _of_translation(name: str, text: str) -> list[Answer]:
    """Asked of a translation, by models of both kinds."""
    source = " ".join(text.split()[:12])
    out = small_translator(name=name, context=1200).translate(source, to="fr", max_new_tokens=4)
    steps = small_translator("seq2seq", name=name).translate(source, to="fr", max_new_tokens=4)
    off = [{"site": "decoder.attn.context", "do": "zero"}]
    model = small_translator(name=name, layers=1)
    ablated = model.ablate_heads([("She liked", "a park")], to="fr", max_new_tokens=2)
    return [
        out.alignment(),
        out.journey(),
        out.targets(),
        steps.unroll(),
        steps.edited(off),
        ablated,
        shapes(),
        out.model.pair_rows([(source, text)], to="fr"),
    ]

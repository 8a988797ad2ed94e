"""The models that ship to translate: small, complete, and able to.

`fixtures/tatoeba_held_out.tsv` has 60 of the pairs that `recipes/tatoeba.py` holds out for the test: sentences of
Tatoeba's contributors, CC BY 2.0 FR.
"""

from pathlib import Path

import pytest
from safetensors import safe_open

import glassformer as gf
from glassformer.answers.alignment import Alignment
from glassformer.data.pairs import Pair, read_pairs
from glassformer.errors import InputError
from glassformer.tasks.evaluate_pairs import scorer
from glassformer.tasks.translate import Translator

SHIPPED = Path(gf.__file__).parent / "pretrained"
HELD_OUT = Path(__file__).parent / "fixtures" / "tatoeba_held_out.tsv"
MOST = {  # bytes of a folder
    "translator": 16_000_000,
    "translator-decoder": 8_200_000,  # its weights 7.9 MB
    "seq2seq": 4_000_000,
    "seq2seq-bottleneck": 4_000_000,
}


@pytest.fixture(scope="module")
def translator() -> Translator:
    return gf.load("translator").expect(Translator)


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    """English, French."""
    return list(read_pairs([HELD_OUT]))


@pytest.mark.parametrize("name", MOST)
def test_it_is_small_and_whole(name: str) -> None:
    """In fp16, with its vocabulary, and a card that names the licence of what it learned from."""
    folder = SHIPPED / name
    assert sum(path.stat().st_size for path in folder.iterdir()) <= MOST[name]
    with safe_open(folder / "model.safetensors", "np") as file:
        assert {str(file.get_slice(one).get_dtype()) for one in file.keys()} == {"F16"}  # noqa: SIM118 (it is no mapping)
    card = (folder / "card.md").read_text()
    assert all(part in card for part in ("CC BY 2.0 FR", "Tatoeba", "30 samples, unedited", "Where it fails"))


def bleu(written: list[str], targets: list[str]) -> float:
    return float(scorer("bleu").corpus_score(written, [targets]).score)


@pytest.mark.parametrize(("to", "least"), [("fr", 30), ("en", 40)])
def test_it_translates_both_ways(translator: Translator, pairs: list[Pair], to: str, least: float) -> None:
    """Sentences that it never saw; as well without a tag, for the text tells its language."""
    sources = [pair.source if to == "fr" else pair.target for pair in pairs]
    targets = [pair.target if to == "fr" else pair.source for pair in pairs]
    for named in (to, None):
        found = translator.translate_many(sources, to=named, num_beams=1)
        assert bleu([best.text for best, *_ in found], targets) >= least


@pytest.mark.parametrize(("to", "least"), [("fr", 28), ("en", 38)])
def test_a_decoder_alone_translates_both_ways(pairs: list[Pair], to: str, least: float) -> None:
    """The same sentences, behind whose end stands the tag of a language."""
    decoder = gf.load("translator-decoder").expect(Translator)
    sources, targets = zip(
        *(pair if to == "fr" else (pair.target, pair.source) for pair in pairs), strict=True
    )
    found = decoder.translate_many(sources, to=to, num_beams=1)
    assert bleu([best.text for best, *_ in found], list(targets)) >= least


def test_a_decoder_looks_at_the_word_that_it_translates() -> None:
    """In the corner of its own attention that the target's rows and the source's columns make."""
    out = gf.load("translator-decoder").expect(Translator).translate("I am a student.", to="fr")
    found = out.alignment()
    most = looks(found)
    assert (most["étudiant"], most["suis"], most["."]) == ("student", "am", ".")
    assert found.agreement > 0.3


@pytest.mark.parametrize(
    ("source", "right"),
    [
        ("merci", {"thanks", "thank you"}),
        ("je suis étudiant", {"I am a student", "I'm a student"}),
        ("I am a student", {"je suis étudiant", "je suis étudiante"}),
    ],
)
def test_the_articles_sentences(translator: Translator, source: str, right: set[str]) -> None:
    """As people type them in haste, and without a language."""
    assert translator.translate(source).text in right


def looks(found: Alignment) -> dict[str, str]:
    """Each written token, and the source token that got most of its attention."""
    places = zip(found.tokens, found.weights.argmax(1), strict=True)
    return {token.strip("␣ "): found.source[place].strip("␣ ") for token, place in places}


def test_it_looks_at_the_word_that_it_translates(translator: Translator) -> None:
    """The picture of the article: most of the attention for a word is on its own."""
    most = looks(translator.translate("I am a student.").alignment())
    assert (most["étudiant"], most["."]) == ("student", ".")


def test_words_are_looked_for_in_both_texts(translator: Translator) -> None:
    """In the translation, then in the source, then from one to the other; a stack can be named."""
    out = translator.translate("The dog ran because it was late.")
    assert "encoder" in out.find_heads("it", "dog").caption
    assert "cross-attention" in out.find_heads("chien", "dog").caption
    assert out.find_heads("chien", "dog").rows == out.find_heads("chien", "dog", stack="cross").rows
    with pytest.raises(InputError, match="the word 'it' is not in the text"):
        out.find_heads("it", "dog", stack="decoder")


def test_a_recurrent_network_translates_step_by_step(pairs: list[Pair]) -> None:
    """French to English, with attention that finds the word it translates; its twin without loses much."""
    scores = []
    for name in ("seq2seq-bottleneck", "seq2seq"):
        model = gf.load(name).expect(Translator)
        found = model.translate_many([pair.target for pair in pairs], num_beams=1)
        scores.append(bleu([best.text for best, *_ in found], [pair.source for pair in pairs]))
    assert scores[1] >= 38
    assert scores[1] - 8 >= scores[0] >= 20
    out = model.translate("je ne sais pas pourquoi elle est partie")
    most = looks(out.alignment())
    assert (most["why"], most["she"]) == ("pourquoi", "elle")
    assert out.unroll().rows

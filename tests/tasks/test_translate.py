"""Translating from Python: directions, long texts, batches, candidates, and what is refused."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reversing import save_translator

from glassformer.errors import CheckpointError, InputError
from glassformer.hub.folder import load_folder, save_folder
from glassformer.tasks.load import load
from glassformer.tasks.translate import Translated, Translator
from glassformer.tokenizers.tokenizer import with_source
from glassformer.tokenizers.train import train_pair_tokenizer

GREEDY: dict[str, Any] = {"num_beams": 1, "max_new_tokens": 6}


def translator(folder: str) -> Translator:
    return load(folder, engine="torch").expect(Translator)


@pytest.fixture(scope="module")
def one_way(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return translator(save_translator(tmp_path_factory.mktemp("translators") / "one"))


@pytest.fixture(scope="module")
def two_way(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return translator(save_translator(tmp_path_factory.mktemp("translators") / "two", "en", "fr"))


def tokens(found: list[list[Translated]]) -> list[list[list[int]]]:
    return [[one.tokens for one in several] for several in found]


@pytest.mark.parametrize("options", [{}, GREEDY, {"num_beams": 3, "num_return_sequences": 2}], ids=str)
def test_a_batch_equals_its_texts(one_way: Translator, options: dict[str, Any]) -> None:
    """In the order of the texts, whatever their lengths: token for token as each alone."""
    texts = ["abcde abc", "a", "bcd", "abcde abcde", "dd"] * 8  # more than one batch
    found = one_way.translate_many(texts, **{"max_new_tokens": 6} | options)
    assert [several[0].source for several in found] == texts
    alone = [one_way.translate_many([text], **{"max_new_tokens": 6} | options)[0] for text in texts[:5]]
    assert tokens(found) == tokens(alone) * 8
    for several in found:
        assert len(several) == options.get("num_return_sequences", 1)
        assert [one.score for one in several] == sorted((one.score for one in several), reverse=True)


def test_a_greedy_translation_is_the_likeliest_token_each_time(one_way: Translator) -> None:
    """By the logits of the whole; its score is the sum of their log-probabilities."""
    found = one_way.translate("abc", **GREEDY)
    assert len(found.tokens) == 6
    net = one_way.net
    given = net.given([found.source_tokens])
    logits = given.logits(np.array([[net.config.start, *found.tokens]]))[0]
    logits[:, net.config.pad] = -math.inf
    assert logits[:6].argmax(-1).tolist() == found.tokens
    sums = given.log_sums(given.logits(np.array([[net.config.start, *found.tokens]]))[0])
    assert found.score == pytest.approx(
        sum(logits[n, id] - sums[n] for n, id in enumerate(found.tokens)), abs=1e-4
    )
    assert str(found) == found.text == one_way.text_of(found.tokens)
    assert set(found.to_dict()) == {"source", "text", "source_tokens", "tokens", "score", "finish_reason"}
    assert found.finish_reason == "length"


def test_padding_is_never_written(tmp_path: Path) -> None:
    """Not even if it is by far the likeliest token."""
    model = translator(save_translator(tmp_path / "m"))
    pad = model.net.config.pad
    model.net.head.bias.data[pad] += 1000
    for options in (GREEDY, {"num_beams": 2, "max_new_tokens": 6}):
        assert pad not in model.translate("abc", **options).tokens


def test_directions(one_way: Translator, two_way: Translator, tmp_path: Path) -> None:
    """A tag goes before the source; it must be one of the model's, and be named where there are more than two."""
    assert (one_way.languages, two_way.languages) == ([], ["en", "fr"])
    assert two_way.tokenizer is not None
    special = two_way.tokenizer.special
    plain = one_way.encode_source("abc")
    assert two_way.encode_source("abc", to="fr") == [special["<to-fr>"], *plain]
    assert two_way.encode_source("abc", to="en") == [special["<to-en>"], *plain]
    scores = [two_way.translate("abc", to=language, **GREEDY).score for language in ("en", "fr")]
    assert abs(scores[0] - scores[1]) > 1e-3
    with pytest.raises(InputError, match="'de' is not a language of this model; it translates to en, fr"):
        two_way.translate("abc", to="de")
    assert two_way.encode_source("abc") == plain  # of two languages the text tells its own
    with pytest.raises(InputError, match="has one direction, so that no language is named: leave 'fr' out"):
        one_way.translate("abc", to="fr")
    three = translator(save_translator(tmp_path / "three", "en", "fr", "de"))
    with pytest.raises(InputError, match="name the language to translate to, one of en, fr, de"):
        three.translate("abc")
    # What looks like a tag in a text is text.
    assert special["<to-fr>"] not in two_way.encode_source("<to-fr> abc", to="en")[1:]


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u3000"])
def test_an_empty_text(one_way: Translator, text: str) -> None:
    """One sentence, with split or without."""
    for split in (False, True):
        with pytest.raises(InputError, match="there is nothing to translate: the text is empty"):
            one_way.translate(text, split=split)


def test_a_text_longer_than_the_context(one_way: Translator) -> None:
    """Refused by how much, at the edge exactly; with split its sentences are translated one by one."""
    fits, over = "a" * 23, "a" * 24
    assert len(one_way.encode_source(fits)) == 24 == one_way.net.context
    words = r"the text has 25 tokens, 1 more than the model's context of 24; shorten it, or have it split"
    with pytest.raises(InputError, match=words):
        one_way.translate(over)
    with pytest.raises(InputError, match="a single sentence has 31 tokens, 7 more"):
        one_way.translate("a" * 30, split=True)  # a sentence that is too long by itself

    long = "Ab cd ef. Gh ij? Kl mn op qr."
    found = one_way.translate(long, split=True, **GREEDY)
    parts = [one_way.translate(part, **GREEDY) for part in ("Ab cd ef.", "Gh ij?", "Kl mn op qr.")]
    assert found.tokens == [id for part in parts for id in part.tokens]
    assert found.text == " ".join(part.text.strip() for part in parts)
    assert found.score == pytest.approx(sum(part.score for part in parts))
    assert (found.source, found.finish_reason) == (long, "length")


def test_a_text_that_fits_is_not_split(one_way: Translator) -> None:
    """A context of two sentences is worth more than one."""
    text = "Ab cd. Ef gh."
    whole, split = (one_way.translate(text, split=split, **GREEDY) for split in (False, True))
    assert split.tokens == whole.tokens
    assert split.source_tokens == one_way.encode_source(text)


def test_a_model_without_a_limit_reads_any_length(tmp_path: Path) -> None:
    """An RNN has no context: nothing is too long, and nothing is split."""
    model = translator(save_translator(tmp_path / "m", kind="seq2seq"))
    text = "abc. " * 50
    assert len(model.encode_source(text)) > 200
    assert model.sentences(text) == [text]
    assert len(model.translate(text, **GREEDY).tokens) <= 6


# Vocabularies that do not belong to the model


def test_a_vocabulary_larger_than_the_model(tmp_path: Path) -> None:
    """Refused when it is written, and when it is read."""
    net = load_folder(Path(save_translator(tmp_path / "m"))).model
    large = train_pair_tokenizer(["some text to learn from " * 9], 262)
    with pytest.raises(CheckpointError, match="the tokenizer has 262 tokens, the model 258"):
        save_folder(tmp_path / "n", net, tokenizer=large)
    assert not (tmp_path / "n").exists()
    (tmp_path / "m" / "tokenizer.json").write_text(large.to_json())
    with pytest.raises(CheckpointError, match="the tokenizer has 262 tokens, the model 258"):
        load_folder(tmp_path / "m")


def test_two_vocabularies_and_a_model_of_one(tmp_path: Path) -> None:
    """And the other way round; and one without the other; and two that differ in their special tokens."""
    folder = Path(save_translator(tmp_path / "m"))
    model = load_folder(folder)
    assert model.tokenizer is not None
    source = train_pair_tokenizer(["a text"], 258)
    (folder / "source_tokenizer.json").write_text(source.to_json())
    with pytest.raises(
        CheckpointError, match=r"source_tokenizer\.json does not belong to a model that has one"
    ):
        load_folder(folder)
    (folder / "tokenizer.json").rename(folder / "t")
    with pytest.raises(CheckpointError, match=r"holds source_tokenizer\.json without tokenizer\.json"):
        load_folder(folder)
    with pytest.raises(CheckpointError, match="does not belong to a model that has one vocabulary"):
        save_folder(tmp_path / "n", model.model, tokenizer=with_source(model.tokenizer, source))

    with pytest.raises(CheckpointError, match=r"source_tokenizer\.json is missing, and the model has 258"):
        save_translator(tmp_path / "two", source_vocab=258)
    with pytest.raises(InputError, match=r"differ in <pad>, <\|endoftext\|>"):
        with_source(model.tokenizer, train_pair_tokenizer(["some text to learn from " * 9], 262))


def test_a_model_without_a_vocabulary(tmp_path: Path) -> None:
    """It cannot read text, and says so."""
    folder = Path(save_translator(tmp_path / "m"))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(InputError, match="has no vocabulary, so it cannot read text"):
        translator(str(folder)).translate("abc")


def test_names_of_the_article(one_way: Translator) -> None:
    """`beam_size` and `top_beams` are what the others call num_beams and num_return_sequences."""
    theirs = one_way.translate_many(["abc"], beam_size=3, top_beams=2)[0]
    ours = one_way.translate_many(["abc"], num_beams=3, num_return_sequences=2)[0]
    assert [one.text for one in theirs] == [one.text for one in ours]
    assert one_way.translate("abc").beams(beam_size=3).data() == one_way.translate("abc").beams(3).data()


@pytest.mark.parametrize(("given", "how", "words"), [
    (["abc"], {"beams": 3}, "unknown option 'beams'; did you mean 'num_beams'"),
    (["abc", ""], {}, "text 2 of 2 is empty"),
    (["abc", None], {}, "text 2 is no text but NoneType"),
    ("abc", {}, "a list of texts, not one"),
])  # fmt: skip
def test_what_is_no_list_of_texts(one_way: Translator, given: Any, how: dict[str, Any], words: str) -> None:
    """One sentence that names what is wrong."""
    with pytest.raises(InputError, match=words):
        one_way.translate_many(given, **how)


def test_words_that_are_nowhere(one_way: Translator) -> None:
    """Both texts are shown."""
    with pytest.raises(InputError, match=r"neither text has both 'abc' and 'nowhere'.* the source: .*abc"):
        one_way.translate("abc").find_heads("abc", "nowhere")

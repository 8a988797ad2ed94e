"""Translation by a decoder alone: the answers of `transformers` from the same folder, batches, and bad input."""

import json
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch
from decoders import save_decoder, small_decoder
from reversing import write_pairs
from transformers import AutoTokenizer, GPT2LMHeadModel

from glassformer.cli import run as glass
from glassformer.data.pairs import Pair
from glassformer.errors import InputError
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.decoder_translate import DecoderTranslator
from glassformer.tasks.evaluate_pairs import evaluate_translations, target_loss
from glassformer.tasks.load import load
from glassformer.tasks.translate import Translator

SOURCES = [
    "She liked to play.",
    "A girl.",
    "Once upon a time, there was",
    "park Lily outside",
    "the the the the",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_decoder(tmp_path_factory.mktemp("decoders") / "one", seed=4)


@pytest.fixture(scope="module")
def model(folder: str) -> DecoderTranslator:
    return load(folder, engine="torch").expect(DecoderTranslator)


def test_what_a_folder_can_do(folder: str, model: DecoderTranslator, tmp_path: Path) -> None:
    """Its tags say it: no other file does. It is a translator, and a language model still."""
    assert isinstance(model, Translator)
    assert isinstance(model, LanguageModel)
    assert model.languages == ["en", "fr"]
    assert {"writes", "translates", "summarizes"} <= model.capabilities
    assert model.generate("Once", max_new_tokens=3, seed=1).tokens
    other = load(save_decoder(tmp_path / "summaries", "<summarize>"), engine="torch")
    assert type(other) is LanguageModel
    with pytest.raises(InputError, match=r"cannot translate a text; .*`glass train .* makes another"):
        other.expect(Translator)


@pytest.mark.parametrize(
    "options", [{"num_beams": 1}, {"num_beams": 3}, {"num_beams": 4, "length_penalty": 0.4}]
)
def test_the_translation_of_transformers(
    folder: str, model: DecoderTranslator, options: dict[str, Any]
) -> None:
    """From the folder alone: its tokenizer knows the tag, its GPT-2 writes the same tokens, alone and in a batch."""
    theirs = GPT2LMHeadModel.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ours = [best for best, *_ in model.translate_many(SOURCES, to="fr", max_new_tokens=9, **options)]
    tags = [[tokenizer.convert_tokens_to_ids(tag)] for tag in ("<to-en>", "<to-fr>", "<summarize>")]
    for source, found in zip(SOURCES, ours, strict=True):
        given = tokenizer(f"{source}<to-fr>", return_tensors="pt")
        assert given["input_ids"][0].tolist() == found.source_tokens
        out = theirs.generate(
            **given, max_new_tokens=9, do_sample=False, bad_words_ids=tags, pad_token_id=0, **options
        )
        written = [id for id in out[0, len(found.source_tokens) :].tolist() if id != tokenizer.eos_token_id]
        assert written == found.tokens
        assert tokenizer.decode(written) == found.text
        alone = model.translate(source, to="fr", max_new_tokens=9, **options)
        assert (alone.tokens, alone.text) == (found.tokens, found.text)
    assert len({tuple(one.tokens) for one in ours}) > 2


def test_sampling_and_several_answers(model: DecoderTranslator) -> None:
    """Drawn with a seed; the best of a beam first; no tag is ever written."""
    drawn = [
        model.translate(SOURCES[0], to="en", num_beams=1, do_sample=True, temperature=3.0, top_k=0, seed=seed)
        for seed in (1, 1, 2)
    ]
    assert drawn[0].tokens == drawn[1].tokens != drawn[2].tokens
    ids = set(model.never_written)
    assert len(ids) == 3
    assert not ids & {id for one in drawn for id in one.tokens}
    (several,) = model.translate_many(
        [SOURCES[0]], to="en", num_beams=4, num_return_sequences=3, max_new_tokens=5
    )
    assert [one.score for one in several] == sorted((one.score for one in several), reverse=True)


def test_the_native_engine_translates(folder: str, model: DecoderTranslator) -> None:
    """A GPT-2 with tags is a GPT-2; eight bits may choose another token, but a batch is the same as alone."""
    native = load(folder, engine="native").expect(DecoderTranslator)
    assert native.backend.name == "native int8"
    found = native.translate_many(SOURCES, to="fr", num_beams=1, max_new_tokens=6)
    for source, (best, *_) in zip(SOURCES, found, strict=True):
        assert native.translate(source, to="fr", num_beams=1, max_new_tokens=6).tokens == best.tokens
    right = model.translate_many(SOURCES, to="fr", num_beams=1, max_new_tokens=6)
    first = [(one[0].tokens[:1], other[0].tokens[:1]) for one, other in zip(found, right, strict=True)]
    assert sum(one == other for one, other in first) >= 3


@pytest.mark.parametrize(
    ("text", "to", "words"),
    [
        ("a", "de", "'de' is not a language of this model; it translates to en, fr"),
        ("a", None, "name the language to translate to, one of en, fr"),
        (" ", "fr", "there is nothing to translate: the text is empty"),
        ("x" * 40, "fr", r"41 tokens with its tag, 9 more than half of the context, .*split"),
    ],
)
def test_bad_input(model: DecoderTranslator, text: str, to: str | None, words: str) -> None:
    """One sentence."""
    with pytest.raises(InputError, match=words):
        model.translate(text, to=to)


def test_a_long_text_sentence_by_sentence(model: DecoderTranslator) -> None:
    """Each as it is alone."""
    long = "Once upon a time. xyzw xyzw xyzw xyzw. She liked xyzw. xyzw xyzw"
    whole = model.translate(long, to="fr", split=True, num_beams=1, max_new_tokens=4)
    parts = model.sentences(long, to="fr")
    assert len(parts) == 4
    alone = [model.translate(part, to="fr", num_beams=1, max_new_tokens=4).text.strip() for part in parts]
    assert whole.text == " ".join(alone)


def test_the_loss_of_the_targets(model: DecoderTranslator) -> None:
    """−log p of every token behind the tag and of the end, one by one; a pair that is too long is named."""
    pairs = [Pair("A girl.", "Lily"), Pair("She liked", "to play outside"), Pair("a", "b")]
    found = target_loss(model, pairs, name="three", to="fr")
    tokenizer, nats, count = model.tokenizer, 0.0, 0
    assert tokenizer is not None
    for source, target in pairs:
        given = [*tokenizer.encode(source), tokenizer.special["<to-fr>"]]
        ids = [*given, *tokenizer.encode(target), tokenizer.end]
        logp = model.net(torch.tensor([ids[:-1]]))[0].log_softmax(-1)
        nats -= sum(logp[at - 1, ids[at]].item() for at in range(len(given), len(ids)))
        count += len(ids) - len(given)
    assert found.tokens == count
    assert found.loss == pytest.approx(nats / count, rel=1e-6)
    with pytest.raises(InputError, match="pair 2: source, tag and target have"):
        target_loss(model, [pairs[0], Pair("a", "x" * 70)], name="long", to="fr")
    with pytest.raises(InputError, match="drift: is measured of encoder-decoders"):
        target_loss(model, pairs, name="own", to="fr", own=True)


def test_bleu_is_that_of_what_it_writes(model: DecoderTranslator) -> None:
    """By sacrebleu itself."""
    pairs = [Pair(source, source) for source in SOURCES]
    how: dict[str, Any] = {"to": "en", "num_beams": 2, "max_new_tokens": 12}
    (found,) = evaluate_translations(model, pairs, metrics=["chrf"], **how)
    written = [best.text for best, *_ in model.translate_many(SOURCES, **how)]
    assert found.score == sacrebleu.CHRF().corpus_score(written, [SOURCES]).score > 1


def test_the_command_line(folder: str, model: DecoderTranslator, tmp_path: Path, capsys: Any) -> None:
    """`glass translate` and `glass eval` take it as they take an encoder-decoder; a plain model is refused."""
    code = glass(
        ["translate", "-m", folder, "--to", "fr", "--engine", "torch", "-n", "5", "--json", SOURCES[0]]
    )
    (one,) = json.loads(capsys.readouterr().out)
    right = model.translate(SOURCES[0], to="fr", max_new_tokens=5)
    assert (code, one) == (0, right.to_dict())
    pairs = write_pairs(tmp_path, ("She liked", "to play"))
    assert glass(["eval", folder, pairs, "--to", "fr", "--json"]) == 0
    (loss,) = json.loads(capsys.readouterr().out)
    assert loss["loss"] == pytest.approx(
        target_loss(model, [Pair("She liked", "to play")], name="", to="fr").loss
    )
    assert glass(["eval", folder, pairs, "--to", "de", "--metric", "chrf"]) == 2
    assert "'de' is not a language of this model" in capsys.readouterr().err
    assert glass(["translate", "-m", "storyteller", "hello"]) == 2
    assert "--task translate" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["gpt1", "gpt3"])
def test_relatives_translate_in_batches_as_alone(kind: str) -> None:
    """Rows of a batch are padded on the left, which changes nothing."""
    lm = small_decoder(3, kind=kind)
    found = lm.translate_many(SOURCES, to="fr", num_beams=2, max_new_tokens=5)
    for source, (best, *_) in zip(SOURCES, found, strict=True):
        assert lm.translate(source, to="fr", num_beams=2, max_new_tokens=5).tokens == best.tokens


def test_what_one_can_ask(model: DecoderTranslator) -> None:
    """A translation of a decoder is a text of a decoder: all of its questions, but none about two stacks."""
    out = model.translate(SOURCES[0], to="fr", num_beams=1, max_new_tokens=4)
    assert out.saliency(tested=False).shares.shape == (4, len(out.source_tokens) + 3)
    assert out.lens().rows
    assert out.beams(2, max_new_tokens=3).rows
    assert out.targets().rows
    assert out.attention(0, 1).weights.shape == (len(out.source_tokens) + 4,) * 2
    with pytest.raises(InputError, match=r"journey: .* has no encoder"):
        out.journey()


def test_an_edited_translation_beside_the_plain_one(folder: str, capsys: Any) -> None:
    """`glass translate --zero` shows what a decoder writes with an edit, as Python's `edits=` does."""
    how = [
        "translate",
        "-m",
        folder,
        "--to",
        "fr",
        "-n",
        "4",
        "--num-beams",
        "1",
        "--engine",
        "torch",
        "--json",
    ]
    assert glass([*how, "--zero", "blocks.*.attn.mix[0]", SOURCES[0]]) == 0
    found = json.loads(capsys.readouterr().out)
    edits = [{"site": "blocks.*.attn.mix[0]", "do": "zero"}]
    right = load(folder, engine="torch").expect(DecoderTranslator)
    out = right.translate(SOURCES[0], to="fr", edits=edits, num_beams=1, max_new_tokens=4)
    assert found["values"]["edited"] == out.text.strip()
    assert max(found["values"]["divergence"]) > 0
    assert "".join(found["source"]) == SOURCES[0]
    assert glass([*how, "--journey", "0", SOURCES[0]]) == 2
    assert "has no encoder" in capsys.readouterr().err


def test_a_text_that_is_cut_keeps_its_beginning_and_its_tag(model: DecoderTranslator) -> None:
    """What is measured by ROUGE is cut, not split: the last tokens before the tag are left out."""
    long = "Once upon a time. xyzw xyzw xyzw xyzw. She liked xyzw. xyzw xyzw"
    whole = model._source_ids(long, "fr")
    cut = model.encode_source(long, to="fr", cut=True)
    assert cut == [*whole[:31], whole[-1]]
    assert model.encode_source("A girl.", to="fr", cut=True) == model.encode_source("A girl.", to="fr")
    ((best, *_),) = model.translate_many([long], to="fr", cut=True, num_beams=1, max_new_tokens=4)
    assert best.source_tokens == cut
    found = evaluate_translations(
        model, [Pair(long, "a")], metrics=["rouge"], to="fr", num_beams=1, max_new_tokens=4
    )
    assert [one.name for one in found][2:4] == ["rougeL", "lead sentence, rouge1"]
    assert [one.cut for one in found] == [1, 1, 1, 0, 0, 0]

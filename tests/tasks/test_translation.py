"""The training job of translations: it learns, goes on after a crash bit by bit, and keeps its vocabularies."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crash
import numpy as np
import pytest
from reversing import FLAGS, save_translator, some_pairs, write_pairs
from small import small_net, small_tokenizer

from glassformer.errors import InputError
from glassformer.hub.folder import load_folder, save_folder
from glassformer.hub.vocabulary import load_tokenizer
from glassformer.tasks.evaluate import was_trained_on
from glassformer.tasks.load import load
from glassformer.tasks.recipe import Recipe
from glassformer.tasks.train import Evaluated, Finished, Preview, Started, train
from glassformer.tasks.translate import Translator
from glassformer.tasks.translation import Translation

SHORT: dict[str, Any] = {"steps": 2, "batch": 4, "eval_every": 1}


def trained(data: str, out: Path, **changes: Any) -> list[Any]:
    return list(train(Recipe().changed(data=[data], **FLAGS | changes), out))


def prepared(data: str, out: Path, **changes: Any) -> Translation:
    recipe = Recipe().changed(data=[data], **FLAGS | changes)
    return Translation.prepare(recipe, out, offline=True, progress=lambda *_: None)


def translator(folder: Path) -> Translator:
    return load(str(folder), engine="torch").expect(Translator)


@pytest.fixture
def data(tmp_path: Path) -> str:
    return write_pairs(tmp_path)


def test_it_learns_to_read_backwards(data: str, tmp_path: Path) -> None:
    """Words that it has not seen come out backwards; the card says what it was trained on, and how well."""
    events = trained(data, tmp_path / "run", preview="abc")
    (started,) = (event for event in events if isinstance(event, Started))
    learn, held = started.tokens, started.held_out
    assert learn + held == sum(len(target) + 2 for _, target in some_pairs())
    losses = [event.loss for event in events if isinstance(event, Evaluated)]
    assert losses[-1] < 0.6
    assert [event.text for event in events if isinstance(event, Preview)][-1] == "abc → cba"

    model = translator(tmp_path / "run")
    unseen = some_pairs(40, seed=9)
    found = model.translate_many([source for source, _ in unseen])
    right = sum(best.text == target for (best, *_), (_, target) in zip(found, unseen, strict=True))
    assert right >= 30

    (end,) = (event for event in events if isinstance(event, Finished))
    card = (tmp_path / "run" / "model" / "card.md").read_text()
    assert "`pairs.tsv` (sha256 " in card
    assert was_trained_on(str(tmp_path / "run"), data)
    assert not was_trained_on(str(tmp_path / "run"), write_pairs(tmp_path, ("ab", "ba"), name="other.tsv"))
    assert f"its loss on held-out text is {end.best:.4f} nats a token" in card
    assert 'kind = "transformer"' in card


def test_pairs_that_are_gone_when_the_model_is_saved(data: str, tmp_path: Path) -> None:
    """What was read is known: the training goes on, and the card names it."""
    events = train(Recipe().changed(data=[data], **FLAGS | SHORT), tmp_path / "run")
    next(one for one in events if isinstance(one, Started))
    digits = hashlib.sha256(Path(data).read_bytes()).hexdigest()[:16]
    Path(data).unlink()
    assert any(isinstance(one, Finished) for one in events)
    assert f"`pairs.tsv` (sha256 {digits} …)" in (tmp_path / "run" / "model" / "card.md").read_text()


def test_killed_and_resumed(data: str, tmp_path: Path) -> None:
    """Every loss, evaluation and preview, and the bytes of the model, are those of a run that was not killed."""
    how: dict[str, Any] = {
        "kind": "transformer",
        "data": [data],
        "vocab": 270,
        "preview": "abc",
        "label_smoothing": 0.1,
    }
    assert crash.run(tmp_path / "whole", **how) == 0, (tmp_path / "whole.log").read_text()
    assert crash.run(tmp_path / "run", crash="saved:2", **how) == -9
    assert crash.run(tmp_path / "run", **how) == 0, (tmp_path / "run.log").read_text()
    assert crash.results(tmp_path / "run") == crash.results(tmp_path / "whole")
    assert len(crash.results(tmp_path / "run")[0]) > 16


def test_two_ranks_equal_one(data: str, tmp_path: Path) -> None:
    """In float64, within 1e-9, though the rows of a rank are filled up to another length."""
    how: dict[str, Any] = {
        "kind": "transformer",
        "data": [data],
        "vocab": 270,
        "preview_tokens": 0,
        "dropout": 0.0,
    }
    how |= {"precision": "float64", "batch": 8, "micro_batch": 3, "steps": 8, "schedule": "constant"}
    assert crash.run(tmp_path / "one", **how) == 0
    assert crash.run_ranks(tmp_path / "two", 2, **how) == [0, 0], (tmp_path / "two.log").read_text()
    for key in ("loss", "held_out", "norm"):
        one, two = (
            [line[key] for line in crash.results(tmp_path / name)[0] if key in line]
            for name in ("one", "two")
        )
        assert len(one) == (3 if key == "held_out" else 8)  # one before the first step
        np.testing.assert_allclose(two, one, rtol=1e-9, atol=0)


def test_both_ways_with_tags(data: str, tmp_path: Path) -> None:
    """Every pair twice, each time behind the tag of its target's language."""
    job = prepared(data, tmp_path / "run", languages=["up", "down"], both_ways=True, vocab=260, held_out=0.0)
    special, end = job.tokenizer.special, job.tokenizer.end
    assert end is not None
    encode = job.tokenizer.encode
    expected = []
    for source, target in some_pairs():
        expected.append(([special["<to-down>"], *encode(source), end], [end, *encode(target), end]))
        expected.append(([special["<to-up>"], *encode(target), end], [end, *encode(source), end]))
    rows = [(job.pairs.sources[n].tolist(), job.pairs.targets[n].tolist()) for n in range(len(job.pairs))]
    assert rows == expected
    assert not len(job.held)

    one_way = prepared(data, tmp_path / "one", languages=["up", "down"], vocab=260)
    assert [token for token in one_way.tokenizer.special if token.startswith("<to-")] == ["<to-down>"]


def test_no_held_out_sentence_was_learned(data: str, tmp_path: Path) -> None:
    """By token ids, after all that happens to pairs; `validation` is taken as it is."""
    job = prepared(data, tmp_path / "run", held_out=0.3)
    sides = zip((job.pairs.sources, job.pairs.targets), (job.held.sources, job.held.targets), strict=True)
    for learn, held in sides:
        assert len(held) > 20
        both = [{tuple(rows[n].tolist()) for n in range(len(rows))} for rows in (learn, held)]
        assert not both[0] & both[1]

    other = write_pairs(tmp_path, ("ab", "ba"), ("c", "c"), name="other.tsv")
    job = prepared(data, tmp_path / "run2", validation=[other])
    assert (len(job.pairs), len(job.held)) == (300, 2)


def test_pairs_that_are_too_long(data: str, tmp_path: Path) -> None:
    """They are left out and counted; those that the model could not read are refused before the first step."""
    job = prepared(data, tmp_path / "run", longest=5, held_out=0.0)
    assert job.too_long == sum(len(source) > 3 for source, _ in some_pairs())
    assert len(job.pairs) == 300 - job.too_long
    assert f"; {job.too_long} longer ones were left out" in job.describe_data()[0]
    with pytest.raises(
        InputError, match=r"longest: a pair has 5 tokens on one side, 1 more than .* context of 4"
    ):
        trained(data, tmp_path / "small", context=4, **SHORT)
    trained(data, tmp_path / "fits", context=5, **SHORT)
    with pytest.raises(
        InputError, match="preview: the text has 17 tokens, 1 more than the model's context of 16"
    ):
        trained(data, tmp_path / "preview", preview="a" * 16, **SHORT)


# Vocabularies


def words(names: str, count: int = 400) -> Iterator[tuple[str, str]]:
    for number in range(count):
        yield names[0] * (number % 7 + 1), " ".join(names[1] * (number % 5 + 1))


@pytest.fixture
def two_alphabets(tmp_path: Path) -> str:
    """Sources of one letter, targets of another: merges of one side are useless on the other."""
    return write_pairs(tmp_path, *words("xy"), name="two.tsv")


def test_separate_vocabularies_are_kept(two_alphabets: str, tmp_path: Path) -> None:
    """Each is learned from its side alone, saved in a file of its own, loaded again, and translates the same."""
    out = tmp_path / "run"
    trained(two_alphabets, out, vocabularies="separate", vocab=262, **SHORT)
    model = translator(out)
    target = model.tokenizer
    assert target is not None
    source = target.source
    assert source is not None
    assert source.special == target.special
    assert len(source.encode("xxxx")) < 4 == len(target.encode("xxxx"))
    assert len(target.encode(" y y y")) < len(source.encode(" y y y"))
    assert model.net.config.source_vocab == len(source)
    assert model.encode_source("xxxx") == [*source.encode("xxxx"), source.end]
    assert model.encode_target("y y") == [target.end, *target.encode("y y"), target.end]

    model.save(tmp_path / "copy")
    again = translator(tmp_path / "copy")
    assert again.translate("xxx", max_new_tokens=9).tokens == model.translate("xxx", max_new_tokens=9).tokens
    both = [(out / "model" / "source_tokenizer.json"), (tmp_path / "copy" / "source_tokenizer.json")]
    assert both[0].read_bytes() == both[1].read_bytes()

    steps = trained(two_alphabets, out, vocabularies="separate", vocab=262, **SHORT | {"steps": 2})
    assert any(isinstance(event, Finished) for event in steps)  # found again, and finished


def test_joint_after_separate(two_alphabets: str, tmp_path: Path) -> None:
    """Before the first checkpoint a vocabulary is learned anew; the file of the other form does not stay."""
    out = tmp_path / "run"
    assert prepared(two_alphabets, out, vocabularies="separate", vocab=262).tokenizer.source is not None
    assert prepared(two_alphabets, out, vocab=262).tokenizer.source is None
    found = load_tokenizer(out)
    assert found is not None
    assert found.source is None
    assert sorted(path.name for path in out.glob("*tokenizer.json")) == ["tokenizer.json"]


def test_a_small_text_gives_vocabularies_of_one_size(tmp_path: Path) -> None:
    """One side has fewer merges to learn; the special tokens still have the same ids on both."""
    data = write_pairs(tmp_path, *[("x" * 9, "many different words here")] * 30)
    job = prepared(data, tmp_path / "run", vocabularies="separate", vocab=400, held_out=0.0)
    source = job.tokenizer.source
    assert source is not None
    assert len(source) == len(job.tokenizer) < 280
    assert source.special == job.tokenizer.special


@pytest.mark.parametrize(("keys", "what"), [
    ({"vocabularies": "both"}, "vocabularies 'both' is none of joint, separate"),
    ({"vocabularies": "separate", "both_ways": True, "languages": ["a", "b"]}, "both_ways needs joint vocabularies"),
    ({"both_ways": True}, "both_ways needs languages"),
    ({"languages": ["a"]}, "languages are two, that of the source and that of the target, not 1"),
])  # fmt: skip
def test_recipes_that_make_no_sense(keys: dict[str, Any], what: str) -> None:
    """One sentence that names the key."""
    with pytest.raises(InputError, match=what):
        Recipe().changed(**FLAGS | keys)


def test_a_vocabulary_that_lacks_a_token(data: str, tmp_path: Path) -> None:
    """Of another model: the padding, the tags and two vocabularies are looked for before anything is read."""
    with pytest.raises(InputError, match="storyteller: its vocabulary has no token <pad>"):
        prepared(data, tmp_path / "a", tokenizer="storyteller")
    base = save_translator(tmp_path / "base", "up")
    with pytest.raises(InputError, match="its vocabulary has no token <to-down>"):
        prepared(data, tmp_path / "b", tokenizer=base, languages=["up", "down"])
    with pytest.raises(InputError, match=r"vocabularies: .*base has one for sources and targets"):
        prepared(data, tmp_path / "c", tokenizer=base, vocabularies="separate")
    assert prepared(data, tmp_path / "d", tokenizer=base).tokenizer.special["<to-up>"] == 258


# Going on from another model


def test_fine_tuning(data: str, tmp_path: Path) -> None:
    """A base keeps its vocabulary, its padding, its settings and its start token, here another than the end."""
    base = save_translator(tmp_path / "base", start=7)
    (Path(base) / "generation_config.json").write_text('{"forced_eos_token_id": 5, "num_beams": 3}')
    job = prepared(data, tmp_path / "job", base=base)
    assert {int(job.pairs.targets[n][0]) for n in range(len(job.pairs))} == {7}
    trained(data, tmp_path / "run", base=base, freeze=["encoder"], **SHORT)
    before, after = (load_folder(Path(folder)).model for folder in (base, tmp_path / "run" / "model"))
    assert after.config.start == 7
    assert translator(tmp_path / "run").settings == {"forced_eos_token_id": 5, "num_beams": 3}
    changed = {
        name
        for name, value in after.named_parameters()
        if hashlib.sha256(value.detach().numpy().tobytes()).digest()
        != hashlib.sha256(before.get_parameter(name).detach().numpy().tobytes()).digest()
    }
    assert changed
    assert not any(name.startswith("encoder") for name in changed)


def test_lora(data: str, tmp_path: Path) -> None:
    """Thin matrices beside the queries: a folder that names its base and translates with it."""
    base = save_translator(tmp_path / "base")
    with pytest.raises(InputError, match=r"targets: 'attn\.qkv'"):
        trained(data, tmp_path / "wrong", base=base, rank=2, **SHORT)
    trained(data, tmp_path / "run", base=base, rank=2, targets=["attn.query"], **SHORT | {"lr": 0.1})
    adapter = json.loads((tmp_path / "run" / "model" / "adapter_config.json").read_text())
    assert adapter["base_model_name_or_path"] == str(Path(base).resolve())
    model = translator(tmp_path / "run")
    plain = translator(Path(base))
    assert model.translate("abc", max_new_tokens=5).score != plain.translate("abc", max_new_tokens=5).score


def test_a_recipe_of_another_kind(data: str, tmp_path: Path) -> None:
    """A base that reads pairs, in a recipe for texts, is answered by one sentence."""
    base = save_translator(tmp_path / "base")
    with pytest.raises(
        InputError, match="a model that reads pairs is fine-tuned by a recipe of its own kind"
    ):
        list(train(Recipe().changed(data=[data], base=base), tmp_path / "run"))


def test_a_decoder_becomes_both_halves(tmp_path: Path) -> None:
    """Its vocabulary gets what pairs need; long sources are cut, if so asked, and the model translates."""
    decoder, tokenizer = small_net("gpt2", vocab=300), small_tokenizer(300)
    save_folder(tmp_path / "base", decoder, tokenizer=tokenizer)
    data = write_pairs(tmp_path, ("ab " * 20, "ba"), ("abc", "cba"), ("b", "b"), ("c d", "d c"))
    base: dict[str, Any] = {"kind": "gpt2-encoder-decoder", "base": str(tmp_path / "base"), "data": [data]}
    base |= SHORT | {"layers": 1, "decoder_layers": 2, "longest": 24, "held_out": 0.25, "batch": 2}
    for cut, pairs in ((False, 2), (True, 3)):
        run = tmp_path / f"run-{cut}"
        list(train(Recipe().changed(**base, cut=cut), run))
        assert f": {pairs} pairs to learn from" in (run / "model" / "card.md").read_text()
    model = translator(run)
    assert (model.net.config.layers, model.net.config.decoder_layers) == (1, 2)
    assert model.net.vocab == len(tokenizer) + 1
    assert model.net.config.start == tokenizer.end
    assert model.translate("abc", max_new_tokens=4).tokens
    with pytest.raises(InputError, match="layers is 3, and the model to begin with has 2 blocks"):
        list(train(Recipe().changed(**base | {"layers": 3}), tmp_path / "none"))

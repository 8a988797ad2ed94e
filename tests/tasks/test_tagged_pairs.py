"""A decoder learns from pairs: what it reads, what of it is learned, and what becomes of a base and of its words."""

import json
from pathlib import Path
from typing import Any

import crash
import numpy as np
import pytest
import torch
from decoders import save_decoder, tagged_vocabulary
from reversing import some_pairs, write_pairs

from glassformer.errors import InputError
from glassformer.hub.folder import load_folder
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.decoder_translate import DecoderTranslator
from glassformer.tasks.jobs import prepare_job
from glassformer.tasks.load import load
from glassformer.tasks.recipe import Recipe
from glassformer.tasks.tagged_pairs import TaggedPairs
from glassformer.tasks.train import Evaluated, Preview, Started, train

# One token a letter: the vocabulary has the bytes, the end, and one tag.
FLAGS: dict[str, Any] = {
    "task": "translate", "languages": ["up", "down"], "vocab": 258, "layers": 2, "heads": 2, "width": 32, "context": 16,
    "steps": 120, "batch": 32, "lr": 2e-2, "lr_end": 1e-3, "warmup": 10, "optimizer": "muon", "eval_every": 60, "tensorboard": False,
}  # fmt: skip
SHORT: dict[str, Any] = {"steps": 2, "batch": 4, "eval_every": 1, "layers": 1}
SUMMARIES: dict[str, Any] = {"task": "summarize", "languages": (), "room": 4, "context": 12, "held_out": 0.0}


def recipe(data: str, **changes: Any) -> Recipe:
    chosen = FLAGS | changes
    if chosen["task"] == "summarize":
        chosen.pop("languages")
    return Recipe().changed(data=[data], **chosen)


def prepared(data: str, out: Path, **changes: Any) -> TaggedPairs:
    job = prepare_job(recipe(data, **changes), out, offline=True, progress=lambda *_: None)
    assert isinstance(job, TaggedPairs)
    return job


@pytest.fixture
def data(tmp_path: Path) -> str:
    return write_pairs(tmp_path)


def test_it_learns_to_read_backwards(data: str, tmp_path: Path) -> None:
    """Words that it has not seen come out backwards, by torch and by the native engine; the card says how."""
    events = list(train(recipe(data, preview="abc"), tmp_path / "run"))
    (started,) = (event for event in events if isinstance(event, Started))
    assert started.tokens + started.held_out == sum(len(target) + 1 for _, target in some_pairs())
    losses = [event.loss for event in events if isinstance(event, Evaluated)]
    assert losses[-1] < 0.7 < losses[0]
    assert [event.text for event in events if isinstance(event, Preview)][-1] == "abc → cba"

    unseen = some_pairs(30, seed=9)
    for engine in ("torch", "auto"):
        model = load(str(tmp_path / "run"), engine=engine)
        assert isinstance(model, DecoderTranslator)
        found = model.translate_many([source for source, _ in unseen])
        assert sum(best.text == target for (best, *_), (_, target) in zip(found, unseen, strict=True)) >= 20
    card = (tmp_path / "run" / "model" / "card.md").read_text()
    assert "`pairs.tsv` (sha256 " in card
    assert 'task = "translate"' in card
    assert str(tmp_path) not in card
    settings = json.loads((tmp_path / "run" / "model" / "generation_config.json").read_text())
    assert {"num_beams": 4, "do_sample": False, "max_new_tokens": 100}.items() <= settings.items()


def test_both_ways_with_tags(data: str, tmp_path: Path) -> None:
    """Every pair twice, each time with the tag of its target's language between."""
    job = prepared(data, tmp_path / "run", both_ways=True, vocab=259, held_out=0.0)
    special, end = job.tokenizer.special, job.tokenizer.end
    encode = job.tokenizer.encode
    expected = []
    for source, target in some_pairs():
        expected.append(([*encode(source), special["<to-down>"], *encode(target), end], len(source) + 1))
        expected.append(([*encode(target), special["<to-up>"], *encode(source), end], len(target) + 1))
    rows = [(job.rows.rows[n].tolist(), int(job.rows.given[n])) for n in range(len(job.rows))]
    assert rows == expected
    assert not len(job.held)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_that_of_the_target_half(data: str, tmp_path: Path, smoothing: float) -> None:
    """−log p of every token behind the tag, one by one, from logits of the row alone: no padding, no source."""
    job = prepared(data, tmp_path / "run", held_out=0.0, label_smoothing=smoothing, precision="float64")
    net = job.build(torch.device("cpu"))
    batch = job.rows.batch([3, 8, 11])
    tensors = {key: torch.as_tensor(array) for key, array in batch.arrays.items()}
    loss = job.objective(net.train(), tensors).item()

    right, count = 0.0, 0
    for number in (3, 8, 11):
        ids = torch.as_tensor(job.rows.rows[number])
        logp = net(ids[None, :-1])[0].log_softmax(-1)
        source, _ = some_pairs()[number]
        for at in range(len(source) + 1, len(ids)):  # behind the source and its tag
            one = logp[at - 1]
            right -= ((1 - smoothing) * one[ids[at]] + smoothing * one.mean()).item()
            count += 1
    assert loss == pytest.approx(right, rel=1e-12)
    assert batch.count == count
    plain = job.objective(net.eval(), tensors).item()
    assert (plain == pytest.approx(right, rel=1e-12)) is (smoothing == 0)  # an evaluation has no smoothing


@pytest.mark.slow
def test_killed_and_resumed(data: str, tmp_path: Path) -> None:
    """Every loss, evaluation and preview, and the bytes of the model, are those of a run that was not killed."""
    how: dict[str, Any] = {
        "task": "translate",
        "languages": ["up", "down"],
        "both_ways": True,
        "data": [data],
    }
    how |= {"vocab": 270, "preview": "abc", "label_smoothing": 0.1, "steps": 10}
    assert crash.run(tmp_path / "whole", **how) == 0, (tmp_path / "whole.log").read_text()
    assert crash.run(tmp_path / "run", crash="saved:2", **how) == -9
    assert crash.run(tmp_path / "run", **how) == 0, (tmp_path / "run.log").read_text()
    assert crash.results(tmp_path / "run") == crash.results(tmp_path / "whole")


def test_two_ranks_equal_one(data: str, tmp_path: Path) -> None:
    """In float64, within 1e-9, though the rows of a rank are filled up to another length."""
    how: dict[str, Any] = {"task": "translate", "languages": ["up", "down"], "data": [data], "vocab": 270}
    how |= {"preview_tokens": 0, "dropout": 0.0, "precision": "float64", "batch": 8, "steps": 6}
    assert crash.run(tmp_path / "one", **how) == 0
    assert crash.run_ranks(tmp_path / "two", 2, **how) == [0, 0], (tmp_path / "two.log").read_text()
    for key in ("loss", "held_out", "norm"):
        one, two = (
            [line[key] for line in crash.results(tmp_path / name)[0] if key in line]
            for name in ("one", "two")
        )
        assert len(one) >= 2
        np.testing.assert_allclose(two, one, rtol=1e-9, atol=0)


def test_texts_and_summaries_are_cut_by_rule(tmp_path: Path) -> None:
    """A context of 12 leaves 7 tokens for a text beside its tag and 4 of a summary; what is cut has no end."""
    pairs = write_pairs(tmp_path, ("abcdefghij", "abc"), ("abcdefg", "abcd"), ("ab", "abcdef"))
    job = prepared(pairs, tmp_path / "run", **SUMMARIES)
    encode, end, tag = job.tokenizer.encode, job.tokenizer.end, job.tokenizer.special["<summarize>"]
    assert [job.rows.rows[n].tolist() for n in range(3)] == [
        [*encode("abcdefg"), tag, *encode("abc"), end],
        [*encode("abcdefg"), tag, *encode("abcd")],
        [*encode("ab"), tag, *encode("abcd")],
    ]
    (line,) = job.describe_data()
    assert "1 texts were cut to their beginning" in line
    assert "2 summaries were cut, and their ends not learned" in line
    done = "2 summaries were cut, and their ends not learned; 1 texts were cut to their beginning"
    assert job.messages() == [f"of 3 pairs {done}"]
    assert job._generation()["max_new_tokens"] == 4
    assert job.build(torch.device("cpu")).context >= job.rows.longest


def test_a_base_gets_the_tags_that_it_lacks(data: str, tmp_path: Path) -> None:
    """Behind its own tokens, whose rows stay as they are; what is saved loads and can do both."""
    base = save_decoder(tmp_path / "base", "<summarize>", context=32)
    list(
        train(
            recipe(
                data,
                base=base,
                **SHORT | {"lr": 1e-9, "lr_end": 0.0, "optimizer": "adamw", "weight_decay": 0.0},
            ),
            tmp_path / "run",
        )
    )
    before, after = (load_folder(Path(one)).model for one in (base, tmp_path / "run" / "model"))
    torch.testing.assert_close(after.tokens.weight[: before.vocab], before.tokens.weight, atol=1e-6, rtol=0)
    assert after.vocab == before.vocab + 1
    lm = load(str(tmp_path / "run"), engine="torch")
    assert lm.tokenizer is not None
    assert lm.tokenizer.special["<to-down>"] == before.vocab
    assert {"translates", "summarizes"} <= lm.capabilities
    assert lm.tokenizer.encode("Once upon") == load(base, engine="torch").encode("Once upon")
    # Again, from the model that has the tag by now: no token is new.
    list(train(recipe(data, base=str(tmp_path / "run"), **SHORT), tmp_path / "again"))
    assert load_folder(tmp_path / "again" / "model").model.vocab == after.vocab


def test_a_vocabulary_of_another_model(data: str, tmp_path: Path) -> None:
    """With the tag behind it, for a new model."""
    base = save_decoder(tmp_path / "base", "<summarize>")
    job = prepared(data, tmp_path / "run", tokenizer=base)
    known = len(tagged_vocabulary("<summarize>"))
    assert job.tokenizer.special["<to-down>"] == known
    assert job.build(torch.device("cpu")).vocab == len(job.tokenizer) == known + 1


@pytest.mark.parametrize("kind", ["gpt1", "gpt3"])
def test_relatives(data: str, tmp_path: Path, kind: str) -> None:
    """The same recipe trains a GPT-1 and a GPT-3."""
    list(train(recipe(data, kind=kind, **SHORT | {"vocab": 300}), tmp_path / "run"))
    out = (
        load(str(tmp_path / "run"), engine="torch")
        .expect(DecoderTranslator)
        .translate("abc", max_new_tokens=3)
    )
    assert len(out.tokens) <= 3


def test_long_pairs_are_left_out(tmp_path: Path) -> None:
    """Longer than `longest` on either side, with a tag or an end."""
    pairs = write_pairs(tmp_path, ("abcd", "ab"), ("ab", "abcde"), ("abc", "abcd"), ("abcde", "a"))
    job = prepared(pairs, tmp_path / "run", held_out=0.0, longest=5)
    assert len(job.rows) == 2
    assert "2 longer ones were left out" in job.describe_data()[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"languages": []}, "languages: name that of the source and that of the target"),
        ({"context": 8}, "longest: a pair has 9 tokens with its tag, 1 more than the model's context of 8"),
        (
            {"preview": "abcdefghij"},
            "preview: the text has 11 tokens with its tag, 3 more than half of the context",
        ),
        ({"batch": 2000}, "batch: 2000 pairs are more than the"),
        (
            {"task": "summarize", "room": 16},
            "a summary of 16 tokens leaves no room for a text in a context of 16",
        ),
    ],
)
def test_what_cannot_be_trained(data: str, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    """One sentence that names the key, and no folder is left."""
    with pytest.raises(InputError, match=words):
        list(train(recipe(data, **changes), tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_lora_learns_no_new_token(data: str, tmp_path: Path) -> None:
    """A base without the tag is refused; one that has it is adapted."""
    base = save_decoder(tmp_path / "base", "<summarize>", context=32)
    with pytest.raises(InputError, match="LoRA learns no new token"):
        list(train(recipe(data, base=base, rank=2, **SHORT), tmp_path / "run"))
    tagged = save_decoder(tmp_path / "tagged", "<to-down>", context=32)
    list(train(recipe(data, base=tagged, rank=2, **SHORT), tmp_path / "run"))
    assert isinstance(load(str(tmp_path / "run"), engine="torch"), DecoderTranslator)


def test_tasks_of_a_recipe() -> None:
    """An unknown task, and one for a kind that has its own, are refused; another task has other keys."""
    with pytest.raises(InputError, match="task 'sing' is none of translate, summarize"):
        Recipe().changed(task="sing")
    with pytest.raises(InputError, match="task translate: is for decoders, such as gpt2; kind transformer"):
        Recipe().changed(kind="transformer", task="translate")
    with pytest.raises(InputError, match="the recipe: unknown key 'room' in \\[text\\]"):
        Recipe.of({"text": {"task": "translate", "room": 3}})
    both = Recipe().changed(task="translate", data=["a.tsv"], languages=["de", "en"])
    assert 'task = "translate"' in both.to_toml()
    assert both.changed(kind="transformer").text.data == ("a.tsv",)
    assert both.changed(task="").task == ""


def test_an_encoder_decoder_is_no_base(data: str, tmp_path: Path) -> None:
    """It has an objective of its own."""
    from reversing import save_translator

    base = save_translator(tmp_path / "base")
    with pytest.raises(InputError, match=r"task translate: .* is no decoder but a Transformer"):
        list(train(recipe(data, base=base), tmp_path / "run"))


def test_a_summary_is_previewed(tmp_path: Path) -> None:
    """Cut by rule, whatever its length."""
    pairs = write_pairs(tmp_path, *some_pairs(40))
    events = list(
        train(recipe(pairs, **SUMMARIES | SHORT | {"preview": "abcdefghijklmnop"}), tmp_path / "run")
    )
    previews = [event.text for event in events if isinstance(event, Preview)]
    assert all(one.startswith("abcdefghijklmnop → ") for one in previews)
    lm = load(str(tmp_path / "run"), engine="torch")
    assert type(lm) is LanguageModel
    assert lm.summarize("abcdefghijklmnop").left_out == 9

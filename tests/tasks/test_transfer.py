"""Transfer learning, whole: a tiny base learns every task from examples, and what it becomes answers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import small_net, small_tokenizer

import glassformer as gf
from glassformer.data.examples import Example, held_apart
from glassformer.data.transformations import SPECIAL
from glassformer.errors import InputError
from glassformer.hub.folder import load_folder, save_folder
from glassformer.tasks.classify import TextClassifier
from glassformer.tasks.evaluate_examples import evaluate_examples
from glassformer.tasks.jobs import prepare_job
from glassformer.tasks.recipe import Recipe
from glassformer.tasks.train import Finished, Message, Stepped, train
from glassformer.tasks.transfer import Transfer

TEXTS = [f"Lily liked {('the park', 'to play')[n % 2]} {n}" for n in range(24)]
LABELS = [("place", "act")[n % 2] for n in range(24)]
PAIRS = [(f"{('Lily', 'the girl')[n % 2]} {n}", ("Lily", "the park")[n // 2 % 2]) for n in range(24)]
QUICK = {"epochs": 8.0, "batch": 8, "lr": 0.01, "warmup": 0}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A language model of two blocks."""
    folder = tmp_path_factory.mktemp("base") / "lm"
    tokenizer = small_tokenizer(300)
    net = small_net("gpt2", vocab=300, context=48)
    save_folder(folder, net, tokenizer=tokenizer)
    return str(folder)


@pytest.fixture(scope="module")
def fitted(base: str) -> gf.Classifier:
    return gf.Classifier(base, **QUICK).fit(TEXTS, LABELS)


def recipe(base: str, data: Path, task: str = "classify", **keys: Any) -> Recipe:
    usual: dict[str, Any] = {"steps": 6, "batch": 4, "warmup": 0, "preview_tokens": 0, "tensorboard": False}
    made = Recipe().changed(kind="gpt2-classifier").changed(**usual | keys)
    return made.changed(base=base, task=task, data=[str(data)])


def written(folder: Path, examples: list[Any], labels: list[Any]) -> Path:
    path = folder / "examples.jsonl"
    pairs = zip(examples, labels, strict=True)
    lines = [json.dumps({"text": text, "label": label}) for text, label in pairs]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_it_learns_as_scikit_learn_does(fitted: gf.Classifier) -> None:
    """fit, predict, predict_proba, score; more than chance by far."""
    assert fitted.classes_.tolist() == ["act", "place"]
    assert fitted.score(TEXTS, LABELS) >= 0.9
    predicted, shares = fitted.predict(TEXTS[:5]), fitted.predict_proba(TEXTS[:5])
    assert shares.shape == (5, 2)
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-6)
    assert [fitted.classes_[best] for best in shares.argmax(1)] == predicted.tolist()


def test_scikit_learn_can_clone_it(base: str) -> None:
    """What it was made with is what it is made anew with."""
    from sklearn.base import clone

    again = clone(gf.Classifier(base, task="entail", lr=0.1))
    assert again.get_params() == {"base": base, "task": "entail", "out": None, "lr": 0.1}
    assert again.set_params(task="classify", lr=0.2).get_params()["lr"] == 0.2


def test_batches_change_nothing(fitted: gf.Classifier) -> None:
    """A text alone and among longer ones has the same probabilities."""
    together = fitted.predict_proba([*TEXTS[:3], "Once upon a time, there was a little girl named Lily"])
    alone = np.concatenate([fitted.predict_proba([text]) for text in TEXTS[:3]])
    np.testing.assert_allclose(together[:3], alone, atol=1e-5)


def test_new_tokens_are_learned_and_the_vocabulary_grows(fitted: gf.Classifier, base: str) -> None:
    """Four more vectors, behind those of the base, and not as they began."""
    assert fitted.model is not None
    net, lm = fitted.model.net, load_folder(Path(base)).model
    assert net.vocab == lm.vocab + len(SPECIAL)
    assert fitted.model.tokenizer is not None
    extract = fitted.model.tokenizer.special["<|extract|>"]
    drawn = small_net("gpt2-classifier", vocab=304, context=48).tokens.weight
    assert not torch.allclose(net.tokens.weight[extract], drawn[extract] + lm.tokens.weight[299])
    assert not torch.equal(net.tokens.weight[:300], lm.tokens.weight)


@pytest.mark.parametrize("kind", ["gpt1", "gpt3"])
def test_any_decoder_takes_a_head(tmp_path: Path, kind: str) -> None:
    """GPT-1 with its own vocabulary, and GPT-3."""
    from glassformer.hub.families import family

    tokenizer = family(kind).train_tokenizer([" ".join(TEXTS)], 400)
    save_folder(tmp_path / "lm", small_net(kind, vocab=len(tokenizer), context=48), tokenizer=tokenizer)
    found = gf.Classifier(str(tmp_path / "lm"), **QUICK | {"epochs": 1.0}).fit(TEXTS, LABELS)
    assert found.model is not None
    assert found.model.net.kind == f"{kind}-classifier"
    assert found.predict(TEXTS[:2]).shape == (2,)


def test_two_texts_are_compared_in_both_orders(base: str) -> None:
    """A number; the same whichever comes first."""
    targets = [
        float(one.split()[0][0] == other.split()[0][0]) + n % 3 / 8 for n, (one, other) in enumerate(PAIRS)
    ]
    found = gf.Classifier(base, task="similar", **QUICK | {"epochs": 2.0}).fit(PAIRS, targets)
    swapped = [pair[::-1] for pair in PAIRS]
    np.testing.assert_allclose(found.predict(PAIRS), found.predict(swapped), atol=1e-5)
    assert -1 <= found.score(PAIRS, targets) <= 1
    with pytest.raises(InputError, match="this head says a number, which has no probability"):
        found.predict_proba(PAIRS)
    assert found.model is not None
    said = found.model.classify(*PAIRS[0])
    assert str(said) == f"{said.score:.3f}"
    assert said.to_dict() == {"texts": list(PAIRS[0]), "score": said.score}


def test_answers_are_chosen(base: str) -> None:
    """A context and answers, two or three of them; the probability of each."""
    examples = [
        (f"Lily {n}", ["to play", "the park"] if n % 2 else ["the park", "to play", "a time"])
        for n in range(16)
    ]
    right = [n % 2 for n in range(16)]
    found = gf.Classifier(base, task="choose", **QUICK).fit(examples, [0 if n % 2 else 1 for n in range(16)])
    assert found.score(examples, [1 - n for n in right]) >= 0.9
    assert found.model is not None
    said = found.model.classify("Lily 3", ["to play", "the park", "a time"])
    assert list(said.probabilities) == ["to play", "the park", "a time"]
    assert sum(said.probabilities.values()) == pytest.approx(1)
    assert said.label == said.texts[1 + (said.choice or 0)] == "to play"


def test_a_training_resumes_bit_by_bit(base: str, tmp_path: Path) -> None:
    """Stopped in the middle, it ends as if it had not been; blocks thaw at the same step."""
    data = written(tmp_path, TEXTS, LABELS)
    plan = recipe(base, data, unfreeze=0.5, layer_decay=2.0, dropout=0.1, save_every=3)
    whole = [one.loss for one in train(plan, tmp_path / "a") if isinstance(one, Stepped)]
    done: list[float] = []
    for event in train(plan, tmp_path / "b", stop=lambda: len(done) == 3):
        if isinstance(event, Stepped):
            done.append(event.loss)
    again = [one.loss for one in train(plan, tmp_path / "b") if isinstance(one, Stepped)]
    assert done + again == whole
    both = [load_folder(tmp_path / run / "model").model.state_dict() for run in "ab"]
    assert all(torch.equal(both[0][name], both[1][name]) for name in both[0])


def test_epochs_decide_the_steps(base: str, tmp_path: Path) -> None:
    """Every example twice."""
    data = written(tmp_path, TEXTS, LABELS)
    events = list(train(recipe(base, data, epochs=2.0, held_out=0.0), tmp_path / "run"))
    assert isinstance(events[-1], Finished)
    assert events[-1].step == 2 * 24 // 4


def test_a_class_that_is_only_held_out_is_a_class(base: str, tmp_path: Path) -> None:
    """The head knows it; a head cannot learn where nothing is left to learn from."""
    out = [text for text in TEXTS if held_apart([Example((text,))], 0.3)[1]]
    labels = ["mixed" if text == out[0] else label for text, label in zip(TEXTS, LABELS, strict=True)]
    plan = recipe(base, written(tmp_path, TEXTS, labels), steps=1, held_out=0.3)
    job = prepare_job(plan, tmp_path / "run", offline=True, progress=lambda *_: None)
    assert isinstance(job, Transfer)
    assert job.labels == ("act", "mixed", "place")
    two = recipe(base, written(tmp_path, [out[0], f" {out[0]}"], ["good", "bad"]), held_out=0.3)
    with pytest.raises(InputError, match="held_out: of 2 examples none is left to learn from"):
        prepare_job(two, tmp_path / "no", offline=True, progress=lambda *_: None)


def test_what_is_cut_is_reported(base: str, tmp_path: Path) -> None:
    """Before the first step, and on the card."""
    data = written(tmp_path, ["Lily " * 60, *TEXTS[1:]], LABELS)
    plan = recipe(base, data, steps=1, held_out=0.0, cut=True)
    events = train(plan, tmp_path / "run")
    assert Message("1 of 24 examples cut to the context") in list(events)
    assert "1 of 24 examples cut to the context" in (tmp_path / "run" / "model" / "card.md").read_text()


def test_sentences_in_the_place_of_labels_are_refused(base: str, tmp_path: Path) -> None:
    """Unless the column of the label was named."""
    data = written(tmp_path, ["gj04"] * 24, TEXTS)
    with pytest.raises(InputError, match="24 examples have 24 different labels, as 'Lily liked the park 0'"):
        prepare_job(recipe(base, data, held_out=0.0), tmp_path, offline=True, progress=lambda *_: None)
    named = recipe(base, data, held_out=0.0, label_column="label")
    assert prepare_job(named, tmp_path, offline=True, progress=lambda *_: None).sizes()[0]


def test_a_head_is_trained_further_for_the_same(fitted: gf.Classifier, base: str, tmp_path: Path) -> None:
    """Other labels, or another task, do not fit it."""
    fitted.save(tmp_path / "head")
    head = str(tmp_path / "head")
    events = list(train(recipe(head, written(tmp_path, TEXTS, LABELS)), tmp_path / "run"))
    assert isinstance(events[-1], Finished)
    assert load_folder(tmp_path / "run" / "model").model.vocab == 304
    (tmp_path / "other").mkdir()
    wrong = written(tmp_path / "other", TEXTS, ["place", "time"] * 12)
    with pytest.raises(InputError, match="the label 'time' is none of the head's: act, place"):
        list(train(recipe(head, wrong), tmp_path / "no"))
    with pytest.raises(InputError, match=r"task: the head of .* is there to classify, not to entail"):
        list(train(recipe(head, wrong, "entail"), tmp_path / "no"))
    plain = Recipe().changed(base=head, data=[str(wrong)])
    with pytest.raises(InputError, match="a model with a head is fine-tuned by a recipe of its own kind"):
        list(train(plain, tmp_path / "no"))
    with pytest.raises(InputError, match=r"task summarize: .* is no decoder but a"):
        list(train(plain.changed(task="summarize"), tmp_path / "no"))


def test_bad_input_is_one_sentence(base: str, tmp_path: Path, fitted: gf.Classifier) -> None:
    """One label, an empty text, a text that is too long, LoRA, a number of labels, nothing learned."""
    with pytest.raises(InputError, match="all 24 examples have the label 'x'"):
        gf.Classifier(base).fit(TEXTS, ["x"] * 24)
    with pytest.raises(InputError, match="example 2: the text is empty"):
        gf.Classifier(base).fit(["a", " "], ["x", "y"])
    with pytest.raises(
        InputError, match=r"example 2: \d+ tokens are \d+ more than the model's context of 48"
    ):
        gf.Classifier(base).fit(["a", "Lily " * 60], ["x", "y"])
    with pytest.raises(InputError, match="24 examples need as many labels, not 2"):
        gf.Classifier(base).fit(TEXTS, ["x", "y"])
    with pytest.raises(InputError, match="a folder of LoRA has no place for a head"):
        list(train(recipe(base, written(tmp_path, TEXTS, LABELS), rank=2), tmp_path / "no"))
    with pytest.raises(InputError, match="has learned nothing yet"):
        gf.Classifier(base).predict(["a"])
    with pytest.raises(InputError, match="to classify takes 1 text, not 2"):
        fitted.predict([("a", "b")])
    with pytest.raises(InputError, match=r"tokens are \d+ more than .*--cut"):
        fitted.predict(["Lily " * 60])
    assert fitted.model is not None
    assert fitted.model.classify("Lily " * 60, cut=True).label in LABELS


def test_only_decoders_take_a_head(tmp_path: Path) -> None:
    """A recurrent network has none to give."""
    net = small_net("rnn", vocab=300, pad=1)
    save_folder(tmp_path / "rnn", net, tokenizer=small_tokenizer(300))
    with pytest.raises(InputError, match=r"only a decoder \(GPT-1, 2, 3\) takes a head, and this is rnn"):
        gf.Classifier(str(tmp_path / "rnn")).fit(TEXTS, LABELS)


def test_saliency_of_a_class(fitted: gf.Classifier) -> None:
    """Shares of the text's tokens alone; the test takes away no token of the task."""
    assert fitted.model is not None
    assert fitted.model.tokenizer is not None
    said = fitted.model.classify(TEXTS[0])
    found = said.saliency()
    assert found.target_words == [said.label]
    assert found.tokens[0] == "<|start|>"
    assert found.tokens[-1] == "<|extract|>"
    np.testing.assert_array_equal(found.shares[0, [0, -1]], 0)
    assert np.abs(found.shares).sum() == pytest.approx(1)
    assert found.curves is not None
    assert found.curves.deletion[0, 0] == pytest.approx(said.probability, abs=1e-5)
    assert found.curves.insertion[0, -1] == pytest.approx(said.probability, abs=1e-5)
    # With the whole text blank, start and extract are still there.
    (row,) = fitted.model.rows(TEXTS[0])
    blank = torch.tensor([[row[0], *[fitted.model.tokenizer.end] * (len(row) - 2), row[-1]]])
    left = fitted.model.net(blank)[0, -1].softmax(-1)[fitted.model.labels.index(said.label)].item()
    assert found.curves.deletion[0, -1] == pytest.approx(left, abs=1e-5)
    assert found.curves.insertion[0, 0] == pytest.approx(left, abs=1e-5)
    other = next(label for label in fitted.model.labels if label != said.label)
    assert said.saliency(other, tested=False).target_words == [other]
    with pytest.raises(InputError, match="label 'time' is none of the head's: act, place"):
        said.saliency("time")


def test_saliency_is_the_gradient(fitted: gf.Classifier) -> None:
    """Gradient × input of the logit, by autograd through the model itself."""
    assert fitted.model is not None
    model = fitted.model
    said = model.classify(TEXTS[1])
    (row,) = model.rows(TEXTS[1])
    vectors = model.net.tokens.weight[row].detach().requires_grad_()
    x = model.net.drop((vectors + model.net.positions.weight[: len(row)])[None])
    for block in model.net.blocks:
        x = block(x, None, None)
    model.net.head(model.net.norm(x))[0, -1, model.labels.index(said.label)].backward()
    right = (vectors.grad * vectors.detach()).norm(dim=-1).numpy()
    right[[0, -1]] = 0
    np.testing.assert_allclose(said.saliency(tested=False).scores[0], right, rtol=1e-3, atol=1e-6)


def test_a_model_is_measured_by_its_task(fitted: gf.Classifier) -> None:
    """Two classes: accuracy and Matthews' correlation."""
    assert fitted.model is not None
    examples = [Example((text,), label) for text, label in zip(TEXTS, LABELS, strict=True)]
    figures = {one.name: one.score for one in evaluate_examples(fitted.model, examples)}
    assert figures.keys() == {"accuracy", "matthews"}
    assert figures["accuracy"] == fitted.score(TEXTS, LABELS)


def test_a_new_model_learns_too(tmp_path: Path) -> None:
    """Without a base: a vocabulary of its own, and sizes as given."""
    sizes = {"layers": 1, "heads": 2, "width": 16, "context": 32, "vocab": 280}
    found = gf.Classifier("", out=tmp_path / "run", **QUICK | {"epochs": 1.0}, **sizes).fit(TEXTS, LABELS)
    assert isinstance(found.model, TextClassifier)
    assert found.model.net.config.layers == 1
    assert (
        "to classify: `examples.jsonl`: 24 examples to learn from"
        in (tmp_path / "run/model/card.md").read_text()
    )

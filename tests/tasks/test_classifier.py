"""The classifier as scikit-learn's users know it: labels come back as given, and settings stay as they are."""

from typing import Any

import numpy as np
import pytest
from small import small_net, small_tokenizer

import glassformer as gf
from glassformer.errors import InputError
from glassformer.hub.folder import save_folder

TEXTS = [f"Lily liked {('the park', 'to play')[n % 2]} {n}" for n in range(24)]
QUICK: dict[str, Any] = {"epochs": 6.0, "batch": 8, "lr": 0.01, "warmup": 0}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A language model of two blocks."""
    folder = tmp_path_factory.mktemp("base") / "lm"
    save_folder(folder, small_net("gpt2", vocab=300, context=48), tokenizer=small_tokenizer(300))
    return str(folder)


@pytest.fixture(scope="module")
def fitted(base: str) -> gf.Classifier:
    """With whole numbers as labels, of which the larger is the first as a text."""
    return gf.Classifier(base, **QUICK).fit(TEXTS, [10, 2] * 12)


def test_labels_come_back_as_they_were_given(fitted: gf.Classifier) -> None:
    """Numbers, in the order of numbers; a column of probabilities for each."""
    right = np.array([10, 2] * 12)
    said = fitted.predict(TEXTS)
    assert fitted.classes_.tolist() == [2, 10]
    assert said.dtype == right.dtype
    assert (said == right).mean() == fitted.score(TEXTS, right) >= 0.9
    assert (fitted.classes_[fitted.predict_proba(TEXTS).argmax(1)] == said).all()
    assert fitted.score(TEXTS, right.astype(float)) == fitted.score(TEXTS, right)
    assert fitted.score(TEXTS, [7] * 24) == 0  # a class of other examples is not learned, which is no fault


@pytest.mark.parametrize("labels", [[True, False] * 6, ["yes", "no"] * 6, [1.0, 2.5] * 6])
def test_any_kind_of_label(base: str, labels: list[Any]) -> None:
    """Truth values, texts and numbers."""
    found = gf.Classifier(base, **QUICK | {"epochs": 1.0}).fit(TEXTS[:12], labels)
    said = found.predict(TEXTS[:12]).tolist()
    assert {type(label) for label in said} == {type(labels[0])}
    assert found.classes_.tolist() == sorted(set(labels))
    assert found.score(TEXTS[:12], labels) == np.mean(np.array(said) == labels)


def test_cross_validation(base: str) -> None:
    """scikit-learn splits the examples, fits a copy to each part, and scores it by the rest."""
    from sklearn.base import is_classifier
    from sklearn.model_selection import cross_val_score

    classifier = gf.Classifier(base, **QUICK | {"epochs": 1.0})
    assert is_classifier(classifier)
    found = cross_val_score(classifier, TEXTS, [1, 0] * 12, cv=2, error_score="raise")
    assert found.shape == (2,)
    assert ((found >= 0) & (found <= 1)).all()


def test_fit_changes_no_setting(base: str) -> None:
    """A batch for few examples is not that of many."""
    classifier = gf.Classifier(base, epochs=1.0)
    before = classifier.get_params()
    classifier.fit(TEXTS[:4], [1, 0, 1, 0])
    assert classifier.get_params() == before


def test_what_is_no_list_of_examples_is_refused(fitted: gf.Classifier, base: str) -> None:
    """No examples, a single text, labels of another number, and a label that is neither text nor number."""
    with pytest.raises(InputError, match="there is no example to learn from: fit takes a list of texts"):
        gf.Classifier(base).fit([], [])
    assert fitted.predict([]).shape == (0,)
    one: Any = "a lovely thing"
    for ask in (fitted.predict, fitted.predict_proba, lambda text: fitted.score(text, [2])):
        with pytest.raises(InputError, match="a list of texts is needed, not the single text 'a lovely"):
            ask(one)
    with pytest.raises(InputError, match="2 examples need as many labels, not 1"):
        fitted.score(TEXTS[:2], [2])
    with pytest.raises(InputError, match="a label is a text or a number, not 'None'"):
        fitted.score(TEXTS[:2], [2, None])


def test_probabilities_of_answers_need_as_many_for_each(base: str) -> None:
    """Two answers and three are no array."""
    examples = [(f"Lily {n}", ["to play", "the park", "a time"][: 2 + n % 2]) for n in range(8)]
    found = gf.Classifier(base, task="choose", **QUICK | {"epochs": 1.0}).fit(examples, [0, 1] * 4)
    assert found.predict_proba(examples[::2]).shape == (4, 2)
    with pytest.raises(InputError, match="every example needs as many answers, and these have 2 to 3"):
        found.predict_proba(examples)

"""Every question is answered for every family that has what it needs: norms before or after, bands, words that end with </w>."""

import json

import numpy as np
import pytest
from every import Swept, every
from small import TEXT
from test_contract import MODELS, TEXTS, make

from glassformer.answers import QUESTIONS
from glassformer.answers.answer import Answer, Text
from glassformer.answers.attention import Attention, Heads
from glassformer.answers.lens import Attribution
from glassformer.hub.families import family
from glassformer.tasks.complete import LanguageModel

PROMPT = "once upon a time, there was a little girl"
NEEDED = frozenset().union(*(question.needs for question in QUESTIONS.values())) - {
    "layers",
    "neurons",
    "source",
    "recurrent",
    "composes",
}


# Those that continue a text: a model that reads a source, or music, is asked in a test of its own.
WRITES = [kind for kind in MODELS if kind not in TEXTS]
KINDS = [kind for kind in WRITES if "source" not in make(kind).capabilities >= NEEDED]


@pytest.fixture(scope="module", params=KINDS)
def lm(request: pytest.FixtureRequest) -> LanguageModel:
    tokenizer = family(request.param).train_tokenizer([TEXT.lower()], 300)
    net = make(request.param, vocab=len(tokenizer), context=64)
    return LanguageModel(net, tokenizer, name=request.param)


@pytest.fixture(scope="module")
def answers(lm: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    swept = Swept([3, 4, 5, 6], [3, 9, 5, 6], answer=7, foil=8)
    return every(lm, PROMPT, tmp_path_factory.mktemp("family"), swept=swept)


def test_every_question_is_answered(answers: dict[str, Answer]) -> None:
    """With data, a table, every drawing and a sentence."""
    for kind, found in answers.items():
        json.dumps(found.to_dict(), allow_nan=False)
        assert found.rows, kind
        assert found.sentence().endswith("."), kind
        for name in found.views:
            assert found.view(name).to_svg().startswith("<svg"), (kind, name)


def test_labels_make_the_text(lm: LanguageModel) -> None:
    """Also where the blank between two words belongs to the later token."""
    text = Text(lm, lm.encode(PROMPT))
    assert "".join(text.labels) == text.whole == lm.text_of(text.ids)
    _, words = text.words()
    assert "".join(words) == text.whole
    assert len(text.positions("girl")) == len(text.positions(" girl")) >= 1


def test_what_a_layer_does_not_see_is_not_shown(answers: dict[str, Answer]) -> None:
    """Masked is what the model masks: what lies ahead, and in a band what lies too far behind."""
    heads, one = answers["heads"], answers["attention"]
    assert isinstance(heads, Heads)
    assert isinstance(one, Attention)
    assert not heads.patterns[~np.broadcast_to(heads.visible[:, None], heads.patterns.shape)].any()
    assert (one.visible == heads.visible[1]).all()
    drawn = np.array([[value is None for value in row] for row in one.view().spec["values"]])
    assert (drawn == ~one.visible).all()


def test_the_parts_of_a_logit_add_up(answers: dict[str, Answer]) -> None:
    """Wherever the norms are."""
    found = answers["attribution"]
    assert isinstance(found, Attribution)
    assert found.values.sum() == pytest.approx(found.logit, abs=1e-3)

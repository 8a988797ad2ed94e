"""Questions in words: the numbers of `explain`, with the right names on them."""

import csv
import io
import json
from typing import Any

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.errors import InputError
from glassformer.explain import attention as attending
from glassformer.tasks import look, neurons, questions, surgery
from glassformer.tasks.complete import LanguageModel

TEXT = "The cat sat on the mat. The cat sat on the"


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return gf.load("storyteller")


@pytest.fixture(scope="module")
def ids(lm: LanguageModel) -> list[int]:
    return lm.encode(TEXT)


def answers(lm: LanguageModel, ids: list[int]) -> dict[str, look.Look]:
    written = lm.generate(TEXT, max_new_tokens=2, temperature=0)
    return {
        "robot": questions.robot(),
        "heads": questions.heads(lm, ids),
        "search": questions.search(lm, ids, "sat", "cat"),
        "attention": questions.pattern(lm, ids, 1, 2),
        "steps": questions.steps(lm, ids, 1, 2, 5),
        "lens": questions.lens(lm, ids, watch=[" mat"]),
        "saliency": questions.why(lm, written),
        "neurons": neurons.neurons(lm, ids, [0]),
        "factors": neurons.neurons(lm, ids, [0]).nmf(2),
        "diff": questions.compare(lm, lm, TEXT),
        "rankings": written.rankings(),
        "watched": written.rankings_watch([" mat", " dog"]),
        "parts": written.parts(1, foil=" dog"),
        "cache": written.cache(),
        "clusters": written.neurons([1]).clusters(3),
        "pushes": neurons.pushes(lm, 1, 17),
        "passages": neurons.passages(lm, [TEXT, "", "A dog ran."], 1, 17),
        "edit": surgery.operate(lm, TEXT, [{"site": "blocks.0.mlp", "do": "zero"}], max_new_tokens=2),
        "sweep": surgery.trace_back(lm, "The girl lost", "The boy lost", " her", " his"),
    }


def test_every_answer_is_data_and_a_table(lm: LanguageModel, ids: list[int]) -> None:
    """JSON without NaN or infinity, CSV with a cell a column, and a caption that names the model."""
    for kind, found in answers(lm, ids).items():
        assert found.kind == kind
        assert kind == "robot" or "storyteller" in found.caption
        again = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert again["tokens"] == found.tokens
        table = list(csv.reader(io.StringIO(found.to_csv())))
        columns, rows = found.every or (found.columns, found.rows)
        assert table[0] == columns
        assert len(set(columns)) == len(columns)
        assert len(table) == len(rows) + 1 > 1
        assert {len(row) for row in table} == {len(columns)}


def test_a_file_has_all_of_it(lm: LanguageModel, ids: list[int]) -> None:
    """A table may be a choice; its CSV is not: every source of every token, and none that lies ahead is named."""
    found = questions.pattern(lm, ids, 1, 0)
    rows = list(csv.reader(io.StringIO(found.to_csv())))[1:]
    np.testing.assert_allclose([[float(cell) for cell in row[2:]] for row in rows], found.numbers)
    assert [row[2::2].count("") for row in found.rows[:3]] == [2, 1, 0]
    out = lm.generate("The cat sat on", max_new_tokens=2, temperature=0)
    why = out.saliency(tested=False)
    shares = list(csv.DictReader(io.StringIO(why.to_csv())))
    assert len(shares) == len(out.prompt_tokens) * 2 + 1
    first = [abs(float(row["share"])) for row in shares if row["position"] == shares[0]["position"]]
    assert sum(first) == pytest.approx(1, abs=1e-5)
    assert {why.tokens[int(row["position"])] for row in shares} == {row["token"] for row in shares}


def test_the_search_finds_the_head_that_looks_most(lm: LanguageModel, ids: list[int]) -> None:
    """From every place of a word to every place of another."""
    names = [lm.piece(id).strip() for id in ids]
    queries = [at for at, name in enumerate(names) if name == "sat"]
    sources = [at for at, name in enumerate(names) if name == "cat"]
    given = attending.patterns(lm.model, ids)[:, :, queries][..., sources].sum(-1).mean(-1)
    layer, head, weight = questions.search(lm, ids, "sat", " cat").rows[0]
    assert weight == pytest.approx(given.max())
    assert given[layer, head] == given.max()


def test_words_instead_of_tokens(lm: LanguageModel) -> None:
    """What a word gives is the mean over its tokens, what it gets is their sum: rows still add up to 1."""
    text = "The unbelievable zebra was unbelievable"
    ids = lm.encode(text)
    tokens, joined = (questions.pattern(lm, ids, 1, 0, by_word=by_word) for by_word in (False, True))
    assert joined.tokens == ["The", " unbelievable", " zebra", " was", " unbelievable"]
    assert len(tokens.tokens) == len(ids) > 5
    np.testing.assert_allclose(joined.numbers.sum(-1), 1, rtol=1e-5)
    assert joined.numbers[0, 0] == pytest.approx(1.0)


def test_half_characters_are_bytes(lm: LanguageModel) -> None:
    """Not a question mark."""
    shown = look.labels(lm, lm.encode("猫"))
    assert all("\ufffd" not in one for one in shown)
    assert "".join(shown) == "\\xe7\\x8c\\xab"


def test_why_explains_what_was_written(lm: LanguageModel) -> None:
    """A row of shares for every written token, on all that stood before it; the last token explains nothing."""
    written = lm.generate("Once upon a time", max_new_tokens=3, temperature=0)
    found = questions.why(lm, written, tested=False)
    shares = found.numbers["shares"]
    assert shares.shape == (3, len(written.prompt_tokens) + 2)
    assert [target.token for target in found.numbers["saliency"].targets] == written.tokens
    embedded = lm.model.tokens(torch.tensor([written.prompt_tokens])).detach().requires_grad_()
    with gf.trace(lm.model, edits={"embed": lambda x: embedded + lm.model.positions.weight[: x.shape[1]]}):
        logit = lm.model(torch.tensor([written.prompt_tokens]))[0, -1, written.tokens[0]]
    logit.backward()
    assert embedded.grad is not None
    right = (embedded.grad * embedded)[0].norm(dim=-1).detach().numpy()
    np.testing.assert_allclose(shares[0, : len(right)], right / right.sum(), rtol=1e-4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda lm, ids: questions.lens(lm, ids, watch=["unbelievable"]),
            "'unbelievable' is not one token but '",
        ),
        (lambda lm, ids: questions.lens(lm, ids, watch=[""]), "an empty text is no token"),
        (
            lambda lm, ids: questions.search(lm, ids, "dog", "cat"),
            "the word 'dog' is not in the text; its words are The cat sat",
        ),
        (
            lambda lm, ids: questions.search(lm, ids, "0", "5"),
            "'5' stands behind '0'; attention only looks back",
        ),
        (lambda lm, ids: questions.search(lm, ids, "99", "5"), "position 99 is not there"),
        (lambda lm, ids: questions.pattern(lm, ids, 0, 77), "head 77 is not there"),
        (lambda lm, ids: neurons.neurons(lm, ids).nmf(99), "factors must be between 1 and the"),
        (lambda lm, ids: questions.heads(lm, []), "the text is empty"),
    ],
)
def test_what_is_not_there(lm: LanguageModel, ids: list[int], call: Any, words: str) -> None:
    """One sentence each."""
    with pytest.raises(InputError, match=words):
        call(lm, ids)

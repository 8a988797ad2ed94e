"""Beam search as a tree: every number from scores that are computed anew, and the drawing."""

import numpy as np
import pytest
import torch
from small import small_model, small_tokenizer
from translators import small_translator

from glassformer.answers.beams import Beams
from glassformer.figures.trees import Tree
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.translated import Translated

SOURCE = "She liked to play."


@pytest.fixture(scope="module")
def out() -> Translated:
    return small_translator(seed=2).translate(SOURCE, to="fr", num_beams=2, max_new_tokens=5)


@pytest.fixture(scope="module")
def found(out: Translated) -> Beams:
    return out.beams(max_new_tokens=5)


def logprobs(out: Translated, tokens: list[int]) -> np.ndarray:
    """Of every token behind these; the pad token has none."""
    net = out.model.net
    with torch.no_grad():
        logits = net(torch.tensor([out.source_tokens]), torch.tensor([[net.config.start, *tokens]]))[0, -1]
    found: np.ndarray = logits.log_softmax(-1).numpy().copy()
    found[net.config.pad] = -np.inf
    return found


def tokens_to(found: Beams, at: int) -> list[int]:
    return [found.nodes[one].token for one in found.way(at)]


def test_the_best_is_the_translation(out: Translated, found: Beams) -> None:
    """The same tokens and the same score as the search itself finds."""
    best = found.nodes[found.best]
    assert tokens_to(found, found.best) == out.tokens
    assert best.score == pytest.approx(out.score)
    assert best.score == max(node.score for node in found.nodes if node.score is not None)
    assert [node.fate for node in found.nodes].count("best") == 1
    assert "".join(found.tokens) == out.text


def test_every_step_is_what_the_scores_say(out: Translated, found: Beams) -> None:
    """The candidates of a step are the best of all ways to continue the two that were kept before."""
    kept: list[tuple[float, list[int]]] = [(0.0, [])]
    for step in range(1, 6):
        every = []
        for total, before in kept:
            scores = total + logprobs(out, before)
            every += [(float(scores[token]), [*before, token]) for token in range(len(scores))]
        every.sort(key=lambda one: -one[0])
        nodes = [(at, node) for at, node in enumerate(found.nodes) if node.step == step]
        assert len(nodes) == 4
        for (at, node), (total, tokens) in zip(nodes, every, strict=False):
            assert tokens_to(found, at) == tokens
            assert node.total == pytest.approx(total, abs=1e-4)
            before = 0.0 if node.parent is None else found.nodes[node.parent].total
            assert node.logprob == pytest.approx(total - before, abs=1e-4)
        fates = [node.fate for _, node in nodes]
        if step < 5:
            assert fates == ["kept", "kept", "dropped", "dropped"]
        else:
            assert sorted(fates[:2]) == ["best", "finished"]
        kept = every[:2]


def test_a_hypothesis_that_ends_has_a_score(out: Translated) -> None:
    """The sum of its log-probabilities by its length, the end token included; nothing continues it."""
    model = out.model
    with torch.no_grad():
        model.net.head.weight[min(model.ends)] *= 1.5
    try:
        found = out.beams(max_new_tokens=5, length_penalty=2.0)
    finally:
        with torch.no_grad():
            model.net.head.weight[min(model.ends)] /= 1.5
    parents = {node.parent for node in found.nodes}
    for at, node in enumerate(found.nodes):
        if node.score is not None:
            assert node.score == pytest.approx(node.total / node.step**2)
            assert node.fate in ("finished", "best")
            assert at not in parents


def test_the_picture_marks_the_best_way(found: Beams) -> None:
    """Dropped ones have no color; a tree of many leaves them out."""
    spec = found.view().spec
    assert [node["marked"] for node in spec["nodes"]] == [
        at in found.way(found.best) for at in range(len(found.nodes))
    ]
    for node, drawn in zip(found.nodes, spec["nodes"], strict=True):
        assert (drawn["value"] is None) == (node.fate == "dropped")
        assert drawn["parent"] == node.parent
    wide, narrow = (found.view().to_marks(width=width) for width in (960.0, 200.0))
    assert wide["width"] > 200 >= narrow["width"]
    text = found.view().to_text(60, color=False)
    assert text.count("●") == 1
    assert "score" in text


def test_the_lines_of_a_tree() -> None:
    """A line goes on through first children; others branch off, the late ones first."""
    parents = [None, None, 0, 0, 2, 2, 3]
    grown = Tree([{"parent": parent} for parent in parents])
    assert grown.lines() == [[0, 2, 4], [5], [3, 6], [1]]
    assert grown.depth == [0, 0, 1, 1, 2, 2, 2]


def test_a_language_model_is_asked_too() -> None:
    """Behind a prompt, without a source."""
    tokenizer = small_tokenizer()
    lm = LanguageModel(small_model(1, vocab=300), tokenizer, name="small")
    out = lm.generate("Once upon", max_new_tokens=3, num_beams=3, seed=0)
    found = out.beams(3)
    assert tokens_to(found, found.best) == out.tokens
    assert found.num_beams == 3

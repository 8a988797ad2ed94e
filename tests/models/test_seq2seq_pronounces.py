"""A trained recurrent encoder-decoder that others made: the one in `g2p_en`, which spells words as phonemes."""

import gc
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from glassformer.generation.decode import generate
from glassformer.generation.options import Options
from glassformer.hub.locate import locate
from glassformer.hub.vocabulary import load_tokenizer
from glassformer.models.seq2seq import Config, Seq2Seq

START, END = 2, 3  # of the phonemes
FOUND = find_spec("g2p_en")
pytestmark = pytest.mark.skipif(FOUND is None, reason="g2p_en is not installed, whose weights this test runs")


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Its own NumPy code. It downloads dictionaries when imported, which its network does not need."""
    for name in ("nltk", "nltk.corpus", "nltk.tokenize", "inflect"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    for name in ("g2p_en", "g2p_en.g2p", "g2p_en.expand"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves files open
        made = import_module("g2p_en.g2p").G2p()
        gc.collect()
    return made


@pytest.fixture(scope="module")
def ours() -> Seq2Seq:
    """The same weights in a model of ours: a GRU whose decoder gets the last state alone."""
    assert FOUND is not None
    assert FOUND.origin is not None
    stored = np.load(Path(FOUND.origin).parent / "checkpoint20.npz")  # not a pickle
    config = Config(cell="gru", reads="last", width=256, vocab=74, source_vocab=29, pad=0, start=START)
    names = {"source_tokens.weight": "enc_emb", "tokens.weight": "dec_emb"}
    names |= {"head.weight": "fc_w", "head.bias": "fc_b"}
    for side, cell in (("enc", "encoder.forwards.0"), ("dec", "decoder.cells.0")):
        for part, short in (("input", "ih"), ("hidden", "hh")):
            names |= {f"{cell}.{part}.{leaf}": f"{side}_{leaf[0]}_{short}" for leaf in ("weight", "bias")}
    net = Seq2Seq(config)
    net.load_state_dict({name: torch.from_numpy(stored[theirs]) for name, theirs in names.items()})
    return net.eval()


def words() -> list[str]:
    """A thousand words: the longest tokens of a vocabulary."""
    tokenizer = load_tokenizer(locate("storyteller"))
    assert tokenizer is not None
    tokens = {tokenizer.decode([id]).strip() for id in range(len(tokenizer))}
    found = [token for token in tokens if token.isascii() and token.isalpha() and token.islower()]
    return sorted(found, key=lambda word: (-len(word), word))[:1000]


def test_a_thousand_words_are_pronounced_as_there(theirs: Any, ours: Seq2Seq) -> None:
    """Phoneme for phoneme, all words in one batch."""
    asked = words()
    assert len(asked) == 1000
    sources = [[theirs.g2idx[letter] for letter in word] + [theirs.g2idx["</s>"]] for word in asked]
    predicted: list[list[str]] = [[] for _ in asked]
    options = Options(do_sample=False, max_new_tokens=20)
    for event in generate(ours.given(sources), [[START]] * len(asked), options=options, ends=[END]):
        if event.token is not None:
            predicted[event.prompt].append(theirs.idx2p[event.token])
    assert predicted == [theirs.predict(word) for word in asked]
    assert ("".join(predicted[asked.index("beautiful")])) == "BYUW1TAH0FAH0L"


def test_another_weight_pronounces_otherwise(theirs: Any, ours: Seq2Seq) -> None:
    """The comparison above would see a model whose gates are exchanged."""
    weight = ours.encoder.get_parameter("forwards.0.hidden.weight")
    exchanged = torch.cat([weight[256:512], weight[:256], weight[512:]])
    source = [[theirs.g2idx[letter] for letter in "beautiful"] + [theirs.g2idx["</s>"]]]
    target = torch.tensor([[START]])
    right = ours(torch.tensor(source), target)
    with torch.no_grad():
        kept = weight.clone()
        weight.copy_(exchanged)
        wrong = ours(torch.tensor(source), target)
        weight.copy_(kept)
    assert (right - wrong).abs().max() > 0.1

"""Loading: which handle a model gets follows from its capabilities, and what it lacks is reported."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import small_model, small_tokenizer
from toys import Encoder, Translating, add_family, toy_folder

import glassformer as gf
from glassformer.errors import InputError, warnings_to
from glassformer.generation.decode import generate
from glassformer.generation.options import Options
from glassformer.hub.folder import save_folder
from glassformer.tasks import translate
from glassformer.tasks.complete import LanguageModel
from glassformer.tasks.load import HANDLES, handle_for
from glassformer.tasks.model import Model

GREEDY = Options(temperature=0.0, max_new_tokens=8)


class Translator(Model):
    """A handle as a new family brings it: the source is bound, then the stepper of the model generates."""

    task = "translate"

    def translate(self, source: str, **how: Any) -> list[int]:
        """The tokens behind a source."""
        backend = self._torch_backend(self.net.given(self.encode(source)), **how)
        events = generate(backend, [[0]], options=GREEDY, ends=self.ends)
        return [event.token for event in events if event.token is not None]


def test_a_model_that_writes_is_a_language_model(tmp_path: Path) -> None:
    """By either engine; the class follows from the capabilities."""
    save_folder(tmp_path / "m", small_model(vocab=300), tokenizer=small_tokenizer())
    for engine in ("auto", "torch"):
        assert type(gf.load(str(tmp_path / "m"), engine=engine)) is LanguageModel
    assert handle_for(frozenset({"writes", "recurrent"})) is LanguageModel
    assert handle_for(frozenset({"writes", "source"})) is translate.Translator
    assert handle_for(frozenset({"encodes", "source"})) is Model


def test_a_model_that_only_reads_answers_what_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a plain handle: what needs no generation is answered, and what it lacks is reported in a sentence."""
    add_family(monkeypatch, Encoder)
    messages: list[str] = []
    with warnings_to(messages.append):
        lm: Model = gf.load(toy_folder(tmp_path / "toy", Encoder))
    assert type(lm) is Model
    assert len(messages) <= 1  # that torch is used, where there is a native engine
    assert lm.tokens("the park").ids == lm.encode("the park")
    assert len(lm.merges("the park").words) == 2
    assert lm.embedding("the park").sum.shape == (len(lm.encode("the park")), 24)
    files = [tmp_path / "a.txt"]
    files[0].write_text("She liked to play outside in the park.")
    assert lm.examples([*files, "Once upon a time"], layer=1, neuron=3, k=9).examples
    assert lm.training_rows("the park").rows
    with pytest.raises(InputError, match=r"promotes: .*toy does not predict the next token"):
        lm.promotes(1, 3)
    with pytest.raises(
        InputError, match=r"toy cannot continue a text; its capabilities are: attends, encodes"
    ):
        lm.expect(LanguageModel)
    with pytest.raises(InputError, match="cannot continue a text"):
        gf.generate("the", model=lm.name, engine="torch")


def test_a_new_handle_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that reads a source: its handle generates behind it, with edits, as GPT does behind both texts."""
    add_family(monkeypatch, Translating)
    folder = toy_folder(tmp_path / "toy", Translating)
    monkeypatch.setitem(HANDLES, frozenset({"writes", "source"}), f"{__name__}.Translator")
    found = gf.load(folder, engine="torch").expect(Translator)

    source = "a little girl"
    whole = LanguageModel(found.net, found.tokenizer)
    behind = [*found.encode(source), 0]
    right = whole.generate(behind, max_new_tokens=8, temperature=0).tokens
    assert found.translate(source) == right != found.translate("the park")

    off = [{"site": "blocks.*.attn", "do": "zero"}]
    with found.edit(off):
        edited = found.translate(source)
    with whole.edit(off):
        assert edited == whole.generate(behind, max_new_tokens=8, temperature=0).tokens != right
    assert found.translate(source) == right

    bound = found._torch_backend(found.net.given(behind[:2]))
    every = bound.logits(np.array([behind[2:]]))
    np.testing.assert_allclose(every[0], whole.logits(behind)[2:], rtol=1e-5, atol=1e-5)


def test_a_folder_without_a_vocabulary(tmp_path: Path) -> None:
    """Both remedies that the message names: token ids in Python, and a tokenizer.json in the folder."""
    tokenizer = small_tokenizer()
    save_folder(tmp_path / "bare", small_model(vocab=len(tokenizer)))
    lm = gf.load(str(tmp_path / "bare"))
    with pytest.raises(InputError, match=r"bare has no vocabulary: put its tokenizer\.json into its folder"):
        lm.generate("The cat")
    ids = tokenizer.encode("The cat")
    alone = lm.generate(ids, max_new_tokens=3, temperature=0)
    (tmp_path / "bare" / "tokenizer.json").write_text(tokenizer.to_json())
    again = gf.load(str(tmp_path / "bare")).generate("The cat", max_new_tokens=3, temperature=0)
    assert again.tokens == alone.tokens


@pytest.mark.parametrize("dtype", ["float64", "fp64", torch.float64])
def test_names_of_a_dtype(tmp_path: Path, dtype: Any) -> None:
    """As torch has it, by its name or its short name."""
    save_folder(tmp_path / "small", small_model())
    assert gf.load(str(tmp_path / "small"), dtype=dtype).net.tokens.weight.dtype is torch.float64

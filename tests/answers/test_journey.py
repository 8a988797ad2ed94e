"""Journey: one written token through encoder and decoder."""

import numpy as np
import pytest
import torch
from translators import small_translator

from glassformer.answers.answer import labels
from glassformer.errors import InputError
from glassformer.tasks.translated import Translated
from glassformer.trace import trace


@pytest.fixture(scope="module")
def out() -> Translated:
    translator = small_translator(seed=4, decoder_layers=3)
    return translator.translate("She liked to play.", to="fr", max_new_tokens=5)


def test_every_stage_is_that_of_a_run(out: Translated) -> None:
    """Norms, changes, attention and predictions, from the values that a trace sees."""
    found, net = out.journey(2), out.model.net
    with torch.no_grad(), trace(net) as seen:
        net(torch.tensor([out.source_tokens]), torch.tensor([[net.config.start, *out.tokens]]))
    cross = torch.stack([seen[f"decoder.blocks.{layer}.cross.pattern"][0, :, 2] for layer in range(3)])
    source = int(cross.mean((0, 1)).argmax())
    assert found.stages[0] == "encoder.embed"
    assert found.stages[-1] == "decoder.blocks.2.out"
    assert len(found.stages) == (1 + 2 * 2) + (1 + 3 * 3)

    before = None
    for n, (stack, stage) in enumerate(zip(found.stacks, found.stages, strict=True)):
        at = source if stack == "encoder" else 2
        vector = seen[stage][0, at]
        assert found.norm[n] == pytest.approx(float(vector.norm()))
        if stage.endswith("embed"):
            before = torch.zeros_like(vector)
        assert found.added[n] == pytest.approx(float((vector - before).norm()))
        before = vector
        part = {"mid": "attn", "mid2": "cross"}.get(stage.rpartition(".")[2])
        if part is None:
            assert found.attends[n] == ""
        else:
            pattern = seen[f"{stage.rpartition('.')[0]}.{part}.pattern"][0, :, at].mean(0)
            assert found.weight[n] == pytest.approx(float(pattern.max()))
        if stack == "decoder":
            scores = net.unembed(vector).detach().softmax(-1)
            assert found.probability[n] == pytest.approx(float(scores.max()))
        else:
            assert np.isnan(found.probability[n])
    assert labels(out.model.tokenizer, [int(seen["logits"][0, 2].argmax())]) == found.likeliest[-1:]


def test_the_drawing_and_the_sentence(out: Translated) -> None:
    """The decoder above the encoder, which writes nothing."""
    found = out.journey()
    decoder, encoder = found.view().spec["panels"]
    assert (decoder["title"], encoder["title"]) == ("decoder", "encoder")
    assert (len(decoder["columns"]), len(encoder["columns"])) == (6, 4)
    assert decoder["rows"][0] == "2.out"
    since = next(n for n in range(5, 15) if len(set(found.likeliest[n:])) == 1)
    assert f"from {found.stages[since]} on" in found.sentence()


def test_which_cannot_be_followed(out: Translated) -> None:
    """A token that was not written, and a model without layers."""
    with pytest.raises(InputError, match=r"number 5 is out of range \(0 to 4\)"):
        out.journey(5)
    recurrent = small_translator("seq2seq").translate("She", to="fr", max_new_tokens=1)
    with pytest.raises(InputError, match="journey: small seq2seq has no"):
        recurrent.journey()

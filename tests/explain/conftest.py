"""What the tests of explanations share."""

import pytest
import torch
from small import Pair, hugging_face, save_hugging_face

from glassformer.hub.folder import load_folder


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """One model in two implementations, in float64."""
    theirs = hugging_face(3)
    ours = load_folder(save_hugging_face(theirs, tmp_path_factory.mktemp("pair"))).model
    return Pair(ours.double(), theirs.double(), [5, 17, 5, 17, 60, 5, 2, 96, 0, 17, 60, 31])


@pytest.fixture(scope="module")
def words(pair: Pair) -> torch.Tensor:
    """The token vectors of the text, by the other implementation."""
    return pair.theirs.transformer.wte(torch.tensor([pair.ids])).detach().requires_grad_()

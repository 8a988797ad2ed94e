"""What a decoder reads in training: equal to a direct computation, token by token, in NumPy and float64."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from mutants import mutated
from oracles import seq2seq, sigmoid, transformer
from small import shake
from torch import Tensor

from glassformer.models.seq2seq import Config as RecurrentConfig
from glassformer.models.seq2seq import Seq2Seq
from glassformer.models.transformer import Config as TransformerConfig
from glassformer.models.transformer import Transformer
from glassformer.training import forcing
from glassformer.training.objectives import target_token

FILE = "training/forcing.py"
PAD, START = 0, 1
SOURCES = [[5, 7, 2], [9, 3, 4]]
TARGETS = [[1, 6, 8, 3, 9, 2], [1, 12, 4, 2]]  # they begin with START
OWN = [[False, True, False, True, True], [False, False, True, False, False]]
WEIGHT = 0.7
SIZES = {"vocab": 13, "pad": PAD, "start": START}


def make(kind: str, module: Any = forcing) -> Any:
    """A small model in float64 whose every number is random; with a discriminator if it is recurrent."""
    model: Any
    if kind == "seq2seq":
        model = Seq2Seq(RecurrentConfig(width=6, token_width=5, reads="mean", **SIZES)).initialize(1)
        model.add_module("discriminator", module.Discriminator(6).initialize(3))
    else:
        config = TransformerConfig(layers=1, heads=2, width=8, context=16, dropout=0.0, tied=False, **SIZES)
        model = Transformer(config).initialize(0)
    shake(model, 2)
    with torch.no_grad():
        model.tokens.weight.mul_(8)  # what the model reads decides what it writes
    return model.double().train()


def batch() -> dict[str, Tensor]:
    """Two pairs, the second one padded."""
    longest = max(map(len, TARGETS))
    target = torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in TARGETS])
    lengths = torch.tensor([[len(row)] for row in TARGETS])
    mask = torch.arange(1, longest) < lengths
    return {"source": torch.tensor(SOURCES), "target": target, "mask": mask, "own": torch.tensor(OWN)}


def values(model: Any, row: int, inputs: list[int]) -> dict[str, Any]:
    """Every value of one row, by the independent implementation."""
    oracle = seq2seq if model.kind == "seq2seq" else transformer
    state = {name: value for name, value in model.state_dict().items() if "discriminator" not in name}
    return dict(oracle(model.config, state, SOURCES[row], inputs))


def written(model: Any, row: int, own: list[bool]) -> list[int]:
    """The inputs of one row, token by token: each own one follows from all inputs before it."""
    true = TARGETS[row][:-1]
    inputs: list[int] = []
    for place, token in enumerate(true):
        inputs.append(int(values(model, row, inputs)["logits"][-1].argmax()) if own[place] else token)
    return inputs


def predicted(model: Any, row: int, own: list[bool]) -> list[int]:
    """The inputs of one row, where own ones are what the model predicts after true tokens."""
    true = TARGETS[row][:-1]
    guesses = values(model, row, true)["logits"].argmax(-1)
    return [int(guesses[place - 1]) if own[place] else token for place, token in enumerate(true)]


def nats(model: Any, row: int, inputs: list[int]) -> float:
    """The cross-entropy of one row's targets, summed."""
    logits = values(model, row, inputs)["logits"]
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -sum(float(logp[place, token]) for place, token in enumerate(TARGETS[row][1:]))


METHODS: list[tuple[str, Callable[..., list[int]]]] = [
    ("scheduled_sampling", written),
    ("parallel_sampling", predicted),
]


def error(module: Any, name: str, right: Callable[..., list[int]], kind: str) -> float:
    """How far a loss is from the direct computation."""
    model = make(kind)
    expected = sum(nats(model, row, right(model, row, OWN[row])) for row in range(2))
    return abs(getattr(module, name)(model, batch()).item() / expected - 1)


@pytest.mark.parametrize("kind", ["seq2seq", "transformer"])
@pytest.mark.parametrize(("name", "right"), METHODS, ids=["scheduled", "parallel"])
def test_the_loss_is_that_of_the_mixed_inputs(name: str, right: Callable[..., list[int]], kind: str) -> None:
    """With the model's own tokens where the batch says so, and true ones elsewhere."""
    assert error(forcing, name, right, kind) < 1e-12
    model = make(kind)
    assert getattr(forcing, name)(model, batch()).item() != pytest.approx(target_token(model, batch()).item())


def test_the_two_methods_differ() -> None:
    """After own tokens the model writes others than after true ones; else this would prove nothing."""
    model = make("seq2seq")
    assert written(model, 0, OWN[0]) != predicted(model, 0, OWN[0])
    model = make("transformer")
    assert written(model, 0, OWN[0]) != predicted(model, 0, OWN[0])


@pytest.mark.parametrize("name", ["scheduled_sampling", "parallel_sampling"])
def test_without_own_tokens_it_is_teacher_forcing(name: str) -> None:
    """To the last bit: with none in the batch, and on held-out pairs, whose batches do not ask for any."""
    model, given = make("seq2seq"), batch()
    objective, right = getattr(forcing, name), target_token(model, given, smoothing=0.1).item()
    none = given | {"own": torch.zeros_like(given["own"])}
    assert objective(model, none, smoothing=0.1).item() == right
    del given["own"]
    assert objective(model, given, smoothing=0.1).item() == right


MUTANTS = [
    ("scheduled_sampling", written, "range(1, last + 1)", "range(1, last)"),
    ("scheduled_sampling", written, "inputs[:, place - 1 : place], cache", "inputs[:, : place]"),
    ("scheduled_sampling", written, "logits[:, 0].argmax(-1), inputs", "logits[:, 0].argmin(-1), inputs"),
    ("scheduled_sampling", written, "own[:, place], logits", "~own[:, place], logits"),
    ("parallel_sampling", predicted, "model(batch[\"source\"], inputs[:, :-1])", "model(batch[\"source\"], inputs[:, 1:])"),
    ("parallel_sampling", predicted, "torch.where(own[:, 1:], guesses", "torch.where(own[:, :-1], guesses"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "right", "old", "new"), MUTANTS, ids=[mutant[2] for mutant in MUTANTS])
def test_one_broken_line_is_noticed(name: str, right: Callable[..., list[int]], old: str, new: str) -> None:
    """Each of these changes the loss, except reading everything anew, which only takes longer."""
    broken = mutated(FILE, FILE, old=old, new=new)
    same = "cache" in old
    assert (error(broken, name, right, "seq2seq") < 1e-12) == same


# Professor forcing


def judge(weights: dict[str, Any], states: Any) -> float:
    """The discriminator's logit of one row (T, D)."""

    def linear(name: str, x: Any) -> Any:
        return weights[f"{name}.weight"] @ x + weights[f"{name}.bias"]

    ends = []
    for side, rows in (("forwards", states), ("backwards", states[::-1])):
        h = np.zeros(states.shape[1])
        for x in rows:
            reset, update, new = np.split(linear(f"{side}.input", x), 3)
            reset_h, update_h, new_h = np.split(linear(f"{side}.hidden", h), 3)
            gate = sigmoid(update + update_h)
            h = gate * h + (1 - gate) * np.tanh(new + sigmoid(reset + reset_h) * new_h)
        ends.append(h)
    return float(linear("answer", np.maximum(linear("join", np.concatenate(ends)), 0.0))[0])


def softplus(x: float) -> float:
    return float(np.log1p(np.exp(x)))


def losses(model: Any) -> tuple[float, float]:
    """What the model is to lower, and what the discriminator is to lower, by the direct computation."""
    prefix = "discriminator."
    found = {name: value.numpy() for name, value in model.state_dict().items() if name.startswith(prefix)}
    weights = {name.removeprefix(prefix): value for name, value in found.items()}
    of_model = of_judge = 0.0
    for row, target in enumerate(TARGETS):
        count = len(target) - 1
        free = written(model, row, [False] + [True] * (count - 1))
        for_true = judge(weights, values(model, row, target[:-1])["decoder.hidden"])
        for_free = judge(weights, values(model, row, free)["decoder.hidden"])
        of_model += nats(model, row, target[:-1]) + WEIGHT * count * softplus(-for_free)
        of_judge += count * (softplus(-for_true) + softplus(for_free))
    return of_model, of_judge


LOOKED_AT = ["decoder.cells.0.hidden.weight", "encoder.forwards.0.input.weight", "head.bias"]
LOOKED_AT += [
    f"discriminator.{name}" for name in ("forwards.hidden.weight", "backwards.input.bias", "join.bias")
]


@cache
def slopes() -> list[float]:
    """Derivatives of the two losses, each by parameters that are to lower it, by finite differences."""
    model, step, found = make("seq2seq"), 1e-6, []
    for name in LOOKED_AT:
        flat = model.get_parameter(name).data.view(-1)
        for at in (0, -1):
            kept, around = flat[at].item(), []
            for change in (step, -step):
                flat[at] = kept + change
                around.append(losses(model)[int(name.startswith("discriminator"))])
            flat[at] = kept
            found.append((around[0] - around[1]) / (2 * step))
    return found


def professor_error(module: Any) -> float:
    """The largest difference between a gradient and the slope of the loss that its parameter is to lower."""
    model = make("seq2seq", module)
    module.professor_forcing(model, batch(), weight=WEIGHT).backward()
    grads = [model.get_parameter(name).grad.view(-1)[at].item() for name in LOOKED_AT for at in (0, -1)]
    return max(abs(grad - right) for grad, right in zip(grads, slopes(), strict=True))


def test_professor_forcing_moves_each_by_its_own_loss() -> None:
    """The model by cross-entropy and by being found out, the discriminator by its errors alone."""
    assert professor_error(forcing) < 1e-6
    model = make("seq2seq")
    assert (
        forcing.professor_forcing(model, batch(), weight=WEIGHT).item() == target_token(model, batch()).item()
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("judge(true_states.detach(), mask)", "judge(true_states, mask)"),
        ("parameter.detach() for name", "parameter for name"),
        ("-judge(free_states.detach(), mask)", "judge(free_states.detach(), mask)"),
        ("(mask.sum(1) * (weight", "(mask.shape[1] * (weight"),
        ("mask=mask, backward=True", "mask=torch.ones_like(mask), backward=True"),
        ("own[:, 0] = False", "own[:, 1] = False"),
    ],
)
def test_one_broken_line_of_professor_forcing_is_noticed(old: str, new: str) -> None:
    """In the gradients."""
    assert professor_error(mutated(FILE, FILE, old=old, new=new)) > 1e-4


def test_held_out_pairs_know_no_discriminator() -> None:
    """Evaluation is teacher forcing, without label smoothing."""
    model = make("seq2seq").eval()
    found = forcing.professor_forcing(model, batch(), weight=WEIGHT, smoothing=0.1)
    assert found.item() == target_token(model, batch()).item()


def test_the_discriminator_can_be_put_aside() -> None:
    """For an export; it comes back as it was, and a model without one stays as it is."""
    model = make("seq2seq")
    before = list(model.state_dict())
    with forcing.without_discriminator(model):
        assert not any("discriminator" in name for name in model.state_dict())
    assert list(model.state_dict()) == before
    plain = make("transformer")
    with forcing.without_discriminator(plain):
        pass
    assert not hasattr(plain, "discriminator")

"""A training with the model's own tokens as input: it resumes bit by bit, and exports a plain model."""

import random
import tomllib
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

import glassformer as gf
from glassformer.errors import InputError
from glassformer.tasks.recipe import Recipe
from glassformer.tasks.train import Started, Stepped, train
from glassformer.tasks.translate import Translator

FORCINGS = ["teacher", "scheduled", "parallel", "professor"]
STEPS = 6


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words, and the same words in capitals, backwards."""
    draw, lines = random.Random(0), []
    for _ in range(40):
        words = draw.choices(["one", "two", "three", "four"], k=draw.randint(1, 4))
        lines.append(" ".join(words) + "\t" + " ".join(reversed(words)).upper() + "\n")
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_text("".join(lines))
    return path


def recipe(pairs: Path, forcing: str, *, kind: str = "seq2seq", **train: Any) -> Recipe:
    small = {"width": 8, "dropout": 0.2} | ({"layers": 1, "heads": 2} if kind == "transformer" else {})
    return Recipe.of(
        {
            "text": {"data": [str(pairs)], "vocab": 280, "held_out": 0.2},
            "model": {"kind": kind, **small},
            "train": {"steps": STEPS, "batch": 4, "lr": 0.01, **train},
            "inputs": {"forcing": forcing},
            "evaluation": {"eval_every": 3, "save_every": 1},
            "show": {"preview_tokens": 0, "tensorboard": False},
        }
    )


def run(recipe: Recipe, out: Path, *, stop_at: int = STEPS) -> list[Any]:
    """The events of a training that is stopped after some steps."""
    steps = iter(range(1, STEPS + 1))
    return list(train(recipe, out, stop=lambda: next(steps) == stop_at))


def losses(events: list[Any]) -> list[float]:
    return [event.loss for event in events if isinstance(event, Stepped)]


@pytest.fixture(scope="module")
def whole(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[Any]]]:
    """A run of each method that nobody disturbed: its folder and its events."""
    folder = tmp_path_factory.mktemp("whole")
    return {name: (folder / name, run(recipe(pairs, name), folder / name)) for name in FORCINGS}


@pytest.mark.parametrize("forcing", FORCINGS[1:])
def test_it_goes_on_bit_by_bit(
    pairs: Path, whole: dict[str, tuple[Path, list[Any]]], tmp_path: Path, forcing: str
) -> None:
    """Stopped in the middle and resumed: the same losses, the same model, the same checkpoint."""
    plan, (folder, events) = recipe(pairs, forcing), whole[forcing]
    parts = run(plan, tmp_path, stop_at=2)
    assert len(losses(parts)) == 2
    parts += list(train(plan, tmp_path))
    assert losses(parts) == losses(events)
    for file in ("model/model.safetensors", f"checkpoints/step-{STEPS:08d}/weights.safetensors"):
        assert (tmp_path / file).read_bytes() == (folder / file).read_bytes()


def test_the_methods_train_different_models(whole: dict[str, tuple[Path, list[Any]]]) -> None:
    """Each has its own effect from its first own token on; before it all are teacher forcing."""
    found = {name: losses(events) for name, (_, events) in whole.items()}
    assert len({tuple(one) for one in found.values()}) == len(FORCINGS)
    assert found["teacher"][0] == found["parallel"][0]


def test_the_discriminator_stays_in_the_checkpoint(whole: dict[str, tuple[Path, list[Any]]]) -> None:
    """It is trained and kept there; the model that is exported, and counted, has none."""
    folder, events = whole["professor"]
    started = next(event for event in events if isinstance(event, Started))
    model = gf.load(str(folder / "model"), engine="torch").expect(Translator)
    names = [name for name, _ in model.net.named_parameters()]
    assert started.parameters == started.trained == sum(p.numel() for p in model.net.parameters())
    assert not [name for name in names if "discriminator" in name]

    def weights(step: int) -> dict[str, Any]:
        path = folder / "checkpoints" / f"step-{step:08d}" / "weights.safetensors"
        return {name: value for name, value in load_file(path).items() if "discriminator" in name}

    before, after = weights(STEPS - 1), weights(STEPS)
    assert len(after) == 12
    assert all((before[name] != after[name]).any() for name in after)


@pytest.mark.parametrize(
    ("kind", "forcing", "more", "message"),
    [
        ("transformer", "professor", {}, "a transformer has none; scheduled and parallel fit it"),
        ("seq2seq", "scheduled", {"parallel": "fsdp"}, "writes token by token, which parallel fsdp cannot"),
        ("seq2seq", "professor", {"parallel": "fsdp"}, "use ddp, or forcing parallel"),
    ],
)
def test_what_does_not_fit_is_refused(
    pairs: Path, tmp_path: Path, kind: str, forcing: str, more: dict[str, Any], message: str
) -> None:
    """Before the first step, in a sentence that says what fits."""
    with pytest.raises(InputError, match=message):
        run(recipe(pairs, forcing, kind=kind, **more), tmp_path / "run")


def test_a_language_model_has_no_such_section() -> None:
    """Its recipes do not know the keys."""
    with pytest.raises(InputError, match="unknown section 'inputs'"):
        Recipe.of({"inputs": {"forcing": "scheduled"}})
    plan = Recipe.of({"model": {"kind": "seq2seq"}, "inputs": {"forcing": "parallel", "decay_k": 0.5}})
    assert Recipe.of(tomllib.loads(plan.to_toml())) == plan

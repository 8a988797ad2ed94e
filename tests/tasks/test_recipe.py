"""Recipes: a file, a dataclass and flags are equivalent; an error names its file and key."""

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from glassformer.errors import InputError
from glassformer.hub.families import family
from glassformer.tasks.recipe import (
    HEAD_TASKS,
    SECTIONS,
    ExampleText,
    Lora,
    Numbers,
    Recipe,
    Shape,
    Show,
    Strings,
    SummarizedText,
    Text,
    TranslatedText,
    hints,
    sections_of,
    shape_of,
)
from glassformer.training.hyperparameters import OPTIMIZERS, SCHEDULES, EvalSchedule, Hyperparameters

TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.text(
    "\"'\\\n\r\t#[]= {}\0\x1b\x7f\x85\u2028\ufeffé😀", max_size=20
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([1e-4, 1e-05, 3e22, 5e-324, 0.1])
WHOLE = st.integers(-(2**63), 2**63 - 1)
KINDS: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    float: NUMBERS,
    int: WHOLE,
    bool: st.booleans(),
    Strings: st.lists(TEXTS, max_size=3).map(tuple),
    Numbers: st.lists(NUMBERS, max_size=3).map(tuple),
}


def sections(section: Any, /, **bounded: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A section with any values of the right kind, each there or left as usual."""
    values = {key: KINDS[hint] for key, hint in hints(section).items()} | bounded
    return st.fixed_dictionaries({}, optional=values).map(lambda given: section(**given))


KINDS_OF_MODELS = ("gpt2", "gpt1", "gpt3")
COUNTS = {name: st.integers(1, 2**40) for name in ("steps", "batch", "window", "micro_batch", "warmup")} | {
    "seed": st.integers(0, 2**32 - 1)
}
RATES: dict[str, st.SearchStrategy[Any]] = {
    "lr": st.floats(1e-3, 1e300), "lr_end": st.floats(0, 1e-4) | st.just(1e-4), "schedule": st.sampled_from(SCHEDULES),
    "layer_decay": st.floats(1, 100), "unfreeze": st.floats(0, 100),
    "weight_decay": st.floats(0, 10), "label_smoothing": st.floats(0, 0.999), "clip": st.floats(0, 1e9), "beta1": st.floats(0, 0.999), "beta2": st.floats(0, 0.999),
    "precision": st.just("bf16"), "parallel": st.just("fsdp"), "optimizer": st.sampled_from(OPTIMIZERS),
}  # fmt: skip
RECIPES = st.builds(
    Recipe,
    about=TEXTS,
    text=st.one_of(
        sections(Text, task=st.just("")),
        sections(
            TranslatedText,
            task=st.just("translate"),
            languages=st.just(("de", "en")),
            both_ways=st.just(False),
        ),
        sections(SummarizedText, task=st.just("summarize"), room=st.integers(1, 9**9)),
    ),
    model=st.sampled_from(KINDS_OF_MODELS).flatmap(
        lambda kind: sections(shape_of(kind), kind=st.just(kind)).filter(lambda shape: shape.kind == kind)
    ),
    lora=sections(Lora),
    train=sections(Hyperparameters, **COUNTS, **RATES),
    evaluation=sections(
        EvalSchedule,
        **{
            key: st.integers(0, 9**9) if hint is int else st.floats(0, 9e9)
            for key, hint in hints(EvalSchedule).items()
        },
    ),
    show=sections(Show),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that is written again and again."""
    return tmp_path_factory.mktemp("recipes") / "recipe.toml"


def wrong(file: Path, content: str | bytes, *words: str) -> None:
    """The file is refused, by its name and with these words, in one line."""
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        Recipe.read(file)
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    assert [word for word in words if word not in message] == [], message
    assert "\n" not in message


@settings(max_examples=60, deadline=None)
@given(recipe=RECIPES)
@example(recipe=Recipe())
@example(
    recipe=Recipe(
        about='a "quoted" \\ text\nof two lines, ünïcödé 😀\0',
        text=Text(data=("a b", "", "\t'\n"), weights=(1e-4, 2)),
    )
)
def test_what_is_written_is_read_again(file: Path, recipe: Recipe) -> None:
    """Odd texts, tuples and numbers included; and the file is text that an editor can show."""
    file.write_text(recipe.to_toml(), encoding="utf-8", newline="")
    again = Recipe.read(file)
    assert again == recipe
    assert again.to_dict() == recipe.to_dict()
    assert all(line.isprintable() for line in recipe.to_toml().split("\n"))


def test_only_what_is_not_usual_is_written() -> None:
    """Sections in their order, a key a line, in the spelling of TOML; nothing for a recipe that is as usual."""
    assert Recipe().to_toml().strip() == ""
    recipe = Recipe(
        about="A try",
        show=Show(tensorboard=False),
        train=Hyperparameters(lr=1e-5, lr_end=0.0, steps=2000),
        text=Text(data=("a.txt", "é"), weights=(1.0, 0.5)),
    )
    assert recipe.to_toml() == (
        'about = "A try"\n\n[text]\ndata = ["a.txt", "é"]\nweights = [1.0, 0.5]\n'
        "\n[train]\nlr = 1e-05\nlr_end = 0.0\n\n[show]\ntensorboard = false\n"
    )


def test_a_file_by_hand(file: Path) -> None:
    """Comments, exponents, whole numbers for fractions, lists over lines, a Windows end of line."""
    file.write_bytes(
        b'about = "by hand"  # a comment\r\n[text]\ndata = [\n  "a.txt",\n  "b",\n]\nweights = [1, 2.5]\nheld_out = 0\n'
        b"[train]\nlr = 1e-4\nlr_end = 0\nsteps = 1_000\n[model]\nbias = false\n"
    )
    recipe = Recipe.read(file)
    assert recipe == Recipe(
        about="by hand",
        text=Text(data=("a.txt", "b"), weights=(1.0, 2.5), held_out=0.0),
        train=Hyperparameters(lr=1e-4, lr_end=0.0, steps=1000),
        model=Shape(bias=False),
    )
    assert {type(value) for value in (*recipe.text.weights, recipe.text.held_out, recipe.train.lr_end)} == {
        float
    }


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[trian]\nsteps = 1", ["unknown section 'trian'", "text, model, lora, train, evaluation, show"]),
        ("train = 5", ["'train'"]),
        ("[[train]]\nsteps = 1", ["'train'"]),
        ("steps = 5", ["unknown section 'steps'"]),
        ("[train]\nstep = 5", ["unknown key 'step' in [train]", "there are steps, batch,"]),
        ("[train]\nrank = 5", ["unknown key 'rank' in [train]", "it belongs into [lora]"]),
        ("[model]\nlr = 0.1", ["unknown key 'lr' in [model]", "it belongs into [train]"]),
        ("[model]\nstride = 2", ["unknown key 'stride' in [model]", "kind gpt2 has kind, base, layers,"]),
        ("[model]\nkind = 'gpt3'\ndepth = 2", ["unknown key 'depth'", "kind gpt3 has kind, base, layers,", "stride"]),
        ("[model]\nkind = 'gpt9'", ["kind 'gpt9' is not known; known: gpt2, gpt1, gpt3"]),
        ("[model]\nkind = 2", ["kind should be a text, not 2"]),
        ("[model]\nkind = 'gpt3'\nstride = 'x'", ["stride should be a whole number, not 'x'"]),
        ("[text]\npatience = 1", ["it belongs into [evaluation]"]),
        ("[text]\ntask = 'sing'", ["task 'sing' is none of translate, summarize, classify, entail, similar, choose"]),
        ("[text]\ntask = 'entail'", ["unknown key 'task' in [text]", "it belongs into [model]"]),
        ("[model]\ntask = 'translate'", ["unknown key 'task' in [model]", "it belongs into [text]"]),
        ("[model]\nkind = 'rnn'\ntask = 'entail'", ["task entail: is for decoders, such as gpt2; kind rnn has its own"]),
        ("[text]\ntask = 'translate'\n[model]\nkind = 'gpt2-classifier'", ["task translate: is for decoders"]),
        ("[model]\nkind = 'gpt9'\ntask = 'entail'", ["kind 'gpt9' is not known"]),
        ("[train]\nsteps = 5.0", ["steps should be a whole number, not 5.0"]),
        ("[train]\nsteps = true", ["steps should be a whole number, not True"]),
        ("[train]\nsteps = '5'", ["steps should be a whole number, not '5'"]),
        ("[train]\nlr = '1e-4'", ["lr should be a number, not '1e-4'"]),
        ("[train]\nlr = false", ["lr should be a number, not False"]),
        ("[train]\nlr = 1979-05-27", ["lr should be a number"]),
        ("[model]\nbias = 1", ["bias should be true or false, not 1"]),
        ("[model]\nbase = 1", ["base should be a text, not 1"]),
        ("[text]\ndata = 'a.txt'", ["data should be a list, not 'a.txt'"]),
        ("[text]\ndata = ['a', 1]", ["data should be a text, not 1"]),
        ("[text]\nweights = ['a']", ["weights should be a number, not 'a'"]),
        ("[text]\nweights = 1", ["weights should be a list, not 1"]),
        ("[lora]\ntargets = {a = 1}", ["targets should be a list"]),
        ("[lora.rank]\nr = 1", ["rank should be a whole number"]),
        ("about = 1", ["about should be a text, not 1"]),
        ("[about]\na = 1", ["about should be a text"]),
        ("[train]\nsteps = 0", ["steps must be at least 1, not 0"]),
        ("[train]\nlr = nan", ["lr should be a finite number, not nan"]),
        ("[train]\nschedule = 'round'", ["schedule 'round' is none of cosine"]),
        ("[watch]\npatience = -1", ["patience must be at least 0, not -1"]),
        ('[train]\n"a\\nb" = 1', ["unknown key 'a\\nb' in [train]"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(file: Path, content: str, words: list[str]) -> None:
    """File, section and key, the expected value, and the section of a misplaced key."""
    wrong(file, content, *words)


@pytest.mark.parametrize(
    "content",
    [
        "[train",
        "steps: 5",
        "[train]\nsteps = 1\nsteps = 2",
        "[train]\n[train]",
        "a = 'b",
        b"about = '\xff'",
        b"\xff\xfea\0",
        "\0",
    ],
)
def test_what_is_no_toml_is_refused(file: Path, content: str | bytes) -> None:
    """Broken syntax, a key twice, another encoding."""
    wrong(file, content, "not a TOML file")


def test_numbers_and_nesting_without_end_are_refused(file: Path) -> None:
    """What Python itself gives up on is refused as all the rest is."""
    wrong(file, f"[train]\nsteps = {'9' * 5000}", "not a TOML file")
    wrong(file, f"[train]\nlr = {'9' * 400}", "lr should be a number")
    wrong(file, f"[train]\nbatch = {2**63}", "batch should be a whole number of 64 bits")
    for key in ("lr = nan", "clip = inf", "weight_decay = -inf"):
        wrong(file, f"[train]\n{key}", "should be a finite number")
    wrong(file, "[train]\nbatch = '16'", "batch should be a whole number, not '16'")
    wrong(file, "a = " + "[" * 100_000, "nested too deeply")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A missing file and a folder, by name."""
    with pytest.raises(InputError, match=r"no\.toml: cannot be read \(No such file"):
        Recipe.read(tmp_path / "no.toml")
    with pytest.raises(InputError, match=r"cannot be read \(Is a directory"):
        Recipe.read(tmp_path)
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(InputError, match=r"pipe\.toml: cannot be read \(it is a pipe or a device"):
        Recipe.read(tmp_path / "pipe.toml")


def test_flags_change_a_recipe() -> None:
    """Each finds its section; the rest stays, and so does the recipe that was changed."""
    before = Recipe(about="x", train=Hyperparameters(seed=7), lora=Lora(alpha=3.0))
    after = before.changed(steps=10, lr=1, rank=4, data=["a", "b"], weights=[1, 2], preview="Once")
    assert after == Recipe(
        about="x",
        train=Hyperparameters(seed=7, steps=10, lr=1.0),
        lora=Lora(alpha=3.0, rank=4),
        text=Text(data=("a", "b"), weights=(1.0, 2.0)),
        show=Show(preview="Once"),
    )
    assert type(after.train.lr) is float
    assert before == Recipe(about="x", train=Hyperparameters(seed=7), lora=Lora(alpha=3.0))
    assert before.changed() == before
    assert (
        before.changed(lr=1e-5, lr_end=1e-6).train.lr_end == 1e-6
    )  # both at once: neither fits the other's old value


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"step": 1}, "unknown key 'step'"),
        ({"train": Hyperparameters()}, "unknown key 'train'"),
        ({"steps": "1"}, "steps should be a whole number, not '1'"),
        ({"data": "a.txt"}, r"data should be a list, not 'a\.txt'"),
        ({"steps": 0}, "steps must be at least 1, not 0"),
        ({"lr": None}, "lr should be a number, not None"),
    ],
)
def test_wrong_flags_are_refused(flags: dict[str, Any], words: str) -> None:
    """By the key."""
    with pytest.raises(InputError, match=words):
        Recipe().changed(**flags)


@pytest.mark.parametrize("old", ["watch", "evaluation"])
def test_recipes_of_an_earlier_version(file: Path, old: str) -> None:
    """The section of evaluation and saving had another name; it is written under the new one."""
    file.write_text(f"[{old}]\neval_every = 7\n")
    recipe = Recipe.read(file)
    assert recipe == Recipe(evaluation=EvalSchedule(eval_every=7))
    assert recipe.to_toml() == "[evaluation]\neval_every = 7\n"


def test_a_kind_has_the_keys_of_its_family() -> None:
    """Common keys have the usual defaults, its own keys those of its Config; changing the kind keeps what
    both have.
    """
    assert shape_of("gpt2") is Shape
    for kind in KINDS_OF_MODELS[1:]:
        config = {one.name for one in fields(family(kind).config)}
        keys = {one.name for one in fields(shape_of(kind))}
        assert keys == config - {"vocab", "neurons", "activation", "norm_eps", "tied"} | {
            "kind",
            "base",
            "freeze",
        }
        assert (shape_of(kind)().layers, shape_of(kind)().kind) == (4, kind)
    recipe = Recipe(model=Shape(layers=3)).changed(kind="gpt3", head_width=8, model_window=5, window=7)
    assert (recipe.model.kind, recipe.model.layers, recipe.model.head_width) == ("gpt3", 3, 8)
    assert (recipe.model.window, recipe.train.window) == (5, 7)
    assert recipe.model.stride == family("gpt3").config().stride
    again = recipe.changed(kind="gpt2")
    assert again.model == Shape(layers=3)
    with pytest.raises(InputError, match="unknown key 'stride'"):
        again.changed(stride=2)


@pytest.mark.parametrize("task", HEAD_TASKS)
def test_a_task_of_a_head_makes_the_kind(file: Path, task: str) -> None:
    """Of examples: by a flag, or in [model] of a file, a decoder becomes one with a head; of pairs it stays."""
    by_flag = Recipe(model=Shape(layers=2)).changed(task=task)
    assert (by_flag.model.kind, by_flag.to_dict()["model"]["task"]) == ("gpt2-classifier", task)
    assert by_flag.to_dict()["model"]["layers"] == 2
    assert isinstance(by_flag.text, ExampleText)
    assert by_flag.changed(kind="gpt2-classifier") == by_flag
    file.write_text(f'[model]\nlayers = 2\ntask = "{task}"')
    assert Recipe.read(file) == by_flag
    file.write_text(by_flag.to_toml())
    assert Recipe.read(file) == by_flag
    assert Recipe().changed(task="summarize").model.kind == "gpt2"


def test_the_tasks_of_heads_are_those_of_the_model() -> None:
    """They are spelled twice: recipes import no torch."""
    from glassformer.models.classifier import TASKS

    assert HEAD_TASKS == TASKS


def test_every_key_is_a_flag_that_explains_itself() -> None:
    """No name is in two sections, and each has a sentence and a default of its own kind."""
    sections = SECTIONS | {"inputs": sections_of("seq2seq")["inputs"]}  # which only some kinds have
    keys = [one.name for kind in sections.values() for one in fields(kind)]
    assert len(keys) == len(set(keys)) > 40
    assert set(sections) == {one.name for one in fields(Recipe)} - {"about"}
    assert not set(keys) & set(sections)
    for kind in sections.values():
        for one in fields(kind):
            assert one.metadata["help"].endswith("."), one.name
            assert len(one.metadata["help"]) >= len("Blocks."), one.name
            hint = hints(kind)[one.name]
            assert type(one.default) is (tuple if hint in (Strings, Numbers) else hint), one.name


def test_to_dict_is_everything() -> None:
    """Every section with every key, and it is a recipe again."""
    recipe = Recipe(train=Hyperparameters(steps=3), text=Text(data=("a",)))
    whole = recipe.to_dict()
    assert {name: set(keys) for name, keys in whole.items()} == {
        name: set(hints(kind)) for name, kind in SECTIONS.items()
    }
    assert (whole["train"]["steps"], whole["text"]["data"]) == (3, ("a",))
    assert Recipe.of(whole) == recipe
    with pytest.raises(InputError, match=r"^the recipe: unknown section 'x'"):
        Recipe.of({"x": {}})

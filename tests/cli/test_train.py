"""glass train and glass finetune, as a person meets them."""

import io
import json
import math
import re
from pathlib import Path
from typing import Any

import crash
import pytest
import torch
from reversing import write_pairs
from rich.console import Console
from rich.live import Live

import glassformer as gf
from glassformer.cli import panel
from glassformer.cli import run as glass
from glassformer.data.examples import read_examples
from glassformer.hub.locate import locate
from glassformer.tasks.recipe import HEAD_TASKS, SECTIONS, Recipe

SMALL = [
    "--vocab=280",
    "--layers=1",
    "--heads=2",
    "--width=16",
    "--context=16",
    "--batch=4",
    "--no-tensorboard",
    "--eval-every=5",
]


@pytest.fixture
def text(tmp_path: Path) -> str:
    return str(crash.write_text(tmp_path))


def test_text_in_model_out(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One command: progress on stderr, on stdout where the model is and how to run it; and it runs."""
    out = tmp_path / "run"
    assert (
        glass(["train", "--data", text, "--out", str(out), "--steps=12", "--preview", "The big", *SMALL]) == 0
    )
    printed = capsys.readouterr()
    assert printed.out.startswith(f'{out}/model\n\nRun it:   glass generate -m {out} "The big"\n')
    assert f"Keep it:  glass convert {out} NAME" in printed.out
    assert f"Compare:  glass eval {out} TEXT, in bits per byte" in printed.out
    assert printed.out.endswith(f"transformers loads the folder {out}/model\n")
    assert "warmup (100 steps) is longer than the training (12 steps)" in printed.err
    assert re.search(r"step 0  held-out loss [\d.]+  before training", printed.err)
    assert "step 12/12  loss" in printed.err
    assert "held-out loss" in printed.err
    assert re.search(
        r"Done: 12 steps, 768 tokens; best held-out loss [\d.]+ nats a token, at step 12 ", printed.err
    )
    assert glass(["generate", "-m", str(out), "-n", "5", "--seed", "1", "The big"]) == 0
    assert capsys.readouterr().out.startswith("The big")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, 13))
    steps = [line for line in lines if "loss" in line]
    assert {"step", "loss", "lr", "norm", "tokens", "tokens_per_second"} == set(steps[0])
    held_out = {line["step"]: line["held_out"] for line in lines if "held_out" in line}
    assert list(held_out) == [0, 5, 10, 12]
    assert f"({held_out[0]:.4f} before training)" in printed.err
    assert [line["preview"][:7] for line in lines if "preview" in line] == ["The big"] * 4
    card = (out / "model" / "card.md").read_text()
    assert "The training ended after step 12 of 12" in card
    assert "all steps were done. This is the model of step 12, the best one" in card
    assert "nats a token of its vocabulary" in card
    assert "steps = 12" in card
    assert 'data = ["text.txt"]' in card
    assert str(tmp_path) not in card


def test_a_finished_run_and_its_folder(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder is enough: given again, it is found finished; a changed key is reported."""
    out = tmp_path / "run"
    assert glass(["train", "--data", text, "--out", str(out), "--steps=6", "--json", *SMALL]) == 0
    printed = capsys.readouterr()
    first = json.loads(printed.out)
    assert "nothing to train" not in printed.err
    assert (first["step"], first["early"], first["model"]) == (6, False, str(out / "model"))
    assert glass(["train", str(out), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == first
    assert "All 6 steps were done already; nothing to train." in printed.err
    assert glass(["train", str(out), "--lr=0.5", "--steps=9"]) == 2
    message = capsys.readouterr().err
    assert "was made with" in message
    assert "lr = 0.001 (now 0.5)" in message
    assert "finetune" not in message
    assert glass(["train", str(out), "--steps=9"]) == 2
    assert f"to train its model further: glass finetune {out} --data" in capsys.readouterr().err


def test_a_recipe(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file, its text found beside it or in GLASSFORMER_DATA; flags change it; every shipped recipe is
    sound.
    """
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(
        '[text]\ndata = ["text.txt"]\nvocab = 280\n[model]\nlayers = 1\nwidth = 16\ncontext = 16\n[train]\nsteps = 3\n'
    )
    monkeypatch.chdir(tmp_path.parent)
    assert (
        glass(["train", str(recipe), "--out", str(tmp_path / "a"), "--steps=2", "--no-tensorboard", "--json"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["step"] == 2
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    recipe.rename(elsewhere / "tiny.toml")
    assert glass(["train", str(elsewhere / "tiny.toml")]) == 2
    assert "its text text.txt is neither here" in capsys.readouterr().err
    monkeypatch.setenv("GLASSFORMER_DATA", str(tmp_path))
    assert (
        glass(["train", str(elsewhere / "tiny.toml"), "--out", str(tmp_path / "b"), "--no-tensorboard"]) == 0
    )
    assert Recipe.read(tmp_path / "b" / "recipe.toml").train.steps == 3
    for shipped in sorted((Path(__file__).parents[2] / "recipes").glob("*.toml")):
        assert Recipe.read(shipped).about


@pytest.mark.parametrize(
    "how",
    [["--lora"], ["--lora", "--rank=2", "--targets=mlp.up", "--targets=attn.proj"], [], ["--freeze=tokens"]],
)
def test_finetune(how: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of a model, parts of it, or by LoRA: the result runs, predicts the text better, and what is frozen
    stays.
    """
    out = tmp_path / "run"
    flags = [
        "--steps=8",
        "--batch=1",
        "--warmup=2",
        "--lr=1e-3",
        "--no-tensorboard",
        "--eval-tokens=600",
        "--preview-tokens=0",
    ]
    assert glass(["finetune", "storyteller", "--data", text, "--out", str(out), *flags, *how]) == 0, (
        capsys.readouterr().err
    )
    printed = capsys.readouterr()
    base, tuned = gf.load("storyteller"), gf.load(str(out))
    lora = bool(how) and how[0] == "--lora"
    assert (out / "model" / ("adapter_config.json" if lora else "config.json")).is_file()
    if lora:
        config = json.loads((out / "model" / "adapter_config.json").read_text())
        assert config["base_model_name_or_path"] == "storyteller"
        assert config["r"] == (2 if len(how) > 1 else 8)
        assert f'PeftModel.from_pretrained(BASE, "{out}/model")' in printed.out
        card = (out / "model" / "card.md").read_text()  # also what is a default: it may change
        assert all(f"\n{key} = " in card for key in ("rank", "alpha", "targets", "steps", "batch", "lr"))
        assert printed.out.endswith(f"BASE from {locate('storyteller')}\n")
    before, after = (lm.net.state_dict() for lm in (base, tuned))
    assert torch.equal(before["tokens.weight"], after["tokens.weight"]) == (bool(how))
    assert not torch.equal(before["blocks.0.attn.proj.weight" if len(how) > 1 else "blocks.0.attn.qkv.weight"],
                           after["blocks.0.attn.proj.weight" if len(how) > 1 else "blocks.0.attn.qkv.weight"])  # fmt: skip
    if how == ["--lora"]:
        assert glass(["show", str(out), "--json"]) == 0
        summary = json.loads(capsys.readouterr().out)
        assert (summary["base"], summary["rank"], summary["alpha"]) == ("storyteller", 8, 16.0)
        assert summary["layers"] == {"transformer.h.*.attn.c_attn": 6}
        assert glass(["show", str(out)]) == 0
        assert "rank        8" in capsys.readouterr().out
    ids = base.encode(crash.TEXT[:400])
    losses = [
        float(torch.nn.functional.cross_entropy(torch.tensor(lm.logits(ids)[:-1]), torch.tensor(ids[1:])))
        for lm in (base, tuned)
    ]
    assert losses[1] < losses[0] - 0.05
    assert glass(["generate", "-m", str(out), "-n", "3", "The big"]) == 0


def test_only_completions_are_learned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A prompt is read and not learned: a model that sees random prompts learns the answer, and only that."""
    path = tmp_path / "pairs.jsonl"
    rows = [{"prompt": f"{i * 7919 % 1000:03d}", "completion": " yes"} for i in range(300)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "run"
    flags = [
        "--steps=40",
        "--lr=1e-2",
        "--warmup=5",
        "--no-tensorboard",
        "--layers=1",
        "--width=16",
        "--context=16",
        "--vocab=257",
    ]
    assert glass(["train", "--data", str(path), "--out", str(out), *flags]) == 0
    lm = gf.load(str(out))
    assert lm.top("123", 1)[0].text == " "
    assert all(
        one.probability < 0.5 for one in lm.top("12", 1)
    )  # what comes next in a prompt it was never taught
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert (
        next(line["tokens"] for line in lines if "tokens" in line) < 0.75 * 16 * 16
    )  # " yes" and the end: 5 of 8 tokens


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "data: name at least one text"),
        (["--data", "nothing.txt"], "nothing.txt: there is no such file"),
        (["--data", "{empty}"], "holds no text"),
        (["--data", "{binary}"], "is not text"),
        (["--data", "{latin}"], "is not UTF-8 text"),
        (["--data", "{text}", "--heads=3"], "width 128 cannot be split into 3 heads"),
        (["--data", "{pdf}"], "is not plain text but a PDF; extract its text first"),
        (["--data", "https://host/a.txt"], "https://host/a.txt is a web address; download it first"),
        (["--data", "{text}", "--lr=0"], "lr must be above 0"),
        (["--data", "{text}", "--lr=1e-5"], "lr = 1e-05 is below lr_end = 0.0001; give a lower lr_end too"),
        (["--data", "{text}", "--preview", "The big dog " * 20, *SMALL], "preview: the text leaves no room"),
        (["--data", "{text}", "--schedule=cosin"], "schedule 'cosin' is none of"),
        (["--data", "{text}", "--vocab=100"], "a vocabulary must have at least 257"),
        (["--data", "{text}", "--freeze=nonsense", *SMALL], "freeze: 'nonsense' fits no parameter"),
        (["--data", "{text}", "--weights=1", "--weights=2", *SMALL], "weights: 1 sources need as many"),
        (["--data", "{text}", "--context=100000", "--vocab=280"], "text.txt: 7,456 tokens of text are too few"),
        (["--data", "{text}", "--tokenizer=nonsense/../x"], "neither a folder nor a model's name"),
        (["nothing.toml"], "nothing.toml: cannot be read"),
        (["{text}"], "is not a recipe (.toml) or a run's folder; to train on it, give --data"),
        (["{folder}"], "holds no recipe.toml"),
        (["--data", "{text}", "--steps=many"], "steps"),
        (["--stride=4"], "no such option --stride; kind gpt3 has it: see `glass train --kind gpt3 --help`"),
        (["--kind=gpt1", "--head-width=4"], "see `glass train --kind gpt3 --help`"),
        (["--base=storyteller"], "see `glass train --help`"),
        (["--nonsense=4"], "see `glass train --help`"),
        (["--data", "{text}", "--steps=1_0"], "'1_0' is not a whole number"),
        (["--data", "{text}", "--lr=\u0661"], "is not a finite number"),
        (["--data", "{text}", "--vocab=1000000000000"], "a vocabulary must have at most 1,048,576"),
        (["--data", "{text}", *SMALL, "--batch=1000000000"], "a step of batch = 1,000,000,000 rows needs"),
        (["--data", "{text}", "--layers=1000000", "--width=4", "--vocab=280"], "layers must be at most 10,000"),
    ],
)  # fmt: skip
def test_bad_input(
    arguments: list[str], word: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, one sentence that names what is wrong."""
    files = {"text": text, "folder": str(tmp_path)}
    for name, content in {
        "empty": b"",
        "binary": b"\x00\x01\x02",
        "pdf": b"%PDF-1.4\n\xff\xfe",
        "latin": "Straße ".encode("latin-1") * 9,
    }.items():
        (tmp_path / name).write_bytes(content)
        files[name] = str(tmp_path / name)
    given = [argument.format(**files) for argument in arguments]
    assert glass(["train", *given, "--out", str(tmp_path / "run")]) == 2
    printed = capsys.readouterr().err
    assert word in printed
    assert printed.count("\n") == 1, printed
    assert not (tmp_path / "run").exists()


def test_every_key_is_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` of the two verbs together has every key of a recipe."""
    assert glass(["train", "--help"]) == 0
    assert glass(["finetune", "--help"]) == 0
    shown = capsys.readouterr().out
    keys = {key for kind in SECTIONS.values() for key in kind.__dataclass_fields__} - {"base"}
    assert not [key for key in keys if f"--{key.replace('_', '-')} " not in shown]


@pytest.mark.parametrize("kind", ["gpt1", "gpt3"])
def test_another_kind_of_model(
    kind: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It trains, is saved as its kind, loads, goes on from its folder; another kind in that folder is
    refused.
    """
    out = tmp_path / "run"
    own = ["--model-window=4", "--head-width=4", "--stride=3"] if kind == "gpt3" else []
    flags = [flag for flag in SMALL if not flag.startswith(("--vocab", "--layers"))]
    start = ["train", "--data", text, "--out", str(out), "--vocab=400", "--layers=2", *flags]
    assert glass([*start, "--kind", kind, *own, "--steps=6"]) == 0
    lm = gf.load(str(out), engine="torch")
    assert lm.net.kind == kind
    if own:
        assert (lm.net.config.window, lm.net.config.head_width, lm.net.config.stride) == (4, 4, 3)
    recipe = Recipe.read(out / "recipe.toml")
    assert recipe.model.kind == kind
    capsys.readouterr()
    assert glass(["train", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == 6
    assert glass([*start, "--steps=6"]) == 2
    assert f"was made with kind = {kind} (now gpt2)" in capsys.readouterr().err


def test_the_flags_of_a_kind(capsys: pytest.CaptureFixture[str]) -> None:
    """--help shows the keys of the kind that is named, on the command line or by a recipe."""
    assert glass(["train", "--help"]) == 0
    assert "--stride" not in capsys.readouterr().out
    assert glass(["train", "--kind", "gpt3", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--stride" in shown
    assert "--model-window" in shown
    assert "How many positions a banded layer looks back on, itself included. [64]" in " ".join(shown.split())
    assert glass(["train", "--kind=gpt9", "--help"]) == 2
    assert "kind 'gpt9' is not known; known: gpt2, gpt1, gpt3" in capsys.readouterr().err
    assert glass(["train", "--stride=2", "--data", "x"]) == 2
    assert "--stride" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "labels", "measure"),
    [("classify", ("good", "bad"), "nats an example"), ("similar", (1, 2, 3), "squared error of an example")],
)
def test_a_head_counts_examples(
    task: str, labels: tuple[Any, ...], measure: str, model: str, tmp_path: Path, glass: Any
) -> None:
    """Speed, end and card of its training are in examples; no preview leaves no empty line."""
    data, out = tmp_path / "examples.jsonl", tmp_path / "run"
    name = "text" if task == "classify" else "first"
    rows = [{name: f"text {n}", "second": "Lily", "label": labels[n % len(labels)]} for n in range(40)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    how = ["--task", task, "--data", str(data), "--steps=2", "--epochs=0", "--batch=4", "--no-tensorboard"]
    code, _, log = glass("finetune", model, "-o", str(out), *how)
    assert code == 0, log
    assert re.search(r"step 2/2  .* examples/s ", log)
    assert re.search(rf"Done: 2 steps, 8 examples; best held-out loss [\d.]+ {measure}, at step ", log)
    assert re.search(rf"[\d.]+ {measure}", (out / "model" / "card.md").read_text())
    assert "\n  \n" not in log
    assert "\n\n" not in log


@pytest.mark.parametrize("task", ["classify", "entail", "similar", "choose"])
def test_the_flags_of_a_head(task: str, glass: Any) -> None:
    """The defaults are those of the task; what a head refuses is not shown."""
    code, shown, _ = glass("finetune", "storyteller", "--task", task, "--help")
    assert code == 0
    assert f"[{task}]" in shown
    assert "[as epochs says]" in shown
    assert "[2000]" not in shown
    assert "--no-attention-dropout" in shown
    for flag in ("--lora ", "--rank", "--alpha", "--targets", "--window"):
        assert f"\n  {flag}" not in shown.split("Options:")[1]
    code, _, message = glass("finetune", "storyteller", "--task", task, "--window", "8", "--data", "x")
    assert (code, "a head reads whole examples" in message) == (2, True)


def test_the_example_rows_of_the_help(glass: Any, tmp_path: Path) -> None:
    """What the help shows of a file for each task can be read."""
    shown = glass("finetune", "--help")[1].splitlines()
    for task in HEAD_TASKS:
        row = next(line.strip() for line in shown if line.strip().startswith(f"{task}  "))
        columns, _, values = row.removeprefix(task).strip().partition("    ")
        path = tmp_path / f"{task}.{'csv' if values else 'jsonl'}"
        path.write_text("\n".join(filter(None, (columns, values.strip()))) + "\n")
        (example,) = read_examples(path, task)
        assert example.label in ("good", "yes", "4.6", "0")


def test_finetuning_without_dropout_of_attention(text: str, model: str, tmp_path: Path, glass: Any) -> None:
    """The flag reaches the recipe."""
    how = ["--data", text, "-o", str(tmp_path / "run"), "--steps=1", "--window=8", "--no-tensorboard"]
    code, _, message = glass("finetune", model, "--no-attention-dropout", "--dropout=0.1", *how)
    assert code == 0, message
    assert "attention_dropout = false" in (tmp_path / "run" / "recipe.toml").read_text()


def test_a_preview_with_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model may generate any bytes: they are shown by their numbers."""
    from glassformer.tasks.train import Preview

    follower = panel.Follower(tmp_path)
    follower.show(Preview(1, "a\x1b[2Jb\nc\x0e"))
    assert capsys.readouterr().err == "  a‹U+001B›[2Jb\n  c‹U+000E›\n"


def test_the_panel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a terminal one panel shows step, loss, held-out loss, learning rate, speed and time left."""
    from glassformer.tasks.train import Evaluated, Preview, Started, Stepped

    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    follower = panel.Follower(tmp_path)
    follower.console, follower.live = console, Live(console=console, auto_refresh=False)
    with follower:
        follower.shown = -math.inf
        follower.progress("tokenizing text.txt", done=1, total=2)
        follower.show(Started(1000, 500, 20_000, 1_000, 20, tmp_path))
        for step in range(1, 11):
            follower.shown = -math.inf
            follower.show(Stepped(step, 5.0 / step, 1e-3, 1.0, 100 * step, 1234.0))
        follower.show(Evaluated(10, 0.75, True))
        follower.show(Preview(10, "The big dog"))
    shown = screen.getvalue()
    for word in ("tokenizing text.txt: 50%", "500 of them trained", "10 of 20", "0.5000", "0.7500 at step 10", "1.00e-03",
                 "1,234 tokens/s", "time left", "The big dog", "█"):  # fmt: skip
        assert word in shown, word


def test_times_and_curves_in_words() -> None:
    """Seconds in readable units; a falling curve falls."""
    assert [panel.clock(s) for s in (0.2, 59, 61, 3600, 7265)] == [
        "1 s",
        "59 s",
        "1 min 1 s",
        "1 h 0 min",
        "2 h 1 min",
    ]
    assert panel.spark([8, 7, 6, 5, 4, 3, 2, 1], 8) == "█▇▆▅▄▃▂▁"
    assert panel.spark([1.0], 10) == "▁"
    assert len(panel.spark(list(range(1000)), 40)) == 40


def test_tensorboard(text: str, tmp_path: Path) -> None:
    """Where it is installed, the same figures are there for TensorBoard."""
    loader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="TensorBoard is not installed"
    )
    small = [flag for flag in SMALL if flag != "--no-tensorboard"]
    assert glass(["train", "--data", text, "--out", str(tmp_path / "run"), "--steps=5", *small]) == 0
    found = loader.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    found.Reload()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [event.value for event in found.Scalars("loss")] == pytest.approx(
        [line["loss"] for line in lines if "loss" in line]
    )
    assert len(found.Scalars("held_out")) == 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--targets", "mlp.up"], "--targets belongs to LoRA: give --lora too"),
        (["--lora-dropout", "0.1"], "--lora-dropout belongs to LoRA"),
        (["--lora", "--rank", "0"], "--lora and --rank 0 contradict each other"),
    ],
)
def test_flags_of_lora_need_it(printed, model: str, tmp_path: Path, flags: list[str], message: str) -> None:
    """They are never ignored without a word."""
    text = tmp_path / "text.txt"
    text.write_text("a few words")
    assert message in printed("finetune", model, "--data", str(text), *flags, code=2)


def test_pairs_in_translator_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Trained on pairs and fine-tuned on others: the verb that runs it is named, and it runs."""
    data, out, small = (
        write_pairs(tmp_path),
        str(tmp_path / "run"),
        ["--batch=4", "--steps=2", "--no-tensorboard"],
    )
    shape = [
        "--kind=transformer",
        "--layers=1",
        "--decoder-layers=1",
        "--heads=2",
        "--width=16",
        "--context=16",
    ]
    assert glass(["train", "--data", data, "--vocab=258", "--out", out, "--preview=abc", *shape, *small]) == 0
    assert f'Run it:   glass translate -m {out} "abc"\n' in capsys.readouterr().out
    assert glass(["translate", "-m", out, "-n", "4", "abc"]) == 0

    tasks = {
        "translate": ["--languages=a", "--languages=b", "--both-ways", "--vocab=259"],
        "summarize": ["--room=4", "--vocab=258"],
    }
    for task, keys in tasks.items():
        size = ["--layers=1", "--heads=2", "--width=16", "--context=16", "--preview=abc"]
        named = ["--data", data, "--out", str(tmp_path / task), "--task", task, *keys]
        assert glass(["train", *named, *size, *small]) == 0
        given = '--to b "abc"' if task == "translate" else "FILE"
        assert f"Run it:   glass {task} -m {tmp_path / task} {given}\n" in capsys.readouterr().out
    assert glass(["train", "--task", "sing", "--data", data]) == 2
    every = "translate, summarize, classify, entail, similar, choose"
    assert f"task 'sing' is none of {every}\n" in capsys.readouterr().err
    assert glass(["train", "--epochs=4", "--data", data]) == 2
    assert "task classify has it: see `glass train --task classify --help`" in capsys.readouterr().err
    assert glass(["train", "--room=4", "--data", data]) == 2
    assert "task summarize has it: see `glass train --task summarize --help`" in capsys.readouterr().err

    more = ["finetune", out, "--data", data, "--out", str(tmp_path / "more"), *small]
    assert glass([*more, "--lora", "--targets=attn.query", "--longest=5"]) == 0
    assert "adapter_config.json" in {path.name for path in (tmp_path / "more" / "model").iterdir()}
    assert glass(["translate", "-m", str(tmp_path / "more"), "-n", "4", "abc"]) == 0
    capsys.readouterr()
    (tmp_path / "half.tsv").write_text("ab\tba\ncd\n")
    assert glass(["finetune", out, "--data", str(tmp_path / "half.tsv"), "--out", str(tmp_path / "bad")]) == 2
    assert "half.tsv, line 2: no tab between a source and a target: 'cd'" in capsys.readouterr().err

"""`glass finetune --task`, `glass classify`, and `glass eval` of what they make."""

import json
from pathlib import Path
from typing import Any

import pytest
from small import small_net, small_tokenizer

from glassformer.cli import run
from glassformer.data.transformations import SPECIAL
from glassformer.hub.folder import save_folder
from glassformer.tasks.load import load
from glassformer.tokenizers.extend import with_special

TOKENIZER = with_special(small_tokenizer(300), SPECIAL)
TEXTS = ["Lily liked to play", "the park", "Once upon a time"]


def head(folder: Path, task: str, labels: tuple[str, ...]) -> str:
    net = small_net("gpt2-classifier", 3, vocab=304, context=40, pad=303, task=task, labels=labels)
    save_folder(folder / task, net, tokenizer=TOKENIZER)
    return str(folder / task)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> str:
    return head(tmp_path_factory.mktemp("heads"), "classify", ("bad", "good"))


def test_a_text(glass: Any, classifier: str) -> None:
    """Every class with its probability; as JSON, the same."""
    code, out, _ = glass("classify", "-m", classifier, TEXTS[0])
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert {label for label, _ in rows} == {"bad", "good"}
    assert sum(float(share) for _, share in rows) == pytest.approx(1, abs=2e-3)
    _, out, _ = glass("classify", "-m", classifier, TEXTS[0], "--json")
    said = json.loads(out)
    assert said["label"] == rows[0][0]
    assert f"{said['probability']:.3f}" == rows[0][1]


def test_a_file(glass: Any, classifier: str, tmp_path: Path) -> None:
    """Line by line, by column, from a pipe: one line out for each text, the same ones."""
    (tmp_path / "a.txt").write_text("\n".join(TEXTS) + "\n")
    (tmp_path / "a.csv").write_text("id,body\n" + "".join(f"1,{text}\n" for text in TEXTS))
    _, lines, _ = glass("classify", "-m", classifier, "-f", str(tmp_path / "a.txt"))
    assert len(lines.splitlines()) == 3
    assert lines.splitlines()[0].split("\t")[0] in ("bad", "good")
    _, table, _ = glass("classify", "-m", classifier, "-f", str(tmp_path / "a.csv"), "--text-column", "body")
    assert table == lines
    _, piped, _ = glass("classify", "-m", classifier, stdin="\n".join(TEXTS))
    assert piped == lines
    _, data, _ = glass("classify", "-m", classifier, "-f", str(tmp_path / "a.txt"), "--json")
    assert [json.loads(line)["texts"] for line in data.splitlines()] == [[text] for text in TEXTS]


def test_what_is_cut_is_reported(glass: Any, classifier: str, tmp_path: Path) -> None:
    """One line on stderr, of a file that is classified and of one that is measured; none where nothing is cut."""
    (tmp_path / "a.csv").write_text("text,label\n" + "Lily " * 50 + ",bad\nLily,good\n")
    (tmp_path / "b.csv").write_text("text,label\nLily,good\n")
    for words in (["classify", "-m", classifier, "-f"], ["eval", classifier]):
        code, _, err = glass(*words, str(tmp_path / "a.csv"), "--cut")
        assert (code, err) == (0, "1 text longer than the model's context, cut to it\n")
        assert glass(*words, str(tmp_path / "b.csv"), "--cut")[2] == ""


def test_saliency(glass: Any, classifier: str, tmp_path: Path) -> None:
    """The answer as a table, as JSON and as a picture."""
    asked = ("classify", "-m", classifier, "--saliency")
    code, out, err = glass(*asked, TEXTS[0])
    assert code == 0
    assert "deletion" in out
    assert err.split()[0] in ("bad", "good")
    _, out, _ = glass(*asked, "--label", "bad", "--words", "--json", TEXTS[0])
    assert json.loads(out)["values"]["target_words"] == ["bad"]
    assert glass(*asked, "-o", str(tmp_path / "why.svg"), TEXTS[0])[0] == 0
    assert "<svg" in (tmp_path / "why.svg").read_text()


@pytest.mark.parametrize(("words", "message"), [
    ([""], "the text is empty"),
    (["Lily " * 50], "more than the model's context of 40; shorten the text, or cut it (--cut)"),
    (["a", "b"], "to classify takes 1 text, not 2"),
    (["a", "--label", "bad"], "--label goes with --saliency"),
    (["a", "-o", "x.svg"], "--output is for the answer to --saliency"),
    (["a", "--saliency", "--label", "x"], "label 'x' is none of the head's: bad, good"),
    (["a", "--text-column", "b"], "--text-column is for a FILE"),
    (["-f", "FILE", "--saliency"], "--saliency is about one text"),
    (["-f", "FILE.csv"], "no column for a text to classify (none of text, sentence, review, content); its columns are body"),
    (["-f", "FILE"], "line 2: the text is empty; the 1 line before it is done"),
])  # fmt: skip
def test_bad_input(glass: Any, classifier: str, tmp_path: Path, words: list[str], message: str) -> None:
    """One sentence, code 2."""
    (tmp_path / "f").write_text("a\n\nb\n")
    (tmp_path / "f.csv").write_text("body\na\n")
    words = [str(tmp_path / word.replace("FILE", "f")) if word.startswith("FILE") else word for word in words]
    code, _, err = glass("classify", "-m", classifier, *words)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


def test_a_language_model_has_no_head(glass: Any, model: str) -> None:
    """The sentence says how to make one."""
    code, _, err = glass("classify", "-m", model, "a")
    assert code == 2
    assert f"make one: glass finetune {model} --task classify --data FILE" in err


def test_pairs_and_answers(glass: Any, tmp_path: Path) -> None:
    """Two texts and a number; a context and its answers."""
    _, out, _ = glass("classify", "-m", head(tmp_path, "similar", ()), "Lily", "the park")
    assert float(out) == pytest.approx(float(out))
    _, out, _ = glass("classify", "-m", head(tmp_path, "choose", ()), "--json", "Lily", "to play", "the park")
    said = json.loads(out)
    assert list(said["probabilities"]) == ["to play", "the park"]
    assert said["choice"] in (0, 1)


def test_finetune_classify_eval(glass: Any, model: str, tmp_path: Path) -> None:
    """From a language model and a table of one's own to a figure; and on from there, without naming the task."""
    rows = "".join(f"Lily {('liked', 'played')[n % 2]} {n},{n % 2}\n" for n in range(24))
    (tmp_path / "a.csv").write_text("review,stars\n" + rows)
    columns = ("--text-column", "review", "--label-column", "stars")
    quick = ("--epochs", "2", "--batch", "4", "--no-tensorboard", "--unfreeze", "1", "--layer-decay", "2.6")
    out = str(tmp_path / "run")
    data = ("--data", str(tmp_path / "a.csv"), *columns)
    code, _, err = glass("finetune", model, "--task", "classify", *data, *quick, "-o", out)
    assert code == 0, err
    code, printed, _ = glass("eval", out, str(tmp_path / "a.csv"), *columns, "--json")
    assert code == 0
    assert [one["name"] for one in json.loads(printed)] == ["accuracy", "matthews"]
    code, printed, _ = glass("finetune", out, *data, *quick, "-o", str(tmp_path / "more"))
    assert code == 0
    assert f"glass classify -m {tmp_path / 'more'}" in printed
    (tmp_path / "b.csv").write_text("text,label\nLily,3\n")
    code, _, err = glass("eval", out, str(tmp_path / "b.csv"))
    assert code == 2
    assert "the label '3' is none of the head's: 0, 1" in err


def test_flags_of_other_models_are_refused(glass: Any, classifier: str, model: str, tmp_path: Path) -> None:
    """Columns are for a model that does a task, and what is for texts and pairs is not."""
    (tmp_path / "a.csv").write_text("text,label\nLily,bad\n")
    for flag in (["--metric", "rouge"], ["--zero-shot"], ["--lowercase"], ["--stride", "4"]):
        code, _, err = glass("eval", classifier, str(tmp_path / "a.csv"), *flag)
        assert (code, f"{flag[0]} is for texts or pairs" in err) == (2, True)
    code, _, err = glass("eval", model, str(tmp_path / "a.csv"), "--label-column", "label")
    assert (code, "--label-column is for a model that does a task" in err) == (2, True)


def test_the_help_of_a_task_has_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    """`--task` decides which flags there are, of a model that exists and of a new one."""
    for words in (["finetune", "storyteller"], ["train"]):
        assert run([*words, "--task", "entail", "--help"]) == 0
        out = capsys.readouterr().out
        head = ("--text-column", "--label-column", "--lm-weight", "--epochs")
        for flag in (*head, "--layer-decay", "--unfreeze"):
            assert flag in out
        assert "--room" not in out
        assert run([*words, "--task", "summarize", "--help"]) == 0
        out = capsys.readouterr().out
        assert "--room" in out
        assert not any(flag in out for flag in ("--lm-weight", "--epochs"))
    assert run(["finetune", "--help"]) == 0
    assert "--task classify" in capsys.readouterr().out


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("task", ["classify", "entail"])
def test_the_pipeline_of_transformers_says_the_same(tmp_path: Path, task: str) -> None:
    """Its tokenizer surrounds a text as ours does, also after a second writing; the ids here stay the same."""
    from transformers import pipeline

    lm: Any = load(head(tmp_path, task, ("bad", "good")))
    lm.save(tmp_path / "again")
    examples = [(TEXTS[0],), (TEXTS[2],)] if task == "classify" else [(TEXTS[0], TEXTS[1]), (TEXTS[2], "it")]
    right = [one.probabilities for one in lm.classify_many(examples)]
    given = [{"text": one[0], "text_pair": one[1]} if len(one) == 2 else one[0] for one in examples]
    reader = pipeline("text-classification", model=str(tmp_path / "again"))
    found = reader(given, top_k=None, batch_size=2)
    for theirs, ours in zip(found, right, strict=True):
        assert {one["label"]: one["score"] for one in theirs} == pytest.approx(ours, abs=1e-5)
    again: Any = load(str(tmp_path / "again"))
    assert again.rows(examples[0]) == lm.rows(examples[0])


def test_a_model_that_takes_no_head_is_told_of_one_that_does(glass: Any) -> None:
    """What is advised can be run."""
    code, _, message = glass("classify", "-m", "translator", "a text")
    assert (code, "glass finetune storyteller --task classify" in message) == (2, True)

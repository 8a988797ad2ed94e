"""glass summarize, as a person meets it."""

import json
from pathlib import Path

import pytest
from decoders import save_decoder
from translators import small_translator

from glassformer.data.pairs import Pair
from glassformer.tasks.load import load
from glassformer.tasks.summarize import encode_pair
from glassformer.tasks.translate import Translator

TEXT = "She liked to play outside in the park. " * 16
FAST = ["--num-beams", "1", "-n", "5", "--engine", "torch"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_decoder(tmp_path_factory.mktemp("decoders") / "one", "<summarize>", seed=5, context=96)


def test_a_file_and_a_pipe(glass, folder: str, tmp_path: Path) -> None:
    """The summary alone on stdout; what was cut is a message."""
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    right = load(folder, engine="torch").summarize(TEXT, num_beams=1, max_new_tokens=5)
    for given in (["-"], [], [str(path)]):
        code, out, err = glass(
            "summarize", "-m", folder, *FAST, *given, stdin=None if given == [str(path)] else TEXT
        )
        assert (code, out) == (0, right.text + "\n")
        assert right.cut in err
        assert "1 text with a summary that the limit of tokens cut; -n allows more" in err
    code, out, _ = glass("summarize", "-m", folder, *FAST, "--json", str(path))
    assert json.loads(out) == right.to_dict()
    assert right.left_out > 0


def test_several_files(glass, folder: str, tmp_path: Path) -> None:
    """Each behind its name."""
    for name in "ab":
        (tmp_path / name).write_text(f"{name} park")
    code, out, _ = glass("summarize", "-m", folder, *FAST, str(tmp_path / "a"), str(tmp_path / "b"))
    assert code == 0
    assert [line.split(":")[0] for line in out.splitlines()][:2] == [str(tmp_path / "a"), str(tmp_path / "b")]


def test_zero_shot(glass, model: str) -> None:
    """By a model without the tag; the same seed gives the same."""
    runs = [
        glass(
            "summarize",
            "-m",
            model,
            "--zero-shot",
            "-n",
            "20",
            "-s",
            seed,
            "--engine",
            "torch",
            "-",
            stdin=TEXT,
        )
        for seed in "112"
    ]
    assert [code for code, _, _ in runs] == [0, 0, 0]
    assert runs[0][1] == runs[1][1]
    assert "unfinished" not in runs[0][2]


def test_bad_input(glass, folder: str, model: str, tmp_path: Path) -> None:
    """One sentence each; without a model, the command that makes one."""
    (tmp_path / "empty").write_text(" \n")
    for arguments, words in (
        (["-"], "`glass finetune storyteller --task summarize --data PAIRS` makes one"),
        (["-m", model, "-"], "has no <summarize>; `glass finetune"),
        (["-m", folder, str(tmp_path / "empty")], "there is nothing to summarize: the text is empty"),
        (["-m", folder, str(tmp_path / "missing")], "missing"),
        (
            ["-m", folder, "-n", "96", "-"],
            "a summary of 96 tokens leaves no room for a text in a context of 96",
        ),
    ):
        code, out, err = glass("summarize", *arguments, stdin=TEXT)
        assert (code, out) == (2, "")
        assert words in err
        assert len(err.splitlines()) == 1


def test_rouge_by_glass_eval(glass, folder: str, model: str, tmp_path: Path) -> None:
    """With the lead sentence beside it; the loss without a metric; zero-shot by a model without the tag."""
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"source": "Lily ran. She fell.", "target": "Lily fell"}) + "\n")
    code, out, _ = glass("eval", folder, str(path), "--metric", "rouge", "--json", "--num-beams", "1")
    assert code == 0
    found = {one["name"]: one["score"] for one in json.loads(out)}
    assert found["lead sentence, rouge1"] == 50
    code, out, _ = glass("eval", folder, str(path))
    assert (code, "nats a token" in out) == (0, True)
    code, out, _ = glass("eval", model, str(path), "--metric", "rouge", "--zero-shot", "--json")
    assert code == 2  # its context has no room for 100 tokens
    for arguments, words in (
        (["--to", "fr"], "--to is for models that translate"),
        (["--metric", "bloop"], "metric 'bloop' is none of bleu, chrf, rouge"),
    ):
        code, _, err = glass("eval", folder, str(path), *arguments)
        assert (code, words in err) == (2, True)


def test_rows_of_a_pair(glass, folder: str) -> None:
    """`glass show` draws a pair as the article does: source, tag, and the half that is learned."""
    code, out, _ = glass("show", folder, "--training-rows", "a park", "--target", "Lily", "--json")
    assert code == 0
    found = json.loads(out)
    given = [row for row in found["rows"] if not row[4]]
    assert [row[3] for row in found["rows"] if row[4]][-1] == "<|endoftext|>"
    assert given[-1][3] == "<summarize>"
    for arguments, words in (
        (
            ["--training-rows", "a", "--target", "b", "--to", "de"],
            "'de' is not a language of this vocabulary; its tags are <summarize>",
        ),
        (["--target", "b"], "--target needs --training-rows"),
        (["--training-rows", "a", "--to", "fr"], "--to needs --target"),
        (["--training-rows", "a", "--target", " "], "neither may be empty"),
        (
            ["--training-rows", "a", "--training-rows", "b", "--target", "c"],
            "--training-rows and --target come in pairs, and there are 2 of the one and 1 of the other",
        ),
        (["--training-rows", "a", "--training-rows", "b"], "takes one text, or several with a --target each"),
    ):
        code, _, err = glass("show", folder, *arguments)
        assert (code, words in err) == (2, True), err
    code, _, err = glass("show", "storyteller", "--training-rows", "a", "--target", "b")
    assert (code, "the vocabulary has no tag such as <to-fr> or <summarize>" in err) == (2, True)


def test_rows_of_several_pairs_are_those_of_a_training(glass, folder: str) -> None:
    """A row for each pair; a long text is cut as a training cuts it, and what was cut is said."""
    pairs = [("a park", "Lily"), (TEXT, "a girl")]
    flags = [word for one in pairs for word in ("--training-rows", one[0], "--target", one[1])]
    code, out, _ = glass("show", folder, *flags, "--json")
    assert code == 0
    found = json.loads(out)
    lm = load(folder, engine="torch")
    right = [encode_pair(lm, Pair(*pair)) for pair in pairs]
    assert [len(one[0]) for one in found["values"]["sequences"]] == [len(one.ids) for one in right]
    left = len(lm.encode(TEXT)) - (right[1].given - 1)
    assert f"cut off row 2: the last {left} tokens of its source" in found["caption"]


def test_an_encoder_decoder_that_has_no_languages(glass, tmp_path: Path) -> None:
    """It may have been trained on summaries: a long text is cut. One that translates says so."""
    lm = small_translator(seed=1, languages=(), context=32, layout="halves", head_bias=True)
    lm.save(tmp_path / "one")
    code, out, err = glass(
        "summarize", "-m", str(tmp_path / "one"), "--num-beams", "1", "-n", "5", "-", stdin=TEXT
    )
    assert code == 0, err
    ((best, *_),) = (
        load(tmp_path / "one")
        .expect(Translator)
        .translate_many([TEXT], cut=True, num_beams=1, max_new_tokens=5)
    )
    assert out == best.text + "\n"
    assert "32 were read, the rest cut" in err
    code, _, err = glass("summarize", "-m", "translator", "-", stdin=TEXT)
    assert (code, "translator translates to en and fr and does not summarize" in err) == (2, True)
    code, _, err = glass("summarize", "-m", str(tmp_path / "one"), "--zero-shot", "-", stdin=TEXT)
    assert (code, "is an encoder-decoder, and no language model" in err) == (2, True)

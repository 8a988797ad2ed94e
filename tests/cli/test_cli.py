"""The command line: data on stdout, one sentence on stderr, exit codes that mean something."""

import json
import os
import pty
import re
import select
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small import small_model, small_tokenizer

from glassformer.cli import VERBS, run
from glassformer.hub.folder import save_folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a tiny model that writes nonsense quickly."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_folder(folder, small_model(3, vocab=300, context=64), tokenizer=small_tokenizer(300))
    return str(folder)


@pytest.fixture
def glass(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Run a command line in this process: (exit code, stdout, stderr)."""

    def call(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        reader, writer = os.pipe()
        os.write(writer, stdin.encode())
        os.close(writer)
        with os.fdopen(reader) as file:
            monkeypatch.setattr(sys, "stdin", file)
            code = run(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_alone_it_gets_a_newcomer_going(glass) -> None:
    """Five lines, and they are commands that exist."""
    code, out, _ = glass()
    assert code == 0
    assert len(out.splitlines()) == 5
    for verb in re.findall(r"^  glass (\w+)", out, re.M):
        assert verb in VERBS


def test_help_names_every_verb(glass) -> None:
    """And every verb explains itself with an example."""
    code, out, _ = glass("--help")
    assert code == 0
    for verb in VERBS:
        assert re.search(rf"^  {verb} ", out, re.M)
        code, text, _ = glass(verb, "--help")
        assert code == 0
        assert f"glass {verb}" in text.split("Options:")[0].split("\n", 2)[2]


def test_generate_is_reproducible(glass, model: str) -> None:
    """Same seed, same text; another seed, another text; the prompt stands first."""
    first = glass("generate", "-m", model, "-n", "20", "-s", "5", "Once upon")
    assert first == glass("generate", "-m", model, "-n", "20", "-s", "5", "Once upon")
    assert first[0] == 0
    assert first[1].startswith("Once upon")
    assert first[1] != glass("generate", "-m", model, "-n", "20", "-s", "6", "Once upon")[1]


def test_streamed_or_not_it_is_the_same_text(glass, model: str) -> None:
    """Stream, whole and JSON agree."""
    arguments = ("generate", "-m", model, "-n", "20", "-s", "5", "Once")
    streamed = glass(*arguments)[1]
    assert streamed == glass(*arguments, "--no-stream")[1]
    data = json.loads(glass(*arguments, "--json")[1])
    assert data["prompt"] + data["text"] + "\n" == streamed
    assert data["finish_reason"] in ("length", "stop")
    assert len(data["tokens"]) == len(data["logprobs"]) == len(data["pieces"]) <= 20


def test_prompts_come_from_everywhere(glass, model: str, tmp_path: Path) -> None:
    """Argument, pipe, dash and file give the same text."""
    (tmp_path / "p.txt").write_text("Once\n")
    options = ("-m", model, "-n", "8", "-s", "1")
    texts = {
        glass("generate", *options, "Once")[1],
        glass("generate", *options, stdin="Once\n")[1],
        glass("generate", *options, "-", stdin="Once")[1],
        glass("generate", *options, "-f", str(tmp_path / "p.txt"))[1],
    }
    assert len(texts) == 1


def test_a_bare_prompt_of_several_words(glass, model: str) -> None:
    """`glass "Once upon a time"` writes on."""
    assert glass("Once upon a", "-m", model, "-n", "5", "-s", "1") == glass(
        "generate", "Once upon a", "-m", model, "-n", "5", "-s", "1"
    )


def test_nothing_at_all_starts_a_text(glass, model: str) -> None:
    """An unconditional sample."""
    code, out, err = glass("generate", "-m", model, "-n", "5", "-s", "1")
    assert (code, err) == (0, "")
    assert out.strip()


def test_several_answers_and_beams(glass, model: str) -> None:
    """As many as were asked for."""
    data = json.loads(
        glass("generate", "-m", model, "-n", "5", "-s", "1", "--num-return-sequences", "3", "--json", "Once")[
            1
        ]
    )
    assert [one["choice"] for one in data] == [0, 1, 2]
    assert len({one["text"] for one in data}) > 1
    code, out, _ = glass("generate", "-m", model, "-n", "5", "--num-beams", "3", "--json", "Once")
    assert code == 0
    assert len(json.loads(out)["tokens"]) <= 5


BAD = [
    (["genrate"], "did you mean `glass generate`"),
    (["generate", "--temperature", "-1", "x"], "temperature"),
    (["generate", "--temperature", "nan", "x"], "temperature"),
    (["generate", "--temperature", "warm", "x"], "temperature"),
    (["generate", "--top-p", "0", "x"], "top_p"),
    (["generate", "--top-k", "-2", "x"], "top_k"),
    (["generate", "--min-p", "2", "x"], "min_p"),
    (["generate", "-n", "-1", "x"], "max_new_tokens"),
    (["generate", "-s", "-1", "x"], "seed"),
    (["generate", "--logit-bias", "five", "x"], "--logit-bias"),
    (["generate", "--num-beams", "0", "x"], "num_beams"),
    (["generate", "--engine", "steam", "x"], "engine"),
    (["generate", "--frobnicate", "x"], "--frobnicate"),
    (["generate", "one", "two"], "two"),
    (["generate", "-f", "/nowhere/at/all", ""], "--file"),
    (["generate", "-f", "/nowhere/at/all"], "/nowhere/at/all"),
    (["generate", "-m", "/nowhere", "x"], "/nowhere"),
    (["generate", "-m", "../../etc", "x"], "../../etc"),
    (["generate", "-m", "", "x"], "empty"),
    (["generate", "--device", "toaster", "x"], "toaster"),
    (["generate", "--dtype", "int8", "x"], "int8"),
    (["generate", "-i", "x"], "--interactive"),
    (["generate", "-i", "--json"], "--interactive"),
    (["generate", "--num-beams", "2", "--slide", "x"], "slide"),
    (["top", "-k", "0", "x"], "-k"),
    (["tokenize", "--train", "/nowhere/at/all", "-o", "/tmp/x"], "/nowhere/at/all"),
    (["tokenize", "--train", "/etc/hostname"], "-o FOLDER"),
    (["show", "/nowhere"], "/nowhere"),
    (["rm", "storyteller", "-y"], "ships with"),
    (["rm", "no-such-model", "-y"], "no-such-model"),
    (["rm", "storyteller"], "--yes"),
    (["convert", "/nowhere.pt"], "/nowhere.pt"),
    (["convert", "/etc/hostname"], "neither torch's archive nor a pickle"),
    (["pull"], "model"),
]


@pytest.mark.parametrize(("arguments", "word"), BAD, ids=[" ".join(arguments)[:50] for arguments, _ in BAD])
def test_wrong_use_is_one_sentence_and_exit_2(glass, arguments: list[str], word: str) -> None:
    """No traceback, nothing on stdout, the field is named."""
    code, out, err = glass(*arguments)
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert word.lower() in err.lower()


def test_a_prompt_that_does_not_fit(glass, model: str) -> None:
    """The error says by how much; sliding is a choice."""
    code, _, err = glass("generate", "-m", model, "x" * 70)
    assert code == 2
    assert re.search(r"\d+ tokens, \d+ more than the model's context of 64", err)
    assert (
        glass("generate", "-m", model, "-n", "80", "--min-new-tokens", "80", "-s", "1", "--slide", "x" * 70)[
            0
        ]
        == 0
    )


def test_top_shows_bars_that_fit_the_numbers(glass, model: str) -> None:
    """Ten rows, falling; the data says the same."""
    code, out, _ = glass("top", "-m", model, "Once upon")
    assert code == 0
    shown = [float(share) for share in re.findall(r"([\d.]+)%", out)]
    data = json.loads(glass("top", "-m", model, "--json", "Once upon")[1])["next"]
    assert len(shown) == len(data) == 10
    assert shown == sorted(shown, reverse=True)
    assert shown == pytest.approx([100 * one["probability"] for one in data], abs=0.051)


def test_top_interactive_picks_and_goes_back(glass, model: str) -> None:
    """Pick the first, pick the second, take it back, end."""
    code, out, err = glass("top", "-m", model, "-i", "Once", stdin="1\n2\n0\nnine\n\n")
    assert code == 0
    best = json.loads(glass("top", "-m", model, "--json", "-k", "1", "Once")[1])["next"][0]["text"]
    assert out.splitlines()[-1] == f"Once{best}".splitlines()[-1]
    assert "'nine' is not a number" in err


def test_tokenize(glass, model: str) -> None:
    """Tokens, ids, merges, data."""
    code, out, _ = glass("tokenize", "-m", model, "--ids", "Once upon a time")
    assert code == 0
    ids = [int(id) for id in out.split()]
    data = json.loads(glass("tokenize", "-m", model, "--json", "--merges", "Once upon a time")[1])
    assert [row["id"] for row in data["tokens"]] == ids
    assert "".join(row["text"] for row in data["tokens"]) == "Once upon a time"
    assert [id for word in data["merges"] for id in word["ids"]] == ids
    assert all(word["steps"][-1]["pieces"] == word["pieces"] for word in data["merges"] if word["steps"])
    merges = glass("tokenize", "-m", model, "--merges", "Once upon a time")[1]
    assert merges.count("rank") == sum(len(word["steps"]) for word in data["merges"])


def test_tokenize_trains(glass, tmp_path: Path) -> None:
    """A new vocabulary from a text, ready to be used."""
    (tmp_path / "text.txt").write_text(
        "the little cat sat on the mat and dreamt of another, larger mat. " * 50
    )
    code, out, _ = glass(
        "tokenize", "--train", str(tmp_path / "text.txt"), "--vocab-size", "270", "-o", str(tmp_path / "v")
    )
    assert code == 0
    assert "270 tokens" in out
    assert glass("tokenize", "-m", str(tmp_path / "v"), "--ids", "the cat")[0] == 0


def test_show_counts_from_the_file(glass, model: str) -> None:
    """The total is the sum of what is shown, and the model's own count."""
    data = json.loads(glass("show", "--json", model)[1])
    assert data["total"] == data["blocks"] * data["block_total"] + sum(
        row["parameters"] for row in data["whole"]
    )
    assert data["total"] == small_model(vocab=300, context=64).config.parameters
    assert f"{data['total']:,}" in glass("show", model)[1]


def test_show_says_why_124m(glass, tmp_path: Path) -> None:
    """On GPT-2 small itself: the exact count, block by block, and the note."""
    import torch

    from glassformer.models.gpt import GPT, PRESETS

    with torch.device("meta"):
        names = GPT(PRESETS["gpt2"])
    folder = tmp_path / "gpt2"
    write_sparse_gpt2(folder, names)
    out = glass("show", str(folder))[1]
    for figure in ("124,439,808", "7,087,872", "38,597,376", "124M and not 117M", "124,410,624"):
        assert figure in out


def write_sparse_gpt2(folder: Path, model: object) -> None:
    """A file with GPT-2 small's header and a hole where the numbers would be."""
    from glassformer.hub.gpt2 import NAMES, write_config

    folder.mkdir()
    header, at = {}, 0
    for name, parameter in model.named_parameters():  # type: ignore[attr-defined]
        shape = list(parameter.shape)[:: -1 if NAMES.is_transposed(name) else 1]
        header[NAMES.theirs(name)] = {
            "dtype": "F32",
            "shape": shape,
            "data_offsets": [at, at + 4 * parameter.numel()],
        }
        at += 4 * parameter.numel()
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)
    (folder / "config.json").write_text(json.dumps(write_config(model.config)))  # type: ignore[attr-defined]


def test_models_lists_what_ships(glass) -> None:
    """The storyteller is there; what could be pulled is named."""
    code, out, _ = glass("models")
    assert code == 0
    assert "storyteller" in out
    assert "gpt2-xl" in out


def test_a_reader_that_leaves(model: str) -> None:
    """`glass … | head` ends quietly."""
    endless = [
        "generate",
        "-m",
        model,
        "-n",
        "100000",
        "--min-new-tokens",
        "100000",
        "--slide",
        "-s",
        "1",
        "Once",
    ]
    command = " ".join(map(shlex.quote, [sys.executable, "-m", "glassformer.cli", *endless]))
    script = f"{command} < /dev/null | head -c 5; echo; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, errors="replace", timeout=120
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "0"


def test_a_conversation_on_a_terminal(model: str) -> None:
    """Prompt, text, prompt, end: on a real terminal."""
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "glassformer.cli", "generate", "-m", model, "-i", "-n", "4", "-s", "1"]
    with subprocess.Popen(command, stdin=child, stdout=child, stderr=child) as process:
        os.close(child)
        said, sent, deadline = "", 0, time.time() + 60
        while time.time() < deadline and (process.poll() is None or select.select([parent], [], [], 0)[0]):
            if select.select([parent], [], [], 0.2)[0]:
                try:
                    said += os.read(parent, 4096).decode(errors="replace")
                except OSError:
                    break
            if said.count("> ") > sent and sent < 3:
                os.write(parent, [b"Once\n", b"upon\n", b"\x04"][sent])
                sent += 1
        assert process.wait(30) == 0
    os.close(parent)
    assert "Once" in said
    assert "upon" in said
    assert "Traceback" not in said


def test_a_prompt_of_any_bytes(glass, model: str) -> None:
    """An argument that is no text is read as far as it is one."""
    code, out, err = glass("generate", "-m", model, "-n", "3", "-s", "1", "abc \udcff")
    assert (code, err) == (0, "")
    assert out.startswith("abc \ufffd")


def test_a_file_and_a_pipe_are_read_alike(glass, model: str, tmp_path: Path) -> None:
    """Line ends stay what they are."""
    (tmp_path / "dos.txt").write_bytes(b"a\r\nb")
    piped = glass("tokenize", "-m", model, "--ids", stdin="a\r\nb")
    assert piped == glass("tokenize", "-m", model, "--ids", "-f", str(tmp_path / "dos.txt"))
    assert len(piped[1].split()) == 4


def test_a_place_that_cannot_be_written_to(glass, tmp_path: Path) -> None:
    """A failure, in one sentence that names the place."""
    (tmp_path / "text.txt").write_text("some text " * 50)
    code, _, err = glass(
        "tokenize",
        "--train",
        str(tmp_path / "text.txt"),
        "--vocab-size",
        "260",
        "-o",
        str(tmp_path / "text.txt"),
    )
    assert code == 1
    assert err.splitlines()[-1].startswith("glass: ")
    assert "text.txt" in err.splitlines()[-1]
    assert "Traceback" not in err


def test_interactive_top_starts_from_a_file(glass, model: str, tmp_path: Path) -> None:
    """And `00` picks nothing."""
    (tmp_path / "p.txt").write_text("Once upon")
    code, out, err = glass("top", "-m", model, "-i", "-f", str(tmp_path / "p.txt"), stdin="00\n\n")
    assert code == 0
    assert out.splitlines()[-1] == "Once upon"
    assert "'00' is not a number" in err


def test_convert_keeps_under_a_name(
    glass, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a name the folder's own is taken; it is listed, used and removed by it. A shipped name is taken already."""
    import torch
    from small import hugging_face

    (tmp_path / "gem").mkdir()
    monkeypatch.chdir(tmp_path / "gem")
    source = hugging_face()
    source.config.save_pretrained(".")
    torch.save(source.state_dict(), "pytorch_model.bin")
    assert glass("convert", "pytorch_model.bin", "storyteller")[0] == 2
    code, out, err = glass("convert", "pytorch_model.bin", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"folder": str(home / "models" / "gem")}
    assert glass("convert", "pytorch_model.bin")[0] == 2  # it is there already
    monkeypatch.chdir(tmp_path)
    assert "gem" in glass("models")[1]
    assert glass("generate", "-m", "gem", "x")[0] == 2  # it has no vocabulary, and says so
    assert glass("rm", "gem", "-y")[0] == 0
    assert not (home / "models" / "gem").exists()

"""glass generate: from prompts to text, streamed or whole."""

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest
from small import small_net, small_tokenizer

from glassformer.engine.native import ways
from glassformer.generation.options import Options
from glassformer.hub.folder import save_folder


def test_generate_is_reproducible(glass, model: str) -> None:
    """Same seed, same text; another seed, another text; the prompt comes first."""
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


def test_without_the_prompt(glass, model: str) -> None:
    """`--no-echo` prints what is new, streamed or whole."""
    arguments = ("generate", "-m", model, "-n", "8", "-s", "5", "Once")
    new = json.loads(glass(*arguments, "--json")[1])["text"] + "\n"
    for how in ((), ("--no-stream",)):
        assert glass(*arguments, *how)[1] == f"Once{new}"
        assert glass(*arguments, *how, "--no-echo")[1] == new


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


def test_a_prompt_that_does_not_fit(glass, model: str) -> None:
    """The error gives the excess; sliding is a choice."""
    code, _, err = glass("generate", "-m", model, "x" * 70)
    assert code == 2
    assert re.search(r"\d+ tokens, \d+ more than the model's context of 64", err)
    assert (
        glass("generate", "-m", model, "-n", "80", "--min-new-tokens", "80", "-s", "1", "--slide", "x" * 70)[
            0
        ]
        == 0
    )


@pytest.mark.parametrize("flags", [(), ("--no-stream",)])
def test_a_full_context_is_said(glass, model: str, flags: tuple[str, ...]) -> None:
    """On stderr and as data, whenever the context ends a text and not what was asked for."""
    prompt = ["-m", model, "-s", "1", "--min-new-tokens", "60", "a b c"]
    code, _, err = glass("generate", *prompt, *flags, "-n", "100")
    assert code == 0
    assert "and the context of 64 is full; --slide continues with its last half)" in err
    assert "context" not in glass("generate", *prompt, *flags, "-n", "100", "--slide")[2]
    data = json.loads(glass("generate", *prompt, "-n", "100", "--json")[1])
    assert data["finish_reason"] == "context"


def test_a_conversation_on_a_terminal(model: str) -> None:
    """Prompt, text, prompt, end: on a real terminal."""
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "glassformer.cli", "generate", "-m", model, "-i", "-n", "4", "-s", "1"]
    with subprocess.Popen(command, stdin=child, stdout=child, stderr=child) as process:
        os.close(child)
        printed, sent, deadline = "", 0, time.time() + 60
        while time.time() < deadline and (process.poll() is None or select.select([parent], [], [], 0)[0]):
            if select.select([parent], [], [], 0.2)[0]:
                try:
                    printed += os.read(parent, 4096).decode(errors="replace")
                except OSError:
                    break
            if printed.count("> ") > sent and sent < 3:
                os.write(parent, [b"Once\n", b"upon\n", b"\x04"][sent])
                sent += 1
        assert process.wait(30) == 0
    os.close(parent)
    assert "Once" in printed
    assert "upon" in printed
    assert "Traceback" not in printed


def test_a_prompt_of_any_bytes(glass, model: str) -> None:
    """An argument that is no text is read as far as it is one."""
    code, out, err = glass("generate", "-m", model, "-n", "3", "-s", "1", "abc \udcff")
    assert (code, err) == (0, "")
    assert out.startswith("abc \ufffd")


def test_defaults_in_the_help_are_those_of_the_package(glass) -> None:
    """They are written by hand, so that the help imports nothing."""
    text = " ".join(glass("generate", "--help")[1].split())
    for one in fields(Options):
        flag = f"--{one.name.replace('_', '-')}"
        shown = re.search(rf"{flag} (?:INTEGER|FLOAT) [^\[]*\[([\d.]+)\]", text)
        if shown and one.name != "seed":
            assert float(shown[1]) == one.default, flag
    assert len(re.findall(r"\[[\d.]+\]", text)) == 13


def test_a_model_has_defaults_of_its_own(glass, model: str, tmp_path: Path) -> None:
    """Its generation_config.json goes before the package's defaults; what is typed goes before both."""
    folder = tmp_path / "own"
    shutil.copytree(model, folder)
    (folder / "generation_config.json").write_text('{"do_sample": false, "max_new_tokens": 7}')
    first = json.loads(glass("generate", "-m", str(folder), "--json", "Once")[1])
    assert len(first["tokens"]) == 7
    assert first["tokens"] == json.loads(glass("generate", "-m", str(folder), "--json", "Once")[1])["tokens"]
    typed = json.loads(glass("generate", "-m", str(folder), "--json", "-n", "3", "Once")[1])
    assert typed["tokens"] == first["tokens"][:3]
    hot = ("generate", "-m", str(folder), "--json", "--temperature", "5", "--top-k", "0", "Once")
    assert len({tuple(json.loads(glass(*hot)[1])["tokens"]) for _ in range(4)}) > 1


def test_zero_is_a_value(glass, model: str) -> None:
    """Of a temperature, a number of tokens and a seed."""
    cold = ("generate", "-m", model, "-n", "8", "--temperature", "0", "Once")
    assert glass(*cold) == glass(*cold)
    assert glass("generate", "-m", model, "-n", "0", "Once")[1] == "Once\n"
    assert json.loads(glass("generate", "-m", model, "-n", "1", "-s", "0", "--json", "Once")[1])["seed"] == 0


def test_examples_go_before_the_question(glass, model: str, tmp_path: Path) -> None:
    """Only question and answer are printed; the answer ends with its line; streamed, whole and JSON agree."""
    (tmp_path / "e.txt").write_text("a b\n\nc d\n")
    command = ("generate", "-m", model, "-n", "12", "-s", "3", "--examples", str(tmp_path / "e.txt"), "e f")
    code, streamed, err = glass(*command)
    assert (code, err) == (0, "")
    assert streamed.startswith("e f")
    assert streamed == glass(*command, "--no-stream")[1]
    data = json.loads(glass(*command, "--json")[1])
    assert data["prompt"] == "a b\nc d\ne f"
    assert (data["examples_used"], data["examples_dropped"]) == (2, 0)
    assert streamed == f"e f{data['text']}\n"
    assert "\n" not in data["text"]
    plain = json.loads(glass("generate", "-m", model, "-n", "12", "-s", "3", "--json", "e f")[1])
    assert "examples_used" not in plain


def test_an_answer_to_examples_ends_at_a_stop_string(glass, model: str, tmp_path: Path) -> None:
    """At a line end; with --stop, there."""
    (tmp_path / "e.txt").write_text("a\n\nb")
    command = ("generate", "-m", model, "-n", "40", "--examples", str(tmp_path / "e.txt"), "--json", "c")
    ids = json.loads(glass("tokenize", "-m", model, "--json", "\n")[1])["tokens"]
    newline = ("--logit-bias", f"{ids[0]['id']}=1000")
    assert json.loads(glass(*command, *newline)[1])["text"] == ""
    assert json.loads(glass(*command, *newline, "--stop", "zzz")[1])["text"] == "\n" * 40
    code, _, err = glass(*command, "--num-beams", "2")
    assert code == 2
    assert "--examples" in err
    assert "--num-beams" in err


def test_examples_that_do_not_fit_are_named(glass, model: str, tmp_path: Path) -> None:
    """The first are dropped, as few as possible; their number is on stderr, and in the data."""
    lines = [json.dumps({"prompt": f"{n} x x x", "completion": " y"}) for n in range(30)]
    (tmp_path / "e.jsonl").write_text("\n".join(lines))
    command = ("generate", "-m", model, "-s", "1", "--examples", str(tmp_path / "e.jsonl"), "31 x")
    code, out, err = glass(*command)
    assert code == 0
    assert out.startswith("31 x")
    assert re.match(r"\d+ of 30 examples do not fit the context and were dropped, the first ones\n", err)
    few = json.loads(glass(*command, "--json")[1])
    assert few["examples_used"] + few["examples_dropped"] == 30
    assert few["prompt"].startswith(f"{few['examples_dropped']} x x x y\n")
    assert len(few["prompt_tokens"]) <= 48  # a quarter of the context of 64 is left for the answer
    more = json.loads(glass(*command, "--json", "-n", "2")[1])
    assert more["examples_used"] > few["examples_used"]  # -n needs less room
    (tmp_path / "none.txt").write_text("\n\n")
    assert "none.txt holds no text" in glass(*command[:-2], str(tmp_path / "none.txt"), "x")[2]


def test_examples_for_every_prompt_of_a_conversation(glass, model: str, tmp_path: Path) -> None:
    """Each line that is typed is a question."""
    (tmp_path / "e.txt").write_text("a b\n\nc d")
    how = ("-m", model, "-n", "6", "-s", "3", "--examples", str(tmp_path / "e.txt"))
    once = glass("generate", *how, "e f")[1]
    assert glass("generate", *how, "-i", stdin="e f\ne f\n")[1] == once * 2


@pytest.mark.skipif(not ways(), reason="no native engine was built here")
def test_a_model_that_the_native_engine_does_not_run(glass, tmp_path: Path) -> None:
    """Torch runs it, with one line on stderr; by name, the engine is refused."""
    folder = tmp_path / "bands"
    net = small_net("gpt3", vocab=300, context=64)
    save_folder(folder, net, tokenizer=small_tokenizer(300))
    for verb in (["generate", "-n", "2", "-s", "1"], ["top"]):
        code, out, err = glass(*verb, "-m", str(folder), "Once")
        assert code == 0
        assert out
        assert re.fullmatch(r"\S+bands: .+; torch is used instead\n", err)
        assert glass(*verb, "-m", str(folder), "--engine", "torch", "Once") == (0, out, "")
        code, out, err = glass(*verb, "-m", str(folder), "--engine", "native", "Once")
        assert (code, out) == (2, "")
        assert "use --engine torch" in err


def test_every_line_is_a_prompt(glass, model: str, tmp_path: Path) -> None:
    """In order, each with the answer it has alone; an empty line stays one; from a file or a pipe."""
    lines = [
        f"The {word}" for word in ["cat", "dog", "bird", "fish", "cow", "fox", "owl", "bee", "ant", "hen"]
    ]
    lines.insert(1, "")
    (tmp_path / "prompts.txt").write_text("\n".join(lines) + "\n")
    how = ("generate", "-m", model, "-n", "6", "-s", "2", "--lines")
    code, out, err = glass(*how, "-f", str(tmp_path / "prompts.txt"))
    assert (code, err) == (0, "")
    alone = {line: glass("generate", "-m", model, "-n", "6", "-s", "2", line)[1] for line in lines if line}
    assert out.split("\n")[:-1] == [" ".join(alone[line].splitlines()) if line else "" for line in lines]
    assert glass(*how, stdin="\n".join(lines))[1] == out
    found = [json.loads(line) for line in glass(*how, "--json", stdin="\n".join(lines))[1].splitlines()]
    assert [one and one["prompt"] for one in found] == [line or None for line in lines]
    unseeded = glass("generate", "-m", model, "-n", "6", "--lines", "--json", stdin="\n".join(lines))[1]
    assert len({one["seed"] for one in map(json.loads, unseeded.splitlines()) if one}) == 1


def test_a_line_that_cannot_be_continued_is_named(glass, model: str) -> None:
    """After the answers to those before it."""
    lines = ["The cat"] * 10 + ["cat " * 100, "The dog"]
    code, out, err = glass("generate", "-m", model, "-n", "2", "--lines", stdin="\n".join(lines))
    assert code == 2
    assert len(out.splitlines()) == 10
    assert err.startswith("glass: stdin, line 11: the prompt has ")
    assert err.endswith("; the 10 lines before it are done\n")


@pytest.mark.parametrize(("more", "message"), [
    (["Once"], "--lines reads its prompts from a file (-f) or a pipe; it takes no prompt"),
    (["-o", "x.svg"], "--lines gives one answer to every line; it does not go with --interactive,"
                      " --num-return-sequences or -o"),
    ([], "--lines: there is no prompt, every line is empty"),
])  # fmt: skip
def test_lines_are_prompts_and_nothing_else_is(glass, model: str, more: list[str], message: str) -> None:
    """What does not go with --lines is one sentence."""
    assert glass("generate", "-m", model, "--lines", *more) == (2, "", f"glass: {message}\n")


def test_json_says_how_long_it_took(glass, model: str) -> None:
    """Of each answer, and which model gave it."""
    how = ("generate", "-m", model, "--json", "--engine", "torch", "-s", "1")
    data = json.loads(glass(*how, "-n", "1", "Once")[1])
    assert data["seconds"] > 0
    assert data["model"] == model
    several = json.loads(glass(*how, "-n", "2", "--num-return-sequences", "2", "Once")[1])
    assert all(answer["seconds"] > 0 for answer in several)


@pytest.mark.parametrize("line", [
    ["generate", "-n", "2"], ["top", "-k", "1"], ["lens"], ["generate", "-n", "2", "--json"],
])  # fmt: skip
def test_a_blank_at_the_end_of_a_prompt_gets_a_hint(glass, caplog, line: list[str]) -> None:
    """Where the blank before a word is part of its token; once, and not for other ends."""
    assert glass(*line, "Once upon a")[0] == glass(*line, "Once upon a\n")[0] == glass(*line, " ")[0] == 0
    assert not caplog.records
    assert glass(*line, "Once upon a ")[0] == 0
    assert [one.message for one in caplog.records] == [
        "the text ends with a blank, a token of its own; words begin with theirs: leave it out"
    ]


def test_letters_as_tokens_have_no_hint_about_blanks(glass, caplog, tmp_path: Path) -> None:
    """There every blank is a token of its own, and a prompt may well end with one."""
    tokenizer = small_tokenizer(257)
    save_folder(tmp_path / "letters", small_net("gpt2", vocab=len(tokenizer)), tokenizer=tokenizer)
    assert glass("generate", "-m", str(tmp_path / "letters"), "-n", "2", "Once upon a ")[0] == 0
    assert not caplog.records


def test_the_hint_about_a_blank_comes_once(glass, caplog) -> None:
    """Not for every line of a file."""
    assert glass("generate", "--lines", "-n", "1", stdin="The dog \nThe cat \n" * 9)[0] == 0
    assert len(caplog.records) == 1

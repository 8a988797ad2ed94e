"""The command line: data on stdout, one sentence on stderr, exit codes that mean something."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from glassformer.answers import QUESTIONS
from glassformer.cli import GROUPS, HABITS, VERBS, command_of


def test_without_arguments_it_shows_first_steps(glass) -> None:
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


def test_help_groups_the_verbs(glass) -> None:
    """Every verb is listed once, under the heading of its group; the groups are in the order of the table."""
    assert [name for names in GROUPS.values() for name in names] == list(VERBS)
    listed: dict[str, list[str]] = {}
    for heading, verb in re.findall(r"^(?:([A-Z][a-z ]+):|  ([a-z]+)  .*)$", glass("--help")[1], re.M):
        if heading:
            listed[heading] = names = []
        else:
            names.append(verb)
    assert {heading: tuple(names) for heading, names in listed.items()} == GROUPS


def test_a_bare_prompt_of_several_words(glass, model: str) -> None:
    """`glass "Once upon a time"` writes on."""
    assert glass("Once upon a", "-m", model, "-n", "5", "-s", "1") == glass(
        "generate", "Once upon a", "-m", model, "-n", "5", "-s", "1"
    )


def test_a_prompt_from_a_pipe_needs_no_verb(glass, model: str) -> None:
    """Nor does a prompt after flags; an empty pipe shows the first steps."""
    how = ("-m", model, "-n", "5", "-s", "1")
    expected = glass("generate", *how, "Once")
    assert expected[0] == 0
    assert glass(*how, stdin="Once\n") == glass(*how, "Once") == expected
    assert glass(stdin="Once")[1].startswith("Once")
    assert glass(stdin="") == glass()


def test_help_before_a_verb(glass) -> None:
    """`glass help VERB` is `glass VERB --help`."""
    assert glass("help", "rm") == glass("rm", "--help")
    assert glass("help") == glass("help", "nothing") == glass("--help")


@pytest.mark.parametrize("habit", HABITS)
def test_verbs_of_other_tools(glass, habit: str) -> None:
    """The answer names a verb that exists; a word with arguments is not taken for a prompt."""
    assert habit not in VERBS
    code, out, err = glass(habit, "gpt2")
    assert (code, out) == (2, "")
    assert err == f"glass: {habit!r} is not a verb; {HABITS[habit]}\n"
    assert set(re.findall(r"glass (\w+)", HABITS[habit])) <= set(VERBS)
    assert "single word" in glass("zzz")[2]
    assert "single word" not in glass("zzz", "gpt2")[2]


BAD = [
    (["-m"], "requires an argument"),
    (["generate", "--num-predict", "5"], "did you mean --max-new-tokens?"),
    (["generate", "--temp", "5"], "did you mean --temperature?"),
    (["generate", "-t", "5"], "did you mean --temperature?"),
    (["generate", "--format", "json"], "did you mean --json?"),
    (["generate", "--no-display-prompt"], "did you mean --no-echo?"),
    (["generate", "-p", "x"], "no such option -p; the prompt is an argument; see"),
    (["generate", "--prompt", "x"], "the prompt is an argument"),
    (["studio", "-port", "1"], "no such option -port; did you mean --port? See `glass studio --help`"),
    (["studio", "-no-open"], "no such option -no-open; did you mean --no-open?"),
    (["studio", "--no-browser", "--port", "70000"], "--port must be from 0 to 65535"),
    (["studio", "-p", "1"], "no such option -p; see `glass studio --help`"),
    (["studio", "--stream"], "no such option --stream; see `glass studio --help`"),
    (["generate", "-temperature=1", "x"], "no such option -temperature; did you mean --temperature?"),
    (["generate", "-pill", "x"], "no such option -p; the prompt is an argument; see"),
    (["generate", "--threads", "2"], "OMP_NUM_THREADS"),
    (["studio", "--threads", "2"], "OMP_NUM_THREADS"),
    (["generate", "--system", "x"], "only continue a text"),
    (["diff", "--other", "x"], "no such option --other; see `glass diff --help`"),
    (["generate", "--no-echo", "--json", "x"], "--no-echo does not go with --json"),
    (["genrate"], "did you mean `glass generate`"),
    (["generate", "--temperature", "-1", "x"], "temperature"),
    (["generate", "--temperature", "nan", "x"], "temperature"),
    (["generate", "--temperature", "warm", "x"], "temperature"),
    (["generate", "--temperature", "1_0", "x"], "'1_0' is not a finite number"),
    (["generate", "--temperature", "\u0661", "x"], "is not a finite number"),
    (["a\nb\x1b"], r"generate a\nb\x1b"),
    (["show", "./new\nline"], r"new\nline"),
    (["é" * 5000], f"{'é' * 999} … {'é' * 1000}\n"),
    (["\u200d" * 600], r"\u200d\u2 … 200d\u200d"),
    (["neurons", "-o", "a" * 5000, "x"], f"{'a' * 1000} … a"),
    (["generate", "-n", "1_0", "x"], "'1_0' is not a whole number"),
    (["generate", "--logit-bias", "\u0661=1", "x"], "--logit-bias"),
    (["generate", "--logit-bias", "1=1_0", "x"], "--logit-bias"),
    (["edit", "--scale", "embed=1_0", "x"], "--scale"),
    (["neurons", "-l", "0-99999999999", "x"], "--layer"),
    (["neurons", "-l", "\u0661", "x"], "--layer"),
    (["neurons", "-k", "99999999999", "x"], "-k must be at most 1,000"),
    (["neurons", "--promotes", "\u0661.1"], "--promotes"),
    (["neurons", "--promotes", f"1.{'9' * 5000}"], "--promotes"),
    (["show", "--update", "a b c", "--lr", "1e300"], "lr 1e+300 is too large"),
    (["generate", "--device", "meta", "x"], "device 'meta' is not available"),
    (["generate", "--device", "hpu", "x"], "device 'hpu' is not available"),
    (["generate", "--device", "privateuseone", "x"], "device 'privateuseone' is not available"),
    (["generate", "-m", "\udcff", "x"], "neither a folder nor a model's name"),
    (["generate", "--engine", "\udcff", "x"], "engine"),
    (["tokenize", "-f", "/nowhere/\udcff"], "cannot be read"),
    (["tokenize", "-f", "/dev/zero"], "it is a pipe or a device"),
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
    (["generate", "-n"], "requires an argument"),
    (["generate", "-n", "many", "x"], "--max-new-tokens"),
    (["generate", "--examples", "/nowhere/at/all", "x"], "/nowhere/at/all"),
    (["generate", "--stream=yes", "x"], "--stream"),
    (["top", "-k", "ten", "x"], "-k"),
    (["top", "--engine", "steam", "x"], "engine"),
    (["bench", "--rounds", "0", "--no-cold"], "rounds"),
    (["eval", "storyteller"], "what"),
    (["eval"], "model"),
    (["env", "x"], "too many arguments (x)"),
    (["train", "--kind", "gpt9", "--help"], "gpt9"),
    (["train", "--layers", "four"], "--layers"),
    (["finetune"], "model"),
    (["generate", "-f", "/nowhere/at/all", ""], "--file"),
    (["generate", "-f", "/nowhere/at/all"], "/nowhere/at/all"),
    (["generate", "-m", "/nowhere", "x"], "/nowhere"),
    (["generate", "-m", "../../etc", "x"], "../../etc"),
    (["generate", "-m", "", "x"], "empty"),
    (["generate", "--device", "toaster", "x"], "toaster"),
    (["generate", "--dtype", "int8", "x"], "the native engine computes in int8"),
    (["generate", "--engine", "native", "--dtype", "float64", "x"], "cpu; dtype float64 needs engine torch"),
    (["generate", "--engine", "native", "--device", "cuda", "x"], "cpu; device cuda needs engine torch"),
    (["generate", "the " * 600], 'shorten it or slide (overflow="slide", --slide)\n'),
    (["top", "the " * 600], "context of 512; shorten it\n"),
    (["eval", "storyteller", "-"], "eval reads files, not stdin"),
    (["rm", "./model", "-y"], "'./model' is a path; rm takes a name"),
    (["convert", "storyteller", "mine"], "SOURCE is a path, not a model's name"),
    (["generate", "-i", "x"], "--interactive"),
    (["generate", "-i", "--json"], "--interactive"),
    (["generate", "--num-beams", "2", "--slide", "x"], "slide"),
    (["top", "-k", "0", "x"], "-k"),
    (["tokenize", "--train", "/nowhere/at/all", "-o", "/tmp/x"], "/nowhere/at/all"),
    (["tokenize", "--train", "/etc/hostname"], "-o FOLDER"),
    (["tokenize", "--train", "/etc/hostname", "-m", "gpt2"], "--model does not go with --train"),
    (["tokenize", "--train", "/etc/hostname", "a text"], "TEXT does not go with --train"),
    (["show", "/nowhere"], "/nowhere"),
    (["rm", "storyteller", "-y"], "ships with"),
    (["rm", "no-such-model", "-y"], "no-such-model"),
    (["rm", "no-such-model"], "there is no model no-such-model on this machine"),
    (["generate", "-m", "storyteler", "x"], "'storyteler' on this machine; did you mean storyteller?"),
    (["generate", "--max-tokens", "5"], "no such option --max-tokens; did you mean --max-new-tokens?"),
    (["generate", "--n-predict", "5"], "did you mean --max-new-tokens?"),
    (["generate", "--max_new_tokens", "5"], "did you mean --max-new-tokens?"),
    (["generate", "--tempature", "5"], "did you mean --temperature? See `glass generate --help`"),
    (["train", "--iters", "5"], "did you mean --steps?"),
    (["train", "--epochs", "5"], "task classify has it"),
    (["train", "--learning-rate", "5"], "did you mean --lr?"),
    (["train", "--zzz", "5"], "no such option --zzz; see `glass train --help`"),
    (["diff", "storyteller"], "OTHER is missing"),
    (["diff"], "usage: glass diff [OPTIONS] ONE OTHER"),
    (["convert", "/nowhere.pt"], "/nowhere.pt"),
    (
        ["convert", "/etc/hostname"],
        "glass: /etc/hostname: not a checkpoint: neither torch's archive nor a pickle\n",
    ),
    (["classify", "hello"], "no model that classifies ships: `glass finetune storyteller --task classify"),
    (
        ["generate", "-o", "/nowhere/x.svg", "x"],
        "-o /nowhere/x.svg: cannot be written (there is no folder /nowhere)",
    ),
    (
        ["lens", "-o", "/nowhere/x.svg", "x"],
        "-o /nowhere/x.svg: cannot be written (there is no folder /nowhere)",
    ),
    (
        ["generate", "--stream", "x"],
        "no such option --stream; a text is streamed unless --no-stream is given",
    ),
    (["generate", "--verbose", "x"], "--json has the seconds of an answer"),
    (["train"], "data: name at least one text to learn from: --data FILE, or data in the recipe"),
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


def test_a_question_is_described_in_one_way() -> None:
    """The list of verbs and a verb's own help begin as the table of questions has it."""
    asked = [verb for verb in VERBS if verb in QUESTIONS]
    assert len(asked) >= 7
    for verb in asked:
        words = QUESTIONS[verb].help
        assert VERBS[verb].help.startswith(words)
        assert (command_of(verb, []).help or "").startswith(words[0].upper() + words[1:]), verb


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_is_quick(verb: str) -> None:
    """It has an example and imports neither torch nor NumPy; former names of flags are not shown."""
    code = (
        f"import sys; from glassformer.cli import run; run([{verb!r}, '--help']);"
        "print([name for name in ('torch', 'numpy', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *help, imported = done.stdout.splitlines()
    assert imported == "[]"
    assert any(line.startswith(f"  glass {verb}") or f"| glass {verb}" in line for line in help)
    former = {"--parts", "--journey", "--query", "--vectors"} - (
        {"--journey"} if verb == "translate" else set()
    )
    assert not any(f"{name} " in done.stdout for name in former)


def test_help_of_all_verbs_needs_no_click() -> None:
    """The table of verbs is all that it takes."""
    code = "import sys; from glassformer.cli import run; run(['--help']); assert 'click' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_former_names_of_flags(printed) -> None:
    """What people typed before is still taken."""
    for now, before in (
        (["lens", "--attribution"], ["lens", "--parts"]),
        (["lens", "--residual"], ["lens", "--journey"]),
        (["lens", "--rankings", "2"], ["lens", "--ranks", "2"]),
        (
            ["attention", "-l", "1", "--head", "0", "--steps", "sat"],
            ["attention", "-l", "1", "--head", "0", "--query", "sat"],
        ),
        (["attention", "--find-heads", "sat", "cat"], ["attention", "--from", "sat", "--to", "cat"]),
        (["tokenize", "--embedding"], ["tokenize", "--vectors"]),
    ):
        assert printed(*now, "The cat sat") == printed(*before, "The cat sat")
    assert printed("neurons", "--promotes", "1.17") == printed("neurons", "--neuron", "1.17")


@pytest.mark.parametrize("reader", ["head -1", "true"])
def test_a_reader_of_a_short_result_that_leaves(reader: str, model: str) -> None:
    """Also when what is left to print fits a buffer that Python writes at its end."""
    command = f"{sys.executable} -m glassformer tokenize -m {model} 'a text of some words' | {reader}"
    script = f"{command} > /dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_keys_of_env_are_names(glass, home: Path) -> None:
    """In JSON they have no blanks, so that `jq .hub_cache` finds them."""
    keys = json.loads(glass("env", "--json")[1])
    assert {"instruction_sets", "memory_available", "models_kept_in", "hub_cache"} <= set(keys)
    assert not any(" " in key for key in keys)


def test_too_little_memory_to_import_torch(model: str) -> None:
    """One sentence, as for any other lack of memory."""
    command = f"ulimit -v 400000; {sys.executable} -m glassformer lens -m {model} Once"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "glass: out of memory\n")


def test_ctrl_c_is_one_word(glass, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the exit code that shells expect."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("glassformer.tasks.library.kept", interrupted)
    code, out, err = glass("models")
    assert (code, out, err.strip()) == (130, "", "glass: stopped")

"""glass translate, as a person meets it: files line by line, and nothing lost of what is done."""

import json
from pathlib import Path

import pytest
from reversing import save_translator

from glassformer.cli import translate as command
from glassformer.tasks.load import load
from glassformer.tasks.translate import Translator

FAST = ["--num-beams", "1", "-n", "5"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_translator(tmp_path_factory.mktemp("translators") / "one")


@pytest.fixture(scope="module")
def right(folder: str) -> Translator:
    return load(folder, engine="torch").expect(Translator)


def expected(model: Translator, *lines: str) -> list[str]:
    """What every line becomes alone; an empty one stays empty."""
    alone = dict.fromkeys(lines, "")
    for line in filter(str.strip, alone):
        text = model.translate(line, num_beams=1, max_new_tokens=5).text
        alone[line] = " ".join(text.splitlines())
    assert len(set(alone.values())) > len(alone) / 2  # lines in a wrong order are noticed
    return [alone[line] for line in lines]


def test_one_text(glass, folder: str, right: Translator) -> None:
    """On stdout the translation alone; that it was cut is a message."""
    code, out, err = glass("translate", "-m", folder, "abc", *FAST)
    assert (code, out.splitlines()) == (0, expected(right, "abc"))
    assert err.endswith("1 translation unfinished at the limit of tokens; -n allows more\n")


def test_several_with_their_scores(glass, folder: str, right: Translator) -> None:
    """Best first; the aliases of the article mean the same."""
    code, out, _ = glass(
        "translate", "-m", folder, "abc", "--beam-size", "3", "--top-beams", "2", "--json", "-n", "5"
    )
    (several,) = right.translate_many(["abc"], num_beams=3, num_return_sequences=2, max_new_tokens=5)
    assert code == 0
    assert json.loads(out) == [one.to_dict() for one in several]
    assert len(several) == 2


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_file_line_by_line(glass, folder: str, right: Translator, tmp_path: Path, end: str) -> None:
    """In order, over several groups; empty lines stay empty, the last ones too; a rare line end is none."""
    lines = ["abc", "", "d e", " ", "a\u2028b", "cc"] * 12 + ["abc", "", ""]
    path = tmp_path / "lines.txt"
    path.write_bytes("".join(line + end for line in lines).encode())
    code, out, _ = glass("translate", "-m", folder, "-f", str(path), *FAST)
    assert code == 0
    assert out == "".join(f"{text}\n" for text in expected(right, *lines))

    code, piped, _ = glass("translate", "-m", folder, *FAST, stdin=path.read_text())
    assert (code, piped) == (0, out)


def test_an_empty_line_alone_in_its_group(glass, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is an empty line like any other."""
    monkeypatch.setattr(command, "GROUP", 2)
    code, out, _ = glass("translate", "-m", folder, *FAST, "--json", stdin="ab\ncd\n\n\n\nab\n")
    assert code == 0
    assert [len(json.loads(line)) for line in out.splitlines()] == [1, 1, 0, 0, 0, 1]


@pytest.mark.parametrize("group", [1, 2, 64])
def test_a_bad_line_in_the_middle(
    glass, folder: str, right: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int
) -> None:
    """Every line before it is printed, its number is said, and what became of them; with --split it goes on."""
    monkeypatch.setattr(command, "GROUP", group)
    lines = ["abc", "", "d e", "Abc def ghi. Jkl mno. Pqr stu.", "cc"]
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(lines))
    code, out, err = glass("translate", "-m", folder, "-f", str(path), *FAST)
    assert code == 2
    assert out.splitlines() == expected(right, *lines[:3])
    assert f"glass: {path}, line 4: the text has 31 tokens, 7 more than the model's context of 24" in err
    assert err.endswith("; the 3 lines before it are done\n")
    assert "Traceback" not in err

    code, out, _ = glass("translate", "-m", folder, "-f", str(path), "--split", *FAST)
    assert code == 0
    assert len(out.splitlines()) == 5
    assert out.splitlines()[4:] == expected(right, "cc")
    code, out, err = glass("translate", "-m", folder, *FAST, stdin="x" * 40)
    assert (code, out) == (2, "")
    assert "stdin, line 1: the text has 41 tokens, 17 more" in err
    assert "before it" not in err


@pytest.mark.parametrize(("arguments", "words"), [
    ([""], "there is nothing to translate: the text is empty"),
    (["  "], "there is nothing to translate: the text is empty"),
    (["abc", "--to", "xx"], "has one direction, so that no language is named: leave 'xx' out"),
    (["a" * 40], "the text has 41 tokens, 17 more than the model's context of 24; shorten it, or have it split into sentences (--split"),
    (["a" * 40, "--split"], "a single sentence has 41 tokens, 17 more"),
    (["abc", "--num-beams", "0"], "num_beams"),
    (["abc", "-f", "x.txt"], "give a text or --file, not both"),
    (["-f", "nothing.txt"], "nothing.txt"),
])  # fmt: skip
def test_bad_input(glass, folder: str, arguments: list[str], words: str) -> None:
    """One sentence, exit code 2, nothing on stdout."""
    code, out, err = glass("translate", "-m", folder, *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.strip().splitlines()) == 1


def test_empty_files(glass, folder: str, tmp_path: Path) -> None:
    """Nothing, or nothing but line ends."""
    for content in ("", "\n\n"):
        path = tmp_path / "empty.txt"
        path.write_text(content)
        code, out, err = glass("translate", "-m", folder, "-f", str(path))
        assert (code, out) == (2, "")
        assert "there is nothing to translate" in err


def test_languages_by_name(glass, tmp_path: Path) -> None:
    """A model of three languages asks for one; an unknown one is no fault of a line."""
    three = save_translator(tmp_path / "three", "en", "fr", "de")
    code, out, err = glass("translate", "-m", three, *FAST, stdin="abc\n")
    assert (code, out) == (2, "")
    assert "name the language to translate to, one of en, fr, de" in err
    two = save_translator(tmp_path / "two", "en", "fr")
    assert glass("translate", "-m", two, *FAST, stdin="abc\n")[0] == 0
    code, out, err = glass("translate", "-m", two, "--to", "de", *FAST, stdin="abc\n")
    assert (code, out) == (2, "")
    assert "'de' is not a language of this model; it translates to en, fr" in err
    assert "line" not in err
    assert glass("translate", "-m", two, "--to", "fr", *FAST, stdin="abc\n")[0] == 0


def test_a_language_model_does_not_translate(glass, model: str) -> None:
    """It says what it can do instead."""
    code, out, err = glass("translate", "-m", model, "abc")
    assert (code, out) == (2, "")
    assert "cannot translate a text; its capabilities are:" in err


def test_progress(glass, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On stderr, where that is a terminal; never on stdout."""
    plain = glass("translate", "-m", folder, *FAST, stdin="ab\ncd\nef\n")
    assert "translating" not in plain[2]
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(command, "GROUP", 2)
    code, out, err = glass("translate", "-m", folder, *FAST, stdin="ab\ncd\nef\n")
    assert (code, out) == (0, plain[1])
    assert "translating" in err
    assert "100%" in err

"""Every answer of every kind: data, a table with typed columns, drawings, one sentence."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from every import every

import glassformer as gf
from glassformer.answers import QUESTIONS
from glassformer.answers.answer import SCHEMA, Answer, Column, Table
from glassformer.errors import InputError


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    lm = gf.load("storyteller", engine="torch")
    return every(lm, "The cat sat on the mat. The cat sat on the", tmp_path_factory.mktemp("answers"))


@pytest.mark.parametrize("kind", list(QUESTIONS))
def test_data_and_table(answers: dict[str, Answer], kind: str) -> None:
    """JSON without NaN or infinity, CSV with a cell a column, a caption that names the model."""
    found = answers[kind]
    assert found.kind == kind
    named = (
        kind in ("robot", "positions", "shapes", "merges", "tokens", "training_rows", "curve")
        or "storyteller" in found.caption
    )
    assert named, found.caption

    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["kind"] == kind
    assert data["schema"] == SCHEMA
    assert data["tokens"] == found.tokens
    assert set(data["values"]) == set(found.data()) != set()
    assert [column["name"] for column in data["columns"]] == found.columns

    table = list(csv.reader(io.StringIO(found.to_csv())))
    whole = found.every()
    assert table[0] == whole.names
    assert len(set(whole.names)) == len(whole.names)
    assert len(table) == len(whole.rows) + 1 > 1
    assert {len(row) for row in table} == {len(whole.columns)}
    assert set(found.to_numpy()) <= set(found.data())
    assert list(found.to_frame().columns) == found.columns


TYPES = {"text": str, "token": str, "count": int, "rank": int, "bool": bool}
TYPES |= {"share": float, "signed": float, "number": float}


@pytest.mark.parametrize("kind", list(QUESTIONS))
def test_cells_have_the_type_of_their_column(answers: dict[str, Answer], kind: str) -> None:
    """So a table can be shown and colored without guessing from a name; the first columns name the row."""
    for table in (answers[kind].table(), answers[kind].every()):
        assert table.columns[0].key
        keys = [column.key for column in table.columns]
        assert keys == sorted(keys, reverse=True)
        for row in table.rows:
            for cell, column in zip(row, table.columns, strict=True):
                assert cell is None or type(cell) is TYPES[column.format], (column, cell)


@pytest.mark.parametrize("kind", list(QUESTIONS))
def test_every_drawing_and_the_sentence(answers: dict[str, Answer], kind: str) -> None:
    """Each is drawn, on paper and on a terminal; the sentence describes the picture."""
    found = answers[kind]
    assert found.sentence().startswith(found.caption.partition("\n")[0])
    assert found.sentence().endswith(".")
    for name in found.views:
        view = found.view(name)
        assert view.to_svg().startswith("<svg")
        assert view.to_text(80, color=False).strip()
        assert view.spec["table"]["columns"] == found.columns
    with pytest.raises(InputError, match=f"'pie' is not a drawing of {kind}; there is "):
        found.view("pie")


def test_some_rows_of_a_table(answers: dict[str, Answer]) -> None:
    """Of one position, of one stage; what has no such row is refused."""
    lens = answers["lens"]
    assert {row[1] for row in lens.at(-1).rows} == {len(lens.tokens) - 1}
    one = lens.at(2).where("stage", "embed")
    assert [row[:2] for row in one.rows] == [["embed", 2]]
    assert len(list(csv.reader(io.StringIO(one.to_csv())))) == 2
    for call, words in (
        (lambda: lens.at(99), "position 99 is out of range"),
        (lambda: lens.where("stage", "nowhere"), "no row has 'nowhere' in the column 'stage'"),
        (lambda: lens.where("pie", 1), "the table has no column 'pie'; it has stage, position"),
        (lambda: lens.save("x.doc"), "x.doc: a picture is saved as .svg"),
    ):
        with pytest.raises(InputError, match=words):
            call()


def test_a_table_as_data() -> None:
    """Columns define how they are shown."""
    table = Table(
        [Column("token", "token", key=True), Column("share", "share")], [["a", 0.5], ["b", float("nan")]]
    )
    assert table.to_dict() == {
        "columns": [
            {"name": "token", "format": "token", "key": True},
            {"name": "share", "format": "share", "key": False},
        ],
        "rows": [["a", 0.5], ["b", None]],
    }
    assert table.largest("share") == ["a", 0.5]


def test_no_torch_before_a_question_needs_it(tmp_path: Path) -> None:
    """The table of questions, the base of answers, tokens and training rows load no torch."""
    code = (
        "import sys, glassformer.answers, glassformer.answers.answer, glassformer.answers.training\n"
        "from glassformer.answers import ask\n"
        "from glassformer.tasks.tokenize import load_tokenizer\n"
        "tokenizer = load_tokenizer('storyteller')\n"
        "ask('tokens', tokenizer, 'a cat').view(); ask('merges', tokenizer, 'a cat').view()\n"
        "ask('training_rows', tokenizer, 'a cat sat').view()\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

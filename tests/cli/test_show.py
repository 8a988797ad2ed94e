"""glass show: parameters counted from the file, and the curve of a training."""

import json
from pathlib import Path

import pytest
from encoder_decoder import ToyConfig, only_the_toy, toy
from small import small_model

from glassformer.answers import ask
from glassformer.hub.folder import save_folder
from glassformer.tasks.library import describe


def test_show_counts_from_the_file(glass, model: str) -> None:
    """The total is the sum of what is shown, and the model's own count."""
    data = json.loads(glass("show", "--json", model)[1])
    (stack,) = data["stacks"]
    assert (stack["name"], stack["blocks"]) == ("blocks", 2)
    assert stack["block_total"] == sum(tensor["parameters"] for tensor in stack["block"])
    whole = sum(tensor["parameters"] for tensor in data["whole"])
    assert data["total"] == 2 * stack["block_total"] + whole
    assert data["total"] == small_model(vocab=300, context=64).config.parameters
    assert f"{data['total']:,}" in glass("show", model)[1]


def test_show_has_a_table_for_every_stack(glass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its own blocks and tensors; a buffer is no parameter, a tied matrix counts once."""
    only_the_toy(monkeypatch)
    save_folder(tmp_path / "toy", toy())
    data = json.loads(glass("show", "--json", str(tmp_path / "toy"))[1])
    encoder, decoder = data["stacks"]
    assert (encoder["name"], encoder["blocks"], len(encoder["block"])) == ("encoder", 2, 16)
    assert (decoder["name"], decoder["blocks"], len(decoder["block"])) == ("decoder", 3, 26)
    assert data["whole"] == [{"name": "shared.weight", "shape": [50, 12], "parameters": 600}]
    in_blocks = 2 * encoder["block_total"] + 3 * decoder["block_total"]
    assert data["total"] == in_blocks + 600 == ToyConfig().parameters

    lines = glass("show", str(tmp_path / "toy"))[1].splitlines()
    for title, total in (("encoder: 2 blocks", 2 * encoder["block_total"]), ("total", data["total"])):
        assert [line.split()[-1] for line in lines if line.startswith(f"{title} ")] == [f"{total:,}"]
    assert lines.index("encoder: 2 blocks, each:") < lines.index("decoder: 3 blocks, each:")
    assert sum("encoder_attn.q_proj.weight" in line for line in lines) == 1

    answer = ask("parameters", describe(str(tmp_path / "toy")))
    assert sum(answer.parameters) == data["total"]
    assert len(set(answer.tensors)) == len(answer.tensors) == 1 + 16 + 26
    assert {"shared.weight", "2 × encoder.fc1.bias", "3 × decoder.fc1.bias"} <= set(answer.tensors)


@pytest.mark.parametrize(("name", "total"), [("gpt2", 124_439_808), ("gpt3-175b", 174_604_259_328)])
def test_a_published_size_needs_no_file(glass, name: str, total: int) -> None:
    """Without a network it is counted from its sizes; another name is still an error."""
    data = json.loads(glass("show", "--offline", "--json", name)[1])
    (stack,) = data["stacks"]
    whole = sum(tensor["parameters"] for tensor in data["whole"])
    assert data["total"] == stack["blocks"] * stack["block_total"] + whole == total
    assert data["folder"] is None
    _, shown, _ = glass("show", "--offline", name)
    assert "not on this machine" in shown
    assert ("117M" in shown) == (name == "gpt2")
    assert glass("show", "--offline", "owner/unknown")[0] == 1


def test_one_block_is_one_block(glass, tmp_path: Path) -> None:
    """And one token is one token."""
    save_folder(tmp_path / "one", small_model(layers=1))
    out = glass("show", str(tmp_path / "one"))[1]
    assert "1 block, each:" in out
    assert "1 blocks" not in out
    assert "1 token, 1 byte\n" in glass("tokenize", "a")[1]
    assert "2 tokens, 2 bytes\n" in glass("tokenize", "zq")[1]


def test_show_explains_124m(glass, tmp_path: Path) -> None:
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


def test_the_curve_of_a_training(tmp_path: Path, printed) -> None:
    """On the terminal and as data, also while the last line is being written."""
    lines = [json.dumps({"step": n, "loss": 9 - n / 10, "tokens": 100 * n}) for n in range(1, 60)]
    (tmp_path / "metrics.jsonl").write_text(
        "\n".join([*lines, '{"step": 59, "held_out": 3.5}', '{"step": 60, "lo'])
    )
    assert "–" in printed("show", "--curve", str(tmp_path))
    assert json.loads(printed("show", "--curve", str(tmp_path), "--json"))["rows"][-1] == pytest.approx(
        [5900, 3.1, 3.5]
    )
    text = printed("show", "--curve", str(tmp_path))
    lines = text.splitlines()
    assert lines[1] == "at most 20 of 59 points, evenly chosen, with the first, the best and the last"
    rows = [line.split() for line in lines[3:]]
    assert len(rows) <= 20
    assert (rows[0], rows[-1]) == (["100", "8.900", "–"], ["5,900", "3.100", "3.500"])
    printed("show", "--curve", str(tmp_path), "-o", str(tmp_path / "curve.svg"))
    assert "59 points" not in (tmp_path / "curve.svg").read_text()
    printed("show", "--curve", str(tmp_path), "-o", str(tmp_path / "curve.csv"))
    assert len((tmp_path / "curve.csv").read_text().splitlines()) == 1 + 59
    assert "there is no such log" in printed("show", "--curve", str(tmp_path / "nowhere"), code=2)
    (tmp_path / "metrics.jsonl").write_text("a text\n")
    assert "is not the metrics.jsonl of a training" in printed("show", "--curve", str(tmp_path), code=2)


@pytest.mark.parametrize(
    "line",
    [
        "[1, 2]",
        "3",
        "null",
        "[" * 100_000,
        '{"tokens": "many", "loss": 1.0}',
        f'{{"tokens": 100, "loss": {10**400}}}',
        f'{{"tokens": {10**400}, "loss": 1.0}}',
        '{"tokens": true, "loss": true}',
    ],
    ids=lambda line: line[:30],
)
def test_a_log_of_other_lines(line: str, tmp_path: Path, printed) -> None:
    """JSON that is no step of a training is no step, also behind one that is."""
    log = tmp_path / "metrics.jsonl"
    log.write_text(f"{line}\n")
    assert "is not the metrics.jsonl of a training" in printed("show", "--curve", str(log), code=2)
    log.write_text('{"step": 1, "tokens": 1000000, "loss": 2.5}\n' + f"{line}\n")
    assert json.loads(printed("show", "--curve", str(log), "--json"))["rows"] == [[1_000_000, 2.5, None]]


def test_the_curve_of_a_training_that_diverged(tmp_path: Path, printed, recwarn) -> None:
    """A loss that is not finite is a gap, drawn without a warning."""
    log = tmp_path / "metrics.jsonl"
    log.write_text('{"step": 1, "tokens": 1000000, "loss": NaN}\n')
    printed("show", "--curve", str(log), "-o", str(tmp_path / "curve.svg"))
    assert (tmp_path / "curve.svg").read_text().startswith("<svg")
    assert not recwarn.list


def test_parameters_are_drawn_by_layer_in_words(printed, model: str, tmp_path: Path) -> None:
    """A bar for weights and biases of a layer, the blocks together; numbers have the names of the file, too."""
    printed("show", model, "-o", str(tmp_path / "p.json"))
    data = json.loads((tmp_path / "p.json").read_text())
    before, blocks, after = data["view"]["panels"]
    assert before["labels"] == ["token embeddings", "position embeddings"]
    assert blocks["title"] == f"{data['values']['times'][2]} blocks together"
    assert blocks["labels"] == [
        "layer norm 1", "attention q, k, v", "attention output", "layer norm 2", "feed-forward up",
        "feed-forward down",
    ]  # fmt: skip
    assert after["labels"] == ["final layer norm"]
    drawn = [value for panel in (before, blocks, after) for value in panel["series"][0]["values"]]
    assert sum(drawn) == sum(data["values"]["parameters"])
    assert {panel["high"] for panel in (before, blocks, after)} == {max(drawn)}
    assert "wte.weight" in data["values"]["tensors"]
    assert data["view"]["sentence"].endswith("most are in token embeddings, 7,200.")

"""Broken safetensors files: none is accepted, and the message names what is wrong in which
file.
"""

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from bad_files import copy, edit_json, refused, tiny_folder, tiny_tokenizer
from safetensors.torch import load, load_file, save_file
from small import small_tokenizer
from torch import Tensor

from glassformer.errors import CheckpointError
from glassformer.files import MAX_HEADER, MAX_TENSORS
from glassformer.hub.folder import CONFIG, INDEX, WEIGHTS, load_folder, tensor_entries
from glassformer.hub.tensors import read_header
from glassformer.models.gpt import GPT, Config

# ---- the header


def tensor(dtype: Any = "F32", shape: Any = (2, 3), offsets: Any = (0, 24)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


GOOD = {"a": tensor(), "b": tensor("BF16", [4], [24, 32]), "c": tensor("U8", [], [32, 33])}
DATA = bytes(range(33))


def pack(header: Any, data: bytes = DATA, *, size: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text + data


RAW = pack(GOOD)
TEXT = RAW[8:-33]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "strange.safetensors"


def test_good_header_is_read_as_the_reference_reads_it(file: Path) -> None:
    """Names, types, shapes and numbers are those that the safetensors library finds."""
    file.write_bytes(RAW)
    ours, theirs = {name: entry.read() for name, entry in read_header(file).items()}, load(RAW)
    assert {name: (t.dtype, t.shape) for name, t in ours.items()} == {
        name: (t.dtype, t.shape) for name, t in theirs.items()
    }
    assert all(torch.equal(ours[name], theirs[name]) for name in GOOD)


def test_every_truncation_is_refused(file: Path) -> None:
    """A file cut at any byte, in the length, the header or the data, is refused by name."""
    for length in range(len(RAW)):
        file.write_bytes(RAW[:length])
        with refused(file):
            read_header(file)


@pytest.mark.parametrize(
    "size", [0, 1, len(TEXT) - 1, len(TEXT) + 1, len(RAW) - 7, len(RAW), 2**31, 2**32, 2**63, 2**64 - 1]
)
def test_false_header_length_is_refused(file: Path, size: int) -> None:
    """Whatever length the file claims for its header, only the true one is accepted."""
    file.write_bytes(pack(TEXT, size=size))
    with refused(
        file, f"claims {size:,}" if size > len(RAW) - 8 else ""
    ):  # what is behind the end is not even looked for
        read_header(file)


def test_header_has_a_limit(file: Path) -> None:
    """A header of 8 MB is read, one of a byte more is not, though the file is long enough."""
    file.write_bytes(pack(TEXT.ljust(MAX_HEADER)))
    assert set(read_header(file)) == set(GOOD)
    with file.open("wb") as sparse:
        sparse.write(pack(TEXT, b"", size=MAX_HEADER + 1))
        sparse.truncate(2 * MAX_HEADER)
    with refused(file, "header", f"{MAX_HEADER + 1:,}"):
        read_header(file)


@pytest.mark.parametrize(
    ("count", "accepted"), [(MAX_TENSORS, True), (MAX_TENSORS + 1, False), (100_000, False)]
)
def test_number_of_tensors_has_a_limit(file: Path, count: int, accepted: bool) -> None:
    """Ten thousand tensors are read, one more is too many."""
    empty = json.dumps(tensor("U8", [0], [0, 0]))
    text = ",".join(f'"t{i}":{empty}' for i in range(count))
    file.write_bytes(pack(f"{{{text}}}".encode(), b""))
    if accepted:
        assert len(read_header(file)) == count
    else:
        with refused(file, f"{count:,}"):
            read_header(file)


HEADERS: dict[str, tuple[Any, str]] = {
    "overlap": (GOOD | {"b": tensor("BF16", [4], [23, 31])}, "overlaps"),
    "same bytes twice": (GOOD | {"d": tensor()}, "overlaps"),
    "hole": (GOOD | {"b": tensor("BF16", [3], [26, 32])}, "hole"),
    "hole at the start": ({"a": tensor("U8", [32], [1, 33])}, "hole"),
    "bytes of no tensor": ({"a": GOOD["a"], "b": GOOD["b"]}, "longer"),
    "beyond the end": (GOOD | {"c": tensor("U8", [2], [32, 34])}, "truncated"),
    "far beyond the end": ({"a": tensor("U8", [2**61], [0, 2**61])}, "truncated"),
    "nothing described": ({}, "longer"),
    "product is 2^64": ({"a": tensor("U8", [2**32, 2**32], [0, 0])}, "needs 18,446,744,073,709,551,616"),
    "product is 2^64 + 33": ({"a": tensor("U8", [274177, 67280421310721, 1], [0, 1])}, "needs"),
    "product is 2^244": ({"a": tensor("F64", [2**61] * 4, [0, 33])}, "needs"),
    "bytes are 2^64": ({"a": tensor("F32", [2**62 - 1, 4], [0, 33])}, "needs"),
    "number is 2^62": ({"a": tensor("F32", [2**62], [0, 2**64])}, "counts"),
    "number has 5000 digits": (b'{"a":{"dtype":"F32","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,33]}}', "JSON"),
    "one byte too few": (GOOD | {"c": tensor("U8", [2], [32, 33])}, "needs 2 bytes"),
    "offsets swapped": (GOOD | {"a": tensor("F32", [2, 3], [24, 0])}, "needs"),
    "offset negative": (GOOD | {"a": tensor("F32", [2, 3], [-24, 0])}, "counts"),
    "one offset": (GOOD | {"a": tensor("F32", [2, 3], [24])}, "counts"),
    "three offsets": (GOOD | {"a": tensor("F32", [2, 3], [0, 24, 24])}, "counts"),
    "offset a fraction": (GOOD | {"a": tensor("F32", [2, 3], [0, 24.0])}, "counts"),
    "offset a switch": (GOOD | {"a": tensor("F32", [2, 3], [False, 24])}, "counts"),
    "offsets a text": (GOOD | {"a": tensor("F32", [2, 3], "0:24")}, "counts"),
    "offsets null": (GOOD | {"a": tensor("F32", [2, 3], None)}, "counts"),
    "side negative": (GOOD | {"a": tensor("F32", [-2, -3])}, "counts"),
    "side a fraction": (GOOD | {"a": tensor("F32", [2.0, 3])}, "counts"),
    "side a switch": (GOOD | {"c": tensor("U8", [True], [32, 33])}, "counts"),
    "side a text": (GOOD | {"a": tensor("F32", ["2", 3])}, "counts"),
    "side a list": (GOOD | {"a": tensor("F32", [[2], 3])}, "counts"),
    "shape a number": (GOOD | {"a": tensor("F32", 6)}, "counts"),
    "nine sides": (GOOD | {"c": tensor("U8", [1] * 9, [32, 33])}, "counts"),
    "dtype unknown": (GOOD | {"a": tensor("F31")}, "dtype 'F31'"),
    "dtype in small letters": (GOOD | {"a": tensor("f32")}, "dtype 'f32'"),
    "dtype of eight bits": (GOOD | {"c": tensor("F8_E4M3", [], [32, 33])}, "dtype 'F8_E4M3'"),
    "dtype of another size": (GOOD | {"a": tensor("F64")}, "needs 48 bytes"),
    "dtype a number": (GOOD | {"a": tensor(32)}, "dtype"),
    "dtype a list": (GOOD | {"a": tensor(["F32"])}, "dtype"),
    "dtype null": (GOOD | {"a": tensor(None)}, "dtype"),
    "field missing": (GOOD | {"a": {"dtype": "F32", "shape": [2, 3]}}, "exactly"),
    "field too many": (GOOD | {"a": tensor() | {"offset": 0}}, "exactly"),
    "tensor null": (GOOD | {"a": None}, "exactly"),
    "tensor a list": (GOOD | {"a": ["F32", [2, 3], [0, 24]]}, "exactly"),
    "key twice": (TEXT[:-1] + b',"a":' + json.dumps(tensor()).encode() + b"}", "'a' is a duplicate"),
    "field twice": (TEXT.replace(b'"dtype"', b'"dtype":"F32","dtype"', 1), "'dtype' is a duplicate"),
    "metadata not an object": (GOOD | {"__metadata__": 5}, "__metadata__"),
    "metadata not texts": (GOOD | {"__metadata__": {"format": 5}}, "__metadata__"),
    "header a list": ([GOOD], "object"),
    "header null": (b"null", "object"),
    "header a number": (b"1", "object"),
    "not a number": (TEXT.replace(b"24", b"NaN", 1), "NaN"),
    "infinite": (TEXT.replace(b"24", b"Infinity", 1), "Infinity"),
    "two objects": (TEXT + TEXT, "JSON"),
    "never closed": (TEXT[:-1], "JSON"),
    "filled up with NUL": (TEXT.ljust(400, b"\0"), "JSON"),
    "nested 100,000 deep": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "deep"),
    "not UTF-8": (TEXT.replace(b'"a"', b'"\xff"'), "UTF-8"),
    "half a character": (TEXT.replace(b'"a"', b'"\xe2\x82"'), "UTF-8"),
    "surrogate in bytes": (TEXT.replace(b'"a"', b'"\xed\xa0\x80"'), "UTF-8"),
    "UTF-16": (TEXT.decode().encode("utf-16"), "UTF-8"),
    "byte-order mark": (b"\xef\xbb\xbf" + TEXT, "JSON"),
}  # fmt: skip


@pytest.mark.parametrize(("header", "reason"), HEADERS.values(), ids=HEADERS)
def test_false_header_is_refused(file: Path, header: Any, reason: str) -> None:
    """Every false header is refused with the reason."""
    file.write_bytes(pack(header))
    with refused(file, reason):
        read_header(file)


@pytest.mark.parametrize("change", [lambda raw: raw + b"\0", lambda raw: raw + raw, lambda raw: raw[:-1]])
def test_data_of_another_length_is_refused(file: Path, change: Callable[[bytes], bytes]) -> None:
    """Not one byte may be left over or be missing behind the header."""
    file.write_bytes(change(RAW))
    with refused(file, "the header describes"):
        read_header(file)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A folder, a missing file and a link to itself are refused like any broken file."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for name in ("folder", "missing", "loop"):
        with refused(tmp_path / name, "cannot be read"):
            read_header(tmp_path / name)


VALUES = [
    0,
    1,
    -1,
    2,
    3,
    4,
    8,
    24,
    32,
    33,
    2**31,
    2**32,
    2**62,
    2**63,
    2**64,
    0.5,
    1e308,
    True,
    None,
    "",
    "F32",
    "I64",
    "BOOL",
    "BF16",
]
VALUES += [
    [],
    [0],
    [1],
    [0, 0],
    [0, 24],
    [24, 32],
    [32, 33],
    [33, 33],
    [6],
    [3, 2],
    [1] * 7,
    [2**32, 2**32],
    {},
    {"a": 1},
]


def mutate(chance: random.Random) -> bytes:
    """The good file with one to three faults: in a field, in the set of tensors, in the text, in the length,
    in the data.
    """
    header: dict[str, Any] = json.loads(TEXT)
    data, text, size = DATA, None, None
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        some, other = (chance.choice(sorted(header) or ["a"]) for _ in range(2))
        fields = header.get(some)
        match chance.randrange(11):
            case 0 if isinstance(fields, dict) and fields:
                fields[chance.choice(sorted(fields))] = chance.choice(VALUES)
            case 1 if isinstance(fields, dict) and isinstance(fields.get("shape"), list):
                fields["shape"] = [*fields["shape"], chance.choice(VALUES)]
            case 2 if isinstance(fields, dict) and isinstance(fields.get("data_offsets"), list):
                fields["data_offsets"] = [
                    n + chance.choice((-1, 0, 1, 4)) for n in fields["data_offsets"] if type(n) is int
                ]
            case 3:
                header[chance.choice(("d", "", "__metadata__", "a", "é"))] = chance.choice([*VALUES, fields])
            case 4 if header:
                header[other], header[some] = header.get(some), header.get(other)
            case 5:
                header.pop(some, None)
            case 6 | 7:
                raw = bytearray(text or json.dumps(header).encode())
                at = chance.randrange(len(raw))
                raw[at : at + chance.randrange(3)] = chance.choice(
                    (b"", b"0", b'"', b"}", b",", b" ", b"\xff", b"[", bytes(raw[:at]))
                )
                text = bytes(raw)
            case 8:
                text = text or json.dumps(header).encode()
                size = chance.choice((len(text) + chance.choice((-8, -1, 1, 8)), chance.getrandbits(64)))
            case 9:
                data = data[: chance.randrange(34)]
            case 10:
                data += chance.randbytes(chance.randrange(1, 9))
    return pack(header if text is None else text, data, size=None if size is None else max(size, 0))


@pytest.mark.parametrize("seed", range(4))
def test_fuzzed_files_are_refused_or_read_exactly(file: Path, seed: int) -> None:
    """Of a thousand broken files, what we accept the reference accepts too, with the same tensors; the rest
    is refused.
    """
    chance, accepted = random.Random(seed), 0
    for _ in range(1000):
        raw = mutate(chance)
        file.write_bytes(raw)
        try:
            ours = {name: entry.read() for name, entry in read_header(file).items()}
        except CheckpointError as error:
            assert str(file) in str(error)  # noqa: PT017
            continue
        accepted += 1
        theirs = load(raw)
        assert {n: (t.dtype, t.shape, bits(t)) for n, t in ours.items()} == {
            n: (t.dtype, t.shape, bits(t)) for n, t in theirs.items()
        }
    assert 20 < accepted < 300  # some faults cancel out; if none did, or most, the mutations would be no test


def bits(value: Tensor) -> bytes:
    return value.reshape(-1).view(torch.uint8).numpy().tobytes()


# ---- the tensors of a model


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("models") / "whole")


@pytest.fixture(scope="module")
def unbiased(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("models") / "unbiased", bias=False)


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return copy(whole, tmp_path / "model")


Tensors = dict[str, Tensor]


def rewrite(folder: Path, change: Callable[[Tensors], object]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / WEIGHTS)


def numbers(folder: Path, **how: Any) -> Tensors:
    return load_folder(folder, **how).model.state_dict()


def names(folder: Path) -> list[str]:
    return list(tensor_entries(folder))


WTE, WPE = "transformer.wte.weight", "transformer.wpe.weight"
FC, QKV, NORM = (
    "transformer.h.0.mlp.c_fc.weight",
    "transformer.h.1.attn.c_attn.weight",
    "transformer.h.1.ln_2.weight",
)


def test_one_message_lists_everything_that_does_not_fit(folder: Path) -> None:
    """Missing, unknown, superfluous, transposed, too short and whole-numbered tensors are reported all at once."""

    def change(tensors: Tensors) -> None:
        del tensors["transformer.h.0.ln_1.bias"], tensors[QKV]
        tensors["transformer.h.0.attn.rotary"] = torch.ones(4)
        tensors["transformer.h.2.ln_1.weight"] = torch.ones(8)
        tensors[FC] = tensors[FC].t()
        tensors[WTE] = tensors[WTE][:-1]
        tensors[NORM] = torch.ones(8, dtype=torch.int32)

    rewrite(folder, change)
    rows = len(tiny_tokenizer())
    with refused(
        folder,
        "transformer.h.0.ln_1.bias [8] is missing",
        f"{QKV} [8, 24] is missing",
        "transformer.h.0.attn.rotary is not a tensor of GPT-2",
        "transformer.h.2.ln_1.weight [8] has no place",
        f"{FC} is [32, 8], should be [8, 32]",
        f"{WTE} is [{rows - 1}, 8], should be [{rows}, 8]",
        f"{NORM} holds torch.int32",
    ):
        load_folder(folder)


def test_each_missing_tensor_is_named(whole: Path, folder: Path) -> None:
    """There is no tensor that a model can do without."""
    for name in names(whole):
        copy(whole, folder)
        rewrite(folder, lambda tensors, name=name: tensors.pop(name))
        with refused(folder, f"{name} ", "is missing"):
            load_folder(folder)


@pytest.mark.parametrize(
    "shape",
    [
        lambda t: t[None],
        lambda t: t[:1],
        lambda t: t.sum(),
        lambda t: t[..., :0],
        lambda t: torch.cat([t, t]),
    ],
)
@pytest.mark.parametrize("name", [WTE, WPE, FC, QKV, NORM])
def test_no_tensor_is_stretched_or_cut(folder: Path, name: str, shape: Callable[[Tensor], Tensor]) -> None:
    """A tensor that would broadcast into its place is refused like any other of the wrong shape."""
    rewrite(folder, lambda tensors: tensors.update({name: shape(tensors[name])}))
    with refused(folder, f"{name} is [", "should be ["):
        load_folder(folder)


@pytest.mark.parametrize("key", ["vocab_size", "n_positions", "n_layer", "n_embd", "n_inner"])
@pytest.mark.parametrize("step", [-1, 1])
def test_numbers_off_by_one_are_refused(folder: Path, key: str, step: int) -> None:
    """A configuration that is off by one fits nothing."""
    edit_json(folder / CONFIG, lambda config: config.update({key: config[key] + step, "n_head": 1}))
    with refused(folder):
        load_folder(folder)


NAMED: dict[str, tuple[str, str]] = {
    "twice under two names": ("wte.weight", "is a duplicate"),
    "twice with a zero": ("transformer.h.00.ln_1.weight", "is a duplicate"),
    "a template": ("transformer.h.{}.ln_1.weight", "no place"),
    "a block too many": ("transformer.h.99.ln_1.weight", "no place"),
    "a block beyond all numbers": (f"transformer.h.{'1' * 5000}.ln_1.weight", ""),
    "a block in other digits": ("transformer.h.١.ln_1.bias.weight", "not a tensor of GPT-2"),
    "empty": ("", "not a tensor of GPT-2"),
    "long": ("x" * 100_000, "not a tensor of GPT-2"),
    "a long prefix": ("module." * 10_000 + "h.7.ln_1.weight", "no place"),
    "an escape sequence": ("wte\x1b[2J\nweight\u202e", "not a tensor of GPT-2"),
}


@pytest.mark.parametrize(("name", "reason"), NAMED.values(), ids=NAMED)
def test_strange_names_are_refused_readably(folder: Path, name: str, reason: str) -> None:
    """A tensor of any strange name is refused in one short line without control characters."""
    rewrite(folder, lambda tensors: tensors.update({name: torch.ones(8)}))
    with refused(folder, reason):
        load_folder(folder)


def test_long_name_of_a_known_tensor_is_shortened(folder: Path) -> None:
    """A known tensor under a name of many prefixes is loaded, and shortened in the message if it does not
    fit.
    """
    long = "module." * 10_000 + "wte.weight"
    rewrite(folder, lambda tensors: tensors.update({long: tensors.pop(WTE)}))
    load_folder(folder)
    rewrite(folder, lambda tensors: tensors.update({long: tensors[long][1:]}))
    with refused(folder, "should be ["):
        load_folder(folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("transformer.h.9.ln_1.bias", torch.zeros(8)),
        ("transformer.h.{}.ln_1.bias", torch.zeros(8)),
        ("transformer.ln_f.bias", torch.zeros(9)),
        ("transformer.ln_f.bias", torch.zeros(())),
        ("transformer.ln_f.bias", torch.zeros(0)),
        ("transformer.ln_f.bias", torch.full((8,), 0.5)),
    ],
)
def test_bias_of_a_model_without_is_refused(unbiased: Path, tmp_path: Path, name: str, value: Tensor) -> None:
    """A model without biases may store zeros for those it could have, of their shape, and no others."""
    folder = copy(unbiased, tmp_path / "model")
    load_folder(folder)
    rewrite(folder, lambda tensors: tensors.update({name: value}))
    with refused(folder, name):
        load_folder(folder)


def test_output_matrix_that_is_tied_is_the_token_matrix(folder: Path) -> None:
    """A tied output matrix may be stored once more, if it is the same."""
    rewrite(folder, lambda tensors: tensors.update({"lm_head.weight": tensors[WTE].clone()}))
    load_folder(folder)
    rewrite(folder, lambda tensors: tensors["lm_head.weight"][3].mul_(2))
    with refused(folder / WEIGHTS, "lm_head.weight", "tied"):
        load_folder(folder)


def test_tokenizer_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    """A model may have more tokens than its vocabulary, never fewer: not when saved, and not when loaded."""
    rows = len(tiny_tokenizer())
    assert load_folder(tiny_folder(tmp_path / "larger", vocab=rows + 7)).model.vocab == rows + 7
    with pytest.raises(CheckpointError, match=f"the tokenizer has {rows} tokens, the model {rows - 1}"):
        tiny_folder(tmp_path / "smaller", vocab=rows - 1)
    folder = tiny_folder(tmp_path / "other")
    (folder / "tokenizer.json").write_text(small_tokenizer(rows + 1).to_json())
    with refused(folder, f"{rows + 1} tokens", str(rows)):
        load_folder(folder)


# ---- numbers that are none


def poke(folder: Path, name: str, value: float, at: int) -> bytes:
    """Put one number into a stored tensor; returns the file as it was."""
    path, entry = folder / WEIGHTS, tensor_entries(folder)[name]
    before = path.read_bytes()
    start = entry.start + at % math.prod(entry.shape) * entry.dtype.itemsize
    raw = bits(torch.tensor(value, dtype=entry.dtype))
    path.write_bytes(before[:start] + raw + before[start + len(raw) :])
    return before


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_bad_number_anywhere_is_found(folder: Path, value: float) -> None:
    """NaN or infinity in any tensor, at the first, the last or any place."""
    chance = random.Random(0)
    places = [(name, chance.randrange(10**6)) for name in names(folder)]
    for name, at in [*places, (WTE, 0), (WTE, -1), (FC, 0), (FC, -1)]:
        before = poke(folder, name, value, at)
        with refused(folder / WEIGHTS, name, "NaN or infinite"):
            load_folder(folder)
        (folder / WEIGHTS).write_bytes(before)


def test_infinities_do_not_cancel(folder: Path) -> None:
    """Plus and minus infinity in one tensor are found."""
    poke(folder, WTE, math.inf, 1)
    poke(folder, WTE, -math.inf, 2)
    with refused(WTE):
        load_folder(folder)


def test_largest_numbers_are_no_infinities(folder: Path) -> None:
    """A tensor full of the largest number is finite, though its sum in that type is not."""
    largest = torch.finfo(torch.float32).max
    rewrite(folder, lambda tensors: tensors[WTE].fill_(largest))
    assert (numbers(folder)["tokens.weight"] == largest).all()


@pytest.mark.parametrize(
    ("stored", "value", "dtype"), [("float64", 1e300, "float32"), ("float32", 1e6, "float16")]
)
def test_number_too_large_for_the_asked_type_is_found(
    folder: Path, stored: str, value: float, dtype: str
) -> None:
    """A stored number that becomes infinite in the type asked for is refused; in its own type it is loaded."""
    rewrite(folder, lambda tensors: tensors.update({WTE: tensors[WTE].to(getattr(torch, stored))}))
    poke(folder, WTE, value, 3)
    assert numbers(folder, dtype=getattr(torch, stored))["tokens.weight"].max() == value
    with refused(folder / WEIGHTS, WTE):
        load_folder(folder, dtype=getattr(torch, dtype))


# ---- shards


def split(folder: Path, extra: Tensors | None = None) -> dict[str, str]:
    """The weights in two shards; `extra` goes into the second."""
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    half = dict(list(tensors.items())[:10])
    rest = {name: value for name, value in tensors.items() if name not in half}
    save_file(half, folder / "one.safetensors")
    save_file(rest | (extra or {}), folder / "two.safetensors")
    index = {name: "one.safetensors" if name in half else "two.safetensors" for name in tensors}
    write_index(folder, index)
    return index


def write_index(folder: Path, index: Any) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": index}))


def test_shards_are_read_as_one_file(whole: Path, folder: Path) -> None:
    """A model in two shards is the model in one."""
    split(folder)
    one, two = numbers(whole), numbers(folder)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize(
    "shard",
    [
        "../x.safetensors", "../model/one.safetensors", "./one.safetensors", "a/../one.safetensors", "/etc/passwd", "", ".", "..",
        "/x.safetensors", "//x.safetensors", "~/x.safetensors", "one.safetensors/", "one.bin", "one.safetensors.bin",
        "..\\x.safetensors", "C:\\x.safetensors", "one\0.safetensors", "\0", "\ud800.safetensors", "x" * 300 + ".safetensors",
        "three.safetensors", "%2e%2e%2fx.safetensors", "one.safetensors\n", "\x1b[2J.safetensors", "x" * 100_000,
    ],
)  # fmt: skip
def test_strange_shards_are_refused(folder: Path, tmp_path: Path, shard: str) -> None:
    """An index may only name safetensors files that lie beside it."""
    index = split(folder)
    copy(folder, tmp_path / "x").joinpath("two.safetensors").rename(
        tmp_path / "x.safetensors"
    )  # were the name followed
    write_index(
        folder,
        {name: "one.safetensors" if file == "one.safetensors" else shard for name, file in index.items()},
    )
    with refused(folder):
        load_folder(folder)


@pytest.mark.parametrize(
    "index", [None, [], "one.safetensors", 5, {WTE: None}, {WTE: ["one.safetensors"]}, {WTE: 1}, {}]
)
def test_index_of_another_form_is_refused(folder: Path, index: Any) -> None:
    """The index names one file, as text, for every tensor."""
    split(folder)
    write_index(folder, index)
    with refused(folder):
        load_folder(folder)


def test_tensor_that_no_shard_holds_is_named(folder: Path) -> None:
    """A tensor of the index that is in no shard is named."""
    write_index(folder, split(folder) | {"transformer.h.5.ghost": "two.safetensors"})
    with refused(folder, "transformer.h.5.ghost"):
        load_folder(folder)


def test_tensor_that_the_index_lacks_is_named(folder: Path) -> None:
    """A tensor of a shard that the index leaves out is named."""
    index = split(folder)
    write_index(folder, {name: file for name, file in index.items() if name != WTE})
    with refused(folder, WTE):
        load_folder(folder)


def test_tensor_in_two_shards_is_refused(folder: Path) -> None:
    """Of two tensors with one name in two shards none is chosen."""
    first = names(folder)[0]
    index = split(folder, extra={first: load_file(folder / WEIGHTS)[first] * 5})
    assert index[first] == "one.safetensors"
    with refused(folder, first):
        load_folder(folder)


def test_tensor_in_another_shard_than_in_the_index_is_refused(folder: Path) -> None:
    """The index is right about every tensor, or it is refused."""
    index = split(folder)
    write_index(folder, index | {WTE: "one.safetensors", names(folder)[0]: "two.safetensors"})
    with refused(folder):
        load_folder(folder)


@pytest.mark.parametrize("shard", ["one.safetensors", "two.safetensors"])
def test_broken_shard_is_named(folder: Path, shard: str) -> None:
    """A shard that is missing or cut is named."""
    split(folder)
    path = folder / shard
    path.write_bytes(path.read_bytes()[:-1])
    with refused(path, "truncated"):
        load_folder(folder)
    path.unlink()
    with refused(path, "cannot be read"):
        load_folder(folder)


def test_models_of_any_form_are_still_loaded(tmp_path: Path) -> None:
    """What is refused above is not what a sound model has: other forms of it load."""
    for number, form in enumerate(
        ({"tied": False}, {"bias": False}, {"neurons": 12, "heads": 1}, {"layers": 1, "context": 1})
    ):
        folder = tiny_folder(tmp_path / str(number), **form)
        model = GPT(
            Config(
                **{"layers": 2, "heads": 2, "width": 8, "vocab": len(tiny_tokenizer()), "context": 16} | form
            )
        )
        expected = model.initialize(0).state_dict()
        assert all(torch.equal(value, expected[name]) for name, value in numbers(folder).items())

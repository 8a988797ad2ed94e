"""The valid files that the attack damages, and unusual files: pipes, sockets, links, devices."""

import gzip
import os
import shutil
import socket
from pathlib import Path
from typing import Any

from attack.draw import Draw

FIXTURES = Path(__file__).parents[1] / "fixtures"

TALES = '{"text": "The cat sat on the mat."}\n{"prompt": "the cat", "completion": " sat"}\n' * 12
EXAMPLES = '{"prompt": "2 + 2 =", "completion": " 4"}\n{"prompt": "3 + 1 =", "completion": " 4"}\n'
EDITS = """[{"site": "blocks.0.attn.mix[1]", "do": "zero"},
 {"site": "blocks.*.mlp", "do": "mean", "over": ["the cat", "the mat"]},
 {"site": "blocks.1.mlp.neurons[17]", "do": "scale", "by": 3},
 {"site": "blocks.1.out", "do": "patch", "from": "that cat", "at": [1]},
 {"site": "blocks.0.out", "do": "add", "by": 4, "pairs": [["the cat", "the hat"]]},
 {"site": "blocks.1.mid", "do": "add", "value": [0, 1, 0, 0, 0, 0, 0, 0]}]"""


def build(folder: Path) -> None:
    """Every kind of file that the package reads, all small and valid."""
    from bad_files import tiny_folder

    from glassformer.verification.crash import TEXT

    folder.mkdir()
    tiny_folder(folder / "model")
    tiny_folder(folder / "other", seed=1)
    for kind in ("gpt3", "gpt1"):
        _relative(folder / kind, kind)
    _adapter(folder / "lora", folder / "model")
    shutil.copytree(FIXTURES / "run", folder / "run")
    shutil.copy(FIXTURES / "view-1.json", folder / "view.json")
    shutil.copy(FIXTURES / "run" / "recipe.toml", folder)
    (folder / "text.txt").write_text(TEXT)
    (folder / "text.txt.gz").write_bytes(gzip.compress(TEXT.encode(), mtime=0))
    (folder / "tales.jsonl").write_text(TALES)
    (folder / "examples.jsonl").write_text(EXAMPLES)
    (folder / "examples.txt").write_text("2 + 2 = 4\n\n3 + 1 = 4\n")
    (folder / "edits.json").write_text(EDITS)
    _checkpoint(folder / "ckpt.pt")


def _relative(folder: Path, kind: str) -> None:
    """A tiny model of another family."""
    from bad_files import tiny_tokenizer

    from glassformer.hub.families import family
    from glassformer.hub.folder import save_folder
    from glassformer.hub.vocabulary import load_tokenizer

    tokenizer = load_tokenizer(FIXTURES / "gpt1") if kind == "gpt1" else tiny_tokenizer()
    assert tokenizer is not None
    found = family(kind)
    sizes: dict[str, Any] = {"layers": 2, "heads": 2, "width": 8, "vocab": len(tokenizer), "context": 16}
    save_folder(folder, found.build(found.config(**sizes)).initialize(0), tokenizer=tokenizer)


def _adapter(folder: Path, base: Path) -> None:
    import torch

    from glassformer.hub.families import family
    from glassformer.hub.lora import LoraWeights, save_adapter

    weights = {"blocks.0.attn.qkv": LoraWeights(torch.ones(2, 8) / 8, torch.ones(24, 2) / 8, 0.5)}
    save_adapter(folder, weights, base=f"../{base.name}", family=family("gpt2"))


def _checkpoint(path: Path) -> None:
    """A checkpoint of nanoGPT."""
    import torch

    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 8, "vocab_size": 280, "block_size": 16, "bias": True}
    shapes = {
        "wte": (280, 8),
        "wpe": (16, 8),
        "h.0.ln_1": (8,),
        "h.0.ln_2": (8,),
        "ln_f": (8,),
        "h.0.attn.c_attn": (24, 8),
        "h.0.attn.c_proj": (8, 8),
        "h.0.mlp.c_fc": (32, 8),
        "h.0.mlp.c_proj": (8, 32),
    }
    weights = {}
    for name, shape in shapes.items():
        weights[f"transformer.{name}.weight"] = torch.full(shape, 0.1)
        if name not in ("wte", "wpe"):
            weights[f"transformer.{name}.bias"] = torch.zeros(shape[0])
    weights["lm_head.weight"] = weights["transformer.wte.weight"]
    torch.save({"model": weights, "model_args": sizes}, path)


# Unusual files

SUFFIXES = ("", ".txt", ".json", ".jsonl", ".toml", ".pt", ".gz", ".safetensors")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/stdin", "/dev/fd/77", "/dev/tty", "/proc/self/mem")
OTHERS = (".", "..", "model", "run", "lora", "ckpt.pt", "nowhere", "nowhere/x", "text.txt/x", "model/")


def unusual(draw: Draw, folder: Path) -> str:
    """The path of an unusual file, made for this case."""
    if draw.chance(0.2):
        return draw.choice(DEVICES + OTHERS)
    suffix = draw.choice(SUFFIXES)
    if draw.chance(0.05):
        return "a" * draw.choice((255, 256, 5000)) + suffix
    name = draw.choice(("unusual", "unusual", "new\nline", "\x1b[1m", os.fsdecode(b"\xff\xfe")))
    path = folder / f"{name}{len(os.listdir(folder))}{suffix}"
    make_unusual(draw, path)
    return draw.choice((path.name, str(path), f"./{path.name}"))


def make_unusual(draw: Draw, path: Path) -> None:
    """A pipe, socket, folder, broken or circular link, device, empty or huge file, noise, another format."""
    match draw.randint(-1, 10):
        case -1 | 0:
            os.mkfifo(path)
        case 1:
            path.mkdir()
        case 2:
            path.symlink_to(draw.choice(("nowhere", path.name, "/dev/zero")))
        case 3:
            path.write_bytes(bytes(1 << 20))
        case 4:
            with path.open("wb") as file:
                file.truncate(6 << 30)  # zeros that take no disk
        case 5:
            path.touch()
        case 6:
            path.write_bytes(draw.randbytes(3000))
        case 7:
            with socket.socket(socket.AF_UNIX) as listener:
                here = os.open(".", os.O_RDONLY)
                os.chdir(path.parent)  # the path of a socket is at most 107 bytes long
                listener.bind(path.name)
                os.fchdir(here)
                os.close(here)
        case _:
            path.write_bytes(
                draw.choice((TALES.encode(), EDITS.encode(), gzip.compress(TALES.encode(), mtime=0)))
            )

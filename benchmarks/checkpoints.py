"""The models that benchmarks run: random weights at the true size have the speed of trained ones."""

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path

RUNS = Path("runs/bench")


def checkpoint(model: str) -> Path:
    """A model's folder: the one that ships, or random weights at the true size."""
    if model == "storyteller":
        return Path(__file__).parents[1] / "src" / "glassformer" / "pretrained" / "storyteller"
    folder = RUNS / model
    if not (folder / "model.safetensors").is_file():
        sizes = {"gpt2-medium": "n_layer=24, n_head=16, n_embd=1024"}.get(model, "")
        code = f"from transformers import GPT2Config as C, GPT2LMHeadModel as M; M(C({sizes})).save_pretrained({str(folder)!r})"
        subprocess.run(
            [sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    return folder


def with_words(model: str, data: Path | None = None) -> Path | None:
    """A model's folder with its vocabulary (gpt2_bpe in `data`); none, where that is not at hand."""
    if model == "storyteller":
        return checkpoint(model)
    data = data or Path(os.environ.get("GLASSFORMER_DATA", "."))
    words = list((data / "gpt2_bpe").glob("*.gz"))
    folder = RUNS / f"{model}-words"
    if words and not folder.is_dir():
        part = folder.with_name(folder.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(checkpoint(model), part, copy_function=os.link)
        for file in words:
            (part / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
        part.rename(folder)
    return folder if words else None

"""glass models, pull, rm, convert"""

import sys
from pathlib import Path
from typing import Any

import click

from glassformer.cli import flags
from glassformer.cli.flags import PATH, Loading, argument, option, switch
from glassformer.cli.printing import log, out, print_json, size
from glassformer.errors import GlassError, InputError


@flags.verb
@flags.as_json
def models(as_json: bool) -> None:
    """The models on this machine: shipped, kept by `glass convert`, and in the hub's cache.

    \b
    glass models             a table
    glass models --json      the same, as data

    What could be pulled is named on stderr, and never in the JSON.
    """
    from glassformer.tasks import library

    found = library.kept()
    if as_json:
        print_json([{**vars(one), "folder": str(one.folder)} for one in found])
        return
    width = max((len(one.name) for one in found), default=4)
    out(f"{'name':<{width}}  {'size':>9}  {'where':<9}  revision or folder")
    for one in found:
        out(f"{one.name:<{width}}  {size(one.size):>9}  {one.where:<9}  {one.revision or one.folder}")

    names = {one.name for one in found}
    missing = [f"{name} ({size(count)})" for name, count in library.known().items() if name not in names]
    if missing:
        log(f"Available by `glass pull NAME`: {', '.join(missing)}, any GPT-2 or Marian on the hub.")


@flags.verb
@flags.model_argument("A hub id, as gpt2 or owner/name@revision.")
@flags.loading(flags.revision, flags.offline)
@flags.as_json
def pull(loading: Loading, as_json: bool) -> None:
    """Fetch a model from the hub into its cache, and check its hash.

    \b
    glass pull gpt2                          GPT-2 small, 548 MB
    glass pull distilbert/distilgpt2@main    any GPT-2 on the hub, at a revision
    glass pull Helsinki-NLP/opus-mt-en-fr    any translator in Marian's form
    """
    from glassformer.tasks import library

    folder = library.pull(loading.model, revision=loading.revision, offline=loading.offline)
    print_folder(folder, as_json)


@flags.verb
@flags.model_argument("A name from `glass models`.")
@switch("-y", "--yes", help="Do not ask.")
@flags.as_json
def rm(model: str, yes: bool, as_json: bool) -> None:
    """Remove a model that was pulled, or kept by `glass convert`.

    \b
    glass rm gpt2            asks first
    glass rm -y my-model     does not
    """
    from glassformer.tasks import library

    plan = library.plan_removal(model)  # what cannot be removed is refused before anything is asked
    if not yes:
        if not sys.stdin.isatty():
            raise InputError("rm asks before it removes; without a terminal give --yes")
        copy = ", with its quantized copy" if plan.with_quantized else ""
        if not click.confirm(f"Remove {model} ({size(plan.size)}{copy})?", err=True):
            raise GlassError("nothing removed")
    plan.delete()
    if as_json:
        print_json({"removed": model, "freed": plan.size})
    else:
        print(f"removed {model}, {size(plan.size)} freed")


@flags.verb
@argument("source", "A .pt or .bin file or its folder (nanoGPT, minGPT, Hugging Face), or a run.", type=PATH)
@argument("target", "A name for `glass models`, or a folder (with a slash).", required=False)
@option("--heads", type=int, help="Number of attention heads, if the file does not say it (minGPT).")
@option("--activation", help="gelu_new (tanh) or gelu (erf), if it is not as usual.")
@option("--tokenizer", type=PATH, help="A folder with the vocabulary.")
@option("--dtype", help="Store as float32, float16 or bfloat16.")
@flags.as_json
def convert(source: Path, target: str | None, as_json: bool, **how: Any) -> None:
    """Turn a pickled checkpoint into a folder that loads without pickle, here and in transformers; or keep
    the model of a run under a short name.

    \b
    glass convert out/ckpt.pt my-model           nanoGPT; then: glass generate -m my-model
    glass convert runs/shakespeare bard          a model that was trained here; then: glass generate -m bard
    glass convert model.pt ./folder --heads 6    minGPT, into a folder of your choice

    The pickle is read in a confined child process, weights only. nanoGPT checkpoints are taken to use the
    erf form of GELU, as its code does since June 2023; older ones need --activation gelu_new.
    """
    from glassformer.tasks import library

    print_folder(library.convert(source, target, **how), as_json)


def print_folder(folder: Path, as_json: bool) -> None:
    """Where a model is now."""
    if as_json:
        print_json({"folder": str(folder)})
    else:
        print(folder)

"""glass edit"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.answers import ask
from glassformer.cli.asked import Asked, at_least, bar, one_question, only, question
from glassformer.cli.options import log
from glassformer.errors import InputError
from glassformer.figures.view import write

if TYPE_CHECKING:
    from glassformer.answers.answer import Answer

Address = "blocks.2.attn.mix[1] (a head), blocks.3.mlp.neurons[17], blocks.2.attn, blocks.*.mlp"


@question
def edit(
    asked: Asked,
    file_of_edits: Annotated[
        Path | None, typer.Option("--edit", help="A file of edits: a list in JSON.")
    ] = None,
    zero: Annotated[list[str] | None, typer.Option(help=f"Switch off: {Address}; repeatable.")] = None,
    mean: Annotated[
        list[str] | None, typer.Option(help="Put its mean over the text in its place; repeatable.")
    ] = None,
    scale: Annotated[
        list[str] | None, typer.Option(help="ADDRESS=NUMBER: times a number; repeatable.")
    ] = None,
    patch: Annotated[
        list[str] | None, typer.Option(help="Put in what it is on the text of --from; repeatable.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", help="The other text, for --patch and --sweep.")
    ] = None,
    at: Annotated[
        list[int] | None, typer.Option(help="Only at this position (-1: the last); repeatable.")
    ] = None,
    toward: Annotated[str | None, typer.Option(help="Steer: toward what this text ends in …")] = None,
    away: Annotated[
        str | None, typer.Option(help="… and away from what that one ends in, at --site.")
    ] = None,
    by: Annotated[float, typer.Option(help="How strongly to steer.")] = 1.0,
    site: Annotated[
        str, typer.Option(help="Where to steer (usual: in the middle), or what to sweep over (blocks.*.out).")
    ] = "",
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Patch each site and position from --from, one at a time.")
    ] = False,
    answer: Annotated[str | None, typer.Option(help="Sweep: the token that --from makes likelier …")] = None,
    foil: Annotated[
        str | None, typer.Option("--not", help="… than this one, which the text makes likely.")
    ] = None,
    count: Annotated[
        int, typer.Option("-n", "--max-new-tokens", help="Write so many tokens, with and without.")
    ] = 20,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token; higher is wilder.")] = 0.0,
    seed: Annotated[int, typer.Option("-s", "--seed", help="Same seed, same text.")] = 0,
    k: Annotated[int, typer.Option("-k", help="So many next tokens, with and without.")] = 5,
    save: Annotated[Path | None, typer.Option(help="Also write the edits to a file, for --edit.")] = None,
) -> "Answer":
    """Change the model while it runs, and see what it says then.

    \b
    glass edit --zero "blocks.0.attn.mix[1]" "Once upon a"           without one head
    glass edit --zero "blocks.*.attn" "Once upon a time"             without any attention
    glass edit --scale "blocks.3.mlp.neurons[17]=5" "The dog"        one neuron, five times as strong
    glass edit --patch blocks.2.out --from "The girl lost" --at 1 "The boy lost"     one place from another text
    glass edit --toward "She was happy" --away "She was sad" --site blocks.3.out --by 3 "Then Tom was"
    glass edit --sweep --from "The girl lost" --answer " her" --not " his" "The boy lost"   which places matter
    glass edit --zero blocks.0.mlp --save edits.json "Once"          then: glass generate --edit edits.json
    """
    prompt = asked.prompt
    change = file_of_edits or zero or mean or scale or patch or toward
    one_question({"--sweep": sweep, "an edit": change})
    at_least("-k", k, 1)
    at_least("--max-new-tokens", count, 0)
    if sweep:
        only("--sweep", "tries every position and writes nothing", {"--at": at, "--save": save})
        if source is None or answer is None or foil is None:
            raise InputError("--sweep needs --from, --answer and --not")
        lm = asked.lm
        with bar("patching") as progress:
            return ask(
                "sweep",
                lm,
                source,
                broken=prompt,
                answer=answer,
                foil=foil,
                sites=site or "blocks.*.out",
                progress=progress,
            )
    only("an edit", "is no --sweep", {"--answer": answer, "--not": foil})
    if source is not None and not patch:
        raise InputError("--from needs --patch or --sweep")
    if site and toward is None:
        raise InputError("--site needs --toward and --away, or --sweep")
    edits: list[Any] = [] if file_of_edits is None else _read(file_of_edits)
    where = {"at": at} if at else {}
    edits += [{"site": one, "do": "zero"} | where for one in zero or []]
    edits += [{"site": one, "do": "mean", "over": [prompt]} | where for one in mean or []]
    for one in scale or []:
        address, _, number = one.rpartition("=")
        try:
            edits.append({"site": address, "do": "scale", "by": float(number)} | where)
        except ValueError:
            raise InputError(f"--scale {one!r} is not ADDRESS=NUMBER, as in blocks.2.attn=0.5") from None
    if patch and source is None:
        raise InputError("--patch needs --from, the text to take it from")
    edits += [{"site": one, "do": "patch", "from": source} | where for one in patch or []]
    if (toward is None) != (away is None):
        raise InputError("--toward and --away belong together")
    if toward is not None:
        site = site or f"blocks.{len(asked.lm.model.blocks) // 2}.out"
        edits.append({"site": site, "do": "add", "by": by, "pairs": [[toward, away]]} | where)
    if not edits:
        raise InputError(
            "name an edit: --zero, --mean, --scale, --patch, --toward and --away, or --edit FILE"
        )
    how = {"k": k, "max_new_tokens": count, "seed": seed, "temperature": temperature}
    found: Answer = ask("edit", asked.about, edits=edits, **how)
    if save is not None:
        write(save, (json.dumps(edits, ensure_ascii=False, indent=2) + "\n").encode())
        log().print(f"{save}")
    return found


def _read(path: Path) -> list[Any]:
    from glassformer.answers.edits import read_file

    return read_file(path)

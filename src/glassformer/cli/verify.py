"""glass verify"""

from pathlib import Path

from glassformer.cli import flags
from glassformer.cli.flags import DEFAULT_MODEL, PATH, Picture, option, switch
from glassformer.cli.printing import log, out, print_json, print_table, save_answer

DATA = "The folder of LAMBADA and WikiText-2, for a published GPT-2.  [default: GLASSFORMER_DATA]"


@flags.verb
@flags.model_argument(
    "A shipped name, a folder, a hub id or a name from `glass models`.", default=DEFAULT_MODEL
)
@option("--data", type=PATH, help=DATA)
@switch("--pull", help="Fetch the model from the hub if it is not on this machine.")
@flags.picture(flags.output, flags.dark, flags.width, flags.png_scale, flags.as_json)
def verify(model: str, data: Path | None, pull: bool, picture: Picture) -> int:
    """Prove on this machine, offline, what the package promises.

    \b
    glass verify                     the model that ships: half a minute
    glass verify runs/mine           a model of your own
    glass verify --json              the same, as data; -o FILE.csv saves it
    glass verify gpt2 --data DATA    also LAMBADA and WikiText-2 beside their published figures

    Checked are: logits against an independent NumPy implementation; cache and batches; the native engine
    against torch; a training that is killed and resumed; hostile files; the tokenizer. Each check is
    repeated with a mutant, something broken on purpose, that must exceed the limit: a check that lets it pass
    fails too. Exit code 1 if any check fails.

    The published figures should take about half an hour on two cores. They have not been tried on the real
    weights yet: they are tested with substitutes.
    """
    from glassformer.cli.progress import progress_bar
    from glassformer.verification.verify import verify as run

    picture.check()
    with progress_bar("verify") as progress:
        answer = run(model, data=data, pull=pull, progress=progress)
    if picture.output is not None:
        save_answer(answer, picture)
    elif picture.as_json:
        print_json(answer.to_dict())
    else:
        out(answer.caption)
        print_table(answer.table())
        out(*(f"Note: {note}." for note in answer.notes))
    for check in answer.failed:
        measured = f"{check.measured:.3g}, limit {check.limit:.3g}, mutant {check.mutant_measured:.3g}"
        log(f"glass: {check.name} {check.verdict}: {measured} {check.unit}")
    return 1 if answer.failed else 0

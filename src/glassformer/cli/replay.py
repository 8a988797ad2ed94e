"""glass replay"""

import json
from pathlib import Path

from glassformer.cli import flags
from glassformer.cli.flags import option
from glassformer.cli.printing import log, out, print_json
from glassformer.errors import InputError, counted


@flags.verb
@flags.argument(
    "recipe", "The recipe as JSON, or an answer that has one; '-' or a pipe reads stdin.", required=False
)
@flags.file
@option("-m", "--model", help=f"{flags.MODEL} None: as the recipe calls it.")
@flags.offline
@flags.as_json
def replay(recipe: str | None, file: Path | None, model: str | None, *, offline: bool, as_json: bool) -> None:
    """Generate a text of a server again, and check every bit of it.

    \b
    curl … -d '{…, "explain": {"recipe": true}}' > answer.json
    glass replay -f answer.json                  the text again, from all recipes of the answer
    glass replay -f answer.json -m runs/mine     the model under another name
    glass replay --json -f answer.json           tokens and log-probabilities as data

    A recipe names the model and a checksum of its weights, the backend, the prompt's tokens, options, seed
    and edits. If a token or a log-probability differs, that is an error (exit code 1).
    """
    from glassformer.tasks.replay import Replay

    try:
        data = json.loads(flags.read_text(recipe, file))
    except ValueError as error:
        raise InputError(f"the recipe is not valid JSON: {error}") from None
    found = []
    for one in Replay.read(data):
        completion = one.run(one.load(model, offline=offline))
        found.append(completion)
        if not as_json:
            out(str(completion))
            tokens = counted(len(completion.tokens), "token")
            log(f"({tokens} by {completion.engine}: the same, to the bit of every log-probability)")
    if as_json:
        results = [one.to_dict() for one in found]
        print_json(results if len(results) > 1 else results[0])

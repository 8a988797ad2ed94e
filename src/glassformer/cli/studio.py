"""glass studio"""

import json
import sys
import threading
import webbrowser
from pathlib import Path
from typing import Any

from glassformer import machine
from glassformer.cli import flags
from glassformer.cli.flags import DEFAULT_MODEL, MODEL, Loading, option, switch
from glassformer.cli.printing import log, out
from glassformer.errors import InputError

PORT = 8765
MODELS = f"{MODEL} May be given several times; the page begins with the first. [{DEFAULT_MODEL}]"


@flags.verb
@option("-m", "--model", "models", multiple=True, help=MODELS)
@option("--port", default=PORT, help="The port to listen on; 0 takes a free one.")
@switch("--no-open", former=["--no-browser"], help="Only print the address; do not open a browser.")
@option("--demo", metavar="DIR", help="Write a recorded tour into a folder, for any web server, and end.")
@switch("--json", "as_json", help="Print the address as JSON.")
@flags.loading(flags.engine, flags.quantize, flags.device, flags.dtype, flags.revision, flags.offline)
def studio(
    loading: Loading, models: tuple[str, ...], *, port: int, no_open: bool, demo: str | None, as_json: bool
) -> None:
    """Write with a model and look inside while you write, on a page of this machine.

    \b
    glass studio                     the storyteller, in your browser
    glass studio -m gpt2             another model
    glass studio --no-open           print the address, open it yourself
    glass studio --demo tour         a tour of it as plain files, for a course page

    The page is for this machine alone: the address holds a token that is new with every start. Ctrl-C ends
    it.
    """
    if not 0 <= port <= 65535:
        raise InputError(f"--port must be from 0 to 65535, not {port}")
    try:
        from glassformer.server.listen import bind, run
        from glassformer.server.studio import Studio
    except ModuleNotFoundError as error:
        raise InputError(f'{error.name} is missing: pip install "glassformer[serve]"') from None

    if demo is not None:
        _write_tour(Path(demo), models, loading=loading, as_json=as_json)
        return
    named = _named(models or (DEFAULT_MODEL,))
    places: dict[str, Any] = {"home": machine.home(), "offline": loading.offline}
    page = Studio(loading.load, first=tuple(named), names=named, **places)
    with bind("127.0.0.1", port) as listening:
        settings = page.settings(port=listening.getsockname()[1])
        url = f"http://127.0.0.1:{settings.port}/#token={page.door.token}"

        def ready(models: object) -> None:
            out(json.dumps({"url": url}) if as_json else f"The studio is at {url}")
            sys.stdout.flush()
            if not no_open:  # in a thread, since a browser in a terminal returns when it is closed
                threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

        run(settings, {}, listening=listening, log=_problem, ready=ready, studio=page)


def _write_tour(folder: Path, models: tuple[str, ...], *, loading: Loading, as_json: bool) -> None:
    from glassformer.cli.progress import progress_bar  # here: `--help` needs neither
    from glassformer.server import tour

    if models:
        raise InputError("--demo: the tour has models of its own; leave out --model")
    with progress_bar("the tour's answers") as advance:
        size = tour.write(folder, load=loading.load, advance=advance)
    page = folder / "index.html"
    where = f"The tour is in {page} ({size / 1e6:.1f} MB): open it, or put the folder on any web server."
    out(json.dumps({"path": str(page), "bytes": size}) if as_json else where)


def _named(models: tuple[str, ...]) -> dict[str, str]:
    """What the page calls each model -> what was typed: of a folder, its own name, which says enough."""
    found: dict[str, str] = {}
    for typed in models:
        id = Path(typed).resolve().name if Path(typed).is_dir() else typed
        if id in found:
            raise InputError(f"--model: there are two models of the name {id!r}")
        found[id] = typed
    return found


def _problem(about: dict[str, Any]) -> None:
    """A line for every request that failed on the server's side; the others would only be noise."""
    if about["status"] >= 500 and about["status"] != 503:
        log(f"{about['method']} {about['path']!r} {about['status']} {about.get('error', '')}")

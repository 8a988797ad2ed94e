"""Show a view where the reader is: live in a notebook, as text on a terminal."""

import sys
from typing import Any

from glassformer.figures.layout import layouts
from glassformer.figures.view import View, script

WIDTH = 720  # of the still picture in a notebook


def show(view: View) -> None:
    """In a notebook as its output; elsewhere on stdout."""
    if _in_notebook():
        from IPython.display import display

        display(bundle(view), raw=True)
    else:
        from rich.console import Console

        console = Console()
        print(view.to_text(console.width, color=console.color_system is not None and not console.no_color))


def bundle(view: View) -> dict[str, Any]:
    """One output in several forms: live where there are widgets, else a still picture, else text."""
    forms: dict[str, Any] = {
        "image/svg+xml": view.to_svg(width=WIDTH),
        "text/plain": view.to_text(100, color=False),
    }
    if _in_notebook():
        try:
            widget = live(view)
        except ImportError:
            return forms
        forms = widget._repr_mimebundle_()[0] | forms
    return forms


def live(view: View) -> Any:
    """The view as a widget."""
    import anywidget
    import traitlets

    class Live(anywidget.AnyWidget):
        _esm = script()
        drawing = traitlets.Dict().tag(sync=True)

    return Live(drawing={"view": view.spec, "layouts": layouts(view.spec)})


def _in_notebook() -> bool:
    """Whether a kernel runs this, not a shell."""
    shell = sys.modules.get("IPython")
    return shell is not None and shell.get_ipython() is not None and hasattr(shell.get_ipython(), "kernel")

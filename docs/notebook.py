"""Write docs/quickstart.ipynb and run it, so that it also reads where nothing runs.

python docs/notebook.py
"""

import tempfile
from pathlib import Path

import nbclient
import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

CELLS = [
    (
        """\
# Glassformer in a notebook

A small model writes, and everything inside can be asked, seen and saved. Pictures are live where a kernel runs (hover, click,
arrow keys) and still pictures everywhere else. Needs `pip install 'glassformer[notebook]'`.""",
        """\
import glassformer as gf

lm = gf.load("storyteller")
out = lm.generate("Once upon a time, there was a little", max_new_tokens=12, seed=2)
print(out)""",
    ),
    ("An answer that ends a cell is drawn. How probable was each token?", "out.probabilities()"),
    ("What would every layer predict, if it were the last?", "out.lens()"),
    (
        "Where does a head attend? Hover over a row; `t` opens the numbers as a table.",
        "out.attention(layer=4, head=4)",
    ),
    ("The same as arcs between tokens, shown by hand:", 'out.attention(layer=4, head=4).show("arcs")'),
    (
        "Why this word? Every explanation carries its own test.",
        'lm.generate("The little dog was very", max_new_tokens=2, temperature=0).saliency()',
    ),
    (
        "What neurons have in common, over the text (needs `pip install 'glassformer[explain]'`):",
        "out.neurons().factors(4)",
    ),
    (
        "Switch a part off, and ask again:",
        """\
with lm.edit([{"site": "blocks.*.attn", "do": "zero"}]):  # no token sees another one
    print(lm.generate("Once upon a time", max_new_tokens=12, temperature=0))""",
    ),
    ("Numbers as pandas has them:", "out.rankings().to_frame().head()"),
    (
        "And as NumPy has them; pictures as files:",
        """\
answer = out.lens()
answer.save("lens.svg")
answer.save("lens.html")
answer.to_numpy()["ranks"].shape""",
    ),
]


def main() -> None:
    """Make the cells, run them, keep what they show."""
    cells = [cell for text, code in CELLS for cell in (new_markdown_cell(text), new_code_cell(code))]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = new_notebook(cells=cells, metadata={"kernelspec": kernel})
    with tempfile.TemporaryDirectory() as folder:
        where = {"metadata": {"path": folder}}
        nbclient.NotebookClient(notebook, timeout=300, store_widget_state=False, resources=where).execute()
    for cell in cells:
        cell["metadata"].pop("execution", None)  # the times
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(
                "application/vnd.jupyter.widget-view+json", None
            )  # it is nothing without its kernel
    nbformat.write(notebook, Path(__file__).parent / "quickstart.ipynb")


if __name__ == "__main__":
    main()

"""Texts line by line: one line in, one line out, and an error names its line."""

from glassformer.errors import InputError, counted


def split_lines(text: str) -> list[str]:
    """Lines as editors count them; `splitlines` also ends them at rare characters such as U+2028."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def on_one_line(text: str) -> str:
    """A result for one line is one line, whatever the model writes."""
    return " ".join(text.splitlines())


def located(error: InputError, where: str, *, before: int) -> InputError:
    """The error, with the number of its line and what became of the lines before it."""
    if not where:
        return error
    kept = f"the {counted(before, 'line')} before it {'is' if before == 1 else 'are'} done" if before else ""
    return InputError("; ".join(part for part in (f"{where}{before + 1}: {error}", kept) if part))

"""speed.json as a page and a picture."""

import json
from pathlib import Path
from typing import Any

OURS, OURS_INT4 = "Glassformer int8", "Glassformer int4"
WORKS = {"decode": "decode, batch 1", "prefill": "prefill", "batch": "decode, batch 8"}
NAMES = {
    "amx": "AMX",
    "avx512": "AVX-512 with VNNI",
    "avxvnni": "AVX-VNNI",
    "avx2-hidden": "AVX2, with AVX-512 hidden",
    "avx2": "AVX2",
    "dotprod": "ARM with dot products",
    "neon": "ARM with NEON",
    "plain": "plain C++",
}
HIDDEN = (
    "- The processor has AVX-512, which was hidden from every side (`--hide-avx512`): llama.cpp was built without it, the other"
    " libraries were answered that it is missing."
)
INTRODUCTION = """\
# Speed beside other libraries

Made by `python benchmarks/peers --write docs`; the figures of a model are those of one run, all on one machine. There is a section
for each instruction set of the native engine.

Tokens a second, and in brackets how many times as fast as that side the native engine is (the median over rounds): with int8
weights, and behind the stroke with int4. Decode: 128 tokens are written behind 64, without the time of reading those; batch 8: 32
tokens, eight texts at once. Prefill: 512 tokens are read (480 of the storyteller) and one is written. First token: from the start
of a process that has the model prepared. Memory is the peak of the process that was measured."""


TRANSLATION = """\
## Translation

Made by `python benchmarks/translate.py --write docs`. Random weights in the sizes of opus-mt-en-fr (6 + 6 layers, width 512, 59,514
tokens); 32 sources of 5 to 40 tokens as one batch, 32 tokens are written for each. Ours is torch in fp32: the native engine does not
run this model. Tokens a second, and in brackets how many times as fast as that side ours is (the median over rounds; below 1, that
side is faster)."""


def write(folder: Path) -> None:
    """Make speed.md and the pictures of speed.json, all in one folder."""
    write_page(folder)
    runs = json.loads((folder / "speed.json").read_text())
    for way, report in runs.items():
        picture(report).save(folder / f"speed-{way}.svg")
        picture(report).save(folder / f"speed-{way}-dark.svg", theme="dark")


def write_page(folder: Path) -> None:
    """Make speed.md of speed.json and, where it is there, speed-translation.json."""
    runs = json.loads((folder / "speed.json").read_text())
    file = folder / "speed-translation.json"
    translation = json.loads(file.read_text()) if file.is_file() else None
    (folder / "speed.md").write_text(page(runs, translation))


def page(runs: dict[str, Any], translation: dict[str, Any] | None = None) -> str:
    """The figures in words and tables."""
    lines = [INTRODUCTION]
    for way in NAMES:
        if way in runs:
            lines += section(way, runs[way])
    if translation is not None:
        lines += ["", *translation_section(translation)]
    return "\n".join(lines) + "\n"


def section(way: str, report: dict[str, Any]) -> list[str]:
    """All figures of one instruction set."""
    lines = [
        "", f"## {NAMES[way]}", "",
        f"- {report['processor']}, {report['threads']} threads, {report['date']}; sides in turn, medians.",
        *([HIDDEN] if way.endswith("-hidden") else []),
        *([f"- {report['note']}"] if "note" in report else []),
        *(f"- {name}: {version}" for name, version in report["versions"].items()), "",
        f"<picture><source media=\"(prefers-color-scheme: dark)\" srcset=\"speed-{way}-dark.svg\">",
        f"<img src=\"speed-{way}.svg\" alt=\"Tokens a second of every side\"></picture>",
    ]  # fmt: skip
    for model, found in report["models"].items():
        lines += ["", f"### {model}, {NAMES[way]}", "", *table(found), "", *notes(found)]
    return lines


def translation_section(report: dict[str, Any]) -> list[str]:
    """All figures of translation: a row for every side, a column for every work."""
    work = report["work"]
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    lines = [
        TRANSLATION, "",
        f"- {report['processor']}, {report['threads']} threads, {report['date']}; {versions}.",
        f"- {report['rounds']} rounds, sides in turn, medians of {report['clock']}.", "",
        f"| | {' | '.join(work)} |", f"|---|{'---|' * len(work)}",
    ]  # fmt: skip
    first = next(iter(work.values()))
    for side in first["tokens/s"]:
        cells = []
        for found in work.values():
            ratio = found["ratios"].get(side)
            brackets = "" if ratio is None else f" ({ratio['median']:.2f} ×)"
            cells.append(f"{found['tokens/s'][side]:,.0f}{brackets}")
        lines.append(f"| {side} | {' | '.join(cells)} |")
    same = ", ".join(
        f"{name}: {found['agreement']['equal']} of {found['agreement']['targets']}"
        for name, found in work.items()
    )
    return [*lines, "", f"- Targets that are token for token those of transformers: {same}."]


def table(found: dict[str, Any]) -> list[str]:
    """A row for every side of one model."""
    lines = [f"| | {' | '.join(WORKS.values())} | first token, s | memory, MB |", "|---|---|---|---|---|---|"]
    for name in found["decode"]:
        cells = [f"{found[work][name]:,.0f}{brackets(found, work, name)}" for work in WORKS]
        lines.append(
            f"| {name} | {' | '.join(cells)} | {found['first'][name]:.2f} | {found['memory'][name]:,.0f} |"
        )
    return lines


def brackets(found: dict[str, Any], work: str, name: str) -> str:
    """How many times as fast as a peer we are, in eight bits and in four."""
    if name in (OURS, OURS_INT4):
        return ""
    ratios = [found["ratios"][work][name]]
    if four := found.get("ratios of int4", {}).get(work):
        ratios.append(four[name])
    return f" ({' / '.join(f'{one:.2f}' for one in ratios)} ×)"


def notes(found: dict[str, Any]) -> list[str]:
    """What was measured of our engine alone."""
    lines = []
    for bits, about in (("int8", "ours"), ("int4", "ours int4")):
        if about not in found:
            continue
        ours = found[about]
        early, late = (name for name in ours if name.startswith("at position"))
        lines += [
            f"- {bits}: the weights alone, in a bare loop of matrix-vector products, {ours['bare loop']:,.0f} tokens/s;"
            f" decoding at position 100 is at {ours[early] / ours['bare loop']:.0%} of it,"
            f" {late} at {ours[late] / ours[early]:.0%} of 100's."
            f" Drawn among the 40 best instead of greedy: {ours['default sampling']:,.0f} tokens/s."
            f" The file has {ours['file MB']:,.0f} MB."
        ]
    if limits := found.get("limits"):
        registers = limits["registers"]
        lines.append(
            f"- Integer products, 10⁹ operations a second: a loop in registers {registers:,.0f},"
            f" the matrices by 128 rows {limits['products']:,.0f} ({limits['products'] / registers:.0%}),"
            f" the whole prefill {limits['prefill']:,.0f} ({limits['prefill'] / registers:.0%})."
        )
    if start := found["ours"].get("glass generate"):
        lines.append(f"- `glass generate`, from its start to the end of one token: {start:.2f} s.")
    return [
        *lines,
        f"- While another process takes one core: {found['ours']['contention']:.0%} of the quiet speed.",
        f"- {found['rounds']} rounds; {found['disturbed']} samples were disturbed by other processes and taken again.",
    ]


def picture(report: dict[str, Any]) -> Any:
    """A bar for every side, a panel for every work of every model."""
    from glassformer.figures.specs import bars, panels
    from glassformer.figures.view import VERSION, View

    parts, rows = [], []
    for model, found in report["models"].items():
        for work, title in WORKS.items():
            names = sorted(found[work], key=lambda name: -found[work][name])
            values = [found[work][name] for name in names]
            parts.append(bars(names, values, title=f"{model}: {title}, tokens/s"))
            rows += [[model, title, name, value] for name, value in found[work].items()]
    about = {
        "view": VERSION,
        "title": f"Tokens a second, {report['threads']} threads",
        "sentence": "Tokens a second of every library on every model, longer is faster.",
        "caption": f"{report['processor']}, {NAMES[report['instructions']]}",
        "table": {"columns": ["model", "work", "library", "tokens/s"], "rows": rows},
    }
    return View(about | panels(parts))

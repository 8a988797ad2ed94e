"""speed.json as a page and a picture."""

import json
from pathlib import Path
from typing import Any

OURS = "Glassformer int8"
WORKS = {"decode": "decode, batch 1", "prefill": "prefill", "batch": "decode, batch 8"}


def write(folder: Path) -> None:
    """Make speed.md and speed.svg of speed.json, all in one folder."""
    report = json.loads((folder / "speed.json").read_text())
    (folder / "speed.md").write_text(page(report))
    picture(report).save(folder / "speed.svg")
    picture(report).save(folder / "speed-dark.svg", theme="dark")


def page(report: dict[str, Any]) -> str:
    """The figures in words and tables."""
    machine = report["machine"]
    lines = [
        "# Speed beside other libraries", "",
        "Made by `python benchmarks/peers --write docs`; the figures of a model are those of one run, all on one machine.", "",
        f"- Processor: {machine['processor']}; {machine['threads']} threads; sides in turn, medians.",
        *(f"- {name}: {told}" for name, told in report["versions"].items()), "",
        "<picture><source media=\"(prefers-color-scheme: dark)\" srcset=\"speed-dark.svg\">",
        "<img src=\"speed.svg\" alt=\"Tokens a second of every side\"></picture>", "",
        "Tokens a second, and in brackets how many times as fast as that side the native engine is (the median over rounds).",
        "Decode: 128 tokens are written behind 64, without the time of reading those; batch 8: 32 tokens, eight texts at once.",
        "Prefill: 512 tokens are read (480 of the storyteller) and one is written. First token: from the start of a process that",
        "has the model prepared. Memory is the peak of the process that was measured.",
    ]  # fmt: skip
    for model, found in report["models"].items():
        lines += [
            "",
            f"## {model}",
            "",
            f"| | {' | '.join(WORKS.values())} | first token, s | memory, MB |",
            "|---|---|---|---|---|---|",
        ]
        for name in found["decode"]:
            cells = [
                f"{found[work][name]:,.0f}"
                + ("" if name == OURS else f" ({found['ratios'][work][name]:.2f} ×)")
                for work in WORKS
            ]
            lines.append(
                f"| {name} | {' | '.join(cells)} | {found['first'][name]:.2f} | {found['memory'][name]:,.0f} |"
            )
        ours = found["ours"]
        places = [name for name in ours if name.startswith("at position")]
        lines += [
            "",
            f"- The weights alone, in a bare loop of matrix-vector products: {ours['bare loop']:,.0f} tokens/s;"
            f" decoding at position 100 is at {ours[places[0]] / ours['bare loop']:.0%} of it.",
            f"- {places[1].capitalize()}: {ours[places[1]]:,.0f} tokens/s, {ours[places[1]] / ours[places[0]]:.0%} of 100's.",
            *(
                [
                    f"- `glass generate`, from its start to the end of one token: {ours['glass generate']:.2f} s."
                ]
                if "glass generate" in ours
                else []
            ),
            f"- Drawn among the 40 best instead of greedy: {ours['default sampling']:,.0f} tokens/s.",
            f"- While another process takes one core: {ours['contention']:.0%} of the quiet speed.",
            f"- The quantized file has {ours['file MB']:,.0f} MB.",
            f"- {found['rounds']} rounds; {found['disturbed']} samples were disturbed by other processes and taken again.",
        ]
    return "\n".join(lines) + "\n"


def picture(report: dict[str, Any]) -> Any:
    """A bar for every side, a panel for every work of every model."""
    from glassformer.figures.specs import bars, panels
    from glassformer.figures.view import VERSION, View

    parts = []
    for model, found in report["models"].items():
        for work, told in WORKS.items():
            names = sorted(found[work], key=lambda name: -found[work][name])
            values = [found[work][name] for name in names]
            parts.append(bars(names, values, title=f"{model}: {told}, tokens/s"))
    rows = [
        [model, told, name, value]
        for model, found in report["models"].items()
        for work, told in WORKS.items()
        for name, value in found[work].items()
    ]
    about = {
        "view": VERSION,
        "title": "Tokens a second, 2 threads",
        "sentence": "Tokens a second of every library on every model, longer is faster.",
        "caption": report["machine"]["processor"],
        "table": {"columns": ["model", "work", "library", "tokens/s"], "rows": rows},
    }
    return View(about | panels(parts))

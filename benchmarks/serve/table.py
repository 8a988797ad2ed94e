"""serve.json as the table of docs/serving.md."""

import json
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- made by benchmarks/serve from here on -->", "<!-- made by benchmarks/serve up to here -->"


def write(folder: Path) -> None:
    """Put the figures of serve.json into serving.md of the same folder."""
    page = folder / "serving.md"
    before, rest = page.read_text().split(BEGIN)
    after = rest.split(END)[1]
    report = json.loads((folder / "serve.json").read_text())
    page.write_text(f"{before}{BEGIN}\n{table(report)}{END}{after}")


def table(report: dict[str, Any]) -> str:
    """Rows of what was measured, and what must hold."""
    lines = [
        f"GPT-2 small in its true size, {report['threads']} threads on {report['processor']}, {report['date']};"
        f" {report['versions']}; {report['rounds']} rounds in turn, medians,"
        f" {report['disturbed']} samples were disturbed by other processes.",
        "",
        "| | tokens/s | first token, 95 % within | here is |",
        "|---|---|---|---|",
    ]
    for name, found in report["throughput"].items():
        times = f"{found['ratio']:.2f} × as fast" if "ratio" in found else "–"
        lines.append(f"| {name} | {found['tokens/s']:,.0f} | {found['late']:.2f} s | {times} |")
    lines += ["", "| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in facts(report).items())]
    return "\n".join(lines) + "\n"


def facts(report: dict[str, Any]) -> dict[str, str]:
    """What is no throughput, each in a few words."""
    found = {}
    if one := report.get("overhead"):
        found["one streaming client, beside the bare engine"] = (
            f"{one['served']:,.0f} of {one['bare']:,.0f} tokens/s: {one['overhead']:+.0%} time"
        )
    if one := report.get("idle"):
        found[f"{one['connections']:,} idle connections"] = (
            f"{one['MB']:+.0f} MB; {one['tokens/s']:,.0f} tokens/s beside them, {one['before']:,.0f} without"
        )
    if one := report.get("lane"):
        found["four streams while insides are computed"] = (
            f"{one['with']:,.0f} tokens/s, {one['without']:,.0f} without ({one['share']:.0%});"
            f" {one['explained']} explained texts meanwhile"
        )
    if one := report.get("mixed"):
        found[f"{one['minutes']:g} minutes of mixed load"] = (
            f"{one['requests']:,} requests, {one['5xx']} of them 5xx; memory {one['memory']:,.0f} MB,"
            f" {one['growth MB']:+.1f} MB from the first third after warming up to the last"
        )
    return found

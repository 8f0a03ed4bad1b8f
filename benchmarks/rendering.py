"""The results as a Markdown table in README.md and as a plot beside it, both made of nothing but the results file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any, Final

from benchmarks.results import Result, read_results

BEGIN: Final = "<!-- results: made by python -m benchmarks -->"
END: Final = "<!-- end of the results -->"
PLOT: Final = "results.svg"


def render(results_file: Path) -> str:
    """Write table and plot beside a results file; return the table. README.md keeps what is not between the marks."""
    results = read_results(results_file)
    if not results:
        return "(nothing was measured)"
    text = markdown(results)
    readme = results_file.with_name("README.md")
    before, after = "", "\n"
    if readme.exists() and BEGIN in (whole := readme.read_text()):
        before, after = whole.split(BEGIN)[0], whole.split(END)[1]
    readme.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    plot(results, results_file.with_name(PLOT))
    return text


def markdown(results: Sequence[Result]) -> str:
    """Return the whole of what is between the marks."""
    lines = [
        f"![each ratio as a part of what it may be]({PLOT})",
        "",
        "| figure | ratio | within the rounds | to reach | |",
        "|---|---|---|---|---|",
    ]
    for result in results:
        spread = f"{result.spread[0]:.3g} to {result.spread[1]:.3g}, {result.pairs} pairs" if result.spread else str(result.pairs)
        bound, state = "", ""
        if result.target is not None:
            bound = f"{'>=' if result.at_least else '<='} {result.target:.3g}"
            state = "reached" if result.is_reached else "**not reached**"
        what = f"`{result.figure}`: {result.about}" if result.about else result.figure
        lines.append(f"| {what} | {result.ratio:.3g} | {spread} | {bound} | {state} |")
    for result in results:
        if result.outcomes or result.seen:
            lines += ["", f"**`{result.figure}`**"]
        if result.outcomes:
            lines += ["", *_table(result.outcomes)]
        if result.seen:
            lines += ["", *(f"- {sentence}" for sentence in result.seen)]
    lines += ["", *(f"- {line}" for line in machines(results))]
    return "\n".join(lines)


def machines(results: Sequence[Result]) -> list[str]:
    """Return a line for each machine, with the figures that were measured there."""
    found: dict[str, list[str]] = {}
    for result in results:
        facts = ", ".join(f"{name} {_plain(value)}" for name, value in result.machine.items() if name != "load")
        found.setdefault(facts or "unknown", []).append(f"`{result.figure}`")
    if len(found) == 1:
        return [f"Machine: {next(iter(found))}"]
    return [f"Machine of {', '.join(names)}: {facts}" for facts, names in found.items()]


def _plain(value: Any) -> str:
    return " ".join(f"{name} {item}" for name, item in value.items()) if isinstance(value, dict) else str(value)


def _table(rows: Sequence[dict[str, Any]]) -> list[str]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    for row in rows:
        cells = (
            f"{value:,}" if isinstance(value, int | float) else str(value) for value in (row.get(name, "") for name in names)
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def plot(results: Sequence[Result], file: Path) -> None:
    """Draw each ratio as a part of what it may be, with its spread: short of the line is reached. Same results, same bytes."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "results"
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    drawn = [result for result in results if result.target]
    figure, axes = pyplot.subplots(figsize=(9, 0.9 + 0.36 * len(drawn)), layout="constrained")
    for place, result in enumerate(drawn):
        length, *spread = (_part(result, ratio) for ratio in (result.ratio, *(result.spread or ())))
        axes.barh(place, length, height=0.6, color="#2a7f62" if result.is_reached else "#b3402e")
        axes.plot(spread, [place] * len(spread), color="black", linewidth=1)
        axes.text(max(length, *spread, 1) + 0.02, place, f"{result.ratio:.3g}", va="center")
    axes.axvline(1, color="black", linewidth=2)
    axes.set_yticks(range(len(drawn)), [shorten(result.figure, 48, placeholder=" ...") for result in drawn])
    axes.invert_yaxis()
    axes.set_xlabel("share of what it may be (1: just reached), and the ratio itself")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, format="svg", metadata={"Date": None})
    pyplot.close(figure)


def _part(result: Result, ratio: float) -> float:
    assert result.target is not None
    return result.target / ratio if result.at_least else ratio / result.target

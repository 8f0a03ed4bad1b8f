"""A report as one HTML page, which needs no network and no script."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from importlib import resources
from typing import Final

import jinja2
from markupsafe import Markup, escape

from checkpoint_local.cli.printing import size_text
from checkpoint_local.report.collecting import AttemptReport, PartReport, Report
from checkpoint_local.report.drawing import draw, state_text
from checkpoint_protocol.printable import printable

#: In characters. Records have messages of 32,000, and names of files may be as long as one likes.
_MOST_OF_A_TEXT: Final = 1_000
_MOST_OF_A_MANIFEST: Final = 100_000
_NOT_IN_XML: Final = str.maketrans({"\ufffe": "\\ufffe", "\uffff": "\\uffff"})

_PHASES: Final[dict[str, str]] = {
    "Planning": "planning",
    "StartingSpark": "starting Spark",
    "RunningTasks": "running tasks",
    "AwaitingRows": "awaiting rows",
}

Mask = Callable[[str], str]


def render(report: Report, mask: Mask = lambda text: text) -> str:
    """Return the page. `mask` is asked for each text, whole; what it returns is cut if it is long, made printable and escaped."""

    def shown(value: object) -> object:
        """Return what stands in the page for a value of the template: numbers in groups of three digits, and no text as it is."""
        if isinstance(value, Markup):
            return value
        if isinstance(value, int):
            return f"{value:,}"
        return _cut(mask(str(value)), _MOST_OF_A_TEXT)

    def drawn(part: PartReport) -> Markup:
        return Markup(draw(part))  # noqa: S704  # ElementTree has escaped it

    def whole(text: str) -> Markup:
        return escape(_cut(mask(text), _MOST_OF_A_MANIFEST))

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=shown
    )
    environment.filters |= {
        "size": size_text,
        "time": _time,
        "whole": whole,
        "drawn": drawn,
        "state": state_text,
        "rate": _rate,
        "start": start_text,
    }
    template = resources.files("checkpoint_local.report").joinpath("page.html").read_text(encoding="utf-8")
    return environment.from_string(template).render(report=report)


def _cut(text: str, most: int) -> str:
    left = len(text) - most
    # Before it is made printable, so that no escape is cut.
    text = text[:most] + f"… ({left:,} characters more)" if left > 0 else text
    return printable(text).translate(_NOT_IN_XML)


def _time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def start_text(attempt: AttemptReport) -> str:
    """Say how long after its start the driver was in each phase, and when the first rows were sealed."""
    entered = (f"{_PHASES[one.phase]} after {one.after_ms / 1000:.1f} s" for one in attempt.entered if one.phase in _PHASES)
    said = ", ".join(entered)
    if attempt.began is None or not attempt.seals:
        return said
    return f"{said}; the first seal {(attempt.seals[0][0] - attempt.began).total_seconds():.1f} s after the launch record"


def _rate(rows_per_second: float | None) -> str:
    return "–" if rows_per_second is None else f"{rows_per_second:,.{0 if rows_per_second >= 10 else 1}f}"

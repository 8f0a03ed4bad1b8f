"""The timeline of a part of an epoch as SVG. Pure.

Positions in time are per cent of the width and texts have one size, so that a picture is readable at any width. Colours are
classes of the page's style.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import accumulate
from typing import Final
from xml.etree import ElementTree

from checkpoint_local.report.collecting import AttemptReport, PartReport
from checkpoint_protocol.manifest.quantities import counted

_ROW: Final = 44
_BAR_TOP: Final = 21
_BAR: Final = 14
_CHART: Final = 72
_AXIS: Final = 22
#: The curve has so many places from left to right; marks are as far apart as a hundred of them at the most.
_PLACES: Final = 1000
_PLACES_OF_MARKS: Final = 250
#: Wider ones would run out of the picture.
_RIGHT_FROM: Final = 60.0
_WORDS: Final = {
    "complete": "complete",
    "failed": "failed",
    "cut off": "cut off, without a word from its driver",
    "incomplete": "incomplete",
    "open": "open",
    "unknown": "it cannot be read how it ended",
}


def state_text(attempt: AttemptReport) -> str:
    """Return how an attempt ended in a few words."""
    failure = attempt.shown.failure
    return f"failed: {failure.reason}" if attempt.state == "failed" and failure is not None else _WORDS[attempt.state]


def draw(part: PartReport) -> str:
    """Return the timeline; empty where no attempt has a time."""
    drawn = [attempt for attempt in part.attempts if attempt.began is not None]
    if not drawn:
        return ""
    first, last = part.times[0], part.times[-1]
    scale = _Scale(first, max(1.0, (last - first).total_seconds()))
    counting = sorted(seal for attempt in drawn if attempt.counts for seal in attempt.seals)
    bars_end = _ROW * len(drawn)
    chart_end = bars_end + (_CHART if counting else 0)
    height = chart_end + _AXIS
    done = "result final" if part.title else "committed"
    label = f"{counted(len(drawn), 'attempt')} from {first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC"
    svg = ElementTree.Element(
        "svg", {"class": "timeline", "width": "100%", "height": str(height), "role": "img", "aria-label": label}
    )
    for row, attempt in enumerate(drawn):
        _draw_attempt(svg, attempt, row * _ROW, scale)
    if counting:
        _draw_rows(svg, counting, bars_end, scale)
    if part.committed is not None:
        x = scale.at(part.committed)
        _line(svg, "commit", x, x, 0, chart_end)
        _text(svg, x, chart_end - 4 if counting else 12, done, "end" if x > _RIGHT_FROM else "start", "commit-text")
    _line(svg, "axis", 0, 100, chart_end, chart_end)
    form = "%H:%M:%S" if first.date() == last.date() else "%m-%d %H:%M"
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        time = first + (last - first) * share
        _text(svg, 100 * share, chart_end + 16, time.strftime(form), anchor, "axis-text")
    return ElementTree.tostring(svg, encoding="unicode")


class _Scale:
    def __init__(self, first: datetime, seconds: float) -> None:
        self._first, self._seconds = first, seconds

    def at(self, time: datetime) -> float:
        """Return where a time lies, in per cent of the width."""
        return 100 * (time - self._first).total_seconds() / self._seconds


def _draw_attempt(svg: ElementTree.Element, attempt: AttemptReport, top: int, scale: _Scale) -> None:
    assert attempt.began is not None
    number = attempt.shown.attempt
    _text(svg, 0, top + 15, f"attempt {number}: {state_text(attempt)}", "start", "")
    begins = scale.at(attempt.began)
    ends = scale.at(attempt.last_sign or attempt.closed or attempt.began)
    style = attempt.state.replace(" ", "-")
    if attempt.closed is not None:
        # The driver was silent before it was given up.
        middle = top + _BAR_TOP + _BAR // 2
        _line(svg, f"silent {style}", ends, scale.at(attempt.closed), middle, middle)
    place = {"x": _percent(begins), "y": str(top + _BAR_TOP), "width": _percent(max(0.4, ends - begins)), "height": str(_BAR)}
    bar = ElementTree.SubElement(svg, "rect", {"class": f"bar {style}", "rx": "2", **place})
    ElementTree.SubElement(bar, "title").text = f"attempt {number}, {counted(len(attempt.seals), 'seal')}"
    marks = {int(scale.at(time) * _PLACES_OF_MARKS / 100) for time, _ in attempt.seals}
    for mark in sorted(marks):
        x = 100 * mark / _PLACES_OF_MARKS
        _line(svg, "seal", x, x, top + _BAR_TOP, top + _BAR_TOP + _BAR)


def _draw_rows(svg: ElementTree.Element, seals: Sequence[tuple[datetime, int]], top: int, scale: _Scale) -> None:
    """Draw the rows that are sealed, as a curve in steps: stretched to the width, with a line that is not."""
    totals = list(accumulate(rows for _, rows in seals))
    most = max(1, totals[-1])
    at = {round(scale.at(time) * _PLACES / 100): total for (time, _), total in zip(seals, totals, strict=True)}
    steps = "".join(f"H{place}V{100 - 100 * total / most:.1f}" for place, total in at.items())
    _text(svg, 0, top + 14, f"rows sealed: {totals[-1]:,}", "start", "")
    place = {"y": str(top + 20), "width": "100%", "height": str(_CHART - 22)}
    view = {"viewBox": f"0 0 {_PLACES} 100", "preserveAspectRatio": "none"}
    inner = ElementTree.SubElement(svg, "svg", {"x": "0", **place, **view})
    ElementTree.SubElement(inner, "path", {"class": "area", "d": f"M0,100{steps}H{_PLACES}V100Z"})
    ElementTree.SubElement(
        inner, "path", {"class": "curve", "d": f"M0,100{steps}H{_PLACES}", "vector-effect": "non-scaling-stroke"}
    )


def _line(svg: ElementTree.Element, style: str, x1: float, x2: float, y1: int, y2: int) -> None:
    place = {"x1": _percent(x1), "x2": _percent(x2), "y1": str(y1), "y2": str(y2)}
    ElementTree.SubElement(svg, "line", {"class": style, **place})


def _text(svg: ElementTree.Element, x: float, y: int, text: str, anchor: str, style: str) -> None:
    gap = {"start": "4", "end": "-4"}.get(anchor, "0") if 0 < x < 100 or style == "commit-text" else "0"
    place = {"x": _percent(x), "y": str(y), "text-anchor": anchor, "dx": gap}
    ElementTree.SubElement(svg, "text", {"class": style, **place} if style else place).text = text


def _percent(value: float) -> str:
    return f"{value:.2f}%"

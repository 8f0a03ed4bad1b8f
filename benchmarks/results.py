"""What came out, kept in one JSON file: a list, one entry a figure. A figure that is measured again replaces its entry."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from benchmarks.pairs import Ratio, Times, ratio_of

RESULTS = Path(__file__).parent / "results.json"


class Result(BaseModel):
    """One figure. `ratio` is ours / theirs; `target` is what it may be at the most (at the least, if `at_least`); None: any.

    `raw` keeps the single measurements, `seen` is what else was seen, in sentences; `outcomes` are rows for a table of what each
    side left. Fields that are not known here are kept: other benchmarks write entries of their own.
    """

    model_config = ConfigDict(extra="allow")

    figure: str
    about: str = ""
    ratio: float
    spread: tuple[float, float] | None = None
    target: float | None
    at_least: bool = False
    pairs: int = 1
    raw: dict[str, Any] = {}
    seen: list[str] = []
    outcomes: list[dict[str, str | int | float]] = []
    machine: dict[str, Any] = {}

    @property
    def is_reached(self) -> bool:
        if self.target is None:
            return True
        return self.ratio >= self.target if self.at_least else self.ratio <= self.target


def result_of(figure: str, about: str, times: Times, ours: str, theirs: str, target: float, **more: Any) -> Result:
    """Return the result of two of the sides that were run in turn; `raw` keeps the times of all."""
    return with_ratio(
        figure, about, ratio_of(times[ours], times[theirs]), target, len(times[ours]), raw={"seconds": times}, **more
    )


def with_ratio(figure: str, about: str, ratio: Ratio, target: float, pairs: int, **more: Any) -> Result:
    return Result(
        figure=figure,
        about=about,
        ratio=round(ratio.middle, 4),
        spread=(round(ratio.lowest, 4), round(ratio.highest, 4)),
        target=round(target, 4),
        pairs=pairs,
        **more,
    )


def read_results(path: Path = RESULTS) -> list[Result]:
    """Return the entries in the order of the file; none if there is no file."""
    return [Result.model_validate(entry) for entry in json.loads(path.read_text())] if path.exists() else []


def keep(result: Result, path: Path = RESULTS) -> None:
    """Put one result into the file, in the place of an earlier one of its name. What is there stays whole if we die here."""
    entries = read_results(path)
    places = [index for index, entry in enumerate(entries) if entry.figure == result.figure]
    if places:
        entries[places[0]] = result
    else:
        entries.append(result)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_suffix(".unfinished")
    written.write_text(json.dumps([entry.model_dump(mode="json", exclude_defaults=True) for entry in entries], indent=2) + "\n")
    os.replace(written, path)

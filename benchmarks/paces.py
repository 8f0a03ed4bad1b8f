"""The paced step as figures use it: its folder, its place in a manifest, and what its log tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

CODE: Final = Path(__file__).parent / "code"


def step(row_us: float, log: Path | None = None) -> dict[str, Any]:
    """Return the step of a manifest whose code.path is CODE (or that is run where CODE is on the import path)."""
    arguments: dict[str, Any] = {"row_us": row_us} | ({"log": str(log)} if log else {})
    return {"call": "paced:Paced", "input": "arrow", "arguments": arguments}


def rows_done(log: Path) -> int:
    """Return how many rows went through the step so far, in all processes."""
    return sum(int(rows) for _, kind, rows in _lines(log) if kind == "r")


def first_begin_after(log: Path, moment: float) -> float:
    """Return when (Unix seconds) the first process began after that moment."""
    return min(float(at) for at, kind, _ in _lines(log) if kind == "b" and float(at) >= moment)


def _lines(log: Path) -> list[tuple[str, str, str]]:
    text = log.read_text() if log.exists() else ""
    # The last line may be cut while it is written.
    return [(at, kind, rows) for line in text.splitlines() if len(parts := line.split()) == 3 for at, kind, rows in [parts]]

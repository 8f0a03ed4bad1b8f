"""Where a write puts its files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Output:
    """A folder that a write puts files into. `samples` are names such as they have, below it."""

    title: str
    uri: str
    samples: tuple[str, ...]

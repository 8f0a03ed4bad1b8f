"""Schemas of a registry that no columns can be made of: the error, and how large one may be. Nothing here knows an encoding."""

from __future__ import annotations

from typing import Final

#: Deeper ones are refused, before anything recurses into them without end.
DEEPEST: Final = 32
#: A type that several fields have is counted for each of them: a few lines could stand for more than memory holds.
MOST_TYPES: Final = 10_000


class NoColumn(ValueError):
    """A schema, or a part of one, whose values no column can have; the message begins with its path."""


def refuse_too_many(types: int, path: str) -> None:
    """NoColumn at the type that is one too many."""
    if types > MOST_TYPES:
        raise NoColumn(f"{path}: the schema is made of more than {MOST_TYPES:,} types")

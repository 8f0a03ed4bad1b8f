"""Where the rows of a batch lie, for messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Place:
    """Where the rows of a batch come from, for messages and keys: a file, the unit of its positions and the first position.

    `kept`: the batch's rows among those of the file that follow that position, where some were left out. `version`: the file's.
    `begins`: where each of the rows begins, of a file whose positions are bytes.
    """

    file: str
    unit: str
    start: int
    kept: pa.Array | None = None
    version: str = ""
    begins: Callable[[], Sequence[tuple[int, int]]] | None = None

    def identity_of(self, row: int) -> tuple[str | int, ...]:
        """Return what a row of the batch, counted from 0, is in every attempt: file, version and position."""
        if self.begins is not None and self.unit == "bytes":
            return (self.file, self.version, self.begins()[row][0])
        return (self.file, self.version, self.start + (row if self.kept is None else self.kept[row].as_py()))

    def of_row(self, row: int) -> str:
        """Name a row of the batch, counted from 0."""
        row = row if self.kept is None else self.kept[row].as_py()
        if self.unit == "bytes":
            return f"row {row} after byte {self.start} of {self.file}"
        return f"row {self.start + row} of {self.file}"

    def of_rows(self, count: int) -> str:
        if self.unit == "bytes":
            return f"the {count} rows after byte {self.start} of {self.file}"
        if self.kept is not None and count:
            # A step before may have made more rows of them.
            first, last = self.kept[0].as_py(), self.kept[min(count, len(self.kept)) - 1].as_py()
            return f"{count} of the rows {self.start + first} to {self.start + last} of {self.file}"
        return f"rows {self.start} to {self.start + count - 1} of {self.file}"

    def of_given(self, index: int, number: int | None) -> str:
        """Name a row that a step gets: a source row by its number, another as one of those that the steps before made."""
        if number is not None:
            return self.of_row(number)
        return f"row {index} of what the steps before made of a batch that begins at {self.of_row(0)}"

    def of_made(self, label: str, count: int) -> Callable[[int], str]:
        """Return what names a row that a step makes of so many rows."""
        return lambda row: f"row {row} of what step {label!r} makes of {self.of_rows(count)}"


@dataclass(frozen=True, slots=True)
class PlaceOfGroup(Place):
    """All rows of one key, which `name` tells."""

    name: str = field(kw_only=True)

    def of_row(self, row: int) -> str:
        return f"row {row} of {self.name}"

    def of_rows(self, count: int) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class PartPlace(Place):
    """Where the rows of a batch lie from the row `first` on."""

    whole: Place = field(kw_only=True)
    first: int = field(kw_only=True)

    def identity_of(self, row: int) -> tuple[str | int, ...]:
        return self.whole.identity_of(self.first + row)

    def of_row(self, row: int) -> str:
        return self.whole.of_row(self.first + row)

    def of_rows(self, count: int) -> str:
        return f"{count} rows from {self.of_row(0)} on" if self.first else self.whole.of_rows(count)


def part_of(whole: Place, first: int) -> Place:
    """Return where the rows lie from one on."""
    return PartPlace(whole.file, whole.unit, whole.start, whole=whole, first=first) if first else whole

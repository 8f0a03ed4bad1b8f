"""Which types the columns of CSV files have: taken once from samples, then fixed for the epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_formats.failures import unreadable
from checkpoint_formats.rows.type_names import parse_type
from checkpoint_protocol.rows.text_types import Inferred, TextColumn


@dataclass(frozen=True, slots=True)
class Sample:
    """The first rows of a file: the columns whose types are inferred as binaries.

    `line_of` gives the number of a row's line, from 1; None where a line's end may be inside a row, so that rows are counted.
    """

    path: str
    rows: pa.Table
    line_of: Callable[[int], int] | None

    def place_of(self, row: int) -> str:
        """Name the place of a row, which is counted from 0."""
        return f"row {row + 1}" if self.line_of is None else f"line {self.line_of(row)}"


def infer_columns(names: Iterable[str], samples: Iterable[Sample]) -> dict[str, Inferred]:
    """Return what the texts in the samples say of the types of these columns. Other columns of the samples are passed over."""
    columns = {name: TextColumn() for name in names}
    for sample in samples:
        for name in sample.rows.column_names:
            if name in columns:
                columns[name].add(_texts(sample.path, name, sample.rows.column(name)))
    return {name: column.infer() for name, column in columns.items()}


def infer_types(names: Iterable[str], samples: Iterable[Sample]) -> dict[str, pa.DataType]:
    """Return the types of these columns."""
    return {name: parse_type(name, inferred.type) for name, inferred in infer_columns(names, samples).items()}


def _texts(path: str, name: str, column: pa.ChunkedArray) -> Iterable[str]:
    try:
        texts: list[str] = pc.cast(pc.drop_null(pc.unique(column)), pa.string()).to_pylist()
    except pa.ArrowInvalid as error:
        raise unreadable(
            path, f"the column {name!r} has text that is not UTF-8", f"convert the file, or set source.files.types.{name}: binary"
        ) from error
    return texts

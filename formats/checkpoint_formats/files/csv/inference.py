"""Which types the columns of CSV files have: taken once from samples, then fixed for the epoch."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_formats.failures import unreadable
from checkpoint_formats.type_names import parse_type
from checkpoint_protocol.text_types import TextColumn


def infer_types(names: Iterable[str], samples: Iterable[tuple[str, pa.Table]]) -> dict[str, pa.DataType]:
    """Return the types of columns of which samples have the texts, as binaries, by the path of the file that each is from."""
    columns = {name: TextColumn() for name in names}
    for path, sample in samples:
        for name, column in columns.items():
            column.add(_texts(path, name, sample.column(name)))
    return {name: parse_type(name, column.infer().type) for name, column in columns.items()}


def _texts(path: str, name: str, column: pa.ChunkedArray) -> Iterable[str]:
    try:
        texts: list[str] = pc.cast(pc.drop_null(pc.unique(column)), pa.string()).to_pylist()
    except pa.ArrowInvalid as error:
        raise unreadable(
            path, f"the column {name!r} has text that is not UTF-8", f"convert the file, or set source.types.{name}: binary"
        ) from error
    return texts

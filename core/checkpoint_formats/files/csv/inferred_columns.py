"""Types of CSV columns that nobody has declared: inferred from samples, fixed for the epoch, checked in each later value.

A type that source.files.types gives is what the user wants, so there 007 is 7. Of an inferred int64 nobody knows more than that
the first rows had no such text: 007 is refused like any value that does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_formats.failures import unreadable
from checkpoint_formats.rows.type_names import parse_type
from checkpoint_protocol.rows.text_types import Inferred, TextColumn, TypeName, is_held

_NAMES: Final[Mapping[pa.DataType, TypeName]] = {
    pa.bool_(): "bool",
    pa.int64(): "int64",
    pa.decimal128(38, 0): "decimal(38,0)",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp[us]",
    pa.timestamp("ns"): "timestamp[ns]",
    pa.timestamp("us", "UTC"): "timestamp[us, UTC]",
    pa.timestamp("ns", "UTC"): "timestamp[ns, UTC]",
}
_PLAIN_NUMBER: Final = r"^(?:-?[1-9][0-9]*(?:\.[0-9]+)?|-?0\.[0-9]+|0)$"
_TIME_OF_UTC: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?:Z|\+00(?::?00)?)$"
_TIME: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?)?$"
#: Years that 64 bits of nanoseconds hold a part of only; the rules take none of their days.
_YEAR_HALF_IN_NANOSECONDS: Final = "^(?:1677|2262)-"
#: Arrow writes it so, and most others as -0.0.
_NEGATIVE_ZERO: Final = "-0"
_EXACT_DIGITS: Final = 15
_LONGEST_INTEGER: Final = 19
_NONE: Final = np.empty(0, np.int64)
_BYTES_OF_INTEGERS: Final = np.isin(np.arange(256), np.frombuffer(b"-0123456789", np.uint8))


class InferredColumns:
    """The columns of a source: `parsed` are the types for the parser, which gives those that were inferred as texts."""

    def __init__(self, schema: pa.Schema, given: Container[str]) -> None:
        """Take the schema of the epoch, and the columns whose types are given."""
        self._schema = schema
        self._inferred = {item.name for item in schema if item.name not in given and item.type in _NAMES}
        self.parsed = pa.schema([item.with_type(pa.string()) if item.name in self._inferred else item for item in schema])

    def read(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Return parsed columns as a batch. ArrowInvalid names a column, and a text that it cannot hold."""
        arrays = [
            _values(item.name, column, item.type) if item.name in self._inferred else column
            for item, column in zip(self._schema, columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _values(name: str, texts: pa.Array, kind: pa.DataType) -> pa.Array:
    type_name = _NAMES[kind]
    try:
        values, problem = pc.cast(texts, kind), None
        unsure = _unsure(texts, values, type_name)
    except pa.ArrowInvalid as error:
        unsure, problem = texts, error
    for text in pc.drop_null(pc.unique(unsure)).to_pylist():
        if not is_held(text, type_name):
            raise pa.ArrowInvalid(
                f"column {name!r}: {text[:200]!r} cannot be read as {type_name}, which the first rows are, and be written back"
            )
    if problem is not None:
        raise problem
    return values


# --- quick checks of whole columns ----------------------------------------------------------------------------------------


def _unsure(texts: pa.Array, values: pa.Array, kind: TypeName) -> pa.Array:
    """Return the texts that the quick check does not show to be held: the rules are applied to them one by one."""
    match kind:
        case "int64":
            return texts.slice(0, 0) if _are_integers(texts, values) else texts
        case "double":
            return _unsure_doubles(texts, values)
        case "date":  # of ten characters, no other text than yyyy-mm-dd can be cast
            return texts.filter(pc.not_equal(pc.binary_length(texts), 10))
        case "timestamp[us]":
            return texts.filter(pc.invert(pc.match_substring_regex(texts, _TIME)))
        case "timestamp[us, UTC]":
            return texts.filter(pc.invert(pc.match_substring_regex(texts, _TIME_OF_UTC)))
        case "timestamp[ns]" | "timestamp[ns, UTC]":
            pattern = _TIME if kind == "timestamp[ns]" else _TIME_OF_UTC
            is_plain = pc.match_substring_regex(texts, pattern)
            return texts.filter(pc.or_(pc.invert(is_plain), pc.match_substring_regex(texts, _YEAR_HALF_IN_NANOSECONDS)))
        case _:
            return texts


def _are_integers(texts: pa.Array, values: pa.Array) -> bool:
    """Whether no text is longer than its number: of digits and signs alone, none can be shorter."""
    if not _BYTES_OF_INTEGERS[_bytes(texts)].all():
        return False
    whole = pc.fill_null(values, 0)
    # Not to_numpy, which imports pandas.
    numbers = np.frombuffer(whole.buffers()[1], np.int64)[whole.offset : whole.offset + len(whole)] if len(whole) else _NONE
    length = len(numbers) - values.null_count + int(np.count_nonzero(numbers < 0))
    for digits in range(1, _LONGEST_INTEGER):
        more = int(np.count_nonzero(numbers >= 10**digits)) + int(np.count_nonzero(numbers <= -(10**digits)))
        length += more
        if not more:
            break
    return bool(length == (pc.sum(pc.binary_length(texts)).as_py() or 0))


def _unsure_doubles(texts: pa.Array, values: pa.Array) -> pa.Array:
    """Return those that are neither plain numbers of few digits nor plain and as the double is written."""
    is_plain = pc.match_substring_regex(texts, _PLAIN_NUMBER)
    is_short = pc.less_equal(pc.binary_length(texts), _EXACT_DIGITS)
    unsure = pc.invert(pc.and_(is_plain, is_short))
    texts, values = texts.filter(unsure), values.filter(unsure)
    # Large ones are written with an exponent, by which whole numbers beyond 2^53 do not slip through.
    is_written_otherwise = pc.not_equal(pc.cast(values, pa.string()), texts)
    return texts.filter(pc.or_(is_written_otherwise, pc.equal(texts, _NEGATIVE_ZERO)))


def _bytes(texts: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return the bytes of all texts, one after another."""
    _, offsets, data = texts.buffers()
    if data is None or len(texts) == 0:
        return np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return cast("np.ndarray[tuple[int], np.dtype[np.uint8]]", np.frombuffer(data, np.uint8)[ends[0] : ends[-1]])


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

"""The types that a run would read JSON fields as, each with a value that has it; by the drivers' reader, of the first rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from checkpoint_formats.files.json.numbers import written_lines
from checkpoint_formats.files.json.reader import JsonReader
from checkpoint_formats.files.lines import Lines
from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_operator.validation.report import ColumnType, Findings
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest import Source

_MOST_SHOWN: Final = 60


def infer_fields(
    files: SourceFiles, source: Source, found: Sequence[FoundFile], findings: Findings, *, sets_apart: bool
) -> tuple[ColumnType, ...]:
    """Return the columns that are read; none, with a note, where the first rows cannot be."""
    try:
        reader = JsonReader(source, files, sets_apart=sets_apart)
        described, schema = reader.describe([file.path for file in found])
        samples = reader.samples(described)
    except CheckpointError as error:
        findings.note(f"the types of the columns cannot be told, since the first rows cannot be read: {error.message}")
        return ()
    return tuple(
        ColumnType(column=field.name, type=source.types[field.name].strip(), inferred=False, why="spec.source.types says so")
        if field.name in source.types
        else ColumnType(column=field.name, type=str(field.type), inferred=True, why=_why(field, samples))
        for field in schema
    )


def _why(field: pa.Field, samples: Sequence[tuple[str, Lines]]) -> str:
    found = next(((value, place) for value, place in _values(field.name, samples) if _has_type(value, field.type)), None)
    if found is None:
        return "it is NULL in all of the first rows" if field.type == pa.string() else "the first rows have such values"
    value, place = found
    text = json.dumps(value, ensure_ascii=False, default=str) if not isinstance(value, Decimal) else str(value)
    return f"{text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + '...'} in {place} has this type"


def _values(name: str, samples: Sequence[tuple[str, Lines]]) -> Iterator[tuple[Any, str]]:
    for path, lines in samples:
        for number, row in written_lines(lines):
            if row.get(name) is not None:
                yield row[name], f"line {number}" + (f" of {path}" if len(samples) > 1 else "")


def _has_type(value: Any, kind: pa.DataType) -> bool:
    """Whether a value has this type by itself: of numbers, 1 is not yet a double, and not each object has all fields."""
    if pa.types.is_boolean(kind):
        return isinstance(value, bool)
    if pa.types.is_integer(kind):
        return isinstance(value, int) and not isinstance(value, bool)
    if pa.types.is_floating(kind):
        return isinstance(value, Decimal)
    if pa.types.is_decimal(kind):
        return isinstance(value, int) and abs(value) > 1 << 53
    if pa.types.is_struct(kind):
        return isinstance(value, dict) and value.keys() == {field.name for field in kind}
    if pa.types.is_list(kind):
        return isinstance(value, list) and any(_has_type(inner, kind.value_type) for inner in value)
    return isinstance(value, str)

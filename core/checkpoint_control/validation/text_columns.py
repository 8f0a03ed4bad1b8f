"""The types that a run would read columns of text as, by the readers of a run, each with what decided it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_control.validation.report import ColumnType
from checkpoint_formats.files.csv.inferred_columns import Sample, infer_columns
from checkpoint_formats.files.csv.reader import CsvReader
from checkpoint_formats.files.json.reader import JsonReader
from checkpoint_formats.files.json.written_values import written_lines
from checkpoint_formats.files.lines import Lines
from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.partition_folders import folders_of, infer_folders
from checkpoint_formats.files.partitioned import PartitionedReader
from checkpoint_formats.port import Described, FileReader
from checkpoint_protocol.manifest.sources.source import WORDS_FOR_NULL, FilesSource
from checkpoint_protocol.rows.text_types import Inferred

_MOST_FIELDS_SHOWN: Final = 60
_MOST_FIELDS: Final = 8
_NULL: Final = "NULL in all of the first rows"
_SUCH_VALUES: Final = "the first rows have such values"

#: The names of fields, each within the one before. Lists have none: their values are those of their field.
_Path = tuple[str, ...]


def infer_fields(source: FilesSource, described: Described, samples: Sequence[tuple[str, Lines]]) -> tuple[ColumnType, ...]:
    """Return the columns that are read, with values of the samples that have their types."""
    told = _first_values([field for field in described.schema if field.name not in source.types], samples)
    return tuple(
        ColumnType(column=field.name, type=source.types[field.name].strip(), inferred=False, why="source.files.types says so")
        if field.name in source.types
        else ColumnType(column=field.name, type=str(field.type), inferred=True, why=_why_text(field, told))
        for field in described.schema
    )


def _why_text(field: pa.Field, told: Mapping[_Path, str]) -> str:
    """Name a value that has the type; where no single one has, because fields lie in it, one for each of these."""
    if (value := told.get((field.name,))) is not None:
        return f"{value} has this type"
    inner = [(path, kind) for path, kind in _fields_in((field.name,), field.type) if not _has_fields(kind)]
    if not inner or inner[0][0] == (field.name,):
        return f"it is {_NULL}" if field.type == pa.string() else _SUCH_VALUES
    shown = [
        f"{'.'.join(path)}: {told.get(path) or (_NULL if kind == pa.string() else _SUCH_VALUES)}"
        for path, kind in inner[:_MOST_FIELDS]
    ]
    more = [f"and {len(inner) - _MOST_FIELDS:,} more fields"] if len(inner) > _MOST_FIELDS else []
    return "; ".join(shown + more)


def _first_values(columns: Sequence[pa.Field], samples: Sequence[tuple[str, Lines]]) -> dict[_Path, str]:
    """Return the first value, with its place, that has the type of each column, and of each field in one, by itself."""
    missing = dict(path_and_kind for column in columns for path_and_kind in _fields_in((column.name,), column.type))
    told: dict[_Path, str] = {}
    for file, lines in samples:
        for number, row in written_lines(lines):
            for path in list(missing):
                value = next((value for value in _values_at(row, path) if _has_type(value, missing[path])), None)
                if value is not None:
                    told[path] = f"{_shown(value)} in line {number}" + (f" of {file}" if len(samples) > 1 else "")
                    del missing[path]
            if not missing:
                return told
    return told


def _fields_in(path: _Path, kind: pa.DataType) -> Iterator[tuple[_Path, pa.DataType]]:
    """Give a field, and those that lie in it at any depth, with their types."""
    yield path, kind
    while pa.types.is_list(kind):
        kind = kind.value_type
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _fields_in((*path, field.name), field.type)


def _values_at(value: Any, path: _Path) -> Iterator[Any]:
    """Give the values of a field: of one in a list, each."""
    if not path:
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from _values_at(inner, path)
    elif isinstance(value, dict):
        yield from _values_at(value.get(path[0]), path[1:])


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
        return (
            isinstance(value, dict)
            and value.keys() == {field.name for field in kind}
            and all(_has_type(value[field.name], field.type) for field in kind)
        )
    if pa.types.is_list(kind):
        return isinstance(value, list) and any(_has_type(inner, kind.value_type) for inner in value)
    return isinstance(value, str)


def _has_fields(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind) or (pa.types.is_list(kind) and _has_fields(kind.value_type)))


def _shown(value: Any) -> str:
    text = str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False, default=float)
    return text if len(text) <= _MOST_FIELDS_SHOWN else f"{text[:_MOST_FIELDS_SHOWN]}..."


_MOST_SHOWN: Final = 60


def read_columns(
    source: FilesSource, reader: FileReader, found: Sequence[FoundFile], described: Described
) -> tuple[ColumnType, ...]:
    """Return the columns of text that are read, those of folders too; none of a format that has types of its own."""
    if isinstance(reader, PartitionedReader):
        paths = [file.path for file in found]
        keys = [key for key in folders_of(paths[0]) if key in described.schema.names]
        own = replace(described, schema=pa.schema([field for field in described.schema if field.name not in keys]))
        return (*read_columns(source, reader.inner_of(found[0]), found, own), *_of_folders(source, keys, paths))
    if isinstance(reader, JsonReader):
        return infer_fields(source, described, reader.samples(described.files))
    if not isinstance(reader, CsvReader):
        return ()
    names = described.schema.names
    samples = reader.samples(found, names)
    inferred = infer_columns([name for name in names if name not in source.types], samples)
    return tuple(
        ColumnType(column=name, type=source.types[name].strip(), inferred=False, why="source.files.types says so")
        if name in source.types
        else ColumnType(column=name, type=inferred[name].type, inferred=True, why=_why(name, inferred[name], samples))
        for name in names
    )


def _of_folders(source: FilesSource, keys: Sequence[str], paths: Sequence[str]) -> Iterator[ColumnType]:
    for key, inferred in infer_folders(keys, paths).items():
        if key in source.types:
            yield ColumnType(column=key, type=source.types[key].strip(), inferred=False, why="source.files.types says so")
        else:
            why = "every folder means NULL" if inferred.text is None else f"the folder {key}={inferred.text} {inferred.why}"
            yield ColumnType(column=key, type=inferred.type, inferred=True, why=why)


def _why(name: str, inferred: Inferred, samples: Sequence[Sample]) -> str:
    if inferred.text is None:
        return f"it {inferred.why}"
    hint = "; where it means NULL, name it in source.files.csv.nullValues" if inferred.text in WORDS_FOR_NULL else ""
    text = inferred.text if len(inferred.text) <= _MOST_SHOWN else f"{inferred.text[:_MOST_SHOWN]}..."
    return f"{text!r} in {next(_places(name, inferred.text, samples))} {inferred.why}{hint}"


def _places(name: str, text: str, samples: Sequence[Sample]) -> Iterator[str]:
    for sample in samples:
        if name not in sample.rows.column_names:
            continue
        row = pc.index(sample.rows.column(name), pa.scalar(text.encode(), pa.binary())).as_py()
        if row >= 0:
            yield sample.place_of(row) + (f" of {sample.path}" if len(samples) > 1 else "")

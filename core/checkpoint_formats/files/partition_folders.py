"""Folders `key=value` of a path as columns, as Hive, Spark, DuckDB and polars lay out and read partitioned data. Pure.

All such folders on the path of a file count. Values are percent-decoded, as Spark encodes what no path may hold, and NULL where
Hive's name for it stands; their types are those that a CSV file with these texts would have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.csv

from checkpoint_formats.failures import unreadable
from checkpoint_formats.files.csv.inferred_columns import InferredColumns
from checkpoint_formats.rows.type_names import parse_type
from checkpoint_protocol.places.source_paths import locate
from checkpoint_protocol.rows.text_types import Inferred, TextColumn

#: The value of a folder whose rows have NULL.
HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"

#: The texts of a file's folders by their keys, in the order of the path.
Folders = Mapping[str, str | None]


def folders_of(path: str) -> Folders:
    """Return the keys and values on a path. NeedsChange(SourceUnreadable) for a key that is there twice, or no UTF-8."""
    found: dict[str, str | None] = {}
    if "=" not in path:
        return found
    for folder in locate(path).key.split("/")[:-1]:
        key, mark, value = folder.partition("=")
        if not key or not mark:
            continue
        try:
            key, text = unquote(key, errors="strict"), unquote(value, errors="strict")
        except UnicodeDecodeError as error:
            raise unreadable(path, f"the folder {folder!r} is not UTF-8: {error}", _IGNORE) from error
        if key in found:
            raise unreadable(path, f"two of its folders are called {key}=", _IGNORE)
        found[key] = None if value in ("", HIVE_NULL) else text
    return found


def keys_of(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the keys that all paths have. NeedsChange(SourceUnreadable) names two files whose folders have other keys."""
    first: tuple[str, tuple[str, ...]] | None = None
    for path in paths:
        keys = tuple(folders_of(path))
        if first is None:
            first = (path, keys)
        elif keys != first[1]:
            other, its = first
            raise unreadable(path, f"it lies in {_said(keys)}, and {other} in {_said(its)}", _MOVE)
    return () if first is None else first[1]


def infer_folders(keys: Iterable[str], paths: Iterable[str]) -> dict[str, Inferred]:
    """Return what the values of these keys say of their types, by the rules of CSV."""
    columns = {key: TextColumn() for key in keys}
    seen: dict[str, set[str]] = {key: set() for key in columns}
    for path in paths:
        for key, text in folders_of(path).items():
            if key in columns and text is not None and text not in seen[key]:
                seen[key].add(text)
                columns[key].add([text])
    return {key: column.infer() for key, column in columns.items()}


@dataclass(frozen=True, slots=True)
class PartitionColumns:
    """The columns that folders give. `given`: the types that source.files.types names; the others are inferred."""

    given: Mapping[str, str]

    def schema(self, keys: Sequence[str], paths: Sequence[str]) -> pa.Schema:
        inferred = infer_folders([key for key in keys if key not in self.given], paths)
        return pa.schema([(key, parse_type(key, self.given.get(key) or inferred[key].type)) for key in keys])

    def row(self, path: str, schema: pa.Schema) -> pa.RecordBatch:
        """Return the values of a file's folders, as one row. NeedsChange(SourceUnreadable) where one does not fit its type."""
        folders = folders_of(path)
        columns = InferredColumns(schema, self.given)
        try:
            return columns.read([_value(folders[field.name], field) for field in columns.parsed])
        except (pa.ArrowException, ValueError) as error:
            raise unreadable(path, f"its folders: {error}", _TYPE) from error


def _value(text: str | None, field: pa.Field) -> pa.Array:
    """Return a text as a value, read as CSV reads it."""
    if text is None:
        return pa.nulls(1, field.type)
    quoted = '"' + text.replace('"', '""') + '"\n'
    table = pa.csv.read_csv(
        pa.py_buffer(quoted.encode()),
        pa.csv.ReadOptions(use_threads=False, column_names=[field.name]),
        pa.csv.ParseOptions(newlines_in_values=True),
        pa.csv.ConvertOptions(column_types={field.name: field.type}, quoted_strings_can_be_null=False),
    )
    return table.column(0).combine_chunks()


def _said(keys: Sequence[str]) -> str:
    return "folders " + "/".join(f"{key}=" for key in keys) if keys else "no folder key=value"


_IGNORE: Final = "rename the folder, or set source.files.partitions: Ignore if folders are no columns"
_MOVE: Final = "move one of them, or set source.files.partitions: Ignore if their folders are no columns"
_TYPE: Final = "give the column a type that holds all its values by source.files.types, or rename the folder"

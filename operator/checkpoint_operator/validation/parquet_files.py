"""Parquet files by their footers: columns and row counts, without reading rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_operator.validation.looks import MOST_FILES, Look, say_of_files, types_of
from checkpoint_operator.validation.report import Findings
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.parallel import in_threads
from checkpoint_protocol.store import translate_store_error

_WAY_OUT: Final = "replace or remove it, or let the path match the Parquet files only (folder/*.parquet)"


@dataclass(frozen=True, slots=True)
class _Footer:
    rows: int
    schema: Any


def look_at_parquet(listing: SourceFiles, files: Sequence[FoundFile], findings: Findings) -> Look:
    """Read footers; a problem for each file that is not Parquet, or has other columns than the first."""
    footers = in_threads(lambda file: _footer(listing, file), files[:MOST_FILES])
    first: tuple[FoundFile, _Footer] | None = None
    wrong: list[str] = []
    for file, footer in zip(files, footers, strict=False):
        if isinstance(footer, str):
            wrong.append(footer)
        elif (problem := _compare(first or (file, footer), file, footer)) is not None:
            wrong.append(problem)
        if first is None and isinstance(footer, _Footer):
            first = (file, footer)
    say_of_files(wrong, findings)
    rows = {file.path: footer.rows for file, footer in zip(files, footers, strict=False) if isinstance(footer, _Footer)}
    return Look(
        columns=tuple(first[1].schema.names) if first else None,
        empty=frozenset(path for path, count in rows.items() if count == 0),
        rows=sum(rows.values()) if len(rows) == len(files) else None,
        types=types_of(first[1].schema) if first else None,
        schema=first[1].schema if first else None,
    )


def _footer(files: SourceFiles, file: FoundFile) -> _Footer | str:
    try:
        with files.open_arrow(file.path) as opened:
            parquet = pq.ParquetFile(opened, coerce_int96_timestamp_unit="us")  # as a run reads them
            return _Footer(parquet.metadata.num_rows, parquet.schema_arrow)
    except CheckpointError as error:
        return error.message
    except pa.ArrowException as error:
        return f"the file {file.path} cannot be read as Parquet: {' '.join(str(error).split())[:300]}; {_WAY_OUT}"
    except OSError as error:
        return translate_store_error(error, file.path).message


def _compare(first: tuple[FoundFile, _Footer], file: FoundFile, footer: _Footer) -> str | None:
    names = footer.schema.names
    if twice := next((name for name in names if names.count(name) > 1), None):
        return f"the file {file.path} has two columns {twice!r}; rename one of them"
    if (difference := _difference(first[1].schema, footer.schema)) is None:
        return None
    return (
        f"the file {file.path} {difference} {first[0].path}; all files of a write must have the same columns: rewrite one of "
        "them, leave the column out by source.columns, or use one write for each kind"
    )


def _difference(expected: Any, found: Any) -> str | None:
    """Return how a file differs. Of types only those are compared that are read as they are: text has several forms."""
    for name in dict.fromkeys((*expected.names, *found.names)):
        if name not in found.names:
            return f"has no column {name!r}, unlike"
        if name not in expected.names:
            return f"has a column {name!r}, unlike"
        here, there = found.field(name).type, expected.field(name).type
        if here != there and _is_read_as_it_is(here) and _is_read_as_it_is(there):
            return f"has {here} in the column {name!r} where {there} is in"
    return None


def _is_read_as_it_is(kind: Any) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind))

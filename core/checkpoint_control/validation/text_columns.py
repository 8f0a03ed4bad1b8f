"""The types that a run would read the columns of text as, each with what decided it: by the drivers' own readers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_control.validation.json_columns import infer_fields
from checkpoint_control.validation.report import ColumnType
from checkpoint_formats.files.csv.inference import Sample, infer_columns
from checkpoint_formats.files.csv.reader import CsvReader
from checkpoint_formats.files.json.reader import JsonReader
from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.partition_folders import folders_of, infer_folders
from checkpoint_formats.files.partitioned import PartitionedReader
from checkpoint_formats.port import Described, FileReader
from checkpoint_protocol.manifest.sources.source import WORDS_FOR_NULL, FilesSource
from checkpoint_protocol.rows.text_types import Inferred

_MOST_SHOWN: Final = 60


def read_columns(
    source: FilesSource, reader: FileReader, found: Sequence[FoundFile], described: Described
) -> tuple[ColumnType, ...]:
    """Return the columns of text that are read, those of folders too; none of a format that has types of its own."""
    if isinstance(reader, PartitionedReader):
        paths = [file.path for file in found]
        keys = [key for key in folders_of(paths[0]) if key in described.schema.names]
        own = replace(described, schema=pa.schema([field for field in described.schema if field.name not in keys]))
        return (*read_columns(source, reader.of_format(paths[0]), found, own), *_of_folders(source, keys, paths))
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

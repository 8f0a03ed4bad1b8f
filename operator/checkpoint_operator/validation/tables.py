"""Source tables as a run would find them: columns with their Arrow types, files or fragments, rows. No data file is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from checkpoint_operator.catalogs.sqlite_files import sqlite_file
from checkpoint_operator.validation.report import Findings
from checkpoint_protocol.errors import CheckpointError, one_line
from checkpoint_protocol.manifest.sources.source import IcebergSource, LanceSource
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import SourceFile


@dataclass(frozen=True, slots=True)
class TableSeen:
    """A table at the snapshot or version that is meant. `rows` is None where deletes make it unsure."""

    title: str
    files: tuple[SourceFile, ...]
    rows: int | None
    schema: Any


def examine_iceberg(source: IcebergSource, path: str, settings: Settings, findings: Findings) -> TableSeen | None:
    """Examine a source table, which stands at `path` in the manifest; None, with a problem, if it cannot be read."""
    entry = settings.catalogs.get(source.catalog)
    if entry is not None and (file := sqlite_file(entry.uri)) is not None and not file.exists():
        # Opening it would make it.
        findings.problem(f"{path}.catalog", f"the file of the catalog {source.catalog!r} does not exist, so it has no tables")
        return None
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.schema import Schema

    from checkpoint_operator.catalogs.source_tables import describe, load_source

    try:
        table = load_source(source, settings)
        pinned = describe(source, table)
    except CheckpointError as error:
        findings.error(path, error)
        return None
    schema = schema_to_pyarrow(Schema.model_validate_json(pinned.table_schema_json), include_field_ids=False)
    if pinned.snapshot_id is None:
        return TableSeen(pinned.table, (), 0, schema)
    try:
        tasks = list(table.scan(snapshot_id=pinned.snapshot_id).plan_files())
    except Exception as error:
        # Equality deletes, a manifest that is gone, a store that does not answer: a run would say it too.
        findings.problem(path, f"snapshot {pinned.snapshot_id} of {pinned.table} cannot be read: {one_line(error, 300)}")
        return TableSeen(pinned.table, (), None, schema)
    if other := next((task.file for task in tasks if task.file.file_format.value != "PARQUET"), None):
        findings.problem(path, f"{pinned.table} has the file {other.file_path}, and only Parquet files are read")
    files = tuple(_described(task.file.file_path, task.file.file_size_in_bytes, task.file.record_count) for task in tasks)
    has_deletes = any(task.delete_files for task in tasks)
    return TableSeen(pinned.table, files, None if has_deletes else sum(task.file.record_count for task in tasks), schema)


def examine_lance(source: LanceSource, path: str, settings: Settings, findings: Findings) -> TableSeen | None:
    """Examine a source dataset, which stands at `path` in the manifest; None, with a problem, if it cannot be read."""
    from checkpoint_formats.lance.datasets import open_dataset

    uri = source.uri.rstrip("/")
    try:
        dataset = open_dataset(uri, settings, source.version)
    except CheckpointError as error:
        findings.error(f"{path}.uri", error)
        return None
    if dataset is None:
        which = "there is no Lance dataset" if source.version is None else f"there is no version {source.version} (any more)"
        findings.problem(path, f"{which} at {uri}; correct it")
        return None
    files = tuple(
        _described(f"{uri} fragment {fragment.fragment_id}", _size_bytes(fragment), fragment.physical_rows)
        for fragment in dataset.get_fragments()
    )
    return TableSeen(f"the Lance dataset {uri}", files, dataset.count_rows(), dataset.schema)


def _described(path: str, size_bytes: int, rows: int) -> SourceFile:
    return SourceFile(path=path, etag="", size_bytes=size_bytes, unit="rows", end=rows)


def _size_bytes(fragment: Any) -> int:
    return sum(file["file_size_bytes"] or 0 for file in fragment.metadata.to_json()["files"])

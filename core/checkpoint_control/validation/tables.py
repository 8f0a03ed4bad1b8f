"""Source tables as a run would find them, by the planner of a run: columns, files or fragments, rows. No data file is opened."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_commit.catalogs.sqlite_files import sqlite_file
from checkpoint_control.validation.report import Findings
from checkpoint_formats.port import Described
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.sources.source import IcebergSource, LanceSource
from checkpoint_protocol.places.settings import Settings

#: No epoch was before, so that nothing can have been replaced.
_ON_REPLACED = "Fail"


@dataclass(frozen=True, slots=True)
class TableSeen:
    """A table at the snapshot or version that is meant. `rows` is None where deletes make it unsure."""

    described: Described
    rows: int | None


def examine_iceberg(source: IcebergSource, path: str, settings: Settings, findings: Findings) -> TableSeen | None:
    """Examine a source table, which stands at `path` in the manifest; None, with a problem, if it cannot be read."""
    entry = settings.catalogs.get(source.catalog)
    if entry is not None and (file := sqlite_file(entry.uri)) is not None and not file.exists():
        # Opening it would make it.
        findings.problem(f"{path}.catalog", f"the file of the catalog {source.catalog!r} does not exist, so it has no tables")
        return None
    from checkpoint_commit.catalogs.source_tables import describe, load_source
    from checkpoint_formats.iceberg.plan import described, find_files

    try:
        table = describe(source, load_source(source, settings))
    except CheckpointError as error:
        findings.error(path, error)
        return None
    try:
        files = find_files(table, None, settings, None, _ON_REPLACED)
    except CheckpointError as error:
        findings.error(path, error)
        return TableSeen(described(table, (), None), None)
    has_deletes = any(file.iceberg is not None and file.iceberg.deletes for file in files)
    return TableSeen(described(table, files, None), None if has_deletes else sum(file.end or 0 for file in files))


def examine_lance(source: LanceSource, path: str, settings: Settings, findings: Findings) -> TableSeen | None:
    """Examine a source dataset, which stands at `path` in the manifest; None, with a problem, if it cannot be read."""
    from checkpoint_formats.lance.datasets import open_dataset
    from checkpoint_formats.lance.reader import find_fragments

    try:
        found, table = find_fragments(source, None, settings, (), _ON_REPLACED)
        dataset = open_dataset(table.uri, settings, table.at_version)
    except CheckpointError as error:
        findings.error(f"{path}.uri", error)
        return None
    return TableSeen(found, dataset.count_rows() if dataset is not None else None)

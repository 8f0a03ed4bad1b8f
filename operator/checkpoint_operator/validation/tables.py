"""Source tables as a run would find them: columns with their Arrow types, files or fragments, rows. No data file is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from checkpoint_formats.files.locations import FoundFile
from checkpoint_operator.validation.looks import types_of
from checkpoint_operator.validation.report import Findings
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Retryable
from checkpoint_protocol.manifest import IcebergSource, LanceSource, Source
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.storage import lance_options

_SQLITE: Final = "sqlite:///"


@dataclass(frozen=True, slots=True)
class TableLook:
    """A table at the snapshot or version that is meant. `rows` is None where deletes make it unsure."""

    types: Mapping[str, str]
    files: tuple[FoundFile, ...]
    rows: int | None
    schema: Any


def look_at_table(source: Source, settings: Settings, findings: Findings) -> TableLook | None:
    """Look at the source table; None, with a problem, if it cannot be read."""
    if source.iceberg is not None:
        return _look_at_iceberg(source.iceberg, settings, findings)
    assert source.lance is not None
    return _look_at_lance(source.lance, settings, findings)


def _look_at_iceberg(source: IcebergSource, settings: Settings, findings: Findings) -> TableLook | None:
    path = "spec.source.iceberg"
    entry = settings.catalogs.get(source.catalog)
    if entry is not None and entry.uri.startswith(_SQLITE) and not Path(entry.uri.removeprefix(_SQLITE)).exists():
        # Opening it would make it.
        findings.problem(f"{path}.catalog", f"the file of the catalog {source.catalog!r} does not exist, so it has no tables")
        return None
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.schema import Schema

    from checkpoint_operator.source_tables import describe, load_source

    try:
        table = load_source(source, settings)
        pinned = describe(source, table)
    except CheckpointError as error:
        findings.error(path, error)
        return None
    schema = schema_to_pyarrow(Schema.model_validate_json(pinned.table_schema_json), include_field_ids=False)
    types = {field.name: str(field.type) for field in schema}
    if pinned.snapshot_id is None:
        return TableLook(types, (), 0, schema)
    try:
        tasks = list(table.scan(snapshot_id=pinned.snapshot_id).plan_files())
    except Exception as error:
        # Equality deletes, a manifest that is gone, a store that does not answer: a run would say it too.
        findings.problem(
            path, f"snapshot {pinned.snapshot_id} of {pinned.table} cannot be read: {' '.join(str(error).split())[:300]}"
        )
        return TableLook(types, (), None, schema)
    if other := next((task.file for task in tasks if task.file.file_format.value != "PARQUET"), None):
        findings.problem(path, f"{pinned.table} has the file {other.file_path}, and only Parquet files are read")
    files = tuple(FoundFile(task.file.file_path, "", task.file.file_size_in_bytes, "") for task in tasks)
    has_deletes = any(task.delete_files for task in tasks)
    return TableLook(types, files, None if has_deletes else sum(task.file.record_count for task in tasks), schema)


def _look_at_lance(source: LanceSource, settings: Settings, findings: Findings) -> TableLook | None:
    import lance

    uri = source.uri.rstrip("/")
    try:
        dataset = lance.dataset(uri, version=source.version, storage_options=lance_options(uri, settings) or None)
    except CheckpointError as error:
        findings.error("spec.source.lance.uri", error)
        return None
    except (ValueError, OSError) as error:
        text = " ".join(str(error).split())[:400]
        if "not found" in text.lower():
            which = "there is no Lance dataset" if source.version is None else f"there is no version {source.version} (any more)"
            findings.problem("spec.source.lance", f"{which} at {uri}; correct it")
        else:
            trouble = f"the Lance dataset {uri} cannot be opened: {text}; check {settings.place.name('storage')}"
            findings.error("spec.source.lance.uri", Retryable(reasons.STORE_UNAVAILABLE, trouble))
        return None
    files = tuple(
        FoundFile(f"{uri} fragment {fragment.fragment_id}", "", _size_bytes(fragment), "") for fragment in dataset.get_fragments()
    )
    return TableLook(types_of(dataset.schema), files, dataset.count_rows(), dataset.schema)


def _size_bytes(fragment: Any) -> int:
    return sum(file["file_size_bytes"] or 0 for file in fragment.metadata.to_json()["files"])

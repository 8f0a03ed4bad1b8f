"""Data files of an Iceberg table that merges have written anew without the rows that go (copy-on-write), and their entries.

What is written anew is a data file as it was read, with the deletes that it had then. Where others have deleted rows of it since,
these rows would come back: it is out of date then, and the file is to be merged again.

Source of the rules: the Iceberg table specification (scan planning: which delete files apply to a data file), as pyiceberg
implements them for position deletes.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
)
from pyiceberg.table.delete_file_index import DeleteFileIndex
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record as PartitionRecord

from checkpoint_commit.iceberg.changes.append import OwnFiles
from checkpoint_commit.iceberg.changes.change import TableVersion
from checkpoint_commit.iceberg.metadata.checks import FileChecks
from checkpoint_commit.outcomes import Rejected
from checkpoint_formats.iceberg.manifests_3 import first_row_id_of_file
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.records import IcebergFile, IcebergRewrite
from checkpoint_protocol.store.parts import Input

#: Of a FieldMetrics, after the field id, with what makes the values of a manifest of those of a record.
_METRICS: Final[tuple[tuple[str, Callable[[Any], Any]], ...]] = (
    ("column_sizes", int),
    ("value_counts", int),
    ("null_value_counts", int),
    ("nan_value_counts", int),
    ("lower_bounds", base64.b64decode),
    ("upper_bounds", base64.b64decode),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a data file lies among the partitions. Deletes of its rows, and files that take its place, lie there, too."""

    spec_id: int
    partition: PartitionRecord


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What takes the place of one data file.

    `deletes`: the delete files that it had when it was read; `first_row_id`: the id of its first row, if its rows had ids then.
    """

    data_file: str
    files: tuple[IcebergFile, ...]
    deletes: frozenset[str]
    first_row_id: int | None = None


def rewritten_in(stage: str, record: Input, found: Iterable[IcebergRewrite]) -> dict[str, Rewritten]:
    """Return what the seals of a merge name, by the data files. NeedsChange where it cannot be so: rows would be lost."""
    by_file: dict[str, list[IcebergRewrite]] = defaultdict(list)
    for each in found:
        by_file[each.data_file].append(each)
    made: dict[str, Rewritten] = {}
    for file in record.files if by_file else ():
        if (parts := by_file.pop(file.path, None)) is None:
            continue
        assert file.iceberg is not None
        deletes = frozenset(delete.path for delete in file.iceberg.deletes)
        rows, end = sum(part.rows for part in parts), file.end or 0
        kept = any(sum(one.rows for one in part.files) > part.rows for part in parts)
        if kept or rows > end or (rows < end and not deletes):
            raise _refused(
                f"the seals of the stage {stage} do not take the place of {file.path}: they say {rows} of its {end} rows"
            )
        files = tuple(one for part in parts for one in part.files)
        made[file.path] = Rewritten(file.path, files, deletes, file.iceberg.first_row_id)
    for path in by_file:
        raise _refused(f"a seal of the stage {stage} takes the place of {path}, which it was not to read")
    return made


def _refused(what: str) -> NeedsChange:
    return NeedsChange(reasons.STAGED_RESULT_REFUSED, what)


def find_outdated(version: TableVersion, rewritten: Mapping[str, Rewritten]) -> str | None:
    """Say which data file of the table has other deletes, or ids of rows, than when it was written anew; None if none has.

    NeedsChange(TableUnsupported) where equality deletes apply to one: rows that they delete would come back.
    """
    if not rewritten:
        return None
    positions, by_value = DeleteFileIndex(), list[ManifestEntry]()
    for entry in _entries(version, ManifestContent.DELETES):
        if entry.data_file.content == DataFileContent.EQUALITY_DELETES:
            by_value.append(entry)
        else:
            positions.add_delete_file(entry, partition_key=entry.data_file.partition)
    for entry in _entries(version, ManifestContent.DATA):
        file = entry.data_file
        if (known := rewritten.get(file.file_path)) is None:
            continue
        number = entry.sequence_number or 0
        if any(_applies(delete, number, file, version.metadata) for delete in by_value):
            raise NeedsChange(
                reasons.TABLE_UNSUPPORTED,
                f"the table {version.title} has equality deletes, which may be of rows of {file.file_path}: they would come back "
                "if it were rewritten; rewrite its data files (rewrite_data_files of Spark or Flink applies "
                "the deletes), and have the commit tried again",
            )
        applied = positions.for_data_file(number, file, partition_key=file.partition)
        if {delete.file_path for delete in applied} != known.deletes:
            return f"deletes of rows of {file.file_path}"
        if first_row_id_of_file(file) != known.first_row_id:  # the table got format 3 meanwhile
            return f"ids of the rows of {file.file_path}"
    return None


def _applies(delete: ManifestEntry, number: int, file: DataFile, metadata: TableMetadata) -> bool:
    if (delete.sequence_number or 0) <= number:
        return False
    given = delete.data_file
    is_everywhere = metadata.specs()[given.spec_id].is_unpartitioned()
    return is_everywhere or (given.spec_id == file.spec_id and given.partition == file.partition)


def _entries(version: TableVersion, content: ManifestContent) -> Iterable[ManifestEntry]:
    for manifest in version.manifests:
        if manifest.content == content:
            yield from manifest.fetch_manifest_entry(version.io, discard_deleted=True)


def find_problem(
    rewritten: Iterable[Rewritten], metadata: TableMetadata, own: OwnFiles, is_staged: Callable[[str], bool]
) -> Rejected | None:
    """Say which of the files must not be committed, as far as it can be told from what the seals say of them.

    `is_staged`: whether a file is one of those with the epoch's own rows.
    """
    checks, named = FileChecks({schema.schema_id: schema for schema in metadata.schemas}), set[str]()
    for each in rewritten:
        for file in each.files:
            folder, _, name = file.path.rpartition("/")
            problem = checks.problem_of(file)
            if own.location_of(folder, name) is None:
                problem = "it is not one that the epoch has staged"
            elif file.path in named or is_staged(file.path):
                problem = "it is named twice, so that its rows would be there twice"
            named.add(file.path)
            if problem is not None:
                return Rejected(
                    reasons.STAGED_RESULT_REFUSED, f"what a seal says of the file {file.path} cannot be so: {problem}"
                )
    return None


def data_entry(file: IcebergFile, place: Place, snapshot_id: int) -> ManifestEntry:
    """Return the entry of a staged file that a snapshot adds in that place."""
    columns = list(zip(*file.metrics, strict=True))
    metrics: dict[str, Any] = {}
    for number, (name, made) in enumerate(_METRICS, 1):
        pairs = zip(columns[0], columns[number], strict=True) if columns else ()
        metrics[name] = {field_id: made(value) for field_id, value in pairs if value is not None} or None
    data_file = DataFile.from_args(
        _table_format_version=3,  # which begins with what the earlier ones have
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=place.partition,
        record_count=file.rows,
        file_size_in_bytes=file.size_bytes,
        **metrics,
        key_metadata=None,
        split_offsets=list(file.split_offsets) or None,
        equality_ids=None,
        sort_order_id=file.sort_order_id,
    )
    return ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=data_file)

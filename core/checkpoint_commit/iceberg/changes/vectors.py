"""Deletion vectors that an upsert adds to a table of format version 3: one for each data file with rows that go.

A data file has one vector at most. So that of a merge has the rows, too, that were deleted already when the merge read the file,
and takes the place of the vector that the file has. Where others have put another vector on the file since, or several merges
or segments have found rows of it, their rows are united in a new vector at the commit.

Source of the rules: the Iceberg table specification (deletion vectors).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import obstore
import obstore.exceptions as obstore_errors
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
)
from pyiceberg.table.delete_file_index import DeleteFileIndex

from checkpoint_commit.iceberg.changes.change import TableVersion
from checkpoint_commit.iceberg.changes.rewrites import Place
from checkpoint_commit.iceberg.metadata.metadata_files import MetadataFile
from checkpoint_formats.iceberg.deletion_vectors import as_bitmap, decode, puffin_of
from checkpoint_formats.iceberg.manifests_3 import blob_place_of, referenced_data_file
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.records import IcebergDeletes
from checkpoint_protocol.store.object_store import open_raw_store, translate_store_error
from checkpoint_protocol.store.parallel import in_threads

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from checkpoint_commit.iceberg.changes.merges import Merged

#: Vectors that are read at once.
_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True)
class Vector:
    """A deletion vector in a Puffin file: `length` bytes at `offset`."""

    data_file: str
    path: str
    size_bytes: int
    rows: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class _Deletes:
    """The deletes of a data file at a head. `positions`: the paths of its position delete files."""

    vectors: tuple[Vector, ...] = ()
    positions: frozenset[str] = frozenset()


def staged_vector(deletes: IcebergDeletes) -> Vector | None:
    """Return the vector that a merge has staged; None if that is a position delete file."""
    offset, length, rows = deletes.content_offset, deletes.content_size_bytes, deletes.cardinality
    if offset is None or length is None or rows is None:
        return None
    return Vector(deletes.data_file, deletes.path, deletes.size_bytes, rows, offset, length)


def find_outdated_vectors(version: TableVersion, merged: Merged) -> str | None:
    """Say of which data file rows came back that were deleted when a merge read it, so that all is merged again. None: of none.

    What others have deleted since is united with what a merge has found.
    """
    if version.metadata.format_version < 3 or not merged.files:
        return None
    for path, deletes in _deletes_at(version, {deletes.data_file for deletes in merged.files}).items():
        known = merged.included.get(path, frozenset())
        if not deletes.vectors and known - deletes.positions:
            return f"other deletes of rows of {path}"
    return None


def vectors_of(version: TableVersion, merged: Merged, places: Collection[str], location: str) -> list[Vector]:
    """Return the vectors that a snapshot adds for those of these data files that have rows to go.

    What is united is put at the location. Retryable where the store does not answer, NeedsChange where a vector is broken.
    """
    found: dict[str, list[IcebergDeletes]] = defaultdict(list)
    for deletes in merged.files:
        if deletes.data_file in places:
            found[deletes.data_file].append(deletes)
    at_head = _deletes_at(version, found.keys())
    made: list[Vector] = []
    united: dict[str, list[Vector | str]] = {}
    for path, staged in found.items():
        known, there = merged.included.get(path, frozenset()), at_head.get(path, _Deletes())
        others = [vector for vector in there.vectors if vector.path not in known], sorted(there.positions - known)
        first = staged_vector(staged[0])
        if len(staged) == 1 and first is not None and not any(others):
            made.append(first)
        else:
            # A merge from before the table got format 3 has staged position delete files.
            united[path] = [*(staged_vector(deletes) or deletes.path for deletes in staged), *others[0], *others[1]]
    return [*made, *_unite(version, united, location)] if united else made


def _unite(version: TableVersion, wanted: Mapping[str, list[Vector | str]], location: str) -> list[Vector]:
    asked = [(path, each) for path, those in wanted.items() for each in those]
    bitmaps: dict[str, BitMap64] = {}
    for (path, _), rows in zip(asked, in_threads(lambda one: _read(version, *one), asked, at_once=_AT_ONCE), strict=True):
        bitmaps[path] = bitmaps[path] | rows if path in bitmaps else rows
    data, places = puffin_of(bitmaps)
    file = MetadataFile(location, version.storage)
    file.keep(data)
    file.put()
    return [Vector(path, location, len(data), len(rows), *places[path]) for path, rows in bitmaps.items()]


def _read(version: TableVersion, data_file: str, deletes: Vector | str) -> BitMap64:
    """Return the rows of a vector, or those of the data file in a position delete file of that path."""
    path = deletes if isinstance(deletes, str) else deletes.path
    version.io.check(path)
    try:
        if isinstance(deletes, str):
            with version.io.new_input(path).open() as opened:
                rows = pq.read_table(pa.BufferReader(opened.read()), columns=["file_path", "pos"])
            return as_bitmap(rows.filter(pc.equal(rows.column("file_path"), data_file)).column("pos").to_numpy())
        folder, _, name = path.rpartition("/")
        store = open_raw_store(folder, version.storage)
        return decode(bytes(obstore.get_range(store, name, start=deletes.offset, length=deletes.length)))
    except (obstore_errors.BaseError, OSError) as error:
        raise translate_store_error(error, path, version.storage.place) from error
    except ValueError as error:
        raise NeedsChange(
            reasons.TABLE_UNSUPPORTED,
            f"the deletes of rows of {data_file} in {path} cannot be read: {error}; roll the table {version.title} back to a "
            "snapshot that can be read",
        ) from error


def _deletes_at(version: TableVersion, wanted: Collection[str]) -> Mapping[str, _Deletes]:
    """Return the deletes that the data files have, of those of them that are there."""
    vectors: dict[str, list[Vector]] = defaultdict(list)
    index = DeleteFileIndex()
    for entry in _entries(version, ManifestContent.DELETES):
        file = entry.data_file
        path = referenced_data_file(file)
        if path is None and file.content == DataFileContent.POSITION_DELETES:
            index.add_delete_file(entry, partition_key=file.partition)
        elif path is not None and path in wanted and (place := blob_place_of(file)) is not None:
            vectors[path].append(Vector(path, file.file_path, file.file_size_in_bytes, file.record_count, *place))
    found: dict[str, _Deletes] = {}
    for entry in _entries(version, ManifestContent.DATA):
        file = entry.data_file
        if file.file_path in wanted:
            applied = index.for_data_file(entry.sequence_number or 0, file, partition_key=file.partition)
            positions = frozenset(delete.file_path for delete in applied)
            found[file.file_path] = _Deletes(tuple(vectors.get(file.file_path, ())), positions)
    return found


def _entries(version: TableVersion, content: ManifestContent) -> Iterable[ManifestEntry]:
    for manifest in version.manifests:
        if manifest.content == content:
            yield from manifest.fetch_manifest_entry(version.io, discard_deleted=True)


def vector_entry(vector: Vector, place: Place, snapshot_id: int) -> ManifestEntry:
    """Return the entry of a vector that a snapshot adds in the place of its data file."""
    file = DataFile.from_args(
        _table_format_version=3,
        content=DataFileContent.POSITION_DELETES,
        file_path=vector.path,
        file_format=FileFormat.PUFFIN,
        partition=place.partition,
        record_count=vector.rows,
        file_size_in_bytes=vector.size_bytes,
        referenced_data_file=vector.data_file,
        content_offset=vector.offset,
        content_size_in_bytes=vector.length,
    )
    return ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file)

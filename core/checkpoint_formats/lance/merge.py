"""The merge of an upsert into a Lance dataset: its input, and the deletes that it stages.

A merge reads the key columns of fragments at one version, without the rows that are deleted already. Lance keeps no bounds of a
column's values that tell which fragments may have a key, so that each is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from lance.file import LanceFileWriter

from checkpoint_formats.lance.access import access
from checkpoint_formats.lance.datasets import DELETED_ROW, identity_of, open_dataset, source_file_of
from checkpoint_formats.lance.staged_rows import StagedFragments, as_source
from checkpoint_formats.merging.keys import Keys, Placed, PutPart, Wanted, make_keys
from checkpoint_formats.merging.reading import DELETED_ROWS, by_path, numbers_of, whole
from checkpoint_formats.rows.plain_types import plain_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable, one_line
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import LanceDeletes, LanceFragment, LanceTarget, Merge, MergeKeysRecord, StagedFile
from checkpoint_protocol.records.formats.lance import PinnedLance
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.store.object_store import disk_full


def open_pinned(table: PinnedLance, storage: StorageSettings) -> Any:
    """Open the version that a merge reads. NeedsChange(SourceMissing) if it was cleaned up."""
    dataset = open_dataset(table.uri, storage, table.at_version)
    if dataset is None:
        raise NeedsChange(
            reasons.SOURCE_MISSING,
            f"version {table.at_version} of the Lance dataset {table.uri}, with which rows are to be matched, was cleaned up; "
            "keep versions for as long as a write takes, and run the write again",
        )
    return dataset


@dataclass(frozen=True, slots=True)
class LanceMerge:
    """What a merge reads of a Lance dataset. A MergeSource."""

    table: PinnedLance
    merge: Merge
    storage: StorageSettings

    @property
    def schema(self) -> pa.Schema:
        known = plain_schema(open_pinned(self.table, self.storage).schema)
        return pa.schema([known.field(name) for name in Wanted.of(self.merge).columns])

    def staged_of(self, files: Iterable[StagedFile]) -> list[StagedFile]:
        return sorted((file for file in files if isinstance(file, LanceFragment)), key=lambda file: file.paths)

    def put_keys(self, staged: Sequence[StagedFile], put: PutPart) -> Keys:
        schema = self.schema
        return make_keys(Wanted.of(self.merge), schema, self._rows_of(staged, schema), put)

    def _rows_of(self, staged: Sequence[StagedFile], schema: pa.Schema) -> Iterator[Placed]:
        reader = StagedFragments(self.table.uri, self.storage)
        for number, fragment in enumerate(staged):
            assert isinstance(fragment, LanceFragment)
            for chunk in whole(reader, as_source(fragment), Range(file=number, start=0, end=fragment.rows), schema):
                yield Placed(chunk.batch, number, numbers_of(chunk))

    def files_to_merge(self, keys: MergeKeysRecord, staged: Sequence[StagedFile]) -> tuple[SourceFile, ...]:
        """All fragments, or those that the version which an earlier merge has read has not; and staged ones with rows to delete.

        A version that was cleaned up since tells nothing: then all are read. Staged ones are read by the first merge only.
        """
        since = self.merge.since
        earlier = open_dataset(self.table.uri, self.storage, since) if since is not None else None
        done = {identity_of(fragment) for fragment in earlier.get_fragments()} if earlier is not None else set()
        fragments = open_pinned(self.table, self.storage).get_fragments()
        found = [source_file_of(self.table.uri, fragment) for fragment in fragments if identity_of(fragment) not in done]
        is_read_again = bool(keys.repeated) and since is None
        again = [as_source(each) for each in staged if isinstance(each, LanceFragment)] if is_read_again else []
        return (*found, *again)

    def files_to_rewrite(
        self, staged: Sequence[StagedFile], left_out: Mapping[str, Sequence[StagedFile]]
    ) -> tuple[SourceFile, ...]:
        of_table = (each for each in staged if isinstance(each, LanceFragment))
        return tuple(
            as_source(each, tuple(path for file in left_out[each.paths[0]] for path in file.paths))
            for each in of_table
            if each.paths[0] in left_out
        )


# Stage what a merge has found: Lance files of numbers of rows, one for each fragment that has some, beside the data files.
#
# Lance has no form of its own for rows of a fragment that are to be deleted: its deletion files carry the fragment's id and the
# version that they are made for, both of which are known at the commit only.


class LanceDeletesStager:
    """Writes one file for each fragment that a segment deletes rows of. A Stager."""

    def __init__(self, target: LanceTarget, storage: StorageSettings) -> None:
        self._uri = target.uri
        self._storage = storage

    @property
    def arrow_schema(self) -> pa.Schema:
        return DELETED_ROWS

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[LanceDeletes, ...]:
        """Write what the batches name; files are whole in the store when this returns."""
        held: dict[str, list[pa.Array]] = defaultdict(list)
        for batch in batches:
            for path, positions in by_path(batch):
                held[path].append(pa.array(positions, pa.uint64()))
        return tuple(self._write(path, pa.chunked_array(held[path])) for path in sorted(held))

    def _write(self, source: str, rows: pa.ChunkedArray) -> LanceDeletes:
        name = f"{new_token()}.lance"
        whole = f"{self._uri}/data/{name}"
        try:
            writer = LanceFileWriter(whole, DELETED_ROW, **access(self._uri, self._storage))
            writer.write_batch(pa.record_batch([rows.combine_chunks()], schema=DELETED_ROW))
            writer.close()
        except (ValueError, OSError) as error:
            if disk_full(error, "") is not None:
                raise
            raise Retryable(reasons.STORE_UNAVAILABLE, f"writing {whole} failed: {one_line(error)}") from error
        return LanceDeletes(path=name, size_bytes=writer.size_bytes, rows=len(rows), source=source)

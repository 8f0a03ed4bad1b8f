"""Stage what a merge has found: Lance files of numbers of rows, one for each fragment that has some, beside the data files.

Lance has no form of its own for rows of a fragment that are to be deleted: its deletion files carry the fragment's id and the
version that they are made for, both of which are known at the commit only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pyarrow as pa
from lance.file import LanceFileWriter

from checkpoint_formats.lance.datasets import DELETED_ROW
from checkpoint_formats.merging.reading import DELETED_ROWS, by_path
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable, one_line
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.places.storage import StorageSettings, lance_options
from checkpoint_protocol.records import LanceDeletes, LanceTarget
from checkpoint_protocol.store.object_store import disk_full


class LanceDeletesStager:
    """Writes one file for each fragment that a segment deletes rows of. A Stager."""

    def __init__(self, target: LanceTarget, storage: StorageSettings) -> None:
        self._uri = target.uri
        self._options = lance_options(target.uri, storage)

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
            writer = LanceFileWriter(whole, DELETED_ROW, storage_options=self._options or None)
            writer.write_batch(pa.record_batch([rows.combine_chunks()], schema=DELETED_ROW))
            writer.close()
        except (ValueError, OSError) as error:
            if disk_full(error, "") is not None:
                raise
            raise Retryable(reasons.STORE_UNAVAILABLE, f"writing {whole} failed: {one_line(error)}") from error
        return LanceDeletes(path=name, size_bytes=writer.size_bytes, rows=len(rows), source=source)

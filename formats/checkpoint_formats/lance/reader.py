"""Lance datasets: a fragment is a file, and the number of a row in its fragment its position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import lance
import numpy as np
import pyarrow as pa

from checkpoint_formats.batch_sizing import BatchSizing
from checkpoint_formats.files.numbering import empty_chunk
from checkpoint_formats.plain_types import as_plain, plain_schema
from checkpoint_formats.port import Chunk, Described
from checkpoint_formats.source_tables import gone, moved
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable
from checkpoint_protocol.lance_places import refuse_bases_elsewhere
from checkpoint_protocol.positions import Range
from checkpoint_protocol.records import PinnedLance, SourceFile
from checkpoint_protocol.source import LanceSource
from checkpoint_protocol.storage import StorageSettings, lance_options

_KEEP: Final = "keep the dataset's versions until its writes have committed (cleanup_old_versions removes old ones)"
_DECODE_ROWS: Final = 8_192
_DECODE_BYTES: Final = 16 << 20
_READ_AHEAD_BATCHES: Final = 2
_NOT_FOUND: Final = "not found"


class LanceReader:
    """Positions are row numbers in a fragment as it was written: deleted rows have positions, and give none.

    A range is read without what is before it.
    """

    def __init__(self, table: PinnedLance, storage: StorageSettings) -> None:
        self._table = table
        self._storage = storage
        self._dataset: Any = None
        self._alive: tuple[int | None, np.ndarray[Any, Any]] = (None, np.empty(0))

    def align(self, file: SourceFile, position: int, slack: int) -> int:
        return position

    def check_unchanged(self, file: SourceFile) -> None:
        """A version's fragments never change: they are the same if the version is there, and has them."""
        self._fragment(file)

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        fragment = self._fragment(file)
        end = fragment.physical_rows if piece.end is None else piece.end
        try:
            yield from self._chunks(fragment, file, Range(file=piece.file, start=piece.start, end=end), schema, sizing)
        except (ValueError, OSError, pa.ArrowException) as error:
            raise self._translated(error, file) from error

    def _chunks(self, fragment: Any, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        assert piece.end is not None
        alive = self._alive_rows(fragment)
        if alive is None:
            offset, count = piece.start, piece.end - piece.start
        else:
            offset, after = (int(number) for number in np.searchsorted(alive, (piece.start, piece.end)))
            count = after - offset
        if count == 0:
            yield empty_chunk(piece, schema)
            return
        there = set(self._dataset.schema.names)
        scanner = fragment.scanner(
            columns=[name for name in schema.names if name in there],
            offset=offset,
            limit=count,
            batch_size=max(1, min(_DECODE_ROWS, _DECODE_BYTES * fragment.physical_rows // max(1, file.size_bytes))),
            batch_readahead=_READ_AHEAD_BATCHES,
        )
        at, given = piece.start, 0
        for decoded in scanner.to_batches():
            batch, first = as_plain(decoded, schema), 0
            while first < batch.num_rows:
                rows = min(sizing.rows, batch.num_rows - first)
                numbers = np.arange(offset + given, offset + given + rows) if alive is None else alive[offset + given :][:rows]
                given += rows
                end = piece.end if given == count else int(numbers[-1]) + 1
                is_whole = end - at == rows
                yield Chunk(batch.slice(first, rows), at, end, None if is_whole else pa.array(numbers - at, pa.uint64()))
                at, first = end, first + rows
        if given != count:
            raise ValueError(f"{count} rows were expected, and {given} were there")

    def _alive_rows(self, fragment: Any) -> np.ndarray[Any, Any] | None:
        """Return the numbers of the rows that are not deleted, rising; None if none is. Reads no column."""
        if fragment.metadata.deletion_file is None:
            return None
        if self._alive[0] != fragment.fragment_id:
            parts = [batch.column(0).to_numpy() for batch in fragment.scanner(columns=[], with_row_address=True).to_batches()]
            addresses = np.concatenate(parts) if parts else np.empty(0, np.uint64)
            self._alive = (fragment.fragment_id, (addresses & np.uint64(0xFFFF_FFFF)).astype(np.int64))
        return self._alive[1]

    def _fragment(self, file: SourceFile) -> Any:
        if self._dataset is None:
            self._dataset = _open(self._table.uri, self._table.at_version, self._storage)
        fragment = self._dataset.get_fragment(file.fragment) if self._dataset is not None else None
        if fragment is None:
            raise self._gone(f"version {self._table.at_version}")
        if _identity(fragment) != file.etag:
            raise NeedsChange(
                reasons.SOURCE_CHANGED,
                f"source: version {self._table.at_version} of the Lance dataset {self._table.uri} is another than when the write "
                "began: the dataset was made again; start a new write",
            )
        return fragment

    def _gone(self, what: str) -> NeedsChange:
        return gone(what, f"the Lance dataset {self._table.uri}", _KEEP)

    def _translated(self, error: Exception, file: SourceFile) -> CheckpointError:
        if _NOT_FOUND in str(error).lower():
            return self._gone(f"a file of fragment {file.fragment} of version {self._table.at_version}")
        return Retryable(reasons.STORE_UNAVAILABLE, f"source: {file.path} cannot be read: {_line(error)}")


def find_fragments(
    source: LanceSource,
    columns: Sequence[str] | None,
    storage: StorageSettings,
    earlier: Sequence[tuple[PinnedLance, Sequence[SourceFile]]],
    on_replaced: str,
) -> tuple[Described, PinnedLance]:
    """Return all fragments of the dataset, with those of the columns that it has (None: all), and the version that they are of.

    `earlier` are the inputs of the epochs before. If a fragment that one of them has had is gone or has changed, its rows may
    be in a new one: NeedsChange(SourceChanged), unless `on_replaced` is Process, which takes all fragments that are new as new
    rows.
    """
    dataset, at_version = _latest(source, storage)
    schema = plain_schema(dataset.schema)
    fragments = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
    known = {file.fragment: (file, table.at_version) for table, files in earlier for file in files}
    if on_replaced != "Process":
        for number, (file, version) in known.items():
            if number is not None and not _is_as_it_was(file, fragments.get(number)):
                raise moved(
                    f"fragment {number} of the Lance dataset {source.uri}, which an earlier epoch has taken at version "
                    f"{version}, was rewritten or has lost rows by version {at_version} (a compaction, an update, a delete or an "
                    "overwrite): new fragments may hold rows that are done already",
                    "set onReplaced: Process to take all new fragments as new rows (Skip cannot tell them apart), or start a new "
                    "write",
                )
    files = tuple(
        SourceFile(
            path=f"{source.uri.rstrip('/')} fragment {number}",
            etag=_identity(fragment),
            size_bytes=sum(file.get("file_size_bytes") or 0 for file in _plain(fragment)["files"]),
            unit="rows",
            end=fragment.physical_rows,
            fragment=number,
        )
        for number, fragment in sorted(fragments.items())
    )
    chosen = pa.schema([schema.field(name) for name in columns or schema.names if name in schema.names])
    described = Described(files, chosen, f"source dataset {source.uri}", tuple(schema.names))
    return described, PinnedLance(uri=source.uri, at_version=at_version)


def _latest(source: LanceSource, storage: StorageSettings) -> tuple[Any, int]:
    dataset = _open(source.uri, source.version, storage)
    if dataset is None:
        which = "there is no Lance dataset" if source.version is None else f"there is no version {source.version} (any more)"
        raise NeedsChange(reasons.SOURCE_MISSING, f"source: {which} at {source.uri}; correct source.lance, or make it")
    return dataset, dataset.version


def _open(uri: str, version: int | None, storage: StorageSettings) -> Any | None:
    """Open a version of a dataset, the latest for None; return None if there surely is none."""
    try:
        dataset = lance.dataset(uri.rstrip("/"), version=version, storage_options=lance_options(uri, storage) or None)
    except (ValueError, OSError) as error:
        if _NOT_FOUND in str(error).lower():
            return None
        raise Retryable(
            reasons.STORE_UNAVAILABLE,
            f"source: the Lance dataset {uri} cannot be opened: {_line(error)}; check {storage.place.name('storage')}",
        ) from error
    refuse_bases_elsewhere(dataset, uri, storage)
    return dataset


def _plain(fragment: Any) -> dict[str, Any]:
    plain: dict[str, Any] = fragment.metadata.to_json()
    return plain


def _identity(fragment: Any) -> str:
    """Name what a fragment is: its data files, whose names are random, and its deletes."""
    plain = _plain(fragment)
    deletes = plain["deletion_file"]
    paths = ",".join(file["path"] for file in plain["files"])
    return f"{paths}|{deletes['read_version']}-{deletes['id']}" if deletes else f"{paths}|"


def _is_as_it_was(file: SourceFile, fragment: Any | None) -> bool:
    """Whether the rows of a known fragment are still those. Columns may have been added to it, in files of their own."""
    if fragment is None:
        return False
    before, now = file.etag.split("|"), _identity(fragment).split("|")
    return before[1] == now[1] and set(before[0].split(",")) <= set(now[0].split(","))


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:400]

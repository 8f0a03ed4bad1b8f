"""Lance datasets: a fragment is a file, and the number of a row in its fragment its position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_formats.failures import gone, moved
from checkpoint_formats.files.numbering import empty_chunk
from checkpoint_formats.lance.changed import Changes, changed_since
from checkpoint_formats.lance.datasets import (
    has_values,
    identity_of,
    is_as_it_was,
    is_not_found,
    open_dataset,
    source_file_of,
)
from checkpoint_formats.lance.made_since import MADE_AT, find_made_since, fragments_at, has_made_since, transaction_of
from checkpoint_formats.port import Chunk, Described, Reader
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.plain_types import as_plain, plain_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable, one_line
from checkpoint_protocol.manifest.sources.source import LanceSource
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import TakenFile
from checkpoint_protocol.records.formats.lance import PinnedLance
from checkpoint_protocol.records.formats.operations import AddColumns
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range

_KEEP: Final = "keep the dataset's versions until its writes have committed (cleanup_old_versions removes old ones)"
_DECODE_ROWS: Final = 8_192
_DECODE_BYTES: Final = 16 << 20
_READ_AHEAD_BATCHES: Final = 2


class LanceReader(Reader):
    """Positions are row numbers in a fragment as it was written: deleted rows have positions, and give none.

    A range is read without what is before it.
    """

    def __init__(self, table: PinnedLance, storage: StorageSettings) -> None:
        self._table = table
        self._storage = storage
        self._dataset: Any = None
        self._alive: tuple[int | None, np.ndarray[Any, Any]] = (None, np.empty(0))
        self._changes: Changes | None = None

    def check_unchanged(self, file: SourceFile) -> None:
        """A version's fragments never change: they are the same if the version is there, and has them."""
        if file.fragment is not None:
            self._fragment(file)

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        if file.fragment is None:  # a staged one, which no version has: what a merge reads again
            from checkpoint_formats.lance.staged_rows import StagedFragments

            yield from StagedFragments(self._table.uri, self._storage).read(file, piece, schema, sizing)
            return
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
        null_in = self._null_in(fragment)
        # Rows that are tried again are of an earlier epoch.
        after_version = self._table.after_version if file.only is None else None
        changes = self._changes
        compared = changes.rows.columns if changes is not None else ()
        read = [name for name in dict.fromkeys((*schema.names, *null_in, *compared)) if name in there]
        scanner = fragment.scanner(
            columns=read if after_version is None else [*read, MADE_AT],
            with_row_id=changes is not None,
            offset=offset,
            limit=count,
            batch_size=max(1, min(_DECODE_ROWS, _DECODE_BYTES * fragment.physical_rows // max(1, file.size_bytes))),
            batch_readahead=_READ_AHEAD_BATCHES,
            blob_handling="all_binary",
        )
        at, given = piece.start, 0
        for decoded in scanner.to_batches():
            batch, first = as_plain(decoded, schema), 0
            while first < batch.num_rows:
                rows = min(sizing.rows, batch.num_rows - first)
                numbers = np.arange(offset + given, offset + given + rows) if alive is None else alive[offset + given :][:rows]
                given += rows
                end = piece.end if given == count else int(numbers[-1]) + 1
                taken = batch.slice(first, rows)
                if (kept := _input_rows(decoded.slice(first, rows), null_in, after_version, changes)) is not None:
                    taken, numbers = taken.take(pa.array(kept)), numbers[kept]
                is_whole = end - at == taken.num_rows
                yield Chunk(taken, at, end, None if is_whole else pa.array(numbers - at, pa.uint64()))
                at, first = end, first + rows
        if given != count:
            raise ValueError(f"{count} rows were expected, and {given} were there")

    def _null_in(self, fragment: Any) -> tuple[str, ...]:
        """Return the columns in which a row must be NULL to be input; none where all rows are."""
        columns = tuple(name for name in self._table.null_in if name in self._dataset.schema.names)
        # Of several columns that a row must all be NULL in, one without a file is.
        return tuple(name for name in columns if has_values(self._dataset, fragment, (name,)))

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
            if self._dataset is not None and self._table.changed is not None:
                self._changes = Changes(self._dataset, self._table.changed, self._storage)
        fragment = self._dataset.get_fragment(file.fragment) if self._dataset is not None else None
        if fragment is None:
            raise self._gone(f"version {self._table.at_version}")
        if identity_of(fragment) != file.etag:
            raise NeedsChange(
                reasons.SOURCE_CHANGED,
                f"source: version {self._table.at_version} of the Lance dataset {self._table.uri} is another than when the write "
                "began: the dataset was made again; start a new write",
            )
        return fragment

    def _gone(self, what: str) -> NeedsChange:
        return gone(what, f"the Lance dataset {self._table.uri}", _KEEP)

    def _translated(self, error: Exception, file: SourceFile) -> CheckpointError:
        if is_not_found(error):
            return self._gone(f"a file of fragment {file.fragment} of version {self._table.at_version}")
        return Retryable(reasons.STORE_UNAVAILABLE, f"source: {file.path} cannot be read: {one_line(error)}")


def find_fragments(
    source: LanceSource,
    columns: Sequence[str] | None,
    storage: StorageSettings,
    earlier: Sequence[TakenFile],
    on_replaced: str,
    added: AddColumns | None = None,
    before: PinnedLance | None = None,
    is_upserted: bool = False,
) -> tuple[Described, PinnedLance]:
    """Return the fragments of the dataset, with those of the columns that it has (None: all), and the version that they are of.

    `earlier` are those that the epochs before have taken, up to the version `before`. If one of them is gone or has changed, its
    rows may be in a new one. Where rows have stable ids it is told which were made since, and fragments without such rows are
    left out. Otherwise NeedsChange(SourceChanged), unless `on_replaced` is Process, which takes all fragments that are new as new
    rows. `added`: columns that the rows get, which are not read unless they are asked for; where rows are known by being NULL
    there, nothing else is in the way, and deletes never are. `is_upserted`: nor is it where changed rows are taken again.
    """
    dataset, at_version = _latest(source, storage)
    schema = plain_schema(dataset.schema)
    fragments = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
    known = {file.fragment: file for file in earlier}
    taken = before if added is None and before is not None and before.transaction is not None else None
    done: Iterable[int] = ()
    after_version = None
    if is_upserted:
        pass
    elif on_replaced == "Process":
        done = (taken is not None and fragments_at(taken, dataset, storage)) or ()
    elif added is None or added.only == "All":
        for number, file in known.items():
            if number is None or _is_as_it_was(file, fragments.get(number), but_for_deletes=added is not None):
                continue
            if taken is None:
                raise moved(
                    f"fragment {number} of the Lance dataset {source.location}, which an earlier epoch has taken, was rewritten "
                    f"or has lost rows by version {at_version} (a compaction, an update, a delete or an overwrite): new "
                    "fragments may hold rows that are done already",
                    "set onReplaced: Process to take all new fragments as new rows (Skip cannot tell them apart), or start a new "
                    "write; compactions pass where the dataset was made with enable_stable_row_ids=True",
                )
            done = fragments.keys() - find_made_since(taken, dataset, storage)
            after_version = taken.at_version
            break
    for number in done:
        if number not in known:
            fragments.pop(number, None)
    files = tuple(source_file_of(source.location, fragment) for _, fragment in sorted(fragments.items()))
    chosen = pa.schema([schema.field(name) for name in _chosen(dataset, columns, added)])
    described = Described(files, chosen, f"source dataset {source.location}", tuple(schema.names))
    null_in = added.columns if added is not None and added.only != "All" else ()
    transaction = transaction_of(dataset) if added is None or added.only == "Changed" else None
    table = PinnedLance(
        uri=source.location, at_version=at_version, null_in=null_in, transaction=transaction, after_version=after_version
    )
    return described, table


def _chosen(dataset: Any, columns: Sequence[str] | None, added: AddColumns | None) -> list[str]:
    names = dataset.schema.names
    by_default = [name for name in names if added is None or name not in added.columns]
    return [name for name in columns or by_default if name in names]


def list_fragments(
    source: LanceSource,
    storage: StorageSettings,
    before: PinnedLance | None,
    columns: Sequence[str] | None = None,
    added: AddColumns | None = None,
    *,
    takes_changes: bool = False,
) -> Iterator[SourceFile]:
    """Give the fragments of the dataset, for whoever looks what is new: none if its version is `before`, which was taken.

    Where rows have stable ids, only those that were changed since, or have rows which were made since. `columns` and `added` are
    those of `find_fragments`; with `takes_changes`, only those that may have new or changed rows.
    """
    dataset, at_version = _latest(source, storage)
    if before is not None and before.at_version == at_version:
        return
    if takes_changes and before is not None and before.transaction is not None:
        changes = Changes(dataset, changed_since(before, _chosen(dataset, columns, added), None), storage)
        yield from (
            source_file_of(source.location, fragment)
            for fragment in dataset.get_fragments()
            if changes.may_have(fragment.fragment_id)
        )
        return
    then = None
    if before is not None and before.transaction is not None:
        with suppress(NeedsChange):  # whoever takes them says what is wrong
            then = fragments_at(before, dataset, storage)
    for fragment in dataset.get_fragments():
        if before is not None and then is not None:
            old = then.get(fragment.fragment_id)
            is_done = identity_of(old) == identity_of(fragment) if old is not None else not has_made_since(before, fragment)
            if is_done:
                continue
        yield source_file_of(source.location, fragment)


def _latest(source: LanceSource, storage: StorageSettings) -> tuple[Any, int]:
    dataset = _open(source.location, source.version, storage)
    if dataset is None:
        which = "there is no Lance dataset" if source.version is None else f"there is no version {source.version} (any more)"
        raise NeedsChange(reasons.SOURCE_MISSING, f"source: {which} at {source.location}; correct source.lance, or make it")
    return dataset, dataset.version


def _open(uri: str, version: int | None, storage: StorageSettings) -> Any | None:
    try:
        return open_dataset(uri, storage, version)
    except Retryable as error:
        raise Retryable(error.reason, f"source: {error.message}") from error


def is_known(file: SourceFile, earlier: TakenFile | None) -> bool:
    """Whether a fragment is one that was there earlier, of the same number: whatever columns, and deletes, it got since."""
    return earlier is not None and not _files_in(file.etag).isdisjoint(_files_in(earlier.etag))


def _files_in(identity: str) -> frozenset[str]:
    return frozenset(identity.split("|")[0].split(","))


def _input_rows(
    rows: pa.RecordBatch, null_in: Sequence[str], after_version: int | None, changes: Changes | None
) -> np.ndarray[Any, Any] | None:
    """Return the numbers of the rows that are NULL in all columns and were made after the version; None: all are.

    `changes`: that holds for rows that were not there before; of the others those are returned that have changed.
    """
    conditions = [rows.column(rows.schema.get_field_index(name)).is_null() for name in null_in]
    if after_version is not None:
        conditions.append(pc.greater(rows.column(rows.schema.get_field_index(MADE_AT)), after_version))
    if changes is None and not conditions:
        return None
    is_input = np.ones(rows.num_rows, np.bool_)
    for condition in conditions:
        is_input &= condition.to_numpy(zero_copy_only=False)
    if changes is not None:
        known, changed = changes.find(rows)
        is_input = np.where(known, changed, is_input)
    numbers = np.flatnonzero(is_input)
    return None if len(numbers) == rows.num_rows else numbers


def _is_as_it_was(file: TakenFile, fragment: Any | None, *, but_for_deletes: bool = False) -> bool:
    if fragment is None:
        return False
    if but_for_deletes:
        return not _files_in(file.etag).isdisjoint(_files_in(identity_of(fragment)))
    return is_as_it_was(file.etag, fragment)

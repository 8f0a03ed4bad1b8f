"""Read a fragment as it is to be: what is staged for its columns over what it has there."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import count, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from lance.file import LanceFileReader

from checkpoint_formats.failures import gone
from checkpoint_formats.lance.access import access
from checkpoint_formats.lance.changed import changes_of
from checkpoint_formats.lance.columns_stager import PLACE
from checkpoint_formats.lance.datasets import has_values, is_not_found, open_dataset
from checkpoint_formats.lance.packing.lineage import NO_INPUT, Origins
from checkpoint_formats.lance.packing.overlay import Mask, Placed, WrongPlaces, overlaid
from checkpoint_formats.port import Chunk
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.selecting import Addresses, addresses_of, fragments_of, places_of
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable, one_line
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import PackedColumns, PackedPiece
from checkpoint_protocol.records.formats.lance import PinnedLance
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range

_BATCH_ROWS: Final = 8_192
_BATCH_BYTES: Final = 16 << 20
_READ_AHEAD: Final = 2


class PackReader:
    """A fragment is read as a whole: it gets one file. Its deleted rows have values, too, which nobody sees."""

    def __init__(self, table: PinnedLance, packed: PackedColumns, storage: StorageSettings) -> None:
        self._table, self._packed, self._storage = table, packed, storage
        self._dataset: Any = None
        self._origins = Origins(table.uri, storage)

    def align(self, file: SourceFile, position: int, slack: int) -> int:
        assert file.end is not None
        return file.end if position > file.start else file.start

    def check_unchanged(self, file: SourceFile) -> None:
        self._fragment(file)

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        fragment, pack = self._fragment(file), file.pack
        assert pack is not None
        if piece.start != 0 or piece.end != file.end:
            raise Corrupt(reasons.RECORD_UNREADABLE, f"a part of {file.path} is to be packed, and it is one file as a whole")
        rows = int(fragment.physical_rows)
        addresses = self._origins.addresses(pack.origin)
        staged = self._staged(addresses, pack.pieces, _batch_rows(file, pack.pieces))
        base, cleared = self._below(fragment, addresses, _batch_rows(file, pack.pieces))
        at = 0
        try:
            for batch in overlaid(rows, schema, staged, base, cleared, _batch_rows(file, pack.pieces)):
                yield Chunk(batch, at, at + batch.num_rows)
                at += batch.num_rows
        except WrongPlaces as error:
            raise Corrupt(reasons.STAGED_RESULT_REFUSED, f"{file.path}: {one_line(error)}") from error
        except (OSError, ValueError, pa.ArrowException) as error:
            raise self._translated(error, file.path) from error

    def _below(self, fragment: Any, addresses: Addresses, batch_rows: int) -> tuple[Iterator[pa.RecordBatch] | None, Mask | None]:
        """Return what the columns have now, as far as it counts; and for which rows it does not."""
        if not has_values(self._dataset, fragment, self._packed.columns):
            return None, None
        cleared = self._cleared(addresses)
        if cleared is not None and cleared.all():
            return None, None
        scanner = fragment.scanner(
            columns=list(self._packed.columns),
            with_row_id=True,  # which goes with the deleted rows
            include_deleted_rows=True,
            batch_size=batch_rows,
            batch_readahead=_READ_AHEAD,
        )
        return scanner.to_batches(), cleared

    def _cleared(self, addresses: Addresses) -> Mask | None:
        """Return of which rows, by the addresses that they had in the input, the values go; None: of none."""
        is_input: Mask = addresses != NO_INPUT
        packed = self._packed
        if packed.changed is None or packed.input_at is None:
            return is_input if packed.replaces else None
        table = PinnedLance(uri=self._table.uri, at_version=packed.input_at, changed=packed.changed)
        changes = changes_of(table, self._storage)
        assert changes is not None
        fragments = np.unique(fragments_of(addresses[is_input])).tolist()
        changed = [addresses_of(number, changes.places(number)) for number in fragments]
        return np.isin(addresses, np.concatenate(changed)) if changed else None

    def _staged(self, addresses: Addresses, pieces: Sequence[PackedPiece], batch_rows: int) -> Iterator[Placed]:
        """Give the values of a fragment, by the places that their rows have in it now; none of rows that are gone."""
        if not len(addresses):
            return
        fragments = fragments_of(addresses)
        borders = [0, *(np.flatnonzero(np.diff(fragments)) + 1).tolist(), len(fragments)]
        for start, end in pairwise(borders):
            if addresses[start] == NO_INPUT:
                continue
            former = places_of(addresses[start:end])
            of_this = [piece for piece in pieces if piece.part.fragment == fragments[start]]
            for places, values in in_order(of_this, lambda piece: self._values(piece, batch_rows)):
                at = np.searchsorted(former, places)
                there = at < len(former)
                there[there] = former[at[there]] == places[there]
                if there.all():
                    yield start + at, values
                elif there.any():
                    yield start + at[there], values.take(pa.array(np.flatnonzero(there)))

    def _values(self, piece: PackedPiece, batch_rows: int) -> Iterator[Placed]:
        path = f"{self._table.uri.rstrip('/')}/{piece.path}"
        try:
            reader = LanceFileReader(path, **access(self._table.uri, self._storage))
            read = 0
            for batch in reader.read_range(
                piece.skip, piece.part.rows, batch_size=batch_rows, batch_readahead=_READ_AHEAD
            ).to_batches():
                places = batch.column(batch.schema.get_field_index(PLACE)).to_numpy().astype(np.int64)
                read += batch.num_rows
                if batch.num_rows:
                    yield places, batch.drop_columns([PLACE])
        except (OSError, ValueError) as error:
            if is_not_found(error):
                raise NeedsChange(reasons.STAGED_FILE_MISSING, f"the staged file {path} is gone") from error
            raise self._translated(error, path) from error
        if read != piece.part.rows:
            raise Corrupt(reasons.STAGED_RESULT_REFUSED, f"{path} has {read} rows where {piece.part.rows} are said to be")

    def _fragment(self, file: SourceFile) -> Any:
        if self._dataset is None:
            self._dataset = open_dataset(self._table.uri, self._storage, self._table.at_version)
        fragment = self._dataset.get_fragment(file.fragment) if self._dataset is not None else None
        if fragment is None:
            raise gone(
                f"version {self._table.at_version}",
                f"the Lance dataset {self._table.uri}",
                "keep the dataset's versions until its writes have committed (cleanup_old_versions removes old ones)",
            )
        return fragment

    def _translated(self, error: Exception, where: str) -> Exception:
        return Retryable(reasons.STORE_UNAVAILABLE, f"{where} cannot be read: {one_line(error)}")


def _batch_rows(file: SourceFile, pieces: Sequence[PackedPiece]) -> int:
    staged = sum(piece.part.rows for piece in pieces)
    return _BATCH_ROWS if not staged else max(1, min(_BATCH_ROWS, _BATCH_BYTES * staged // max(1, file.size_bytes)))


def in_order(pieces: Sequence[PackedPiece], open_piece: Callable[[PackedPiece], Iterator[Placed]]) -> Iterator[Placed]:
    """Give the rows of pieces of one fragment by rising place. Of pieces that lie in each other, one batch each is held."""
    waiting = sorted(pieces, key=lambda piece: piece.part.first, reverse=True)
    opened: list[tuple[int, int, Placed, Iterator[Placed]]] = []
    numbers = count()

    def push(rest: Iterator[Placed], held: Placed | None = None) -> None:
        held = next(rest, None) if held is None or not len(held[0]) else held
        if held is not None:
            heapq.heappush(opened, (int(held[0][0]), next(numbers), held, rest))

    while waiting or opened:
        while waiting and (not opened or waiting[-1].part.first <= opened[0][0]):
            push(open_piece(waiting.pop()))
        if not opened:
            continue
        _, _, (places, values), rest = heapq.heappop(opened)
        limits = [opened[0][0]] if opened else []
        limits += [waiting[-1].part.first] if waiting else []
        end = int(np.searchsorted(places, min(limits))) if limits else len(places)
        if end == 0:
            raise ValueError("values are staged twice for a row")
        yield places[:end], values.slice(0, end)
        push(rest, (places[end:], values.slice(end)))

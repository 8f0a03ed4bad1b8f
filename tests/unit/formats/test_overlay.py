"""Values put over the rows of a fragment: equal to what a list says, however they come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance.file import LanceFileWriter

from checkpoint_formats.lance.columns_stager import PLACE
from checkpoint_formats.lance.packing.overlay import Placed, WrongPlaces, overlaid
from checkpoint_formats.lance.packing.reader import PackReader, in_order
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt, Retryable
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import ColumnRows, PackedColumns, PackedPiece
from checkpoint_protocol.records.formats.lance import LanceOrigin, LancePack, PinnedLance
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range

VECTOR = pa.list_(pa.float32(), 2)
SCHEMA = pa.schema([("n", pa.int64()), ("v", VECTOR)])


def batch_of(numbers: Sequence[int | None]) -> pa.RecordBatch:
    vectors = [None if number is None else [float(number), 1.0] for number in numbers]
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64()), pa.array(vectors, VECTOR)], schema=SCHEMA)


def placed(places: Sequence[int], numbers: Sequence[int | None]) -> Placed:
    return np.array(places, np.int64), batch_of(numbers)


def cut(items: Sequence[int], sizes: Sequence[int]) -> Iterator[Sequence[int]]:
    start = 0
    for size in [*sizes, len(items)]:
        if items[start : start + size]:
            yield items[start : start + size]
        start += size


@given(st.data())
def test_rows_have_the_staged_value_or_the_one_below_or_none(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 40))
    places = sorted(data.draw(st.sets(st.integers(0, rows - 1))))
    sizes = data.draw(st.lists(st.integers(1, 9), max_size=6))
    has_base, is_cleared = data.draw(st.booleans()), data.draw(st.booleans())
    below: list[int | None] = [number if number % 3 else None for number in range(rows)]
    cleared = np.array(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows))) if is_cleared else None
    staged = (placed(part, [1_000 + place for place in part]) for part in cut(places, sizes))
    base = (batch_of([below[row] for row in part]) for part in cut(range(rows), [7, 3, 11])) if has_base else None

    made = list(overlaid(rows, SCHEMA, staged, base, cleared, batch_rows=5))

    expected = [None if not has_base or (cleared is not None and cleared[row]) else below[row] for row in range(rows)]
    for place in places:
        expected[place] = 1_000 + place
    assert pa.Table.from_batches(made, SCHEMA).equals(pa.Table.from_batches([batch_of(expected)], SCHEMA))


@pytest.mark.parametrize("places", [[[1, 1]], [[3], [2]], [[2], [2]], [[0, 9]]])
def test_values_out_of_order_or_twice_or_beyond_the_end_are_refused(places: list[list[int]]) -> None:
    staged = (placed(part, list(range(len(part)))) for part in places)

    with pytest.raises(WrongPlaces, match="staged"):
        list(overlaid(5, SCHEMA, staged))


def refusal_of_a_pack(folder: Path, places: Sequence[int], *, is_lost: bool = False) -> CheckpointError:
    """Stage two values for a fragment of three rows, and return why it cannot be read with them. `is_lost`: its file is gone."""
    dataset = folder / "rows.lance"
    lance.write_dataset(pa.table({"n": [1, 2, 3]}), dataset)
    staged = pa.record_batch({PLACE: pa.array(places, pa.uint64()), "n": [7, 8]})
    with LanceFileWriter(str(dataset / "staged.lance"), staged.schema) as writer:
        writer.write_batch(staged)
    piece = PackedPiece(path="staged.lance", skip=0, part=ColumnRows(fragment=0, rows=2, first=0, last=2))
    pack = LancePack(origin=LanceOrigin(fragment=0, rows=3, is_input=True), pieces=(piece,))
    file = SourceFile(path="rows.lance fragment 0", etag="", size_bytes=1, unit="rows", end=3, fragment=0, pack=pack)
    packed = PackedColumns(columns=("n",), replaces=False)
    reader = PackReader(PinnedLance(uri=str(dataset), at_version=1, packed=packed), packed, StorageSettings())
    if is_lost:
        next((dataset / "data").iterdir()).unlink()
    with pytest.raises(CheckpointError) as caught:
        list(reader.read(file, Range(file=0, start=0, end=3), pa.schema([("n", pa.int64())]), BatchSizing(interval_s=60.0)))
    return caught.value


def test_data_that_lance_cannot_read_while_they_are_packed_are_worth_another_try(tmp_path: Path) -> None:
    refusal = refusal_of_a_pack(tmp_path, [0, 2], is_lost=True)

    assert (type(refusal), refusal.reason) == (Retryable, reasons.STORE_UNAVAILABLE)


def test_values_that_are_staged_twice_for_a_row_are_never_packed(tmp_path: Path) -> None:
    refusal = refusal_of_a_pack(tmp_path, [2, 2])

    assert (type(refusal), refusal.reason) == (Corrupt, reasons.STAGED_RESULT_REFUSED)
    assert "staged twice for a row" in refusal.message


@given(st.data())
def test_pieces_that_lie_in_each_other_come_in_the_order_of_their_rows(data: st.DataObject) -> None:
    owners = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=40))
    of_piece = {piece: [row for row, owner in enumerate(owners) if owner == piece] for piece in set(owners)}
    pieces = [
        PackedPiece(path=str(piece), skip=0, part=ColumnRows(fragment=0, rows=len(rows), first=rows[0], last=rows[-1]))
        for piece, rows in of_piece.items()
    ]

    def open_piece(piece: PackedPiece) -> Iterator[Placed]:
        return (placed(part, part) for part in cut(of_piece[int(piece.path)], [2, 3]))

    found = [int(place) for places, _ in in_order(pieces, open_piece) for place in places]

    assert found == list(range(len(owners)))

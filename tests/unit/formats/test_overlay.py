"""Values put over the rows of a fragment: equal to what a list says, however they come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_formats.lance.packing.overlay import Placed, overlaid
from checkpoint_formats.lance.packing.reader import in_order
from checkpoint_protocol.records import ColumnRows, PackedPiece

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

    with pytest.raises(ValueError, match="staged"):
        list(overlaid(5, SCHEMA, staged))


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

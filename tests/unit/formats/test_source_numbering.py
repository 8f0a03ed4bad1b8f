"""Rows numbered from the start of a file."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_formats.files.numbering import number_rows
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.rows.positions import Range

SCHEMA = pa.schema([("id", pa.int64())])


def batches(sizes: list[int]) -> list[pa.RecordBatch]:
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    return [
        pa.RecordBatch.from_pydict({"id": list(range(start, start + size))}, SCHEMA)
        for start, size in zip(starts, sizes, strict=True)
    ]


def read(sizes: list[int], start: int, end: int | None, rows: int = 2) -> list[tuple[list[int], int, int | None]]:
    piece = Range(file=0, start=start, end=end)
    chunks = number_rows("x.gz", iter(batches(sizes)), piece, SCHEMA, BatchSizing(60.0, scale=rows / 65_536))
    return [(chunk.batch.column(0).to_pylist(), chunk.start, chunk.end) for chunk in chunks]


@settings(deadline=None)
@given(sizes=st.lists(st.integers(0, 5), max_size=6), start=st.integers(0, 40), rows=st.integers(1, 5))
def test_rows_from_any_position_to_the_end(sizes: list[int], start: int, rows: int) -> None:
    total = sum(sizes)
    start = min(start, total)
    chunks = read(sizes, start, None, rows)
    assert [number for numbers, _, _ in chunks for number in numbers] == list(range(start, total))
    assert [chunk[1] for chunk in chunks] == [start, *(chunk[2] for chunk in chunks[:-1])]
    assert [chunk[2] is None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert all(numbers for numbers, _, _ in chunks[:-1])


@settings(deadline=None)
@given(sizes=st.lists(st.integers(0, 5), max_size=6), bounds=st.tuples(st.integers(0, 40), st.integers(0, 40)))
def test_rows_between_two_positions(sizes: list[int], bounds: tuple[int, int]) -> None:
    start, end = sorted(min(bound, sum(sizes)) for bound in bounds)
    chunks = read(sizes, start, end)
    assert [number for numbers, _, _ in chunks for number in numbers] == list(range(start, end))
    assert chunks[-1][2] == end


@pytest.mark.parametrize(("start", "end"), [(6, None), (0, 6), (5, 6)])
def test_file_that_has_become_shorter_is_noticed(start: int, end: int | None) -> None:
    with pytest.raises(NeedsChange, match=r"x\.gz") as noticed:
        read([3, 2], start, end)
    assert noticed.value.reason == reasons.SOURCE_CHANGED


def test_chunk_is_as_large_as_the_pace_says_when_it_is_taken() -> None:
    sizing = BatchSizing(60.0, scale=1 / 65_536)
    sizes = []
    for chunk in number_rows("x", iter(batches([100])), Range(file=0, start=0, end=None), SCHEMA, sizing):
        sizes.append(chunk.batch.num_rows)
        sizing.scale *= 4
    assert sizes == [1, 4, 16, 64, 15]

"""Parts of a chunk, for a step that is to have few rows at a time: together they cover what the chunk covers."""

from __future__ import annotations

import pyarrow as pa
import pytest

from checkpoint_formats.port import Chunk
from checkpoint_work.tasks.rows_by_position import PlacedChunk
from tests.support.records import rows_file


@pytest.mark.parametrize("most_rows", [1, 2, 3])
def test_parts_cover_rows_that_were_left_out_before_between_and_behind_the_others(most_rows: int) -> None:
    kept = [1, 2, 5, 9]
    batch = pa.record_batch({"id": pa.array(kept, pa.int64())})
    chunk = PlacedChunk(0, rows_file(100), Chunk(batch, 20, 32, kept=pa.array(kept, pa.uint64())))

    parts = list(chunk.parts(most_rows))

    ends = [part.chunk.end for part in parts]
    assert [part.chunk.start for part in parts] == [20, *ends[:-1]]
    assert ends[-1] == 32
    assert [one for part in parts for one in part.rows.column("id").to_pylist()] == kept
    found = [part.identity_of(number).range for part in parts for number in range(part.rows.num_rows)]
    assert [(row.start, row.end) for row in found] == [(20 + one, 21 + one) for one in kept]

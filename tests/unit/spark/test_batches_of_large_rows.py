"""Rows that are joined to batches for a step are bounded in bytes too: images may have megabytes each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from checkpoint_work.steps.batches import MOST_BYTES_JOINED, Group, each_alone, of_at_least, of_exactly
from tests.support.batches import Rows

MB = 1 << 20


class Images(Rows):
    """A batch of one row of so many bytes. All of them share their bytes."""

    def __init__(self, number: int, content: pa.Buffer) -> None:
        super().__init__(number, number + 1)
        self.content = content

    @property
    def rows(self) -> pa.RecordBatch:
        offsets = pa.py_buffer(np.array([0, self.content.size], np.int32))
        return pa.record_batch({"content": pa.Array.from_buffers(pa.binary(), 1, [None, offsets, self.content])})

    def slice(self, start: int, end: int) -> Images:
        return Images(self.start + start, self.content)


def images(count: int, size_bytes: int) -> Iterator[Group[Images]]:
    content = pa.py_buffer(np.zeros(size_bytes, np.uint8))
    return each_alone(Images(number, content) for number in range(count))


@pytest.mark.parametrize(
    ("size_bytes", "sizes"), [(1 * MB, [4, 4, 1]), (100 * MB, [2, 2, 2, 2, 1]), (MOST_BYTES_JOINED + 1, [1] * 9)]
)
def test_batches_of_an_exact_size_have_fewer_rows_where_these_are_very_large(size_bytes: int, sizes: list[int]) -> None:
    given = list(of_exactly(images(9, size_bytes), 4))

    assert [len(group.rows) for group in given] == sizes
    assert [batch.start for group in given for batch in group.batches] == list(range(9))


@pytest.mark.parametrize(("size_bytes", "sizes"), [(1 * MB, [4, 4, 1]), (100 * MB, [2, 2, 2, 2, 1])])
def test_rows_that_are_done_at_once_are_fewer_where_they_are_very_large(size_bytes: int, sizes: list[int]) -> None:
    given = list(of_at_least(images(9, size_bytes), 4, 65_536))

    assert [group.source_rows for group in given] == sizes
    assert [batch.start for group in given for batch in group.batches] == list(range(9))

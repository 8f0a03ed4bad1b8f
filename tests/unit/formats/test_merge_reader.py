"""The reader of a merge: what it gives of a file covers all of it, and the rest is read where another has stopped."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_formats.merging.reading import MatchingReader
from checkpoint_formats.merging.rewriting import RewritingReader
from checkpoint_formats.port import Chunk, in_chunks
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol.records import Merge, MergeKeysRecord
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.tables import WhenMatched
from tests.unit.formats.test_merging import made, placed, wanted

SCHEMA = pa.schema([("id", pa.int64())])
ROWS = 200_000
FILE = SourceFile(path="/lake/a.parquet", etag="", size_bytes=1, unit="rows", end=ROWS)


class RowNumbers:
    """A file whose rows have their own numbers as ids, but that every tenth one is deleted."""

    def align(self, file: SourceFile, position: int, slack: int) -> int:
        return position

    def check_unchanged(self, file: SourceFile) -> None:
        pass

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        assert piece.end is not None
        ids = pa.RecordBatch.from_arrays([pa.array(np.arange(piece.start, piece.end))], schema=schema)
        for chunk in in_chunks(ids, piece.start, piece.end, schema, sizing):
            alive = [number for number in range(chunk.batch.num_rows) if (chunk.start + number) % 10]
            kept = pa.array(alive, pa.int64())
            yield Chunk(chunk.batch.take(kept), chunk.start, chunk.end, kept)


def reader(keys: list[int], resources: ExitStack, when_matched: WhenMatched = "Update") -> MatchingReader:
    _, record, ledger = made([placed(keys)], wanted(when_matched))
    record = MergeKeysRecord(**{**record.model_dump(), "files": ("/staged/0.parquet",)}) if when_matched == "Ignore" else record
    merge = Merge(keys=("id",), when_matched=when_matched, on_duplicate="Fail", order_by=None, attempts=(1,), since=None)
    return MatchingReader(RowNumbers(), merge, record, ledger.merges.read_part, SCHEMA, resources)


def rows_of(chunks: list[Chunk]) -> list[tuple[str, int]]:
    return [(row["file_path"], row["pos"]) for chunk in chunks for row in chunk.batch.to_pylist()]


@pytest.mark.parametrize("when_matched", ["Update", "Ignore"])
def test_chunks_cover_the_file_without_gaps_and_the_rest_is_found_from_the_end_of_any_of_them(when_matched: WhenMatched) -> None:
    keys = list(range(5, ROWS + 5))
    with ExitStack() as resources:
        found = reader(keys, resources, when_matched)
        chunks = list(found.read(FILE, Range(file=0, start=0, end=ROWS), SCHEMA, BatchSizing(1.0)))
        ends = [chunk.end or 0 for chunk in chunks[:-1]]
        rest = [list(found.read(FILE, Range(file=0, start=end, end=ROWS), SCHEMA, BatchSizing(1.0))) for end in ends]

    assert len(chunks) == 3
    assert [chunk.start for chunk in chunks] == [0, *ends]
    assert chunks[-1].end == ROWS
    alive = [number for number in range(5, ROWS) if number % 10]
    expected = [(FILE.path, number) if when_matched == "Update" else ("/staged/0.parquet", number - 5) for number in alive]
    assert rows_of(chunks) == expected
    for number, following in enumerate(rest):
        assert rows_of([*chunks[: number + 1], *following]) == expected


def test_a_file_without_such_rows_is_covered_by_one_chunk_without_rows_and_no_file_is_cut() -> None:
    with ExitStack() as resources:
        found = reader([-1], resources)
        (chunk,) = found.read(FILE, Range(file=0, start=0, end=ROWS), SCHEMA, BatchSizing(1.0))
        assert (chunk.batch.num_rows, chunk.start, chunk.end) == (0, 0, ROWS)
        assert found.align(FILE, 10, 5) == ROWS


def test_keys_are_stored_as_parquet_that_says_nothing_of_the_users_names() -> None:
    keys, _, ledger = made([placed([3, 1, 2])], wanted())

    table = pq.read_table(io.BytesIO(ledger.merges.read_part(keys.parts[0])))

    assert table.to_pydict() == {"k0": [1, 2, 3], "file": [0, 0, 0], "pos": [1, 2, 0]}


def test_of_a_file_with_rows_that_go_all_rows_are_given_also_where_only_the_rest_is_read() -> None:
    # Chunks stay as small as the first one, since nobody tells here how long each took: of many rows there are many.
    few = 5_000
    file = SourceFile(path=FILE.path, etag="", size_bytes=1, unit="rows", end=few)
    with ExitStack() as resources:
        matching = reader([5, 17, -1], resources)
        rewriting = RewritingReader(matching.inner, matching.rows_to_delete, SCHEMA)
        for start in (0, 100, few - 5):
            chunks = list(rewriting.read(file, Range(file=0, start=start, end=few), SCHEMA, BatchSizing(1.0)))

            rows = [row for chunk in chunks for row in chunk.batch.to_pylist()]
            assert [row["row"]["id"] for row in rows] == [number for number in range(start, few) if number % 10]
            assert [row["row"]["id"] for row in rows if not row["stays"]] == [number for number in (5, 17) if number >= start]
            assert {row["file_path"] for row in rows} == {FILE.path}
            assert (chunks[0].start, chunks[-1].end) == (start, few)


def test_of_a_file_without_rows_that_go_nothing_is_given() -> None:
    with ExitStack() as resources:
        matching = reader([-1, 10], resources)
        rewriting = RewritingReader(matching.inner, matching.rows_to_delete, SCHEMA)
        (chunk,) = rewriting.read(FILE, Range(file=0, start=0, end=ROWS), SCHEMA, BatchSizing(1.0))

        assert (chunk.batch.num_rows, chunk.start, chunk.end) == (0, 0, ROWS)

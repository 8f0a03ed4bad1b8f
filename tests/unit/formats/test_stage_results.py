"""The result of a stage: what was staged is read back, with the types that it had, from any position to any other."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_formats.planning import plan_tasks
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_formats.stage_results.reader import StageResultReader, source_file, stored_schema
from checkpoint_formats.stage_results.stager import StageResultStager
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import StageFile, StageTarget
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range
from tests.support.effort import examples

NUMBERS = pa.schema([pa.field("n", pa.int64()), pa.field("text", pa.string())])
#: Types that other file formats change, or do not have.
EXACT = pa.schema(
    [
        pa.field("seconds", pa.timestamp("s", "Europe/Berlin")),
        pa.field("nanos", pa.timestamp("ns")),
        pa.field("took", pa.duration("us")),
        pa.field("interval", pa.month_day_nano_interval()),
        pa.field("half", pa.float16()),
        pa.field("unsigned", pa.uint64(), nullable=False),
        pa.field("price", pa.decimal256(60, 3)),
        pa.field("vector", pa.list_(pa.float32(), 3)),
        pa.field("nested", pa.struct([pa.field("at", pa.time32("s")), pa.field("tags", pa.large_list(pa.large_string()))])),
        pa.field("counts", pa.map_(pa.string(), pa.int8())),
        pa.field("noted", pa.string(), metadata={b"unit": b"kg"}),
    ]
)


def target_of(folder: Path, schema: pa.Schema) -> StageTarget:
    return StageTarget(folder=str(folder), arrow_schema=encode_schema(schema))


def staged(target: StageTarget, batches: Iterator[pa.RecordBatch], target_bytes: int = 1 << 20) -> tuple[StageFile, ...]:
    return StageResultStager(target, "1-0", target_bytes, StorageSettings()).stage(batches)


def rows_of(file: SourceFile, piece: Range, schema: pa.Schema, scale: float = 1.0) -> list[dict[str, Any]]:
    """Read a piece, and check that its chunks go from its start to its end without gaps."""
    at: int | None = piece.start
    rows = []
    for chunk in StageResultReader(StorageSettings()).read(file, piece, schema, BatchSizing(60.0, scale=scale)):
        assert (chunk.start, chunk.end) == (at, chunk.start + chunk.batch.num_rows)
        assert chunk.batch.schema.equals(schema, check_metadata=True)
        at = chunk.end
        rows += chunk.batch.to_pylist()
    assert at == (file.end if piece.end is None else piece.end)
    return rows


@settings(max_examples=examples(60), deadline=None)
@given(
    sizes=st.lists(st.integers(0, 900), max_size=12),
    wide=st.booleans(),
    target_bytes=st.sampled_from([1, 20_000, 1 << 20]),
    cores=st.integers(1, 4),
    split=st.sampled_from([1, 4_000, 1 << 20]),
)
def test_the_tasks_of_a_plan_read_each_staged_row_once(
    sizes: list[int], wide: bool, target_bytes: int, cores: int, split: int
) -> None:
    text = "x" * (40_000 if wide else 5)
    rows = [{"n": number, "text": f"{number} {text}"} for number in range(min(sum(sizes), 900 if wide else sum(sizes)))]
    with tempfile.TemporaryDirectory() as folder:
        target = target_of(Path(folder), NUMBERS)
        starts = [sum(sizes[:number]) for number in range(len(sizes))]
        given_batches = (
            pa.RecordBatch.from_pylist(rows[start : start + size], NUMBERS) for start, size in zip(starts, sizes, strict=True)
        )
        files = staged(target, given_batches, target_bytes)
        assert sum(file.rows for file in files) == len(rows)
        assert all(Path(folder, file.name).stat().st_size == file.size_bytes for file in files)
        inputs = [source_file(target, file) for file in files]
        tasks = plan_tasks(inputs, (), StageResultReader(StorageSettings()).align, cores, split)
        read = [row for task in tasks for piece in task for row in rows_of(inputs[piece.file], piece, NUMBERS)]
    assert sorted(read, key=lambda row: row["n"]) == rows


def test_every_type_is_read_as_it_was_staged(tmp_path: Path) -> None:
    row = {
        "seconds": dt.datetime(2026, 11, 24, 12, tzinfo=dt.UTC),
        "nanos": 1_764_000_000_000_000_001,
        "took": dt.timedelta(microseconds=7),
        "interval": pa.MonthDayNano([1, 2, 3]),
        "half": 1.5,
        "unsigned": 2**64 - 1,
        "price": Decimal("12345678901234567890123456789012345678901234567890.125"),
        "vector": [1.0, 2.0, 3.0],
        "nested": {"at": dt.time(12, 30), "tags": ["a", None]},
        "counts": [("a", 1)],
        "noted": None,
    }
    batch = pa.RecordBatch.from_pylist([row, {**row, "vector": None, "nested": None}], EXACT)
    target = target_of(tmp_path, EXACT)
    (file,) = staged(target, iter([batch]))
    reader = StageResultReader(StorageSettings())
    (chunk,) = reader.read(source_file(target, file), Range(file=0, start=0), EXACT, BatchSizing(60.0, scale=1.0))
    assert chunk.batch.equals(batch, check_metadata=True)


def test_no_rows_are_no_file(tmp_path: Path) -> None:
    assert staged(target_of(tmp_path, NUMBERS), iter([pa.RecordBatch.from_pylist([], NUMBERS)])) == ()
    assert list(tmp_path.iterdir()) == []


def test_steps_that_end_the_task_leave_nothing_that_looks_whole(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"n": 1, "text": "a" * (5 << 20)}], NUMBERS)
        raise RuntimeError("the step")

    with pytest.raises(RuntimeError, match="the step"):
        staged(target_of(tmp_path, NUMBERS), batches())
    assert list(tmp_path.glob("*.arrow")) == []


def test_a_file_that_is_gone_is_told_with_the_way_out(tmp_path: Path) -> None:
    target = target_of(tmp_path, NUMBERS)
    (file,) = staged(target, iter([pa.RecordBatch.from_pylist([{"n": 1, "text": "a"}], NUMBERS)]))
    (tmp_path / file.name).unlink()
    with pytest.raises(NeedsChange, match="which a stage of the write has made, is gone; change an argument"):
        rows_of(source_file(target, file), Range(file=0, start=0), NUMBERS)


def test_dictionaries_are_stored_as_their_values_and_all_else_stays() -> None:
    encoded = pa.dictionary(pa.int8(), pa.string())
    given_schema = pa.schema([pa.field("a", encoded), pa.field("b", pa.struct([pa.field("c", pa.list_(encoded))])), *EXACT])
    stored = stored_schema(given_schema)
    assert stored.field("a").type == pa.string()
    assert stored.field("b").type == pa.struct([pa.field("c", pa.list_(pa.string()))])
    assert pa.schema(list(stored)[2:]).equals(EXACT, check_metadata=True)

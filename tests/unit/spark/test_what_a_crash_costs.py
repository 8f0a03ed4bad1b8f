"""What a crash can cost: one interval, or a twentieth of the time that a task has been at work. In simulated time."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_formats.none import NoStager
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import CheckpointSpec
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.rows.positions import Range
from checkpoint_work.tasks.rows_by_position import RowsByPosition
from checkpoint_work.tasks.segments import Task, run_task
from tests.support.reading import open_reader
from tests.support.steps_here import steps_here
from tests.support.stores import MemoryStore

HOUR_S = 3600.0
_STEP = f"{__name__}:_slow"


class _Time:
    now = 0.0
    a_row_s = 0.0


def _slow(batch: pa.RecordBatch) -> pa.RecordBatch:
    _Time.now += batch.num_rows * _Time.a_row_s
    return batch


class _NotingSeals(MemoryStore):
    """Notes when seals are put."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def put_if_absent(self, path: str, data: bytes) -> bool:
        is_put = super().put_if_absent(path, data)
        if "/seals/" in path and is_put:
            self.times.append(_Time.now)
        return is_put


def seals_of(folder: Path, a_row_s: float, hours: float, checkpoint: CheckpointSpec) -> list[float]:
    """Return when a task, whose step takes so long for each row, seals in so many hours of work."""
    rows = int(hours * HOUR_S / a_row_s)
    pq.write_table(pa.table({"id": pa.array(range(rows), pa.int32())}), folder / "a.parquet")
    reader = open_reader("parquet")
    files, schema = reader.describe([str(folder / "a.parquet")])
    _Time.now, _Time.a_row_s = 0.0, a_row_s
    store, stager = _NotingSeals(), NoStager()
    run_task(
        Task(1, 0, "0" * 64, checkpoint.interval, checkpoint.minimum_bytes),
        RowsByPosition((Range(file=0, start=0, end=rows),), files, schema, reader),
        steps_here(stager, [Step(call=_STEP, input="arrow")]),
        stager,
        Ledger(store, EpochKey("ab" * 16, 1)),
        lambda: _Time.now,
    )
    return store.times


@pytest.mark.parametrize(
    ("a_row_s", "hours", "most_files"), [(0.001, 1, 45), (0.03, 1, 45), (1.0, 1, 45), (1.0, 10, 110), (10.0, 10, 120)]
)
def test_a_crash_at_any_moment_costs_no_more_than_an_interval_or_a_twentieth_of_the_work(
    tmp_path: Path, a_row_s: float, hours: float, most_files: int
) -> None:
    """Answers of four bytes, and defaults: `minimumBytes` is never reached."""
    checkpoint = CheckpointSpec(uri="unused")

    times = seals_of(tmp_path, a_row_s, hours, checkpoint)

    costs = [(after - before, max(checkpoint.interval, after / 20)) for before, after in pairwise([0.0, *times])]
    assert [(cost, bound) for cost, bound in costs if cost > bound + 1e-6] == []
    assert hours * HOUR_S / 600 < len(times) <= most_files

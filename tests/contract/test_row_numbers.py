"""Of which row each result is: the same in the process of the task, for many rows at once, and in a process of the steps."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from checkpoint_formats.port import Chunk
from checkpoint_protocol.manifest.steps import Step
from checkpoint_work.step_process.process import Opening
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.flow import Flow
from checkpoint_work.steps.row_numbers import ROW_NUMBER, asking_for_numbers
from checkpoint_work.tasks.row_lineage import LineageOfSegment
from checkpoint_work.tasks.rows_by_position import PlacedChunk
from checkpoint_work.tasks.steps_in_process import StepsInProcess
from tests.support.records import rows_file

SCHEMA = asking_for_numbers(pa.schema([("id", pa.int64())]))
KILLS = 37


def as_often(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from ({"id": row["id"]} for _ in range(row["id"] % 3))


def kills_or_as_often(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if row["id"] == KILLS:
        os._exit(7)
    return as_often(row)


def step(name: str, **fields: Any) -> Step:
    return Step.model_validate_json(json.dumps({"call": f"{__name__}:{name}", "input": "row", **fields}))


def chunks(rows: int, size: int, end_is_known: bool = True) -> Iterator[PlacedChunk]:
    """Give rows of which every fifth was left out: their numbers are their positions."""
    for start in range(0, rows, size):
        kept = [number for number in range(min(size, rows - start)) if (start + number) % 5 != 4]
        batch = pa.record_batch({"id": pa.array([start + number for number in kept], pa.int64())})
        is_last = start + size >= rows
        end = None if is_last and not end_is_known else min(rows, start + size)
        yield PlacedChunk(0, rows_file(rows), Chunk(batch, start, end, kept=pa.array(kept, pa.uint64())))


def expected(killed: int | None = None) -> list[int]:
    return [row % 3 if row % 5 != 4 and row != killed else 0 for row in range(100)]


@pytest.mark.parametrize("kind", ["in the task", "waiting", "in a process of their own"])
def test_each_row_is_counted_to_the_position_that_it_was_made_of(kind: str) -> None:
    flow: Any
    if kind == "in a process of their own":
        flow = StepsInProcess(Opening((step("kills_or_as_often"),), SCHEMA, True))
    else:
        flow = Flow(Pipeline([step("as_often", **({"concurrency": 8} if kind == "waiting" else {}))]), SCHEMA, True)
    lineage = LineageOfSegment()

    for finished in flow.finished(chunks(100, 30)):
        group = lineage.begin(finished.batches)
        for made in finished.results(lambda _failed: None):
            assert ROW_NUMBER not in group.taken(made).schema.names
        group.end()

    assert lineage.runs is not None
    counts = [(positions, rows) for pieces, positions, rows in lineage.runs for _ in range(pieces)]
    killed = KILLS if kind == "in a process of their own" else None
    assert counts == [(1, made) for made in expected(killed)]


def test_behind_an_end_that_nobody_knew_nothing_is_counted() -> None:
    lineage = LineageOfSegment()
    (only,) = chunks(3, 3, end_is_known=False)

    lineage.add([only], np.array([0, 1, 2]), 3)
    assert lineage.runs == ((3, 1, 1),)
    lineage.add([only], np.array([0, 1, 2]), 3)

    assert lineage.runs is None

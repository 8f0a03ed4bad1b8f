"""Of which row each result is: the same in the process of the task, for many rows at once, and in a process of the steps."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_formats.port import Chunk
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.rows.lineage import MOST_RUNS, rows_made_of
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


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([3_000, 20_000]), st.integers(1, 4))
def test_of_many_rows_that_give_now_none_and_now_several_what_is_told_is_never_wrong(seed: int, rows: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    plain = rows // 4
    made = np.concatenate([np.ones(plain, np.int64), rng.integers(0, 3, rows - plain)])
    lineage = LineageOfSegment()
    for part in np.array_split(np.arange(rows), groups):
        batch = pa.record_batch({"id": pa.array(part)})
        chunk = PlacedChunk(0, rows_file(rows), Chunk(batch, int(part[0]), int(part[-1]) + 1))
        numbers = np.repeat(np.arange(len(part)), made[part])
        lineage.add([chunk], numbers, len(numbers))

    runs = lineage.runs
    assert runs is not None
    assert len(runs) <= MOST_RUNS
    assert sum(pieces * positions for pieces, positions, _ in runs) == rows
    assert sum(pieces * each for pieces, _, each in runs) == made.sum()
    ends = np.append(0, np.cumsum(made))
    for position in rng.integers(0, rows, 20).tolist():
        spans, is_exact = rows_made_of(runs, [(position, position + 1)])
        told = {number for start, end in spans for number in range(start, end)}
        true = set(range(int(ends[position]), int(ends[position + 1])))
        assert true <= told
        assert true == told or not is_exact
        assert len(told) <= 2 + 16 * rows // MOST_RUNS
        assert is_exact or position >= plain

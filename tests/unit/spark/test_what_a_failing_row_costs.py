"""A row that fails ends its task. The groups of rows before its own are sealed first, so that they are not computed again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_formats.none import NoStager
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.records import Seal
from checkpoint_protocol.rows.positions import Range
from checkpoint_work.steps.quarantine import Allowance
from checkpoint_work.tasks.rows_by_position import RowsByPosition
from checkpoint_work.tasks.segments import Task, run_task
from tests.support.reading import open_reader
from tests.support.steps_here import steps_here
from tests.support.stores import MemoryStore

ROWS = 3000
POISON = 2000
MOST_FAILED = 5


class _Calls:
    count: ClassVar[Counter[int]] = Counter()
    poison: int | None = None


def _row(row: dict[str, Any]) -> dict[str, Any]:
    _Calls.count[row["id"]] += 1
    if row["id"] == _Calls.poison:
        raise ValueError("poison")
    return row


def _several(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Fails after it has given rows."""
    yield row
    yield _row(row)


def _batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    for number in batch.column("id").to_pylist():
        _row({"id": number})
    return batch


STEPS = {
    "a row at a time": Step(call=f"{__name__}:_row", input="row"),
    "several rows of one": Step(call=f"{__name__}:_several", input="row"),
    "a batch": Step(call=f"{__name__}:_batch", input="arrow"),
    "batches of 100": Step(call=f"{__name__}:_batch", input="arrow", batch_size=100),
    "eight rows at once": Step(call=f"{__name__}:_row", input="row", concurrency=8),
}


class Source:
    def __init__(self, folder: Path) -> None:
        pq.write_table(pa.table({"id": pa.array(range(ROWS), pa.int32())}), folder / "a.parquet")
        self.reader = open_reader("parquet")
        self.files, self.schema = self.reader.describe([str(folder / "a.parquet")])
        self.ledger = Ledger(MemoryStore(), EpochKey("ab" * 16, 1))

    def run(self, step: Step, allowance: Allowance | None = None) -> tuple[Seal, ...]:
        """Run the task, and return its chain. Its clock stands still: no segment ends because of its age."""
        stager = NoStager()
        rows = RowsByPosition((Range(file=0, start=0, end=ROWS),), self.files, self.schema, self.reader)
        steps = steps_here(stager, [step], sets_apart=allowance is not None)
        run_task(Task(1, 0, "0" * 64, 3600.0, 1 << 30, allowance), rows, steps, stager, self.ledger, lambda: 0.0)
        return self.chain()

    def chain(self) -> tuple[Seal, ...]:
        return self.ledger.chains.read_chain(1, 0)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    _Calls.count, _Calls.poison = Counter(), POISON
    return Source(tmp_path)


def rows_in(chain: tuple[Seal, ...]) -> int:
    return sum(seal.rows_read for seal in chain)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_rows_before_the_group_of_a_failing_row_are_called_once(source: Source, step: Step) -> None:
    with pytest.raises(NeedsChange, match="poison"):
        source.run(step)
    (seal,) = source.chain()
    sealed = seal.rows_read
    assert 0 < sealed <= POISON
    assert not seal.last

    _Calls.poison = None
    chain = source.run(step)

    assert rows_in(chain) == ROWS
    called_again = [number for number, calls in _Calls.count.items() if calls > 1]
    assert sorted(_Calls.count) == list(range(ROWS))
    assert all(number >= sealed for number in called_again)


def test_a_row_that_fails_first_leaves_no_seal(source: Source) -> None:
    _Calls.poison = 0

    with pytest.raises(NeedsChange, match="poison"):
        source.run(STEPS["a row at a time"])

    assert source.chain() == ()


@pytest.mark.parametrize("step", [STEPS["a row at a time"], STEPS["eight rows at once"]], ids=["one by one", "at once"])
def test_rows_set_apart_in_a_group_that_ends_the_task_are_not_sealed(source: Source, step: Step) -> None:
    """Each row fails from 1,990 on: the sixth is one too many, and those of its group that failed before it are tried again."""
    failing = Step(call=f"{__name__}:_from_1990", input="row", concurrency=step.concurrency)
    allowance = Allowance(MOST_FAILED, "maxRows allows 5")

    with pytest.raises(CheckpointError, match="6 rows of one task failed"):
        source.run(failing, allowance)

    chain = source.chain()
    assert 0 < rows_in(chain) <= 1995
    assert sum(seal.rows_quarantined for seal in chain) == max(0, rows_in(chain) - 1990)

    _Calls.poison = None
    whole = source.run(STEPS["a row at a time"], allowance)
    assert rows_in(whole) == ROWS
    assert sum(seal.rows_quarantined for seal in whole) == sum(seal.rows_quarantined for seal in chain)


def _from_1990(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] >= 1990:
        raise ValueError("poison")
    return row

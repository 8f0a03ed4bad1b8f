"""The end of an executor, as its tasks hear of it: what they seal before it, and what the next try makes of that."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_formats.none import NoStager
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import Seal
from checkpoint_protocol.rows.positions import Range
from checkpoint_work.tasks.ending import Ending, Left
from checkpoint_work.tasks.rows_by_position import RowsByPosition
from checkpoint_work.tasks.segments import Task, run_task
from checkpoint_work.tasks.task_process import was_left
from tests.support.reading import open_reader
from tests.support.steps_here import steps_here
from tests.support.stores import MemoryStore

ROWS = 4_000


class Ended(Exception):
    """Stands for the end of the process."""


def end() -> NoReturn:
    raise Ended


def ending_in(folder: Path, try_number: int = 0) -> Ending:
    return Ending(folder, try_number, end)


@dataclass
class Announced(NoStager):
    """Hears of the end while a batch of the first segment is with the steps."""

    ending: Ending
    after: int
    _batches: int = field(default=0, init=False)

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[()]:
        for _ in batches:
            self._batches += 1
            if self._batches == self.after:
                self.ending.announce()
        return ()


def run(folder: Path, ledger: Ledger, ending: Ending, after: int = 0, rows: int = ROWS) -> tuple[Seal, ...]:
    """Run a task, whose segments would last an hour, and return what it has sealed."""
    source = folder / "in"
    if not source.exists():
        source.mkdir()
        pq.write_table(pa.table({"id": range(rows)}), source / "a.parquet", row_group_size=100)
    reader = open_reader("parquet")
    files, schema = reader.describe([str(source)])
    pieces = (Range(file=0, start=0, end=rows),)
    stager = Announced(ending, after)
    run_task(
        Task(attempt=1, number=0, code_digest="0" * 64, interval_s=3600, minimum_bytes=0),
        RowsByPosition(pieces, files, schema, reader),
        steps_here(stager),
        stager,
        ledger,
        iter(range(100_000)).__next__,
        ending=ending,
    )
    return ledger.chains.read_chain(1, 0)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(MemoryStore(), EpochKey("ab" * 16, 1))


def test_a_task_seals_after_the_batch_that_is_at_work_and_goes_no_further(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(Left):
        run(tmp_path, ledger, ending_in(tmp_path, 2), after=3)

    (seal,) = ledger.chains.read_chain(1, 0)
    assert 0 < seal.rows_read < ROWS
    assert (seal.last, seal.left_by_try) == (False, 2)


def test_the_next_try_goes_on_after_it(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(Left):
        run(tmp_path, ledger, ending_in(tmp_path), after=2)

    chain = run(tmp_path, ledger, Ending())

    assert [seal.left_by_try for seal in chain] == [0, None]
    assert sum(seal.rows_read for seal in chain) == ROWS


def test_a_task_that_is_at_its_last_batch_is_done(ledger: Ledger, tmp_path: Path) -> None:
    (seal,) = run(tmp_path, ledger, ending_in(tmp_path), after=1, rows=4)

    assert seal.last
    assert seal.left_by_try is None


def test_only_the_try_after_one_that_left_is_free_of_suspicion(ledger: Ledger, tmp_path: Path) -> None:
    assert not was_left(ledger, 1, 0, 0)
    with pytest.raises(Left):
        run(tmp_path, ledger, ending_in(tmp_path, 1), after=2)

    assert was_left(ledger, 1, 0, 1)
    # The try after that one died without a word: the one after it is careful.
    assert not was_left(ledger, 1, 0, 2)


def test_a_task_is_awaited_until_it_ends(tmp_path: Path) -> None:
    ending = ending_in(tmp_path)

    with ending.heeded():
        assert ending.is_awaited()
    assert not ending.is_awaited()

    with pytest.raises(ValueError, match="of a step"), ending.heeded():
        raise ValueError("of a step")
    assert not ending.is_awaited()


def test_a_task_that_has_left_waits_for_the_end_and_nobody_waits_for_it(tmp_path: Path) -> None:
    awaited: list[bool] = []

    def wait() -> NoReturn:
        awaited.append(ending.is_awaited())
        raise Ended

    ending = Ending(tmp_path, 0, wait)
    with pytest.raises(Ended), ending.heeded():
        raise Left
    assert awaited == [False]


def test_a_task_that_comes_when_the_end_is_announced_does_nothing(tmp_path: Path) -> None:
    ending = ending_in(tmp_path)
    ending.announce()
    begun = False

    with pytest.raises(Ended), ending.heeded():
        begun = True

    assert not begun


def test_a_task_whose_process_is_gone_is_not_awaited(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    (tmp_path / f"task-{gone.pid}").touch()
    assert not ending_in(tmp_path).is_awaited()

    (tmp_path / f"task-{os.getppid()}").touch()
    assert ending_in(tmp_path).is_awaited()


def test_without_a_folder_there_is_no_end_to_hear_of() -> None:
    ending = Ending.of({})
    ending.announce()

    assert not ending.is_announced()
    assert not ending.is_awaited()
    with ending.heeded():
        pass


def test_a_task_runs_where_somebody_has_removed_the_folder(tmp_path: Path) -> None:
    ending = ending_in(tmp_path / "gone")

    ending.announce()
    assert not ending.is_awaited()
    with ending.heeded():
        assert not ending.is_awaited()


def test_the_folder_is_the_environments(tmp_path: Path) -> None:
    assert Ending.of({"CHECKPOINTED_WRITE_ENDING": str(tmp_path)}, 3) == Ending(tmp_path, 3)

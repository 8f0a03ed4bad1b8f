"""A stateful stand-in for the step process, which passes the contract of the real one: tests/contract/test_step_process.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from checkpoint_formats.rows.selecting import ROW_ADDRESS
from checkpoint_work.step_process.process import FailedRow, Opening, Reply, StepProcessEnded
from checkpoint_work.steps.failing.failures import ErrorText
from checkpoint_work.steps.places import Place
from checkpoint_work.steps.row_numbers import ROW_NUMBER

KILLED = ErrorText("SIGSEGV", "its process was ended by SIGSEGV")
RAISED = ErrorText("ValueError", "raised")


@dataclass
class Behaviour:
    """What the steps do to rows, by their ids, and what was seen of all processes.

    `kills` is asked for each row whether it ends the process, with how often rows have done so before.
    """

    kills: Callable[[int, int], bool] = lambda _row, _ends: False
    raises: frozenset[int] = frozenset()
    kills_at_start: bool = False
    #: What a process raises when no more rows come.
    at_end: Exception | None = None
    started: int = 0
    ends: int = 0
    closed: int = 0
    given: list[list[int]] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    def start(self, opening: Opening) -> FakeStepProcess:
        self.started += 1
        return FakeStepProcess(opening, self)


@dataclass
class FakeStepProcess:
    """One process of them."""

    opening: Opening
    behaviour: Behaviour
    is_uncertain: bool = False
    calls: tuple[int, int, int] = (0, 0, 0)
    calls_left_running: int = 0
    is_open: bool = False
    has_ended: bool = False

    def open(self) -> None:
        if self.behaviour.kills_at_start:
            self._end(None)
        self.is_open = True

    def apply(self, rows: pa.RecordBatch, place: Place) -> Reply:
        return Reply((self._made(rows, place),), tuple(self._failed(rows)))

    def sample(self, rows: pa.RecordBatch, place: Place) -> pa.Schema:
        return self._made(rows, place).schema

    def end(self) -> None:
        if self.behaviour.at_end is not None:
            raise self.behaviour.at_end

    def close(self) -> None:
        self.behaviour.closed += 1

    def _made(self, rows: pa.RecordBatch, place: Place) -> pa.RecordBatch:
        assert self.is_open
        assert not self.has_ended
        ids = rows.column("id").to_pylist()
        self.behaviour.given.append(ids)
        self.behaviour.places.append(place.of_rows(len(ids)))
        for one in ids:
            if self.behaviour.kills(one, self.behaviour.ends):
                self._end(self.opening.steps[0].label)
        numbers = pa.array([number for number, one in enumerate(ids) if one not in self.behaviour.raises], pa.uint64())
        made, schema = rows.take(numbers), self.opening.schema
        if schema is None or schema.names[-1] not in (ROW_ADDRESS, ROW_NUMBER):
            return made
        return pa.RecordBatch.from_arrays([*made.columns, numbers], schema=schema)

    def _failed(self, rows: pa.RecordBatch) -> list[FailedRow]:
        ids = enumerate(rows.column("id").to_pylist())
        return [FailedRow(number, self.opening.steps[0].label, RAISED) for number, one in ids if one in self.behaviour.raises]

    def _end(self, step: str | None) -> None:
        self.has_ended = True
        self.behaviour.ends += 1
        raise StepProcessEnded(step, KILLED)

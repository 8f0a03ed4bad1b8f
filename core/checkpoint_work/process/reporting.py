"""What a driver and its tasks tell of themselves: their phase, and what is computed and not sealed yet.

No result rests on it, and it holds nothing up: threads of their own put it, and a store that does not answer is passed over. It
costs little: a driver puts at most 30 small objects a minute, lists six times a minute while tasks run, and reads 64 objects for
each listing at the most; a task that runs for ten seconds or longer puts one every ten seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Literal

from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.progress_reports import (
    MAX_TASKS,
    DriverPhase,
    DriverProgress,
    Entered,
    Overwrite,
    StartedAs,
    Work,
    encode_advice,
    read_report,
)
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.layout import EpochLayout
from checkpoint_protocol.store.object_store import ObjectStore
from checkpoint_protocol.store.parallel import in_threads


@dataclass(slots=True)
class AtWork:
    """The attempt at hand. Set by the thread that does it, in one assignment, and read by those that tell of it and watch it."""

    now: tuple[Ledger, int]


_TICK_S: Final = 2.0
#: The reports of the tasks are read once in so many ticks.
_TICKS_OF_A_LISTING: Final = 5
#: And after so many it is told again what was told: a second driver of the attempt may have overwritten it before it ended.
_TICKS_OF_A_REMINDER: Final = 30
_MOST_READS: Final = 64
_TASK_INTERVAL_S: Final = 10.0


@dataclass(slots=True)
class Activity:
    """What a driver is at. Written by its main thread, read by the one that tells."""

    phase: DriverPhase = "Planning"
    unit: Literal["rows", "bytes"] | None = None
    positions_known: int | None = None
    #: Of a driver that waits for the next epoch, or has: what it was started for.
    started_as: StartedAs | None = None
    #: Tells seconds since the driver's process began, or since it has taken the attempt up.
    age_s: Callable[[], float] = field(default=lambda: 0.0)
    _entered: dict[DriverPhase, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.enter(self.phase)

    def enter(self, phase: DriverPhase) -> None:
        # In one assignment, as another thread reads it.
        self._entered = {phase: round(1000 * self.age_s()), **self._entered}
        self.phase = phase

    @property
    def entered(self) -> tuple[Entered, ...]:
        """When the attempt was first in each phase, in the order of time."""
        found = (Entered(phase=phase, after_ms=after_ms) for phase, after_ms in self._entered.items())
        return tuple(sorted(found, key=lambda one: one.after_ms))

    def know(self, files: Iterable[SourceFile]) -> None:
        """Note how much the whole input is, if that is known before it is read, and all of it is counted in one unit."""
        total, unit = 0, None
        for index, file in enumerate(files):
            ends = [piece.end for piece in file.ranges(index)]
            if file.unit == "records" or unit not in (None, file.unit) or None in ends:
                return
            unit = file.unit
            total += sum((piece.end or 0) - piece.start for piece in file.ranges(index))
        self.unit, self.positions_known = unit, total if unit is not None else None


@dataclass(slots=True)
class DriverTeller:
    """Puts what a driver is at, where it has changed."""

    store: ObjectStore
    overwrite: Overwrite
    at_work: AtWork
    activity: Activity
    _told: DriverProgress | None = None
    _told_at: str = ""
    _ticks: int = 0
    #: What was read of each task's object, under the size and etag that a listing had shown.
    _read: dict[int, tuple[tuple[int, str | None], Work | None]] = field(default_factory=dict)

    def tick(self) -> None:
        """Do what is due. Raises CheckpointError where the store does not answer; the next tick tries again."""
        ledger, attempt = self.at_work.now
        at = ledger.at
        if (place := at.progress(attempt)) != self._told_at:
            self._told, self._told_at, self._read = None, place, {}
        is_running = self.activity.phase == "RunningTasks"
        if is_running and self._ticks % _TICKS_OF_A_LISTING == 0:
            self._look_at_tasks(at, attempt)
        if self._ticks % _TICKS_OF_A_REMINDER == 0:
            self._told = None
        self._ticks += 1
        now = DriverProgress(
            attempt=attempt,
            phase=self.activity.phase,
            unit=self.activity.unit,
            positions_known=self.activity.positions_known,
            work=tuple(work for _, (_, work) in sorted(self._read.items()) if work is not None)[:MAX_TASKS],
            started_as=self.activity.started_as,
            entered=self.activity.entered,
        )
        if now != self._told:
            self.overwrite(place, encode_advice(now))
            self._told = now

    def _look_at_tasks(self, at: EpochLayout, attempt: int) -> None:
        folder = at.works(attempt)
        listed = {
            task: (stored.size_bytes, stored.etag)
            for stored in islice(self.store.list(folder), 2 * MAX_TASKS)
            if (task := layout.number_of(stored.path, folder)) is not None
        }
        self._read = {task: known for task, known in self._read.items() if task in listed}
        new = [task for task, seen in listed.items() if task not in self._read or self._read[task][0] != seen or seen[1] is None]
        new = new[:_MOST_READS]
        found = in_threads(lambda task: read_report(self.store, at.work(attempt, task), Work), new)
        for task, work in zip(new, found, strict=True):
            self._read[task] = (listed[task], work)


@contextmanager
def telling(
    store: ObjectStore, overwrite: Overwrite, at_work: AtWork, activity: Activity, tick_s: float = _TICK_S
) -> Iterator[None]:
    """Tell what a driver is at while the body runs. Never fails."""
    teller = DriverTeller(store, overwrite, at_work, activity)
    ended = threading.Event()

    def run() -> None:
        while True:
            with suppress(CheckpointError):
                teller.tick()
            if ended.wait(tick_s):
                return

    threading.Thread(target=run, name="teller", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


@dataclass(frozen=True, slots=True)
class CallCounts:
    """How many calls a task has made of steps that wait, how many are on their way, and how many were made again."""

    ended: int = 0
    in_flight: int = 0
    tries_again: int = 0


@dataclass(slots=True)
class InHand:
    """The segment that a task works on: its link, rows and positions so far; and the calls of the task.

    `now` is changed by one assignment, so that another thread never sees a half.
    """

    now: tuple[int, int, int] = (0, 0, 0)
    count_calls: Callable[[], CallCounts] = CallCounts

    def begin(self, link: int) -> None:
        self.now = (link, 0, 0)

    def add(self, rows: int, positions: int) -> None:
        link, rows_before, positions_before = self.now
        self.now = (link, rows_before + rows, positions_before + positions)


@contextmanager
def telling_of_task(
    overwrite: Overwrite,
    delete: Callable[[Iterable[str]], None],
    path: str,
    task: int,
    in_hand: InHand,
    interval_s: float = _TASK_INTERVAL_S,
) -> Iterator[None]:
    """Tell what a task has in hand while the body runs, if that takes long enough, and remove it at the end. Never fails."""
    ended = threading.Event()

    def run() -> None:
        told: Work | None = None
        while not ended.wait(interval_s):
            (link, rows, positions), calls = in_hand.now, in_hand.count_calls()
            work = Work(
                task=task,
                link=link,
                rows=rows,
                positions=positions,
                calls=calls.ended,
                calls_in_flight=calls.in_flight,
                tries_again=calls.tries_again,
            )
            if work == told or not (positions or calls.ended or calls.in_flight):
                continue
            told = work
            with suppress(CheckpointError):
                overwrite(path, encode_advice(work))
        if told is not None:
            with suppress(CheckpointError):
                delete([path])

    threading.Thread(target=run, name="task-teller", daemon=True).start()
    try:
        yield
    finally:
        ended.set()

"""What drivers and tasks tell of themselves: shown where it is there, and in nobody's way where it is not."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import pytest

from checkpoint_control.progress.epoch_progress import Progress, TimeLeft, describe, how_far, measure, time_text
from checkpoint_control.progress.tallies import Tallies
from checkpoint_control.views.inspection import inspect_store
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.progress_reports import MAX_TASKS, DriverProgress, Work, encode_advice, read_report
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.store.object_store import StoredObject
from checkpoint_work.process.reporting import Activity, AtWork, DriverTeller, InHand, telling, telling_of_task
from tests.support.records import launch, ledger_over, plan, rows_file, seal
from tests.support.stores import MemoryStore
from tests.support.waiting import patience

PATIENCE_S = 20.0


@dataclass
class OverwritableStore(MemoryStore):
    """A store in memory whose advice can be overwritten; `requests` are those of who tells."""

    requests: list[str] = field(default_factory=list)
    is_down: bool = False
    was_put: threading.Event = field(default_factory=threading.Event)
    was_deleted: threading.Event = field(default_factory=threading.Event)

    def overwrite(self, path: str, data: bytes) -> None:
        self._ask(f"put {path.rpartition('/')[2]}")
        self.objects[path] = data
        self.was_put.set()

    def get(self, path: str, most_bytes: int) -> bytes | None:
        self._ask(f"get {path.rpartition('/')[2]}")
        return super().get(path, most_bytes)

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        self._ask("list")
        return super().list(folder)

    def delete(self, paths: Iterable[str]) -> None:
        super().delete(paths)
        self.was_deleted.set()

    def _ask(self, what: str) -> None:
        self.requests.append(what)
        if self.is_down:
            self.was_put.set()
            raise Retryable(reasons.STORE_UNAVAILABLE, "no answer")


def teller_over(store: OverwritableStore, activity: Activity) -> DriverTeller:
    return DriverTeller(store, store.overwrite, AtWork((ledger_over(store), 1)), activity)


def told(store: MemoryStore) -> DriverProgress | None:
    return read_report(store, ledger_over(store).at.progress(1), DriverProgress)


def put_work(store: OverwritableStore, task: int, link: int, rows: int, positions: int) -> None:
    work = Work(task=task, link=link, rows=rows, positions=positions)
    store.objects[ledger_over(store).at.work(1, task)] = encode_advice(work)


# --- the driver -----------------------------------------------------------------------------------------------------------


def test_each_phase_is_told_at_the_next_tick_and_nothing_is_put_while_nothing_changes() -> None:
    store, activity = OverwritableStore(), Activity()
    teller = teller_over(store, activity)
    phases = []
    for phase in ("Planning", "Planning", "Planning", "StartingSpark", "RunningTasks"):
        activity.enter(phase)
        teller.tick()
        progress = told(store)
        assert progress is not None
        phases.append(progress.phase)

    assert phases == ["Planning", "Planning", "Planning", "StartingSpark", "RunningTasks"]
    assert store.requests.count("put progress.json") == 3


def test_when_each_phase_was_first_entered_is_told_in_the_order_of_time() -> None:
    ages = iter([1.2, 1.5, 4.0, 5.0, 9.0])
    activity = Activity(age_s=lambda: next(ages))
    for phase in ("StartingSpark", "Planning", "RunningTasks", "StartingSpark"):
        activity.enter(phase)
    store = OverwritableStore()
    teller_over(store, activity).tick()

    progress = told(store)
    assert progress is not None
    assert [(one.phase, one.after_ms) for one in progress.entered] == [
        ("Planning", 1200),
        ("StartingSpark", 1500),
        ("RunningTasks", 5000),
    ]


def test_what_running_tasks_have_in_hand_is_told_with_it_and_read_only_where_it_changed() -> None:
    store, activity = OverwritableStore(), Activity(phase="RunningTasks")
    teller = teller_over(store, activity)
    put_work(store, 3, 0, 10, 12)
    put_work(store, 7, 2, 20, 20)
    for _ in range(20):
        teller.tick()

    progress = told(store)
    assert progress is not None
    assert [(work.task, work.link, work.rows, work.positions) for work in progress.work] == [(3, 0, 10, 12), (7, 2, 20, 20)]
    assert store.requests.count("list") == 4
    store.delete([ledger_over(store).at.work(1, 3)])
    for _ in range(5):
        teller.tick()
    progress = told(store)
    assert progress is not None
    assert [work.task for work in progress.work] == [7]


def test_a_minute_costs_a_bounded_number_of_requests_however_many_tasks_run_and_change() -> None:
    store, activity = OverwritableStore(), Activity(phase="RunningTasks")
    teller = teller_over(store, activity)
    for second in range(0, 60, 2):
        for task in range(1000):
            put_work(store, task, 0, second + 1, second + 1)
        teller.tick()

    counts = {kind: sum(request.startswith(kind) for request in store.requests) for kind in ("put", "list", "get")}
    assert counts["put"] <= 30
    assert counts["list"] <= 6
    assert counts["get"] <= 6 * 64
    progress = told(store)
    assert progress is not None
    assert len(progress.work) <= MAX_TASKS
    assert len(encode_advice(progress)) < 64 << 10


def test_a_store_that_does_not_answer_fails_no_driver_and_no_task() -> None:
    store, in_hand = OverwritableStore(is_down=True), InHand()
    in_hand.add(1, 1)
    at = ledger_over(store).at

    with telling(store, store.overwrite, AtWork((ledger_over(store), 1)), Activity(), tick_s=0.001):
        assert store.was_put.wait(patience(PATIENCE_S))
    store.was_put.clear()
    with telling_of_task(store.overwrite, store.delete, at.work(1, 0), 0, in_hand, interval_s=0.001):
        assert store.was_put.wait(patience(PATIENCE_S))


@pytest.mark.parametrize(
    ("files", "known"),
    [
        ([rows_file(10), rows_file(30, start=5)], ("rows", 35)),
        ([rows_file(None)], (None, None)),
        ([], (None, None)),
        ([SourceFile(path="/a", etag="e", size_bytes=9, unit="bytes", end=9)], ("bytes", 9)),
        ([SourceFile(path="/a", etag="e", size_bytes=9, unit="bytes", end=9), rows_file(10)], (None, None)),
        ([SourceFile(path="/a", etag="e", size_bytes=9, unit="records", end=None)], (None, None)),
        ([SourceFile(path="/a", etag="e", size_bytes=9, unit="rows", end=9, only=((1, 3), (5, 6)))], ("rows", 3)),
    ],
)
def test_how_much_there_is_is_known_where_all_is_counted_in_one_unit(
    files: list[SourceFile], known: tuple[str | None, int | None]
) -> None:
    activity = Activity()

    activity.know(files)

    assert (activity.unit, activity.positions_known) == known


# --- a task ---------------------------------------------------------------------------------------------------------------


def test_a_task_tells_what_it_has_in_hand_and_removes_it_at_its_end() -> None:
    store, in_hand = OverwritableStore(), InHand()
    path = ledger_over(store).at.work(1, 4)
    in_hand.begin(2)
    in_hand.add(rows=5, positions=8)

    with telling_of_task(store.overwrite, store.delete, path, 4, in_hand, interval_s=0.001):
        assert store.was_put.wait(patience(PATIENCE_S))
        assert read_report(store, path, Work) == Work(task=4, link=2, rows=5, positions=8)

    assert store.was_deleted.wait(patience(PATIENCE_S))
    assert path not in store.objects


def test_a_task_without_anything_in_hand_costs_nothing() -> None:
    store = OverwritableStore()

    with telling_of_task(store.overwrite, store.delete, "x", 0, InHand(), interval_s=0.001):
        assert not store.was_put.wait(0.02)

    assert store.requests == []


# --- who looks ------------------------------------------------------------------------------------------------------------


def looked_at(store: MemoryStore) -> Progress:
    return measure(Tallies(ledger_over(store)))


def stored(work: tuple[Work, ...] = (), known: int | None = 1000) -> MemoryStore:
    """A store with an attempt of two tasks, of which the first has sealed 100 of 1,000 rows."""
    store = MemoryStore()
    ledger = ledger_over(store)
    ledger.attempts.put_launch(launch())
    ledger.plans.put_plan(plan([(0, 0, 500)], [(0, 500, 1000)]))
    ledger.seals.put_seal(seal(0, 0, [(0, 0, 100)], rows=90))
    progress = DriverProgress(attempt=1, phase="RunningTasks", unit="rows" if known else None, positions_known=known, work=work)
    store.objects[ledger.at.progress(1)] = encode_advice(progress)
    return store


def test_rows_in_hand_are_added_to_those_that_are_sealed() -> None:
    progress = looked_at(stored((Work(task=0, link=1, rows=20, positions=25), Work(task=1, link=0, rows=5, positions=5))))

    assert (progress.rows_read, progress.rows_in_hand, progress.positions_done) == (90, 25, 130)
    assert describe(progress, 600.0) == "tasks running: 130 of 1,000 rows (13%), 25 of them not sealed yet; about 10 min left"


def test_what_was_in_hand_and_is_sealed_by_now_is_not_counted_twice() -> None:
    progress = looked_at(stored((Work(task=0, link=0, rows=90, positions=100),)))

    assert (progress.rows_read, progress.rows_in_hand, progress.positions_done) == (90, 0, 100)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"null", b"\xff", b'{"kind": "progress", "version": 2, "attempt": 1, "phase": "Planning"}', b" " * (65 << 10)],
)
def test_advice_that_cannot_be_read_is_as_if_it_were_not_there(data: bytes) -> None:
    store = stored()
    store.objects[ledger_over(store).at.progress(1)] = data

    progress = looked_at(store)

    assert (progress.phase, progress.rows_read, progress.positions_known) == (None, 90, None)
    assert describe(progress) == "tasks running: 90 rows"


def test_advice_is_no_stray_in_a_store() -> None:
    store = stored()
    store.objects[ledger_over(store).at.work(1, 5)] = b"{}"

    assert inspect_store(store).strays == ()


def test_before_a_plan_and_before_a_seal_the_phase_is_said_as_it_was_told() -> None:
    nothing = Progress(1, None, 0, 0, 0, 0, 0)
    planned = Progress(1, 4, 0, 0, 0, 0, 0)

    def at(progress: Progress, phase: str | None) -> str:
        return describe(replace(progress, phase=phase))  # type: ignore[arg-type]

    assert [at(nothing, phase) for phase in (None, "Planning", "StartingSpark")] == ["planning", "planning", "starting Spark"]
    assert [at(planned, phase) for phase in (None, "StartingSpark")] == ["starting Spark", "starting Spark"]
    assert at(planned, "RunningTasks") == "tasks running: 0 rows"


@pytest.mark.parametrize(
    ("done", "known", "unit", "text"),
    [
        (0, 999, "rows", "0/999"),
        (1_234_567, 10_000_000, "rows", "1.23M/10M"),
        (9_999_999, 10_000_000, "rows", "9.99M/10M"),
        (999_999, 12_345_678_901, "rows", "999k/12.3G"),
        (10_000_001, 10_000_000, "rows", "10M/10M"),
        (3_700_000_000, 12 << 30, "bytes", "3.44Gi/12Gi"),
        (1023, 1024, "bytes", "1023/1Ki"),
        (5, 9, "bytes", "5/9B"),
        (0, None, None, "1.5k"),
        (0, None, "rows", "1.5k"),
    ],
)
def test_how_far_it_is_is_said_in_rows_or_bytes_and_never_more_than_is_done(
    done: int, known: int | None, unit: Literal["rows", "bytes"] | None, text: str
) -> None:
    counts = Progress(1, 4, 0, 1_500, 0, 0, 0, unit=unit, positions_done=done, positions_known=known)

    assert how_far(counts) == text


def test_how_far_it_is_moves_while_one_long_task_has_sealed_nothing() -> None:
    texts = [how_far(looked_at(stored((Work(task=1, link=0, rows=rows, positions=rows),)))) for rows in (0, 100, 250)]

    assert texts == ["100/1k", "200/1k", "350/1k"]


def test_nothing_is_said_of_how_far_it_is_before_anything_is_known() -> None:
    assert how_far(Progress(1, None, 0, 0, 0, 0, 0, phase="Planning")) is None


def test_what_a_closed_attempt_had_in_hand_is_lost_and_not_counted() -> None:
    store = stored((Work(task=1, link=0, rows=5, positions=5),))
    ledger_over(store).chains.close(1)

    progress = looked_at(store)

    assert (progress.rows_in_hand, how_far(progress)) == (0, "100/1k")


def test_how_much_there_is_stays_known_while_the_next_attempt_plans() -> None:
    store = stored()
    ledger = ledger_over(store)
    ledger.chains.close(1)
    ledger.attempts.put_launch(launch(2, counted=(1,)))
    store.objects[ledger.at.progress(2)] = encode_advice(DriverProgress(attempt=2, phase="Planning"))

    assert how_far(looked_at(store)) == "100/1k"


# --- the time that is left ------------------------------------------------------------------------------------------------


def running(done: int, attempt: int = 1, known: int | None = 1000, phase: str = "RunningTasks") -> Progress:
    return Progress(attempt, 4, 0, 0, 0, 0, 0, phase=phase, unit="rows", positions_done=done, positions_known=known)  # type: ignore[arg-type]


def test_the_time_left_follows_from_the_rate_of_the_last_minutes() -> None:
    left = TimeLeft()

    assert left.measure(0.0, running(0)) is None
    assert left.measure(10.0, running(100)) is None, "too short to say"
    assert left.measure(30.0, running(300)) == pytest.approx(70.0)
    for second in range(40, 300, 10):
        last = left.measure(float(second), running(300))
    assert last is None, "nothing has been done for minutes"


def test_the_time_before_tasks_run_and_earlier_attempts_are_no_part_of_the_rate() -> None:
    left = TimeLeft()
    left.measure(0.0, running(0, phase="StartingSpark"))
    left.measure(100.0, running(0))
    assert left.measure(130.0, running(300)) == pytest.approx(70.0)

    assert left.measure(131.0, running(300, attempt=2)) is None
    assert left.measure(161.0, running(600, attempt=2)) == pytest.approx(40.0)


def test_where_it_is_not_known_how_much_there_is_no_time_is_said() -> None:
    left = TimeLeft()
    left.measure(0.0, running(0, known=None))

    assert left.measure(100.0, running(500, known=None)) is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "10 s"), (44.0, "40 s"), (100.0, "2 min"), (3599.0, "60 min"), (9000.0, "2 h")]
)
def test_times_are_said_no_finer_than_they_are_known(seconds: float, text: str) -> None:
    assert time_text(seconds) == text

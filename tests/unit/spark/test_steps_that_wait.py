"""Steps that wait for something: many calls at once, in their order, with time limits, tried again, and given up in an outage."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_formats.none import NoStager
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.rows.positions import Range
from checkpoint_work.steps.batches import Failed
from checkpoint_work.steps.calling import event_loop
from checkpoint_work.steps.calling.calls import Surroundings
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.failing.failures import words_of
from checkpoint_work.steps.flow import Finished, Flow
from checkpoint_work.steps.quarantine import Allowance
from checkpoint_work.tasks.rows_by_position import RowsByPosition
from checkpoint_work.tasks.segments import Task, run_task
from tests.support.batches import Rows, batches
from tests.support.reading import open_reader
from tests.support.steps_here import steps_here
from tests.support.stores import MemoryStore
from tests.support.waiting import until

SCHEMA = pa.schema([("id", pa.int64())])
_modules = itertools.count()


class Seen:
    """What a step got: how many at once, in all, by which threads, in which turns of the loop; what waited in vain"""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.most = 0
        self.now = 0
        self.alone = 0
        self.turn = 0
        self.turns: set[int] = set()
        self.threads: set[int] = set()
        self.lock = threading.Lock()

    def begin(self, given: Any) -> None:
        with self.lock:
            self.calls.append(given["id"] if isinstance(given, dict) else given.column("id").to_pylist())
            self.now += 1
            self.most = max(self.most, self.now)
            self.threads.add(threading.get_ident())

    def end(self) -> None:
        with self.lock:
            self.now -= 1


Code = Callable[..., Step]


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def code(tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> Code:
    """Return a function that makes a step of the body of `work(row)`; in it are `seen`, `asyncio`, `time` and `begin`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "seen_by_steps", seen, raising=False)

    def make(body: str, *, is_async: bool = True, input: str = "row", **fields: Any) -> Step:
        name = f"waiting_code_{next(_modules)}"
        lines = "\n".join(f"        {line}" for line in body.splitlines())
        (tmp_path / f"{name}.py").write_text(
            "import asyncio, sys, time\n"
            "import pyarrow as pa\n"
            "seen = sys.seen_by_steps\n"
            f"{'async ' if is_async else ''}def work(row):\n"
            "    seen.begin(row)\n"
            f"    try:\n{lines}\n"
            "    finally:\n        seen.end()\n"
        )
        return Step.model_validate_json(json.dumps({"call": f"{name}:work", "input": input, **fields}))

    return make


def run(
    *steps: Step, rows: int = 100, size: int = 10, sets_apart: bool = False, around: Surroundings | None = None
) -> tuple[list[int], list[Failed[Rows]]]:
    """Return the ids that the steps give, and the rows that fail."""
    failed: list[Failed[Rows]] = []
    given = [
        row["id"]
        for finished in stream(*steps, rows=rows, size=size, sets_apart=sets_apart, around=around)
        for batch in finished.results(failed.append)
        for row in batch.to_pylist()
    ]
    return given, failed


def stream(
    *steps: Step, rows: int, size: int = 10, sets_apart: bool = False, around: Surroundings | None = None
) -> Iterator[Finished[Rows]]:
    pipeline = Pipeline(steps, around=around or Surroundings(sets_apart=sets_apart))
    flow = Flow(pipeline, SCHEMA, sets_apart)
    return flow.finished(batches(rows, size))


QUICKLY = {"attempts": 3, "firstDelay": "1ms"}

# --- at once --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("size", [3, 10, 64])
def test_so_many_rows_are_at_work_at_once_and_what_they_give_is_in_order(
    code: Code, seen: Seen, is_async: bool, size: int
) -> None:
    pause = "await asyncio.sleep" if is_async else "time.sleep"
    # However slowly threads begin: the first calls go on when as many are at work as may be.
    body = (
        "give_up_at = time.monotonic() + 20\n"
        f"while seen.most < 16 and time.monotonic() < give_up_at: {pause}(0.001)\n"
        f"{pause}(0.02 if row['id'] % 7 else 0.06)\n"
        "return row"
    )
    step = code(body, is_async=is_async, concurrency=16)

    given, _ = run(step, rows=200, size=size)

    assert given == list(range(200))
    assert seen.most == 16
    assert sorted(seen.calls) == given


def test_without_concurrency_an_async_step_is_called_one_row_after_another(code: Code, seen: Seen) -> None:
    given, _ = run(code("await asyncio.sleep(0)\nreturn row"), rows=30)

    assert given == sorted(seen.calls) == list(range(30))
    assert seen.most == 1


def test_a_slow_call_does_not_hold_up_those_behind_it(code: Code, seen: Seen) -> None:
    """The first one ends when three times as many rows as are at work at once have been begun behind it."""
    step = code(
        "give_up_at = time.monotonic() + 20\n"
        "while row['id'] == 0 and len(seen.calls) <= 48 and not seen.alone:\n"
        "    await asyncio.sleep(0.001)\n"
        "    seen.alone += time.monotonic() > give_up_at\n"
        "return row",
        concurrency=16,
    )

    given, _ = run(step, rows=200, size=16)

    assert given == list(range(200))
    assert seen.alone == 0


def test_calls_on_their_way_go_on_while_many_rows_are_begun(code: Code, seen: Seen) -> None:
    """To begin hundreds of rows takes as long as many calls, whose answers would wait for it."""

    async def count_turns() -> None:
        while True:
            seen.turn += 1
            await asyncio.sleep(0)

    counting = event_loop.submit(count_turns())
    try:
        given, _ = run(code("seen.turns.add(seen.turn)\nreturn row", concurrency=640), rows=640, size=640)
    finally:
        counting.cancel()

    assert given == list(range(640))
    assert len(seen.turns) >= 640 // 32


def test_batches_are_called_at_once_too(code: Code, seen: Seen) -> None:
    step = code("await asyncio.sleep(0.05)\nreturn row", input="arrow", concurrency=4)

    given, _ = run(step, rows=160, size=10)

    assert given == list(range(160))
    assert seen.most == 4


def test_rows_are_at_work_in_several_steps_at_once(code: Code, seen: Seen) -> None:
    """The first step goes on with later rows while the second one, which does not wait, is called in the task's own thread."""
    first = code("await asyncio.sleep(0.01)\nreturn row", concurrency=4)
    # Returns once the first step has been called with a later row, which it never is if one step waits for the other.
    second = code(
        "mine = sum(len(call) for call in seen.calls if isinstance(call, list))\n"
        "give_up_at = time.monotonic() + 10\n"
        "while mine < 80 and seen.alone == 0 and sum(isinstance(call, int) for call in seen.calls) <= mine:\n"
        "    time.sleep(0.001)\n"
        "    seen.alone += time.monotonic() > give_up_at\n"
        "return row",
        is_async=False,
        input="arrow",
    )

    given, _ = run(first, second, rows=80, size=4)

    assert given == list(range(80))
    assert seen.alone == 0
    assert threading.get_ident() in seen.threads


async def turns(number: int) -> None:
    """Let the loop do all that it has been told by now, and what follows from it."""
    for _ in range(number):
        await asyncio.sleep(0)


def test_what_is_not_asked_for_any_more_is_not_called(code: Code, seen: Seen) -> None:
    step = code("await asyncio.sleep(0.02)\nreturn row", concurrency=4)
    finished = stream(step, rows=10_000)

    next(finished)
    finished.close()  # type: ignore[attr-defined]
    # The loop hears of it in its next turn, and a call may begin in this one.
    event_loop.run(turns(10))
    called = len(seen.calls)
    time.sleep(0.1)

    assert len(seen.calls) == called < 200
    assert seen.now == 0


def test_a_row_that_fails_ends_the_task_in_its_place(code: Code) -> None:
    step = code("if row['id'] == 57: raise ValueError('57')\nawait asyncio.sleep(0.01)\nreturn row", concurrency=8)
    given: list[int] = []

    def work() -> None:
        for finished in stream(step, rows=1000, size=8):
            given.extend(row["id"] for batch in finished.results(lambda _: None) for row in batch.to_pylist())

    with pytest.raises(NeedsChange, match="raised on row 57 of in: ValueError: 57"):
        work()

    assert given == list(range(56))


def test_rows_that_fail_are_set_apart_and_named(code: Code) -> None:
    step = code("await asyncio.sleep(0)\nif row['id'] % 25 == 3: raise ValueError(row['id'])\nreturn row", concurrency=8)

    given, failed = run(step, sets_apart=True)

    assert [one.batch.identity_of(one.number).range.start for one in failed] == [3, 28, 53, 78]
    assert given == [number for number in range(100) if number % 25 != 3]


@pytest.mark.parametrize("way", ["sys.exit(3)", "raise KeyboardInterrupt", "raise asyncio.CancelledError", "raise StopIteration"])
@pytest.mark.parametrize("is_async", [True, False])
def test_what_would_end_a_process_is_a_row_that_fails(code: Code, way: str, is_async: bool) -> None:
    step = code(f"if row['id'] == 5: {way}\nreturn row", is_async=is_async, concurrency=4)

    with pytest.raises(NeedsChange, match="raised on row 5 of in"):
        run(step, rows=20)


# --- batches of exact sizes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 16, 100])
def test_a_batch_step_gets_batches_of_the_size_that_it_asks_for(code: Code, seen: Seen, size: int) -> None:
    step = code("return row", is_async=False, input="arrow", batchSize=16)

    given, _ = run(step, rows=100, size=size)

    assert given == list(range(100))
    assert [len(call) for call in seen.calls] == [16, 16, 16, 16, 16, 16, 4]


def test_plain_batches_of_a_size_are_called_in_order_by_no_other_thread(code: Code, seen: Seen) -> None:
    """A step that keeps something from call to call sees its rows in the order of the source."""
    finished = stream(code("return row", is_async=False, input="arrow", batchSize=16), rows=100)

    for _ in range(3):
        next(finished)

        assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("steps")]
    assert seen.threads == {threading.get_ident()}
    assert len(seen.calls) == 3


def test_sixteen_times_as_many_rows_are_begun_behind_one_that_takes_long(code: Code, seen: Seen) -> None:
    step = code(
        "for _ in range(2000):\n"
        "    if row['id'] != 0 or len(seen.calls) >= 4 * 14: break\n"
        "    await asyncio.sleep(0.005)\n"
        "if row['id'] == 0: await asyncio.sleep(0.1)  # for more that should not be begun\n"
        "return row",
        concurrency=4,
    )

    next(stream(step, rows=1000, size=1))

    assert 4 * 14 <= len(seen.calls) <= 4 * 16 + 4


#: Row 0, and others at a distance, are refused until so many rows were called, or their tries are used up.
REFUSED = """\
from checkpointed_writes import RetryAfter
if row['id'] % {each} == 0 and len(set(seen.calls)) < {rows}: raise RetryAfter(seconds=0.1)
await asyncio.sleep(0.005)
return {result}"""


def test_more_rows_are_begun_behind_those_that_wait_for_their_next_try(code: Code, seen: Seen) -> None:
    """A second of Retry-After is as long as a thousand calls take: sixteen times as many as at once are too few for them."""
    step = code(REFUSED.format(each=8, rows=4 * 60, result="row"), concurrency=4, retry={"attempts": 100})

    next(stream(step, rows=1000, size=8))

    assert 4 * 60 <= len(set(seen.calls)) <= 4 * 64 + 8
    assert seen.calls.count(0) < 100


def test_no_more_are_begun_than_results_may_be_held(code: Code, seen: Seen) -> None:
    step = code(
        REFUSED.format(each=1000, rows=1000, result="row | {'blob': bytes(2 << 20)}"), concurrency=4, retry={"attempts": 10}
    )
    flow = Flow(Pipeline([step]), SCHEMA.append(pa.field("blob", pa.binary())), False)

    with pytest.raises(NeedsChange, match="tried 10 times"):
        next(flow.finished(batches(1000, 1)))

    assert len(set(seen.calls)) <= 4 * 16 + 4


def test_rows_that_a_step_before_leaves_out_do_not_make_batches_smaller(code: Code, seen: Seen) -> None:
    first = code("return row if row['id'] % 3 == 0 else None", is_async=False)
    second = code("return row", is_async=False, input="arrow", batchSize=8)

    given, _ = run(first, second, rows=100, size=10)

    assert given == list(range(0, 100, 3))
    assert [len(call) for call in seen.calls if isinstance(call, list)] == [8, 8, 8, 8, 2]


def test_rows_that_one_row_becomes_stay_together(code: Code, seen: Seen) -> None:
    first = code("return [row] * 3", is_async=False)
    second = code("return row", is_async=False, input="arrow", batchSize=8)

    given, _ = run(first, second, rows=10)

    assert given == [number for number in range(10) for _ in range(3)]
    assert [len(call) for call in seen.calls if isinstance(call, list)] == [6, 6, 6, 6, 6]


def test_rows_that_fail_in_exact_batches_are_named_by_their_own_batch(code: Code) -> None:
    first = code("if row['id'] == 31: raise ValueError('first')\nreturn row", concurrency=4)
    second = code(
        "if 42 in row.column('id').to_pylist(): raise ValueError('second')\nreturn row",
        is_async=False,
        input="arrow",
        batchSize=16,
    )

    given, failed = run(first, second, size=10, sets_apart=True)

    rows = sorted(one.batch.identity_of(one.number).range.start for one in failed)
    assert rows == [31, 42]
    assert given == [number for number in range(100) if number not in (31, 42)]


@pytest.mark.parametrize("most_rows", [4, 10, 1000])
def test_groups_have_no_more_rows_than_a_segment_may_have_and_know_how_many_come_behind(code: Code, most_rows: int) -> None:
    """By that a segment ends in time."""
    flow = Flow(Pipeline([code("return row", concurrency=7)]), SCHEMA, False, most_rows)

    finished = list(flow.finished(batches(100, 3)))

    rows = [sum(batch.source_rows for batch in one.batches) for one in finished]
    assert sum(rows) == 100
    assert max(rows) == {4: 4, 10: 9, 1000: 9}[most_rows]
    assert [one.following_rows for one in finished] == [*rows[1:], 0]


def test_all_that_was_read_is_in_a_finished_group_once(code: Code) -> None:
    step = code("return row if row['id'] % 4 else None", is_async=False)
    exact = code("return row", is_async=False, input="arrow", batchSize=7)

    covered = [(batch.start, batch.end) for finished in stream(step, exact, rows=100) for batch in finished.batches]

    assert [number for start, end in covered for number in range(start, end)] == list(range(100))


# --- time limits and tries ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [True, False])
def test_a_call_that_takes_too_long_is_tried_again(code: Code, seen: Seen, is_async: bool) -> None:
    pause = "await asyncio.sleep" if is_async else "time.sleep"
    step = code(
        f"if seen.calls.count(row['id']) == 1 and row['id'] == 3: {pause}(1.0)\nreturn row",
        is_async=is_async,
        timeout="50ms",
        retry=QUICKLY,
    )

    given, _ = run(step, rows=6)

    assert given == list(range(6))
    assert seen.calls.count(3) == 2


def test_a_row_that_never_answers_in_time_fails_while_others_do(code: Code, seen: Seen) -> None:
    step = code("await asyncio.sleep(5 if row['id'] == 3 else 0)\nreturn row", timeout="20ms", retry=QUICKLY, concurrency=4)

    given, (failed,) = run(step, rows=40, sets_apart=True)

    assert failed.number == 3
    assert words_of(failed.error) == "no answer within 0.02s (timeout); tried 3 times (retry)"
    assert seen.calls.count(3) == 3
    assert len(given) == 39


@pytest.mark.parametrize("called", [{"concurrency": 8}, {}], ids=["many at once", "one after another"])
def test_calls_that_fail_for_a_reason_outside_are_tried_again(code: Code, seen: Seen, called: dict[str, Any]) -> None:
    body = "if row['id'] % 10 == 3 and seen.calls.count(row['id']) < 3: raise ConnectionError('gone')\nreturn row"
    step = code(body, is_async=False, retry=QUICKLY, **called)

    given, _ = run(step)

    assert given == list(range(100))
    assert all(seen.calls.count(number) == (3 if number % 10 == 3 else 1) for number in range(100))


def test_a_plain_step_that_says_nothing_is_tried_again_in_its_own_thread(code: Code, seen: Seen) -> None:
    slept: list[float] = []
    body = "if row['id'] == 7 and seen.calls.count(7) < 4: raise TimeoutError('slow')\nreturn row"

    given, _ = run(code(body, is_async=False), rows=10, around=Surroundings(sleep=slept.append, draw=lambda: 0.5))

    assert given == list(range(10))
    assert slept == [1.0, 2.0, 4.0]
    assert seen.threads == {threading.get_ident()}


def test_what_a_plain_step_gave_to_be_awaited_is_asked_for_anew_where_it_fails_for_a_reason_outside(
    code: Code, seen: Seen
) -> None:
    body = (
        "async def answer():\n"
        "    if row['id'] % 4 == 0 and seen.calls.count(row['id']) == 1:\n"
        "        error = OSError('429')\n        error.status, error.retry_after = 429, 0\n        raise error\n"
        "    return row\n"
        "return answer()"
    )

    given, failed = run(code(body, is_async=False), rows=10)

    assert (given, failed) == (list(range(10)), [])
    assert [seen.calls.count(number) for number in range(5)] == [2, 1, 1, 1, 2]


def test_the_service_says_when_to_come_back(code: Code) -> None:
    slept: list[float] = []
    body = (
        "if seen.calls.count(row['id']) == 1:\n"
        "    error = OSError('429')\n    error.status, error.retry_after = 429, 7\n    raise error\n"
        "return row"
    )
    run(code(body, is_async=False), rows=1, around=Surroundings(sleep=slept.append, draw=lambda: 0.0))

    assert slept == [7.0]


def test_a_row_that_is_tried_again_goes_before_rows_that_were_begun_after_it(code: Code, seen: Seen) -> None:
    """Else it would wait behind all that was begun ahead, and what is given in order would wait for it."""
    step = code(
        "if row['id'] == 0 and seen.calls.count(0) == 1: raise ConnectionError\n"
        "await asyncio.sleep(0.5 if row['id'] in (1, 2) else 0)\n"
        "return row",
        concurrency=2,
        retry=QUICKLY,
    )

    given, _ = run(step, rows=200, size=4)

    assert given == list(range(200))
    # The threads of later rows may have begun before that of the first ones.
    first = seen.calls.index(0)
    assert sorted(seen.calls[first : first + 3]) == [0, 1, 2], "these hold both slots while it waits a millisecond"
    assert seen.calls[first + 3] == 0


def test_the_waits_grow_from_try_to_try(code: Code) -> None:
    slept: list[float] = []
    step = code("raise TimeoutError", is_async=False)
    around = Surroundings(sets_apart=True, sleep=slept.append, draw=lambda: 1.0)
    run(step, rows=1, around=around, sets_apart=True)

    assert slept == [1.5, 3.0, 6.0, 12.0]


def test_no_wait_is_longer_than_the_manifest_allows(code: Code, seen: Seen) -> None:
    body = (
        "if seen.calls.count(row['id']) < 3:\n"
        "    error = OSError('429')\n    error.status, error.retry_after = 429, 3600\n    raise error\n"
        "return row"
    )
    given, _ = run(code(body, retry={"attempts": 3, "mostDelay": "20ms"}), rows=1)

    # Else it would be an hour, and the test would not end.
    assert given == [0]


def test_what_fails_for_a_reason_of_the_row_is_not_tried_again(code: Code, seen: Seen) -> None:
    _, (failed,) = run(code("if row['id'] == 3: raise ValueError\nreturn row", retry=QUICKLY), rows=9, sets_apart=True)

    assert failed.number == 3
    assert seen.calls.count(3) == 1


def test_other_exceptions_can_be_named(code: Code, seen: Seen) -> None:
    body = "if seen.calls.count(row['id']) < 3: raise ValueError\nreturn row"

    given, _ = run(code(body, retry={**QUICKLY, "on": ["ValueError"]}), rows=5)

    assert given == list(range(5))


# --- outages --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("called", [{"concurrency": 8}, {"concurrency": 1}, {}], ids=["many at once", "one at once", "plain"])
def test_an_outage_sets_no_row_apart(code: Code, called: dict[str, Any]) -> None:
    body = "if row['id'] >= 40: raise ConnectionError('refused')\nreturn row"
    step = code(body, is_async=False, **({**called, "retry": QUICKLY} if called else {}))
    failed: list[Failed[Rows]] = []

    around = Surroundings(sets_apart=True, sleep=lambda _: None)
    pipeline = Pipeline([step], around=around)
    flow = Flow(pipeline, SCHEMA, True)
    may_be_sealed: list[int] = []

    def work() -> None:
        for finished in flow.finished(batches(100)):
            list(finished.results(failed.append))
            if not pipeline.is_uncertain:
                may_be_sealed.append(len(failed))

    with pytest.raises(Retryable, match="ConnectionError: refused") as caught:
        work()

    assert caught.value.reason == reasons.SERVICE_UNAVAILABLE
    assert set(may_be_sealed) == {0}


def test_no_segment_ends_while_it_is_not_known_whose_fault_a_row_was(code: Code, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    pq.write_table(pa.table({"id": range(100)}, schema=SCHEMA), source / "a.parquet")
    reader = open_reader("parquet")
    files, schema = reader.describe([str(source)])
    step = code("if row['id'] >= 40: raise ConnectionError('refused')\nreturn row", is_async=False)
    ledger, around = Ledger(MemoryStore(), EpochKey("ab" * 16, 1)), Surroundings(sets_apart=True, sleep=lambda _: None)

    with pytest.raises(Retryable, match="ConnectionError: refused"):
        run_task(
            Task(1, 0, "0" * 64, interval_s=1, minimum_bytes=0, allowance=Allowance(most_rows=10), maximum_rows=1),
            RowsByPosition((Range(file=0, start=0, end=100),), files, schema, reader),
            steps_here(NoStager(), [step], sets_apart=True, most_rows=1, around=around),
            NoStager(),
            ledger,
            itertools.count().__next__,
        )

    chain = ledger.chains.read_chain(1, 0)
    assert sum(seal.rows_read for seal in chain) == 40
    assert [seal.rows_quarantined for seal in chain] == [0] * len(chain)


def test_a_row_that_the_service_cannot_digest_is_set_apart_while_it_answers_others(code: Code) -> None:
    # Not the last row of all: after it nobody is answered, and where row 50 is judged as late it is an outage.
    body = "if row['id'] in (0, 50, 90): raise ConnectionError('refused')\nreturn row"

    given, failed = run(code(body, retry=QUICKLY, concurrency=4), sets_apart=True)

    assert sorted(one.batch.start + one.number for one in failed) == [0, 50, 90]
    assert {words_of(one.error) for one in failed} == {"refused; tried 3 times (retry)"}
    assert len(given) == 97


def test_where_the_first_row_that_fails_ends_the_task_an_outage_is_told_from_it(code: Code) -> None:
    outage = code("raise ConnectionError('refused')", retry=QUICKLY, concurrency=4)
    row = code("if row['id'] == 50: raise ConnectionError('refused')\nreturn row", retry=QUICKLY, concurrency=4)

    with pytest.raises(Retryable) as of_service:
        run(outage)
    with pytest.raises(NeedsChange, match="row 50 of in: ConnectionError") as of_row:
        run(row)

    assert (of_service.value.reason, of_row.value.reason) == (reasons.SERVICE_UNAVAILABLE, reasons.CODE_FAILED)


def test_a_task_whose_only_row_was_never_answered_is_not_ended_by_setting_it_apart(code: Code) -> None:
    pipeline = Pipeline([code("raise ConnectionError", retry=QUICKLY)], around=Surroundings(sets_apart=True))
    flow = Flow(pipeline, SCHEMA, True)
    failed: list[Failed[Rows]] = []
    for finished in flow.finished(batches(1)):
        list(finished.results(failed.append))

    assert len(failed) == 1
    assert pipeline.is_uncertain
    with pytest.raises(Retryable):
        pipeline.end()


def test_what_fails_after_it_was_given_up_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            ended.set()
            raise ValueError("given up")

    future = event_loop.submit(work())
    until(begun.is_set, "the call")
    future.cancel()
    until(ended.is_set, "its end")
    event_loop.run(event_loop.awaited(None))  # what was given up has ended by then
    del future
    gc.collect()

    assert [message for message in caplog.messages if "given up" in message] == []


def test_calls_are_made_no_faster_than_the_limit_allows(code: Code, seen: Seen) -> None:
    step = code("return row", concurrency=32, rateLimit={"calls": 100, "per": "1s"})

    started = time.monotonic()
    run(step, rows=60, around=Surroundings(tasks=2))

    assert time.monotonic() - started >= 60 / 50 * 0.9


def test_a_call_that_was_given_up_and_hangs_has_its_process_replaced_at_a_seal_but_not_while_it_may_still_end(
    code: Code,
) -> None:
    now = [0.0]
    hangs = code(
        "threading = __import__('threading')\nsys.release = threading.Event()\nsys.release.wait(60)\nreturn row",
        is_async=False,
        timeout="50ms",
        retry={"attempts": 1},
    )
    pipeline = Pipeline([hangs], around=Surroundings(sets_apart=True, clock=lambda: now[0]))
    pipeline.sealed()
    flow = Flow(pipeline, SCHEMA, True)
    (finished,) = flow.finished(batches(1))
    list(finished.results(lambda _: None))

    assert pipeline.calls_left_running == 1
    pipeline.sealed()
    now[0] = 0.1
    with pytest.raises(Retryable, match="1 calls have not ended after twice their time") as replaced:
        pipeline.sealed()
    assert replaced.value.reason == reasons.DRIVER_FAILED

    sys.release.set()  # type: ignore[attr-defined]
    until(lambda: not pipeline.calls_left_running, "the end of the call")
    pipeline.sealed()

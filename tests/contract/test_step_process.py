"""Steps in a process of their own: what they make and raise comes back, and how the process ended where it did.

What tests of careful tries need of it (tests/support/step_processes.py) is shown of their stand-in, too.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from checkpoint_formats.rows.selecting import ADDRESS_FIELD
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.manifest.steps import Step
from checkpoint_work.step_process.process import Opening, StepProcess, StepProcessEnded
from checkpoint_work.steps.calling.calls import Surroundings
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.failing.failures import text_of
from checkpoint_work.steps.places import Place
from checkpoint_work.steps.row_numbers import asking_for_numbers
from checkpoint_work.tasks.steps_in_process import Process, StepsInProcess
from tests.support.batches import Rows, batches
from tests.support.slow import slow_except
from tests.support.step_processes import Behaviour
from tests.support.waiting import until

PLACE = Place("/in/a.parquet", "rows", 100)
SCHEMA = pa.schema([("id", pa.int64())])
NUMBERED = [asking_for_numbers(SCHEMA), SCHEMA.append(ADDRESS_FIELD)]
#: PyDLL keeps the interpreter's lock, as a regular expression does that takes hours.
HELD_UP = "import ctypes\ndef work(row):\n    ctypes.PyDLL(None).sleep(600)\n"
_numbers = itertools.count()

Code = Callable[[str], str]


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Code:
    """Return a function that writes a module under a fresh name and returns the name."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(text: str) -> str:
        name = f"killing_code_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        return name

    return write


@pytest.fixture
def opened() -> Iterator[Callable[..., StepProcess]]:
    """Return a function that opens a step process with steps; all end with the test."""
    processes = []

    def open(*steps: Step, schema: pa.Schema | None = SCHEMA, sets_apart: bool = True) -> StepProcess:
        process = StepProcess(Opening(steps, schema, sets_apart, write="ab" * 16))
        processes.append(process)
        process.open()
        return process

    yield open
    for process in processes:
        process.close()


def row_step(call: str, **fields: Any) -> Step:
    return Step.model_validate_json(json.dumps({"call": call, "input": "row", **fields}))


def rows(count: int) -> pa.RecordBatch:
    return Rows(0, count).rows


def ids(made: tuple[pa.RecordBatch, ...]) -> list[int]:
    return [one for batch in made for one in batch.column("id").to_pylist()]


# --- of the stand-in, too -----------------------------------------------------------------------------------------------------


@pytest.fixture
def schema() -> pa.Schema:
    return SCHEMA


@pytest.fixture(params=["process", "stand-in"])
def process(request: pytest.FixtureRequest, code: Code, schema: pa.Schema) -> Iterator[Process]:
    """A process that row 5 ends, and with a step that raises on row 3."""
    module = code(
        "import ctypes\n"
        "def work(row):\n"
        "    if row['id'] == 3: raise ValueError('raised')\n"
        "    if row['id'] == 5: ctypes.string_at(0)\n"
        "    return row\n"
    )
    opening = Opening((row_step(f"{module}:work", name="predict"),), schema, sets_apart=True)
    behaviour = Behaviour(lambda row, _ends: row == 5, raises=frozenset({3}))
    made: Process = StepProcess(opening) if request.param == "process" else behaviour.start(opening)
    made.open()
    yield made
    made.close()


def test_rows_come_back_in_order_and_those_that_failed_with_their_numbers(process: Process) -> None:
    reply = process.apply(rows(5), PLACE)

    assert ids(reply.made) == [0, 1, 2, 4]
    assert [(row.number, row.step, row.error.kind, row.error.message) for row in reply.failed] == [
        (3, "predict", "ValueError", "raised")
    ]
    process.end()


@pytest.mark.parametrize("schema", NUMBERED, ids=lambda schema: schema.names[-1])
def test_results_have_the_numbers_of_their_rows_where_these_are_asked_for(process: Process, schema: pa.Schema) -> None:
    made = process.apply(rows(5), PLACE).made

    assert pa.Table.from_batches(made).to_pylist() == [{"id": one, schema.names[-1]: one} for one in (0, 1, 2, 4)]
    assert [one.schema for one in made] == [schema] * len(made)


def test_it_is_told_which_step_ended_the_process_and_by_which_signal(process: Process) -> None:
    with pytest.raises(StepProcessEnded) as ended:
        process.apply(rows(10), PLACE)

    assert ended.value.step == "predict"
    assert ended.value.how.kind == "SIGSEGV"
    assert "ended by SIGSEGV" in ended.value.how.message


def test_the_columns_that_steps_make_are_told(process: Process) -> None:
    assert process.sample(rows(3), PLACE) == SCHEMA


# --- how a process ends -------------------------------------------------------------------------------------------------------


def test_a_fault_is_told_with_the_line_of_the_step(code: Code, opened: Callable[..., StepProcess]) -> None:
    module = code("import ctypes\ndef work(row):\n    ctypes.string_at(0)\n")

    with pytest.raises(StepProcessEnded) as ended:
        opened(row_step(f"{module}:work")).apply(rows(1), PLACE)

    assert f"{module}.py:3)" in ended.value.how.message


@pytest.mark.parametrize(
    ("end", "kind", "words"),
    [
        ("os._exit(7)", "os._exit", "exit code 7"),
        ("os.kill(os.getpid(), 9)", "SIGKILL", "for want of memory, if it was the kernel"),
        ("os.abort()", "SIGABRT", "Aborted"),
        ("bytearray(1 << 45)", "MemoryError", "MiB beside what it had"),
    ],
)
@pytest.mark.parametrize("input", ["row", "arrow"])
def test_it_is_told_how_the_process_ended(
    code: Code, opened: Callable[..., StepProcess], end: str, kind: str, words: str, input: str
) -> None:
    module = code(f"import os\ndef work(given):\n    {end}\n")

    with pytest.raises(StepProcessEnded) as ended:
        opened(row_step(f"{module}:work", input=input)).apply(rows(1), PLACE)

    assert (ended.value.step, ended.value.how.kind) == (f"{module}:work", kind)
    assert words in ended.value.how.message


def test_a_step_that_leaves_a_process_behind_does_not_keep_its_end_from_being_seen(code: Code) -> None:
    module = code("import os, time\ndef work(row):\n    if os.fork() == 0: time.sleep(600)\n    os._exit(7)\n")
    process = StepProcess(Opening((row_step(f"{module}:work"),), SCHEMA, sets_apart=True))
    group = process._process.pid
    process.open()

    with pytest.raises(StepProcessEnded) as ended:
        process.apply(rows(1), PLACE)
    process.close()

    assert ended.value.how.kind == "os._exit"
    until(lambda: not _of_group(group), "the end of all that the step had started")


def _of_group(group: int) -> list[int]:
    def group_of(pid: int) -> int | None:
        try:
            return None if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE else os.getpgid(pid)
        except (psutil.NoSuchProcess, ProcessLookupError):
            return None

    return [pid for pid in psutil.pids() if group_of(pid) == group]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process that a call holds up is not ended with its task")
def test_a_process_ends_with_its_task_also_where_a_call_holds_it_up(code: Code, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    module = code(HELD_UP.replace("    ctypes", f"    open({str(begun)!r}, 'w').close()\n    ctypes"))
    task = (
        "import sys\n"
        "from checkpoint_work.step_process.process import Opening, StepProcess\n"
        "from checkpoint_protocol.manifest.steps import Step\n"
        "from tests.contract.test_step_process import PLACE, SCHEMA, rows\n"
        f"process = StepProcess(Opening((Step(call='{module}:work', input='row'),), SCHEMA, True))\n"
        "process.open()\n"
        "print(process._process.pid, flush=True)\n"
        "process.apply(rows(1), PLACE)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen([sys.executable, "-c", task], stdout=subprocess.PIPE, text=True, env=environment) as started:
        assert started.stdout is not None
        child = int(started.stdout.readline())
        until(begun.exists, "the call")
        started.kill()

    until(
        lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE, "the end of the process"
    )


def test_a_call_that_holds_its_process_up_beyond_its_timeout_ends_it(
    code: Code, opened: Callable[..., StepProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = code(HELD_UP)
    process = opened(row_step(f"{module}:work", timeout="1s"))
    seconds = itertools.count()
    # Each look at the clock is a second later; the process itself says each second of real time that it is alive.
    process.clock = lambda: 3.0 * next(seconds)

    with pytest.raises(StepProcessEnded) as ended:
        process.apply(rows(1), PLACE)

    assert ended.value.how.kind == "TimeoutError"
    assert "no answer within 1s (timeout)" in ended.value.how.message


def test_a_call_without_a_timeout_is_waited_for(code: Code, opened: Callable[..., StepProcess]) -> None:
    module = code("import time\ndef work(row):\n    time.sleep(1.5)\n    return row\n")
    process = opened(row_step(f"{module}:work"))
    seconds = itertools.count()
    process.clock = lambda: 60.0 * next(seconds)

    assert ids(process.apply(rows(1), PLACE).made) == [0]


# --- what steps make and raise is as in the task's own process ----------------------------------------------------------------


def test_an_error_that_ends_the_task_is_the_same_as_in_its_own_process(code: Code, opened: Callable[..., StepProcess]) -> None:
    module = code("def work(row): 1 / (row['id'] - 4)\n")
    step = row_step(f"{module}:work")
    with pytest.raises(NeedsChange) as expected:
        list(Pipeline([step]).apply(rows(9), PLACE, SCHEMA))

    with pytest.raises(NeedsChange) as refused:
        opened(step, sets_apart=False).apply(rows(9), PLACE)

    assert "row 104 of /in/a.parquet" in refused.value.message
    assert (refused.value.reason, refused.value.message) == (expected.value.reason, expected.value.message)


def test_a_row_fails_with_the_text_that_it_has_in_the_tasks_own_process(code: Code, opened: Callable[..., StepProcess]) -> None:
    module = code("def work(row):\n    raise LookupError('no such thing')\n")
    step = row_step(f"{module}:work")
    failed: list[Any] = []
    for finished in StepsInProcess(Opening((step,), SCHEMA, sets_apart=True)).finished(batches(1)):
        assert not list(finished.results(failed.append))

    text = text_of(failed[0].error)
    assert (text.kind, text.message) == ("LookupError", "no such thing")
    assert text.traceback.startswith("Traceback (most recent call last):\n")
    assert "careful" not in text.traceback
    assert "raise LookupError('no such thing')" in text.traceback


def test_missing_code_is_said_when_the_process_is_opened(opened: Callable[..., StepProcess]) -> None:
    with pytest.raises(NeedsChange) as refused:
        opened(row_step("no_such_module_at_all:work"))
    assert refused.value.reason == reasons.CODE_MISSING


def test_a_service_that_answers_nobody_is_told_at_the_end(code: Code) -> None:
    body = "async def work(row):\n    raise ConnectionError('refused')\n"
    step = row_step(f"{code(body)}:work", concurrency=4, retry={"attempts": 1})
    steps = StepsInProcess(Opening((step,), SCHEMA, sets_apart=True))

    with pytest.raises(Retryable) as failed:
        [list(finished.results(lambda _: None)) for finished in steps.finished(batches(4, 2))]

    assert failed.value.reason == reasons.SERVICE_UNAVAILABLE


@pytest.mark.parametrize("input", ["row", "arrow"])
def test_steps_that_wait_do_many_rows_at_once_and_keep_their_order(
    code: Code, opened: Callable[..., StepProcess], input: str
) -> None:
    size, calls = ({"concurrency": 50}, 50) if input == "row" else ({"concurrency": 5, "batchSize": 10}, 5)
    # Each waits until all are there: one after another, they would wait for ever.
    module = code(
        "import asyncio\nthere = 0\nasync def work(given):\n    global there\n    there += 1\n"
        f"    while there < {calls}:\n        await asyncio.sleep(0.001)\n    return given\n"
    )
    process = opened(row_step(f"{module}:work", input=input, **size))

    reply = process.apply(rows(50), PLACE)

    assert ids(reply.made) == list(range(50))
    assert process.calls[0] == calls


def test_batches_have_the_size_that_the_step_asks_for(code: Code, opened: Callable[..., StepProcess]) -> None:
    module = code(
        "import pyarrow as pa\ndef work(batch):\n    return pa.record_batch({'id': [batch.num_rows] * batch.num_rows})\n"
    )

    reply = opened(row_step(f"{module}:work", input="arrow", batchSize=4)).apply(rows(10), PLACE)

    assert ids(reply.made) == [4] * 8 + [2] * 2


def test_a_row_that_fails_behind_the_first_of_such_batches_has_its_own_number(
    code: Code, opened: Callable[..., StepProcess]
) -> None:
    module = code("def work(batch):\n    if 6 in batch.column('id').to_pylist(): raise ValueError('six')\n    return batch\n")

    reply = opened(row_step(f"{module}:work", input="arrow", batchSize=4)).apply(rows(10), PLACE)

    assert [row.number for row in reply.failed] == [6]
    assert ids(reply.made) == [0, 1, 2, 3, 4, 5, 7, 8, 9]


def test_the_key_of_a_row_is_the_same_as_in_the_tasks_own_process(code: Code, opened: Callable[..., StepProcess]) -> None:
    schema = pa.schema([("id", pa.string())])
    module = code("from checkpoint_work.steps.row_keys import row_key\ndef work(row):\n    return {'id': row_key()}\n")
    step = row_step(f"{module}:work")
    (expected,) = Pipeline([step], around=Surroundings(write="ab" * 16)).apply(rows(3), PLACE, schema)

    reply = opened(step, schema=schema).apply(rows(3), PLACE)

    assert ids(reply.made) == expected.column("id").to_pylist()
    assert len(set(ids(reply.made))) == 3


class Kept(dict[str, str]):
    """Implements Memory."""

    def find(self, key: str) -> str | None:
        return self.get(key)

    def keep(self, key: str, text: str) -> None:
        self[key] = text


@pytest.mark.parametrize("kind", slow_except(["def", "async def"], "async def"))
def test_results_are_kept_by_the_task_and_taken_from_there(code: Code, kind: str) -> None:
    module = code(f"import os\n{kind} work(row):\n    return {{'id': os.getpid()}}\n")
    memory = Kept()
    opening = Opening((row_step(f"{module}:work", memo=True),), SCHEMA, True, write="ab" * 16, memory=memory)
    made = []
    for _ in range(2):
        process = StepProcess(opening)
        process.open()
        made.append(ids(process.apply(rows(3), PLACE).made))
        process.close()

    assert len(memory) == 3
    assert made[0] == made[1], "the second process has made no call: each would give its own number"


def test_a_process_with_a_call_that_hangs_is_replaced(code: Code, tmp_path: Path) -> None:
    body = (
        "import os, time\n"
        "def work(row):\n"
        f"    with open({str(tmp_path / 'pids')!r}, 'a') as file: file.write(f'{{os.getpid()}}\\n')\n"
        "    if row['id'] == 1: time.sleep(600)\n"
        "    return row\n"
    )
    step = row_step(f"{code(body)}:work", timeout="1s", retry={"attempts": 1})
    failed: list[Any] = []
    made = []
    for finished in StepsInProcess(Opening((step,), SCHEMA, sets_apart=True)).finished(batches(6, 3)):
        made += ids(tuple(finished.results(failed.append)))

    assert made == [0, 2, 3, 4, 5]
    assert [text_of(one.error).kind for one in failed] == ["TimeoutError"]
    pids = (tmp_path / "pids").read_text().split()
    assert len(set(pids[:3])) == 1
    assert len(set(pids)) == 2


def test_large_rows_pass_whole(code: Code, opened: Callable[..., StepProcess]) -> None:
    schema = pa.schema([("id", pa.int64()), ("data", pa.large_binary())])
    module = code("def work(batch):\n    return batch\n")
    given = pa.record_batch({"id": [0, 1], "data": pa.array([b"x" * (40 << 20), None], pa.large_binary())})

    (made,) = opened(row_step(f"{module}:work", input="arrow"), schema=schema).apply(given, PLACE).made

    assert made.equals(given)


def test_what_a_step_prints_does_not_disturb(code: Code, opened: Callable[..., StepProcess]) -> None:
    module = code("import sys\ndef work(row):\n    print('x' * 100_000)\n    return row\n")
    assert ids(opened(row_step(f"{module}:work")).apply(rows(3), PLACE).made) == [0, 1, 2]

"""The note of what a Python worker has begun: there after os._exit and after signals, and read back out of what Spark relays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.manifest.steps import Step
from checkpoint_work.process.last_call import describe_last_call, open_note, tell_nobody
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.failing.row_isolation import RowIsolation
from checkpoint_work.steps.places import Place
from checkpoint_work.tasks.failures import of_spark, wrap

#: As Spark begins and ends a worker's task: its file is there from the beginning, and only an orderly end removes it.
WORKER = """
import ctypes, faulthandler, os, signal, sys, threading, time
file = open(os.path.join(os.environ["PYTHON_FAULTHANDLER_DIR"], str(os.getpid())), "w")
faulthandler.enable(file=file)
print(os.getpid(), flush=True)
from checkpoint_work.process.last_call import open_note
begun = open_note(os.environ)
begun("first", "rows 0 to 9 of /in/a.parquet")
begun("größe", "rows 10 to 19 of /in/é.parquet")
def work(): {end}
work()
"""


def left_by(folder: Path, end: str) -> str:
    """Return what Java finds in the file of a worker that has ended so."""
    environment = {"PYTHON_FAULTHANDLER_DIR": str(folder), "PYTHONPATH": ":".join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", WORKER.format(end=end)], env=environment, stdout=subprocess.PIPE, check=False)
    assert ended.returncode
    return (folder / ended.stdout.decode().strip()).read_bytes().decode("utf-8", errors="strict")


def relayed(text: str) -> RuntimeError:
    return RuntimeError(
        "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost task 0.3 in stage 0.0 "
        f"(TID 3) (host executor driver): org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): {text}\n"
        "\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.x(PythonRunner.scala:1)"
    )


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("os._exit(3)", "os._exit, or killed"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "os._exit, or killed"),
        ("ctypes.string_at(0)", "Segmentation fault in"),
        ("os.abort()", "Aborted in work (<string>:10)"),
        (
            "threading.Thread(target=threading.Event().wait, daemon=True).start() or time.sleep(0.05) or os.abort()",
            "Aborted in work (<string>:10)",
        ),
    ],
)
def test_a_worker_that_is_gone_names_the_step_and_the_rows_that_had_begun(tmp_path: Path, end: str, said: str) -> None:
    told = of_spark(relayed(left_by(tmp_path, end)))

    assert (type(told), told.reason) == (Retryable, reasons.DRIVER_FAILED)
    assert "step 'größe' on rows 10 to 19 of /in/é.parquet" in told.message
    assert said in told.message
    assert "PythonRunner" not in told.message


def test_an_error_of_ours_is_told_before_any_note() -> None:
    own = NeedsChange(reasons.CODE_FAILED, "step 'x' raised")

    assert of_spark(RuntimeError(f'{wrap(own)} checkpointed-write-begun:{{"step":"a","rows":"b"}}')).message == own.message


@pytest.mark.parametrize("text", ["", "checkpointed-write-begun:", 'checkpointed-write-begun:{"step":"a"', "crashed"])
def test_what_is_no_note_is_none(text: str) -> None:
    assert describe_last_call(text) is None


@pytest.mark.parametrize("step", ["s" * 10_000, "é" * 10_000])
def test_names_of_any_length_leave_a_note_that_can_be_read(tmp_path: Path, step: str) -> None:
    end = f"begun({step!r}, 'rows 0 to 9 of ' + {step!r}); os._exit(1)"

    assert f"{step[:50]}" in of_spark(relayed(left_by(tmp_path, end))).message


def test_outside_of_a_worker_nobody_is_told(tmp_path: Path) -> None:
    assert open_note({}) is tell_nobody
    assert open_note({"PYTHON_FAULTHANDLER_DIR": str(tmp_path)}) is tell_nobody


# --- what is told to it -------------------------------------------------------------------------------------------------------

TEN = pa.record_batch({"id": list(range(10))})
PLACE = Place("/in/a.parquet", "rows", 100)


def steps() -> list[Step]:
    return [
        Step(call="copy:copy", input="row", name="rows"),
        Step(call="copy:copy", input="row", name="other rows"),
        Step(call="tests.unit.spark.test_last_call:same", input="arrow", name="batches"),
    ]


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


@pytest.mark.parametrize("apart", [False, True])
def test_each_step_is_told_before_it_begins_with_the_rows_of_its_batch(apart: bool) -> None:
    told: list[tuple[str, str]] = []
    pipeline = Pipeline(steps(), note_call=lambda step, rows: told.append((step, rows)))
    assert [step for step, _ in told] == ["rows", "other rows", "batches"]
    told.clear()

    if apart:
        list(pipeline.apply(TEN, PLACE, None, RowIsolation(lambda *_: None)))
    else:
        list(pipeline.apply(TEN, PLACE, None))

    assert told == [(name, "rows 100 to 109 of /in/a.parquet") for name in ("rows", "other rows", "batches")]

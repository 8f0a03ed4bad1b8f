"""How an error gets from a task to the driver, through whatever Spark and Java make of its text."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt, NeedsChange, Retryable, Superseded
from checkpoint_work.tasks.failures import TaskFailed, end_task, of_spark, unwrap, wrap

JAVA_STACK = (
    "\n\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)"
    "\n\tat org.apache.spark.rdd.RDD.iterator(RDD.scala:339)\n\t... 1 more\n\nDriver stacktrace:"
)


def relayed(text: str) -> str:
    """As Spark tells the driver of a task that raised."""
    return (
        "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost task 0.3 in stage 0.0 "
        "(TID 3) (host executor driver): org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "/x/executor.py", line 90, in execute\n    raise wrap(error)\n'
        f"checkpoint_work.tasks.failures.TaskFailed: {text}\n{JAVA_STACK}"
    )


ERRORS = [
    NeedsChange(reasons.CODE_FAILED, "step 'größe' raised on row 7 of /in/a.csv: KeyError: \"x\"\n  second line\r\n"),
    Retryable(reasons.STORE_UNAVAILABLE, 'no answer {not json} \\ " \u2028 \x00'),
    Corrupt(reasons.RECORD_UNREADABLE, ""),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.family)
def test_an_error_of_a_task_arrives_with_family_reason_and_message(error: CheckpointError) -> None:
    arrived = of_spark(RuntimeError(relayed(str(wrap(error)))))

    assert type(arrived) is type(error)
    assert (arrived.reason, arrived.message) == (error.reason, error.message)


@given(st.sampled_from([reasons.CODE_FAILED, reasons.KEYS_NOT_UNIQUE]), st.text())
def test_any_text_survives_the_way(reason: str, message: str) -> None:
    arrived = unwrap(relayed(str(wrap(NeedsChange(reason, message)))))

    assert arrived is not None
    assert (arrived.reason, arrived.message) == (reason, message)


def test_a_message_of_any_length_is_cut_to_what_a_log_line_holds() -> None:
    arrived = unwrap(str(wrap(NeedsChange(reasons.CODE_FAILED, "x" * 1_000_000))))

    assert arrived is not None
    assert arrived.message == "x" * 8_000


def test_of_several_tries_the_last_error_is_told() -> None:
    first, last = (str(wrap(NeedsChange(reasons.CODE_FAILED, text))) for text in ("first", "last"))

    arrived = unwrap(relayed(first) + relayed(last))

    assert arrived is not None
    assert arrived.message == "last"


def test_text_after_the_error_on_its_line_does_not_hide_it() -> None:
    marked = str(wrap(NeedsChange(reasons.CODE_FAILED, "a } b")))

    arrived = unwrap(f"{marked} [task {{3}}, host {{x}}]")

    assert arrived is not None
    assert arrived.message == "a } b"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "checkpointed-write-error:",
        "checkpointed-write-error:{",
        "checkpointed-write-error:{}",
        'checkpointed-write-error:{"family":"NeedsChange"}',
        'checkpointed-write-error:{"family":"Other","reason":"r","message":"m"}',
        'checkpointed-write-error:{"family":["x"],"reason":"r","message":"m"}',
        'checkpointed-write-error:{"family":"NeedsChange","reason":"r","mess',
    ],
)
def test_what_is_no_marked_error_is_none(text: str) -> None:
    assert unwrap(text) is None


def test_a_marked_error_that_was_cut_off_does_not_hide_an_earlier_whole_one() -> None:
    whole = str(wrap(NeedsChange(reasons.CODE_FAILED, "whole")))

    arrived = unwrap(f"{whole}\n{whole[:-5]}")

    assert arrived is not None
    assert arrived.message == "whole"


def test_a_superseded_try_is_no_failure_of_the_write() -> None:
    assert unwrap(str(wrap(Superseded("LinkSealed", "x")))) is None


def test_a_spark_failure_that_no_task_explains_is_retryable_and_told_without_javas_stack() -> None:
    arrived = of_spark(RuntimeError(f"Job aborted: Executor 3 exited with 137 (OOMKilled){JAVA_STACK}"))

    assert type(arrived) is Retryable
    assert arrived.reason == reasons.DRIVER_FAILED
    assert "Executor 3 exited with 137 (OOMKilled)" in arrived.message
    assert "PythonRunner.scala" not in arrived.message


def test_an_unforeseen_python_error_is_told_by_the_line_that_ends_its_traceback() -> None:
    arrived = of_spark(RuntimeError(relayed("nothing marked").replace("TaskFailed: nothing marked", "MemoryError: 12 GB")))

    assert "MemoryError: 12 GB" in arrived.message
    assert "Traceback" not in arrived.message
    assert "Lost task" not in arrived.message


def test_a_failure_of_any_length_is_told_in_bounds() -> None:
    assert len(of_spark(RuntimeError("x" * 1_000_000)).message) < 5_000


def test_a_failure_without_a_text_is_still_a_failure() -> None:
    assert of_spark(RuntimeError()).reason == reasons.DRIVER_FAILED


@pytest.mark.parametrize("error", [*ERRORS, Superseded("LinkSealed", "x")], ids=lambda error: error.family)
def test_errors_survive_pickling_as_spark_pickles_them(error: CheckpointError) -> None:
    arrived = pickle.loads(pickle.dumps(error))  # noqa: S301

    assert type(arrived) is type(error)
    assert (arrived.reason, arrived.message) == (error.reason, error.message)


NAMED = (
    "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
    ": org.apache.spark.SparkIllegalArgumentException: [INVALID_CONF_VALUE.TYPE_MISMATCH] The value 'perhaps' in the config "
    "\"spark.speculation\" is invalid. It should be a/an 'boolean' value. SQLSTATE: 22022\n"
    "\tat org.apache.spark.internal.config.ConfigHelpers$.configTypeMismatchError(ConfigBuilder.scala:119)"
)
UNNAMED = (
    "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
    ": java.lang.NumberFormatException: Time must be specified as seconds (s), milliseconds (ms). E.g. 50s, 100ms, or 250us.\n"
    "Failed to parse time string: soon\n\tat org.apache.spark.network.util.JavaUtils.timeStringAs(JavaUtils.java:445)"
)


@pytest.mark.parametrize(
    ("text", "name", "word"),
    [(NAMED, "spark.speculation", "'boolean'"), (UNNAMED, "spark.rpc.askTimeout", "50s")],
    ids=["Spark names it", "Spark tells its value only"],
)
def test_a_spark_property_of_a_wrong_type_is_the_manifests_fault_and_named(text: str, name: str, word: str) -> None:
    error = of_spark(RuntimeError(text), {"spark.speculation": "perhaps", "spark.rpc.askTimeout": "soon", "spark.app": "x"})

    assert isinstance(error, NeedsChange)
    assert error.reason == reasons.MANIFEST_INVALID
    assert error.message.startswith(f"spec.sparkConf: {name}: ")
    assert word in error.message


def test_a_value_that_is_not_from_the_manifest_is_not_its_fault() -> None:
    assert isinstance(of_spark(RuntimeError(NAMED), {"spark.app": "x"}), Retryable)
    assert isinstance(of_spark(RuntimeError(UNNAMED), {}), Retryable)


def test_a_mark_with_a_reason_that_is_none_of_ours_is_text_of_a_step() -> None:
    forged = 'checkpointed-write-error:{"family": "NeedsChange", "reason": "AllIsWell", "message": "x"}'

    arrived = of_spark(RuntimeError(relayed(forged)))

    assert isinstance(arrived, Retryable)
    assert arrived.reason == reasons.DRIVER_FAILED


def test_what_a_task_ends_with_says_no_secret_and_has_no_cause_that_could(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MODEL_API_KEY", "sk-geheim-123")
    cause = ValueError("401 for sk-geheim-123")
    error = NeedsChange(reasons.CODE_FAILED, f"step 'score' raised: {cause}")
    error.__cause__ = cause

    with pytest.raises(TaskFailed) as ended:
        end_task(error)

    assert ended.value.__cause__ is None
    assert ended.value.__suppress_context__
    assert "401 for ***" in str(ended.value)
    log = capsys.readouterr().err
    assert "ValueError: 401 for ***" in log
    assert "geheim" not in f"{ended.value}{log}"


def test_what_spark_relays_of_a_step_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "geheim-123")

    arrived = of_spark(RuntimeError(relayed("ValueError: geheim-123 and http://me:other@host/")))

    assert "geheim" not in arrived.message
    assert "http://me:***@host/" in arrived.message

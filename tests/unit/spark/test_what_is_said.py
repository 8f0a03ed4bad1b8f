"""What a driver leaves behind of a failure: no secret that its process knows, nothing that steers a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import RowPosition
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.store.object_store import open_store
from checkpoint_spark.driver.main import EXIT_FAILED, Orders, drive
from checkpoint_spark.pods import pod
from checkpoint_work.process.settings import RECORD_KEYS_VARIABLE, STORAGE_VARIABLE, masked
from checkpoint_work.steps.failing.failures import code_failed
from checkpoint_work.steps.quarantine import describe
from tests.support.records import KEY

SECRET = "geheim-geheim"
STORED = {"storage": [{"prefix": "s3://bucket/", "access_key_id": "id", "secret_access_key": SECRET}]}


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORAGE_VARIABLE, json.dumps(STORED))
    monkeypatch.setenv("SCORING_TOKEN", "tok-123456")


def test_a_step_that_quotes_its_credentials_is_masked_before_its_text_is_cut() -> None:
    text = "x" * 1995 + SECRET

    error = code_failed(Step(call="m:f"), "row 1", ValueError(text))

    assert error.message.count("geh") == 0
    assert "***" in error.message


def test_a_row_that_failed_keeps_neither_in_message_nor_in_traceback_what_is_secret() -> None:
    try:
        raise ValueError(f"401: tok-123456 {SECRET}")
    except ValueError as error:
        row = describe(RowPosition(range=Range(file=0, start=0, end=1)), "score", error)

    assert row.message == "401: *** ***"
    assert "401: *** ***" in row.traceback
    assert "geheim" not in row.model_dump_json()


def test_the_record_and_the_log_of_a_driver_that_fails_unexpectedly_say_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = Orders(
        uri=str(tmp_path), key=KEY, attempt=1, master="local[1]", parallelism=1, spark_conf={}, ends_with_parent=False
    )
    # An unreadable record of the launch: its text comes back in the error.
    ledger = Ledger(open_store(str(tmp_path), StorageSettings()), KEY)
    ledger.store.put_if_absent(ledger.at.launch(1), f'{{"kind": "launch", "x{SECRET}": "\\u001b[31m"}}'.encode())
    said: list[str | CheckpointError] = []

    assert drive(orders, said.append) == EXIT_FAILED

    failure = ledger.attempts.read_failure(1)
    assert failure is not None
    assert reasons.is_of_drivers(failure.reason)
    assert "geheim" not in failure.message
    assert "geheim" not in capsys.readouterr().err


def test_last_words_are_printable_and_masked(capsys: pytest.CaptureFixture[str]) -> None:
    pod._tell(f"CodeFailed: \x1b]52;c;ZXZpbA==\x07 {SECRET}")

    assert capsys.readouterr().err == "CodeFailed: \\x1b]52;c;ZXZpbA==\\x07 ***\n"


def test_the_keys_of_the_writes_records_are_masked_whole_and_each_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "ab" * 32
    keys = json.dumps({"current": "k1", "keys": {"k1": key}})
    monkeypatch.setenv(RECORD_KEYS_VARIABLE, keys)

    assert masked(f"signed with {key}") == "signed with ***"
    assert key not in masked(f"the environment is {keys}")

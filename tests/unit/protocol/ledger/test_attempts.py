"""The records of an attempt: the first of each kind stays."""

from __future__ import annotations

from checkpoint_protocol.identity import new_token
from checkpoint_protocol.records import (
    FailureRecord,
    NoTarget,
    OutputRecord,
    TargetRecord,
)
from tests.support.records import launch, ledger_over
from tests.support.stores import MemoryStore


def failure(message: str = "m") -> FailureRecord:
    return FailureRecord(token=new_token(), attempt=1, family="Retryable", reason="r", message=message)


def test_attempts_count_from_their_launch_records_in_numeric_order() -> None:
    store = MemoryStore()
    ledger = ledger_over(store)
    for attempt in (10, 2, 1):
        ledger.attempts.put_launch(launch(attempt))
    store.objects[f"{ledger.at.launches}0.json"] = b""
    store.objects[f"{ledger.at.launches}03.json"] = b""
    store.objects[f"{ledger.at.launches}4.json.tmp"] = b""

    assert ledger.attempts.list_attempts() == [1, 2, 10]


def test_every_put_returns_the_record_that_stands() -> None:
    store = MemoryStore()
    output, target = OutputRecord(token=new_token(), arrow_schema=""), TargetRecord(token=new_token(), target=NoTarget())

    for ledger in (ledger_over(store), ledger_over(store)):
        assert ledger.attempts.put_output(1, output) == output
        assert ledger.attempts.put_target(1, target) == target
    other = ledger_over(store)
    assert other.attempts.put_output(1, OutputRecord(token=new_token(), arrow_schema="AAAA")) == output
    assert other.attempts.put_target(1, TargetRecord(token=new_token(), target=NoTarget())) == target
    assert other.attempts.read_output(1) == output
    assert other.attempts.read_target(1) == target


def test_the_first_failure_that_a_driver_has_told_stands() -> None:
    ledger = ledger_over(MemoryStore())
    ledger.attempts.put_failure(failure("first"))
    ledger.attempts.put_failure(failure("second"))

    told = ledger.attempts.read_failure(1)
    assert told is not None
    assert told.message == "first"

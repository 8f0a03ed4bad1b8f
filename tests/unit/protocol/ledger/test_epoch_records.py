"""What all families of records share: not there is None, unreadable is never "not there"."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import (
    ClaimRecord,
    CommitRecord,
    FailureRecord,
    IcebergBase,
    Record,
)
from checkpoint_protocol.store import layout
from tests.support.records import KEY, input_of, launch, ledger_over, plan, rows_file, seal
from tests.support.stores import MemoryStore

TASKS = [[(0, 0, 10)], [(0, 10, 20)], [(1, 0, 5)]]


def claim(index: int) -> ClaimRecord:
    return ClaimRecord(token=new_token(), index=index, base=IcebergBase(table_uuid="t", snapshot_id=None))


def commit_record() -> CommitRecord:
    return CommitRecord(
        token=new_token(),
        key=str(KEY),
        target="t",
        table_identity=None,
        commit_id=None,
        rows_read=0,
        rows_written=0,
        files=0,
        attempts=1,
        code_digests=(),
    )


def failure(message: str = "m") -> FailureRecord:
    return FailureRecord(token=new_token(), attempt=1, family="Retryable", reason="r", message=message)


Reader = Callable[[Ledger], object]


READERS: dict[str, tuple[Callable[[layout.EpochLayout], str], Reader]] = {
    "input": (lambda at: at.input, lambda ledger: ledger.inputs.read_input()),
    "launch": (lambda at: at.launch(1), lambda ledger: ledger.attempts.read_launch(1)),
    "target": (lambda at: at.target(1), lambda ledger: ledger.attempts.read_target(1)),
    "output": (lambda at: at.output(1), lambda ledger: ledger.attempts.read_output(1)),
    "plan": (lambda at: at.plan(1), lambda ledger: ledger.plans.read_plan(1)),
    "failure": (lambda at: at.failure(1), lambda ledger: ledger.attempts.read_failure(1)),
    "seal": (lambda at: at.seal(1, 0, 0), lambda ledger: ledger.seals.read_seal(1, 0, 0)),
    "closed": (lambda at: at.closed(1), lambda ledger: ledger.attempts.read_closed(1)),
    "claim": (lambda at: at.claim(0), lambda ledger: ledger.commits.read_claim(0)),
    "mark": (lambda at: at.commit_record, lambda ledger: ledger.commits.read_commit()),
}


@pytest.mark.parametrize("kind", READERS)
def test_a_record_that_is_not_there_is_none(kind: str) -> None:
    assert READERS[kind][1](ledger_over(MemoryStore())) is None


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("data", [b"", b"{}", b'{"kind":"other","version":1}'])
def test_a_record_that_cannot_be_read_is_corrupt_names_the_object_and_is_never_absent(kind: str, data: bytes) -> None:
    path, read = READERS[kind]
    ledger = ledger_over(MemoryStore())
    ledger.store.put_if_absent(path(ledger.at), data)

    with pytest.raises(Corrupt) as caught:
        read(ledger)
    assert f"{ledger.store.uri}/{path(ledger.at)}" in caught.value.message


def test_what_may_still_appear_is_read_anew_each_time() -> None:
    ledger, other = (ledger_over(store) for store in [MemoryStore()] * 2)
    for _, read in READERS.values():
        assert read(ledger) is None
    fixed = input_of(rows_file(1))
    other.inputs.put_input(fixed)
    records: list[Record] = [
        fixed,
        other.attempts.put_launch(launch()),
        other.plans.put_plan(plan(*TASKS)),
        other.attempts.put_failure(failure()),
        other.commits.put_claim(claim(0)),
        other.commits.put_commit(commit_record()),
    ]
    other.seals.put_seal(seal())

    for record in records:
        assert READERS[str(record.model_dump()["kind"])][1](ledger) == record
    assert ledger.seals.read_seal(1, 0, 0) is not None

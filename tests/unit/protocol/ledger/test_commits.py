"""Claims of committers, and the commit record."""

from __future__ import annotations

from checkpoint_protocol.identity import new_token
from checkpoint_protocol.records import (
    ClaimRecord,
    CommitRecord,
    IcebergBase,
)
from tests.support.records import KEY, ledger_over
from tests.support.stores import MemoryStore


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


def test_claims_are_listed_in_numeric_order_without_the_commit_record() -> None:
    ledger = ledger_over(MemoryStore())
    for index in (10, 0, 2):
        ledger.commits.put_claim(claim(index))
    ledger.commits.put_commit(commit_record())

    assert ledger.commits.list_claims() == [0, 2, 10]

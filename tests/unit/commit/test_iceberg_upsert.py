"""What an upsert takes of the merges' seals, before anything is sent."""

from __future__ import annotations

import pytest

from checkpoint_commit.iceberg.changes.append import IcebergAppend
from checkpoint_commit.iceberg.changes.merges import Merged, done_merges, read_merged, stage_name
from checkpoint_commit.iceberg.changes.upsert import IcebergUpsert
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import IcebergDeletes, Merge, MergeKeysRecord, Upsert
from tests.support.records import KEY, end_epoch, input_of, launch, ledger_over, plan
from tests.support.stores import MemoryStore

DATA = "/lake/rows/data"
OWN = f"{DATA}/cw-{KEY.uid}/{KEY.epoch}-1-0-0-deletes.parquet"


def upsert(path: str = OWN, rows: int = 3, size_bytes: int = 100) -> IcebergUpsert:
    deletes = IcebergDeletes(path=path, size_bytes=size_bytes, rows=rows, data_file=f"{DATA}/a.parquet")
    return IcebergUpsert(Upsert(keys=("id",)), IcebergAppend(KEY, KEY.snapshot_id), {}, (DATA,), Merged(7, (deletes,)))


def test_delete_files_of_the_epochs_own_are_taken() -> None:
    change = upsert()

    assert change.incompatibility is None
    assert change.sizes == {OWN.rpartition("/")[0]: {OWN.rpartition("/")[2]: 100}}
    assert change.names(OWN)


@pytest.mark.parametrize(
    "change",
    [
        upsert(path=f"{DATA}/a-deletes.parquet"),
        upsert(path=f"{DATA}/cw-another/{KEY.epoch}-1-0-0-deletes.parquet"),
        upsert(path=f"{DATA}/cw-{KEY.uid}/{KEY.epoch + 1}-1-0-0-deletes.parquet"),
        upsert(rows=0),
        upsert(size_bytes=0),
    ],
)
def test_a_delete_file_that_is_not_surely_the_epochs_own_or_is_empty_is_refused(change: IcebergUpsert) -> None:
    assert change.incompatibility is not None
    assert change.incompatibility.reason == reasons.STAGED_RESULT_REFUSED


def done_merge(store: MemoryStore, since: int | None, attempt: int = 1, name: str | None = None) -> Ledger:
    """Put a merge that has read snapshot 7, and has found nothing."""
    stage = ledger_over(store, key=KEY.of_stage(name or stage_name(7)))
    stage.inputs.put_input(input_of())
    stage.plans.put_plan(plan())
    merge = Merge(keys=("id",), when_matched="Update", on_duplicate="Fail", order_by=None, attempts=(attempt,), since=since)
    stage.chains.close(1)
    end_epoch(stage, launch().model_copy(update={"operation": merge}))
    return stage


def put_keys(ledger: Ledger, where: str | None) -> None:
    ledger.merges.put_keys(MergeKeysRecord(token=new_token(), keys=("id",), rows=1, parts=(), bounds="", where=where))


def test_a_merge_that_goes_on_from_itself_stops_whoever_follows_it() -> None:
    """A driver may put any record of its write: its key is in the pod."""
    store = MemoryStore()
    stage = done_merge(store, since=7)

    with pytest.raises(Corrupt, match="goes on from itself"):
        read_merged(ledger_over(store), stage, {7: stage})


def test_two_operators_that_saw_other_merges_done_begin_two_stages_and_either_is_known_as_done() -> None:
    """In one stage, an attempt of the first could fix what is read, and one of the second say that it is all."""
    assert stage_name(7) != stage_name(7, since=6)
    for name in (stage_name(7), stage_name(7, since=6)):
        store = MemoryStore()
        stage = done_merge(store, since=None, name=name)

        assert {number: found.key for number, found in done_merges(ledger_over(store)).items()} == {7: stage.key}


@pytest.mark.parametrize(
    ("where", "taken"),
    [
        ("id >= 1 and id <= 9", True),
        (f"id in ({', '.join(map(str, range(100)))})", True),
        (" or ".join(["id = 1"] * 33), False),
        (f"text = '{'x' * (1 << 20)}'", False),
        (None, False),
    ],
)
def test_a_condition_that_is_longer_than_one_of_keys_is_not_held_against_each_file(where: str | None, taken: bool) -> None:
    store = MemoryStore()
    stage = done_merge(store, since=None)
    put_keys(ledger_over(store), where)

    assert read_merged(ledger_over(store), stage, {7: stage}).where == (where if taken else None)

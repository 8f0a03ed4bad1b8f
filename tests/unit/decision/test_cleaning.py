"""What of an ended epoch is still needed, and which epochs have ended: told from the records alone."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpoint_control.writes.cleaning import CleanedEpoch, Cleaner, KeptEpoch, Needed
from checkpoint_protocol import writes
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sources.source import Source
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import ClaimRecord, CommitRecord, IcebergBase, IcebergFile, IcebergTarget
from checkpoint_protocol.store.layout import EpochLayout
from checkpoint_protocol.store.object_store import ObjectStore
from tests.support.records import DIGEST, ICEBERG, KEY, TOKEN, end_epoch, iceberg_file, input_of, launch, ledger_over, plan, seal
from tests.support.sources import source_of
from tests.support.stores import MemoryStore
from tests.unit.protocol.test_epoch_index import Counting

AT = EpochLayout(KEY)
LATER = datetime.datetime(2027, 1, 1, tzinfo=datetime.UTC)
BY_KEY = source_of({"spark": {"table": "lake.db.rows", "keyColumns": ["id"]}})


def staged(store: MemoryStore) -> list[str]:
    return sorted(path for path in store.objects if path.startswith("staged/"))


def staged_at(path: str) -> IcebergFile:
    return iceberg_file().model_copy(update={"path": path})


def begun(store: ObjectStore, source: Source | None = None, target: IcebergTarget = ICEBERG) -> Ledger:
    """Stage an attempt of one task, with keys, quarantined rows and progress, and close it; and one that takes it over."""
    ledger = Ledger(store, KEY)
    orders = launch(target=target).model_copy(update={"source": source} if source is not None else {})
    ledger.attempts.put_launch(orders)
    ledger.inputs.put_input(input_of())
    ledger.plans.put_plan(plan([(0, 0, 1)]))
    files = [staged_at(f"{target.data_location}/cw-{KEY.uid}/1-1-0-0.parquet")]
    ledger.seals.put_seal(seal(0, 0, [(0, 0, 1)], last=True, files=files))
    for path in (AT.keys_object(1, 0, TOKEN), AT.quarantine(1, TOKEN), AT.progress(1), AT.memo(1, 0, 0, TOKEN)):
        store.put_if_absent(path, b"{}")
    ledger.chains.close(1)
    ledger.attempts.put_launch(orders.model_copy(update={"attempt": 2, "counted": (1,)}))
    ledger.chains.close(2)
    return ledger


def commit(ledger: Ledger, rows_quarantined: int = 0, *, was_deleted: bool = False) -> None:
    ledger.commits.put_commit(
        CommitRecord(
            token=TOKEN,
            key=str(KEY),
            target="t",
            table_identity=None,
            commit_id=None,
            rows_read=1,
            rows_written=1,
            files=0,
            attempts=2,
            code_digests=(DIGEST,),
            rows_quarantined=rows_quarantined,
            was_deleted=was_deleted,
        )
    )


def clean(store: ObjectStore, before: datetime.datetime = LATER) -> CleanedEpoch | KeptEpoch:
    (done,) = Cleaner(store, Settings(), before).clean(KEY.uid)
    return done


READ_LATER = {AT.input, AT.plan(1), AT.seal(1, 0, 0), AT.keys_object(1, 0, TOKEN), AT.quarantine(1, TOKEN)}


@pytest.mark.parametrize(
    ("source", "quarantined", "left"),
    [(None, 0, {AT.input}), (None, 1, READ_LATER), (BY_KEY, 0, READ_LATER)],
    ids=["positions", "quarantined rows", "keys"],
)
def test_what_later_epochs_read_stays_and_all_else_goes(source: Source | None, quarantined: int, left: set[str]) -> None:
    store = MemoryStore()
    commit(begun(store, source), quarantined)
    before = len(staged(store))

    done = clean(store)

    assert isinstance(done, CleanedEpoch)
    assert staged(store) == sorted(left)
    assert done.objects == before - len(left)


def test_that_an_epoch_is_cleaned_is_noted_before_anything_goes_and_its_seals_go_last() -> None:
    store = Counting(MemoryStore())
    commit(begun(store))
    store.put_if_absent(f"{AT.staged}/1/what-sorts-after-seals", b"")
    store.requests.clear()

    clean(store)

    effects = [request for request in store.requests if not request.startswith(("get", "list"))]
    assert (effects[0], effects[-1]) == (f"put {AT.cleaned}", f"delete {AT.seal(1, 0, 0)}")


def test_an_epoch_that_has_ended_at_the_very_time_before_which_epochs_go_is_kept() -> None:
    store = MemoryStore()
    commit(begun(store))

    assert isinstance(clean(store, store.now), KeptEpoch)


def test_data_files_go_that_are_old_and_no_counted_seal_of_the_epoch_or_a_stage_names_and_none_once_seals_are_gone(
    tmp_path: Path,
) -> None:
    folder = tmp_path / f"cw-{KEY.uid}"
    folder.mkdir()
    named, of_stage, abandoned, young = (folder / f"1-1-0-{number}.parquet" for number in range(4))
    for path in (named, of_stage, abandoned, young):
        path.touch()
    os.utime(young, (LATER.timestamp(), LATER.timestamp()))
    store = MemoryStore()
    commit(begun(store, target=ICEBERG.model_copy(update={"data_location": str(tmp_path)})))
    stage = ledger_over(store, key=KEY.of_stage("merge-7"))
    stage.plans.put_plan(plan([(0, 0, 1)]))
    stage.seals.put_seal(seal(0, 0, [(0, 0, 1)], last=True, files=[staged_at(str(of_stage))]))
    stage.chains.close(1)
    end_epoch(stage)

    for removed in (1, 0):
        done = clean(store)
        assert isinstance(done, CleanedEpoch)
        assert done.data_files == removed
        assert sorted(folder.iterdir()) == [named, of_stage, young]


def claim(ledger: Ledger) -> None:
    ledger.commits.put_claim(ClaimRecord(token=TOKEN, index=0, base=IcebergBase(table_uuid="t", snapshot_id=None)))


def test_of_an_epoch_that_was_claimed_and_deleted_nothing_goes_before_its_deletion_has_ended(
    tmp_path: Path,
) -> None:
    store = MemoryStore()
    claim(begun(store, target=ICEBERG.model_copy(update={"data_location": str(tmp_path)})))
    data_file = tmp_path / f"cw-{KEY.uid}" / "1-1-0-1.parquet"
    data_file.parent.mkdir()
    data_file.touch()
    writes.put_deleted(store, KEY.uid)
    before = staged(store)

    kept = clean(store)

    assert isinstance(kept, KeptEpoch)
    assert "its deletion has not ended" in kept.why
    assert staged(store) == before

    commit(Ledger(store, KEY), was_deleted=True)
    assert isinstance(clean(store), CleanedEpoch), "it went on, and has ended"
    assert data_file.exists(), "its commit may be in a table that comes back"


@pytest.mark.parametrize(
    "end",
    [
        lambda ledger: writes.put_deleted(ledger.store, KEY.uid),
        lambda ledger: commit(ledger, was_deleted=True),
    ],
    ids=["the write was deleted before any claim", "the epoch has ended by a deletion"],
)
def test_what_zombies_have_staged_of_a_deleted_epoch_goes_as_a_whole(end: Callable[[Ledger], None]) -> None:
    store = MemoryStore()
    end(begun(store))

    assert isinstance(clean(store), CleanedEpoch)
    assert staged(store) == []


def test_an_epoch_whose_records_are_not_whole_is_kept_and_the_record_is_named() -> None:
    store = MemoryStore()
    commit(begun(store))
    taken = store.objects.pop(AT.launch(2))
    before = staged(store)

    kept = clean(store)

    assert isinstance(kept, KeptEpoch)
    assert kept.problem == "RecordUnreadable"
    assert AT.launch(2) in kept.why
    assert staged(store) == before

    store.objects[AT.launch(2)] = taken
    assert isinstance(clean(store), CleanedEpoch), "restored"


def test_a_stray_object_below_another_attempt_is_not_needed_and_parts_of_the_input_are() -> None:
    needed = Needed(AT, input_since=2, attempts=(2,))

    assert needed.has(AT.input_since(2))
    assert needed.has(AT.input_part(TOKEN))
    assert needed.has(AT.seal(2, 0, 0))
    assert not needed.has(AT.input)
    assert not needed.has(AT.seal(1, 0, 0))
    assert not needed.has(EpochLayout(KEY.of_stage("merge")).seal(2, 0, 0))

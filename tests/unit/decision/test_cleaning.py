"""What of an ended epoch is still needed, and which epochs have ended: told from the records alone."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest

from checkpoint_control.writes.cleaning import CleanedEpoch, Cleaner, KeptEpoch, Needed
from checkpoint_protocol import writes
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sources.source import Source
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import ClaimRecord, CommitRecord, IcebergBase
from checkpoint_protocol.store.layout import EpochLayout
from tests.support.records import DIGEST, KEY, TOKEN, input_of, launch, plan, seal
from tests.support.sources import source_of
from tests.support.stores import MemoryStore

AT = EpochLayout(KEY)
LATER = datetime.datetime(2027, 1, 1, tzinfo=datetime.UTC)
BY_KEY = source_of({"spark": {"table": "lake.db.rows", "keyColumns": ["id"]}})


def staged(store: MemoryStore) -> list[str]:
    return sorted(path for path in store.objects if path.startswith("staged/"))


def begun(store: MemoryStore, source: Source | None = None) -> Ledger:
    """Stage an attempt of one task, with keys, quarantined rows and progress, and close it."""
    ledger = Ledger(store, KEY)
    ledger.attempts.put_launch(launch().model_copy(update={"source": source} if source is not None else {}))
    ledger.inputs.put_input(input_of())
    ledger.plans.put_plan(plan([(0, 0, 1)]))
    ledger.seals.put_seal(seal(0, 0, [(0, 0, 1)], last=True))
    for path in (AT.keys_object(1, 0, TOKEN), AT.quarantine(1, TOKEN), AT.progress(1), AT.memo(1, 0, 0, TOKEN)):
        store.put_if_absent(path, b"{}")
    ledger.chains.close(1)
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
            attempts=1,
            code_digests=(DIGEST,),
            rows_quarantined=rows_quarantined,
            was_deleted=was_deleted,
        )
    )


def clean(store: MemoryStore) -> CleanedEpoch | KeptEpoch:
    (done,) = Cleaner(store, Settings(), LATER).clean(KEY.uid)
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


def claim(ledger: Ledger) -> None:
    ledger.commits.put_claim(ClaimRecord(token=TOKEN, index=0, base=IcebergBase(table_uuid="t", snapshot_id=None)))


def test_of_an_epoch_that_was_claimed_and_deleted_nothing_goes_before_its_deletion_has_ended() -> None:
    store = MemoryStore()
    claim(begun(store))
    writes.put_deleted(store, KEY.uid)
    before = staged(store)

    kept = clean(store)

    assert isinstance(kept, KeptEpoch)
    assert "its deletion has not ended" in kept.why
    assert staged(store) == before

    commit(Ledger(store, KEY), was_deleted=True)
    assert isinstance(clean(store), CleanedEpoch), "it went on, and has ended"


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
    taken = store.objects.pop(AT.launch(1))
    before = staged(store)

    kept = clean(store)

    assert isinstance(kept, KeptEpoch)
    assert kept.problem == "RecordUnreadable"
    assert AT.launch(1) in kept.why
    assert staged(store) == before

    store.objects[AT.launch(1)] = taken
    assert isinstance(clean(store), CleanedEpoch), "restored"


def test_a_stray_object_below_another_attempt_is_not_needed_and_parts_of_the_input_are() -> None:
    needed = Needed(AT, input_since=2, attempts=(2,))

    assert needed.has(AT.input_since(2))
    assert needed.has(AT.input_part(TOKEN))
    assert needed.has(AT.seal(2, 0, 0))
    assert not needed.has(AT.input)
    assert not needed.has(AT.seal(1, 0, 0))
    assert not needed.has(EpochLayout(KEY.of_stage("merge")).seal(2, 0, 0))

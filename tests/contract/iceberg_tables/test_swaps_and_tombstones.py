"""Looks at a table, swaps of its head, and tombstones: one suite for real tables and for the fakes."""

from __future__ import annotations

import pytest

from checkpoint_commit.iceberg import commit as iceberg
from checkpoint_commit.iceberg.commit import IcebergState
from checkpoint_commit.outcomes import CommitBlocked, Committed, Landed, Refused
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import ClaimRecord, IcebergBase
from tests.contract.iceberg_tables.worlds import (
    OTHER,
    SECOND,
    RealWorld,
    World,
)
from tests.support.records import KEY, appended, ledger_over
from tests.support.stores import MemoryStore
from tests.support.writes import SCHEMA

# --- looks and swaps ------------------------------------------------------------------------------------------------------


def test_an_empty_table_has_no_head_and_a_whole_history(world: World) -> None:
    _, state = world.loaded()

    assert (state.head, state.committed, state.ancestry, state.ancestry_is_whole) == (None, None, (), True)
    assert state.reaches(None)


def test_a_swap_lands_and_is_found_by_every_later_look(world: World) -> None:
    landed = world.commit(1, 2, 3)

    _, state = world.loaded()
    assert state.committed == state.head == landed == KEY.snapshot_id
    world.append_as_stranger()
    _, later = world.loaded()
    assert later.committed == landed
    assert later.head != landed
    assert later.ancestry == (later.head, landed)


def test_another_writes_key_and_a_later_epoch_are_not_found(world: World) -> None:
    world.commit(1)

    assert world.loaded(OTHER)[1].committed is None
    assert world.loaded(SECOND)[1].committed is None


def test_an_earlier_epoch_is_found_after_a_later_one_and_both_keep_their_rows(world: World) -> None:
    first, second = world.commit(1), world.commit(2, key=SECOND)

    assert world.loaded()[1].committed == first
    assert world.loaded(SECOND)[1].committed == second
    assert first != second
    if isinstance(world, RealWorld):
        assert world.ids() == [1, 2]


def test_of_two_swaps_from_one_look_one_lands_and_one_is_refused(world: World) -> None:
    world.append_as_stranger()
    one, other = world.loaded(), world.loaded()
    files, rivals = world.stage(1), world.stage(1)

    assert isinstance(one[0].swap(one[1], KEY, appended(files)), Landed)
    assert isinstance(other[0].swap(other[1], KEY, appended(rivals)), Refused)
    if isinstance(world, RealWorld):
        assert world.ids() == [1, 1_000_000]


def test_of_two_swaps_to_an_empty_table_one_lands_and_one_is_refused(world: World) -> None:
    one, other = world.loaded(), world.loaded(OTHER)

    assert isinstance(one[0].swap(one[1], KEY, appended(world.stage(1))), Landed)
    assert isinstance(other[0].swap(other[1], OTHER, appended(world.stage(2))), Refused)
    assert world.loaded(OTHER)[1].committed is None


def test_a_swap_from_a_look_that_a_stranger_has_made_old_is_refused(world: World) -> None:
    port, state = world.loaded()
    world.append_as_stranger()

    assert isinstance(port.swap(state, KEY, appended(world.stage(1))), Refused)
    assert world.loaded()[1].committed is None


def test_a_swap_that_is_sent_again_after_it_landed_is_refused(world: World) -> None:
    port, state = world.loaded()
    files = world.stage(1)
    assert isinstance(port.swap(state, KEY, appended(files)), Landed)

    assert isinstance(port.swap(state, KEY, appended(files)), Refused)
    if isinstance(world, RealWorld):
        assert world.ids() == [1]


def test_a_staged_file_is_referenced_after_the_swap_and_not_before(world: World) -> None:
    files = world.stage(1)
    port, state = world.loaded()
    assert not port.references_any(state, appended(files))
    port.swap(state, KEY, appended(files))

    port, state = world.loaded()
    assert port.references_any(state, appended(files))
    assert not port.references_any(state, appended(world.stage(2)))
    world.append_as_stranger()
    port, state = world.loaded()
    assert port.references_any(state, appended(files))


def test_the_key_is_found_in_the_property_after_its_snapshot_has_expired(world: World) -> None:
    world.commit(1)
    base = world.loaded()[1].head
    world.append_as_stranger()
    world.append_as_stranger()
    world.expire_all_but_the_head()

    _, state = world.loaded()
    assert state.committed == KEY.snapshot_id
    assert KEY.snapshot_id not in state.ancestry
    assert not state.ancestry_is_whole
    assert not state.reaches(base)
    assert world.loaded(SECOND)[1].committed is None


def test_history_that_was_expired_below_the_base_still_reaches_it(world: World) -> None:
    for _ in range(3):
        world.append_as_stranger()
    head = world.loaded()[1].head
    world.expire_all_but_the_head()
    world.append_as_stranger()

    _, state = world.loaded()
    assert state.reaches(head)
    assert not state.reaches(None)
    assert not state.reaches(12345)


def test_staged_files_fit_the_table_that_they_were_staged_for(world: World) -> None:
    files = world.stage(1)
    port, state = world.loaded()
    targets = [world.target()] if isinstance(world, RealWorld) else []

    assert port.find_incompatibility(state, targets, appended(files)) is None


@pytest.mark.parametrize("value", ["garbage", "-1", "²", "", "1.5"])
def test_a_property_that_somebody_has_written_over_is_no_evidence_and_does_not_stop_the_commit(
    bare: RealWorld, value: str
) -> None:
    bare.place.create(SCHEMA)
    with bare.place.table().transaction() as change:
        change.set_properties({KEY.property_name: value})

    assert bare.loaded()[1].committed is None
    bare.commit(1)
    assert bare.place.table().properties[KEY.property_name] == "1"


# --- tombstones -----------------------------------------------------------------------------------------------------------


def test_a_tombstone_is_found_as_one_by_every_later_look_of_that_epoch_and_of_no_other(world: World) -> None:
    world.append_as_stranger()
    port, state = world.loaded()

    assert port.block_commit(state, KEY) == Landed(KEY.snapshot_id)

    world.append_as_stranger()
    _, later = world.loaded()
    assert (later.committed, later.is_tombstone) == (KEY.snapshot_id, True)
    assert world.loaded(OTHER)[1].committed is None
    assert world.loaded(SECOND)[1].committed is None


def test_a_swap_that_was_prepared_before_a_tombstone_is_refused_after_it(world: World) -> None:
    world.append_as_stranger()
    stale, state = world.loaded()
    files = world.stage(1)
    port, fresh = world.loaded()
    assert isinstance(port.block_commit(fresh, KEY), Landed)

    assert isinstance(stale.swap(state, KEY, appended(files)), Refused)
    assert world.loaded()[1].is_tombstone


def test_a_swap_to_an_empty_table_is_refused_after_a_tombstone(world: World) -> None:
    stale, state = world.loaded()
    port, fresh = world.loaded()
    assert isinstance(port.block_commit(fresh, KEY), Landed)

    assert isinstance(stale.swap(state, KEY, appended(world.stage(1))), Refused)


def test_a_tombstone_that_was_prepared_before_the_commit_landed_is_refused(world: World) -> None:
    port, state = world.loaded()
    world.commit(1)

    assert isinstance(port.block_commit(state, KEY), Refused)
    _, later = world.loaded()
    assert (later.committed, later.is_tombstone) == (KEY.snapshot_id, False)


def test_a_tombstone_of_a_later_epoch_leaves_the_earlier_one_committed(world: World) -> None:
    world.commit(1)
    port, state = world.loaded(SECOND)
    assert isinstance(port.block_commit(state, SECOND), Landed)

    assert not world.loaded()[1].is_tombstone
    assert world.loaded()[1].committed == KEY.snapshot_id
    assert world.loaded(SECOND)[1].is_tombstone
    world.append_as_stranger()
    world.expire_all_but_the_head()
    assert not world.loaded()[1].is_tombstone
    assert world.loaded(SECOND)[1].is_tombstone


def test_a_tombstone_is_found_in_the_property_after_its_snapshot_has_expired(world: World) -> None:
    port, state = world.loaded()
    port.block_commit(state, KEY)
    world.append_as_stranger()
    world.expire_all_but_the_head()

    _, later = world.loaded()
    assert (later.committed, later.is_tombstone) == (KEY.snapshot_id, True)
    assert KEY.snapshot_id not in later.ancestry


def claimed_ledger(base: IcebergState) -> Ledger:
    ledger = ledger_over(MemoryStore())
    claimed = IcebergBase(table_uuid=base.table_uuid, snapshot_id=base.head)
    ledger.commits.put_claim(ClaimRecord(token=new_token(), index=0, base=claimed))
    return ledger


def test_the_protocol_buries_a_claimed_epoch_once_and_readers_see_no_change(world: World) -> None:
    world.append_as_stranger()
    stale, state = world.loaded()
    files, ledger = world.stage(1), claimed_ledger(state)

    for _ in range(2):
        assert iceberg.block_commit(world.port(), ledger, lambda _: None) == CommitBlocked(state.table_uuid)

    assert isinstance(stale.swap(state, KEY, appended(files)), Refused)
    assert world.loaded()[1].ancestry == (KEY.snapshot_id, state.head)
    if isinstance(world, RealWorld):
        assert world.ids() == [1_000_000]
        snapshot = world.place.table().current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        said = snapshot.summary.additional_properties
        assert said["checkpointed-write.key"] == str(KEY)
        assert said["checkpointed-write.tombstone"] == "true"
        assert said["total-records"] == "1"
        assert KEY.property_name not in world.place.table().properties, "nothing of the write is in the table"


def test_the_protocol_finds_a_commit_that_has_landed_and_does_not_bury_it(world: World) -> None:
    _, base = world.loaded()
    world.commit(1, 2)
    world.append_as_stranger()

    outcome = iceberg.block_commit(world.port(), claimed_ledger(base), lambda _: None)

    assert outcome == Committed(base.table_uuid, KEY.snapshot_id, by_us=False)
    if isinstance(world, RealWorld):
        assert world.ids() == [1, 2, 1_000_000]


def test_a_table_that_was_rolled_back_behind_its_tombstone_still_refuses_the_swap(real: RealWorld) -> None:
    """The head is where the stale swap had looked; the snapshot id is taken."""
    real.append_as_stranger()
    stale, state = real.loaded()
    files = real.stage(1)
    port, fresh = real.loaded()
    port.block_commit(fresh, KEY)
    assert state.head is not None
    with real.place.table().manage_snapshots() as manage:
        manage.rollback_to_snapshot(state.head)

    assert real.loaded()[1].head == state.head
    assert not isinstance(stale.swap(state, KEY, appended(files)), Landed)
    assert real.loaded()[1].is_tombstone
    assert real.ids() == [1_000_000]


def test_no_table_has_nothing_to_bury(bare: RealWorld) -> None:
    assert iceberg.block_commit(
        bare.port(), claimed_ledger(IcebergState("u", None, None, (), True)), lambda _: None
    ) == CommitBlocked(None)

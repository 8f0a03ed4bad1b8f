"""The Iceberg commit protocol over a small table with faults by script: every branch, by name."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from checkpoint_commit.iceberg import commit as iceberg
from checkpoint_commit.iceberg.commit import IcebergState
from checkpoint_commit.outcomes import (
    BlockOutcome,
    CommitBlocked,
    CommitOutcome,
    Committed,
    Refused,
    Rejected,
    TryLater,
    Unknown,
)
from checkpoint_commit.results import Results
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import ClaimRecord, IcebergBase
from tests.support.records import DIGEST, ICEBERG, KEY, appended, iceberg_file, ledger_over
from tests.support.stores import MemoryStore
from tests.support.tables import FakeIceberg, Fault, down

FILES = (iceberg_file("a.parquet"), iceberg_file("b.parquet"))
RESULTS = Results(change=appended(FILES), targets=(ICEBERG,), rows_read=2, rows_written=2, attempts=1, code_digests=(DIGEST,))
OURS = KEY.snapshot_id


@dataclass
class World:
    """One table, one store, and any number of committers one after another."""

    table: FakeIceberg = field(default_factory=FakeIceberg)
    store: Any = field(default_factory=MemoryStore)
    pauses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table.before_request = self.claim_must_stand

    def ledger(self) -> Ledger:
        return ledger_over(self.store)

    def claim_must_stand(self) -> None:
        assert self.ledger().commits.read_claim(0) is not None, "no claim must mean: never tried"

    def commit(self, *faults: Fault, results: Results = RESULTS) -> CommitOutcome:
        self.table.faults = deque(faults)
        return iceberg.commit(self.table, self.ledger(), results, self.pauses.append)

    def claim(self, snapshot_id: int | None, *, has_branch: bool = True) -> None:
        """As a committer that died right after."""
        base = IcebergBase(table_uuid=self.table.uuid, snapshot_id=snapshot_id, has_branch=has_branch)
        self.ledger().commits.put_claim(ClaimRecord(token=new_token(), index=0, base=base))

    def assert_once(self) -> None:
        assert len(self.table.commits_of(KEY)) == 1
        assert self.table.commits_of(KEY)[0].files == tuple(file.path for file in FILES)

    def swaps(self) -> list[str]:
        return [entry for entry in self.table.log if entry.startswith("swap")]


def with_history(count: int = 2) -> World:
    world = World()
    for _ in range(count):
        world.table.append_as_stranger()
    return world


# --- the plain way --------------------------------------------------------------------------------------------------------


def test_the_first_commit_claims_the_head_it_looked_at_and_swaps_once() -> None:
    world = with_history()

    assert world.commit() == Committed("the-table", OURS, by_us=True)

    claim = world.ledger().commits.read_claim(0)
    assert claim is not None
    assert claim.base == IcebergBase(table_uuid="the-table", snapshot_id=2)
    assert world.table.log == ["load", "incompatibility", "swap on 2"]
    world.assert_once()


def test_the_first_commit_to_an_empty_table_claims_no_snapshot() -> None:
    world = World()

    assert world.commit() == Committed("the-table", OURS, by_us=True)

    claim = world.ledger().commits.read_claim(0)
    assert claim is not None
    assert claim.base == IcebergBase(table_uuid="the-table", snapshot_id=None)


def test_a_commit_that_is_in_the_table_is_found_before_any_claim() -> None:
    world = World()
    world.commit()
    world.store.objects.clear()

    assert world.commit() == Committed("the-table", OURS, by_us=False)

    assert world.store.objects == {}
    assert len(world.swaps()) == 1


# --- refused, unknown, late -----------------------------------------------------------------------------------------------


def test_a_stranger_who_was_first_refuses_the_swap_and_the_next_one_is_based_on_the_new_head() -> None:
    world = with_history()

    assert world.commit("stranger", "stranger") == Committed("the-table", OURS, by_us=True)

    assert world.swaps() == ["swap on 2", "swap on 3", "swap on 4"]
    assert world.table.log.count("load") == 3, "the table is loaded anew before each swap"
    assert world.table.log.count("incompatibility") == 3
    world.assert_once()


def test_a_swap_that_never_arrived_is_sent_again_after_a_look() -> None:
    world = with_history()

    assert world.commit("dropped") == Committed("the-table", OURS, by_us=True)

    assert world.table.log == ["load", "incompatibility", "swap on 2", "load", "incompatibility", "swap on 2"]
    world.assert_once()


def test_a_table_that_is_always_moved_by_others_ends_as_try_later_and_goes_on_the_next_time() -> None:
    world = with_history()

    assert isinstance(world.commit(*["stranger"] * 100), TryLater)  # type: ignore[arg-type]
    assert world.commit() == Committed("the-table", OURS, by_us=True)
    world.assert_once()


# --- other committers -----------------------------------------------------------------------------------------------------


def test_another_committer_between_our_look_and_our_swap_is_found_and_only_one_copy_lands() -> None:
    world = with_history()
    other = World(FakeIceberg(), world.store)
    other.table = world.table

    def other_first() -> None:
        world.table.before_request = lambda: None
        assert other.commit() == Committed("the-table", OURS, by_us=True)

    world.table.before_request = other_first

    assert world.commit() == Committed("the-table", OURS, by_us=False)
    world.assert_once()


# --- incompatibilities --------------------------------------------------------------------------------------------------


def test_an_incompatibility_that_comes_with_a_strangers_commit_is_seen_before_the_next_swap() -> None:
    world = with_history()

    def spoil() -> None:
        world.table.incompatibility = Rejected(reasons.SCHEMA_CHANGED, "dropped")

    world.table.before_request = spoil

    assert world.commit("stranger") == Rejected(reasons.SCHEMA_CHANGED, "dropped")
    assert len(world.swaps()) == 1


@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize(
    ("conflict", "said"),
    [
        (Rejected(reasons.STAGED_FILE_MISSING, "a.parquet"), reasons.STAGED_FILE_MISSING),
        (NeedsChange(reasons.TABLE_UNSUPPORTED, "format version 3"), reasons.TABLE_UNSUPPORTED),
        (down(), reasons.CATALOG_UNAVAILABLE),
    ],
)
def test_what_only_requests_tell_is_told_unless_the_write_was_deleted(
    conflict: Rejected | CheckpointError, said: str, is_deleted: bool
) -> None:
    world = with_history()
    world.table.conflict = conflict
    if is_deleted:
        writes.put_deleted(world.store, KEY.uid)

    outcome = world.commit()

    assert isinstance(outcome, Rejected | TryLater)
    assert outcome.reason == (reasons.WRITE_DELETED if is_deleted else said)
    assert world.swaps() == []


# --- history that is gone -------------------------------------------------------------------------------------------------


def landed_and_forgotten() -> World:
    """Our commit is in the table; later snapshots have pushed it and the base out of the history."""
    world = with_history()
    world.commit()
    world.table.append_as_stranger()
    world.table.expire_all_but_the_head()
    return world


def test_a_key_in_the_tables_property_is_found_after_its_snapshot_has_expired() -> None:
    world = landed_and_forgotten()

    assert world.commit() == Committed("the-table", OURS, by_us=False)
    world.assert_once()


def test_history_that_reaches_the_base_is_knowledge_although_older_snapshots_have_expired() -> None:
    world = with_history(3)
    world.table.expired = 2

    assert world.commit() == Committed("the-table", OURS, by_us=True)


def test_history_that_ends_after_the_base_while_we_commit_is_not_knowledge() -> None:
    """Our swap has no answer; it landed, was compacted, and its snapshot expired, all before our next look."""
    world = with_history()

    def forget() -> None:
        world.table.before_request = lambda: None
        world.table.append_as_stranger()
        world.table.expire_all_but_the_head()

    world.table.before_request = forget

    assert isinstance(world.commit("dropped"), Unknown)


# --- branches -------------------------------------------------------------------------------------------------------------


def test_a_branch_that_is_yet_to_be_made_is_claimed_as_such_and_made_once() -> None:
    world = with_history()
    world.table.has_branch = False

    assert world.commit("late", "dropped", "") == Committed("the-table", OURS, by_us=True)

    claim = world.ledger().commits.read_claim(0)
    assert claim is not None
    assert claim.base == IcebergBase(table_uuid="the-table", snapshot_id=2, has_branch=False)
    assert isinstance(world.table.land_late(), Refused)
    world.assert_once()


@pytest.mark.parametrize("faults", [(), ("dropped",), ("lost",)])
def test_a_committer_that_died_before_the_branch_was_made_is_taken_over(faults: tuple[Fault, ...]) -> None:
    world = with_history()
    world.table.has_branch = False
    world.claim(2, has_branch=False)

    assert isinstance(world.commit(*faults), Committed)
    assert world.table.has_branch
    world.assert_once()


def test_a_branch_that_was_dropped_since_the_claim_is_not_made_again_though_main_has_the_claimed_snapshot() -> None:
    world = with_history()
    world.claim(2)
    world.table.has_branch = False

    outcome = world.commit()

    assert isinstance(outcome, Unknown)
    assert "snapshot 2 of the branch 'staging', which was dropped since" in outcome.message
    assert world.swaps() == []


def test_a_branch_that_is_dropped_between_two_requests_is_not_made_again() -> None:
    world = with_history()

    def drop() -> None:
        world.table.has_branch = False

    world.table.before_request = drop

    assert isinstance(world.commit(), Unknown)
    assert world.swaps() == ["swap on 2"]
    assert world.table.commits_of(KEY) == []


def test_a_commit_that_landed_is_found_though_its_branch_was_dropped_since() -> None:
    world = with_history()
    world.commit()
    world.table.has_branch = False

    assert world.commit() == Committed("the-table", OURS, by_us=False)


def test_the_deletion_of_a_write_whose_branch_was_dropped_sends_nothing() -> None:
    world = with_history()
    world.claim(2)
    world.table.has_branch = False

    assert isinstance(block_commit(world), Unknown)
    assert world.table.has_branch is False


def test_a_deletion_makes_the_branch_that_a_commit_on_its_way_would_make() -> None:
    world = with_history()
    world.table.has_branch = False
    world.commit(*["late"] + ["dropped"] * 20)  # type: ignore[arg-type]

    assert block_commit(world) == CommitBlocked("the-table")

    assert isinstance(world.table.land_late(), Refused)
    assert world.table.commits_of(KEY) == []


# --- errors of the ports ---------------------------------------------------------------------------------------------------


@dataclass
class SlowLook(FakeIceberg):
    """Others act between what the first look shows and the claim that follows it."""

    meanwhile: list[Callable[[], None]] = field(default_factory=list)

    def load(self, key: EpochKey) -> IcebergState | None:
        seen = super().load(key)
        while self.meanwhile:
            self.meanwhile.pop()()
        return seen


@pytest.mark.parametrize("has_landed", [False, True])
def test_a_look_that_is_older_than_another_committers_claim_is_not_judged_by_it(has_landed: bool) -> None:
    """The head that the claim names is not in it: that is not a history that was expired."""
    table = SlowLook()
    world = World(table)
    for _ in range(2):
        table.append_as_stranger()
    table.expire_all_but_the_head()

    def others_act() -> None:
        table.append_as_stranger()
        if not has_landed:
            world.claim(3)
            return
        world.commit()
        table.append_as_stranger()
        table.expire_all_but_the_head()
        table.incompatibility = Rejected(reasons.STAGED_FILE_MISSING, "compacted")

    table.meanwhile.append(others_act)

    assert world.commit() == Committed("the-table", OURS, by_us=not has_landed)


@pytest.mark.parametrize("faults", [(), ("dropped",)])
def test_a_catalog_that_does_not_answer_is_tried_later(faults: tuple[Fault, ...]) -> None:
    world = with_history()
    world.table.errors = deque([None] * len(faults) + [down()])

    assert world.commit(*faults) == TryLater(reasons.CATALOG_UNAVAILABLE, "no answer")
    assert len(world.swaps()) == len(faults)
    assert world.commit() == Committed("the-table", OURS, by_us=True)


# --- deletion -------------------------------------------------------------------------------------------------------------


def delete(world: World) -> None:
    """Put the note, as deletion does before anything else."""
    writes.put_deleted(world.store, KEY.uid)


def block_commit(world: World, *faults: Fault) -> BlockOutcome:
    world.table.faults = deque(faults)
    return iceberg.block_commit(world.table, world.ledger(), world.pauses.append)


def burials(world: World) -> list[str]:
    return [entry for entry in world.table.log if entry.startswith("block_commit")]


def claimed() -> World:
    world = with_history()
    world.claim(2)
    return world


def test_a_claimed_epoch_is_buried_by_one_snapshot_without_files() -> None:
    world = claimed()
    delete(world)

    assert block_commit(world) == CommitBlocked("the-table")

    assert world.table.log == ["load", "block_commit on 2"]
    (tombstone,) = world.table.tombstones_of(KEY)
    assert (tombstone.id, tombstone.files) == (OURS, ())
    assert block_commit(world) == CommitBlocked("the-table"), "and is found by whoever blocks again"
    assert len(burials(world)) == 1


def test_a_committer_that_finds_a_tombstone_is_told_so_and_never_that_it_has_committed() -> None:
    world = claimed()
    block_commit(world)

    assert isinstance(outcome := world.commit(), Rejected)
    assert outcome.reason == reasons.WRITE_DELETED
    world.store.objects.clear()
    assert world.commit() == outcome, "also before its first claim"
    assert world.table.commits_of(KEY) == []


def test_a_tombstone_is_known_by_its_property_after_its_snapshot_has_expired() -> None:
    world = claimed()
    block_commit(world)
    world.table.append_as_stranger()
    world.table.expire_all_but_the_head()

    assert block_commit(world) == CommitBlocked("the-table")
    assert isinstance(outcome := world.commit(), Rejected)
    assert outcome.reason == reasons.WRITE_DELETED


def test_in_a_table_that_was_made_again_the_tombstone_is_put_and_the_claimed_table_is_not_named() -> None:
    """The claimed table may come back, with the commit in it."""
    world = claimed()
    world.table.uuid = "another"
    world.table.append_as_stranger()
    world.table.expire_all_but_the_head()

    assert block_commit(world) == CommitBlocked(None)
    assert len(world.table.tombstones_of(KEY)) == 1
    assert block_commit(world) == CommitBlocked(None)
    assert len(burials(world)) == 1


def test_a_commit_whose_snapshot_has_expired_is_found_by_the_burial() -> None:
    assert block_commit(landed_and_forgotten()) == Committed("the-table", OURS, by_us=False)

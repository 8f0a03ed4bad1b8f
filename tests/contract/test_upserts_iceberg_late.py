"""Upserts of Iceberg tables by a late committer: paused before its request, or with a request that lands long after it was sent.

Beside it others do their work, delete the write, or expire snapshots. What one committer does is in `test_upserts_iceberg.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoint_commit.changes import Change
from checkpoint_commit.iceberg.changes.merges import SeenMerges
from checkpoint_commit.iceberg.commit import IcebergState
from checkpoint_commit.iceberg.table import PyicebergTable
from checkpoint_commit.outcomes import Landed, RequestOutcome, Unanswered
from checkpoint_commit.sinks.registry import open_sink
from checkpoint_control.decision.actions import BeginStage, EndStage, Finish, Stall
from checkpoint_control.loop.reconcile import Reconciler
from checkpoint_control.writes.deletion import Deleted, delete_write
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from tests.support.iceberg_upserts import WAYS, Row, World, rows_of, stages_of, step_until, those
from tests.support.places import IcebergPlace, on_disk
from tests.support.position_deletes import delete_first_row
from tests.support.writes import drive, reconciler_for

OLD = range(8)
OURS = range(2, 10)


@pytest.fixture(params=WAYS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A table with rows in two files."""
    place = on_disk(tmp_path, "iceberg")
    assert isinstance(place, IcebergPlace)
    made = World(place, tmp_path / "input", WAYS[request.param])
    made.create()
    place.append(rows_of(those(OLD[4:], "old")))
    # The last file is the first that a scan gives; its first row is none of ours: where others delete it, it must not come back.
    place.append(rows_of(those(OLD[:4], "old")))
    return made


class LateTable(PyicebergTable):
    """The table as a committer has it who is late once: `meanwhile` happens between its claim and its request.

    Where `is_sent`, the request has left by then: it has no answer, and `arrive` lets it arrive.
    """

    meanwhile: Callable[[], None] | None
    is_sent: bool
    answer: RequestOutcome | None

    def swap(self, state: IcebergState, key: EpochKey, change: Change) -> RequestOutcome:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is None:
            return super().swap(state, key, change)
        meanwhile()
        self.answer = super().swap(state, key, change)
        return Unanswered("no answer") if self.is_sent else self.answer


class TableAfterALook(PyicebergTable):
    """The table as a committer has it for whom `meanwhile` happens between its look for merges that are done and its commit."""

    meanwhile: Callable[[], None] | None

    def see_merges(self, state: IcebergState, ledger: Ledger) -> SeenMerges:
        seen = super().see_merges(state, ledger)
        if seen.unread is None and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return seen


def late(manifest: CheckpointedWrite, world: World, meanwhile: Callable[[], None], *, is_sent: bool = False) -> Reconciler:
    reconciler = reconciler_for(manifest, world.place)
    table: Any = table_of(reconciler)
    table.__class__ = LateTable
    table.meanwhile, table.is_sent, table.answer = meanwhile, is_sent, None
    return reconciler


def table_of(reconciler: Reconciler) -> Any:
    sink: Any = reconciler.observer.sink
    return sink.inner.table


def ours(world: World) -> CheckpointedWrite:
    return world.manifest(rows_of(those(OURS, "new")))


def expected(theirs: list[Row]) -> list[Row]:
    """Return what the table has once the upsert is done on these rows."""
    return sorted([*(row for row in theirs if row[0] not in OURS), *those(OURS, "new")], key=repr)


def expire_all_but_the_head(world: World) -> None:
    table = world.place.table()
    head = table.current_snapshot()
    assert head is not None
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots() if each != head]).commit()


def compact(world: World) -> None:
    table = world.place.table()
    table.overwrite(table.scan().to_arrow())


# --- paused between the claim and the request -------------------------------------------------------------------------------


STRANGERS: dict[str, Callable[[World], object]] = {
    "an append with keys of ours": lambda world: world.place.append(rows_of([(3, "theirs"), (9, "theirs"), (50, "theirs")])),
    "a compaction": compact,
    "a delete of rows": lambda world: world.place.table().delete("id == 2"),
    "a position delete": lambda world: delete_first_row(world.place),
    "all rows deleted": lambda world: world.place.table().delete(),
    "an upsert of another": lambda world: world.upsert(rows_of(those(range(5, 12), "theirs"))),
    "an expiry": expire_all_but_the_head,
}


@pytest.mark.parametrize("what", STRANGERS)
def test_what_others_do_while_a_committer_pauses_before_its_request_is_matched_too(world: World, what: str) -> None:
    theirs: list[Row] = []

    def meanwhile() -> None:
        STRANGERS[what](world)
        theirs.extend(world.rows())

    committer = late(ours(world), world, meanwhile)

    assert isinstance(drive(committer).outcome, Finish)

    assert world.rows() == expected(theirs)
    assert len(world.place.keys()) == (2 if what == "an upsert of another" else 1)
    landed_at_once = what == "an expiry"
    assert isinstance(table_of(committer).answer, Landed) == landed_at_once


def test_a_row_that_others_delete_between_the_look_for_merges_and_the_commit_does_not_come_back(world: World) -> None:
    theirs: list[Row] = []

    def meanwhile() -> None:
        delete_first_row(world.place)
        theirs.extend(world.rows())

    committer = reconciler_for(ours(world), world.place)
    table_of(committer).__class__ = TableAfterALook
    table_of(committer).meanwhile = meanwhile

    assert isinstance(drive(committer).outcome, Finish)

    assert world.rows() == expected(theirs)


@pytest.mark.parametrize("then", ["nothing more", "an append with keys of ours", "a compaction", "an expiry"])
def test_a_paused_committer_finds_the_upsert_that_another_has_committed(world: World, then: str) -> None:
    manifest, rows = ours(world), list[Row]()

    def meanwhile() -> None:
        assert isinstance(drive(reconciler_for(manifest, world.place)).outcome, Finish)
        if then in STRANGERS:
            STRANGERS[then](world)
        rows.extend(world.rows())

    committer = late(manifest, world, meanwhile)

    assert isinstance(drive(committer).outcome, Finish)

    assert world.rows() == rows
    assert len(world.place.keys()) == 1
    assert not isinstance(table_of(committer).answer, Landed)


def test_a_paused_committer_of_a_write_that_is_deleted_meanwhile_lands_nothing(world: World) -> None:
    manifest, rows = ours(world), world.rows()

    def meanwhile() -> None:
        other = reconciler_for(manifest, world.place).observer
        assert isinstance(
            delete_write(other.store, other.write.uid, open_sink(manifest.spec.sink, world.place.settings)), Deleted
        )

    done = drive(committer := late(manifest, world, meanwhile))

    assert isinstance(done.outcome, Stall)
    assert done.outcome.reason == reasons.WRITE_DELETED
    assert not isinstance(table_of(committer).answer, Landed)
    assert world.rows() == rows


# --- a request that arrives late --------------------------------------------------------------------------------------------


class Gone(BaseException):
    """The committer dies; its request is on its way. A BaseException, so that nothing catches it."""


def send_and_die(manifest: CheckpointedWrite, world: World) -> Callable[[], RequestOutcome]:
    """Let a committer send its request and die before it arrives; return what lets it arrive."""
    sent: list[Callable[[], RequestOutcome]] = []

    class Sending(PyicebergTable):
        def swap(self, state: IcebergState, key: EpochKey, change: Change) -> RequestOutcome:
            sent.append(lambda: super(Sending, self).swap(state, key, change))
            raise Gone

    reconciler = reconciler_for(manifest, world.place)
    table_of(reconciler).__class__ = Sending
    with pytest.raises(Gone):
        drive(reconciler)
    return sent[0]


@pytest.mark.parametrize("moved_by", ["nobody", *STRANGERS])
def test_a_request_that_arrives_after_the_next_committers_is_refused(world: World, moved_by: str) -> None:
    manifest = ours(world)
    arrive = send_and_die(manifest, world)
    if moved_by in STRANGERS:
        STRANGERS[moved_by](world)
    theirs = world.rows()
    assert isinstance(drive(reconciler_for(manifest, world.place)).outcome, Finish)

    assert not isinstance(arrive(), Landed)

    assert world.rows() == expected(theirs)


def test_a_request_that_arrives_first_is_found_by_the_next_committer_without_another_merge(world: World) -> None:
    manifest, theirs = ours(world), world.rows()
    assert isinstance(send_and_die(manifest, world)(), Landed)
    world.place.append(rows_of([(3, "theirs")]))
    next_one = reconciler_for(manifest, world.place)

    assert isinstance(drive(next_one).outcome, Finish)

    assert world.rows() == sorted([*expected(theirs), (3, "theirs")], key=repr)
    assert len(stages_of(next_one)) == 1


def test_an_answer_that_was_lost_is_found_and_nothing_is_sent_again(world: World) -> None:
    theirs = world.rows()
    committer = late(ours(world), world, lambda: None, is_sent=True)

    assert isinstance(drive(committer).outcome, Finish)

    assert isinstance(table_of(committer).answer, Landed)
    assert world.rows() == expected(theirs)
    assert len(world.place.keys()) == 1


def test_a_request_that_arrives_after_the_tombstone_of_a_deletion_is_refused(world: World) -> None:
    manifest, rows = ours(world), world.rows()
    arrive = send_and_die(manifest, world)
    observer = reconciler_for(manifest, world.place).observer
    assert isinstance(
        delete_write(observer.store, observer.write.uid, open_sink(manifest.spec.sink, world.place.settings)), Deleted
    )

    assert not isinstance(arrive(), Landed)

    assert world.rows() == rows


# --- snapshots that others expire -------------------------------------------------------------------------------------------


def append_and_expire(world: World) -> None:
    world.place.append(rows_of([(3, "theirs"), (9, "theirs"), (50, "theirs")]))
    expire_all_but_the_head(world)


def test_a_merge_of_a_snapshot_that_was_expired_is_done_anew_on_the_whole_table(world: World) -> None:
    begun = reconciler_for(ours(world), world.place)
    step_until(begun, EndStage)
    append_and_expire(world)
    theirs = world.rows()

    assert isinstance(drive(begun).outcome, Finish)

    assert world.rows() == expected(theirs)
    assert len(stages_of(begun)) == 2


def test_a_merge_whose_snapshot_is_expired_before_it_begins_is_left_for_one_of_the_head(world: World) -> None:
    begun = reconciler_for(ours(world), world.place)
    name = step_until(begun, BeginStage)
    append_and_expire(world)
    theirs = world.rows()

    assert step_until(begun, EndStage) == name
    assert stages_of(begun) == []
    assert isinstance(drive(begun).outcome, Finish)
    assert world.rows() == expected(theirs)


def test_a_commit_that_was_tried_on_a_snapshot_that_is_expired_is_not_tried_again_and_a_person_is_asked(world: World) -> None:
    manifest = ours(world)
    arrive = send_and_die(manifest, world)
    append_and_expire(world)
    rows = world.rows()

    done = drive(reconciler_for(manifest, world.place))

    assert isinstance(done.outcome, Stall)
    assert done.outcome.reason == reasons.COMMIT_OUTCOME_UNKNOWN
    assert not isinstance(arrive(), Landed)
    assert world.rows() == rows


def test_a_commit_that_has_landed_is_found_though_its_snapshot_is_expired(world: World) -> None:
    manifest = ours(world)
    assert isinstance(send_and_die(manifest, world)(), Landed)
    append_and_expire(world)
    rows = world.rows()

    assert isinstance(drive(reconciler_for(manifest, world.place)).outcome, Finish)

    assert world.rows() == rows

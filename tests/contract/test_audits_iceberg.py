"""Write, audit, publish on Iceberg tables, on two catalogs, disk and S3: what readers see when, what others do between the steps,
crashes in each of them, and what a deletion leaves.

How drivers audit is in tests/end_to_end/test_audits.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import SetSnapshotRefUpdate
from pyiceberg.types import StringType

from checkpoint_commit.changes import StagedChange
from checkpoint_commit.iceberg import audit as iceberg_audit
from checkpoint_commit.iceberg import commit as iceberg
from checkpoint_commit.iceberg.audit import Staged
from checkpoint_commit.iceberg.audit_stage import PyicebergAuditedTable
from checkpoint_commit.iceberg.refs import Refs
from checkpoint_commit.outcomes import (
    BlockOutcome,
    CommitBlocked,
    CommitOutcome,
    Committed,
    Landed,
    Presence,
    Refused,
    Rejected,
    TryLater,
    Unknown,
)
from checkpoint_commit.results import Results
from checkpoint_formats.stagers import stager_for
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import Append, Operation, OverwriteAll, StagedFile
from tests.support.crashes import Died, DyingAuditedTable, DyingStore, Effects
from tests.support.places import IcebergPlace, on_disk, on_s3
from tests.support.records import DIGEST, KEY, ledger_over
from tests.support.rest_tables import create_3
from tests.support.slow import slow_except
from tests.support.stores import MemoryStore

SCHEMA = pa.schema([("id", pa.int64())])
SECOND = EpochKey(KEY.uid, 2)
BRANCH = f"cw-audit-{KEY.uid}"


def rows_of(*numbers: int) -> pa.Table:
    return pa.table({"id": list(numbers)}, schema=SCHEMA)


@dataclass
class World:
    """A table with a row of a stranger, and a write whose rows are audited."""

    place: IcebergPlace
    refs: Refs = Refs()  # noqa: RUF009 - frozen
    store: MemoryStore = field(default_factory=MemoryStore)
    passed: set[Staged] = field(default_factory=set)

    def port(self) -> PyicebergAuditedTable:
        place = self.place
        return PyicebergAuditedTable(place.catalog, place.name, place.settings, written_by="default/nightly", refs=self.refs)

    def loaded(self, key: EpochKey = KEY) -> tuple[PyicebergAuditedTable, iceberg.IcebergState]:
        port = self.port()
        state = port.load(key)
        assert state is not None
        return port, state

    def staged(self, *numbers: int, key: EpochKey = KEY, operation: Operation | None = None) -> Results:
        """Return the results of an epoch as drivers have staged them: not in the table's form yet."""
        target = self.port().describe()
        assert target is not None
        operation = operation or Append()
        stager = stager_for(operation, target, key, "1-0", 1 << 20, self.place.settings.for_drivers())
        assert stager.arrow_schema is not None
        files: tuple[StagedFile, ...] = tuple(stager.stage(iter(rows_of(*numbers).cast(stager.arrow_schema).to_batches())))
        return Results(StagedChange(operation, files), (target,), rows_read=0, rows_written=0, attempts=1, code_digests=(DIGEST,))

    def overwritten(self, *numbers: int) -> Results:
        target = self.port().describe()
        assert target is not None
        return self.staged(*numbers, operation=OverwriteAll(base=target.base))

    def commit(
        self, results: Results, key: EpochKey = KEY, *, effects: Effects | None = None, port: PyicebergAuditedTable | None = None
    ) -> CommitOutcome | Staged:
        store: Any = self.store
        table = port or self.port()
        if effects is not None:
            table.__class__ = DyingAuditedTable
            table.effects = effects  # type: ignore[attr-defined]
            store = DyingStore(self.store, effects)
        return iceberg_audit.commit(table, ledger_over(store, key=key), results, self.passed.__contains__, pause=lambda _: None)

    def staged_and_passed(self, results: Results, key: EpochKey = KEY) -> Staged:
        staged = self.commit(results, key)
        assert isinstance(staged, Staged)
        self.passed.add(staged)
        return staged

    def commit_with_audits(self, results: Results, key: EpochKey = KEY, rounds: int = 5) -> CommitOutcome | Staged:
        """Commit as the loop does: what is staged is audited, and passes."""
        for _ in range(rounds):
            outcome = self.commit(results, key)
            if isinstance(outcome, Staged):
                self.passed.add(outcome)
            elif not isinstance(outcome, TryLater):
                return outcome
        return outcome

    def block(self, key: EpochKey = KEY) -> BlockOutcome:
        writes.put_deleted(self.store, key.uid)
        return iceberg.block_commit(self.port(), ledger_over(self.store, key=key), lambda _: None)

    def rows(self, ref: str = MAIN_BRANCH) -> list[int]:
        return sorted(row["id"] for row in self.place.table().scan().use_ref(ref).to_arrow().to_pylist())

    def branches(self) -> set[str]:
        return set(self.place.table().metadata.refs)

    def head(self, ref: str = MAIN_BRANCH) -> Snapshot:
        found = self.place.table().metadata.snapshot_by_name(ref)
        assert found is not None
        return found

    # --- strangers

    def append_as_stranger(self, *numbers: int, branch: str = MAIN_BRANCH) -> None:
        self.place.table().append(rows_of(*numbers), branch=branch)

    def set_ref(self, name: str, snapshot_id: int, kind: str = SnapshotRefType.BRANCH) -> None:
        update = SetSnapshotRefUpdate(
            ref_name=name,
            type=kind,
            snapshot_id=snapshot_id,
            max_ref_age_ms=None,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        )
        self.place.opened().commit_table(self.place.table(), (), (update,))

    def pick(self, snapshot_id: int) -> int:
        """As Iceberg's cherrypick_snapshot does it where main has moved: a snapshot of its own with the same files."""
        table = self.place.table()
        files = [
            entry.data_file.file_path
            for manifest in table.snapshot_by_id(snapshot_id).manifests(table.io)  # type: ignore[union-attr]
            if manifest.added_snapshot_id == snapshot_id
            for entry in manifest.fetch_manifest_entry(table.io)
        ]
        table.add_files(files, {"source-snapshot-id": str(snapshot_id)}, check_duplicate_files=False)
        return self.head().snapshot_id

    def drop_branch(self, name: str = BRANCH) -> None:
        self.place.table().manage_snapshots().remove_branch(name).commit()

    def expire(self, snapshot_id: int) -> None:
        self.place.table().maintenance.expire_snapshots().by_ids([snapshot_id]).commit()


def opened(request: pytest.FixtureRequest, folder: Path) -> World:
    if request.param == "sql-s3":
        place = on_s3(folder, "iceberg", request.getfixturevalue("s3_server"))
    else:
        place = on_disk(folder, "iceberg", request.getfixturevalue("rest_catalog") if request.param == "rest-disk" else None)
    assert isinstance(place, IcebergPlace)
    place.create(SCHEMA)
    return World(place)


PLACES = ("sql-disk", "rest-disk", "sql-s3")


@pytest.fixture(params=slow_except(PLACES, "sql-disk", "rest-disk"))
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return opened(request, tmp_path)


@pytest.fixture
def world(empty: World) -> World:
    empty.place.append(rows_of(1))
    return empty


# --- the plain way --------------------------------------------------------------------------------------------------------


def test_rows_are_on_a_branch_of_the_write_until_they_have_passed_and_then_main_is_exactly_what_was_audited(world: World) -> None:
    results = world.staged(2)
    before = world.head().snapshot_id

    staged = world.commit(results)

    assert isinstance(staged, Staged)
    assert (world.rows(), world.rows(BRANCH)) == ([1], [1, 2])
    assert staged == Staged(world.head(BRANCH).snapshot_id, world.head(BRANCH).manifest_list)
    assert world.head(BRANCH).parent_snapshot_id == before
    assert world.commit(results) == staged, "nothing more happens before the audit has passed"
    assert world.loaded()[1].committed is None
    world.passed.add(staged)
    outcome = world.commit(results)

    assert isinstance(outcome, Committed)
    assert outcome.commit_id == staged.snapshot_id == world.head().snapshot_id
    assert world.rows() == [1, 2]
    assert world.branches() == {MAIN_BRANCH}
    table = world.place.table()
    assert table.properties[KEY.property_name] == "1"
    assert len(table.metadata.snapshots) == 2
    assert world.commit(results) == Committed(outcome.table_identity, outcome.commit_id, by_us=False)
    assert world.port().find_committed(KEY, outcome.table_identity, outcome.commit_id) is Presence.HERE


def test_the_first_rows_of_a_table_and_the_next_epoch_are_published_too(empty: World) -> None:
    first = empty.commit_with_audits(empty.staged(1))
    second = empty.commit_with_audits(empty.staged(2, key=SECOND), SECOND)

    assert isinstance(first, Committed)
    assert isinstance(second, Committed)
    assert empty.rows() == [1, 2]
    assert empty.branches() == {MAIN_BRANCH}


def test_an_overwrite_is_audited_as_the_table_would_be_and_published_as_that(world: World) -> None:
    results = world.overwritten(7)

    world.staged_and_passed(results)
    assert (world.rows(), world.rows(BRANCH)) == ([1], [7])

    assert isinstance(world.commit(results), Committed)
    assert world.rows() == [7]


@pytest.mark.parametrize("exists", [True, False], ids=["that is there", "that the commit makes"])
def test_the_branch_that_rows_go_to_and_the_tag_are_set_when_they_are_published_and_not_before(
    world: World, exists: bool
) -> None:
    if exists:
        world.set_ref("staging", world.head().snapshot_id)
    world.refs = Refs("staging", "run-{epoch}")
    results = world.staged(2)

    staged = world.staged_and_passed(results)
    assert world.branches() == {MAIN_BRANCH, BRANCH} | ({"staging"} if exists else set())
    assert isinstance(world.commit(results), Committed)

    assert world.branches() == {MAIN_BRANCH, "staging", "run-1"}
    assert (world.rows("staging"), world.rows("run-1"), world.rows()) == ([1, 2], [1, 2], [1])
    assert world.head("staging").snapshot_id == staged.snapshot_id


def test_a_branch_in_a_table_without_a_snapshot_has_its_history_in_common_with_main(empty: World) -> None:
    empty.refs = Refs("staging")

    assert isinstance(empty.commit_with_audits(empty.staged(2)), Committed)
    empty.append_as_stranger(3)

    assert (empty.rows("staging"), empty.rows()) == ([2], [3])
    assert empty.head("staging").parent_snapshot_id == empty.head().parent_snapshot_id is not None


# --- crashes --------------------------------------------------------------------------------------------------------------


CLAIMS = ["control/1/commit/claim-0.json", "stage", "control/1/commit/claim-0.json", "control/1/commit/claim-1.json"]


def commit_and_pass(world: World, results: Results, key: EpochKey, effects: Effects, *, moved: bool) -> None:
    """Put the rows on the branch, have them pass, and commit them; meanwhile others may append."""
    for _ in range(2):
        outcome = world.commit(results, key, effects=effects)
        if isinstance(outcome, Staged):
            world.passed.add(outcome)
            if moved:
                world.append_as_stranger(1)


@pytest.mark.parametrize("moved", [False, True], ids=["main stays", "main moves"])
@pytest.mark.parametrize("empty", slow_except(PLACES, "sql-disk"), indirect=True)
def test_whoever_dies_at_any_effect_another_committer_ends_with_the_rows_once_and_no_branch(world: World, moved: bool) -> None:
    effects = Effects()
    commit_and_pass(world, world.staged(2), KEY, effects, moved=moved)
    assert effects.names == [*CLAIMS, "swap" if moved else "publish"]

    for point in range(len(effects.names)):
        for after in (False, True):
            number = 10 + 2 * point + after
            key = EpochKey(f"write-{number}", 1)
            results = world.staged(number, key=key)
            with pytest.raises(Died):
                commit_and_pass(world, results, key, Effects(point, after), moved=moved)
            is_visible = number in world.rows()

            assert isinstance(world.commit_with_audits(results, key), Committed)

            assert world.rows().count(number) == 1
            assert world.branches() == {MAIN_BRANCH}
            is_last = point == len(effects.names) - 1
            assert is_visible == (is_last and after), "readers see them after the last request, and not before"


# --- two committers -------------------------------------------------------------------------------------------------------


def test_of_two_who_put_the_rows_on_the_branch_one_is_refused_and_both_have_them_audited_once(world: World) -> None:
    results = world.staged(2)
    first, seen = world.loaded()
    other, also_seen = world.loaded()

    landed = first.stage(seen, KEY, results.change)
    refused = other.stage(also_seen, KEY, results.change)

    assert isinstance(landed, Landed)
    assert not isinstance(refused, Landed)
    assert world.commit(results) == Staged(landed.commit_id, world.head(BRANCH).manifest_list)


def test_of_two_who_publish_one_is_refused_and_finds_the_rows(world: World) -> None:
    results = world.staged(2)
    world.staged_and_passed(results)
    (first, seen), (other, also_seen) = world.loaded(), world.loaded()
    assert seen.audit is not None

    assert isinstance(first.publish(seen, KEY, seen.audit), Landed)
    assert isinstance(other.publish(also_seen, KEY, seen.audit), Refused)
    assert isinstance(world.commit(results), Committed)
    assert world.rows() == [1, 2]


def test_a_late_request_to_publish_is_refused_once_the_rows_were_committed_after_another_head_also_if_that_was_rolled_back(
    world: World,
) -> None:
    results = world.staged(2)
    world.staged_and_passed(results)
    late, seen = world.loaded()
    assert seen.audit is not None
    base = world.head().snapshot_id
    world.append_as_stranger(5)
    assert isinstance(world.commit(results), Committed)

    assert isinstance(late.publish(seen, KEY, seen.audit), Refused)
    world.set_ref(MAIN_BRANCH, base)
    assert isinstance(late.publish(seen, KEY, seen.audit), Refused)
    outcome = world.commit(results)
    assert isinstance(outcome, Committed)
    assert not outcome.is_current
    assert world.rows() == [1]


def test_rows_of_others_that_come_between_look_and_request_refuse_both_requests(world: World) -> None:
    results = world.staged(2)
    port, state = world.loaded()
    world.append_as_stranger(5)
    assert isinstance(port.stage(state, KEY, results.change), Refused)

    world.staged_and_passed(results)
    port, state = world.loaded()
    assert state.audit is not None
    world.append_as_stranger(6)
    assert isinstance(port.publish(state, KEY, state.audit), Refused)
    assert isinstance(world.commit(results), Committed)
    assert world.rows() == [1, 2, 5, 6]


def test_a_late_request_to_put_rows_on_the_branch_is_refused_after_a_deletion(world: World) -> None:
    results = world.staged(2)
    late, seen = world.loaded()
    assert isinstance(world.commit(results), Staged)
    assert isinstance(world.block(), CommitBlocked)

    assert not isinstance(late.stage(seen, KEY, results.change), Landed)
    assert world.branches() == {MAIN_BRANCH}


def test_two_writes_with_audits_are_in_nobodys_way(world: World) -> None:
    others = EpochKey("another-write", 1)
    ours, theirs = world.staged(2), world.staged(3, key=others)
    world.staged_and_passed(ours)
    world.staged_and_passed(theirs, others)

    assert isinstance(world.commit(ours), Committed)
    assert isinstance(world.commit(theirs, others), Committed)
    assert world.rows() == [1, 2, 3]
    assert world.branches() == {MAIN_BRANCH}


# --- what others do between the steps -------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before the audit", "after it"])
def test_rows_that_others_append_meanwhile_stay_and_the_same_files_are_committed_after_them(world: World, when: str) -> None:
    results = world.staged(2)
    if when == "before the audit":
        staged = world.commit(results)
        world.append_as_stranger(5)
        assert world.commit(results) == staged
        assert isinstance(staged, Staged)
        world.passed.add(staged)
    else:
        world.staged_and_passed(results)
        world.append_as_stranger(5)

    outcome = world.commit(results)

    assert isinstance(outcome, Committed)
    assert outcome.commit_id == KEY.snapshot_id == world.head().snapshot_id
    assert world.rows() == [1, 2, 5]
    assert world.branches() == {MAIN_BRANCH}
    data = {task.file.file_path for task in world.place.table().scan().plan_files()}
    assert {file.path for file in results.change.files} <= data  # type: ignore[attr-defined]


def test_an_overwrite_after_a_move_of_the_table_that_brought_nothing_is_audited_again_on_the_new_head(world: World) -> None:
    results = world.overwritten(7)
    world.staged_and_passed(results)
    staged = world.head(BRANCH)
    world.place.table().delete("id = 1")
    moved = world.head().snapshot_id

    outcome = world.commit(results)
    assert isinstance(outcome, Rejected)
    assert f"comes after snapshot {staged.parent_snapshot_id}, and the head is {moved} by now" in outcome.message
    assert f"drop the branch {BRANCH}" in outcome.message
    world.drop_branch()
    again = world.commit(results)

    assert isinstance(again, Staged)
    assert world.head(BRANCH).parent_snapshot_id == moved
    assert again.snapshot_id != staged.snapshot_id
    world.passed.add(again)
    assert isinstance(world.commit(results), Committed)
    assert world.rows() == [7]


def test_a_table_that_was_rolled_back_gets_the_appended_rows_on_its_head_of_now(world: World) -> None:
    first = world.head().snapshot_id
    world.append_as_stranger(5)
    results = world.staged(2)
    world.staged_and_passed(results)
    world.set_ref(MAIN_BRANCH, first)

    assert isinstance(world.commit(results), Committed)
    assert world.rows() == [1, 2]


def test_a_branch_that_was_dropped_before_it_was_published_is_made_again_and_needs_no_second_audit(world: World) -> None:
    results = world.staged(2)
    staged = world.staged_and_passed(results)
    world.drop_branch()

    outcome = world.commit_with_audits(results)

    assert isinstance(outcome, Committed)
    assert outcome.commit_id == staged.snapshot_id
    assert world.rows() == [1, 2]


def test_a_branch_whose_snapshot_has_expired_is_made_again_of_the_staged_files_and_audited_again(world: World) -> None:
    results = world.staged(2)
    staged = world.staged_and_passed(results)
    world.drop_branch()
    world.expire(staged.snapshot_id)
    assert world.place.table().metadata.snapshot_by_id(staged.snapshot_id) is None

    again = world.commit(results)
    assert isinstance(again, Staged)
    assert again != staged
    assert isinstance(world.commit_with_audits(results), Committed)
    assert world.rows() == [1, 2]


def test_main_that_somebody_has_moved_to_the_branch_by_hand_is_a_commit_and_the_branch_goes(world: World) -> None:
    results = world.staged(2)
    staged = world.commit(results)
    assert isinstance(staged, Staged)
    world.set_ref(MAIN_BRANCH, staged.snapshot_id)
    world.append_as_stranger(5)

    outcome = world.commit(results)

    assert isinstance(outcome, Committed)
    assert outcome.commit_id == staged.snapshot_id
    assert world.rows() == [1, 2, 5]
    assert world.branches() == {MAIN_BRANCH}


@pytest.mark.parametrize("passed", [False, True], ids=["before they have passed", "after that"])
def test_rows_that_somebody_has_picked_from_the_branch_into_main_are_a_commit_and_not_committed_again(
    world: World, passed: bool
) -> None:
    results = world.staged(2)
    staged = world.staged_and_passed(results) if passed else world.commit(results)
    assert isinstance(staged, Staged)
    world.append_as_stranger(5)
    picked = world.pick(staged.snapshot_id)
    world.append_as_stranger(6)

    outcome = world.commit(results)

    assert isinstance(outcome, Committed)
    assert outcome.commit_id == picked
    assert world.rows() == [1, 2, 5, 6]
    assert world.branches() == {MAIN_BRANCH}
    again = world.commit(results)
    assert isinstance(again, Committed)
    assert world.rows() == [1, 2, 5, 6]


@pytest.mark.parametrize("when", ["before the rows are there", "after"])
def test_a_branch_of_that_name_with_commits_of_others_is_left_and_named(world: World, when: str) -> None:
    results = world.staged(2)
    if when == "after":
        world.staged_and_passed(results)
        world.append_as_stranger(9, branch=BRANCH)
    else:
        world.set_ref(BRANCH, world.head().snapshot_id)
    head = world.head(BRANCH).snapshot_id

    outcome = world.commit(results)

    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.AUDIT_BRANCH_TAKEN
    assert f"the branch {BRANCH} has the head {head}" in outcome.message
    assert world.rows() == [1]
    world.drop_branch()
    assert isinstance(world.commit_with_audits(results), Committed)
    assert world.rows() == [1, 2]


def test_a_branch_of_that_name_that_others_have_made_since_the_commit_is_left(world: World) -> None:
    results = world.staged(2)
    assert isinstance(world.commit_with_audits(results), Committed)
    world.set_ref(BRANCH, world.head().snapshot_id)
    world.append_as_stranger(9, branch=BRANCH)

    assert isinstance(world.commit(results), Committed)

    assert (world.rows(), world.rows(BRANCH)) == ([1, 2], [1, 2, 9])


def test_a_branch_that_an_earlier_epoch_has_left_gives_way(world: World) -> None:
    assert isinstance(world.commit(world.staged(2)), Staged)

    outcome = world.commit_with_audits(world.staged(3, key=SECOND), SECOND)

    assert isinstance(outcome, Committed)
    assert world.rows() == [1, 3]
    assert world.branches() == {MAIN_BRANCH}


def test_a_staged_file_that_is_gone_stops_before_anything_is_put_on_the_branch(world: World) -> None:
    results = world.staged(2)
    world.port().discard(KEY, results.targets, results.change.files)  # type: ignore[attr-defined]

    outcome = world.commit(results)

    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.STAGED_FILE_MISSING
    assert world.branches() == {MAIN_BRANCH}


def test_a_column_that_was_dropped_meanwhile_stops_what_has_passed(world: World) -> None:
    results = world.staged(2)
    world.staged_and_passed(results)
    with world.place.table().update_schema() as update:
        update.add_column("note", StringType())
    with world.place.table().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("id")

    outcome = world.commit(results)

    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.SCHEMA_CHANGED


def test_history_that_no_longer_reaches_back_matters_only_once_a_commit_was_tried(world: World) -> None:
    results = world.staged(2)
    world.staged_and_passed(results)
    base = world.head().snapshot_id
    world.append_as_stranger(5)
    world.append_as_stranger(6)
    world.expire(base)
    parent = world.head().parent_snapshot_id
    assert parent is not None
    world.expire(parent)
    assert not world.loaded()[1].reaches(base)

    assert isinstance(world.commit(results), Committed), "only an audit had been asked for on that head"
    assert world.rows() == [1, 2, 5, 6]


@pytest.mark.parametrize("is_dropped", [False, True])
def test_an_outcome_is_unknown_where_the_table_no_longer_reaches_back_to_where_a_commit_was_tried(
    world: World, is_dropped: bool
) -> None:
    results = world.staged(2)
    world.staged_and_passed(results)
    with pytest.raises(Died):
        world.commit(results, effects=Effects(2))
    base = world.head().snapshot_id
    world.append_as_stranger(5)
    world.append_as_stranger(6)
    world.expire(base)
    parent = world.head().parent_snapshot_id
    assert parent is not None
    world.expire(parent)
    if is_dropped:
        world.drop_branch()

    outcome = world.commit(results)

    assert isinstance(outcome, Unknown)
    assert f"snapshot {base}, which the table's history no longer reaches" in outcome.message


# --- the manifest was edited ----------------------------------------------------------------------------------------------


def test_rows_that_wait_for_an_audit_are_committed_without_it_once_the_manifest_asks_for_none(world: World) -> None:
    results = world.staged(2)
    assert isinstance(world.commit(results), Staged)

    outcome = iceberg.commit(world.port(), ledger_over(world.store), results, lambda _: None)

    assert isinstance(outcome, Committed | TryLater)
    assert isinstance(iceberg.commit(world.port(), ledger_over(world.store), results, lambda _: None), Committed)
    assert world.rows() == [1, 2]
    assert world.branches() == {MAIN_BRANCH}


# --- deletion -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tried", [False, True], ids=["before it was published", "where that was tried"])
def test_a_deletion_takes_the_branch_and_nothing_can_be_published_any_more(world: World, tried: bool) -> None:
    results = world.staged(2)
    world.staged_and_passed(results)
    late, seen = world.loaded()
    assert seen.audit is not None
    if tried:
        with pytest.raises(Died):
            world.commit(results, effects=Effects(2))

    assert isinstance(world.block(), CommitBlocked)

    assert world.branches() == {MAIN_BRANCH}
    assert isinstance(late.publish(seen, KEY, seen.audit), Refused)
    assert isinstance(world.commit(results), Rejected)
    assert world.rows() == [1]
    assert isinstance(world.block(), CommitBlocked), "again, nothing is left to do"


def test_a_deletion_needs_no_history_where_only_an_audit_was_asked_for(world: World) -> None:
    assert isinstance(world.commit(world.staged(2)), Staged)
    base = world.head().snapshot_id
    world.append_as_stranger(5)
    world.append_as_stranger(6)
    world.expire(base)
    parent = world.head().parent_snapshot_id
    assert parent is not None
    world.expire(parent)

    assert isinstance(world.block(), CommitBlocked)
    assert world.branches() == {MAIN_BRANCH}
    assert world.rows() == [1, 5, 6]


def test_a_deletion_leaves_the_branches_of_others_also_one_that_has_the_rows_and_says_so(world: World) -> None:
    staged = world.commit(world.staged(2))
    assert isinstance(staged, Staged)
    world.set_ref("cw-audit-another", world.head().snapshot_id)
    world.set_ref("keep", staged.snapshot_id)

    outcome = world.block()

    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.AUDIT_BRANCH_TAKEN
    assert "'keep'" in outcome.message
    assert world.branches() == {MAIN_BRANCH, BRANCH, "cw-audit-another", "keep"}
    world.drop_branch("keep")
    assert isinstance(world.block(), CommitBlocked)
    assert world.branches() == {MAIN_BRANCH, "cw-audit-another"}


def test_a_write_that_is_deleted_before_its_rows_are_put_on_the_branch_puts_none_there(world: World) -> None:
    results = world.staged(2)
    writes.put_deleted(world.store, KEY.uid)

    outcome = world.commit(results)

    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.WRITE_DELETED
    assert world.branches() == {MAIN_BRANCH}


# --- what snapshots say ---------------------------------------------------------------------------------------------------


def test_in_format_3_published_rows_have_the_ids_that_they_got_on_the_branch(tmp_path: Path, rest_catalog: Any) -> None:
    place = on_disk(tmp_path, "iceberg", rest_catalog)
    assert isinstance(place, IcebergPlace)
    create_3(place, {"name": "id", "type": "long"})
    world = World(place)

    assert isinstance(world.commit_with_audits(world.staged(1, 2)), Committed)
    assert isinstance(world.commit_with_audits(world.staged(3, key=SECOND), SECOND), Committed)

    assert world.rows() == [1, 2, 3]
    assert [(one.first_row_id, one.added_rows) for one in world.place.table().metadata.snapshots] == [(0, 2), (2, 1)]

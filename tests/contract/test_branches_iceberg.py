"""Branches, tags and properties of the snapshot of Iceberg sinks, on two catalogs, disk and S3: who makes them, what others did
to them meanwhile, and crashes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import SetSnapshotRefUpdate

from checkpoint_commit.changes import StagedChange
from checkpoint_commit.iceberg import commit as iceberg
from checkpoint_commit.iceberg.refs import Refs
from checkpoint_commit.iceberg.table import PyicebergTable
from checkpoint_commit.outcomes import CommitBlocked, CommitOutcome, Committed, Landed, Presence, Refused, Rejected, Unknown
from checkpoint_commit.results import Results
from checkpoint_commit.sinks.registry import format_of, open_sink
from checkpoint_formats.stagers import stager_for
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.records import Append, ClaimRecord, Operation, OverwriteAll, StagedFile
from devtools.rest_catalog import RestCatalog
from tests.support.places import IcebergPlace, on_disk, on_s3
from tests.support.records import DIGEST, KEY, ledger_over
from tests.support.rest_tables import create_3
from tests.support.slow import slow_except
from tests.support.stores import MemoryStore

SCHEMA = pa.schema([("id", pa.int64())])
SECOND = EpochKey(KEY.uid, 2)
OTHERS = EpochKey("another-write", 1)


def rows_of(*numbers: int) -> pa.Table:
    return pa.table({"id": list(numbers)}, schema=SCHEMA)


@dataclass
class World:
    """A table, and writes to it that go to a branch."""

    place: IcebergPlace
    refs: Refs = Refs("staging")  # noqa: RUF009 - frozen
    properties: Mapping[str, str] | None = None

    def port(self) -> PyicebergTable:
        place = self.place
        return PyicebergTable(
            place.catalog, place.name, place.settings, refs=self.refs, snapshot_properties=self.properties or {}
        )

    def loaded(self, key: EpochKey = KEY) -> tuple[PyicebergTable, iceberg.IcebergState]:
        port = self.port()
        state = port.load(key)
        assert state is not None
        return port, state

    def staged(self, *numbers: int, key: EpochKey = KEY, operation: Operation | None = None) -> StagedChange:
        target = self.port().describe()
        assert target is not None
        operation = operation or Append()
        stager = stager_for(operation, target, key, "1-0", 1 << 20, self.place.settings.for_drivers())
        assert stager.arrow_schema is not None
        files: tuple[StagedFile, ...] = tuple(stager.stage(iter(rows_of(*numbers).cast(stager.arrow_schema).to_batches())))
        return StagedChange(operation, files)

    def commit(self, change: StagedChange, ledger: Ledger | None = None) -> CommitOutcome:
        target = self.port().describe()
        assert target is not None
        results = Results(change, (target,), rows_read=0, rows_written=0, attempts=1, code_digests=(DIGEST,))
        return iceberg.commit(self.port(), ledger or ledger_over(MemoryStore()), results, lambda _: None)

    def write(self, *numbers: int, key: EpochKey = KEY) -> CommitOutcome:
        return self.commit(self.staged(*numbers, key=key), ledger_over(MemoryStore(), key=key))

    def claimed(self) -> Ledger:
        """Return the ledger of a committer that died right after its claim."""
        ledger = ledger_over(MemoryStore())
        ledger.commits.put_claim(ClaimRecord(token=new_token(), index=0, base=self.loaded()[1].base))
        return ledger

    def rows(self, ref: str = "staging") -> list[int]:
        return sorted(row["id"] for row in self.place.table().scan().use_ref(ref).to_arrow().to_pylist())

    def head(self, ref: str = "staging") -> Snapshot:
        found = self.place.table().metadata.snapshot_by_name(ref)
        assert found is not None
        return found

    # --- strangers

    def append_as_stranger(self, *numbers: int, branch: str = "staging") -> None:
        self.place.table().append(rows_of(*numbers), branch=branch)

    def make_branch(self, name: str = "staging", at: int | None = None) -> None:
        table = self.place.table()
        table.manage_snapshots().create_branch(at or self.head(MAIN_BRANCH).snapshot_id, name).commit()

    def drop_branch(self) -> None:
        self.place.table().manage_snapshots().remove_branch("staging").commit()

    def set_ref(self, **fields: Any) -> None:
        update = SetSnapshotRefUpdate(
            **{"max_ref_age_ms": None, "max_snapshot_age_ms": None, "min_snapshots_to_keep": None, **fields}
        )
        self.place.opened().commit_table(self.place.table(), (), (update,))

    def tag(self, name: str) -> None:
        self.place.table().manage_snapshots().create_tag(self.head(MAIN_BRANCH).snapshot_id, name).commit()


def opened(request: pytest.FixtureRequest, folder: Path) -> World:
    if request.param == "sql-s3":
        place = on_s3(folder, "iceberg", request.getfixturevalue("s3_server"))
    else:
        place = on_disk(folder, "iceberg", request.getfixturevalue("rest_catalog") if request.param == "rest-disk" else None)
    assert isinstance(place, IcebergPlace)
    place.create(SCHEMA)
    return World(place)


@pytest.fixture(params=slow_except(["sql-disk", "rest-disk", "sql-s3"], "sql-disk", "rest-disk"))
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return opened(request, tmp_path)


@pytest.fixture
def world(empty: World) -> World:
    empty.place.append(rows_of(1))
    return empty


# --- who makes the branch -------------------------------------------------------------------------------------------------


def test_a_branch_that_does_not_exist_is_made_from_the_head_of_main_which_stays_where_it_is(world: World) -> None:
    before = world.head(MAIN_BRANCH)

    outcome = world.write(2)

    assert isinstance(outcome, Committed)
    assert (world.rows(), world.rows(MAIN_BRANCH)) == ([1, 2], [1])
    assert world.head(MAIN_BRANCH).snapshot_id == before.snapshot_id
    assert world.head().parent_snapshot_id == before.snapshot_id
    assert world.head().snapshot_id == outcome.commit_id == KEY.snapshot_id


def test_the_next_epoch_goes_on_from_the_head_of_the_branch(world: World) -> None:
    world.write(2)

    assert isinstance(world.write(3, key=SECOND), Committed)
    assert world.rows() == [1, 2, 3]
    assert world.head().parent_snapshot_id == KEY.snapshot_id


def test_in_a_table_without_a_snapshot_main_gets_an_empty_one_first_so_that_the_branch_is_no_history_of_its_own(
    empty: World,
) -> None:
    assert isinstance(empty.write(2), Committed)
    empty.append_as_stranger(3, branch=MAIN_BRANCH)

    assert (empty.rows(), empty.rows(MAIN_BRANCH)) == ([2], [3])
    assert empty.head().parent_snapshot_id == empty.head(MAIN_BRANCH).parent_snapshot_id
    assert empty.head().parent_snapshot_id is not None
    assert isinstance(empty.write(4, key=SECOND), Committed)
    assert empty.rows() == [2, 4]


def test_of_two_who_begin_an_empty_table_one_is_refused_and_nothing_is_lost(empty: World) -> None:
    ours, theirs = empty.staged(2), empty.staged(3, key=OTHERS)
    port, state = empty.loaded()
    other, seen = empty.loaded(OTHERS)

    assert isinstance(other.swap(seen, OTHERS, theirs), Landed)
    assert isinstance(port.swap(state, KEY, ours), Refused)
    assert isinstance(empty.commit(ours), Committed)
    assert empty.rows() == [2, 3]


@pytest.mark.parametrize("exists", [True, False], ids=["to a branch that is there", "to one that both would make"])
def test_two_writes_to_one_branch_both_land_one_after_the_other(world: World, exists: bool) -> None:
    if exists:
        world.make_branch()
    ours, theirs = world.staged(2), world.staged(3, key=OTHERS)
    port, state = world.loaded()
    other, seen = world.loaded(OTHERS)

    assert isinstance(other.swap(seen, OTHERS, theirs), Landed)
    assert isinstance(port.swap(state, KEY, ours), Refused)
    assert isinstance(world.commit(ours), Committed)
    assert world.rows() == [1, 2, 3]


# --- what others do meanwhile ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exists", [True, False], ids=["to a branch that is there", "to one that is made"])
def test_rows_that_others_put_into_main_are_in_nobodys_way(world: World, exists: bool) -> None:
    if exists:
        world.make_branch()
    change = world.staged(2)
    port, state = world.loaded()
    world.append_as_stranger(5, branch=MAIN_BRANCH)

    # A catalog may refuse that first request: the sequence numbers of a table are counted over all its branches.
    port.swap(state, KEY, change)
    outcome = world.commit(change)

    assert isinstance(outcome, Committed)
    assert world.rows(MAIN_BRANCH) == [1, 5]
    assert world.rows() == ([1, 2] if exists or not outcome.by_us else [1, 2, 5])


def test_rows_that_others_put_into_the_branch_stay_and_ours_come_after_them(world: World) -> None:
    world.make_branch()
    change = world.staged(2)
    port, state = world.loaded()
    world.append_as_stranger(5)
    moved = world.head().snapshot_id

    assert isinstance(port.swap(state, KEY, change), Refused)
    assert isinstance(world.commit(change), Committed)
    assert world.rows() == [1, 2, 5]
    assert world.head().parent_snapshot_id == moved


def test_a_branch_that_others_make_between_look_and_commit_is_taken_as_it_is(world: World) -> None:
    change = world.staged(2)
    port, state = world.loaded()
    world.make_branch()
    world.append_as_stranger(5)

    assert isinstance(port.swap(state, KEY, change), Refused)
    assert isinstance(world.commit(change), Committed)
    assert world.rows() == [1, 2, 5]


def test_a_branch_that_was_dropped_after_a_commit_to_it_was_tried_is_not_made_again_and_is_named(world: World) -> None:
    world.make_branch()
    change, ledger = world.staged(2), world.claimed()
    head = world.head().snapshot_id
    world.drop_branch()

    outcome = world.commit(change, ledger)

    assert isinstance(outcome, Unknown)
    assert f"snapshot {head} of the branch 'staging', which was dropped since" in outcome.message
    assert "staging" not in world.place.table().metadata.refs
    world.make_branch(at=head)
    assert isinstance(world.commit(change, ledger), Committed)
    assert world.rows() == [1, 2]


def test_a_branch_that_was_dropped_before_anything_was_tried_is_made_again_from_main(world: World) -> None:
    world.make_branch()
    world.append_as_stranger(5)
    change = world.staged(2)
    world.drop_branch()

    assert isinstance(world.commit(change), Committed)
    assert world.rows() == [1, 2]


def test_a_branch_that_was_yet_to_be_made_at_the_claim_is_made_by_who_takes_over(world: World) -> None:
    change, ledger = world.staged(2), world.claimed()
    world.append_as_stranger(5, branch=MAIN_BRANCH)

    assert isinstance(world.commit(change, ledger), Committed)
    assert world.rows() == [1, 2, 5]


def test_an_outcome_is_unknown_where_the_branch_no_longer_reaches_back_to_the_claim(world: World) -> None:
    world.make_branch()
    world.append_as_stranger(5)
    change, ledger = world.staged(2), world.claimed()
    base = world.head().snapshot_id
    world.append_as_stranger(6)
    world.place.table().maintenance.expire_snapshots().by_ids([base]).commit()
    world.place.table().manage_snapshots().remove_branch("staging").create_branch(
        world.head(MAIN_BRANCH).snapshot_id, "staging"
    ).commit()
    world.append_as_stranger(7)
    expired = world.head().parent_snapshot_id
    assert expired == world.head(MAIN_BRANCH).snapshot_id
    world.append_as_stranger(8, branch=MAIN_BRANCH)
    world.place.table().maintenance.expire_snapshots().by_ids([expired]).commit()

    outcome = world.commit(change, ledger)

    assert isinstance(outcome, Unknown)
    assert "history no longer reaches" in outcome.message


def overwritten(world: World) -> StagedChange:
    target = world.port().describe()
    assert target is not None
    return world.staged(2, operation=OverwriteAll(base=target.base))


def test_an_overwrite_of_a_branch_is_stopped_by_rows_of_others_in_that_branch_and_not_by_those_in_main(world: World) -> None:
    world.make_branch()
    change = overwritten(world)
    world.append_as_stranger(5, branch=MAIN_BRANCH)
    assert isinstance(world.commit(change), Committed)
    assert (world.rows(), world.rows(MAIN_BRANCH)) == ([2], [1, 5])

    target = world.port().describe()
    assert target is not None
    again = world.staged(3, key=SECOND, operation=OverwriteAll(base=target.base))
    world.append_as_stranger(6)
    outcome = world.commit(again, ledger_over(MemoryStore(), key=SECOND))

    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.TABLE_WRITTEN_MEANWHILE
    assert world.rows() == [2, 6]


# --- replays --------------------------------------------------------------------------------------------------------------


def test_a_commit_that_is_repeated_after_the_branch_has_moved_changes_nothing(world: World) -> None:
    change, ledger = world.staged(2), ledger_over(MemoryStore())
    first = world.commit(change, ledger)
    world.append_as_stranger(5)

    again = world.commit(change, ledger)

    assert isinstance(first, Committed)
    assert again == Committed(first.table_identity, first.commit_id, by_us=False)
    assert world.rows() == [1, 2, 5]


def test_a_commit_is_here_while_its_branch_or_main_has_it_and_said_to_be_gone_after_both_were_moved(world: World) -> None:
    outcome = world.write(2)
    assert isinstance(outcome, Committed)
    found = outcome.table_identity, outcome.commit_id
    assert world.port().find_committed(KEY, *found) is Presence.HERE

    world.drop_branch()
    assert world.port().find_committed(KEY, *found) is Presence.BRANCH_DROPPED
    assert world.loaded()[1].committed == KEY.snapshot_id
    assert not world.loaded()[1].is_current

    world.set_ref(ref_name=MAIN_BRANCH, type=SnapshotRefType.BRANCH, snapshot_id=KEY.snapshot_id)
    assert world.port().find_committed(KEY, *found) is Presence.HERE
    assert world.rows(MAIN_BRANCH) == [1, 2]


# --- deletion -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exists", [True, False], ids=["a branch that is there", "one that the commit would make"])
def test_the_tombstone_of_a_deletion_lies_on_the_branch_and_stops_a_commit_that_was_on_its_way(
    world: World, exists: bool
) -> None:
    if exists:
        world.make_branch()
    world.refs = Refs("staging", "run-{epoch}")
    world.properties = {"owner": "team-a"}
    change, ledger = world.staged(2), world.claimed()
    port, state = world.loaded()

    assert isinstance(iceberg.block_commit(world.port(), ledger, lambda _: None), CommitBlocked)

    assert isinstance(port.swap(state, KEY, change), Refused)
    assert isinstance(world.commit(change, ledger), Rejected)
    assert (world.rows(), world.rows(MAIN_BRANCH)) == ([1], [1])
    assert world.head().snapshot_id == KEY.snapshot_id
    assert world.head().summary is not None
    assert "owner" not in (world.head().summary or {}).additional_properties  # type: ignore[union-attr]
    assert set(world.place.table().metadata.refs) == {"main", "staging"}


def test_the_deletion_of_a_write_whose_branch_was_dropped_makes_no_branch_and_says_that_it_cannot_tell(world: World) -> None:
    world.make_branch()
    ledger = world.claimed()
    world.drop_branch()

    outcome = iceberg.block_commit(world.port(), ledger, lambda _: None)

    assert isinstance(outcome, Unknown)
    assert "the branch 'staging', which was dropped since" in outcome.message
    assert "staging" not in world.place.table().metadata.refs


# --- tags -----------------------------------------------------------------------------------------------------------------


def test_each_epoch_has_a_tag_of_its_own_from_the_very_commit_also_the_first_of_a_table(empty: World) -> None:
    empty.refs = Refs(tag="run-{epoch}")

    empty.write(1)
    empty.write(2, key=SECOND)

    refs = empty.place.table().metadata.refs
    assert {name: ref.snapshot_id for name, ref in refs.items() if ref.snapshot_ref_type == SnapshotRefType.TAG} == {
        "run-1": KEY.snapshot_id,
        "run-2": SECOND.snapshot_id,
    }
    assert (empty.rows("run-1"), empty.rows("run-2")) == ([1], [1, 2])


@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_a_tag_whose_name_is_taken_is_refused_before_the_work_and_at_the_commit(world: World, kind: str) -> None:
    world.refs = Refs("staging", "run")
    change = world.staged(2)
    world.tag("run") if kind == "tag" else world.make_branch("run")

    with pytest.raises(NeedsChange, match=f"has a {kind} 'run' already, on snapshot") as caught:
        world.port().refuse_operation(Append(), KEY)
    outcome = world.commit(change)

    assert caught.value.reason == reasons.TAG_EXISTS
    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.TAG_EXISTS
    assert "sink.iceberg.tag ({epoch} in it stands for the epoch)" in outcome.message
    assert "staging" not in world.place.table().metadata.refs


def test_a_tag_that_others_set_between_look_and_commit_refuses_the_request(world: World) -> None:
    world.refs = Refs("staging", "run")
    change = world.staged(2)
    port, state = world.loaded()
    world.tag("run")

    assert isinstance(port.swap(state, KEY, change), Refused)
    assert world.head("run").snapshot_id == world.head(MAIN_BRANCH).snapshot_id


def test_a_tag_on_the_snapshot_of_that_very_epoch_stops_nothing(world: World) -> None:
    world.refs = Refs("staging", "run")
    ledger, change = ledger_over(MemoryStore()), world.staged(2)
    world.commit(change, ledger)

    world.port().refuse_operation(Append(), KEY)
    assert isinstance(world.commit(change, ledger), Committed)
    with pytest.raises(NeedsChange, match="already"):
        world.port().refuse_operation(Append(), SECOND)


def test_a_tag_in_the_place_of_the_branch_is_refused_by_its_name_before_the_work_and_at_the_commit(world: World) -> None:
    change = world.staged(2)
    ledger = ledger_over(MemoryStore())
    target = world.port().describe()
    assert target is not None
    world.tag("staging")

    with pytest.raises(NeedsChange, match="has a tag 'staging', and a tag cannot be written"):
        world.port().describe()
    results = Results(change, (target,), rows_read=0, rows_written=0, attempts=1, code_digests=(DIGEST,))
    outcome = iceberg.commit(world.port(), ledger, results, lambda _: None)
    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.TABLE_UNSUPPORTED

    world.refs = Refs("another")
    assert world.port().describe() is not None


# --- what the snapshot says, and what stays -------------------------------------------------------------------------------


def test_properties_are_in_the_summary_beside_key_and_counts(world: World) -> None:
    world.properties = {"owner": "team-a", "ticket": "DATA-7", "added-records": "no manifest may say this"}

    world.write(2)

    summary = world.head().summary
    assert summary is not None
    said = summary.additional_properties
    assert (said["owner"], said["ticket"]) == ("team-a", "DATA-7")
    assert (said["checkpointed-write.key"], said["added-records"], said["total-records"]) == (str(KEY), "1", "2")


@pytest.mark.parametrize("branch", [MAIN_BRANCH, "staging"])
def test_how_long_snapshots_of_a_branch_are_kept_stays_as_it_was(world: World, branch: str) -> None:
    if branch != MAIN_BRANCH:
        world.make_branch()
    world.refs = Refs(branch)
    world.set_ref(
        ref_name=branch,
        type=SnapshotRefType.BRANCH,
        snapshot_id=world.head(MAIN_BRANCH).snapshot_id,
        max_snapshot_age_ms=86_400_000,
        min_snapshots_to_keep=7,
    )

    world.write(2)

    ref = world.place.table().metadata.refs[branch]
    assert (ref.snapshot_id, ref.max_snapshot_age_ms, ref.min_snapshots_to_keep) == (KEY.snapshot_id, 86_400_000, 7)


def test_a_manifest_leads_to_its_branch_and_tag_and_names_both(world: World) -> None:
    manifest = world.place.sink()
    manifest["iceberg"] |= {"branch": "staging", "tag": "run-{epoch}", "snapshotProperties": {"owner": "team-a"}}
    spec = Sink.model_validate(manifest)
    change = world.staged(2)
    sink = open_sink(spec, world.place.settings, written_by="default/nightly")

    target = sink.describe(KEY)

    assert target is not None
    assert sink.title == target.title == f"test.{world.place.name}@staging"
    seen = format_of(spec).examine(world.place.settings)
    assert seen.notes == ("spec.sink.iceberg.branch: there is no branch 'staging': the commit makes it from main's head",)
    results = Results(change, (target,), rows_read=0, rows_written=0, attempts=1, code_digests=(DIGEST,))
    assert isinstance(sink.commit(ledger_over(MemoryStore()), results), Committed)
    assert (world.rows(), world.rows("run-1")) == ([1, 2], [1, 2])
    former = format_of(spec).find_former(world.place.settings, "default/nightly", None)
    assert former is not None
    assert former.key == str(KEY)
    assert ".use_ref('staging')" in (format_of(spec).how_to_read(world.place.settings) or "")
    taken = Sink.model_validate({"iceberg": manifest["iceberg"] | {"tag": "run-1"}})
    assert "there is a branch or tag 'run-1' already" in format_of(taken).examine(world.place.settings).notes[0]


def test_in_format_3_rows_of_a_branch_have_ids_that_follow_each_other(tmp_path: Path, rest_catalog: RestCatalog) -> None:
    place = on_disk(tmp_path, "iceberg", rest_catalog)
    assert isinstance(place, IcebergPlace)
    create_3(place, {"name": "id", "type": "long"})
    world = World(place)

    assert isinstance(world.write(1, 2), Committed)
    assert isinstance(world.write(3, key=SECOND), Committed)

    assert (world.rows(), world.rows(MAIN_BRANCH)) == ([1, 2, 3], [])
    heads = [world.head(MAIN_BRANCH), place.table().snapshot_by_id(KEY.snapshot_id), world.head()]
    assert [(head.first_row_id, head.added_rows) for head in heads if head is not None] == [(0, 0), (0, 2), (2, 1)]

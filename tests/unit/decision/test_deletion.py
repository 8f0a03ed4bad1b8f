"""Deletion of a write, step by step: the note, the burials, the data files, the staged records; nothing on an unknown outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from checkpoint_commit.changes import Change, as_staged
from checkpoint_commit.iceberg import commit as iceberg
from checkpoint_commit.outcomes import BlockOutcome, CommitOutcome, Rejected, TryLater, Unknown
from checkpoint_commit.results import Results
from checkpoint_control.writes.deletion import Deleted, DeletionOutcome, Kept, delete_write, keep_from_landing, retain_write
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import ClaimRecord, CommitRecord, IcebergBase, IcebergFile, Operation, Output, StagedFile, Target
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.authenticated_store import AuthenticatedStore, KeysOfOneWrite
from checkpoint_protocol.store.macs import WriteKeys, derive, derive_control
from checkpoint_protocol.store.object_listing import NotListed
from checkpoint_protocol.store.object_store import StoredObject
from tests.support.records import DIGEST, ICEBERG, KEY, TOKEN, appended, iceberg_file, launch, seal
from tests.support.stores import ListHides, LosesAnswers, MemoryStore, Wrapped
from tests.support.tables import FakeIceberg

SECOND = EpochKey(KEY.uid, 2)
STAGE = f"wash-{'0' * 16}-1"


@dataclass
class FakeSink:
    """The sink port over the small table; `outcome` is the answer to block_commit, `discarded` are the files it was given."""

    table: FakeIceberg = field(default_factory=FakeIceberg)
    outcome: BlockOutcome | None = None
    discarded: list[tuple[EpochKey, tuple[Target, ...], tuple[str, ...]]] = field(default_factory=list)
    error: Exception | None = None
    title: str = "db.rows"
    output: Output | None = None

    def describe(self, key: EpochKey) -> Target | None:
        raise AssertionError("nothing is staged any more")

    def create(self, arrow_schema: str) -> Target:
        raise AssertionError("nothing is staged any more")

    def pack(self, operation: Operation, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Change:
        return as_staged(operation, key, targets, files)

    def commit(self, ledger: Ledger, results: Results) -> CommitOutcome:
        return iceberg.commit(self.table, ledger, results, lambda _: None)

    def block_commit(self, ledger: Ledger) -> BlockOutcome:
        return self.outcome or iceberg.block_commit(self.table, ledger, lambda _: None)

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        if self.error is not None:
            raise self.error
        names = tuple(file.path.rpartition("/")[2] for file in files if isinstance(file, IcebergFile))
        self.discarded.append((key, tuple(targets), names))
        return len(names)


@dataclass
class World:
    store: Any = field(default_factory=MemoryStore)
    sink: FakeSink = field(default_factory=FakeSink)

    def begin(self, key: EpochKey = KEY, seals: int = 2) -> None:
        """As a runner and its driver do: one attempt, with a file in each seal."""
        ledger = Ledger(self.store, key)
        ledger.attempts.put_launch(launch())
        for link in range(seals):
            files = [iceberg_file(f"{key.epoch}-1-0-{link}.parquet")]
            ledger.seals.put_seal(seal(0, link, [(0, link, link + 1)], files=files, last=link == seals - 1))

    def claim(self, key: EpochKey = KEY, base: int | None = None) -> None:
        claimed = IcebergBase(table_uuid=self.sink.table.uuid, snapshot_id=base)
        Ledger(self.store, key).commits.put_claim(ClaimRecord(token=new_token(), index=0, base=claimed))

    def record_commit(self, key: EpochKey = KEY) -> None:
        Ledger(self.store, key).commits.put_commit(
            CommitRecord(
                token=TOKEN,
                key=str(key),
                target="db.rows",
                table_identity="the-table",
                commit_id=key.snapshot_id,
                rows_read=1,
                rows_written=1,
                files=1,
                attempts=1,
                code_digests=(DIGEST,),
            )
        )

    def delete(self) -> DeletionOutcome:
        return delete_write(self.store, KEY.uid, self.sink, pause=lambda _: None)

    def retain(self, confirm: Callable[[], None] = lambda: None) -> DeletionOutcome:
        return retain_write(self.store, KEY.uid, self.sink, confirm=confirm, pause=lambda _: None)

    def commit_an_epoch(self) -> set[str]:
        """One that is committed, before the second; return what is staged of it."""
        self.begin(KEY)
        self.claim(KEY)
        self.record_commit(KEY)
        return self.staged

    def paths(self, folder: str = "") -> set[str]:
        return {stored.path for stored in self.store.list(folder)}

    @property
    def staged(self) -> set[str]:
        return self.paths(layout.staged_folder(KEY.uid))

    @property
    def discarded(self) -> list[str]:
        return sorted(name for _, _, names in self.sink.discarded for name in names)

    @property
    def tombstones(self) -> int:
        return sum(snapshot.is_tombstone for snapshot in self.sink.table.history)


# --- what goes and what stays -----------------------------------------------------------------------------------------------


def test_a_write_that_never_claimed_goes_without_a_request_to_the_table() -> None:
    world = World()
    world.begin()
    control = world.paths(layout.control_folder(KEY.uid))

    assert world.delete() == Deleted((), data_files=2, objects=2)

    assert world.discarded == ["1-1-0-0.parquet", "1-1-0-1.parquet"]
    assert world.staged == set()
    assert world.paths(layout.control_folder(KEY.uid)) == {*control, layout.deleted_path(KEY.uid)}
    assert world.sink.table.log == []


def test_a_claimed_write_is_buried_before_its_files_go() -> None:
    world = World()
    world.begin()
    world.claim()

    assert world.delete() == Deleted((), data_files=2, objects=2)

    assert world.tombstones == 1
    assert world.sink.discarded == [(KEY, (ICEBERG,), ("1-1-0-0.parquet", "1-1-0-1.parquet"))]


def test_a_marked_epoch_keeps_its_files_and_the_table_is_not_asked() -> None:
    world = World()
    world.begin()
    world.claim()
    world.record_commit()

    assert world.delete() == Deleted((1,), data_files=0, objects=2)

    assert world.sink.table.log == []
    assert world.sink.discarded == []


def test_an_epoch_that_was_committed_and_not_marked_keeps_its_files_and_gets_no_mark() -> None:
    world = World()
    world.begin()
    files = tuple(iceberg_file(f"1-1-0-{link}.parquet") for link in range(2))
    world.sink.commit(Ledger(world.store, KEY), Results(appended(files), (ICEBERG,), 2, 2, 1, (DIGEST,)))

    assert world.delete() == Deleted((1,), data_files=0, objects=2)

    assert world.sink.discarded == []
    assert world.tombstones == 0
    assert Ledger(world.store, KEY).commits.read_commit() is None


def test_of_two_epochs_only_the_unfinished_one_is_buried_and_loses_its_files() -> None:
    world = World()
    world.begin()
    world.claim()
    world.record_commit()
    world.begin(SECOND)
    world.claim(SECOND)

    assert world.delete() == Deleted((1,), data_files=2, objects=4)

    assert world.discarded == ["2-1-0-0.parquet", "2-1-0-1.parquet"]
    assert {key for key, _, _ in world.sink.discarded} == {SECOND}
    assert [snapshot.key for snapshot in world.sink.table.history] == [str(SECOND)]


def test_files_of_seals_that_were_not_counted_go_too() -> None:
    """A zombie has sealed after its attempt was closed."""
    world = World()
    world.begin()
    Ledger(world.store, KEY).seals.put_seal(seal(7, 3, attempt=4, files=[iceberg_file("1-4-7-0.parquet")]))

    world.delete()

    assert "1-4-7-0.parquet" in world.discarded


def test_files_stay_where_the_claimed_table_is_gone_because_it_may_come_back_with_the_commit() -> None:
    world = World()
    world.begin()
    world.claim()
    world.sink.table.exists = False

    assert world.delete() == Deleted((), data_files=2, objects=2)

    assert [targets for _, targets, _ in world.sink.discarded] == [()], "without a target no file is below a data location"
    assert world.staged == set()


def test_only_the_targets_of_the_buried_table_are_discarded_below() -> None:
    world = World()
    world.begin()
    other = ICEBERG.model_copy(update={"table_uuid": "made-again", "data_location": "/elsewhere"})
    Ledger(world.store, KEY).attempts.put_launch(launch(2, target=other))
    world.claim()

    world.delete()

    assert [targets for _, targets, _ in world.sink.discarded] == [(ICEBERG,)]


def test_other_writes_and_other_objects_are_left_alone() -> None:
    world = World()
    world.begin()
    others = {
        *("staged/0123456789abcdeff/1/input.json", "staged/other/1/1/seals/0/0.json", "staged/x"),
        *("streams/0123456789abcdeff/offsets/0", "probe/x.json"),
    }
    for path in others:
        world.store.put_if_absent(path, b"theirs")

    world.delete()

    assert others <= world.paths()


def test_strays_below_the_writes_staged_folder_go_and_name_no_files() -> None:
    world = World()
    world.begin(seals=1)
    world.store.put_if_absent(f"staged/{KEY.uid}/notes.txt", b"x")
    world.store.put_if_absent(f"staged/{KEY.uid}/1/1/seals/00/0.json", b"x")

    assert world.delete() == Deleted((), data_files=1, objects=3)


def test_sparks_own_checkpoint_of_a_stream_goes_with_the_write() -> None:
    world = World()
    world.begin(seals=1)
    world.store.put_if_absent(f"streams/{KEY.uid}/offsets/0", b"v1")

    world.delete()

    assert not [path for path in world.paths() if path.startswith("streams/")]


def test_a_write_that_never_began_is_noted_as_deleted() -> None:
    world = World()

    assert world.delete() == Deleted((), 0, 0)
    assert world.paths() == {layout.deleted_path(KEY.uid)}


def test_a_deletion_that_is_repeated_finds_nothing_more_and_buries_once() -> None:
    world = World()
    world.begin()
    world.claim()
    world.delete()

    assert world.delete() == Deleted((), 0, 0)
    assert world.tombstones == 1


# --- the order --------------------------------------------------------------------------------------------------------------


class Logged(Wrapped):
    """Notes every call. `before` sees each before it is made."""

    def __init__(self, before: Callable[[str], None] = lambda call: None) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.before = before

    def _note(self, call: str) -> None:
        self.before(call)
        self.calls.append(call)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._note(f"put {path}")
        return super().put_if_absent(path, data)

    def get(self, path: str, most_bytes: int) -> bytes | None:
        self._note(f"get {path}")
        return super().get(path, most_bytes)

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        self._note(f"list {folder}")
        return super().list(folder)

    def delete(self, paths: Iterable[str]) -> None:
        gone = list(paths)
        self._note(f"delete {gone[0]}")
        super().delete(gone)


def test_the_note_is_put_before_any_claim_or_mark_is_asked_for() -> None:
    world = World(store=Logged())
    world.begin()
    world.store.calls.clear()

    world.delete()

    first = world.store.calls[0]
    assert first == f"put {layout.deleted_path(KEY.uid)}"
    assert f"get {Ledger(world.store, KEY).at.claim(0)}" in world.store.calls


def test_of_an_epoch_after_a_committed_one_the_note_is_put_before_its_claim_is_asked_for() -> None:
    world = World(store=Logged())
    world.commit_an_epoch()
    world.begin(SECOND)

    world.retain()

    at = Ledger(world.store, SECOND).at
    assert world.store.calls.index(f"put {at.deleted}") < world.store.calls.index(f"get {at.claim(0)}")


def test_seals_are_removed_after_the_files_that_they_name() -> None:
    world = World(store=Logged())
    world.begin()

    def files_first(call: str) -> None:
        assert not call.startswith("delete") or len(world.discarded) == 2

    world.store.before = files_first
    world.delete()
    assert world.staged == set()


def test_a_claim_that_came_just_before_the_note_is_seen() -> None:
    world = World(store=Logged())
    world.begin()

    def claim_first(call: str) -> None:
        if call == f"put {layout.deleted_path(KEY.uid)}":
            world.store.before = lambda call: None
            world.claim()

    world.store.before = claim_first
    world.delete()

    assert world.tombstones == 1


def test_an_epoch_and_a_claim_that_no_listing_shows_are_found() -> None:
    inner = World()
    inner.begin()
    inner.claim()
    inner.record_commit()
    inner.begin(SECOND)
    inner.claim(SECOND)
    hidden = {path for path in inner.paths() if path.startswith(f"control/{KEY.uid}/2/")}
    world = World(store=ListHides(inner.store, hidden=hidden))

    assert isinstance(outcome := world.delete(), Deleted)

    assert outcome.committed_epochs == (1,)
    assert world.tombstones == 1


def test_memory_is_bounded_however_many_seals_there_are() -> None:
    world = World()
    world.begin(seals=500)
    most = 0

    def map_all(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        nonlocal most
        most = max(most, len(items))
        return [function(item) for item in items]

    outcome = delete_write(world.store, KEY.uid, world.sink, map_all=map_all)

    assert outcome == Deleted((), data_files=500, objects=500)
    assert most <= 32
    assert max(len(names) for _, _, names in world.sink.discarded) <= 32
    assert len(set(world.discarded)) == 500


# --- what cannot be known, and what goes wrong ------------------------------------------------------------------------------


def with_an_unknown_second_epoch(outcome: BlockOutcome) -> World:
    world = World(sink=FakeSink(outcome=outcome))
    world.begin()
    world.begin(SECOND)
    world.claim(SECOND)
    return world


@pytest.mark.parametrize(
    ("outcome", "kept"),
    [
        (Unknown("look whether the rows are there"), Kept("CommitOutcomeUnknown", "look whether the rows are there")),
        (Rejected("TableUnsupported", "version 3"), Kept("TableUnsupported", "version 3")),
    ],
)
def test_where_a_person_must_act_nothing_is_removed_also_not_of_other_epochs(outcome: BlockOutcome, kept: Kept) -> None:
    world = with_an_unknown_second_epoch(outcome)
    before = world.staged

    assert world.delete() == kept

    assert world.staged == before
    assert world.sink.discarded == []
    assert writes.read_deleted(world.store, KEY.uid) is not None, "no new commit begins meanwhile"


def test_a_table_that_does_not_answer_is_retryable_and_nothing_is_removed() -> None:
    world = with_an_unknown_second_epoch(TryLater(reasons.CATALOG_UNAVAILABLE, "no answer"))
    before = world.staged

    with pytest.raises(Retryable) as caught:
        world.delete()

    assert caught.value.reason == reasons.CATALOG_UNAVAILABLE
    assert world.staged == before
    world.sink.outcome = None
    assert isinstance(world.delete(), Deleted)


def test_refused_credentials_are_for_a_person_and_the_seals_stay_until_the_files_are_gone() -> None:
    world = World()
    world.begin()
    world.sink.error = NeedsChange(reasons.CREDENTIALS_REFUSED, "refused")

    assert world.delete() == Kept(reasons.CREDENTIALS_REFUSED, "refused")

    assert len(world.staged) == 2
    world.sink.error = None
    assert world.delete() == Deleted((), data_files=2, objects=2)


@pytest.mark.parametrize("path", ["commit/claim-0.json", "commit/done.json", "launch/1.json"])
def test_an_unreadable_record_of_ours_stops_the_deletion_before_anything_is_removed(path: str) -> None:
    world = World()
    world.begin()
    broken = f"control/{KEY}/{path}"
    world.store.delete([broken])
    world.store.put_if_absent(broken, b"garbage")
    before = world.staged

    with pytest.raises(Corrupt, match="control/"):
        world.delete()
    assert world.staged == before
    assert world.sink.discarded == []


def test_an_unreadable_seal_names_no_files_and_does_not_stop_the_deletion() -> None:
    """Drivers put seals; what they put must not be able to stop the operator."""
    world = World()
    world.begin(seals=1)
    world.store.put_if_absent(f"staged/{KEY}/1/seals/0/1.json", b"garbage")

    assert world.delete() == Deleted((), data_files=1, objects=2)
    assert world.staged == set()


def signed(inner: MemoryStore) -> AuthenticatedStore:
    key, control = derive(b"k" * 32, KEY.uid), derive_control(b"k" * 32, KEY.uid)
    return AuthenticatedStore(inner, KeysOfOneWrite(WriteKeys(current="1", keys={"1": key}, control={"1": control})))


@pytest.mark.parametrize(
    "path",
    [
        f"control/{KEY}/launch/7.json",
        f"control/{KEY.uid}/2/launch/1.json",
        f"control/{KEY.uid}/9999999999/launch/1.json",
        f"control/{KEY.uid}/9999999999/anything",
        f"control/{KEY}/stages/NO STAGE/launch/1.json",
        f"control/{KEY}/stages/s1/launch/1.json",
        f"staged/{KEY}/1/seals/0/7.json",
    ],
)
@pytest.mark.parametrize("stranger", [b"{}", '{}\n{"mac":{"key":"1","sha256":"\u00e4","control":"\u00e4"}}'.encode()])
@pytest.mark.parametrize("retain", [False, True])
def test_what_a_stranger_has_put_stops_no_deletion(path: str, stranger: bytes, retain: bool) -> None:
    inner = MemoryStore()
    world = World(store=signed(inner))
    world.begin()
    inner.put_if_absent(path, stranger)

    outcome = world.retain() if retain else world.delete()

    assert isinstance(outcome, Deleted)
    assert world.discarded == ["1-1-0-0.parquet", "1-1-0-1.parquet"]
    assert not world.staged
    keep_from_landing(world.store, KEY.uid, retain=retain)


@pytest.mark.parametrize("retain", [False, True])
def test_an_epoch_whose_launch_record_a_stranger_has_removed_is_ended_by_its_claim(retain: bool) -> None:
    """It may be in the table, or land there: what has no first launch record may have a claim all the same."""
    world = World()
    world.commit_an_epoch()
    world.begin(SECOND)
    world.claim(SECOND)
    at = layout.EpochLayout(SECOND)
    world.store.delete([at.launch(1)])

    outcome = world.retain() if retain else world.delete()

    assert isinstance(outcome, Deleted)
    assert outcome.committed_epochs == (1,)
    assert world.tombstones == 1
    assert not {path for path in world.staged if path.startswith(f"staged/{SECOND}/")}


def test_an_epoch_whose_launch_record_a_stranger_has_removed_is_kept_from_landing_by_its_claim() -> None:
    world = World()
    world.commit_an_epoch()
    world.begin(SECOND)
    world.claim(SECOND)
    world.store.delete([layout.EpochLayout(SECOND).launch(1)])

    keep_from_landing(world.store, KEY.uid, retain=True)

    assert Ledger(world.store, SECOND).commits.is_deleted()


@dataclass
class HidesBehindAName(Wrapped):
    """A store that can list nothing of a folder, as obstore where an object there has a name that is no path."""

    folder: str = ""

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        for stored in self.inner.list(folder, borders):
            if not stored.path.startswith(self.folder):
                yield stored
        if folder.startswith(self.folder) and folder != self.folder:
            yield from self.inner.list(folder)
        elif self.folder.startswith(folder):
            raise NotListed(f"{self.uri}/{self.folder}", "'a\\tb'")


@pytest.mark.parametrize("folder", [f"control/{KEY.uid}/", f"control/{KEY}/", f"control/{KEY}/launch/"])
@pytest.mark.parametrize("is_claimed", [False, True])
def test_a_name_that_hides_the_records_of_a_write_stops_no_deletion(folder: str, is_claimed: bool) -> None:
    inner = World()
    inner.begin()
    inner.begin(SECOND)
    if is_claimed:
        inner.claim()
    world = World(store=HidesBehindAName(inner.store, folder=folder), sink=inner.sink)

    assert isinstance(world.delete(), Deleted)

    assert len(world.discarded) == 4
    assert world.tombstones == is_claimed
    assert not inner.staged


@pytest.mark.parametrize("is_launch_there", [True, False])
def test_an_epoch_whose_records_a_name_hides_is_begun_also_where_only_its_claim_is_there(is_launch_there: bool) -> None:
    inner = World()
    inner.commit_an_epoch()
    inner.begin(SECOND)
    inner.claim(SECOND)
    if not is_launch_there:
        inner.store.delete([layout.EpochLayout(SECOND).launch(1)])

    assert writes.last_epoch(HidesBehindAName(inner.store, folder=f"control/{SECOND}/"), KEY.uid) == 2


@pytest.mark.parametrize("folder", [f"staged/{KEY.uid}/", f"staged/{KEY}/"])
def test_what_a_name_hides_of_what_is_staged_is_looked_for_where_attempts_put_it(folder: str) -> None:
    inner = World()
    inner.begin()
    inner.store.put_if_absent(f"staged/{KEY}/input.json", b"{}")
    world = World(store=HidesBehindAName(inner.store, folder=folder))

    assert isinstance(world.delete(), Deleted)

    assert len(world.discarded) == 2
    assert inner.staged == {f"staged/{KEY}/input.json"}


def test_a_note_whose_answer_was_lost_is_put_again() -> None:
    world = World()
    world.begin()
    honest, world.store = world.store, LosesAnswers(world.store)

    with pytest.raises(Retryable):
        world.delete()
    assert len(world.staged) == 2
    assert isinstance(world.delete(), Deleted)
    assert world.staged == set()
    assert honest is world.store.inner


class Died(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("is_claimed", [False, True])
def test_a_deletion_that_is_cut_off_at_any_call_is_finished_by_the_next(is_claimed: bool) -> None:
    def begun(store: Any) -> World:
        world = World(store=store)
        world.begin(seals=3)
        if is_claimed:
            world.claim()
        return world

    whole = begun(Logged())
    whole.store.calls.clear()
    whole.delete()
    for cut in range(len(whole.store.calls)):
        world = begun(Logged())
        left = cut

        def die(call: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Died

        world.store.before = die
        with pytest.raises(Died):
            delete_write(world.store, KEY.uid, world.sink, map_all=lambda function, items: [function(item) for item in items])
        world.store.before = lambda call: None

        assert isinstance(world.delete(), Deleted)
        assert world.staged == set()
        assert set(world.discarded) == {f"1-1-0-{link}.parquet" for link in range(3)}
        assert world.tombstones == (1 if is_claimed else 0)


# --- a write that is retained ---------------------------------------------------------------------------------------------


def test_a_write_that_has_committed_nothing_is_forgotten() -> None:
    world = World()
    world.begin()

    assert world.retain() == Deleted((), data_files=2, objects=2)

    assert world.staged == set()
    assert writes.read_deleted(world.store, KEY.uid) is not None


def test_a_write_of_which_nothing_was_begun_is_forgotten() -> None:
    world = World()

    assert world.retain() == Deleted((), 0, 0)

    assert writes.read_deleted(world.store, KEY.uid) is not None


def test_a_write_whose_last_epoch_is_committed_is_left_as_it_is() -> None:
    world = World()
    world.commit_an_epoch()
    before = world.paths()

    assert world.retain() == Deleted((1,), 0, 0)
    keep_from_landing(world.store, KEY.uid, retain=True)

    assert world.paths() == before


@pytest.mark.parametrize("is_claimed", [False, True])
def test_an_epoch_after_a_committed_one_ends_without_a_commit_and_the_first_keeps_its_records(is_claimed: bool) -> None:
    world = World()
    first = world.commit_an_epoch()
    world.begin(SECOND)
    if is_claimed:
        world.claim(SECOND)

    assert world.retain() == Deleted((1,), data_files=2, objects=2)

    assert world.staged == first
    assert world.discarded == ["2-1-0-0.parquet", "2-1-0-1.parquet"]
    ended = Ledger(world.store, SECOND).commits.read_commit()
    assert ended is not None
    assert ended.was_deleted
    assert world.tombstones == (1 if is_claimed else 0)
    assert writes.read_deleted(world.store, KEY.uid) is None
    assert world.retain() == Deleted((1,), 0, 0), "again: nothing is left to do"


def test_an_epoch_of_which_only_a_stage_has_begun_ends_without_a_commit() -> None:
    world = World()
    first = world.commit_an_epoch()
    world.begin(SECOND.of_stage(STAGE))

    assert world.retain() == Deleted((1,), data_files=2, objects=2)

    assert world.staged == first
    ended = Ledger(world.store, SECOND).commits.read_commit()
    assert ended is not None
    assert ended.was_deleted
    assert world.retain() == Deleted((1,), 0, 0), "again: nothing is left to do"


def test_an_epoch_of_which_only_a_stage_has_begun_is_kept_from_landing() -> None:
    world = World()
    world.commit_an_epoch()
    world.begin(SECOND.of_stage(STAGE))

    keep_from_landing(world.store, KEY.uid, retain=True)

    assert Ledger(world.store, SECOND).commits.is_deleted()


@pytest.mark.parametrize("outcome", [Unknown("who knows"), Rejected("R", "m")])
def test_an_epoch_of_which_it_cannot_be_told_whether_it_landed_keeps_everything(outcome: BlockOutcome) -> None:
    world = World()
    world.commit_an_epoch()
    world.begin(SECOND)
    world.claim(SECOND)
    before = world.staged
    world.sink.outcome = outcome

    assert isinstance(world.retain(), Kept)

    assert world.staged == before
    assert Ledger(world.store, SECOND).commits.read_commit() is None


def test_a_deletion_whose_object_has_gone_meanwhile_changes_nothing() -> None:
    world = World()
    world.commit_an_epoch()
    world.begin(SECOND)
    before = world.paths()

    def refuse() -> None:
        raise Retryable("R", "it is gone")

    with pytest.raises(Retryable):
        world.retain(refuse)

    assert world.paths() == before


def test_a_retained_write_that_is_forgotten_later_leaves_nothing_staged() -> None:
    world = World()
    world.commit_an_epoch()
    world.begin(SECOND)
    world.retain()

    assert world.delete() == Deleted((1,), 0, 2)

    assert world.staged == set()


@pytest.mark.parametrize("is_claimed", [False, True])
def test_a_retaining_deletion_that_is_cut_off_at_any_call_is_finished_by_the_next(is_claimed: bool) -> None:
    def begun() -> World:
        world = World(store=Logged())
        world.commit_an_epoch()
        world.begin(SECOND, seals=3)
        if is_claimed:
            world.claim(SECOND)
        return world

    whole = begun()
    whole.store.calls.clear()
    whole.retain()
    assert whole.store.calls
    for cut in range(len(whole.store.calls)):
        world = begun()
        first = {path for path in world.staged if path.startswith(f"staged/{KEY}/")}
        left = cut

        def die(call: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Died

        world.store.before = die
        with pytest.raises(Died):
            retain_write(world.store, KEY.uid, world.sink, map_all=lambda function, items: [function(item) for item in items])
        world.store.before = lambda call: None

        assert isinstance(world.retain(), Deleted)
        assert world.staged == first
        assert world.tombstones == (1 if is_claimed else 0)
        ended = Ledger(world.store, SECOND).commits.read_commit()
        assert ended is not None
        assert ended.was_deleted


@pytest.mark.parametrize("retain", [True, False])
@pytest.mark.parametrize("has_committed", [True, False])
def test_a_deletion_that_is_abandoned_removes_nothing_and_stops_every_committer(has_committed: bool, retain: bool) -> None:
    world = World()
    if has_committed:
        world.commit_an_epoch()
    key = SECOND if has_committed else KEY
    world.begin(key)
    before = world.paths()

    keep_from_landing(world.store, KEY.uid, retain=retain)

    assert Ledger(world.store, key).commits.is_deleted()
    assert (writes.read_deleted(world.store, KEY.uid) is None) == (has_committed and retain)
    assert len(world.paths() - before) == 1

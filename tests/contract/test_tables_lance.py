"""The Lance port of the committer: one suite on real datasets (disk and S3) and on the fakes, among it the conflict rules of
Lance that the protocol leans on; then hostile seals and what real datasets do between looks."""

from __future__ import annotations

import datetime
import itertools
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from checkpoint_commit.changes import Change, StagedChange
from checkpoint_commit.footers import Footers
from checkpoint_commit.lance import commit as lance_protocol
from checkpoint_commit.lance.files.footers import LanceFooters
from checkpoint_commit.lance.port import LanceState, LanceTable
from checkpoint_commit.lance.probe import refuse_lance_without_fences
from checkpoint_commit.lance.table import PylanceTable
from checkpoint_commit.outcomes import CommitBlocked, Committed, Landed, Refused, Rejected, RequestOutcome
from checkpoint_commit.results import Results
from checkpoint_commit.staged_files import Tails
from checkpoint_formats.lance.stager import LanceStager
from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.storage import StorageSettings, lance_options
from checkpoint_protocol.records import Append, ClaimRecord, LanceBase, LanceFragment, LanceTarget, OverwriteAll
from checkpoint_protocol.tables.lance import LanceSink
from devtools.s3_server import S3Server
from tests.simulation.lance_table import SimulatedLance
from tests.simulation.scheduler import Scheduler
from tests.simulation.tables import DataFiles
from tests.support.places import LancePlace, on_disk, on_s3
from tests.support.records import KEY, TOKEN, appended, lance_fragment, ledger_over
from tests.support.stores import MemoryStore
from tests.support.tables import FakeLance
from tests.support.waiting import patience
from tests.support.writes import SCHEMA, rows_of

OTHER = EpochKey("fedcba9876543210", 1)
SECOND = EpochKey(KEY.uid, 2)
_names = itertools.count()


class World(ABC):
    """One dataset, any number of committers, and strangers."""

    @abstractmethod
    def port(self) -> LanceTable:
        """The port of one more committer."""

    @abstractmethod
    def stage(self, *numbers: int) -> tuple[LanceFragment, ...]:
        """Return staged fragments with these rows."""

    @abstractmethod
    def append_as_stranger(self) -> None: ...

    @abstractmethod
    def clean_all_but_the_latest(self) -> None: ...

    def loaded(self, key: EpochKey = KEY, since: int = 1, up_to: int | None = None) -> LanceState:
        state = self.port().load(key, since, up_to)
        assert state is not None
        return state

    @property
    def latest(self) -> int:
        latest = self.port().latest_version()
        assert latest is not None
        return latest

    def append(self, based_on: int, *numbers: int, key: EpochKey = KEY) -> RequestOutcome:
        return self.port().append(based_on, key, appended(self.stage(*numbers)))


@dataclass
class RealWorld(World):
    place: LancePlace

    def port(self) -> PylanceTable:
        return PylanceTable(self.place.uri, self.place.settings)

    def target(self) -> LanceTarget:
        target = self.port().describe()
        assert target is not None
        return target

    def stage(self, *numbers: int) -> tuple[LanceFragment, ...]:
        return self.stage_batch(rows_of(numbers).to_batches()[0])

    def stage_batch(self, batch: pa.RecordBatch, target: LanceTarget | None = None) -> tuple[LanceFragment, ...]:
        stager = LanceStager(target or self.target(), 1 << 20, self.place.settings.for_drivers())
        return stager.stage(iter([batch]))

    def append_as_stranger(self) -> None:
        self.place.append(rows_of([1_000_000]))

    def clean_all_but_the_latest(self) -> None:
        self.place.dataset().cleanup_old_versions(older_than=datetime.timedelta(0), delete_unverified=False)

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.place.rows())


@dataclass
class FakeWorld(World):
    table: FakeLance = field(default_factory=FakeLance)

    def port(self) -> FakeLance:
        return self.table

    def stage(self, *numbers: int) -> tuple[LanceFragment, ...]:
        return (lance_fragment(f"{next(_names)}.lance", rows=len(numbers)),)

    def append_as_stranger(self) -> None:
        self.table.append_as_stranger()

    def clean_all_but_the_latest(self) -> None:
        self.table.clean_all_but_the_latest()


@dataclass
class SimulatedWorld(World):
    table: SimulatedLance = field(default_factory=lambda: SimulatedLance(Scheduler(), DataFiles()))

    def port(self) -> SimulatedLance:
        return self.table

    def stage(self, *numbers: int) -> tuple[LanceFragment, ...]:
        name = f"{next(_names)}.lance"
        self.table.files.put(name, [(number, None) for number in numbers], self.table.layout)
        return (lance_fragment(name, rows=len(numbers)),)

    def append_as_stranger(self) -> None:
        self.table.append_as_stranger()

    def clean_all_but_the_latest(self) -> None:
        self.table.remove_history()


REAL = ("disk", "s3")
WORLDS = (*REAL, "fake", "simulated")


def make_world(name: str, folder: Path, request: pytest.FixtureRequest) -> World:
    if name == "fake":
        return FakeWorld()
    if name == "simulated":
        return SimulatedWorld()
    place = on_s3(folder, "lance", request.getfixturevalue("s3_server")) if name == "s3" else on_disk(folder, "lance")
    assert isinstance(place, LancePlace)
    return RealWorld(place)


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Each world, with an empty dataset that has its identity."""
    made = make_world(request.param, tmp_path, request)
    if isinstance(made, RealWorld):
        made.place.create(SCHEMA)
        made.target()
    return made


@pytest.fixture(params=REAL)
def real(request: pytest.FixtureRequest, tmp_path: Path) -> RealWorld:
    """Each real world, with an empty dataset that has its identity."""
    made = make_world(request.param, tmp_path, request)
    assert isinstance(made, RealWorld)
    made.place.create(SCHEMA)
    made.target()
    return made


@pytest.fixture(params=REAL)
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> RealWorld:
    """Each real world, without a dataset."""
    made = make_world(request.param, tmp_path, request)
    assert isinstance(made, RealWorld)
    return made


# --- the conflict rules that the protocol leans on ------------------------------------------------------------------------


def test_an_append_lands_after_a_strangers_append(world: World) -> None:
    based_on = world.latest
    world.append_as_stranger()

    landed = world.append(based_on, 1)

    assert landed == Landed(world.latest)
    if isinstance(world, RealWorld):
        assert world.ids() == [1, 1_000_000]


def test_two_appends_from_one_version_both_land_which_is_why_there_is_a_fence(world: World) -> None:
    based_on = world.latest

    assert isinstance(world.append(based_on, 1), Landed)
    assert isinstance(world.append(based_on, 1), Landed)
    if isinstance(world, RealWorld):
        assert world.ids() == [1, 1]


def test_an_append_that_is_older_than_a_fence_is_refused_and_one_based_on_it_lands(world: World) -> None:
    based_on = world.latest
    fence = world.port().fence(based_on)
    assert isinstance(fence, Landed)

    assert isinstance(world.append(based_on, 1), Refused)
    assert isinstance(world.append(fence.commit_id, 2), Landed)
    if isinstance(world, RealWorld):
        assert world.ids() == [2]


def test_an_append_that_is_older_than_a_fence_is_refused_also_after_later_versions(world: World) -> None:
    based_on = world.latest
    assert isinstance(world.port().fence(based_on), Landed)
    world.append_as_stranger()
    world.append_as_stranger()

    assert isinstance(world.append(based_on, 1), Refused)


def test_a_fence_after_an_append_that_it_has_not_seen_is_refused(world: World) -> None:
    based_on = world.latest
    world.append_as_stranger()

    assert isinstance(world.port().fence(based_on), Refused)


def test_a_fence_after_another_fence_that_it_has_not_seen_is_refused(world: World) -> None:
    based_on = world.latest
    assert isinstance(world.port().fence(based_on), Landed)

    assert isinstance(world.port().fence(based_on), Refused)


def test_a_strangers_append_lands_after_a_fence(world: World) -> None:
    assert isinstance(world.port().fence(world.latest), Landed)
    world.append_as_stranger()

    if isinstance(world, RealWorld):
        assert world.ids() == [1_000_000]


def test_a_fence_changes_neither_rows_nor_columns_nor_identity(real: RealWorld) -> None:
    real.append(real.latest, 1, 2)
    before = real.target()

    fence = real.port().fence(real.latest)

    after = real.target()
    assert fence == Landed(after.at_version)
    assert (after.identity, after.fields, after.arrow_schema) == (before.identity, before.fields, before.arrow_schema)
    assert real.ids() == [1, 2]
    state = real.loaded()
    assert real.port().find_incompatibility(state, [before], appended(real.stage(3))) is None


def test_of_many_committers_that_fence_and_append_at_once_one_copy_lands(real: RealWorld) -> None:
    """The takeover of the protocol, by hand: fence, look up to the fence, append based on it."""
    since = real.latest
    files = real.stage(1, 2)

    def take_over(_: int) -> bool:
        port = real.port()
        fence = port.fence(real.latest)
        if not isinstance(fence, Landed):
            return False
        state = port.load(KEY, since, fence.commit_id)
        assert state is not None
        return state.committed is None and isinstance(port.append(fence.commit_id, KEY, appended(files)), Landed)

    with ThreadPoolExecutor(4) as committers:
        landed = sum(committers.map(take_over, range(8)))

    assert landed <= 1
    assert real.ids() == [1, 2] * landed


# --- tombstones -----------------------------------------------------------------------------------------------------------


def test_a_tombstone_is_found_as_one_by_every_later_look_of_that_epoch_and_of_no_other(world: World) -> None:
    base = world.latest
    landed = world.port().block_commit(base, KEY)
    assert isinstance(landed, Landed)

    world.append_as_stranger()
    state = world.loaded(since=base)
    assert (state.committed, state.is_tombstone, state.history_reaches_back) == (landed.commit_id, True, True)
    assert world.loaded(OTHER, since=base).committed is None
    assert world.loaded(SECOND, since=base).committed is None


def test_an_append_or_a_fence_that_was_prepared_before_a_tombstone_is_refused_after_it(world: World) -> None:
    based_on = world.latest
    assert isinstance(world.port().block_commit(based_on, KEY), Landed)
    world.append_as_stranger()

    assert isinstance(world.append(based_on, 1), Refused)
    assert isinstance(world.port().fence(based_on), Refused)
    assert isinstance(world.port().block_commit(based_on, KEY), Refused)
    if isinstance(world, RealWorld):
        assert world.ids() == [1_000_000]


def test_an_append_that_is_based_on_a_fence_is_refused_after_a_tombstone(world: World) -> None:
    fence = world.port().fence(world.latest)
    assert isinstance(fence, Landed)
    assert isinstance(world.port().block_commit(fence.commit_id, KEY), Landed)

    assert isinstance(world.append(fence.commit_id, 1), Refused)


def test_a_tombstone_that_was_prepared_before_the_commit_landed_is_refused(world: World) -> None:
    base = world.latest
    landed = world.append(base, 1)
    assert isinstance(landed, Landed)

    assert isinstance(world.port().block_commit(base, KEY), Refused)
    state = world.loaded(since=base)
    assert (state.committed, state.is_tombstone) == (landed.commit_id, False)


def test_a_real_commit_goes_before_a_tombstone_that_is_newer(world: World) -> None:
    base = world.latest
    landed = world.append(base, 1)
    assert isinstance(landed, Landed)
    assert isinstance(world.port().block_commit(landed.commit_id, KEY), Landed)

    state = world.loaded(since=base)
    assert (state.committed, state.is_tombstone) == (landed.commit_id, False)


def claimed_ledger(state: LanceState) -> Ledger:
    ledger = ledger_over(MemoryStore())
    base = LanceBase(identity=state.identity or "", at_version=state.at_version)
    ledger.commits.put_claim(ClaimRecord(token=new_token(), index=0, base=base))
    return ledger


def test_the_protocol_buries_a_claimed_epoch_once_and_readers_see_no_change(world: World) -> None:
    world.append_as_stranger()
    base = world.loaded()
    files, ledger = world.stage(1), claimed_ledger(base)

    for _ in range(2):
        assert lance_protocol.block_commit(world.port(), ledger, lambda _: None) == CommitBlocked(base.identity)

    assert world.latest == base.at_version + 1
    assert isinstance(world.port().append(base.at_version, KEY, appended(files)), Refused)
    if isinstance(world, RealWorld):
        assert world.ids() == [1_000_000]
        target = world.target()
        assert world.port().find_incompatibility(world.loaded(), [target], appended(files)) is None
        assert world.port().find_schema_change(world.latest, [target]) is None
        properties = world.place.dataset().read_transaction(world.latest).transaction_properties
        assert properties["checkpointed-write.key"] == str(KEY)
        assert properties["checkpointed-write.tombstone"] == "true"


def test_the_protocol_finds_a_commit_that_has_landed_and_does_not_bury_it(world: World) -> None:
    base = world.loaded()
    landed = world.append(base.at_version, 1, 2)
    assert isinstance(landed, Landed)
    world.append_as_stranger()
    before = world.latest

    outcome = lance_protocol.block_commit(world.port(), claimed_ledger(base), lambda _: None)

    assert outcome == Committed(base.identity or "", landed.commit_id, by_us=False)
    assert world.latest == before
    if isinstance(world, RealWorld):
        assert world.ids() == [1, 2, 1_000_000]


def test_a_strangers_append_lands_after_a_tombstone_and_another_writes_commit_too(world: World) -> None:
    world.port().block_commit(world.latest, KEY)
    world.append_as_stranger()

    assert isinstance(world.append(world.latest, 2, key=OTHER), Landed)
    if isinstance(world, RealWorld):
        assert world.ids() == [2, 1_000_000]


class Unchecked(PylanceTable):
    """Asks Lance for whatever is staged, so that only Lance finds what is wrong with it."""

    def find_incompatibility(self, state: LanceState, targets: Sequence[LanceTarget], change: Change) -> None:
        return None


@pytest.mark.parametrize("is_claimed", [False, True], ids=["the first committer", "a later committer"])
@pytest.mark.parametrize("operation", [Append(), OverwriteAll(base=None)], ids=["append", "overwrite"])
def test_a_commit_that_lance_never_takes_is_refused_by_name_and_not_tried_again(
    real: RealWorld, operation: Append | OverwriteAll, is_claimed: bool
) -> None:
    files = tuple(changed(fragment, major_version=9) for fragment in real.stage(1))
    change = StagedChange(operation, files)
    results = Results(change, (real.target(),), rows_read=1, rows_written=1, attempts=1, code_digests=())
    ledger = claimed_ledger(real.loaded()) if is_claimed else ledger_over(MemoryStore())
    pauses: list[float] = []
    before = real.latest

    outcome = lance_protocol.commit(Unchecked(real.place.uri, real.place.settings), ledger, results, pauses.append)

    assert isinstance(outcome, Rejected), outcome
    assert outcome.reason == reasons.STAGED_RESULT_REFUSED
    assert "Lance does not take the commit into the dataset" in outcome.message
    assert "Unknown Lance storage version: 9" in outcome.message
    assert pauses == []
    # Whoever comes after a claim does not know what the one before has sent, and fences it once.
    assert real.latest == before + (is_claimed and operation == Append())
    assert real.ids() == []


def test_a_schema_that_lance_never_takes_is_refused_by_name(real: RealWorld) -> None:
    twice = pa.schema([("id", pa.int64()), ("id", pa.int64())])

    with pytest.raises(NeedsChange, match='Duplicate field name "id"') as refused:
        real.port()._request(real.latest, lance.LanceOperation.Overwrite(twice, []), {})

    assert refused.value.reason == reasons.STAGED_RESULT_REFUSED


def test_a_dataset_that_a_later_lance_has_written_is_refused_by_name(tmp_path: Path) -> None:
    """Lance writes which of its features a writer has to know: here one that no Lance knows yet."""
    uri = tmp_path / "rows.lance"
    dataset = lance.write_dataset(SCHEMA.empty_table(), uri, enable_stable_row_ids=True)
    fragments = lance.fragment.write_fragments(rows_of([1]), uri)
    (manifest,) = (uri / "_versions").glob("*.manifest")
    features, and_another = b"\x48\x02\x50\x02", b"\x48\x02\x50\x40"
    written = manifest.read_bytes()
    assert written.count(features) == 1
    manifest.write_bytes(written.replace(features, and_another))

    with pytest.raises(NeedsChange, match="cannot be written by this version of Lance") as refused:
        PylanceTable(str(uri), Settings())._request(dataset.version, lance.LanceOperation.Append(fragments), {})

    assert refused.value.reason == reasons.STAGED_RESULT_REFUSED


def test_no_dataset_has_nothing_to_bury(bare: RealWorld) -> None:
    ledger = claimed_ledger(LanceState(TOKEN, 3, None, True))

    assert lance_protocol.block_commit(bare.port(), ledger, lambda _: None) == CommitBlocked(None)


def test_data_files_of_a_deleted_write_are_left_to_lances_own_cleaner(real: RealWorld) -> None:
    files = real.stage(1)

    assert real.port().discard(KEY, [real.target()], files) == 0
    assert isinstance(real.port().append(real.latest, KEY, appended(files)), Landed)
    assert real.ids() == [1]


# --- looks ----------------------------------------------------------------------------------------------------------------


def test_no_dataset_is_none(bare: RealWorld) -> None:
    assert bare.port().latest_version() is None
    assert bare.port().load(KEY, 0) is None
    assert bare.port().describe() is None


def test_a_dataset_without_a_commit_of_ours_has_none(world: World) -> None:
    base = world.latest
    world.append_as_stranger()

    state = world.loaded(since=base)
    assert (state.at_version, state.committed, state.history_reaches_back) == (base + 1, None, True)


def test_a_commit_is_found_at_its_version_by_every_later_look(world: World) -> None:
    base = world.latest
    landed = world.append(base, 1)
    assert isinstance(landed, Landed)
    for _ in range(3):
        world.append_as_stranger()

    state = world.loaded(since=base)
    assert state.committed == landed.commit_id
    assert state.at_version == landed.commit_id + 3
    assert state.history_reaches_back


def test_a_look_sees_only_the_versions_after_since_and_up_to_its_end(world: World) -> None:
    base = world.latest
    world.append_as_stranger()
    landed = world.append(world.latest, 1)
    assert isinstance(landed, Landed)
    world.append_as_stranger()

    assert world.loaded(since=base, up_to=landed.commit_id - 1).committed is None
    assert world.loaded(since=base, up_to=landed.commit_id).committed == landed.commit_id
    assert world.loaded(since=base, up_to=landed.commit_id).at_version == landed.commit_id
    assert world.loaded(since=landed.commit_id).committed is None


def test_another_writes_key_and_a_later_epoch_are_not_found(world: World) -> None:
    base = world.latest
    world.append(base, 1)

    assert world.loaded(OTHER, since=base).committed is None
    assert world.loaded(SECOND, since=base).committed is None
    assert isinstance(world.append(world.latest, 2, key=SECOND), Landed)
    assert world.loaded(SECOND, since=base).committed == base + 2
    assert world.loaded(since=base).committed == base + 1


def test_versions_that_were_cleaned_up_after_the_base_are_no_knowledge(world: World) -> None:
    base = world.latest
    for _ in range(3):
        world.append_as_stranger()
    world.clean_all_but_the_latest()

    assert not world.loaded(since=base).history_reaches_back
    assert world.loaded(since=world.latest).history_reaches_back
    assert world.loaded(since=world.latest - 1).history_reaches_back, "the latest version is never cleaned up"


def test_a_staged_file_is_referenced_after_the_append_and_not_before(world: World) -> None:
    files = world.stage(1)
    assert not world.port().references_any(world.loaded(), appended(files))
    before = world.latest
    world.port().append(before, KEY, appended(files))
    world.append_as_stranger()

    assert world.port().references_any(world.loaded(), appended(files))
    assert not world.port().references_any(world.loaded(), appended(world.stage(2)))
    assert not world.port().references_any(world.loaded(up_to=before), appended(files))


# --- describing and making ------------------------------------------------------------------------------------------------


def test_a_dataset_gets_an_identity_at_first_touch_and_keeps_it(bare: RealWorld) -> None:
    bare.place.create(SCHEMA)
    first = bare.target()
    bare.append_as_stranger()
    second = bare.target()

    assert first.identity == second.identity
    assert second.at_version == first.at_version + 1
    assert bare.loaded().identity == first.identity


def test_of_many_that_touch_a_dataset_first_all_see_one_identity(bare: RealWorld) -> None:
    bare.place.create(SCHEMA)
    with ThreadPoolExecutor(4) as describers:
        identities = set(describers.map(lambda _: bare.target().identity, range(8)))

    assert len(identities) == 1


def test_a_dataset_is_made_once_and_found_by_whoever_comes_later(bare: RealWorld) -> None:
    sink = Sink(lance=LanceSink(uri=bare.place.uri), create=True)
    first = bare.port().create(encode_schema(SCHEMA), sink)
    bare.append(bare.latest, 1)
    second = bare.port().create(encode_schema(SCHEMA), sink)

    assert second.identity == first.identity
    assert bare.ids() == [1]


def test_a_dataset_that_cannot_be_made_of_the_output_says_why(bare: RealWorld) -> None:
    sink = Sink(lance=LanceSink(uri=bare.place.uri), create=True)
    unsupported = pa.schema([("x", pa.month_day_nano_interval())])

    with pytest.raises(NeedsChange) as caught:
        bare.port().create(encode_schema(unsupported), sink)
    assert caught.value.reason == reasons.OUTPUT_SCHEMA_WRONG
    assert bare.port().describe() is None


# --- incompatibilities --------------------------------------------------------------------------------------------------


def incompatibility(world: RealWorld, target: LanceTarget, *files: LanceFragment) -> Rejected:
    found = world.port().find_incompatibility(world.loaded(), [target], appended(files))
    assert isinstance(found, Rejected), found
    return found


def test_staged_fragments_fit_the_dataset_that_they_were_staged_for(world: World) -> None:
    if isinstance(world, SimulatedWorld):
        return  # its sizes are its own
    targets = [world.target()] if isinstance(world, RealWorld) else []

    assert world.port().find_incompatibility(world.loaded(), targets, appended(world.stage(1))) is None


def test_what_is_staged_for_a_dataset_of_the_first_storage_version_is_packed_by_its_seals(bare: RealWorld) -> None:
    """Its data files have no footer that tells rows."""
    world, options = bare, lance_options(bare.place.uri, bare.place.settings)
    lance.write_dataset(SCHEMA.empty_table(), world.place.uri, schema=SCHEMA, data_storage_version="0.1", storage_options=options)
    files, port = world.stage(1, 2), world.port()
    footers = Footers("Footers", port.count_rows, lambda below: 0)

    change = port.pack(Append(), KEY, [world.target()], files, footers)

    assert port.find_incompatibility(world.loaded(), [world.target()], change) is None
    assert isinstance(port.append(world.latest, KEY, change), Landed)
    assert world.ids() == [1, 2]


def changed(fragment: LanceFragment, rows: int | None = None, **fields: Any) -> LanceFragment:
    (data_file,) = fragment.files
    return fragment.model_copy(
        update={
            "files": (data_file.model_validate({**data_file.model_dump(), **fields}),),
            "rows": fragment.rows if rows is None else rows,
        }
    )


def renamed(form: str) -> Callable[[LanceFragment], LanceFragment]:
    return lambda fragment: changed(fragment, path=form.format(fragment.files[0].path))


HOSTILE: dict[str, Callable[[LanceFragment], LanceFragment]] = {
    "another folder": renamed("../data/{}"),
    "another dataset": renamed("../../other.lance/data/{}"),
    "a folder below": renamed("deeper/{}"),
    "an absolute path": renamed("/tmp/{}"),
    "another store": renamed("s3://another-bucket/{}"),
    "two dots": renamed(".."),
    "dots at the beginning": renamed(".{}"),
    "no data file": renamed("{}.txt"),
    "a manifest": renamed("../_versions/1.manifest"),
    "an empty name": renamed(""),
    "a backslash": renamed("a\\{}"),
    "a line break": renamed("{}\n"),
    "percent signs": renamed("%2e%2e%2f{}"),
    "a field that staging did not know": lambda fragment: changed(fragment, fields=(0, 1, 99), column_indices=(0, 1, 2)),
    "a field that is none": lambda fragment: changed(fragment, fields=(0, -2)),
}


@pytest.mark.parametrize("lie", HOSTILE)
def test_a_seal_that_names_what_it_must_not_name_is_refused(real: RealWorld, lie: str) -> None:
    (honest,) = real.stage(1)

    assert incompatibility(real, real.target(), honest, HOSTILE[lie](honest)).reason == reasons.STAGED_RESULT_REFUSED


def test_a_fragment_without_a_data_file_is_refused(real: RealWorld) -> None:
    assert incompatibility(real, real.target(), LanceFragment(files=(), rows=5)).reason == reasons.STAGED_RESULT_REFUSED


def test_a_fragment_that_is_in_the_dataset_already_is_refused(real: RealWorld) -> None:
    """Of a stranger, or of another write."""
    theirs = real.stage(1)
    real.port().append(real.latest, OTHER, appended(theirs))

    assert incompatibility(real, real.target(), *theirs).reason == reasons.STAGED_RESULT_REFUSED


def test_a_staged_file_that_is_gone_or_has_another_size_is_named(real: RealWorld) -> None:
    (honest,) = real.stage(1)
    size_bytes = honest.files[0].size_bytes
    for lie in (renamed("gone-{}")(honest), changed(honest, size_bytes=size_bytes + 1)):
        missing = incompatibility(real, real.target(), lie)
        assert missing.reason == reasons.STAGED_FILE_MISSING
        assert lie.files[0].path in missing.message


def test_a_store_that_is_gone_while_a_staged_file_is_looked_at_is_worth_another_try(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Lance asks another endpoint than we do, and nobody listens there."""
    world = make_world("s3", tmp_path, request)
    assert isinstance(world, RealWorld)
    world.place.create(SCHEMA)
    (staged,) = world.stage(1)
    (entry,) = world.place.settings.storage
    nobody = StorageSettings(storage=(entry.model_copy(update={"endpoint": "http://127.0.0.1:1"}),))
    footers = LanceFooters(world.place.uri, nobody, Tails(world.place.settings))

    with pytest.raises(Retryable, match=r"could not be read: .*http://127\.0\.0\.1:1/") as caught:
        footers.count_rows(staged.files[0].path, staged.files[0].fields)

    assert caught.value.reason == reasons.STORE_UNAVAILABLE


def test_a_dataset_that_was_made_again_is_replaced_although_all_else_fits(real: RealWorld) -> None:
    target = real.target()
    files = real.stage(1)
    state = real.loaded()
    other = state.__class__("f" * 32, state.at_version, None, True)

    found = real.port().find_incompatibility(other, [target], appended(files))
    assert isinstance(found, Rejected)
    assert found.reason == reasons.TABLE_REPLACED


@pytest.mark.parametrize("replaced", [0, 1])
def test_a_dataset_that_one_of_several_attempts_staged_for_is_replaced_whichever_that_is(real: RealWorld, replaced: int) -> None:
    targets = [real.target(), real.target()]
    targets[replaced] = targets[replaced].model_copy(update={"identity": "f" * 32})

    found = real.port().find_incompatibility(real.loaded(), targets, appended(real.stage(1)))

    assert isinstance(found, Rejected)
    assert found.reason == reasons.TABLE_REPLACED


def add_column(world: RealWorld) -> None:
    world.place.dataset().add_columns(pa.schema([("more", pa.string())]))


def drop_column(world: RealWorld) -> None:
    world.place.dataset().drop_columns(["text"])


def drop_and_add_again(world: RealWorld) -> None:
    drop_column(world)
    world.place.dataset().add_columns(pa.schema([("text", pa.string())]))


def drop_add_and_append(world: RealWorld) -> None:
    drop_and_add_again(world)
    world.append_as_stranger()


def retype(world: RealWorld) -> None:
    world.place.dataset().alter_columns({"path": "id", "data_type": pa.int32()})


def rename(world: RealWorld) -> None:
    world.place.dataset().alter_columns({"path": "text", "name": "words"})


CHANGES: dict[str, tuple[Callable[[RealWorld], None], str | None]] = {
    "a column was added": (add_column, None),
    "a column was renamed": (rename, None),
    "a column was dropped": (drop_column, "'text'"),
    "a column was dropped and made again": (drop_and_add_again, "'text'"),
    "a column was dropped and made again, and rows came": (drop_add_and_append, "'text'"),
    "a column was retyped": (retype, "'id'"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_in_the_moment_of_the_append_shows_at_the_version_that_it_made(real: RealWorld, change: str) -> None:
    """Where Lance lets the append land at all: it refuses it after some of these changes."""
    real.append_as_stranger()
    target, files, before = real.target(), real.stage(1), real.latest
    alter, column = CHANGES[change]
    alter(real)

    landed = real.port().append(before, KEY, appended(files))

    if isinstance(landed, Landed):
        found = real.port().find_schema_change(landed.commit_id, [target])
        assert (found is None) == (column is None)
        assert column is None or (found is not None and column in found)


@pytest.mark.parametrize("change", CHANGES)
def test_what_staged_fragments_fit_after_a_change_of_the_dataset(real: RealWorld, change: str) -> None:
    """Lance itself takes all of these, and reads NULL for what does not fit."""
    real.append_as_stranger()
    target, files = real.target(), real.stage(1)
    alter, column = CHANGES[change]
    alter(real)

    found = real.port().find_incompatibility(real.loaded(), [target], appended(files))

    if column is None:
        assert found is None
        assert isinstance(real.port().append(real.latest, KEY, appended(files)), Landed)
        assert real.ids() == [1, 1_000_000]
    else:
        assert isinstance(found, Rejected)
        assert found.reason == reasons.SCHEMA_CHANGED
        assert column in found.message


def test_a_dataset_that_vanished_between_look_and_incompatibility_is_looked_at_again_and_not_committed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    world = make_world("disk", tmp_path, request)
    assert isinstance(world, RealWorld)
    world.place.create(SCHEMA)
    target, files, state = world.target(), world.stage(1), world.loaded()
    shutil.rmtree(world.place.uri)

    with pytest.raises(Retryable):
        world.port().find_incompatibility(state, [target], appended(files))
    assert world.port().load(KEY, 1) is None


# --- real datasets: what readers see --------------------------------------------------------------------------------------


def test_rows_of_strangers_and_ours_are_all_there(real: RealWorld) -> None:
    real.append_as_stranger()
    assert isinstance(real.append(real.latest, *range(50)), Landed)
    real.append_as_stranger()

    assert real.ids() == [*range(50), 1_000_000, 1_000_000]
    assert {row["text"] for row in real.place.rows() if row["id"] < 50} == {f"zeile {number}" for number in range(50)}
    assert real.place.keys() == [str(KEY)]


def test_a_column_that_was_added_after_staging_reads_as_null(real: RealWorld) -> None:
    files = real.stage(1)
    add_column(real)
    assert isinstance(real.port().append(real.latest, KEY, appended(files)), Landed)

    assert real.place.rows() == [{"id": 1, "text": "zeile 1", "more": None}]


def test_a_dataset_in_a_bucket_below_an_awkward_name_takes_our_files(s3_server: S3Server, tmp_path: Path) -> None:
    """But for %, which Lance takes for the beginning of %20 and the like, and which the manifest refuses."""
    name = "größe & maß+"
    place = on_s3(tmp_path, "lance", s3_server)
    world = RealWorld(LancePlace(tmp_path, place.settings, place.checkpoint_uri, f"{place.base_uri}/{name}"))
    world.place.create(SCHEMA)
    target, files = world.target(), world.stage(1, 2)

    assert world.port().find_incompatibility(world.loaded(), [target], appended(files)) is None
    assert isinstance(world.port().append(world.latest, KEY, appended(files)), Landed)
    assert world.ids() == [1, 2]


# --- the rule that all of this rests on ------------------------------------------------------------------------------------


def test_the_installed_lance_keeps_the_rules_and_says_nothing_of_the_trials() -> None:
    trials = (
        "from checkpoint_commit.lance import probe\n"
        "probe.refuse_lance_without_fences()\n"
        "probe.refuse_lance_that_replaces_twice()\n"
    )

    done = subprocess.run([sys.executable, "-c", trials], capture_output=True, text=True, timeout=patience(120), check=False)

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_lance_in_which_a_fence_stops_nothing_is_refused() -> None:
    def harmless(dataset: Any) -> Any:
        return lance.LanceOperation.UpdateConfig()

    with pytest.raises(NeedsChange) as refused:
        refuse_lance_without_fences(harmless)
    assert refused.value.reason == reasons.STORE_UNSAFE
    assert lance.__version__ in refused.value.message


def test_a_lance_in_which_an_overwrite_lands_on_what_it_has_not_seen_is_refused() -> None:
    with pytest.raises(NeedsChange, match="an overwrite without retries land") as refused:
        refuse_lance_without_fences(retries=5)
    assert refused.value.reason == reasons.STORE_UNSAFE

"""The commit of upserts into Lance datasets: what Lance takes as a conflict, and what seals of merges may say."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_commit.lance import commit as protocol
from checkpoint_commit.lance.changes.upsert import LanceUpsert, Merged, MergeMissing
from checkpoint_commit.lance.table import PylanceTable
from checkpoint_commit.outcomes import CommitBlocked, CommitOutcome, Committed, Landed, Refused, Rejected, RequestOutcome
from checkpoint_commit.results import Results
from checkpoint_commit.sinks.registry import format_of
from checkpoint_formats.lance.datasets import source_file_of
from checkpoint_formats.lance.merge import LanceDeletesStager
from checkpoint_formats.lance.stager import LanceStager
from checkpoint_formats.merging.reading import DELETED_ROWS
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.records import LanceDeletes, LanceTarget, StagedFile, Upsert
from tests.support.places import LancePlace, on_disk, on_s3
from tests.support.records import DIGEST, KEY, ledger_over
from tests.support.stores import MemoryStore
from tests.support.writes import SCHEMA, rows_of

OTHER = EpochKey("fedcba9876543210", 1)
UPDATE = Upsert(keys=("id",))
OLD = [1, 2, 3, 4]


@dataclass
class World:
    """A dataset with rows of a stranger in two fragments."""

    place: LancePlace

    def port(self) -> PylanceTable:
        return PylanceTable(self.place.uri, self.place.settings)

    def target(self) -> LanceTarget:
        target = self.port().describe()
        assert target is not None
        return target

    def change(self, *numbers: int, port: PylanceTable | None = None) -> LanceUpsert:
        """Return an upsert of these rows, not merged yet."""
        stager = LanceStager(self.target(), 1 << 20, self.place.settings.for_drivers())
        files: tuple[StagedFile, ...] = tuple(stager.stage(iter(rows_of(numbers).to_batches())))
        change = (port or self.port()).pack(UPDATE, KEY, [self.target()], files)
        assert isinstance(change, LanceUpsert)
        return change

    def merged(self, *numbers: int) -> Merged:
        """Return what a merge with these keys finds in the dataset as it is now."""
        merged = Merged()
        merged.add(*self.found(*numbers))
        return merged

    def found(self, *numbers: int) -> tuple[list[Any], list[LanceDeletes]]:
        fragments = self.place.dataset().get_fragments()
        read = [source_file_of(self.place.uri, fragment) for fragment in fragments]
        rows: list[tuple[str, int]] = []
        for fragment, file in zip(fragments, read, strict=True):
            there = fragment.scanner(columns=["id"], with_row_address=True).to_table().to_pylist()
            rows += [(file.path, row["_rowaddr"] & 0xFFFF_FFFF) for row in there if row["id"] in numbers]
        return read, list(self.stage_deletes(rows))

    def stage_deletes(self, rows: Sequence[tuple[str, int]]) -> tuple[LanceDeletes, ...]:
        batch = pa.record_batch([[path for path, _ in rows], [row for _, row in rows]], schema=DELETED_ROWS)
        return LanceDeletesStager(self.target(), self.place.settings.for_drivers()).stage(iter([batch]))

    def commit(self, change: LanceUpsert, ledger: Ledger | None = None, port: PylanceTable | None = None) -> CommitOutcome:
        results = Results(change, (self.target(),), rows_read=0, rows_written=0, attempts=1, code_digests=(DIGEST,))
        return protocol.commit(port or self.port(), ledger or ledger_over(MemoryStore()), results, lambda _: None)

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.place.rows())


def made(place: Any) -> World:
    assert isinstance(place, LancePlace)
    place.create(SCHEMA)
    place.append(rows_of(OLD[:2]))
    place.append(rows_of(OLD[2:]))
    world = World(place)
    world.target()
    return world


@pytest.fixture(params=["disk", "s3"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    is_on_disk = request.param == "disk"
    return made(on_disk(tmp_path, "lance") if is_on_disk else on_s3(tmp_path, "lance", request.getfixturevalue("s3_server")))


@pytest.fixture
def on_this_disk(tmp_path: Path) -> World:
    return made(on_disk(tmp_path, "lance"))


# --- what Lance takes as a conflict, and the fence --------------------------------------------------------------------------


def test_an_upsert_of_new_keys_only_lands_twice_without_a_fence_and_not_after_one(world: World) -> None:
    change, port = world.change(7), world.port()
    change.merged = world.merged(7)
    based_on = world.place.dataset().version

    assert isinstance(port.update(based_on, KEY, change), Landed)
    assert isinstance(port.update(based_on, KEY, change), Landed)
    assert world.ids() == [*OLD, 7, 7]

    assert isinstance(port.fence(world.place.dataset().version), Landed)
    assert isinstance(port.update(based_on, KEY, change), Refused)
    assert world.ids() == [*OLD, 7, 7]


def test_the_first_committer_fences_too_and_an_upsert_that_looked_before_is_refused(world: World) -> None:
    """Of two upserts with one new key: Lance itself would let both land."""
    theirs, based_on = world.change(7), world.place.dataset().version
    theirs.merged = world.merged(7)
    ours = world.change(7)
    ours.merged = world.merged(7)

    assert isinstance(outcome := world.commit(ours), Committed)

    assert outcome.commit_id == based_on + 2
    assert isinstance(world.port().update(based_on, OTHER, theirs), Refused)
    with pytest.raises(MergeMissing):
        world.commit(theirs, ledger_over(MemoryStore(), key=OTHER))
    assert world.ids() == [*OLD, 7]


class Meanwhile(PylanceTable):
    """The dataset as a committer has it while others do something between its last look and its request."""

    def __init__(self, place: LancePlace, does: Any) -> None:
        super().__init__(place.uri, place.settings)
        self.does: Any = does

    def update(self, read_version: int, key: EpochKey, change: Any) -> RequestOutcome:
        does, self.does = self.does, None
        if does is not None:
            does()
        return super().update(read_version, key, change)


def test_rows_that_are_appended_between_the_look_and_the_commit_stay_as_if_they_had_come_after_it(world: World) -> None:
    change = world.change(2, 7)
    change.merged = world.merged(2, 7)

    outcome = world.commit(change, port=Meanwhile(world.place, lambda: world.place.append(rows_of([2]))))

    assert isinstance(outcome, Committed)
    assert world.ids() == [1, 2, 2, 3, 4, 7]


@pytest.mark.parametrize("what", ["delete", "compact", "update"])
def test_what_others_do_to_the_same_fragment_between_the_look_and_the_commit_refuses_it_and_is_merged(
    world: World, what: str
) -> None:
    def strange() -> None:
        match what:
            case "delete":
                world.place.dataset().delete("id = 1")
            case "compact":
                world.place.dataset().optimize.compact_files()
            case "update":
                world.place.dataset().update({"id": "id + 10"}, where="id = 2")

    change, ledger = world.change(2, 7), ledger_over(MemoryStore())
    change.merged = world.merged(2, 7)

    with pytest.raises(MergeMissing):
        world.commit(change, ledger, Meanwhile(world.place, strange))
    left = [number for number in world.ids() if number != 2]
    change.merged = world.merged(2, 7)
    assert isinstance(world.commit(change, ledger), Committed)

    assert world.ids() == sorted([*left, 2, 7])
    assert len(world.place.keys()) == 1


def test_a_version_with_a_fragment_that_no_merge_has_read_is_not_committed_to_and_nothing_is_claimed(world: World) -> None:
    change, ledger = world.change(2), ledger_over(MemoryStore())
    with pytest.raises(MergeMissing):
        world.commit(change, ledger)
    change.merged = world.merged(2)
    world.place.append(rows_of([2]))

    with pytest.raises(MergeMissing) as caught:
        world.commit(change, ledger)

    assert caught.value.at_version == world.place.dataset().version
    assert ledger.commits.read_claim(0) is None


def test_a_commit_that_has_landed_is_found_without_any_merge(world: World) -> None:
    change, ledger = world.change(2), ledger_over(MemoryStore())
    change.merged = world.merged(2)
    assert isinstance(first := world.commit(change, ledger), Committed)
    world.place.append(rows_of([2]))

    assert world.commit(world.change(2), ledger) == replace(first, by_us=False)


def test_an_upsert_that_is_on_its_way_is_refused_after_the_tombstone_of_a_deletion(world: World) -> None:
    store = MemoryStore()
    change, ledger = world.change(7), ledger_over(store)
    change.merged = world.merged(7)

    def delete() -> None:
        writes.put_deleted(store, KEY.uid)
        assert isinstance(protocol.block_commit(world.port(), ledger_over(store), lambda _: None), CommitBlocked)

    outcome = world.commit(change, ledger, Meanwhile(world.place, delete))

    assert isinstance(outcome, Rejected)
    assert outcome.reason == reasons.WRITE_DELETED
    assert world.ids() == OLD


def test_fragments_of_which_no_row_is_left_go_and_rows_that_others_have_deleted_stay_deleted(on_this_disk: World) -> None:
    world = on_this_disk
    world.place.dataset().delete("id = 3")
    change = world.change(1, 2)
    change.merged = world.merged(1, 2)

    assert isinstance(world.commit(change), Committed)

    assert world.ids() == [1, 2, 4]
    assert len(world.place.dataset().get_fragments()) == 2


def test_rows_of_one_fragment_that_several_segments_of_a_merge_have_found_are_all_replaced(on_this_disk: World) -> None:
    world = on_this_disk
    (read, first), (_, second) = world.found(1), world.found(2)
    assert {each.source for each in (*first, *second)} == {read[0].path}
    change = world.change(1, 2)
    change.merged = Merged()
    change.merged.add(read, [*first, *second])

    assert isinstance(world.commit(change), Committed)

    assert world.ids() == OLD


# --- what seals of merges may say -------------------------------------------------------------------------------------------


def refused(world: World, deletes: Sequence[LanceDeletes], said: str, reason: str = reasons.STAGED_RESULT_REFUSED) -> None:
    change = world.change(2)
    read, _ = world.found()

    try:
        change.merged = Merged()
        change.merged.add(read, deletes)
        outcome: Any = world.commit(change)
    except NeedsChange as error:
        outcome = Rejected(error.reason, error.message)

    assert isinstance(outcome, Rejected)
    assert outcome.reason == reason
    assert said in outcome.message
    assert world.ids() == OLD
    assert world.place.keys() == []


def test_a_row_that_the_fragment_has_not_is_refused(on_this_disk: World) -> None:
    (file, *_), _ = on_this_disk.found()

    refused(on_this_disk, on_this_disk.stage_deletes([(file.path, 0), (file.path, 2)]), "names the row 2 of")


def test_rows_of_a_fragment_that_the_merge_has_not_read_are_refused(on_this_disk: World) -> None:
    deletes = on_this_disk.stage_deletes([(f"{on_this_disk.place.uri} fragment 99", 0)])

    refused(on_this_disk, deletes, "fragment 99', which the merge had not to read")


def test_a_file_that_names_other_rows_than_the_seal_says_is_refused(on_this_disk: World) -> None:
    _, (deletes,) = on_this_disk.found(2)

    refused(on_this_disk, [deletes.model_copy(update={"rows": 2})], "is not one that names 2 of 2 rows of a fragment")


def test_a_file_that_names_more_rows_than_the_fragment_has_is_not_read(on_this_disk: World) -> None:
    """What a file of a few bytes stands for may be more than the operator has memory for."""
    (file, *_), _ = on_this_disk.found()

    refused(on_this_disk, on_this_disk.stage_deletes([(file.path, 0)] * 3), "is not one that names 3 of 2 rows of a fragment")


def test_a_data_file_in_the_place_of_one_that_names_rows_is_refused(on_this_disk: World) -> None:
    _, (deletes,) = on_this_disk.found(2)
    data_file = on_this_disk.place.data_files()[0]

    refused(on_this_disk, [deletes.model_copy(update={"path": data_file, "rows": 2})], "has other columns than it was staged for")


def test_the_metadata_of_a_file_that_names_rows_are_not_read_if_there_are_more_than_such_a_file_has(on_this_disk: World) -> None:
    """Lance takes them into memory as a whole, whatever there is."""
    _, (deletes,) = on_this_disk.found(2)
    path = Path(on_this_disk.place.uri, "data", deletes.path)
    data = bytearray(path.read_bytes())
    struct.pack_into("<Q", data, len(data) - 48, 1 << 30)  # of the schema
    path.write_bytes(data)

    refused(on_this_disk, [deletes], "bytes of metadata, and 4,194,304 are read at the most")


@pytest.mark.parametrize("path", ["../data/x.lance", "/etc/x.lance", "x.parquet"])
def test_a_file_elsewhere_is_refused_before_it_is_opened(on_this_disk: World, path: str) -> None:
    _, (deletes,) = on_this_disk.found(2)

    refused(on_this_disk, [deletes.model_copy(update={"path": path})], "which the merge had not to read")


def test_a_file_that_is_gone_is_named(on_this_disk: World) -> None:
    _, (deletes,) = on_this_disk.found(2)

    refused(on_this_disk, [deletes.model_copy(update={"path": "gone.lance"})], "gone.lance is gone", reasons.STAGED_FILE_MISSING)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (pa.float64(), "'key' is double"),
        (pa.list_(pa.int64()), "'key' is list"),
        (None, "has no column 'key' (it has id)"),
    ],
)
def test_columns_by_which_rows_cannot_be_matched_are_refused_before_the_work(
    tmp_path: Path, kind: pa.DataType | None, said: str
) -> None:
    place = on_disk(tmp_path, "lance")
    assert isinstance(place, LancePlace)
    fields = [("id", pa.int64()), *([("key", kind)] if kind is not None else [])]
    place.create(pa.schema(fields))

    with pytest.raises(NeedsChange) as caught:
        World(place).port().refuse_operation(Upsert(keys=("id", "key")))

    assert caught.value.reason == reasons.MANIFEST_INVALID
    assert "spec.sink.upsertKeys.1" in caught.value.message
    assert said in caught.value.message
    sink = Sink.model_validate_json(
        json.dumps({"lance": {"uri": place.uri}, "mode": "Upsert", "upsertKeys": ["id", "key"], "create": True})
    )
    ((_, problem),) = format_of(sink).examine(place.settings).problems
    assert str(problem) == str(caught.value), "validate says the same"
    with pytest.raises(NeedsChange, match=re.escape("spec.sink.upsertKeys.1")):
        format_of(sink).check_schema(pa.schema(fields))

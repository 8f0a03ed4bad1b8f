"""The adapters of both formats on real tables on disk: what a commit must ask of a table, and what it must notice.

The whole contract, on all catalogs and stores, is in `tests/contract`; here is what must not break unnoticed.
"""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import lance
import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType
from sqlalchemy import text

from checkpoint_commit.changes import StagedChange
from checkpoint_commit.iceberg.commit import IcebergState
from checkpoint_commit.iceberg.table import PyicebergTable
from checkpoint_commit.lance.port import LanceState
from checkpoint_commit.lance.table import PylanceTable
from checkpoint_commit.outcomes import Landed, Refused, Rejected
from checkpoint_formats.stagers import stager_for
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import Append, IcebergFile, IcebergTarget, LanceFragment, LanceTarget, Part, StagedFile
from tests.support.places import IcebergPlace, LancePlace, on_disk
from tests.support.records import KEY, appended
from tests.support.waiting import patience

ROWS = pa.table({"id": [1], "text": ["a"]})
_PartT = TypeVar("_PartT", bound=Part)
SECOND = EpochKey(KEY.uid, 2)


@dataclass
class Iceberg:
    """A table with rows of a stranger."""

    place: IcebergPlace

    def port(self) -> PyicebergTable:
        return PyicebergTable(self.place.catalog, self.place.name, self.place.settings)

    def loaded(self, key: EpochKey = KEY) -> tuple[PyicebergTable, IcebergState]:
        port = self.port()
        state = port.load(key)
        assert state is not None
        return port, state

    def target(self) -> IcebergTarget:
        target = self.port().describe()
        assert target is not None
        return target

    def stage(self) -> tuple[IcebergFile, ...]:
        return tuple(file for file in staged(self.target(), self.place) if isinstance(file, IcebergFile))


@dataclass
class Lance:
    place: LancePlace

    def port(self) -> PylanceTable:
        return PylanceTable(self.place.uri, self.place.settings)

    def loaded(self, since: int = 1) -> tuple[PylanceTable, LanceState]:
        port = self.port()
        state = port.load(KEY, since)
        assert state is not None
        return port, state

    def target(self) -> LanceTarget:
        target = self.port().describe()
        assert target is not None
        return target

    def stage(self) -> tuple[LanceFragment, ...]:
        return tuple(file for file in staged(self.target(), self.place) if isinstance(file, LanceFragment))


def changed(part: _PartT, **fields: Any) -> _PartT:
    return part.model_copy(update=fields)


def staged(target: IcebergTarget | LanceTarget, place: IcebergPlace | LancePlace) -> tuple[StagedFile, ...]:
    stager = stager_for(Append(), target, KEY, "1-0", 1 << 20, place.settings.for_drivers())
    assert stager.arrow_schema is not None
    return tuple(stager.stage(iter(ROWS.cast(stager.arrow_schema).to_batches())))


@pytest.fixture
def iceberg(tmp_path: Path) -> Iceberg:
    place = on_disk(tmp_path, "iceberg")
    assert isinstance(place, IcebergPlace)
    place.create(ROWS.schema)
    place.append(ROWS)
    return Iceberg(place)


@pytest.fixture
def dataset(tmp_path: Path) -> Lance:
    place = on_disk(tmp_path, "lance")
    assert isinstance(place, LancePlace)
    place.create(ROWS.schema)
    place.append(ROWS)
    made = Lance(place)
    made.target()  # the first touch makes a version
    return made


# --- Iceberg: a swap is compared with all that was looked at ----------------------------------------------------------------


def another_head(iceberg: Iceberg) -> None:
    iceberg.place.append(ROWS)


def another_schema(iceberg: Iceberg) -> None:
    with iceberg.place.table().update_schema() as update:
        update.add_column("more", StringType())


def another_spec(iceberg: Iceberg) -> None:
    with iceberg.place.table().update_spec() as update:
        update.add_identity("text")


def another_table_with_the_same_head(iceberg: Iceberg) -> None:
    """As a catalog that was restored from elsewhere shows it: only the uuid tells."""
    rewrite_metadata(iceberg, str(iceberg.place.table().metadata.table_uuid), str(uuid.uuid4()))


def rewrite_metadata(iceberg: Iceberg, old: str, new: str) -> None:
    """As another program may have written it."""
    catalog: Any = iceberg.place.opened()
    metadata = Path(iceberg.place.table().metadata_location.removeprefix("file://"))
    before = metadata.read_text()
    assert old in before
    other = metadata.with_name(f"99999-{metadata.name}")
    other.write_text(before.replace(old, new))
    with catalog.engine.begin() as connection:
        connection.execute(text("UPDATE iceberg_tables SET metadata_location = :at"), {"at": f"file://{other}"})


@pytest.mark.parametrize("change", [another_head, another_schema, another_spec, another_table_with_the_same_head])
def test_a_swap_from_a_look_that_is_not_the_table_any_more_is_refused(
    change: Callable[[Iceberg], None], iceberg: Iceberg
) -> None:
    files = iceberg.stage()
    port, state = iceberg.loaded()
    change(iceberg)

    assert isinstance(port.swap(state, KEY, appended(files)), Refused)
    assert iceberg.loaded()[1].committed is None


def test_the_key_and_a_tombstone_are_found_in_the_properties_after_their_snapshots_have_expired(iceberg: Iceberg) -> None:
    port, state = iceberg.loaded()
    assert isinstance(port.swap(state, KEY, appended(iceberg.stage())), Landed)
    port, state = iceberg.loaded(SECOND)
    assert isinstance(port.block_commit(state, SECOND), Landed)
    iceberg.place.append(ROWS)
    table = iceberg.place.table()
    old = [snapshot.snapshot_id for snapshot in table.snapshots() if snapshot.snapshot_id != table.metadata.current_snapshot_id]
    table.maintenance.expire_snapshots().by_ids(old).commit()

    first, second = iceberg.loaded()[1], iceberg.loaded(SECOND)[1]

    assert (first.committed, first.is_tombstone, first.is_current) == (KEY.snapshot_id, False, True)
    assert (second.committed, second.is_tombstone) == (SECOND.snapshot_id, True)
    assert iceberg.loaded(EpochKey(KEY.uid, 3))[1].committed is None


def test_a_commit_that_was_rolled_back_is_found_and_is_not_current(iceberg: Iceberg) -> None:
    port, state = iceberg.loaded()
    assert isinstance(port.swap(state, KEY, appended(iceberg.stage())), Landed)
    assert state.head is not None
    iceberg.place.table().manage_snapshots().set_current_snapshot(state.head).commit()

    found = iceberg.loaded()[1]

    assert (found.committed, found.is_current) == (KEY.snapshot_id, False)


def test_a_total_that_is_no_number_in_the_parents_summary_is_left_out_and_the_commit_lands(iceberg: Iceberg) -> None:
    rewrite_metadata(iceberg, '"total-records":"1"', '"total-records":"many"')
    port, state = iceberg.loaded()

    assert isinstance(port.swap(state, KEY, appended(iceberg.stage())), Landed)

    made = iceberg.place.table().metadata.current_snapshot()
    assert made is not None
    assert made.summary is not None
    assert "total-records" not in made.summary.additional_properties
    assert made.summary.additional_properties["total-data-files"] == "2"


# --- staged files, and tables that changed between attempts -------------------------------------------------------------------


@pytest.mark.parametrize("lie", ["gone", "longer"])
def test_a_staged_iceberg_file_that_is_gone_or_has_another_size_is_refused(lie: str, iceberg: Iceberg) -> None:
    (honest,) = iceberg.stage()
    false = changed(honest, path=f"{honest.path[:-8]}-gone.parquet", size_bytes=honest.size_bytes)
    if lie == "longer":
        false = changed(honest, size_bytes=honest.size_bytes + 1)
    port, state = iceberg.loaded()

    incompatibility = port.find_incompatibility(state, [iceberg.target()], appended([false]))

    assert isinstance(incompatibility, Rejected)
    assert incompatibility.reason == reasons.STAGED_FILE_MISSING
    assert port.find_incompatibility(state, [iceberg.target()], appended([honest])) is None


@pytest.mark.parametrize("lie", ["gone", "longer"])
def test_a_staged_lance_file_that_is_gone_or_has_another_size_is_refused(lie: str, dataset: Lance) -> None:
    (fragment,) = dataset.stage()
    (honest,) = fragment.files
    false = changed(honest, path=f"x{honest.path}") if lie == "gone" else changed(honest, size_bytes=honest.size_bytes + 1)
    port, state = dataset.loaded()

    incompatibility = port.find_incompatibility(state, [dataset.target()], appended([changed(fragment, files=(false,))]))

    assert isinstance(incompatibility, Rejected)
    assert incompatibility.reason == reasons.STAGED_FILE_MISSING
    assert port.find_incompatibility(state, [dataset.target()], appended([fragment])) is None


def test_an_iceberg_file_that_seals_name_twice_is_refused(iceberg: Iceberg) -> None:
    """Readers would read it twice."""
    target, files = iceberg.target(), iceberg.stage()
    port, state = iceberg.loaded()

    once, twice = (port.pack(Append(), KEY, [target], named) for named in (files, [*files, *files]))

    assert port.find_incompatibility(state, [target], once) is None
    refuses_twice(port.find_incompatibility(state, [target], twice))


def test_a_lance_file_that_seals_name_twice_is_refused(dataset: Lance) -> None:
    target, files = dataset.target(), dataset.stage()
    port, state = dataset.loaded()

    once, twice = (port.pack(Append(), KEY, [target], named) for named in (files, [*files, *files]))

    assert port.find_incompatibility(state, [target], once) is None
    refuses_twice(port.find_incompatibility(state, [target], twice))


def refuses_twice(incompatibility: Rejected | None) -> None:
    assert incompatibility is not None
    assert incompatibility.reason == reasons.STAGED_RESULT_REFUSED
    assert "twice" in incompatibility.message


def made_again_in_iceberg(iceberg: Iceberg) -> None:
    with iceberg.place.table().update_schema() as update:
        update.delete_column("text")
    with iceberg.place.table().update_schema() as update:
        update.add_column("text", StringType())


def promoted_in_iceberg(iceberg: Iceberg) -> None:
    with iceberg.place.table().update_schema() as update:
        update.add_column("more", LongType())


def test_a_column_that_was_made_again_between_two_attempts_is_seen_by_the_targets_of_the_first(iceberg: Iceberg) -> None:
    """The files of the first attempt would read NULL there; the second attempt knows nothing of it."""
    first, files = iceberg.target(), iceberg.stage()
    made_again_in_iceberg(iceberg)
    second = iceberg.target()
    files += iceberg.stage()
    port, state = iceberg.loaded()

    for targets in ([first, second], [second, first]):
        incompatibility = port.find_incompatibility(state, targets, appended(files))
        assert isinstance(incompatibility, Rejected)
        assert incompatibility.reason == reasons.SCHEMA_CHANGED
        assert "'text' was dropped and made again" in incompatibility.message
        packed = port.pack(Append(), KEY, targets, files)
        assert isinstance(packed, StagedChange), "nothing is packed for a table that it does not fit"
    assert port.find_incompatibility(state, [second], appended(files[1:])) is None


def test_a_column_that_was_added_between_two_attempts_stops_neither(iceberg: Iceberg) -> None:
    first, files = iceberg.target(), iceberg.stage()
    promoted_in_iceberg(iceberg)
    port, state = iceberg.loaded()

    assert port.find_incompatibility(state, [first], appended(files)) is None


def test_a_lance_column_that_was_made_again_between_two_attempts_is_seen_by_the_targets_of_the_first(dataset: Lance) -> None:
    first, files = dataset.target(), dataset.stage()
    opened = lance.dataset(dataset.place.uri)
    opened.drop_columns(["text"])
    opened.add_columns({"text": "'b'"})
    second = dataset.target()
    files += dataset.stage()
    port, state = dataset.loaded()

    for targets in ([first, second], [second, first]):
        incompatibility = port.find_incompatibility(state, targets, appended(files))
        assert isinstance(incompatibility, Rejected)
        assert incompatibility.reason == reasons.SCHEMA_CHANGED
    assert port.find_incompatibility(state, [second], appended(files[1:])) is None
    lance.dataset(dataset.place.uri).cleanup_old_versions(retain_versions=1, delete_unverified=True)
    incompatibility = dataset.port().find_incompatibility(state, [first, second], appended(files))
    assert isinstance(incompatibility, Rejected)
    assert incompatibility.reason == reasons.SCHEMA_CHANGED, "although the versions between are gone"


@pytest.mark.parametrize("missing", ["right after the base", "right before the latest"])
def test_a_lance_column_that_was_missing_at_one_version_only_is_seen_though_it_has_its_id_again(
    tmp_path: Path, missing: str
) -> None:
    """Where no fragment holds a column that is dropped, Lance gives its id to the next one."""
    place = on_disk(tmp_path, "lance")
    assert isinstance(place, LancePlace)
    place.create(ROWS.schema)
    made = Lance(place)
    target = made.target()
    if missing == "right before the latest":
        lance.dataset(place.uri).update_config({"of": "a stranger"})
    lance.dataset(place.uri).drop_columns(["text"])
    lance.dataset(place.uri).add_columns(pa.field("text", pa.string()))
    if missing == "right after the base":
        lance.dataset(place.uri).update_config({"of": "a stranger"})
    again = made.target()
    port, state = made.loaded()

    assert again.fields == target.fields
    assert port.find_incompatibility(state, [again], appended(())) is None
    incompatibility = port.find_incompatibility(state, [target], appended(()))
    assert isinstance(incompatibility, Rejected)
    assert incompatibility.reason == reasons.SCHEMA_CHANGED


# --- Lance: a look sees every version after its base --------------------------------------------------------------------------


def test_a_commit_right_after_the_base_and_one_at_the_latest_version_are_both_found(dataset: Lance) -> None:
    port = dataset.port()
    base = port.latest_version()
    assert base is not None
    landed = port.append(base, KEY, appended(dataset.stage()))
    assert landed == Landed(base + 1)

    assert dataset.loaded(base)[1].committed == landed.commit_id
    dataset.place.append(ROWS)
    assert dataset.loaded(base)[1].committed == landed.commit_id
    assert dataset.loaded(landed.commit_id)[1].committed is None
    up_to = dataset.port().load(KEY, base, up_to=landed.commit_id)
    assert up_to is not None
    assert up_to.committed == landed.commit_id


def test_one_version_that_was_cleaned_up_after_the_base_is_no_knowledge(dataset: Lance) -> None:
    base = dataset.port().latest_version()
    assert base is not None
    dataset.place.append(ROWS)
    dataset.place.append(ROWS)
    lance.dataset(dataset.place.uri).cleanup_old_versions(retain_versions=1, delete_unverified=True)

    assert not dataset.loaded(base)[1].history_reaches_back
    assert dataset.loaded(base + 1)[1].history_reaches_back


def test_a_lance_commit_that_was_restored_away_is_found_and_is_not_current(dataset: Lance) -> None:
    port = dataset.port()
    base = port.latest_version()
    assert base is not None
    landed = port.append(base, KEY, appended(dataset.stage()))
    assert isinstance(landed, Landed)
    lance.dataset(dataset.place.uri, version=base).restore()

    found = dataset.loaded(base)[1]

    assert (found.committed, found.is_current) == (landed.commit_id, False)


def test_a_request_that_fails_before_lance_has_begun_is_unanswered(tmp_path: Path) -> None:
    """In a process of its own: Lance imports the module of its conflicts only when it commits."""
    program = (
        "from checkpoint_commit.lance.table import PylanceTable, lance\n"
        "from checkpoint_protocol.places.settings import Settings\n"
        f"table = PylanceTable({str(tmp_path / 'none.lance')!r}, Settings())\n"
        "print(type(table._request(1, lance.LanceOperation.Append([]), {})).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=patience(60))

    assert (done.stdout, done.returncode) == ("Unanswered\n", 0), done.stderr

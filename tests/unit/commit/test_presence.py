"""Whether a marked commit is still in its table: gone, another table, rolled back, or here; on real tables on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from checkpoint_commit.iceberg.table import PyicebergTable
from checkpoint_commit.lance.table import PylanceTable
from checkpoint_commit.outcomes import Landed, Presence
from checkpoint_commit.sinks.registry import find_committed, format_of
from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import IcebergTarget, LanceTarget
from tests.support.places import IcebergPlace, LancePlace, Place, on_disk
from tests.support.records import KEY, appended

ROWS = pa.table({"id": [1, 2]})


@dataclass
class World:
    """A table with rows of a stranger, and after them a commit of ours."""

    place: Place
    identity: str
    commit_id: int
    before: int

    @property
    def sink(self) -> Sink:
        return Sink.model_validate({**self.place.sink(), "create": True})

    def presence(self) -> Presence:
        return find_committed(self.sink, self.place.settings, KEY, self.identity, self.commit_id)

    def drop(self) -> None:
        if isinstance(self.place, IcebergPlace):
            self.place.opened().drop_table(self.place.name)
        else:
            assert isinstance(self.place, LancePlace)
            lance.LanceDataset.drop(self.place.uri)

    def roll_back(self) -> None:
        if isinstance(self.place, IcebergPlace):
            self.place.table().manage_snapshots().set_current_snapshot(self.before).commit()
        else:
            assert isinstance(self.place, LancePlace)
            lance.dataset(self.place.uri, version=self.before).restore()

    def roll_forward(self) -> None:
        self.before = self.commit_id
        self.roll_back()


@pytest.mark.parametrize("kind", ["iceberg", "lance"])
def test_a_former_write_of_a_name_is_found_by_the_name_that_its_commit_says(kind: str, tmp_path: Path) -> None:
    place = on_disk(tmp_path, kind)
    place.create(ROWS.schema)
    spec = Sink.model_validate(place.sink())
    settings = place.settings
    assert format_of(spec).find_former(settings, "default/nightly", None) is None
    if isinstance(place, IcebergPlace):
        table = PyicebergTable(place.catalog, place.name, settings, written_by="default/nightly")
        state = table.load(KEY)
        assert state is not None
        table.swap(state, KEY, appended(()))
    else:
        assert isinstance(place, LancePlace)
        PylanceTable(place.uri, settings, "default/nightly").append(1, KEY, appended(()))
    place.append(ROWS)

    found = format_of(spec).find_former(settings, "default/nightly", "another-uid")

    assert found is not None
    assert found.key == str(KEY)
    assert format_of(spec).find_former(settings, "default/nightly", KEY.uid) is None, "it is the write itself"
    assert format_of(spec).find_former(settings, "default/hourly", None) is None


@pytest.fixture(params=["iceberg", "lance"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    place = on_disk(tmp_path, request.param)
    sink = Sink.model_validate({**place.sink(), "create": True})
    schema = encode_schema(ROWS.schema)
    if isinstance(place, IcebergPlace):
        table = PyicebergTable(place.catalog, place.name, place.settings)
        target: Any = table.create(schema, sink)
        assert isinstance(target, IcebergTarget)
        place.append(ROWS)
        state = table.load(KEY)
        assert state is not None
        landed = table.swap(state, KEY, appended(()))
        assert isinstance(landed, Landed)
        assert state.head is not None
        return World(place, target.table_uuid, landed.commit_id, state.head)
    assert isinstance(place, LancePlace)
    dataset = PylanceTable(place.uri, place.settings)
    made = dataset.create(schema, sink)
    assert isinstance(made, LanceTarget)
    place.append(ROWS)
    before = dataset.latest_version()
    assert before is not None
    landed = dataset.append(before, KEY, appended(()))
    assert isinstance(landed, Landed)
    return World(place, made.identity, landed.commit_id, before)


def test_a_commit_is_here_also_below_what_came_later(world: World) -> None:
    assert world.presence() is Presence.HERE
    world.place.append(ROWS)
    assert world.presence() is Presence.HERE


def test_a_table_that_was_dropped_is_gone(world: World) -> None:
    world.drop()

    assert world.presence() is Presence.GONE


def test_a_table_that_was_made_again_is_another(world: World) -> None:
    world.drop()
    world.place.create(ROWS.schema)

    assert world.presence() is Presence.REPLACED


def test_a_table_that_was_rolled_back_to_before_the_commit_shows_it_until_it_is_rolled_forward(world: World) -> None:
    world.roll_back()
    assert world.presence() is Presence.ROLLED_BACK
    world.place.append(ROWS)
    assert world.presence() is Presence.ROLLED_BACK
    world.roll_forward()
    assert world.presence() is Presence.HERE


def test_history_that_is_gone_is_no_evidence_of_a_rollback(world: World) -> None:
    world.place.append(ROWS)
    if isinstance(world.place, IcebergPlace):
        table = world.place.table()
        table.maintenance.expire_snapshots().by_ids([world.before, world.commit_id]).commit()
    else:
        assert isinstance(world.place, LancePlace)
        lance.dataset(world.place.uri).cleanup_old_versions(retain_versions=1, delete_unverified=True)

    assert world.presence() is Presence.HERE


def test_a_catalog_whose_file_is_gone_has_no_table_and_is_not_made_by_the_look(tmp_path: Path) -> None:
    place = on_disk(tmp_path, "iceberg")

    assert find_committed(Sink.model_validate(place.sink()), place.settings, KEY, "uuid", 7) is Presence.GONE
    assert list((tmp_path / "größe und maß").iterdir()) == []


def test_a_commit_of_nothing_is_not_looked_for(tmp_path: Path) -> None:
    sink = Sink.model_validate({"iceberg": {"catalog": "no such", "table": "db.rows"}})

    assert find_committed(sink, Settings(), EpochKey("u", 1), None, None) is Presence.HERE
    with pytest.raises(NeedsChange, match="no such"):
        find_committed(sink, Settings(), EpochKey("u", 1), "uuid", 7)

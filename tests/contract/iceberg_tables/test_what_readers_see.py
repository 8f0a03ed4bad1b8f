"""Real tables after a commit as readers see them, and swaps after a table has moved on."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.manifest import ManifestEntry
from pyiceberg.schema import Schema
from pyiceberg.types import StringType

from checkpoint_commit.outcomes import Landed, Refused
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.places.settings import Settings, SqlCatalogSettings
from checkpoint_protocol.records import Append
from devtools.s3_server import S3Server
from tests.contract.iceberg_tables.worlds import (
    RealWorld,
)
from tests.support.places import IcebergPlace, on_s3
from tests.support.records import KEY, appended
from tests.support.writes import SCHEMA


def test_rows_of_strangers_and_ours_are_all_there_and_counted(real: RealWorld) -> None:
    real.append_as_stranger()
    real.commit(*range(50))
    real.append_as_stranger()

    assert real.ids() == [*range(50), 1_000_000, 1_000_000]
    snapshot = real.place.table().snapshot_by_id(KEY.snapshot_id)
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.additional_properties["added-records"] == "50"
    assert snapshot.summary.additional_properties["total-records"] == "51"
    assert snapshot.summary.additional_properties["checkpointed-write.key"] == str(KEY)
    assert real.place.table().properties[KEY.property_name] == "1"


def test_metrics_of_staged_files_do_not_hide_rows_from_a_filter(real: RealWorld) -> None:
    real.commit(*range(100))
    table = real.place.table()

    assert table.scan(row_filter="id == 57").to_arrow().num_rows == 1
    assert table.scan(row_filter="id >= 90 and id < 200").to_arrow().num_rows == 10
    assert table.scan(row_filter="id > 99").to_arrow().num_rows == 0
    assert table.scan(row_filter="text == 'zeile 7'").to_arrow().num_rows == 1
    assert table.scan(row_filter="text is null").to_arrow().num_rows == 0


def test_a_commit_of_nothing_moves_the_head_and_carries_the_key(real: RealWorld) -> None:
    port, state = real.loaded()

    assert isinstance(port.swap(state, KEY, appended(())), Landed)
    assert real.loaded()[1].committed == KEY.snapshot_id
    assert real.ids() == []


def test_no_table_is_none(bare: RealWorld) -> None:
    assert bare.port().load(KEY) is None
    assert bare.port().describe() is None


def test_a_swap_on_a_table_that_was_dropped_and_made_again_does_not_land(real: RealWorld) -> None:
    port, state = real.loaded()
    files = real.stage(1)
    real.place.opened().drop_table(real.place.name)
    real.place.create(SCHEMA)

    assert not isinstance(port.swap(state, KEY, appended(files)), Landed)
    assert real.loaded()[1].committed is None
    assert real.loaded()[1].table_uuid != state.table_uuid


def test_a_swap_after_the_schema_has_moved_on_is_refused(real: RealWorld) -> None:
    port, state = real.loaded()
    files = real.stage(1)
    with real.place.table().update_schema() as update:
        update.add_column("more", StringType())

    assert isinstance(port.swap(state, KEY, appended(files)), Refused)


def test_the_next_try_after_a_column_was_added_has_manifests_with_the_schema_of_now(bare: RealWorld) -> None:
    bare.place.create(SCHEMA)
    port = bare.port()
    change = port.pack(Append(), KEY, [bare.target()], bare.stage(1))
    state = port.load(KEY)
    assert state is not None
    with bare.place.table().update_schema() as update:
        update.add_column("more", StringType())
    assert isinstance(port.swap(state, KEY, change), Refused)

    loaded = port.load(KEY)
    assert loaded is not None
    assert isinstance(port.swap(loaded, KEY, change), Landed)

    table = bare.place.table()
    head = table.current_snapshot()
    assert head is not None
    (manifest,) = head.manifests(table.io)
    with AvroFile[ManifestEntry](table.io.new_input(manifest.manifest_path)) as file:
        assert Schema.model_validate_json(file.header.meta["schema"]) == table.schema()
    assert bare.ids() == [1]


def test_a_swap_after_the_default_spec_has_moved_on_is_refused(real: RealWorld) -> None:
    port, state = real.loaded()
    files = real.stage(1)
    with real.place.table().update_spec() as update:
        update.add_identity("text")

    assert isinstance(port.swap(state, KEY, appended(files)), Refused)


def test_files_that_were_staged_under_two_specs_are_committed_together(real: RealWorld) -> None:
    first = real.target()
    files = real.stage(1)
    with real.place.table().update_spec() as update:
        update.add_identity("text")
    second = real.target()
    files += real.stage(2)
    port, state = real.loaded()

    assert {file.spec_id for file in files} == {0, 1}
    assert port.find_incompatibility(state, [first, second], appended(files)) is None
    assert isinstance(port.swap(state, KEY, appended(files)), Landed)
    assert real.ids() == [1, 2]
    assert real.place.table().scan(row_filter="text == 'zeile 2'").to_arrow().num_rows == 1


def test_only_the_state_that_a_port_has_loaded_last_can_be_acted_on(real: RealWorld) -> None:
    port, state = real.loaded()
    port.load(KEY)

    with pytest.raises(Corrupt, match="not the state that was loaded last"):
        port.swap(state, KEY, appended(real.stage(1)))


def test_manifests_of_a_commit_that_was_refused_stay_and_those_that_landed_are_never_removed(real: RealWorld) -> None:
    """pyiceberg's own commit removes the manifest list of one that was answered 409; it may have landed."""
    one, other = real.loaded(), real.loaded()
    one[0].swap(one[1], KEY, appended(real.stage(1)))
    other[0].swap(other[1], KEY, appended(real.stage(1)))

    assert real.ids() == [1]


def test_a_table_in_a_bucket_below_an_awkward_name_takes_our_files(s3_server: S3Server, tmp_path: Path) -> None:
    place = on_s3(tmp_path, "iceberg", s3_server)
    catalog = SqlCatalogSettings(uri=f"sqlite:///{tmp_path}/other.db", warehouse=f"{place.base_uri}/größe & maß %20+/w")
    settings = Settings(catalogs={"test": catalog}, storage=place.settings.storage)
    world = RealWorld(IcebergPlace(tmp_path, settings, place.checkpoint_uri, place.base_uri))
    world.place.create(SCHEMA)
    files = world.stage(1, 2)
    port, state = world.loaded()

    assert port.find_incompatibility(state, [world.target()], appended(files)) is None
    assert isinstance(port.swap(state, KEY, appended(files)), Landed)
    assert world.ids() == [1, 2]

"""What a namespace was not granted is refused before anything of it is opened, and on deletion too."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from lance.namespace import DeregisterTableRequest, ListTablesRequest

from checkpoint_commit.sinks.registry import open_sink
from checkpoint_operator.config import OperatorConfig
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.manifest.spec import validate_model
from checkpoint_protocol.places.settings import Settings
from tests.controller.harness import WORKLOADS, World
from tests.support.places import IcebergPlace, NamedLancePlace, Place, in_lake, on_disk
from tests.support.writes import SCHEMA, rows_of

#: Nothing answers there: whoever is refused in time does not ask.
DEAD = "http://127.0.0.1:9"


def world_of(place: Place, namespaces: tuple[str, ...] = ("default", "team-b"), **settings: Any) -> World:
    """A cluster that watches several namespaces; the write is applied in `default`."""
    catalogs = {
        name: catalog.model_dump(exclude_none=True) | settings.pop("catalog", {})
        for name, catalog in place.settings.catalogs.items()
    }
    given = validate_model(Settings, {"catalogs": catalogs, **settings})
    config = OperatorConfig(namespaces=namespaces, workloads=WORKLOADS, allow_local_paths=True)
    return World(dataclasses.replace(place, settings=given), config=config)


@pytest.fixture
def iceberg(tmp_path: Path) -> IcebergPlace:
    place = on_disk(tmp_path, "iceberg")
    assert isinstance(place, IcebergPlace)
    place.create(SCHEMA)
    return place


def bucket(namespaces: list[str]) -> dict[str, Any]:
    keys = {"access_key_id": "none", "secret_access_key": "none"}
    return {"prefix": "s3://lake/", "endpoint": DEAD, "namespaces": namespaces, **keys}


def refusal(world: World) -> str:
    condition = world.condition("Stalled")
    assert condition is not None
    assert condition.reason == reasons.ACCESS_NOT_GRANTED
    return condition.message


def test_a_catalog_that_names_nobody_is_nobodys_where_several_namespaces_are_watched(iceberg: IcebergPlace, source: Path) -> None:
    world = world_of(iceberg)

    world.apply(source)
    world.until_stalled()

    assert f"writes of the namespace default may not use the table {iceberg.name} of the catalog 'test'" in refusal(world)
    assert f"{{namespaces: [default], tables: [{iceberg.name}]}}" in refusal(world), "the way out"
    assert world.api.pods == {}


def test_it_is_the_only_namespaces_where_one_is_watched(iceberg: IcebergPlace, source: Path) -> None:
    world = world_of(iceberg, namespaces=("default",))

    world.apply(source)
    world.until_committed()


@pytest.mark.parametrize("grant", [{"namespaces": ["def*"]}, {"namespaces": ["default"], "tables": ["db*.rows"]}])
def test_a_grant_of_namespaces_and_tables_lets_a_write_commit(iceberg: IcebergPlace, source: Path, grant: dict[str, Any]) -> None:
    world = world_of(iceberg, catalog={"grants": [grant]})

    world.apply(source)
    world.until_committed()


def test_what_is_granted_later_is_used_within_minutes(iceberg: IcebergPlace, source: Path) -> None:
    world = world_of(iceberg)
    world.apply(source)
    world.until_stalled()
    refusal(world)

    # The operator begins anew with other settings, as after `helm upgrade`.
    world.place = world_of(iceberg, catalog={"grants": [{"namespaces": ["default"]}]}).place
    world.restart_operator()
    world.pass_time(300)

    assert world.is_true("Committed")
    assert len(iceberg.rows()) == 200


@pytest.mark.parametrize("grant", [{"namespaces": ["team-b"]}, {"namespaces": ["default"], "tables": ["db*.row", "d.*"]}])
def test_a_grant_of_others_or_of_other_tables_is_none(iceberg: IcebergPlace, source: Path, grant: dict[str, Any]) -> None:
    world = world_of(iceberg, catalog={"grants": [grant]})

    world.apply(source)
    world.until_stalled()

    refusal(world)


def test_a_grant_that_says_nothing_of_overwrites_lets_nobody_remove_rows_of_others(iceberg: IcebergPlace, source: Path) -> None:
    iceberg.append(rows_of(range(1000, 1003)))
    world = world_of(iceberg, catalog={"grants": [{"namespaces": ["default"]}]})

    world.apply(source, sink={**iceberg.sink(), "mode": "OverwriteAll"})
    world.until_stalled()

    assert f"may not overwrite the table {iceberg.name}" in refusal(world)
    assert f"{{namespaces: [default], tables: [{iceberg.name}], overwrites: true}}" in refusal(world), "the way out"
    assert len(iceberg.rows()) == 3
    assert world.api.pods == {}


def test_a_grant_of_overwrites_lets_a_write_commit_one(iceberg: IcebergPlace, source: Path) -> None:
    iceberg.append(rows_of(range(1000, 1003)))
    grants = [{"namespaces": ["*"]}, {"namespaces": ["default"], "tables": ["db*.rows"], "overwrites": True}]
    world = world_of(iceberg, catalog={"grants": grants})

    world.apply(source, sink={**iceberg.sink(), "mode": "OverwriteAll"})
    world.until_committed()

    assert len(iceberg.rows()) == 200


@pytest.fixture
def lake(tmp_path: Path) -> NamedLancePlace:
    return in_lake(tmp_path, grants=[{"namespaces": ["team-b"]}, {"namespaces": ["default"], "tables": ["raw.*"]}])


def test_a_table_of_a_lance_namespace_is_written_by_whom_it_is_granted_to_and_deleted_without_it(
    lake: NamedLancePlace, source: Path
) -> None:
    world = World(lake, config=OperatorConfig(namespaces=("default", "team-b"), workloads=WORKLOADS, allow_local_paths=True))

    world.apply(source, sink={**lake.sink(), "create": True}, deletionPolicy="Forget")
    world.until_committed()
    assert len(lake.rows()) == 200
    lake.lake.deregister_table(DeregisterTableRequest(id=lake.table.split(".")))

    world.delete()  # by the URI that stands in the store


def test_a_table_of_a_lance_namespace_that_is_not_granted_is_refused_before_the_namespace_knows_of_it(
    lake: NamedLancePlace, source: Path
) -> None:
    world = World(lake, config=OperatorConfig(namespaces=("default", "team-b"), workloads=WORKLOADS, allow_local_paths=True))

    world.apply(source, sink={"lance": {"namespace": "lake", "table": "other"}, "create": True})
    world.until_stalled()

    assert "may not use the table other of the Lance namespace 'lake'" in refusal(world)
    assert "{namespaces: [default], tables: [other]} in namespaces.lake.grants" in refusal(world), "the way out"
    assert lake.lake.list_tables(ListTablesRequest(id=[])).tables == []
    world.delete()


def test_a_storage_entry_that_says_nothing_of_overwrites_lets_nobody_overwrite_a_dataset_in_it(
    iceberg: IcebergPlace, source: Path
) -> None:
    world = world_of(iceberg, storage=[bucket(["default"])])

    world.apply(source, sink={"lance": {"uri": "s3://lake/days.lance"}, "mode": "OverwriteAll"})
    world.until_stalled()

    assert "may not overwrite s3://lake/days.lance: the storage entry s3://lake/ is granted" in refusal(world)
    assert "overwrites: true in it, or in one with a longer prefix" in refusal(world), "the way out"
    assert world.api.pods == {}


@pytest.mark.parametrize(
    ("entries", "namespaces"),
    [
        ([bucket(["default"]) | {"overwrites": True}], ("default", "team-b")),
        ([bucket(["default"]), {**bucket(["default"]), "prefix": "s3://lake/days.lance/", "overwrites": True}], ("default",)),
        ([bucket([])], ("default",)),
    ],
    ids=["said in the entry", "said in a longer one", "the only namespace's"],
)
def test_a_dataset_is_overwritten_where_its_entry_says_so_or_there_is_nobody_else(
    entries: list[dict[str, Any]], namespaces: tuple[str, ...]
) -> None:
    config = OperatorConfig(namespaces=namespaces, workloads=WORKLOADS)
    settings = validate_model(Settings, {"storage": entries}).used_by(config.tenant("default"))
    sink = Sink.model_validate({"lance": {"uri": "s3://lake/days.lance"}, "mode": "OverwriteAll"})

    assert open_sink(sink, settings).title == "s3://lake/days.lance"


def test_the_longest_prefix_decides_on_overwrites_too() -> None:
    entries = [bucket(["default"]) | {"overwrites": True}, {**bucket(["default"]), "prefix": "s3://lake/kept/"}]
    config = OperatorConfig(namespaces=("default", "team-b"), workloads=WORKLOADS)
    settings = validate_model(Settings, {"storage": entries}).used_by(config.tenant("default"))
    sink = Sink.model_validate({"lance": {"uri": "s3://lake/kept/days.lance"}, "mode": "OverwriteAll"})

    with pytest.raises(NeedsChange, match="the storage entry s3://lake/kept/ is granted to it for appends only"):
        open_sink(sink, settings)


def test_a_source_table_is_not_read_without_a_grant(tmp_path: Path, iceberg: IcebergPlace) -> None:
    world = world_of(on_disk(tmp_path / "lance", "lance"))
    iceberg_only = validate_model(Settings, {"catalogs": {"test": iceberg.settings.catalogs["test"].model_dump()}})
    world.place.settings = iceberg_only
    world.place.create(SCHEMA)

    world.apply("unused", source={"iceberg": {"catalog": "test", "table": iceberg.name}})
    world.until_stalled()

    assert f"the table {iceberg.name}" in refusal(world)
    assert world.api.pods == {}


@pytest.mark.parametrize(
    "spec",
    [
        {"checkpoint": {"uri": "s3://lake/team-b/ck", "interval": "1h"}},
        {"sink": {"lance": {"uri": "s3://lake/team-b/rows.lance"}}},
        {"code": {"uri": "s3://lake/team-b/steps.zip"}},
    ],
    ids=["checkpoint", "sink", "code"],
)
def test_a_place_of_another_namespace_is_not_asked(iceberg: IcebergPlace, source: Path, spec: dict[str, Any]) -> None:
    world = world_of(iceberg, catalog={"grants": [{"namespaces": ["*"]}]}, storage=[bucket(["team-b"])])

    world.apply(source, **spec)
    world.until_stalled()

    assert "the storage entry s3://lake/ is not granted to it" in refusal(world)
    assert world.api.pods == {}


def test_a_longer_prefix_of_others_is_not_reached_through_a_shorter_one_for_all(iceberg: IcebergPlace, source: Path) -> None:
    theirs = {**bucket(["team-b"]), "prefix": "s3://lake/team-b/"}
    world = world_of(iceberg, catalog={"grants": [{"namespaces": ["*"]}]}, storage=[bucket(["*"]), theirs])

    world.apply(source, checkpoint={"uri": "s3://lake/team-b/ck", "interval": "1h"})
    world.until_stalled()

    assert "the storage entry s3://lake/team-b/ is not granted to it" in refusal(world)


def test_a_granted_table_that_has_its_files_written_to_a_place_of_others_is_refused(iceberg: IcebergPlace, source: Path) -> None:
    trap = iceberg.name.replace(".rows", ".trap")
    iceberg.opened().create_table(trap, SCHEMA, properties={"write.data.path": "s3://lake/team-b/data"})
    world = world_of(iceberg, catalog={"grants": [{"namespaces": ["default"]}]}, storage=[bucket(["team-b"])])

    world.apply(source, sink={"iceberg": {"catalog": "test", "table": trap}})
    world.until_stalled()

    assert "may not use s3://lake/team-b/data" in refusal(world)


def test_a_deletion_asks_no_place_of_others_and_says_how_it_goes_on(iceberg: IcebergPlace, source: Path) -> None:
    world = world_of(iceberg, catalog={"grants": [{"namespaces": ["default"]}]}, storage=[bucket(["team-b"])])
    world.apply(source, checkpoint={"uri": "s3://lake/team-b/ck", "interval": "1h"})
    # Who may apply an object may give it our finalizer.
    body = world.api.writes[world.key]
    world.api.patch_write(*world.key, {"metadata": {"finalizers": ["checkpointed.dev/staged-results"]}})
    world.api.delete_write(*world.key, body["metadata"]["uid"])

    world.pass_time(120)

    assert "checkpointed.dev/abandon=true" in refusal(world)
    assert "is not granted to it" in refusal(world)

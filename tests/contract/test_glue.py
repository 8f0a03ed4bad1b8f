"""Tables in AWS Glue (moto, which `devtools/glue_server.py` completes), their files on a real S3 server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from boto3.session import Session
from pyiceberg.table import StaticTable

from checkpoint_control.decision.actions import Finish
from checkpoint_protocol.store.object_store import open_store
from devtools.glue_server import GlueServer
from devtools.s3_server import S3Server
from tests.support.crashes import Died, DyingAtItsCommit, DyingStore, dying_sink
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import IcebergPlace, on_glue
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of, write_inputs

OLD, NEW = range(90, 110), range(100)
SINKS: dict[str, dict[str, Any]] = {"Append": {}, "Upsert": {"mode": "Upsert", "upsertKeys": ["id"]}}
KEYS = {"access_key_id": "any", "secret_access_key": "any"}


@pytest.fixture
def place(glue_server: GlueServer, s3_server: S3Server, tmp_path: Path) -> IcebergPlace:
    return on_glue(tmp_path, glue_server, s3_server)


def client_of(place: IcebergPlace) -> Any:
    return Session("any", "any", region_name="us-east-1").client("glue", endpoint_url=place.settings.catalogs["test"].endpoint)


def rows_read_by_others(place: IcebergPlace, s3: S3Server) -> list[tuple[int, str]]:
    database, table = place.name.split(".")
    found = client_of(place).get_table(DatabaseName=database, Name=table)["Table"]["Parameters"]
    read = StaticTable.from_metadata(found["metadata_location"], s3.pyiceberg_properties).scan().to_arrow().to_pylist()
    return sorted((row["id"], row["text"]) for row in read)


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
@pytest.mark.parametrize("mode", SINKS)
def test_a_death_around_the_commit_leaves_every_row_once(
    mode: str, after: bool, place: IcebergPlace, s3_server: S3Server, tmp_path: Path
) -> None:
    place.create(SCHEMA)
    place.append(rows_of(OLD).set_column(1, "text", [["old"] * len(OLD)]))
    manifest = manifest_for(place, write_inputs(tmp_path / "in", files=2, rows=50), sink=SINKS[mode])
    store = open_store(place.checkpoint_uri, place.settings)
    drivers, effects = DirectDrivers(store, place.settings), DyingAtItsCommit(after=after)
    with pytest.raises(Died):
        drive(reconciler_for(manifest, place, drivers, DyingStore(store, effects), dying_sink(manifest, place.settings, effects)))
    drivers.finish()
    assert len(place.keys()) == after

    again = DirectDrivers(store, place.settings)
    ended = drive(reconciler_for(manifest, place, again, store))

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert again.started == 0
    assert len(place.keys()) == 1
    old = OLD if mode == "Append" else OLD[10:]
    expected = [*((number, f"zeile {number}") for number in NEW), *((number, "old") for number in old)]
    assert rows_read_by_others(place, s3_server) == sorted(expected)

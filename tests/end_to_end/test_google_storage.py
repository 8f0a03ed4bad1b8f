"""Writes whose sources, records and tables all lie in Google Cloud Storage (an emulator), and deaths around their commits."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import obstore
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from checkpoint_control.decision.actions import Finish
from checkpoint_protocol.store.object_store import open_raw_store, open_store
from devtools.gcs_server import GcsServer
from tests.support.crashes import Died, DyingAtItsCommit, DyingStore, dying_sink
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import IcebergPlace, Place, on_gcs
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of

KINDS = ("iceberg", "lance")
OLD = range(90, 110)
NEW = range(100)
SINKS: dict[str, dict[str, Any]] = {"Append": {}, "Upsert": {"mode": "Upsert", "upsertKeys": ["id"]}}


def put(place: Place, path: str, data: bytes) -> str:
    obstore.put(open_raw_store(place.base_uri, place.settings), path, data)
    return f"{place.base_uri}/{path}"


def put_inputs(place: Place, format: str) -> dict[str, Any]:
    """Put the new rows as two files, and return the source."""
    for half in (NEW[:50], NEW[50:]):
        if format == "json":
            data = "".join(json.dumps(row) + "\n" for row in rows_of(half).to_pylist()).encode()
        else:
            pq.write_table(rows_of(half), file := io.BytesIO(), row_group_size=20)
            data = file.getvalue()
        put(place, f"in/{half.start}.{format}", data)
    return {"files": {"format": format, "paths": [f"{place.base_uri}/in/"]}}


def rows_read_by_others(place: Place, server: GcsServer) -> list[dict[str, Any]]:
    """By pyiceberg's own client, over the JSON API and none of our settings, or by Lance itself."""
    if not isinstance(place, IcebergPlace):
        return place.rows()
    own = {"gcs.service.host": server.endpoint, "gcs.oauth2.token": "any", "gcs.oauth2.token-expires-at": "4102444800000"}
    table = StaticTable.from_metadata(place.table().metadata_location, own)
    return list(table.scan().to_arrow().to_pylist())


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
@pytest.mark.parametrize(("mode", "format"), [("Append", "parquet"), ("Upsert", "json")])
@pytest.mark.parametrize("kind", KINDS)
def test_a_death_around_the_commit_leaves_every_row_once_and_nothing_is_read_again(
    kind: str, mode: str, format: str, after: bool, gcs_server: GcsServer, tmp_path: Path
) -> None:
    place = on_gcs(tmp_path, kind, gcs_server)
    place.create(SCHEMA)
    place.append(rows_of(OLD).set_column(1, "text", [["old"] * len(OLD)]))
    manifest = manifest_for(place, put_inputs(place, format), sink=SINKS[mode])
    store = open_store(place.checkpoint_uri, place.settings)
    drivers, effects = DirectDrivers(store, place.settings), DyingAtItsCommit(after=after)
    with pytest.raises(Died):
        drive(reconciler_for(manifest, place, drivers, DyingStore(store, effects), dying_sink(manifest, place.settings, effects)))
    drivers.finish()

    again = DirectDrivers(store, place.settings)
    ended = drive(reconciler_for(manifest, place, again, store))

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert again.started == 0
    assert len(place.keys()) == 1
    old = OLD if mode == "Append" else OLD[10:]
    expected = [*((number, f"zeile {number}") for number in NEW), *((number, "old") for number in old)]
    found = [(row["id"], row["text"]) for row in rows_read_by_others(place, gcs_server)]
    assert sorted(found) == sorted(expected)

"""Azure and Google Cloud Storage, by emulators: records, source, code and table lie there, and a run dies around the commit."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import lance
import obstore
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from checkpoint_control.decision.actions import Finish
from checkpoint_protocol.store.object_store import open_raw_store, open_store
from devtools.azure_server import AzureServer
from devtools.gcs_server import GcsServer
from tests.support.command_line import CommandLine
from tests.support.crashes import Died, DyingAtItsCommit, DyingStore, dying_sink
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import IcebergPlace, LancePlace, Place, on_azure, on_gcs
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of

UPSERT: dict[str, Any] = {"mode": "Upsert", "upsertKeys": ["id"]}
OLD, NEW = range(1_000, 1_010), range(1_005)
CLOUDS: dict[str, Callable[[Path, str, Any], Place]] = {"azure": on_azure, "gcs": on_gcs}


def put(place: Place, name: str, data: bytes) -> str:
    obstore.put(open_raw_store(place.base_uri, place.settings), name, data)
    return f"{place.base_uri}/{name}"


def parquet(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=100)
    return sink.getvalue()


def lines(rows: pa.Table) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows.to_pylist()).encode()


def ids_read_by_others(place: Place, server: AzureServer | GcsServer) -> list[int]:
    """Return what the plain libraries find, with nothing of the product between them and the store."""
    if isinstance(place, LancePlace):
        if isinstance(server, AzureServer):
            options = {"account_name": server.account, "account_key": server.key, "endpoint": server.endpoint}
        else:
            options = {"service_account": str(server.key_file), "base_url": server.endpoint}
        found = lance.dataset(place.uri, storage_options={**options, "allow_http": "true"}).to_table()
        return sorted(found["id"].to_pylist())
    assert isinstance(place, IcebergPlace)
    if isinstance(server, GcsServer):  # pyiceberg's own client, over the JSON API
        own = {"gcs.service.host": server.endpoint, "gcs.oauth2.token": "any", "gcs.oauth2.token-expires-at": "4102444800000"}
        return sorted(StaticTable.from_metadata(place.table().metadata_location, own).scan().to_arrow()["id"].to_pylist())
    # pyiceberg's own client cannot be told of an emulator of Azure.
    filesystem = pyarrow.fs.AzureFileSystem(
        server.account,
        account_key=server.key,
        blob_storage_authority=urlparse(server.endpoint).netloc,
        blob_storage_scheme="http",
    )
    names = [f"{uri.username}{uri.path}" for uri in map(urlparse, place.data_files())]
    return sorted(number for name in names for number in pq.read_table(filesystem.open_input_file(name))["id"].to_pylist())


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("sink", [{}, UPSERT], ids=["append", "upsert"])
@pytest.mark.parametrize("kind", ["iceberg", "lance"])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_death_on_either_side_of_the_commit_leaves_every_row_once_and_nothing_is_done_twice(
    cloud: str, kind: str, sink: dict[str, Any], after: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(f"{cloud}_server")
    place = CLOUDS[cloud](tmp_path, kind, server)
    place.create(SCHEMA)
    if isinstance(place, IcebergPlace):
        with place.table().transaction() as transaction:  # data files tell all rows to who reads no deletes
            transaction.set_properties({"write.merge.mode": "copy-on-write"})
    place.append(rows_of(OLD))
    form, write = ("json", lines) if sink else ("parquet", parquet)
    for number in range(2):
        put(place, f"in #1/größe-{number}.x", write(rows_of(NEW[number::2])))
    manifest = manifest_for(place, f"{place.base_uri}/in #1/", files={"format": form}, sink=sink)
    store = open_store(place.checkpoint_uri, place.settings)
    drivers, effects = DirectDrivers(store, place.settings), DyingAtItsCommit(after=after)
    with pytest.raises(Died):
        drive(reconciler_for(manifest, place, drivers, DyingStore(store, effects), dying_sink(manifest, place.settings, effects)))
    drivers.finish()

    again = DirectDrivers(store, place.settings)
    ended = drive(reconciler_for(manifest, place, again, store))

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert again.started == 0
    expected = sorted({*OLD, *NEW}) if sink else sorted([*OLD, *NEW])
    assert sorted(row["id"] for row in place.rows()) == expected
    assert ids_read_by_others(place, server) == expected
    assert len(place.keys()) == 1


@pytest.mark.spark
@pytest.mark.parametrize("cloud", CLOUDS)
def test_code_in_a_bucket_is_run_by_the_command(cloud: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(f"{cloud}_server")
    place = CLOUDS[cloud](tmp_path, "lance", server)
    place.create(SCHEMA)
    put(place, "in/a.jsonl", lines(rows_of(range(100))))
    code = put(place, "code/steps.py", b"def work(row):\n    return {'id': row['id'], 'text': 'worked'}\n")
    step = {"call": "steps:work", "input": "row", "output": {"id": "int64", "text": "string"}}
    manifest = manifest_for(place, f"{place.base_uri}/in/*", files={"format": "json"}, steps=[step], code={"uri": code})

    ended, output = CommandLine(tmp_path / "cli", place, manifest).run()

    assert ended == 0, output
    assert ids_read_by_others(place, server) == list(range(100))
    assert {row["text"] for row in place.rows()} == {"worked"}

"""Azure by its emulator: checkpoint, source, code and table lie there, and a run dies on both sides of the commit."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import lance
import obstore
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

from checkpoint_control.decision.actions import Finish
from checkpoint_protocol.store.object_store import open_raw_store, open_store
from devtools.azure_server import AzureServer
from tests.support.command_line import CommandLine
from tests.support.crashes import Died, Effects, dying_sink
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import IcebergPlace, LancePlace, Place, on_azure
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of

UPSERT: dict[str, Any] = {"mode": "Upsert", "upsertKeys": ["id"]}
OLD, NEW = range(1_000, 1_010), range(1_005)


@dataclass
class AtTheCommit(Effects):
    """Dies before or after the request that makes the rows visible."""

    def around(self, name: str, effect: Callable[[], Any]) -> Any:
        self.point = len(self.names) if name in ("swap", "append", "update") else None
        return super().around(name, effect)


def put(place: Place, name: str, data: bytes) -> str:
    obstore.put(open_raw_store(place.base_uri, place.settings), name, data)
    return f"{place.base_uri}/{name}"


def parquet(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=100)
    return sink.getvalue()


def lines(rows: pa.Table) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows.to_pylist()).encode()


def ids_read_by_others(place: Place, server: AzureServer) -> list[int]:
    """Return what the plain libraries find, with nothing of the product between them and the account."""
    if isinstance(place, LancePlace):
        options = {"account_name": server.account, "account_key": server.key, "endpoint": server.endpoint, "allow_http": "true"}
        return sorted(lance.dataset(place.uri, storage_options=options).to_table()["id"].to_pylist())
    at = urlparse(server.endpoint)
    filesystem = pyarrow.fs.AzureFileSystem(
        server.account, account_key=server.key, blob_storage_authority=at.netloc, blob_storage_scheme=at.scheme
    )
    names = [f"{uri.username}{uri.path}" for uri in map(urlparse, place.data_files())]
    return sorted(number for name in names for number in pq.read_table(filesystem.open_input_file(name))["id"].to_pylist())


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("sink", [{}, UPSERT], ids=["append", "upsert"])
@pytest.mark.parametrize("kind", ["iceberg", "lance"])
def test_a_death_on_either_side_of_the_commit_leaves_every_row_once_and_nothing_is_done_twice(
    kind: str, sink: dict[str, Any], after: bool, tmp_path: Path, azure_server: AzureServer
) -> None:
    place = on_azure(tmp_path, kind, azure_server)
    place.create(SCHEMA)
    if isinstance(place, IcebergPlace):
        with place.table().transaction() as transaction:  # data files tell all rows to who reads no deletes
            transaction.set_properties({"write.merge.mode": "copy-on-write"})
    place.append(rows_of(OLD))
    form, write = ("json", lines) if sink else ("parquet", parquet)
    for number in range(2):
        put(place, f"in #1/größe-{number}.x", write(rows_of(NEW[number::2])))
    manifest = manifest_for(place, f"{place.base_uri}/in #1/", files={"format": form}, sink=sink)
    effects = AtTheCommit(after=after)
    drivers = DirectDrivers(open_store(place.checkpoint_uri, place.settings), place.settings)
    with pytest.raises(Died):
        drive(reconciler_for(manifest, place, drivers, sink=dying_sink(manifest, place.settings, effects)))
    drivers.finish()

    again = reconciler_for(manifest, place)
    ended = drive(again)

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert again.observer.drivers.started == 0  # type: ignore[attr-defined]
    expected = sorted({*OLD, *NEW}) if sink else sorted([*OLD, *NEW])
    assert sorted(row["id"] for row in place.rows()) == expected
    assert ids_read_by_others(place, azure_server) == expected
    assert len(place.keys()) == 1


@pytest.mark.spark
def test_code_in_a_container_is_run_by_the_command(tmp_path: Path, azure_server: AzureServer) -> None:
    place = on_azure(tmp_path, "lance", azure_server)
    place.create(SCHEMA)
    put(place, "in/a.jsonl", lines(rows_of(range(100))))
    code = put(place, "code/steps.py", b"def work(row):\n    return {'id': row['id'], 'text': 'worked'}\n")
    step = {"call": "steps:work", "input": "row", "output": {"id": "int64", "text": "string"}}
    manifest = manifest_for(place, f"{place.base_uri}/in/*", files={"format": "json"}, steps=[step], code={"uri": code})

    ended, output = CommandLine(tmp_path / "cli", place, manifest).run()

    assert ended == 0, output
    assert ids_read_by_others(place, azure_server) == list(range(100))
    assert {row["text"] for row in place.rows()} == {"worked"}

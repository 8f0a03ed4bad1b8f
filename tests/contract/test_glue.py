"""Tables in AWS Glue (moto, which `devtools/glue_server.py` completes), their files on a real S3 server."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from boto3.session import Session
from botocore.exceptions import ClientError, ReadTimeoutError
from pydantic import ValidationError
from pyiceberg.table import StaticTable

from checkpoint_commit.catalogs.named import CatalogBook, location_of_new_table, open_catalog, translate_catalog_error
from checkpoint_commit.changes import Change
from checkpoint_commit.iceberg.table import PyicebergTable
from checkpoint_commit.outcomes import Landed, Refused, RequestOutcome, Unanswered
from checkpoint_control.decision.actions import Finish
from checkpoint_formats.iceberg.stager import IcebergStager
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.places.setting_values import SETTINGS_FILE
from checkpoint_protocol.places.settings import GlueCatalogSettings, RestCatalogSettings, Settings, Signing
from checkpoint_protocol.store.object_store import open_store
from devtools.glue_server import GlueServer
from devtools.ports import LOOPBACK, free_port
from devtools.s3_server import S3Server
from tests.support.crashes import Died, DyingAtItsCommit, DyingStore, dying_sink
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import IcebergPlace, on_glue
from tests.support.records import KEY, appended
from tests.support.waiting import patience
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of, write_inputs

OTHER = EpochKey("fedcba9876543210", 1)
OLD, NEW = range(90, 110), range(100)
SINKS: dict[str, dict[str, Any]] = {"Append": {}, "Upsert": {"mode": "Upsert", "upsertKeys": ["id"]}}
GLUE = {"type": "glue", "region": "us-east-1", "access_key_id": "any", "secret_access_key": "any"}


@pytest.fixture
def place(glue_server: GlueServer, s3_server: S3Server, tmp_path: Path) -> IcebergPlace:
    return on_glue(tmp_path, glue_server, s3_server)


def client_of(place: IcebergPlace) -> Any:
    return Session("any", "any", region_name="us-east-1").client("glue", endpoint_url=place.settings.catalogs["test"].uri)


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


def stage(place: IcebergPlace, key: EpochKey, numbers: range) -> Change:
    target = PyicebergTable("test", place.name, place.settings).describe()
    assert target is not None
    stager = IcebergStager(target, key, "1-0", 1 << 20, place.settings.for_drivers())
    return appended(stager.stage(iter([rows_of(numbers).to_batches()[0].cast(stager.arrow_schema)])))


def port_with(place: IcebergPlace, event: str, does: Callable[[], object]) -> PyicebergTable:
    """Return the port of a committer that does something at an event of its client, while it asks Glue to update the table."""
    book = CatalogBook(place.settings)
    catalog: Any = book.open("test")

    def handle(**_: Any) -> None:
        does()

    catalog.glue.meta.events.register(f"{event}.glue.UpdateTable", handle)
    return PyicebergTable("test", place.name, place.settings, book)


def test_of_two_committers_that_have_loaded_the_same_version_glue_refuses_one_and_no_rows_are_lost(
    place: IcebergPlace, s3_server: S3Server
) -> None:
    place.create(SCHEMA)
    staged = {KEY: stage(place, KEY, range(10)), OTHER: stage(place, OTHER, range(10, 20))}
    both_have_loaded = threading.Barrier(2, timeout=patience(60))

    def commit(key: EpochKey) -> RequestOutcome:
        port = port_with(place, "before-call", both_have_loaded.wait)
        state = port.load(key)
        assert state is not None
        return port.swap(state, key, staged[key])

    with ThreadPoolExecutor(2) as pool:
        outcomes = dict(zip(staged, pool.map(commit, staged), strict=True))
    assert {type(outcome) for outcome in outcomes.values()} == {Landed, Refused}

    (refused,) = (key for key, outcome in outcomes.items() if isinstance(outcome, Refused))
    again = PyicebergTable("test", place.name, place.settings)
    state = again.load(refused)
    assert state is not None
    assert state.committed is None
    assert isinstance(again.swap(state, refused, staged[refused]), Landed)
    assert rows_read_by_others(place, s3_server) == [(number, f"zeile {number}") for number in range(20)]


def test_a_commit_whose_answer_is_lost_is_unanswered_sent_once_and_found_by_the_next_load(place: IcebergPlace) -> None:
    place.create(SCHEMA)
    sent: list[str] = []

    def lose() -> None:
        sent.append("update")
        raise ReadTimeoutError(endpoint_url="http://glue.example.com")

    port = port_with(place, "after-call", lose)
    state = port.load(KEY)
    assert state is not None

    assert isinstance(port.swap(state, KEY, stage(place, KEY, range(10))), Unanswered)

    assert sent == ["update"]
    found = PyicebergTable("test", place.name, place.settings).load(KEY)
    assert found is not None
    assert found.committed == KEY.snapshot_id


def test_a_table_of_glue_that_is_not_iceberg_is_refused(place: IcebergPlace) -> None:
    database, table = place.name.split(".")
    client = client_of(place)
    client.create_database(DatabaseInput={"Name": database})
    others: list[dict[str, Any]] = [{}, {"Parameters": {}}, {"Parameters": {"table_type": "HUDI"}}]
    for parameters in others:
        client.create_table(DatabaseName=database, TableInput={"Name": table, **parameters})
        with pytest.raises(NeedsChange, match="not Iceberg") as refused:
            PyicebergTable("test", place.name, place.settings).describe()
        assert refused.value.reason == reasons.TABLE_UNSUPPORTED
        client.delete_table(DatabaseName=database, Name=table)


def test_a_new_table_lies_where_it_is_said_to_be_before_it_is_made(place: IcebergPlace) -> None:
    catalog = open_catalog("test", place.settings)
    before = location_of_new_table(catalog, place.name)
    place.create(SCHEMA)

    assert before == location_of_new_table(catalog, place.name) == place.table().location()


@pytest.mark.parametrize("code", ["AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException"])
def test_refused_credentials_are_said_to_be_refused(code: str) -> None:
    error = translate_catalog_error(ClientError({"Error": {"Code": code, "Message": "no"}}, "GetTable"), "lake", SETTINGS_FILE)

    assert isinstance(error, NeedsChange)
    assert error.reason == reasons.CREDENTIALS_REFUSED


def test_other_errors_of_glue_and_a_glue_that_is_not_there_are_tried_again() -> None:
    throttled = ClientError({"Error": {"Code": "ThrottlingException", "Message": "slowly"}}, "GetTable")
    assert isinstance(translate_catalog_error(throttled, "lake", SETTINGS_FILE), Retryable)

    entry = GlueCatalogSettings.model_validate(GLUE | {"endpoint": f"http://{LOOPBACK}:{free_port()}"})
    with pytest.raises(Retryable, match=r"catalogs\.lake"):
        PyicebergTable("lake", "db.rows", Settings(catalogs={"lake": entry})).describe()


def test_the_account_of_the_catalog_is_named_in_each_request(glue_server: GlueServer) -> None:
    entry = GlueCatalogSettings.model_validate(GLUE | {"catalog_id": "123456789012", "endpoint": glue_server.endpoint})
    catalog: Any = open_catalog("lake", Settings(catalogs={"lake": entry}))
    asked: list[bytes] = []

    def note(request: Any, **_: Any) -> None:
        asked.append(request.body)

    catalog.glue.meta.events.register("before-send.glue", note)
    catalog.list_namespaces()

    assert json.loads(asked[0]) == {"CatalogId": "123456789012"}


@pytest.mark.parametrize("kind", ["glue", "rest"])
def test_without_boto3_the_way_out_is_said(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3.session", None)
    monkeypatch.delitem(sys.modules, "checkpoint_commit.catalogs.glue_catalog", raising=False)
    glue = GlueCatalogSettings.model_validate(GLUE)
    signing = {name: value for name, value in GLUE.items() if name != "type"} | {"name": "glue"}
    rest = RestCatalogSettings(uri=glue.uri, signing=Signing.model_validate(signing))

    with pytest.raises(NeedsChange, match=r"checkpointed-writes\[glue\]"):
        open_catalog("lake", Settings(catalogs={"lake": glue if kind == "glue" else rest}))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"access_key_id": None}, "credentials: ambient"),
        ({"credentials": "ambient"}, "not both"),
        ({"region": None}, "region"),
        ({"warehouse": "warehouse"}, "in a bucket"),
        ({"uri": "https://glue.example.com"}, "uri"),
    ],
)
def test_settings_that_would_ask_others_or_nobody_are_refused(changed: dict[str, str | None], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        GlueCatalogSettings.model_validate(GLUE | changed)

"""Keys that a catalog hands out with its tables: who reads and writes by them, for how long, and what they are not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from lance.file import LanceFileReader, LanceFileWriter
from lance.namespace import DeclareTableRequest, RestAdapter
from pyiceberg.catalog import load_catalog

from checkpoint_commit.catalogs.vended import with_keys_of_tables
from checkpoint_commit.lance.namespaces import keys_of, located
from checkpoint_control.decision.actions import Finish
from checkpoint_formats.lance.access import access
from checkpoint_formats.lance.datasets import open_dataset
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.handed_keys import HandedKeys, RenewedKeys
from checkpoint_protocol.places.settings import NamespaceSettings, Settings
from checkpoint_protocol.places.storage import StorageEntry, StorageSettings
from checkpoint_protocol.store.object_store import open_store
from checkpoint_protocol.tables.lance import TableName
from devtools.ports import LOOPBACK, free_port
from devtools.rest_catalog import RestCatalog
from devtools.s3_server import S3Server
from tests.support.command_line import CommandLine, wait_for_end
from tests.support.crashes import Died, DyingAtItsCommit, DyingStore, dying_sink
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import (
    IcebergPlace,
    LancePlace,
    NamedLancePlace,
    Place,
    in_lake,
    on_azure,
    on_gcs,
    on_s3,
    on_vending,
)
from tests.support.vending import Vending, vending
from tests.support.waiting import until
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of, write_inputs

UPSERT: dict[str, Any] = {"mode": "Upsert", "upsertKeys": ["id"]}
OLD = range(390, 410)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Iterator[RestCatalog]:
    with RestCatalog(tmp_path_factory.mktemp("catalog"), s3_server) as served:
        yield served


def ids_read_by_others(place: IcebergPlace, catalog: RestCatalog) -> list[int]:
    """What pyiceberg finds by itself, with keys of its own."""
    stranger = load_catalog("stranger", **catalog.pyiceberg_properties)
    return sorted(stranger.load_table(place.name).scan().to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("sink", [{}, UPSERT], ids=["append", "upsert"])
@pytest.mark.parametrize("as_config", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["by-prefix", "of-the-table"])
def test_a_death_on_either_side_of_the_commit_leaves_every_row_once_and_nothing_is_done_twice(
    as_config: bool, sink: dict[str, Any], after: bool, tmp_path: Path, catalog: RestCatalog, s3_server: S3Server
) -> None:
    with vending(catalog.uri, s3_server, as_config=as_config) as front:
        place = on_vending(tmp_path, front, catalog, s3_server)
        place.create(SCHEMA)
        place.append(rows_of(OLD))
        manifest = manifest_for(place, f"{write_inputs(tmp_path / 'in')}/*.parquet", sink=sink)
        store = open_store(place.checkpoint_uri, place.settings)
        settings = with_keys_of_tables(manifest.spec, place.settings)
        drivers, effects = DirectDrivers(store, settings), DyingAtItsCommit(after=after)
        with pytest.raises(Died):
            drive(
                reconciler_for(
                    manifest, place, drivers, DyingStore(store, effects), dying_sink(manifest, place.settings, effects)
                )
            )
        drivers.finish()

        again = DirectDrivers(store, settings)
        ended = drive(reconciler_for(manifest, place, again, store))

        assert isinstance(ended.outcome, Finish), ended.outcome
        assert again.started == 0
        assert ids_read_by_others(place, catalog) == sorted({*range(400), *OLD} if sink else [*range(400), *OLD])
        assert len(place.keys()) == 1


LIFETIME_S = 6.0
SLOW = """
import pathlib, time

def work(row):
    started = pathlib.Path({started!r})
    if not started.exists():
        started.touch()
        time.sleep({pause_s})
    return {{"id": row["id"], "text": "worked"}}
"""


def slow_write(folder: Path, place: IcebergPlace, pause_s: float) -> CommandLine:
    """A write from one table of the catalog into another, whose first row takes its time."""
    source = replace(place, name=f"{place.name}_source")
    for made in (source, place):
        made.create(SCHEMA)
    for start in (0, 100):
        source.append(rows_of(range(start, start + 100)))
    return slow_from(source.sink(), folder, place, pause_s)


def slow_from(source: dict[str, Any], folder: Path, place: Place, pause_s: float) -> CommandLine:
    code = folder / "code"
    code.mkdir()
    (code / "steps.py").write_text(SLOW.format(started=str(folder / "started"), pause_s=pause_s))
    step = {"call": "steps:work", "input": "row", "output": {"id": "int64", "text": "string"}}
    return CommandLine(folder / "cli", place, manifest_for(place, source, steps=[step], code={"path": str(code)}))


def assert_nobody_is_told(command: CommandLine, output: str, front: Vending) -> None:
    """No access key is in what was printed, in files on the machine, or in records."""
    ledger = command.ledger()
    left = [path for path in (command.folder).rglob("*") if path.is_file()]
    texts = [output, *(path.read_text(errors="replace") for path in left)]
    if ledger is not None:
        kept = [item.path for item in ledger.store.list("")]
        texts += [(ledger.store.get(path, 1 << 20) or b"").decode(errors="replace") for path in kept]
    assert front.handed
    assert not [text for text in texts for key in front.handed if key in text]


@pytest.mark.spark
def test_an_attempt_goes_on_for_three_lifetimes_of_its_keys_and_nobody_is_told_them(
    tmp_path: Path, catalog: RestCatalog, s3_server: S3Server
) -> None:
    with vending(catalog.uri, s3_server, LIFETIME_S) as front:
        place = on_vending(tmp_path, front, catalog, s3_server)
        command = slow_write(tmp_path, place, 3 * LIFETIME_S)

        ended, output = command.run()

        assert ended == 0, output
        assert ids_read_by_others(place, catalog) == list(range(200))
        ledger = command.ledger()
        assert ledger is not None
        assert ledger.attempts.list_attempts() == [1]
        assert len(front.handed) > 4
        assert_nobody_is_told(command, output, front)


@pytest.mark.spark
@pytest.mark.parametrize("by", ["catalog", "store"])
def test_an_attempt_whose_keys_are_taken_away_ends_and_says_who_refused_them(
    by: str, tmp_path: Path, catalog: RestCatalog, s3_server: S3Server
) -> None:
    with vending(catalog.uri, s3_server, LIFETIME_S) as front:
        place = on_vending(tmp_path, front, catalog, s3_server)
        command = slow_write(tmp_path, place, LIFETIME_S)
        running = command.start()
        until((tmp_path / "started").exists, "the first row", report=running.output)
        if by == "catalog":
            front.is_refusing = True
        else:
            front.are_worthless = True
            front.end_all()

        ended, output = wait_for_end(running)

        assert ended != 0
        assert "error: CredentialsRefused: " in output
        said = {
            "catalog": "the catalog 'test' refused access: ForbiddenException: no keys for you",
            "store": "refused access to s3:",
        }
        assert said[by] in output, output
        assert_nobody_is_told(command, output, front)


@pytest.mark.spark
def test_validate_and_preview_read_a_source_by_such_keys(tmp_path: Path, catalog: RestCatalog, s3_server: S3Server) -> None:
    with vending(catalog.uri, s3_server) as front:
        command = slow_write(tmp_path, on_vending(tmp_path, front, catalog, s3_server), 0)

        checked, shown = (command.say(verb, str(command.file)) for verb in ("validate", "preview"))

        assert "200" in checked
        assert "worked" in shown


@pytest.fixture
def lake(tmp_path: Path, s3_server: S3Server) -> Iterator[tuple[NamedLancePlace, str]]:
    """A table of a Lance namespace that is in a bucket, with its two rows of fragments, and where pylance serves it."""
    port = free_port()
    place = in_lake(tmp_path, None, on_s3(tmp_path, "lance", s3_server))
    options = {f"storage.{name}": value for name, value in s3_server.lance_storage_options.items()}
    with RestAdapter("dir", {"root": place.base_uri, **options}, host=LOOPBACK, port=port):
        yield place, f"http://{LOOPBACK}:{port}"


def by_vended_keys(place: NamedLancePlace, front: Vending) -> NamedLancePlace:
    """The same as those see it who have no keys but those that the namespace hands out."""
    namespace = NamespaceSettings(type="rest", uri=front.uri, credentials="vended")
    (entry,) = place.settings.storage
    files = StorageEntry(prefix=entry.prefix, endpoint=entry.endpoint, region=entry.region, credentials="vended")
    settings = place.settings.model_copy(update={"namespaces": {"lake": namespace}, "storage": (files,)})
    return replace(place, settings=settings)


def declared(place: NamedLancePlace, *tables: str) -> None:
    for table in tables:
        place.lake.declare_table(DeclareTableRequest(id=table.split(".")))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("sink", [{}, UPSERT], ids=["append-to-a-new-table", "upsert"])
def test_a_death_around_the_commit_into_a_table_of_a_lance_namespace_leaves_every_row_once(
    sink: dict[str, Any], after: bool, tmp_path: Path, lake: tuple[NamedLancePlace, str], s3_server: S3Server
) -> None:
    place, address = lake
    old = OLD if sink else ()
    if sink:
        declared(place, place.table)
        place.create(SCHEMA)
        place.append(rows_of(OLD))
    with vending(address, s3_server) as front:
        vended = by_vended_keys(place, front)
        manifest = manifest_for(vended, f"{write_inputs(tmp_path / 'in')}/*.parquet", sink={**sink, "create": True})
        spec = located(manifest.spec, vended.settings, begins=True)
        manifest = manifest.model_copy(update={"spec": spec})
        store, settings = open_store(place.checkpoint_uri, Settings()), with_keys_of_tables(spec, vended.settings)
        drivers, effects = DirectDrivers(store, settings), DyingAtItsCommit(after=after)
        with pytest.raises(Died):
            drive(reconciler_for(manifest, vended, drivers, DyingStore(store, effects), dying_sink(manifest, settings, effects)))
        drivers.finish()

        again = DirectDrivers(store, settings)
        ended = drive(reconciler_for(manifest, vended, again, store))

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert again.started == 0
    assert sorted(row["id"] for row in place.rows()) == sorted({*range(400), *old})
    assert len(place.keys()) == 1


@pytest.mark.slow
@pytest.mark.spark
def test_an_attempt_of_lance_tables_goes_on_for_three_lifetimes_of_their_keys(
    tmp_path: Path, lake: tuple[NamedLancePlace, str], s3_server: S3Server
) -> None:
    place, address = lake
    source = replace(place, table="raw.source")
    declared(place, place.table, source.table)
    for made in (source, place):
        made.create(SCHEMA)
    for start in (0, 10_000):
        source.append(rows_of(range(start, start + 10_000)))
    with vending(address, s3_server, LIFETIME_S) as front:
        command = slow_from(source.sink(), tmp_path, by_vended_keys(place, front), 3 * LIFETIME_S)

        ended, output = command.run()

        assert ended == 0, output
        assert sorted(row["id"] for row in place.rows()) == list(range(20_000))
        ledger = command.ledger()
        assert ledger is not None
        assert ledger.attempts.list_attempts() == [1]
        assert len(front.handed) > 4


def test_what_lance_holds_open_goes_on_when_its_keys_have_expired(
    tmp_path: Path, lake: tuple[NamedLancePlace, str], s3_server: S3Server
) -> None:
    place, address = lake
    declared(place, place.table)
    place.create(SCHEMA)
    place.append(rows_of(range(100)))
    uri = place.uri
    with vending(address, s3_server, LIFETIME_S) as front:
        vended = by_vended_keys(place, front).settings
        settings = vended.with_keys(RenewedKeys(lambda: keys_of(TableName("lake", place.table), vended)))
        dataset, name = open_dataset(uri, settings), f"data/{place.dataset().get_fragments()[0].data_files()[0].path}"
        assert dataset is not None
        reader = LanceFileReader(f"{uri}/{name}", **access(uri, settings))
        writer = LanceFileWriter(f"{uri}/data/made.lance", SCHEMA, **access(uri, settings))
        until(lambda: front.ended == front.handed, "the end of all keys so far")

        assert dataset.count_rows() == dataset.to_table().num_rows == 100
        assert reader.read_all().to_table().num_rows == 100
        writer.write_batch(rows_of(range(50)))
        writer.close()

    assert LanceFileReader(f"{uri}/data/made.lance", storage_options=place.options).metadata().num_rows == 50


@pytest.mark.parametrize("cloud", ["azure", "gcs"])
def test_tokens_that_are_handed_out_for_other_clouds_are_used_by_obstore_and_by_lance(
    cloud: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if cloud == "azure":
        azure = request.getfixturevalue("azure_server")
        place, name = on_azure(tmp_path, "lance", azure), "sas_token"
        good, wrong = azure.sas_token(timedelta(hours=1)), azure.sas_token(timedelta(hours=-1))
    else:
        gcs = request.getfixturevalue("gcs_server")
        place, name, good, wrong = on_gcs(tmp_path, "lance", gcs), "token", gcs.token, "any.other"
    assert isinstance(place, LancePlace)
    (entry,) = place.settings.storage
    keyless = {"account_key": None, "service_account_file": None, "credentials": "vended"}
    alone = StorageSettings(storage=(entry.model_copy(update=keyless),))

    def with_token(token: str) -> StorageSettings:
        keys = HandedKeys(prefix=place.base_uri, values={name: token})
        return alone.with_keys(RenewedKeys(lambda: ([keys], True)))

    store = open_store(f"{place.base_uri}/store", with_token(good))
    assert store.put_if_absent("a/b", b"put")
    assert store.get("a/b", 10) == b"put"
    with pytest.raises(NeedsChange, match="refused access"):
        open_store(f"{place.base_uri}/store", with_token(wrong)).put_if_absent("a/c", b"put")
    place.create(SCHEMA)
    place.append(rows_of(range(5)))
    dataset = open_dataset(place.uri, with_token(good))
    assert dataset is not None
    assert dataset.to_table().num_rows == 5

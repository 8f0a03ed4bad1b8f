"""Tables whose metadata name places that nothing should open: refused before anything is read or written there."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pydantic import ValidationError
from pyiceberg.manifest import (
    ManifestContent,
    PartitionFieldSummary,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.schema import Schema
from sqlalchemy import text

from checkpoint_commit.catalogs.named import MOST_METADATA_BYTES, CatalogBook, open_catalog, translate_catalog_error
from checkpoint_commit.catalogs.source_tables import describe, pin
from checkpoint_commit.iceberg.table import PyicebergTable
from checkpoint_commit.lance.table import PylanceTable
from checkpoint_control.loop.looks import Known, Looks, open_news
from checkpoint_formats.iceberg.file_io import manifests_of
from checkpoint_formats.iceberg.plan import find_files
from checkpoint_formats.lance.reader import find_fragments
from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_formats.stagers import stager_for
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.manifest.sources.source import IcebergSource, LanceSource
from checkpoint_protocol.manifest.spec import Spec, validate_model
from checkpoint_protocol.places.patterns import Tenant
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.storage import StorageEntry
from checkpoint_protocol.records import Append, Began, TakenRecord, Target
from checkpoint_protocol.store.memory import MemoryBudget, turn
from tests.support.places import IcebergPlace, LancePlace, on_disk
from tests.support.records import KEY, end_epoch, input_of, ledger_over
from tests.support.stores import MemoryStore

ROWS = pa.table({"id": [1], "text": ["a"]})
DEAD = StorageEntry(prefix="s3://bucket/", endpoint="http://127.0.0.1:9", credentials="anonymous")


def refused(call: Callable[[], Any], reason: str = reasons.TABLE_UNSUPPORTED) -> str:
    with pytest.raises(NeedsChange) as caught:
        call()
    assert caught.value.reason == reason
    return caught.value.message


@pytest.fixture
def iceberg(tmp_path: Path) -> IcebergPlace:
    place = on_disk(tmp_path, "iceberg")
    assert isinstance(place, IcebergPlace)
    place.create(ROWS.schema)
    place.append(ROWS)
    return place


@pytest.fixture
def dataset(tmp_path: Path) -> LancePlace:
    place = on_disk(tmp_path, "lance")
    assert isinstance(place, LancePlace)
    place.create(ROWS.schema)
    place.append(ROWS)
    return place


def port(place: IcebergPlace, settings: Settings | None = None) -> PyicebergTable:
    return PyicebergTable(place.catalog, place.name, settings or place.settings)


@pytest.mark.parametrize("name", ["write.metadata.path", "write.data.path"])
@pytest.mark.parametrize("uri", ["hdfs://127.0.0.1:9/x", "FILE:///tmp/x", "memory://x"])
def test_a_table_that_wants_its_files_elsewhere_is_refused_before_staging_and_at_the_commit(
    iceberg: IcebergPlace, name: str, uri: str
) -> None:
    before = port(iceberg)
    target = before.describe()
    state = before.load(KEY)
    assert target is not None
    assert state is not None
    file = Path(iceberg.table().metadata_location.removeprefix("file://"))
    metadata = json.loads(file.read_text())
    metadata["properties"][name] = uri
    file.write_text(json.dumps(metadata))

    assert name in refused(lambda: port(iceberg).describe())
    now = port(iceberg)
    state = now.load(KEY)
    assert state is not None
    nothing = now.pack(Append(), KEY, [target], [])
    assert uri in refused(lambda: now.find_incompatibility(state, [target], nothing))
    assert uri in refused(lambda: now.block_commit(state, KEY))

    del metadata["properties"][name]
    file.write_text(json.dumps(metadata))
    assert port(iceberg).describe() is not None, "corrected"


def test_where_only_buckets_are_opened_a_table_on_disk_is_not(iceberg: IcebergPlace) -> None:
    settings = iceberg.settings.in_buckets_only()

    message = refused(lambda: port(iceberg, settings).describe(), reasons.MANIFEST_INVALID)

    assert "is a path, and nothing on disk is opened here" in message


@pytest.mark.parametrize("uri", ["hdfs://127.0.0.1:9/x.json", "FILE:///etc/hosts", "s3://undeclared/x.json"])
def test_a_catalog_that_names_metadata_elsewhere_is_not_followed(iceberg: IcebergPlace, uri: str) -> None:
    catalog: Any = iceberg.opened()
    with catalog.engine.begin() as connection:
        connection.execute(text("update iceberg_tables set metadata_location = :uri"), {"uri": uri})

    with pytest.raises(NeedsChange) as caught:
        port(iceberg).describe()

    assert uri in caught.value.message


def test_a_namespace_that_lies_elsewhere_gets_no_table(iceberg: IcebergPlace, tmp_path: Path) -> None:
    catalog: Any = iceberg.opened()
    catalog.create_namespace("other", {"location": "hdfs://127.0.0.1:9/x"})

    assert "hdfs" in refused(lambda: catalog.create_table("other.rows", ROWS.schema))


@pytest.mark.parametrize("is_there", [False, True])
def test_of_a_table_that_may_not_lie_in_the_warehouse_nothing_is_made(iceberg: IcebergPlace, is_there: bool) -> None:
    """The book's catalogs are for all namespaces, and their warehouse may be granted to others only."""
    catalog, folder = iceberg.opened(), Path(iceberg.settings.catalogs["test"].warehouse or "")
    if is_there:
        catalog.create_namespace("other")
    namespaces, files = catalog.list_namespaces(), set(folder.rglob("*"))
    of_team = iceberg.settings.in_buckets_only().used_by(Tenant("team", is_only=True))
    table = PyicebergTable(iceberg.catalog, "other.rows", of_team, CatalogBook(iceberg.settings))

    sink = validate_model(Sink, iceberg.sink())
    assert "is a path" in refused(lambda: table.create(encode_schema(ROWS.schema), sink), reasons.MANIFEST_INVALID)

    assert catalog.list_namespaces() == namespaces
    assert not catalog.table_exists("other.rows")
    assert set(folder.rglob("*")) == files


def test_what_a_catalog_has_answered_is_quoted_by_nobody() -> None:
    with pytest.raises(ValidationError) as caught:
        Schema.model_validate({"type": "struct", "fields": "s3cr3t"})

    said = translate_catalog_error(caught.value, "lake", Settings().place)

    assert "s3cr3t" in str(caught.value)
    assert "s3cr3t" not in said.message
    assert "fields" in said.message


def test_a_catalog_of_a_bucket_leads_to_no_file_on_disk(iceberg: IcebergPlace, tmp_path: Path) -> None:
    disk = iceberg.settings.catalogs["test"]
    settings = Settings(catalogs={"test": disk.model_copy(update={"warehouse": "s3://bucket/w"})}, storage=(DEAD,))

    assert "is a path" in refused(lambda: open_catalog("test", settings).load_table(iceberg.name))


def test_manifests_and_data_files_of_a_source_are_not_followed_elsewhere(iceberg: IcebergPlace) -> None:
    table = iceberg.table()
    pinned = describe(IcebergSource(catalog="test", table=iceberg.name), table)
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    metadata = Path(pinned.metadata_location.removeprefix("file://"))
    listed = metadata.read_text().replace(snapshot.manifest_list, "hdfs://127.0.0.1:9/list.avro")
    metadata.with_name("evil.metadata.json").write_text(listed)
    evil = pinned.model_copy(update={"metadata_location": str(metadata.with_name("evil.metadata.json"))})

    assert "hdfs://127.0.0.1:9/list.avro" in refused(lambda: find_files(evil, None, Settings(), None, "Fail"))


def test_data_files_elsewhere_are_not_read(iceberg: IcebergPlace) -> None:
    table = iceberg.table()
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    (manifest,) = snapshot.manifests(table.io)
    (entry,) = manifest.fetch_manifest_entry(table.io)
    evil = "hdfs://127.0.0.1:9/x.parquet"
    entry.data_file[1] = evil
    output = table.io.new_output(manifest.manifest_path)
    Path(manifest.manifest_path.removeprefix("file://")).unlink()
    assert entry.data_file.file_path == evil
    with write_manifest(2, table.spec(), table.schema(), output, snapshot.snapshot_id, "null") as rewritten:
        rewritten.add_entry(entry)

    pinned = pin(IcebergSource(catalog="test", table=iceberg.name), iceberg.settings)

    assert evil in refused(lambda: find_files(pinned, None, iceberg.settings, None, "Fail"))


@pytest.mark.parametrize("uri", ["goosefs://127.0.0.1:9/x", "file-object-store:///etc", "s3://bucket/x"])
def test_a_dataset_with_files_elsewhere_is_neither_read_nor_written(dataset: LancePlace, uri: str) -> None:
    target: Target | None = PylanceTable(dataset.uri, dataset.settings).describe()
    assert target is not None
    dataset.dataset().add_bases([lance.DatasetBasePath(uri, name="elsewhere")])

    assert uri in refused(lambda: PylanceTable(dataset.uri, dataset.settings).describe())
    assert uri in refused(lambda: find_fragments(LanceSource(uri=dataset.uri), None, dataset.settings, (), "Fail"))
    stager = stager_for(Append(), target, KEY, "0-0", 1 << 20, dataset.settings.for_drivers())
    assert uri in refused(lambda: stager.stage(iter(ROWS.to_batches())))

    copy = f"{dataset.uri}-copy"
    lance.write_dataset(ROWS, copy)
    assert PylanceTable(copy, dataset.settings).describe() is not None, "in one place"


def test_a_dataset_with_a_second_folder_on_disk_is_read(dataset: LancePlace, tmp_path: Path) -> None:
    dataset.dataset().add_bases([lance.DatasetBasePath(str(tmp_path / "more"), name="more")])

    try:
        assert PylanceTable(dataset.uri, dataset.settings).describe() is not None
    except CheckpointError as error:  # pragma: no cover
        pytest.fail(error.message)


def test_a_table_whose_history_has_no_beginning_is_refused(iceberg: IcebergPlace) -> None:
    iceberg.append(ROWS)
    source = IcebergSource(catalog="test", table=iceberg.name)
    file = Path(iceberg.table().metadata_location.removeprefix("file://"))
    written = file.read_text()
    metadata = json.loads(written)
    metadata["snapshots"][0]["parent-snapshot-id"] = metadata["snapshots"][1]["snapshot-id"]
    file.write_text(json.dumps(metadata))
    news = open_news(spec_of(iceberg), iceberg.settings)(TakenRecord(token="0" * 32, epoch=0), Known(0))
    assert news is not None

    for call in (
        port(iceberg).describe,
        lambda: port(iceberg).load(KEY),
        lambda: pin(source, iceberg.settings),
        lambda: list(news),
    ):
        assert "comes after itself" in refused(call)
    file.write_text(written)
    assert port(iceberg).describe() is not None, "set back"


def test_news_of_a_table_that_lies_about_its_files_and_times_begin_an_epoch_as_any_do(iceberg: IcebergPlace) -> None:
    for _ in range(10):
        iceberg.append(ROWS)
    file = Path(iceberg.table().metadata_location.removeprefix("file://"))
    metadata = json.loads(file.read_text())
    for snapshot in metadata["snapshots"]:
        snapshot["timestamp-ms"] = 1 << 62
        snapshot["summary"] |= {"added-data-files": "9" * 18, "added-files-size": "9" * 18}
    file.write_text(json.dumps(metadata))
    store, spec = MemoryStore(), spec_of(iceberg)
    ledger = ledger_over(store)
    ledger.inputs.put_input(input_of())
    end_epoch(ledger)

    between = Looks(spec, open_news(spec, iceberg.settings), lambda: datetime(2026, 11, 25, tzinfo=UTC)).between(ledger)

    assert between.begins
    assert between.news is not None
    assert Began(why="Trigger", at="", files=between.news.files, size_bytes=between.news.size_bytes).files > 1 << 62


@pytest.mark.parametrize("packed", [True, False])
def test_metadata_that_stand_for_more_than_there_is_memory_for_are_refused(iceberg: IcebergPlace, packed: bool) -> None:
    catalog: Any = iceberg.opened()
    book = CatalogBook(iceberg.settings, most_metadata_bytes=1 << 20)
    shared = PyicebergTable(iceberg.catalog, iceberg.name, iceberg.settings, book)
    assert shared.describe() is not None
    file = Path(iceberg.table().metadata_location.removeprefix("file://"))
    file = file.with_name("00009-x.gz.metadata.json") if packed else file
    with gzip.open(file, "ab") if packed else file.open("ab") as written:
        written.write(b" " * (2 << 20))
    with catalog.engine.begin() as connection:
        connection.execute(text("update iceberg_tables set metadata_location = :uri"), {"uri": f"file://{file}"})

    assert "that are read of a table's metadata" in refused(shared.describe)


def test_metadata_are_bounded_also_where_nobody_shares_catalogs(iceberg: IcebergPlace) -> None:
    file = Path(iceberg.table().metadata_location.removeprefix("file://"))
    with file.open("ab") as written:
        written.write(b" " * (MOST_METADATA_BYTES + 1))

    assert "that are read of a table's metadata" in refused(
        PyicebergTable(iceberg.catalog, iceberg.name, iceberg.settings).describe
    )


def test_manifests_of_tables_as_they_are_are_read_where_the_memory_is_for_many(iceberg: IcebergPlace) -> None:
    book = CatalogBook(iceberg.settings, most_metadata_bytes=1 << 20)
    table = PyicebergTable(iceberg.catalog, iceberg.name, iceberg.settings, book)

    assert table._version_of(iceberg.table()).has_any(lambda path: path.endswith(".parquet"))


@pytest.mark.parametrize("name", ["manifest list", "manifest"])
def test_manifests_that_stand_for_more_than_there_is_memory_for_are_refused(iceberg: IcebergPlace, name: str) -> None:
    snapshot = iceberg.table().metadata.current_snapshot()
    assert snapshot is not None
    listed = snapshot.manifest_list if name == "manifest list" else snapshot.manifests(iceberg.table().io)[0].manifest_path
    file = Path(listed.removeprefix("file://"))
    head = file.read_bytes()
    unpacked = zlib.compress(bytes(3 << 20))[2:-4]
    end = head[: head.index(head[-16:]) + 16]
    file.write_bytes(b"".join([end, zigzag(1), zigzag(len(unpacked)), unpacked, head[-16:]]))
    book = CatalogBook(iceberg.settings, most_metadata_bytes=1 << 20)
    table = PyicebergTable(iceberg.catalog, iceberg.name, iceberg.settings, book)
    state = table.load(KEY)
    assert state is not None
    version = table._version_of(iceberg.table())

    assert "stands for more than the 2,097,152 bytes" in refused(lambda: version.has_any(lambda path: False))
    file.write_bytes(head)
    assert version.has_any(lambda path: path.endswith(".parquet")), "rewritten"


def test_a_list_of_one_table_says_nothing_of_the_manifests_of_another(iceberg: IcebergPlace, tmp_path: Path) -> None:
    """Both name the same manifest. What the first one said of it would go into the next snapshot of the second."""
    table = PyicebergTable(iceberg.catalog, iceberg.name, iceberg.settings, CatalogBook(iceberg.settings))
    version = table._version_of(iceberg.table())
    snapshot = version.head
    assert snapshot is not None
    (own,) = version.manifests
    (forged,) = read_manifest_list(version.io.new_input(snapshot.manifest_list))
    forged[3] = ManifestContent.DELETES
    file = iceberg.table().io.new_output(f"file://{tmp_path}/forged.avro")
    with write_manifest_list(2, file, snapshot.snapshot_id, None, 1, "deflate") as writer:
        writer.add_manifests([forged])

    read = manifests_of(snapshot.model_copy(update={"manifest_list": file.location}), version.io)

    assert read[0].manifest_path == own.manifest_path
    assert read[0].content == ManifestContent.DELETES
    assert [manifest.content for manifest in version.manifests] == [ManifestContent.DATA]


def test_a_few_bytes_that_stand_for_more_items_than_there_is_memory_for_are_refused(iceberg: IcebergPlace) -> None:
    snapshot = iceberg.table().metadata.current_snapshot()
    assert snapshot is not None
    file = Path(snapshot.manifest_list.removeprefix("file://"))
    reader = read_manifest_list(iceberg.table().io.new_input(snapshot.manifest_list))
    manifest = next(iter(reader))
    manifest[13] = [PartitionFieldSummary(False, False, None, None)] * 100_000
    with write_manifest_list(2, iceberg.table().io.new_output(f"{snapshot.manifest_list}-2"), 1, None, 1, "deflate") as writer:
        writer.add_manifests([manifest])
    file.write_bytes(Path(f"{file}-2").read_bytes())
    assert file.stat().st_size < 5_000
    book = CatalogBook(iceberg.settings, most_metadata_bytes=1 << 20)
    table = PyicebergTable(iceberg.catalog, iceberg.name, iceberg.settings, book)

    assert "bytes of memory that are read" in refused(lambda: table._version_of(iceberg.table()).manifests)
    with turn(budget := MemoryBudget(64 << 20)):
        assert len(table._version_of(iceberg.table()).manifests) == 1
        assert budget.tables.taken > 100_000 * 300


def test_metadata_that_would_take_more_memory_than_there_is_are_refused(iceberg: IcebergPlace) -> None:
    file = Path(iceberg.table().metadata_location.removeprefix("file://"))
    file.write_bytes(file.read_bytes()[:-1] + b',"more":[' + b"{}," * 300_000 + b"{}]}")
    book = CatalogBook(iceberg.settings, most_metadata_bytes=1 << 20)
    table = PyicebergTable(iceberg.catalog, iceberg.name, iceberg.settings, book)

    assert "has 16,777,216 for the metadata of tables" in refused(table.describe)
    with turn(MemoryBudget(300 << 20)):
        assert table.describe() is not None, "recordMemory was raised"


def zigzag(number: int) -> bytes:
    number, data = number << 1, b""
    while number > 0x7F:
        number, data = number >> 7, data + bytes([number & 0x7F | 0x80])
    return data + bytes([number])


def spec_of(iceberg: IcebergPlace) -> Spec:
    document = {
        "source": {"iceberg": {"catalog": "test", "table": iceberg.name}},
        "sink": {"none": {}},
        "checkpoint": {"uri": "/checkpoints"},
        "trigger": {"every": "1m"},
    }
    return validate_model(Spec, document)

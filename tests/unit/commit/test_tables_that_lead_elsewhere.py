"""Tables whose metadata name places that nothing should open: refused before anything is read or written there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyiceberg.manifest import write_manifest
from sqlalchemy import text

from checkpoint_formats.iceberg.plan import find_files
from checkpoint_formats.lance.reader import find_fragments
from checkpoint_formats.stagers import stager_for
from checkpoint_operator.catalogs import open_catalog
from checkpoint_operator.commit.iceberg_table import PyicebergTable
from checkpoint_operator.commit.lance_table import PylanceTable
from checkpoint_operator.source_tables import describe, pin
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.records import Append, Target
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.source import IcebergSource, LanceSource
from checkpoint_protocol.storage import StorageEntry
from tests.support.places import IcebergPlace, LancePlace, on_disk
from tests.support.records import KEY

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


def test_a_dataset_with_a_second_folder_on_disk_is_read(dataset: LancePlace, tmp_path: Path) -> None:
    dataset.dataset().add_bases([lance.DatasetBasePath(str(tmp_path / "more"), name="more")])

    try:
        assert PylanceTable(dataset.uri, dataset.settings).describe() is not None
    except CheckpointError as error:  # pragma: no cover
        pytest.fail(error.message)

"""Places to write to: a checkpoint store and a table, on disk or on a real S3 server, under a SQL or a REST catalog.

Each reads its table with the library's own reader, so that checks never trust what the product says of itself.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from lance.namespace import CreateNamespaceRequest, DescribeTableRequest, DirectoryNamespace
from pydantic import SecretStr
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of

from checkpoint_commit.catalogs.named import open_catalog
from checkpoint_protocol.manifest.spec import validate_model
from checkpoint_protocol.places.settings import (
    CatalogSettings,
    GlueCatalogSettings,
    NamespaceSettings,
    RestCatalogSettings,
    Settings,
    SqlCatalogSettings,
)
from checkpoint_protocol.places.storage import StorageEntry, lance_options
from checkpoint_protocol.places.uris import local_path
from devtools.azure_server import AzureServer
from devtools.gcs_server import GcsServer
from devtools.glue_server import GlueServer
from devtools.rest_catalog import RestCatalog
from devtools.s3_server import S3Server
from tests.support.vending import Vending

KEY_PROPERTY = "checkpointed-write.key"
KINDS = ("iceberg", "lance")
PLACES = ("iceberg-sql-disk", "iceberg-rest-disk", "iceberg-sql-s3", "lance-disk", "lance-s3")
DISK_PLACES = ("iceberg-sql-disk", "lance-disk")


@dataclass
class Place(ABC):
    """A checkpoint store and a table."""

    folder: Path
    settings: Settings
    checkpoint_uri: str
    base_uri: str

    @abstractmethod
    def sink(self) -> dict[str, Any]:
        """The sink section of a manifest."""

    @abstractmethod
    def create(self, schema: pa.Schema) -> None:
        """Make the table."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """All rows of the table."""

    @abstractmethod
    def append(self, rows: pa.Table) -> None:
        """Append as a stranger."""

    @abstractmethod
    def keys(self) -> list[str]:
        """The idempotence keys in the table's history, one for each snapshot or version that carries one."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether there is a table."""

    @abstractmethod
    def data_files(self) -> list[str]:
        """Paths of the data files in the current version."""


@dataclass
class IcebergPlace(Place):
    catalog: str = "test"
    name: str = "db.rows"

    def sink(self) -> dict[str, Any]:
        return {"iceberg": {"catalog": self.catalog, "table": self.name}}

    def opened(self) -> Catalog:
        return open_catalog(self.catalog, self.settings)

    def table(self) -> Table:
        return self.opened().load_table(self.name)

    def create(self, schema: pa.Schema) -> None:
        catalog = self.opened()
        catalog.create_namespace_if_not_exists(self.name.split(".")[0])
        catalog.create_table(self.name, schema)

    def rows(self) -> list[dict[str, Any]]:
        return list(self.table().scan().to_arrow().to_pylist())

    def append(self, rows: pa.Table) -> None:
        self.table().append(rows)

    def keys(self) -> list[str]:
        metadata = self.table().metadata
        return [
            snapshot.summary.additional_properties[KEY_PROPERTY]
            for snapshot in ancestors_of(metadata.current_snapshot(), metadata)
            if snapshot.summary is not None and KEY_PROPERTY in snapshot.summary.additional_properties
        ]

    def exists(self) -> bool:
        return self.opened().table_exists(self.name)

    def data_files(self) -> list[str]:
        return [task.file.file_path for task in self.table().scan().plan_files()]


@dataclass
class LancePlace(Place):
    @property
    def uri(self) -> str:
        return f"{self.base_uri}/rows.lance"

    @property
    def options(self) -> dict[str, str]:
        return lance_options(self.uri, self.settings)

    def dataset(self) -> Any:
        return lance.dataset(self.uri, storage_options=self.options)

    def sink(self) -> dict[str, Any]:
        return {"lance": {"uri": self.uri}}

    def create(self, schema: pa.Schema) -> None:
        lance.write_dataset(schema.empty_table(), self.uri, schema=schema, storage_options=self.options)

    def rows(self) -> list[dict[str, Any]]:
        return list(self.dataset().to_table().to_pylist())

    def append(self, rows: pa.Table) -> None:
        lance.write_dataset(rows, self.uri, mode="append", storage_options=self.options)

    def keys(self) -> list[str]:
        dataset = self.dataset()
        found = []
        for version in range(dataset.version, 0, -1):
            transaction = dataset.read_transaction(version)
            properties = transaction.transaction_properties or {} if transaction is not None else {}
            if KEY_PROPERTY in properties:
                found.append(properties[KEY_PROPERTY])
        return found

    def exists(self) -> bool:
        try:
            self.dataset()
        except (ValueError, OSError):
            return False
        return True

    def data_files(self) -> list[str]:
        return [file.path for fragment in self.dataset().get_fragments() for file in fragment.data_files()]


@dataclass
class NamedLancePlace(LancePlace):
    """A dataset that is known by the name of a table of the namespace `lake`."""

    table: str = "raw.events"

    @property
    def lake(self) -> DirectoryNamespace:
        """The namespace as others see it."""
        options = lance_options(self.base_uri, self.settings)
        return DirectoryNamespace(root=self.base_uri, **{f"storage.{name}": value for name, value in options.items()})

    @property
    def uri(self) -> str:
        found = str(self.lake.describe_table(DescribeTableRequest(id=self.table.split("."))).location)
        return str(local_path(found) or found)

    def sink(self) -> dict[str, Any]:
        return {"lance": {"namespace": "lake", "table": self.table}}


def in_lake(folder: Path, server: int | None = None, bucket: Place | None = None, **entry: Any) -> NamedLancePlace:
    """Return a table that is not there yet, of a folder or bucket. `server`: the port where pylance serves the same folder."""
    root = f"{bucket.base_uri if bucket is not None else folder}/lake"
    way = {"type": "directory", "root": root} if server is None else {"type": "rest", "uri": f"http://127.0.0.1:{server}"}
    lake = validate_model(NamespaceSettings, {**way, **entry})
    settings = (bucket.settings if bucket is not None else Settings()).model_copy(update={"namespaces": {"lake": lake}})
    place = NamedLancePlace(folder, settings, str(folder / "checkpoints"), root)
    place.lake.create_namespace(CreateNamespaceRequest(id=["raw"]))
    return place


def _storage(server: S3Server, bucket: str) -> StorageEntry:
    return StorageEntry(
        prefix=f"s3://{bucket}/",
        endpoint=server.endpoint,
        region=server.region,
        access_key_id=SecretStr(server.access_key),
        secret_access_key=SecretStr(server.secret_key),
    )


def on_disk(folder: Path, kind: str, rest: RestCatalog | None = None) -> Place:
    """Return a place in a folder, with a SQLite catalog unless a REST server is given."""
    base = folder / "größe und maß"
    base.mkdir(parents=True)
    name = f"db{uuid.uuid4().hex[:8]}.rows"
    if rest is not None:
        catalog: CatalogSettings = RestCatalogSettings(uri=rest.uri)
    else:
        catalog = SqlCatalogSettings(uri=f"sqlite:///{base}/catalog.db", warehouse=f"file://{base}/warehouse")
    settings = Settings(catalogs={"test": catalog} if kind == "iceberg" else {})
    if kind == "iceberg":
        return IcebergPlace(folder, settings, str(base / "checkpoints"), str(base), name=name)
    return LancePlace(folder, settings, str(base / "checkpoints"), str(base))


def on_s3(folder: Path, kind: str, server: S3Server) -> Place:
    """Return a place in a fresh bucket of a real S3 server; the catalog of an Iceberg table is SQLite."""
    bucket = server.make_bucket(f"b-{uuid.uuid4().hex[:12]}")
    return _in_bucket(folder, kind, f"s3://{bucket}", _storage(server, bucket))


def on_glue(folder: Path, glue: GlueServer, server: S3Server) -> IcebergPlace:
    """Return a place in a fresh bucket of a real S3 server, whose table is in a database of its own of Glue."""
    place = on_s3(folder, "iceberg", server)
    assert isinstance(place, IcebergPlace)
    catalog = GlueCatalogSettings(
        endpoint=glue.endpoint,
        region=glue.region,
        access_key_id=SecretStr("any"),
        secret_access_key=SecretStr("any"),
        warehouse=f"{place.base_uri}/warehouse",
    )
    settings = place.settings.model_copy(update={"catalogs": {"test": catalog}})
    return replace(place, settings=settings, name=f"db{uuid.uuid4().hex[:8]}.rows")


def on_vending(folder: Path, vending: Vending, catalog: RestCatalog, server: S3Server) -> IcebergPlace:
    """Return a place in a fresh bucket for all but the table, whose catalog hands out the keys for its files."""
    place = on_s3(folder, "iceberg", server)
    assert isinstance(place, IcebergPlace)
    entry = RestCatalogSettings(uri=vending.uri, credentials="vended")
    files = StorageEntry(prefix=f"{catalog.warehouse}/", endpoint=server.endpoint, region=server.region, credentials="vended")
    settings = place.settings.model_copy(update={"catalogs": {"test": entry}, "storage": (*place.settings.storage, files)})
    return replace(place, settings=settings, name=f"db{uuid.uuid4().hex[:8]}.rows")


def on_gcs(folder: Path, kind: str, server: GcsServer) -> Place:
    """Return a place in a fresh bucket of Google Cloud Storage, reached with a key file."""
    bucket = server.make_bucket(f"b-{uuid.uuid4().hex[:12]}")
    entry = StorageEntry(prefix=f"gs://{bucket}/", endpoint=server.endpoint, service_account_file=str(server.key_file))
    return _in_bucket(folder, kind, f"gs://{bucket}", entry)


def _in_bucket(folder: Path, kind: str, base: str, entry: StorageEntry) -> Place:
    storage = (entry,)
    if kind == "iceberg":
        catalog = SqlCatalogSettings(uri=f"sqlite:///{folder}/catalog.db", warehouse=f"{base}/warehouse")
        return IcebergPlace(folder, Settings(catalogs={"test": catalog}, storage=storage), f"{base}/checkpoints", base)
    return LancePlace(folder, Settings(storage=storage), f"{base}/checkpoints", base)


def on_azure(folder: Path, kind: str, server: AzureServer) -> Place:
    """Return a place in a fresh container of Azure's emulator, with URIs as people write them for each library."""
    bucket = server.make_bucket(f"b-{uuid.uuid4().hex[:12]}")
    keys: dict[str, Any] = {"account_name": server.account, "account_key": SecretStr(server.key), "endpoint": server.endpoint}
    base, storage = f"az://{bucket}", (StorageEntry(prefix=f"az://{bucket}/", **keys),)
    if kind == "iceberg":
        warehouse = f"abfss://{bucket}@{server.account}.dfs.core.windows.net/warehouse"
        catalog = SqlCatalogSettings(uri=f"sqlite:///{folder}/catalog.db", warehouse=warehouse)
        return IcebergPlace(folder, Settings(catalogs={"test": catalog}, storage=storage), f"{base}/checkpoints", base)
    return LancePlace(folder, Settings(storage=storage), f"{base}/checkpoints", base)

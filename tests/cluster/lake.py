"""Where the data is: buckets of an S3 server and tables of a REST catalog, read back from outside the cluster."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import lance
import pyarrow as pa
from pydantic import SecretStr

from checkpoint_commit.catalogs.named import open_catalog
from checkpoint_protocol.places.settings import RestCatalogSettings, Settings
from checkpoint_protocol.places.storage import StorageEntry, lance_options
from devtools.gate import Gate
from devtools.rest_catalog import RestCatalog
from devtools.s3_server import S3Server
from tests.cluster.barriers import Barriers
from tests.support.places import IcebergPlace, LancePlace, Place
from tests.support.vending import Vending

CATALOG = "lakehouse"
#: The same catalog, which hands out the keys for its tables; and the namespace of these.
VENDING, VENDED = "vending", "vended"
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


@dataclass(frozen=True, slots=True)
class Lake:
    """`gate` is before the catalog: the operator comes through it, this process does not. `vending` is, too, and hands out keys.
    Steps wait at `barriers`.
    """

    s3: S3Server
    catalog: RestCatalog
    gate: Gate
    vending: Vending
    barriers: Barriers

    @property
    def settings(self) -> Settings:
        return Settings(
            catalogs={
                CATALOG: RestCatalogSettings(uri=self.catalog.uri),
                VENDING: RestCatalogSettings(uri=self.vending.uri, credentials="vended"),
            },
            storage=(
                StorageEntry(prefix=self.vended_prefix, endpoint=self.s3.endpoint, region=self.s3.region, credentials="vended"),
                StorageEntry(
                    prefix="s3://",
                    endpoint=self.s3.endpoint,
                    region=self.s3.region,
                    access_key_id=SecretStr(self.s3.access_key),
                    secret_access_key=SecretStr(self.s3.secret_key),
                ),
            ),
        )

    @property
    def vended_prefix(self) -> str:
        """Where the tables lie for whose files the catalog hands out keys."""
        return f"{self.catalog.warehouse}/{VENDED}/"

    def make_place(self, folder: Any, kind: str) -> Place:
        """Return a fresh bucket with a table of that format, which does not exist yet. vended: an Iceberg table, which lies where
        its catalog hands out keys.
        """
        bucket = self.s3.make_bucket(f"b-{uuid.uuid4().hex[:12]}")
        base = f"s3://{bucket}"
        if kind == "vended":
            name = f"{VENDED}.rows{uuid.uuid4().hex[:8]}"
            return IcebergPlace(folder, self.settings, f"{base}/checkpoints", base, catalog=VENDING, name=name)
        if kind == "iceberg":
            name = f"db{uuid.uuid4().hex[:8]}.rows"
            return IcebergPlace(folder, self.settings, f"{base}/checkpoints", base, catalog=CATALOG, name=name)
        return LancePlace(folder, self.settings, f"{base}/checkpoints", base)

    def open_catalog(self) -> Any:
        return open_catalog(CATALOG, self.settings)

    def open_dataset(self, uri: str) -> Any:
        return lance.dataset(uri, storage_options=lance_options(uri, self.settings))

"""Iceberg tables of format version 3, which a REST catalog keeps: pyiceberg 0.12 reads them, and writes none."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, ManifestContent

from checkpoint_control.decision.actions import Finish
from checkpoint_formats.iceberg.file_io import open_file_io
from checkpoint_formats.iceberg.manifests_3 import read_entries, read_manifests
from devtools.rest_catalog import RestCatalog
from tests.support.places import IcebergPlace, on_disk
from tests.support.writes import drive, manifest_for, reconciler_for


@dataclass
class Format3Place(IcebergPlace):
    """A stranger's append is a write of the product to it, whose key is not among those that are told."""

    strangers: set[str] = field(default_factory=set)

    def create(self, schema: pa.Schema) -> None:
        catalog = self.opened()
        catalog.create_namespace_if_not_exists(self.name.split(".")[0])
        catalog.create_table(self.name, schema, properties={"format-version": "3"})

    def append(self, rows: pa.Table) -> None:
        token = uuid.uuid4().hex[:12]
        folder = self.folder / "appended" / token
        folder.mkdir(parents=True)
        pq.write_table(rows, folder / "rows.parquet")
        before = set(super().keys())
        manifest = manifest_for(self, folder, name=f"append-{token}", sink={"mode": "Append"})
        ended = drive(reconciler_for(manifest, self))
        assert isinstance(ended.outcome, Finish), ended.outcome
        self.strangers |= set(super().keys()) - before

    def keys(self) -> list[str]:
        there = super().keys()
        return [key for key in there if key not in self.strangers]

    def files(self, content: ManifestContent) -> list[DataFile]:
        """Return the data files, or the delete files, of the head, with all that format 3 says of them."""
        table = self.table()
        head = table.current_snapshot()
        assert head is not None
        io = open_file_io(table.metadata_location, self.settings, None)
        manifests = [manifest for manifest in read_manifests(head, io) if manifest.content == content]
        return [entry.data_file for manifest in manifests for entry in read_entries(manifest, io)]


def on_rest(folder: Path, catalog: RestCatalog) -> Format3Place:
    """Return a place in a folder, with a table of format 3 once one is made."""
    made = on_disk(folder, "iceberg", catalog)
    assert isinstance(made, IcebergPlace)
    return Format3Place(made.folder, made.settings, made.checkpoint_uri, made.base_uri, name=made.name)


def upgrade_by_hand(
    place: IcebergPlace, where: Sequence[str | int] = (), member: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Upgrade the table as another client of its catalog does. `member`: what that one says besides, at this place."""
    table = place.table()
    with table.io.new_input(table.metadata_location).open() as file:
        metadata = json.loads(file.read())
    metadata |= {"format-version": 3, "next-row-id": metadata.get("next-row-id", 0)}
    metadata.pop("encryption-keys", None)
    at: Any = metadata
    for step in where:
        at = at[step]
    at |= member
    location = f"{table.location()}/metadata/00009-{uuid.uuid4()}.metadata.json"
    with table.io.new_output(location).create() as output:
        output.write(json.dumps(metadata).encode())
    point_at(place, location)


def point_at(place: IcebergPlace, location: str) -> None:
    """Make a metadata file that of the table."""
    catalog = place.opened()
    catalog.drop_table(place.name)
    catalog.register_table(place.name, location)

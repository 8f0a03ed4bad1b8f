"""Source tables for tests, beside the place that is written to: same store, same catalog, other name."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table

from checkpoint_commit.catalogs.named import open_catalog
from checkpoint_protocol.places.settings import Settings, SqlCatalogSettings
from checkpoint_protocol.places.storage import lance_options
from tests.support.places import Place


@dataclass
class SourceTable:
    """A table to read from. Subclasses know the format."""

    place: Place

    def section(self, **more: Any) -> dict[str, Any]:
        """The source section of a manifest."""
        raise NotImplementedError

    def append(self, rows: pa.Table) -> None:
        """Append in one transaction; the first makes the table."""
        raise NotImplementedError

    def rows(self) -> list[dict[str, Any]]:
        """All rows, by the library's own scan."""
        raise NotImplementedError

    def delete(self, condition: str) -> None:
        """Delete rows, as the library does it."""
        raise NotImplementedError


@dataclass
class IcebergSourceTable(SourceTable):
    name: str = ""

    def section(self, **more: Any) -> dict[str, Any]:
        catalog = next(iter(self.place.settings.catalogs))
        return {"iceberg": {"catalog": catalog, "table": self.name}, **more}

    @property
    def catalog(self) -> Any:
        return open_catalog(next(iter(self.place.settings.catalogs)), self.place.settings)

    def table(self) -> Table:
        loaded: Table = self.catalog.load_table(self.name)
        return loaded

    def append(self, rows: pa.Table) -> None:
        catalog = self.catalog
        catalog.create_namespace_if_not_exists(self.name.split(".")[0])
        catalog.create_table_if_not_exists(self.name, rows.schema).append(rows)

    def rows(self) -> list[dict[str, Any]]:
        return list(self.table().scan().to_arrow().to_pylist())

    def delete(self, condition: str) -> None:
        self.table().delete(condition)

    def compact(self) -> None:
        """Rewrite all data files as one, in a snapshot that says `replace`, as rewrite_data_files of Spark makes it."""
        table = self.table()
        rows, files = table.scan().to_arrow(), [task.file for task in table.scan().plan_files()]
        with table.transaction() as transaction, transaction.update_snapshot().overwrite() as rewritten:
            for file in files:
                rewritten.delete_data_file(file)
            for file in _dataframe_to_data_files(transaction.table_metadata, rows, table.io):
                rewritten.append_data_file(file)
        # pyiceberg makes no such snapshot itself; the table has been made by nobody else.
        metadata = Path(self.table().metadata_location.removeprefix("file://"))
        metadata.write_text(metadata.read_text().replace('"operation":"overwrite"', '"operation":"replace"'))


@dataclass
class LanceSourceTable(SourceTable):
    name: str = ""
    has_stable_row_ids: bool = False

    @property
    def uri(self) -> str:
        return f"{self.place.base_uri}/{self.name}.lance"

    @property
    def options(self) -> dict[str, str]:
        return lance_options(self.uri, self.place.settings)

    def section(self, **more: Any) -> dict[str, Any]:
        return {"lance": {"uri": self.uri}, **more}

    def dataset(self) -> Any:
        return lance.dataset(self.uri, storage_options=self.options)

    def append(self, rows: pa.Table) -> None:
        lance.write_dataset(
            rows, self.uri, mode="append", storage_options=self.options, enable_stable_row_ids=self.has_stable_row_ids
        )

    def compact(self) -> None:
        """Put all rows into one fragment, without those that were deleted."""
        self.dataset().optimize.compact_files(materialize_deletions_threshold=0.0)

    def rows(self) -> list[dict[str, Any]]:
        return list(self.dataset().to_table().to_pylist())

    def delete(self, condition: str) -> None:
        self.dataset().delete(condition)


def source_beside(place: Place, kind: str) -> SourceTable:
    """Return a source table that does not exist yet, in the store of the place. A Lance place gets a catalog for it."""
    name = f"source{uuid.uuid4().hex[:8]}"
    if kind == "lance":
        return LanceSourceTable(place, name)
    if not place.settings.catalogs:
        warehouse = f"{place.base_uri}/warehouse" if "://" in place.base_uri else f"file://{place.base_uri}/warehouse"
        catalog = SqlCatalogSettings(uri=f"sqlite:///{place.folder}/source.db", warehouse=warehouse)
        place.settings = Settings(catalogs={"test": catalog}, storage=place.settings.storage)
    return IcebergSourceTable(place, f"{name}.rows")

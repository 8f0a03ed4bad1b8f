"""What is in a table, read by DuckDB, which has no part in writing it: outputs are compared before times count."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
from pyiceberg.table import StaticTable, Table

_CONTENT = 'hash(id, "key", epoch_us("at"), kind, value, "text")'


@dataclass(frozen=True, slots=True)
class Content:
    """The rows of an output whatever their order. `fingerprint` is a sum over the hashes of whole rows."""

    rows: int
    distinct: int
    fingerprint: int

    def missing_of(self, rows: int) -> int:
        return rows - self.distinct

    @property
    def doubled(self) -> int:
        return self.rows - self.distinct


def of_files(files: Iterable[str | Path]) -> Content:
    """Return what Parquet files hold, taken together."""
    names = [urlsplit(str(file)).path for file in files]  # a path, file:///path, or as Spark writes it, file:/path
    if not names:
        return Content(0, 0, 0)
    with duckdb.connect() as connection:
        return _content(connection.read_parquet(names))


def of_iceberg(table: Table) -> Content:
    """Return what the current snapshot of a table holds. No deletes are looked at: none are written here."""
    return _of_snapshot(table.refresh())


def of_iceberg_folder(folder: Path) -> Content:
    """Return what a table of a Hadoop catalog holds, which is a folder."""
    version = (folder / "metadata" / "version-hint.text").read_text().strip()
    return _of_snapshot(StaticTable.from_metadata(str(folder / "metadata" / f"v{version}.metadata.json")))


def _of_snapshot(table: Table) -> Content:
    return of_files(task.file.file_path for task in table.scan().plan_files())


def of_lance(uri: str | Path) -> Content:
    import lance

    with duckdb.connect() as connection:
        return _content(connection.from_arrow(lance.dataset(str(uri)).scanner().to_reader()))


def _content(relation: Any) -> Content:
    made = relation.query("found", f"SELECT count(*), count(DISTINCT id), coalesce(sum({_CONTENT}), 0) FROM found").fetchone()  # noqa: S608 names of the benchmark itself
    assert made is not None
    return Content(*(int(number) for number in made))

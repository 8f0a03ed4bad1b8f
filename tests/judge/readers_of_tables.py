"""What the product reads of a source table of Iceberg, and what DuckDB does."""

from __future__ import annotations

import itertools
import random
from functools import cache
from typing import Any

import duckdb
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from checkpoint_formats.iceberg.plan import find_files
from checkpoint_formats.readers import reader_for
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.selecting import selection_of
from checkpoint_protocol.manifest.sources.source import IcebergSource, Source
from checkpoint_protocol.rows.positions import Range
from tests.contract.test_source_tables import STORAGE, columns_to_read, pinned_in
from tests.end_to_end.test_read_back import load_duckdb_extensions

_LITTLE = 2.0**-15


def by_product(catalog: Catalog, of: random.Random, name: str = "db.source", **narrowed: Any) -> list[dict[str, Any]]:
    """Read a table as tasks do: each file from its plan, cut anywhere, in large chunks or in small ones."""
    source = Source(iceberg=IcebergSource(catalog="test", table=name), **narrowed)
    table = pinned_in(catalog, source)
    schema = columns_to_read(table, source)
    reader = reader_for(source, STORAGE, (table,))
    rows: list[dict[str, Any]] = []
    for number, file in enumerate(find_files(table, selection_of(source).condition, STORAGE, None, "Fail")):
        assert file.end is not None
        borders = sorted({0, file.end, *(of.randint(0, file.end) for _ in range(of.randint(0, 2)))})
        for start, end in itertools.pairwise(borders):
            sizing = BatchSizing(60.0, scale=of.choice([_LITTLE, 1.0]))
            for chunk in reader.read(file, Range(file=number, start=start, end=end), schema, sizing):
                chunk.batch.validate(full=True)
                rows += chunk.batch.to_pylist()
    return rows


def by_duckdb(table: Table) -> list[dict[str, Any]] | None:
    """Return what DuckDB finds in a table by the ids of its fields; None if it cannot read it."""
    metadata = table.metadata_location.removeprefix("file://")
    try:
        found = _connection().execute("FROM iceberg_scan(?)", [metadata]).to_arrow_table()
    except duckdb.Error:
        return None
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """Open one for all tables: loading what it needs for them takes as long as many tables."""
    made = duckdb.connect()
    load_duckdb_extensions(made)
    made.execute("SET TimeZone = 'UTC'")
    return made

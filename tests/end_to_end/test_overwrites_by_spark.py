"""Overwrites of Iceberg tables that Spark has made, and deleted rows of, in the formats 2 and 3: read by Spark, DuckDB and
pyiceberg. One session of Spark, which is asked before and after.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_control.decision.actions import Finish
from devtools.rest_catalog import RestCatalog
from tests.end_to_end.test_read_back import load_duckdb_extensions
from tests.support.places import IcebergPlace, on_disk
from tests.support.spark_sql import Spark, open_spark
from tests.support.writes import drive, manifest_for, reconciler_for

pytestmark = pytest.mark.spark

Row = tuple[int, str]
THERE: list[Row] = [(1, "DE"), (2, "DE"), (3, "FR"), (4, "FR"), (5, "IT"), (6, "IT")]
#: Spark deletes these, by position deletes or, in format 3, by deletion vectors.
DELETED = (2, 4, 6)
NEW: list[Row] = [(11, "DE"), (12, "DE")]
ALL, WHERE = {"mode": "OverwriteAll"}, {"mode": "OverwriteWhere", "where": "country = 'DE'"}
PARTITIONS = {"mode": "OverwritePartitions"}


@pytest.fixture
def spark(rest_catalog: RestCatalog, tmp_path: Path) -> Iterator[Spark]:
    with open_spark(rest_catalog.uri, tmp_path / "spark.log") as opened:
        yield opened


def make(place: IcebergPlace, spark: Spark, name: str, version: int) -> IcebergPlace:
    """Make a table of Spark's, partitioned, of which some rows are deleted."""
    table = IcebergPlace(
        place.folder, place.settings, place.checkpoint_uri, place.base_uri, name=f"{place.name.split('.')[0]}.{name}"
    )
    spark.rows(
        f"CREATE TABLE r.{table.name} (id bigint, country string) USING iceberg PARTITIONED BY (country) TBLPROPERTIES "
        f"('format-version' = '{version}', 'write.delete.mode' = 'merge-on-read')"
    )
    spark.rows(f"INSERT INTO r.{table.name} VALUES {', '.join(map(str, THERE))}")
    spark.rows(f"DELETE FROM r.{table.name} WHERE id IN {DELETED}")
    return table


def overwrite(table: IcebergPlace, folder: Path, rows: list[Row], **sink: Any) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(
        pa.table({"id": [number for number, _ in rows], "country": [country for _, country in rows]}), folder / "rows.parquet"
    )
    name = table.name.split(".")[1].replace("_", "-").lower()
    ended = drive(reconciler_for(manifest_for(table, folder, name=name, sink=sink), table))
    assert isinstance(ended.outcome, Finish), ended.outcome


def by_duckdb(table: IcebergPlace) -> list[Row]:
    connection = duckdb.connect(config={"extension_directory": str(table.folder / "duckdb")})
    load_duckdb_extensions(connection)
    metadata = table.table().metadata_location.removeprefix("file://")
    found = connection.sql(f"SELECT id, country FROM iceberg_scan('{metadata}') ORDER BY id").fetchall()
    connection.close()
    return [(number, country) for number, country in found]


@pytest.mark.slow
def test_what_each_overwrite_leaves_is_read_alike_by_all_and_rows_that_stay_keep_their_ids(
    spark: Spark, rest_catalog: RestCatalog, tmp_path: Path
) -> None:
    place = on_disk(tmp_path, "iceberg", rest_catalog)
    assert isinstance(place, IcebergPlace)
    spark.rows(f"CREATE NAMESPACE r.{place.name.split('.')[0]}")
    stays: list[Row] = [(3, "FR"), (5, "IT")]

    for version in (2, 3):
        for number, (sink, expected) in enumerate(((ALL, NEW), (WHERE, [*stays, *NEW]), (PARTITIONS, [*stays, *NEW]))):
            where = (version, sink)
            table = make(place, spark, f"t{version}_{number}", version)
            before = spark.rows(f"SELECT id, _row_id FROM r.{table.name} ORDER BY id") if version == 3 else []
            overwrite(table, tmp_path / f"{version}-{number}", NEW, **sink)

            found = [tuple(row) for row in spark.rows(f"SELECT id, country FROM r.{table.name} ORDER BY id")]
            assert found == expected, where
            assert by_duckdb(table) == expected, where
            assert sorted((row["id"], row["country"]) for row in table.rows()) == expected, where
            (summary,) = spark.rows(f"SELECT summary FROM r.{table.name}.snapshots ORDER BY committed_at DESC LIMIT 1")
            said = summary[0]
            assert said["total-records"] == str({"OverwriteAll": 2}.get(sink["mode"], 6)), (where, said)
            if version == 3:
                kept = {row[0]: row[1] for row in before if row[0] in (3, 5)}
                after = {row[0]: row[1] for row in spark.rows(f"SELECT id, _row_id FROM r.{table.name}")}
                assert len(set(after.values())) == len(after), where
                assert {row: after[row] for row in kept if row in after} == (kept if sink is not ALL else {}), where
                assert min(after[11], after[12]) > max(row[1] for row in before), where

            # Spark goes on with the table as it is: it deletes by vectors again, and adds rows.
            spark.rows(f"DELETE FROM r.{table.name} WHERE id = 11")
            spark.rows(f"INSERT INTO r.{table.name} VALUES (21, 'FR')")
            left = sorted([*(row for row in expected if row[0] != 11), (21, "FR")])
            assert [tuple(row) for row in spark.rows(f"SELECT id, country FROM r.{table.name} ORDER BY id")] == left, where
            assert by_duckdb(table) == left, where
            if version == 3:
                ids = [row[0] for row in spark.rows(f"SELECT _row_id FROM r.{table.name}")]
                assert len(set(ids)) == len(ids), where

"""Iceberg tables as others have made them, written by the whole loop and read, and written, by Spark's Iceberg beside it.

One session of Spark for all of them. Of transforms it is the judge: a twin of the table, into which Spark itself puts the same
rows, must have the same partitions.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, TruncateTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from checkpoint_control.decision.actions import Finish
from devtools.rest_catalog import RestCatalog
from devtools.spark_iceberg import iceberg_spark_runtime
from tests.end_to_end.test_read_back import load_duckdb_extensions
from tests.support.places import IcebergPlace, on_disk
from tests.support.rest_tables import create_3
from tests.support.waiting import patience
from tests.support.writes import drive, manifest_for, reconciler_for

SPARK = """
import json, sys
from pyspark.sql import SparkSession
jar, uri, namespace, out = sys.argv[1:]
spark = (SparkSession.builder.master("local[1]").config("spark.jars", jar).config("spark.ui.enabled", "false")
    .config("spark.sql.catalog.r", "org.apache.iceberg.spark.SparkCatalog").config("spark.sql.catalog.r.type", "rest")
    .config("spark.sql.catalog.r.uri", uri).config("spark.sql.catalog.r.cache-enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC").getOrCreate())
def rows(sql):
    return [tuple(row) for row in spark.sql(sql.replace("db.", f"r.{namespace}.")).collect()]
found = {}
found["ids"] = rows("SELECT id FROM db.field ORDER BY id")
found["same rows"] = rows(
    "SELECT count(*) FROM (SELECT * FROM db.field EXCEPT ALL SELECT * FROM db.twin)") if not rows(
    "INSERT INTO db.twin SELECT * FROM db.field") else None
for name in ("field", "twin"):
    partition = "to_json(partition, map('ignoreNullFields', 'false'))"
    found[name] = rows(f"SELECT {partition}, sum(record_count) FROM db.{name}.files GROUP BY 1 ORDER BY 1")
found["orders"] = rows("SELECT DISTINCT sort_order_id FROM db.field.files")
found["by bucket"] = rows("SELECT count(*) FROM db.field WHERE text = 't3'")
found["lineage"] = rows("SELECT id, _row_id, _last_updated_sequence_number FROM db.lines ORDER BY id")
found["defaults"] = rows("SELECT id, kind, amount FROM db.lines ORDER BY id")
rows("INSERT INTO db.lines (id) VALUES (100), (101)")
found["lineage after"] = rows("SELECT id, _row_id FROM db.lines ORDER BY id")
open(out, "w").write(json.dumps(found, default=str))
spark.stop()
"""

TYPES: dict[str, IcebergType] = {
    "id": LongType(),
    "small": IntegerType(),
    "text": StringType(),
    "day": DateType(),
    "at": TimestampType(),
    "utc": TimestamptzType(),
    "amount": DecimalType(10, 2),
    "big": DecimalType(30, 4),
    "ratio": DoubleType(),
    "half": FloatType(),
    "flag": BooleanType(),
    "raw": BinaryType(),
    "uid": UUIDType(),
    "fixed": FixedType(4),
}
SCHEMA = Schema(*(NestedField(number, name, kind) for number, (name, kind) in enumerate(TYPES.items(), 1)))
BUCKETED = ("id", "small", "text", "day", "at", "utc", "amount", "big", "raw", "fixed")
TRUNCATED: Mapping[str, int] = {"id": 7, "text": 2, "amount": 250, "raw": 1}
SORTED = SortOrder(
    SortField(source_id=3, transform=TruncateTransform(1), direction=SortDirection.DESC, null_order=NullOrder.NULLS_LAST),
    SortField(source_id=9, transform=IdentityTransform()),
)


def spec() -> PartitionSpec:
    by: list[tuple[str, Transform[Any, Any]]] = [(f"{name}_bucket", BucketTransform(3)) for name in BUCKETED]
    by += [(f"{name}_trunc", TruncateTransform(width)) for name, width in TRUNCATED.items()]
    return PartitionSpec(
        *(
            PartitionField(
                source_id=SCHEMA.find_field(name.rpartition("_")[0]).field_id, field_id=1000 + n, transform=transform, name=name
            )
            for n, (name, transform) in enumerate(by)
        )
    )


def values(rows: int = 24) -> pa.Table:
    def some(kind: pa.DataType, made: Sequence[Any]) -> pa.Array:
        return pa.array([None if number % 8 == 7 else value for number, value in enumerate(made)], kind)

    numbers = range(rows)
    moments = [datetime.datetime(1969, 12, 30, 22, 0, 1, 7, datetime.UTC) + datetime.timedelta(hours=7 * n) for n in numbers]
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "small": some(pa.int32(), [n - 12 for n in numbers]),
            "text": some(pa.string(), [f"{'größe𝄞x'[n % 6 :]}{n}" if n != 3 else "t3" for n in numbers]),
            "day": some(pa.date32(), [moment.date() for moment in moments]),
            "at": some(pa.timestamp("us"), [moment.replace(tzinfo=None) for moment in moments]),
            "utc": some(pa.timestamp("us", "UTC"), moments),
            "amount": some(pa.decimal128(10, 2), [Decimal(n * 111 - 900) / 100 for n in numbers]),
            "big": some(pa.decimal128(30, 4), [Decimal(n - 10) * 10**20 for n in numbers]),
            "ratio": some(pa.float64(), [(-1) ** n * 1.5 * n for n in numbers]),
            "half": some(pa.float32(), [n / 2 for n in numbers]),
            "flag": some(pa.bool_(), [n % 3 == 0 for n in numbers]),
            "raw": some(pa.binary(), [bytes([n * 9 % 256, 0, n]) for n in numbers]),
            "uid": some(pa.uuid(), [uuid.UUID(int=n << 64 | n).bytes for n in numbers]),
            "fixed": some(pa.binary(4), [bytes([255 - n, 1, 2, n]) for n in numbers]),
        }
    )


@pytest.fixture
def place(tmp_path: Path, rest_catalog: RestCatalog) -> IcebergPlace:
    made = on_disk(tmp_path, "iceberg", rest_catalog)
    assert isinstance(made, IcebergPlace)
    made.opened().create_namespace(made.name.split(".")[0])
    return made


def named(place: IcebergPlace, name: str) -> IcebergPlace:
    """The same place with another table of its namespace."""
    namespace = place.name.split(".")[0]
    return IcebergPlace(place.folder, place.settings, place.checkpoint_uri, place.base_uri, name=f"{namespace}.{name}")


def partitioned_and_sorted(place: IcebergPlace) -> IcebergPlace:
    place.opened().create_table(place.name, SCHEMA, partition_spec=spec(), sort_order=SORTED)
    return place


def write(place: IcebergPlace, table: pa.Table, name: str) -> None:
    folder = place.folder / name
    folder.mkdir()
    half = table.num_rows // 2
    pq.write_table(table.slice(0, half), folder / "a.parquet")
    pq.write_table(table.slice(half), folder / "b.parquet")
    ended = drive(reconciler_for(manifest_for(place, folder, name=name), place))
    assert isinstance(ended.outcome, Finish), ended.outcome


def by_spark(place: IcebergPlace, rest: RestCatalog) -> dict[str, Any]:
    out = place.folder / "spark.json"
    done = subprocess.run(
        [sys.executable, "-c", SPARK, str(iceberg_spark_runtime()), rest.uri, place.name.split(".")[0], str(out)],
        capture_output=True,
        text=True,
        timeout=patience(240),
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def by_duckdb(place: IcebergPlace, columns: str) -> list[tuple[Any, ...]]:
    connection = duckdb.connect(config={"extension_directory": str(place.folder / "duckdb")})
    load_duckdb_extensions(connection)
    metadata = place.table().metadata_location.removeprefix("file://")
    found: list[tuple[Any, ...]] = connection.sql(f"SELECT {columns} FROM iceberg_scan('{metadata}') ORDER BY id").fetchall()
    connection.close()
    return found


@pytest.mark.slow
@pytest.mark.spark
def test_tables_in_the_field_are_read_alike_by_all_and_their_partitions_are_those_that_spark_makes(
    place: IcebergPlace, rest_catalog: RestCatalog
) -> None:
    field = partitioned_and_sorted(named(place, "field"))
    partitioned_and_sorted(named(place, "twin"))
    write(field, values(), "field")

    lines = named(place, "lines")
    create_3(
        lines,
        {"name": "id", "type": "long"},
        {"name": "kind", "type": "string", "initial-default": "old", "write-default": "new"},
        {"name": "amount", "type": "decimal(9,2)", "write-default": "1.50"},
    )
    write(lines, pa.table({"id": [0, 1, 2]}), "one")
    write(lines, pa.table({"id": [3, 4], "kind": ["given", None]}), "two")

    fine = named(place, "fine")
    create_3(fine, {"name": "id", "type": "long"}, {"name": "ns", "type": "timestamp_ns"})
    moments = pa.array([1_600_000_000_123_456_789, -1, None], pa.timestamp("ns"))
    write(fine, pa.table({"id": [0, 1, 2], "ns": moments}), "fine")

    found = by_spark(place, rest_catalog)

    assert found["ids"] == [[number] for number in range(24)]
    assert found["same rows"] == [[0]]
    assert found["field"] == found["twin"], "the partitions that Spark makes of the same rows"
    assert len(found["field"]) > 10
    assert found["orders"] == [[1]]
    assert found["by bucket"] == [[1]]
    assert sorted(field.rows(), key=lambda row: row["id"]) == values().to_pylist()
    expected = [tuple(row[name] for name in ("id", "text", "amount", "raw")) for row in values().to_pylist()]
    assert by_duckdb(field, "id, text, amount, raw") == expected

    numbers = {row_id: number for number, row_id, _ in found["lineage"]}
    assert sorted(numbers) == [0, 1, 2, 3, 4]
    assert {numbers[row_id] for row_id in (0, 1, 2)} == {0, 1, 2}
    assert [number for _, _, number in found["lineage"]] == [1, 1, 1, 2, 2]
    kinds = ["new", "new", "new", "given", None]
    assert found["defaults"] == [[number, kind, "1.50"] for number, kind in enumerate(kinds)]
    after = dict(found["lineage after"])
    assert {after[100], after[101]} == {5, 6}
    write(lines, pa.table({"id": [200]}), "three")
    assert len(by_duckdb(lines, "id, kind")) == 8
    assert sorted(row["id"] for row in lines.rows()) == [0, 1, 2, 3, 4, 100, 101, 200]
    head = lines.table().current_snapshot()
    assert head is not None
    assert (head.first_row_id, head.added_rows) == (7, 1)

    # Spark has no nanoseconds, and DuckDB none with a zone.
    assert by_duckdb(fine, "id, epoch_ns(ns)") == [(0, 1_600_000_000_123_456_789), (1, -1), (2, None)]

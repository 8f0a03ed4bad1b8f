"""The committed tables as others read them: pyiceberg, Spark's own Iceberg, DuckDB; Lance by pylance."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_control.decision.actions import Finish
from devtools.spark_iceberg import iceberg_spark_runtime
from tests.support.command_line import CommandLine
from tests.support.places import IcebergPlace, Place, on_disk
from tests.support.waiting import patience
from tests.support.writes import drive, manifest_for, reconciler_for, rows_of, write_inputs

SPARK_READER = """
import json, sys
from pyspark.sql import SparkSession
jar, location, out = sys.argv[1:]
spark = (SparkSession.builder.master("local[1]").config("spark.jars", jar).config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC").getOrCreate())
table = spark.read.format("iceberg").load(location)
rows = table.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false')) AS row").collect()
filtered = table.where("id = 3").count()
open(out, "w").write(json.dumps({"rows": [row["row"] for row in rows], "filtered": filtered}))
spark.stop()
"""


def rich_table() -> pa.Table:
    naive = datetime.datetime
    return pa.table(
        {
            "id": pa.array(range(6), pa.int64()),
            "text": pa.array(["ä", None, "𝄞", "", "x", "y"]),
            "tags": pa.array([["a"], [], None, ["b", "c"], ["d"], ["e"]], pa.list_(pa.string())),
            "place": pa.array([{"lat": 1.5}, None, {"lat": None}, {"lat": 0.0}, {"lat": 1.0}, {"lat": 2.0}]),
            "amount": pa.array([Decimal("1.10"), None, Decimal("-9.99"), *[Decimal("0.00")] * 3], pa.decimal128(10, 2)),
            "at": pa.array(
                [naive(2026, 1, 2, 3, 4, 5), naive(1969, 12, 31, 23), None, *[naive(2026, 6, 1)] * 3],
                pa.timestamp("us"),
            ),
            "on": pa.array([datetime.date(2026, 2, 28), datetime.date(1900, 1, 1), None, *[datetime.date(2026, 3, 1)] * 3]),
            "raw": pa.array([b"\x00\xff", b"", None, b"a", b"b", b"c"], pa.binary()),
        }
    )


def committed(place: Place, folder: Path, **sink: Any) -> pa.Table:
    table = rich_table()
    folder.mkdir()
    pq.write_table(table.slice(0, 3), folder / "a.parquet")
    pq.write_table(table.slice(3), folder / "b.parquet")
    manifest = manifest_for(place, folder, sink={**place.sink(), "create": True, **sink})
    ended = drive(reconciler_for(manifest, place))
    assert isinstance(ended.outcome, Finish), ended.outcome
    return table


@pytest.mark.spark
def test_an_iceberg_table_reads_the_same_by_pyiceberg_spark_and_duckdb(iceberg_place: IcebergPlace, tmp_path: Path) -> None:
    table = committed(
        iceberg_place,
        tmp_path / "in",
        partitionBy=[{"column": "at", "transform": "month"}, {"column": "on", "transform": "identity"}],
    )
    expected = sorted(table.to_pylist(), key=lambda row: row["id"])

    by_pyiceberg = sorted(iceberg_place.rows(), key=lambda row: row["id"])
    assert by_pyiceberg == expected

    metadata = iceberg_place.table().metadata_location.removeprefix("file://")
    connection = duckdb.connect(config={"extension_directory": str(tmp_path / "duckdb")})
    load_duckdb_extensions(connection)
    by_duckdb = connection.sql(f"SELECT * FROM iceberg_scan('{metadata}') ORDER BY id").to_arrow_table().to_pylist()
    assert by_duckdb == expected
    assert connection.sql(f"SELECT count(*) FROM iceberg_scan('{metadata}') WHERE id = 3").fetchall() == [(1,)]
    connection.close()

    out = tmp_path / "spark.json"
    subprocess.run(
        [sys.executable, "-c", SPARK_READER, str(iceberg_spark_runtime()), iceberg_place.table().metadata_location, str(out)],
        check=True,
        capture_output=True,
        timeout=patience(180),
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    by_spark = json.loads(out.read_text())
    assert by_spark["filtered"] == 1
    assert sorted((comparable_json(row) for row in by_spark["rows"]), key=lambda row: row["id"]) == [
        comparable(row) for row in expected
    ]


def load_duckdb_extensions(connection: duckdb.DuckDBPyConnection) -> None:
    """Load the extensions from their PyPI packages: nothing is downloaded."""
    from importlib.metadata import files

    for package in ("duckdb-extension-avro", "duckdb-extension-iceberg"):
        path = next(str(file.locate()) for file in files(package) or [] if file.name.endswith(".duckdb_extension"))
        connection.execute(f"LOAD '{path}'")


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """A row as text, so that Spark's JSON can be compared with Python's values."""
    import base64

    def text(value: Any) -> Any:
        match value:
            case datetime.datetime():
                return value.isoformat(timespec="milliseconds")
            case datetime.date():
                return value.isoformat()
            case Decimal():
                return float(value)
            case bytes():
                return base64.b64encode(value).decode()
            case _:
                return value

    return {name: text(value) for name, value in row.items()}


def comparable_json(row: str) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(row)
    if plain["at"] is not None:
        plain["at"] = plain["at"].removesuffix("Z")
    return plain


def test_a_partitioned_table_prunes_by_the_partitions_that_were_staged(iceberg_place: IcebergPlace, tmp_path: Path) -> None:
    committed(iceberg_place, tmp_path / "in", partitionBy=[{"column": "on", "transform": "year"}])

    table = iceberg_place.table()
    files = list(table.scan(row_filter="on = '1900-01-01'").plan_files())

    assert len(files) == 1
    assert files[0].file.record_count == 1
    assert files[0].file.partition[0] == -70


def test_a_run_writes_a_branch_of_a_table_that_it_makes_and_says_so_and_a_later_run_goes_on_there(tmp_path: Path) -> None:
    place = on_disk(tmp_path / "place", "iceberg")
    assert isinstance(place, IcebergPlace)
    iceberg = {**place.sink()["iceberg"], "branch": "staging", "tag": "run-{epoch}", "snapshotProperties": {"owner": "team-a"}}
    inputs = write_inputs(tmp_path / "in", files=1, rows=3)
    manifest = manifest_for(place, inputs, sink={"iceberg": iceberg, "create": True})
    command = CommandLine(tmp_path / "cli", place, manifest)

    code, output = command.run()

    assert code == 0, output
    assert f"{place.name}@staging" in output
    assert f"{place.name}@staging" in command.say("status", str(command.file))
    pq.write_table(rows_of(range(10, 12)), inputs / "more.parquet")
    later = manifest_for(place, inputs, sink={"iceberg": iceberg, "create": True}, runNonce="2")
    drive(reconciler_for(later, place))
    table = place.table()
    read = {name: sorted(table.scan().use_ref(name).to_arrow()["id"].to_pylist()) for name in table.metadata.refs}
    assert read == {"main": [], "staging": [0, 1, 2, 10, 11], "run-1": [0, 1, 2], "run-2": [0, 1, 2, 10, 11]}
    head = table.metadata.snapshot_by_name("staging")
    assert head is not None
    assert head.summary is not None
    assert head.summary.additional_properties["owner"] == "team-a"
    table.manage_snapshots().remove_branch("staging").commit()
    command = CommandLine(tmp_path / "later", place, later)
    assert json.loads(command.say("status", str(command.file), "--output", "json"))["table"] == "BranchDropped"

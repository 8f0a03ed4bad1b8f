"""Rows that do not come from files of an object store, on a real cluster: from Spark, from a table; and rows that fail."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_commit.catalogs.named import open_catalog
from tests.cluster.lake import CATALOG, SCHEMA
from tests.cluster.test_deaths import delete_pod_by_force
from tests.cluster.user import SLOW, User

pytestmark = pytest.mark.slow

#: The second half waits at a barrier.
ROWS, FIRST = 400, 200

#: Needs no connector: the rows are Spark's own.
PROGRAM = """
def main(job):
    job.write(job.read(job.spark.range(0, 400, 1, 2).selectExpr("id", "cast(null AS string) AS text")))
"""

POISON = """
def picky(row):
    if row["id"] % 100 == 7:
        raise ValueError("no " + str(row["id"]))
    return row
"""


def test_a_program_whose_driver_dies_goes_on_by_keys(user: User) -> None:
    user.make_place("lance")
    source = {"program": {"call": "steps:main", "keyColumns": ["id"]}}
    manifest = user.write_with_barrier("", FIRST, source=source, executors=1)
    user.put_code(SLOW + PROGRAM, f"{user.name}-code")
    user.apply(manifest)
    user.wait_until_sealed(ROWS // 4)

    sealed = user.sealed_rows()
    delete_pod_by_force(user, user.running_driver())
    user.until(lambda: user.status().get("attempt") == 2, what="the second attempt")
    user.open_barrier()

    user.wait_for("Committed")
    assert user.ids() == list(range(ROWS))
    assert user.rows_taken_over(2) >= sealed


def test_a_file_that_is_mounted_into_the_pods_is_read_by_spark_with_sql(user: User) -> None:
    user.make_place("iceberg")
    text = "".join(f"{number},{'even' if number % 2 == 0 else 'odd'}\n" for number in range(100))
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{user.name}-data"}, "data": {"rows.csv": text}}
    user.kubectl("apply", "-n", user.namespace, "-f", "-", manifest=json.dumps(data))
    source = {
        "spark": {
            "format": "csv",
            "paths": ["/data/rows.csv"],
            "options": {"inferSchema": "true"},
            "sql": "SELECT _c0, CAST(_c0 AS bigint) AS id, upper(_c1) AS text FROM input WHERE _c1 = 'even'",
            "keyColumns": ["_c0"],
        }
    }
    drop = {"call": "steps:without_key", "input": "row"}
    manifest = user.write("", source=source, executors=1, steps=[drop])
    user.put_code("def without_key(row):\n    return {'id': row['id'], 'text': row['text']}\n", f"{user.name}-code")
    for role in ("driver", "executor"):
        mount(manifest["spec"][role]["template"]["spec"], f"{user.name}-data")

    user.apply(manifest)
    user.wait_for("Committed")

    assert user.place is not None
    assert sorted((row["id"], row["text"]) for row in user.place.rows()) == [(number, "EVEN") for number in range(0, 100, 2)]


def mount(pod: dict[str, Any], config_map: str) -> None:
    """Let a pod template show a ConfigMap at /data."""
    pod["volumes"] = [{"name": "data", "configMap": {"name": config_map}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data", "readOnly": True}]


def test_a_table_of_the_catalog_is_read_as_it_was_at_the_first_attempt(user: User) -> None:
    place = user.make_place("lance")
    catalog = open_catalog(CATALOG, place.settings)
    name = f"src{user.name}.rows"
    catalog.create_namespace(f"src{user.name}")
    table = catalog.create_table(name, SCHEMA, location=f"{place.base_uri}/source-table")
    table.append(pa.table({"id": list(range(ROWS)), "text": [None] * ROWS}, schema=SCHEMA))
    source = {"iceberg": {"catalog": CATALOG, "table": name}, "where": "id >= 100"}
    # The hundred rows before the barrier may not all be in tasks of their own.
    user.apply(user.write_with_barrier("", FIRST, source=source))
    user.wait_until_sealed(25)

    table.append(pa.table({"id": [5_000], "text": [None]}, schema=SCHEMA))
    delete_pod_by_force(user, user.running_driver())
    user.until(lambda: user.status().get("attempt") == 2, what="the second attempt")
    user.open_barrier()

    user.wait_for("Committed")
    assert user.ids() == list(range(100, ROWS))
    assert user.status()["attempt"] == 2


def test_rows_that_fail_are_quarantined_and_the_rest_is_committed(user: User) -> None:
    user.make_place("iceberg")
    step = {"call": "steps:picky", "input": "row"}
    limits = {"maxRows": 10, "maxShare": "5%"}
    manifest = user.write(user.put_rows("a.parquet", 0, ROWS), steps=[step], onRowError="Quarantine", quarantine=limits)
    user.put_code(POISON, f"{user.name}-code")

    user.apply(manifest)
    user.wait_for("Committed")

    assert user.ids() == [number for number in range(ROWS) if number % 100 != 7]
    assert user.status()["rowsQuarantined"] == 4
    wide = user.kubectl("get", "cw", user.name, "-n", user.namespace, "-o", "wide").splitlines()
    assert dict(zip(wide[0].split(), wide[1].split(), strict=False))["QUARANTINED"] == "4"

"""A session of Spark with an Iceberg REST catalog, named `r`, that answers SQL: an engine from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from devtools.spark_iceberg import iceberg_spark_runtime
from tests.support.waiting import patience

_SPARK: Final = """
import json, sys
from pyspark.sql import SparkSession
jar, uri = sys.argv[1:]
spark = (SparkSession.builder.master("local[1]").config("spark.jars", jar).config("spark.ui.enabled", "false")
    .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
    .config("spark.sql.catalog.r", "org.apache.iceberg.spark.SparkCatalog").config("spark.sql.catalog.r.type", "rest")
    .config("spark.sql.catalog.r.uri", uri).config("spark.sql.catalog.r.cache-enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate())
for line in sys.stdin:
    print(json.dumps([tuple(row) for row in spark.sql(json.loads(line)).collect()], default=str), flush=True)
spark.stop()
"""


@dataclass
class Spark:
    process: subprocess.Popen[str]

    def rows(self, sql: str) -> list[list[Any]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{json.dumps(sql)}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, sql
        found: list[list[Any]] = json.loads(line)
        return found


@contextmanager
def open_spark(uri: str, log_file: Path) -> Iterator[Spark]:
    """Give a session that ends with the block. `uri`: of the REST catalog."""
    with log_file.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _SPARK, str(iceberg_spark_runtime()), uri],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        try:
            yield Spark(process)
        finally:
            process.communicate(timeout=patience(60))

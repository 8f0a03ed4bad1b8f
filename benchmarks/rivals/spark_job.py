"""Plain Spark with Iceberg's runtime: nothing is kept of a run that died, so it is run again from the start.

python -m benchmarks.rivals.spark_job JOB.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks import plain_spark
from benchmarks.inputs import Input


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    with plain_spark.session(Path(job["warehouse"]), job["cores"]) as spark:
        from paced import Paced  # on the import path since Spark was started

        source = Input(Path(job["source"]), 0)
        plain_spark.one_task_a_file(spark, source)
        frame = spark.read.parquet(str(source.folder))
        columns = ", ".join(f"{column} {kind}" for column, kind in frame.dtypes)
        spark.sql(f"CREATE TABLE IF NOT EXISTS plain.b.rows ({columns}) USING iceberg {plain_spark.PROPERTIES}")
        plain_spark.append(frame.mapInArrow(Paced(job["row_us"], job["log"]).each, frame.schema), "plain.b.rows")


if __name__ == "__main__":
    main()

"""Iceberg's runtime for Spark: the second reader and writer of the tables, sharing no code with the one under test."""

from pathlib import Path

from devtools import cache, maven

# The newest Spark line with an Iceberg runtime is 4.1.
ARTIFACT = "iceberg-spark-runtime-4.1_2.13"
VERSION = "1.12.0"
SQLITE = "3.50.3.0"


def iceberg_spark_runtime() -> Path:
    """One shaded jar, for `spark.jars`."""
    return cache.ensure(f"{ARTIFACT}-{VERSION}", _build) / f"{ARTIFACT}-{VERSION}.jar"


def s3_and_sqlite() -> list[Path]:
    """What the runtime needs besides for tables on S3 with a catalog in a SQLite file: `spark.driver.extraClassPath`.

    There, and not in `spark.jars`, because Java looks for database drivers on the class path that it was started with.
    """
    return sorted(cache.ensure(f"iceberg-aws-bundle-{VERSION}-sqlite-{SQLITE}", _build_s3_and_sqlite).glob("*.jar"))


def _build(target: Path) -> None:
    maven.copy_jars([f"org.apache.iceberg:{ARTIFACT}:{VERSION}"], target, transitive=False)


def _build_s3_and_sqlite(target: Path) -> None:
    jars = [f"org.apache.iceberg:iceberg-aws-bundle:{VERSION}", f"org.xerial:sqlite-jdbc:{SQLITE}"]
    maven.copy_jars(jars, target, transitive=False)

"""Iceberg's runtime for Spark: the second reader and writer of the tables, sharing no code with the one under test."""

from pathlib import Path

from tests.services import cache, maven

# The newest Spark line with an Iceberg runtime is 4.1.
ARTIFACT = "iceberg-spark-runtime-4.1_2.13"
VERSION = "1.12.0"


def iceberg_spark_runtime() -> Path:
    """One shaded jar, for `spark.jars`."""
    return cache.ensure(f"{ARTIFACT}-{VERSION}", _build) / f"{ARTIFACT}-{VERSION}.jar"


def _build(target: Path) -> None:
    maven.copy_jars([f"org.apache.iceberg:{ARTIFACT}:{VERSION}"], target, transitive=False)

"""Spark's Avro reader and writer, which users add to Spark as a package."""

from pathlib import Path

from devtools import cache, maven

ARTIFACT = "spark-avro_2.13"
# Of the same line as the installed Spark; not every patch of it is in every mirror.
VERSION = "4.1.1"


def spark_avro() -> Path:
    """One jar, for `spark.jars`."""
    return cache.ensure(f"{ARTIFACT}-{VERSION}", _build) / f"{ARTIFACT}-{VERSION}.jar"


def _build(target: Path) -> None:
    maven.copy_jars([f"org.apache.spark:{ARTIFACT}:{VERSION}"], target, transitive=False)

"""Java's class data of Spark, made once and shared by every start: drivers and executors are up in about two thirds of the time.

    python -m checkpoint_spark.process.class_data

writes two files into Spark's home. Most of a start goes into reading some ten thousand classes out of 250 jars, checking them and
laying them out; Java can map the result of that from an archive (JEP 310 and 350). The images are built with one. On a machine of
one's own the command is optional, and to be said again after another Java or Spark was installed.

An archive holds for one class path only, and Java writes `jars/*` in the order in which the file system lists the folder, which
another machine does not share. So the jars are named, sorted, by a jar that has nothing but a manifest, and that one comes first.
Java itself refuses an archive of other jars or of another Java, without a word, and starts as slowly as it would without one.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Named by its place beside Spark's folder of jars: the manifest has relative paths.
_CLASS_PATH: Final = "class-path.jar"
_ARCHIVE: Final = "spark-classes.jsa"
#: The JAR file specification: a line has at most 72 bytes, and goes on in the next one after a space.
_MANIFEST_LINE: Final = 72
#: What an executor in a pod needs, and a driver without Kubernetes does not come across.
_EXECUTOR_CLASSES: Final = (
    "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
    "org.apache.spark.executor.CoarseGrainedExecutorBackend",
    "org.apache.spark.scheduler.cluster.k8s.KubernetesClusterManager",
    "org.apache.spark.scheduler.cluster.k8s.KubernetesClusterSchedulerBackend",
    "org.apache.spark.scheduler.cluster.k8s.ExecutorPodsAllocator",
    "org.apache.spark.deploy.k8s.features.BasicExecutorFeatureStep",
    "io.fabric8.kubernetes.client.KubernetesClientBuilder",
    "io.fabric8.kubernetes.api.model.PodBuilder",
)


def home_of_spark(environment: Mapping[str, str]) -> Path | None:
    """Return $SPARK_HOME, or the folder of pyspark, as Spark's own scripts look for it; None without either."""
    if environment.get("SPARK_HOME"):
        return Path(environment["SPARK_HOME"])
    found = importlib.util.find_spec("pyspark")
    return Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else None


def driver_conf(given: Mapping[str, str], home: Path | None) -> dict[str, str]:
    """Return the properties with which Spark's driver starts from the archive; the given ones where it cannot."""
    if home is None or not _is_for(given.get("spark.driver.extraClassPath"), home):
        return dict(given)
    options = (given.get("spark.driver.defaultJavaOptions"), option(home))
    return {
        **given,
        "spark.driver.extraClassPath": str(home / _CLASS_PATH),
        "spark.driver.defaultJavaOptions": " ".join(text for text in options if text),
    }


def executor_start(own_jars: str | None, home: Path) -> tuple[list[str], list[str]]:
    """Return the options, and the first parts of the class path, of an executor that starts from the archive.

    Both are empty where it cannot. `own_jars` is the value of spark.executor.extraClassPath.
    """
    return ([option(home)], [str(home / _CLASS_PATH)]) if _is_for(own_jars, home) else ([], [])


def _is_for(own_jars: str | None, home: Path) -> bool:
    """Say if a start takes the archive: who puts jars of his own before Spark's wants other classes than the archive's."""
    return is_there(home) and not own_jars


def option(home: Path) -> str:
    return f"-XX:SharedArchiveFile={home / _ARCHIVE}"


def is_there(home: Path) -> bool:
    """Say if `make` has been here; if the archive is of this Java and these jars, Java itself looks."""
    return (home / _CLASS_PATH).is_file() and (home / _ARCHIVE).is_file()


def manifest(jars: list[str]) -> bytes:
    """Return the manifest of a jar that stands for others, which are given by their relative paths."""
    rest = ("Class-Path: " + " ".join(jars)).encode()
    lines = [b"Manifest-Version: 1.0", rest[:_MANIFEST_LINE]]
    rest = rest[_MANIFEST_LINE:]
    while rest:
        lines.append(b" " + rest[: _MANIFEST_LINE - 1])
        rest = rest[_MANIFEST_LINE - 1 :]
    return b"\r\n".join([*lines, b"", b""])


def make(home: Path) -> Path:
    """Make both files anew and return the archive's path; running Sparks keep what they have mapped."""
    jars = sorted(f"jars/{path.name}" for path in (home / "jars").glob("*.jar"))
    class_path = home / _CLASS_PATH
    archive = home / _ARCHIVE
    # Without an archive first: the jar alone changes no start, and no start may map an archive of other jars.
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=home) as folder:
        new_jar, new_archive = Path(folder, _CLASS_PATH), Path(folder, _ARCHIVE)
        with zipfile.ZipFile(new_jar, "w") as file:
            file.writestr("META-INF/MANIFEST.MF", manifest(jars))
        # Java looks at its size and time, later too.
        new_jar.replace(class_path)
        _use_spark(class_path, new_archive)
        if not new_archive.is_file():
            raise RuntimeError(f"Java wrote no archive to {new_archive}: what it said stands above (Java 17 or 21 is needed)")
        new_archive.chmod(0o444)
        new_archive.replace(archive)
    return archive


def _use_spark(class_path: Path, archive: Path) -> None:
    """Do once what drivers and executors do, in a Java that writes its classes into the archive when it ends."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Where an image is built, the machine's name may stand for no address.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": str(class_path),
        # Java names each class that it cannot keep, and there are hundreds: those that were made while it ran.
        "spark.driver.defaultJavaOptions": f"-XX:ArchiveClassesAtExit={archive} -Xlog:disable -XX:TieredStopAtLevel=1",
    }
    session = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        session.sparkContext.parallelize(["a", "b"], 2).foreach(len)
        _use_frames(session, folder)
        for name in _EXECUTOR_CLASSES:
            session.sparkContext._jvm.java.lang.Class.forName(name)
    session.stop()
    # Java ends with its standard input, and only then writes.
    process = SparkContext._gateway.proc
    process.stdin.close()
    process.wait()


def _use_frames(session: SparkSession, folder: str) -> None:
    """Read, join, hand to Python and count, as a source by key does."""
    session.range(100).selectExpr("id", "cast(id as string) as text").write.parquet(f"{folder}/rows")
    session.range(10).selectExpr("id").write.parquet(f"{folder}/keys")
    rows = session.read.parquet(f"{folder}/rows")
    keys = session.read.parquet(f"{folder}/keys")
    for strategy in ("broadcast", "merge", "shuffle_hash"):
        left = rows.join(keys.hint(strategy), "id", "left_anti").mapInArrow(_unchanged, rows.schema)
        left.selectExpr("count(*)").collect()


def _unchanged(batches: Iterator[Any]) -> Iterator[Any]:
    return batches


if __name__ == "__main__":
    spark = home_of_spark(os.environ)
    if spark is None:
        sys.exit("there is no Spark here: install pyspark, or set SPARK_HOME")
    sys.stdout.write(f"made {make(spark)}\n")

"""The import path with which Python workers begin, and who may name their daemon."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from pathlib import Path

import pytest

from checkpoint_spark.process import python_workers


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """An environment with pyspark and py4j as packages, which is how Spark comes with pip."""
    packages = tmp_path / "site-packages"
    (packages / "py4j").mkdir(parents=True)
    for archive in ("pyspark/python/lib/pyspark.zip", "pyspark/jars/spark-core.jar"):
        (packages / archive).parent.mkdir(parents=True)
        (packages / archive).write_bytes(b"x")
    return packages


def path_of(packages: Path, home: Path) -> list[str]:
    return ["", f"{home}/python/lib/pyspark.zip", f"{home}/jars/spark-core.jar", str(packages)]


def test_sparks_archives_leave_the_import_path_where_the_same_spark_is_a_package(packages: Path) -> None:
    home = packages / "pyspark"

    assert python_workers.without_archives(path_of(packages, home), home) == ["", str(packages)]


def test_spark_may_be_reached_by_a_link(packages: Path, tmp_path: Path) -> None:
    home = tmp_path / "spark"
    home.symlink_to(packages / "pyspark")

    assert python_workers.without_archives(path_of(packages, home), home) == ["", str(packages)]


def test_archives_of_the_user_stay(packages: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.zip"
    mine.write_bytes(b"x")
    home = packages / "pyspark"

    assert python_workers.without_archives([str(mine), *path_of(packages, home)], home) == [str(mine), "", str(packages)]


def test_all_archives_stay_where_another_spark_is_the_package(packages: Path, tmp_path: Path) -> None:
    other = tmp_path / "spark-4"
    (other / "python" / "lib").mkdir(parents=True)
    (other / "python" / "lib" / "pyspark.zip").write_bytes(b"x")

    assert python_workers.without_archives(path_of(packages, other), other) == path_of(packages, other)


def test_all_archives_stay_where_py4j_is_in_one_of_them_only(packages: Path) -> None:
    (packages / "py4j").rmdir()
    home = packages / "pyspark"

    assert python_workers.without_archives(path_of(packages, home), home) == path_of(packages, home)


def test_what_is_left_out_is_not_listed_anew_by_python_before_each_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """importlib.invalidate_caches reads the directory of every archive that anything was looked for in."""
    archive = tmp_path / "spark.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("of_the_archive.py", "")
    monkeypatch.syspath_prepend(archive)
    assert importlib.util.find_spec("of_the_archive") is not None
    assert str(archive) in sys.path_importer_cache

    python_workers.leave_out({str(archive)})

    assert str(archive) not in sys.path
    assert str(archive) not in sys.path_importer_cache
    assert importlib.util.find_spec("of_the_archive") is None


def test_a_daemon_that_the_user_names_is_his() -> None:
    assert python_workers.conf({"spark.a": "b"})["spark.python.daemon.module"] == "checkpoint_spark.process.python_workers"
    assert python_workers.conf({"spark.python.daemon.module": "mine"})["spark.python.daemon.module"] == "mine"


def test_sparks_note_of_a_worker_that_dies_is_on_unless_the_user_says_no() -> None:
    name = "spark.python.worker.faulthandler.enabled"
    assert python_workers.conf({})[name] == "true"
    assert python_workers.conf({name: "false"})[name] == "false"

"""Starts of Spark from Java's class data: when they are, and the jar that names the jars. Nothing is started here."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoint_spark.process import class_data


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("class-path.jar", "spark-classes.jsa"):
        (tmp_path / name).write_bytes(b"x")
    return tmp_path


def test_a_driver_starts_from_the_archive_with_the_jars_in_the_archives_order_first(home: Path) -> None:
    assert class_data.driver_conf({"spark.a": "b"}, home) == {
        "spark.a": "b",
        "spark.driver.extraClassPath": f"{home}/class-path.jar",
        "spark.driver.defaultJavaOptions": f"-XX:SharedArchiveFile={home}/spark-classes.jsa",
    }


def test_options_of_the_users_stay_before_ours(home: Path) -> None:
    given = {"spark.driver.defaultJavaOptions": "-Xlog:gc", "spark.driver.extraJavaOptions": "-Dx=y"}

    conf = class_data.driver_conf(given, home)

    assert conf["spark.driver.defaultJavaOptions"] == f"-Xlog:gc -XX:SharedArchiveFile={home}/spark-classes.jsa"
    assert conf["spark.driver.extraJavaOptions"] == "-Dx=y"


def test_a_user_who_puts_jars_before_sparks_gets_them_and_no_archive(home: Path) -> None:
    given = {"spark.driver.extraClassPath": "/mine.jar"}

    assert class_data.driver_conf(given, home) == given


@pytest.mark.parametrize("missing", ["class-path.jar", "spark-classes.jsa"])
def test_with_half_of_the_files_nothing_changes(home: Path, missing: str) -> None:
    (home / missing).unlink()

    assert class_data.driver_conf({"spark.a": "b"}, home) == {"spark.a": "b"}
    assert class_data.executor_start(None, home) == ([], [])


def test_without_spark_nothing_changes() -> None:
    assert class_data.driver_conf({"spark.a": "b"}, None) == {"spark.a": "b"}


def test_home_is_the_variable_or_the_package(tmp_path: Path) -> None:
    assert class_data.home_of_spark({"SPARK_HOME": str(tmp_path)}) == tmp_path
    found = class_data.home_of_spark({"SPARK_HOME": ""})
    assert found is not None
    assert (found / "jars").is_dir()


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 6, 7, 8, 250])
def test_the_manifest_names_every_jar_in_lines_that_java_takes(count: int) -> None:
    jars = [f"jars/{'x' * number}-{number}.jar" for number in range(count)]

    text = class_data.manifest(jars)

    assert all(len(line) <= 72 for line in text.split(b"\r\n"))
    unfolded = text.replace(b"\r\n ", b"").decode().split("\r\n")
    assert unfolded[:2] == ["Manifest-Version: 1.0", "Class-Path: " + " ".join(jars)]

"""The image's entry point: what it makes of a pod's environment. Nothing is started here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from checkpoint_spark import pod
from checkpoint_spark.driver import parse
from checkpoint_spark.pod import WrongCall, driver_conf, executor_command, main, master_url

POD = {"POD_NAME": "flights-0-1-1", "POD_NAMESPACE": "team", "POD_IP": "10.1.2.3"}
API = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.1.2.3:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "2048m",
    "SPARK_APPLICATION_ID": "spark-abc",
    "SPARK_EXECUTOR_POD_IP": "10.1.2.4",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "flights-exec-3",
    "SPARK_CONF_DIR": "/opt/spark/conf",
}

# --- the driver -----------------------------------------------------------------------------------------------------------


def test_the_master_is_the_api_server_that_the_pod_was_told() -> None:
    assert master_url(API) == "k8s://https://10.96.0.1:443"


def test_an_ipv6_address_is_put_in_brackets_everywhere() -> None:
    assert master_url({**API, "KUBERNETES_SERVICE_HOST": "fd00::1"}) == "k8s://https://[fd00::1]:443"
    conf = driver_conf({**POD, "POD_IP": "fd00::9"}, {}, None)
    assert conf["spark.driver.host"] == conf["spark.driver.bindAddress"] == "[fd00::9]"
    assert driver_conf({**POD, "POD_IP": "[fd00::9]"}, {}, None)["spark.driver.host"] == "[fd00::9]"


def test_the_conf_tells_executors_where_the_driver_is_and_whose_they_are() -> None:
    given = {"spark.executor.instances": "4", "spark.driver.host": "elsewhere", "spark.kubernetes.namespace": "other"}

    assert driver_conf(POD, given, Path("/tmp/template.json")) == {
        "spark.executor.instances": "4",
        "spark.driver.host": "10.1.2.3",
        "spark.driver.bindAddress": "10.1.2.3",
        "spark.kubernetes.driver.pod.name": "flights-0-1-1",
        "spark.kubernetes.namespace": "team",
        "spark.kubernetes.executor.podTemplateFile": "/tmp/template.json",
    }


def test_without_a_template_a_template_file_of_the_users_own_stays() -> None:
    given = {"spark.kubernetes.executor.podTemplateFile": "/in/the/image.yaml"}

    assert driver_conf(POD, given, None)["spark.kubernetes.executor.podTemplateFile"] == "/in/the/image.yaml"


@pytest.mark.parametrize("name", POD)
def test_a_variable_of_the_pod_that_is_missing_is_named(name: str) -> None:
    with pytest.raises(WrongCall, match=f"not set: {name};"):
        driver_conf({**POD, name: ""}, {}, None)


def test_the_command_line_of_a_pod_names_no_master() -> None:
    arguments = ["--uri", "s3://b/c", "--uid", "u", "--epoch", "2", "--attempt", "3", "--parallelism", "8"]

    orders = parse([*arguments, "--conf", "spark.a=b=c", "--conf", "spark.d="], "k8s://https://h:1")

    assert orders.master == "k8s://https://h:1"
    assert (orders.uri, orders.key.uid, orders.key.epoch, orders.attempt, orders.parallelism) == ("s3://b/c", "u", 2, 3, 8)
    assert orders.spark_conf == {"spark.a": "b=c", "spark.d": ""}
    assert not orders.ends_with_parent


def test_the_executors_template_becomes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    template = {"spec": {"containers": [{"name": "executor", "env": [{"name": "A", "value": "größe"}]}]}}

    path = pod._template_file({pod.TEMPLATE_VARIABLE: json.dumps(template, ensure_ascii=False)})

    assert path is not None
    assert path.is_relative_to(tmp_path)
    assert json.loads(path.read_text(encoding="utf-8")) == template
    assert pod._template_file({}) is None
    with pytest.raises(WrongCall, match="not JSON"):
        pod._template_file({pod.TEMPLATE_VARIABLE: "{"})


DEEP = """
import hashlib, sys, time
from checkpoint_spark import pod
pod._end_on_sigterm()
if sys.argv[1] == "python":
    print("ready", flush=True); time.sleep(60)
else:
    # Python's own handlers run in the main thread between two steps of it, and this is one step of some ten seconds.
    print("ready", flush=True); hashlib.pbkdf2_hmac("sha256", b"a", b"b", 30_000_000)
"""


@pytest.mark.parametrize("where", ["python", "foreign code"])
def test_a_driver_ends_promptly_at_sigterm(where: str) -> None:
    with subprocess.Popen([sys.executable, "-c", DEEP, where], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.5)  # until it is in the midst of it
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(30) == 143
        finally:
            process.kill()
    assert time.monotonic() - started < 3


# --- an executor ----------------------------------------------------------------------------------------------------------


def test_the_executors_command_is_that_of_sparks_own_image() -> None:
    environment = {
        **EXECUTOR,
        "SPARK_JAVA_OPT_0": "-Djava.net.preferIPv6Addresses=false",
        "SPARK_JAVA_OPT_1": "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "SPARK_JAVA_OPT_2": "-Dspark.driver.port=7078",
    }

    assert executor_command(environment, "/jdk/bin/java", "/spark") == [
        "/jdk/bin/java",
        "-Djava.net.preferIPv6Addresses=false",
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "-Dspark.driver.port=7078",
        "-Xms2048m",
        "-Xmx2048m",
        "-cp",
        "/opt/spark/conf:/spark/jars/*",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", "spark://CoarseGrainedScheduler@10.1.2.3:7078"),
        *("--executor-id", "3"),
        *("--cores", "2"),
        *("--app-id", "spark-abc"),
        *("--hostname", "10.1.2.4"),
        *("--resourceProfileId", "0"),
        *("--podName", "flights-exec-3"),
    ]


def test_an_executor_starts_from_the_images_class_data(tmp_path: Path) -> None:
    for name in ("class-path.jar", "spark-classes.jsa"):
        (tmp_path / name).write_bytes(b"x")

    command = executor_command({**EXECUTOR, "SPARK_JAVA_OPT_0": "-Da=b"}, "java", str(tmp_path))

    assert command[1:3] == [f"-XX:SharedArchiveFile={tmp_path}/spark-classes.jsa", "-Da=b"]
    assert command[command.index("-cp") + 1] == f"{tmp_path}/class-path.jar:/opt/spark/conf:{tmp_path}/jars/*"


def test_a_user_who_puts_jars_before_sparks_gets_no_class_data(tmp_path: Path) -> None:
    for name in ("class-path.jar", "spark-classes.jsa"):
        (tmp_path / name).write_bytes(b"x")

    command = executor_command({**EXECUTOR, "SPARK_CLASSPATH": "/first.jar"}, "java", str(tmp_path))

    assert command[1] == "-Xms2048m"
    assert command[command.index("-cp") + 1] == f"/opt/spark/conf:/first.jar:{tmp_path}/jars/*"


def test_java_options_come_in_the_order_of_their_numbers_not_of_their_names() -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in (10, 9, 2, 100, 1)}

    command = executor_command({**EXECUTOR, **options, "SPARK_JAVA_OPT_X": "-Dno", "MY_SPARK_JAVA_OPT_3": "-Dno"}, "java", "/s")

    assert command[1:6] == ["-Dn=1", "-Dn=2", "-Dn=9", "-Dn=10", "-Dn=100"]
    assert "-Dno" not in command


def test_an_option_with_spaces_stays_one_argument() -> None:
    command = executor_command({**EXECUTOR, "SPARK_JAVA_OPT_0": "-Dtext=a b;$HOME"}, "java", "/s")

    assert command[1] == "-Dtext=a b;$HOME"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, "/opt/spark/conf:/spark/jars/*"),
        ({"SPARK_CONF_DIR": ""}, "/spark/conf:/spark/jars/*"),
        ({"SPARK_EXTRA_CLASSPATH": "/extra/*"}, "/opt/spark/conf:/spark/jars/*:/extra/*"),
        ({"SPARK_CLASSPATH": "/first.jar"}, "/opt/spark/conf:/first.jar:/spark/jars/*"),
        (
            {"HADOOP_CONF_DIR": "/hadoop", "SPARK_DIST_CLASSPATH": "/dist/*", "SPARK_EXTRA_CLASSPATH": "/x"},
            "/opt/spark/conf:/hadoop:/spark/jars/*:/x:/dist/*",
        ),
    ],
)
def test_the_class_path_has_sparks_order_and_no_empty_part(more: dict[str, str], expected: str) -> None:
    command = executor_command({**EXECUTOR, **more}, "java", "/spark")

    assert command[command.index("-cp") + 1] == expected


@pytest.mark.parametrize("name", sorted(EXECUTOR.keys() - {"SPARK_CONF_DIR"}))
def test_a_variable_of_sparks_that_is_missing_is_named(name: str) -> None:
    environment = {key: value for key, value in EXECUTOR.items() if key != name}

    with pytest.raises(WrongCall, match=f"not set: {name};"):
        executor_command(environment, "java", "/spark")


def test_an_executor_becomes_java_with_spark_home_in_its_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    called: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda *arguments: called.append(arguments))

    pod._become_executor({**EXECUTOR, "JAVA_HOME": str(tmp_path)})

    (path, command, environment) = called[0]
    assert path == command[0] == str(java)
    assert Path(environment["SPARK_HOME"], "jars").is_dir()
    assert f"{environment['SPARK_HOME']}/jars/*" in command[command.index("-cp") + 1]
    assert environment["SPARK_EXECUTOR_ID"] == "3"


def test_an_image_without_java_says_so(tmp_path: Path) -> None:
    with pytest.raises(WrongCall, match="JAVA_HOME"):
        pod._become_executor({**EXECUTOR, "JAVA_HOME": str(tmp_path)})
    with pytest.raises(WrongCall, match="no java"):
        pod._become_executor({**EXECUTOR, "PATH": str(tmp_path)})


@pytest.mark.parametrize("arguments", [[], ["drive"], ["executor", "more"]])
def test_another_call_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == pod.EXIT_WRONG_CALL
    assert "'driver'" in capsys.readouterr().err


def test_last_words_go_to_the_kubelet_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "termination-log"
    monkeypatch.setattr(pod, "_TERMINATION_LOG", log)
    pod._tell("nobody reads")
    assert not log.exists()
    log.touch()

    pod._tell("größe " * 2000)

    assert log.read_text().startswith("größe größe")
    assert len(log.read_bytes()) <= 4096 * 2

"""An executor's pod: the command of its Java, its exit code, and what becomes of SIGTERM. Java is a script here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from checkpoint_spark.pods.pod_executor import WrongCall, executor_command, run_executor
from tests.support.waiting import patience, until

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


JAVA = """#!/bin/bash
cd "$(dirname "$0")"
trap 'echo term >> signals; exit 143' TERM
printf '%s\\n' "$@" > arguments.new
grep SigBlk /proc/self/status > blocked
env > environment.new
mv arguments.new arguments
mv environment.new environment
while [ ! -e exit ]; do sleep 0.05; done
exit "$(cat exit)"
"""


class Executor:
    """A process of the entry point, with a script for Java."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._bin = folder / "bin"

    @property
    def is_up(self) -> bool:
        return (self._bin / "environment").exists()

    @property
    def arguments(self) -> list[str]:
        return (self._bin / "arguments").read_text().splitlines()

    @property
    def environment(self) -> dict[str, str]:
        lines = (self._bin / "environment").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    @property
    def blocked_signals(self) -> int:
        return int((self._bin / "blocked").read_text().split()[1], 16)

    @property
    def tasks(self) -> Path:
        return Path(self.environment["CHECKPOINTED_WRITE_ENDING"])

    def signals(self) -> list[str]:
        path = self._bin / "signals"
        return path.read_text().split() if path.exists() else []

    def end_java(self, code: int) -> None:
        (self._bin / "exit").write_text(str(code))


@contextmanager
def executor(folder: Path, **environment: str) -> Iterator[Executor]:
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(JAVA)
    java.chmod(0o755)
    given = {**os.environ, **EXECUTOR, "JAVA_HOME": str(folder), "TMPDIR": str(folder), **environment}
    command = [sys.executable, "-m", "checkpoint_spark.pods.pod", "executor"]
    with subprocess.Popen(command, env=given, stderr=subprocess.PIPE, text=True) as process:
        found = Executor(folder, process)
        try:
            until(lambda: found.is_up or process.poll() is not None, "Java", 30)
            yield found
        finally:
            found.end_java(0)
            process.terminate()
            process.wait(patience(30))


def test_java_is_given_spark_home_and_a_folder_for_its_tasks_and_its_exit_code_is_the_containers(tmp_path: Path) -> None:
    with executor(tmp_path) as one:
        assert one.arguments[-2:] == ["--podName", "flights-exec-3"]
        assert Path(one.environment["SPARK_HOME"], "jars").is_dir()
        assert one.tasks.is_dir()
        assert one.blocked_signals == 0, "and no signal is held back from it"
        one.end_java(52)
        assert one.process.wait(patience(30)) == 52


def test_where_java_is_killed_the_exit_code_says_by_what(tmp_path: Path) -> None:
    with executor(tmp_path) as one:
        (java,) = (int(line) for line in children_of(one.process.pid))
        os.kill(java, signal.SIGKILL)
        assert one.process.wait(patience(30)) == 137


def children_of(process: int) -> list[str]:
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


def test_sigterm_ends_java_at_once_where_no_task_is_at_work(tmp_path: Path) -> None:
    with executor(tmp_path) as one:
        # What is left of a task whose process has died holds nothing up.
        gone = subprocess.Popen(["true"])
        gone.wait()
        (one.tasks / f"task-{gone.pid}").touch()
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(patience(30)) == 143
        assert one.signals() == ["term"]


def test_sigterm_reaches_tasks_first_and_java_when_the_last_of_them_has_sealed(tmp_path: Path) -> None:
    with executor(tmp_path) as one:
        at_work = one.tasks / f"task-{os.getpid()}"
        at_work.touch()
        one.process.send_signal(signal.SIGTERM)
        until((one.tasks / "announced").exists, "the tasks to be told", 30)
        time.sleep(0.5)
        assert (one.signals(), one.process.poll()) == ([], None)
        at_work.unlink()
        assert one.process.wait(patience(30)) == 143
        assert one.signals() == ["term"]


def test_a_second_sigterm_waits_for_no_task(tmp_path: Path) -> None:
    with executor(tmp_path) as one:
        (one.tasks / f"task-{os.getpid()}").touch()
        one.process.send_signal(signal.SIGTERM)
        until((one.tasks / "announced").exists, "the first one", 30)
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(patience(30)) == 143


def gpu_file(one: Executor) -> object:
    arguments = one.arguments
    return json.loads(Path(arguments[arguments.index("--resourcesFile") + 1]).read_text())


def test_spark_is_told_the_addresses_of_gpus(tmp_path: Path) -> None:
    wanted = json.dumps({"resource": "gpu", "count": 2})
    with executor(tmp_path, CHECKPOINTED_WRITE_GPUS=wanted, PATH="/usr/bin:/bin") as one:
        assert gpu_file(one) == [{"id": {"componentName": "spark.executor", "resourceName": "gpu"}, "addresses": ["0", "1"]}]


def test_an_executor_with_fewer_gpus_than_are_asked_for_ends_and_says_so(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\necho 0\n")
    (tools / "nvidia-smi").chmod(0o755)
    wanted = json.dumps({"resource": "gpu", "count": 2})
    with executor(tmp_path, CHECKPOINTED_WRITE_GPUS=wanted, PATH=f"{tools}:/usr/bin:/bin") as one:
        assert one.process.wait(patience(30)) == 2
        assert one.process.stderr is not None
        assert "executor.gpus is 2, and nvidia-smi sees 1" in one.process.stderr.read()


def test_an_image_without_java_says_so(tmp_path: Path) -> None:
    with pytest.raises(WrongCall, match="JAVA_HOME"):
        run_executor({**EXECUTOR, "JAVA_HOME": str(tmp_path)})
    with pytest.raises(WrongCall, match="no java"):
        run_executor({**EXECUTOR, "PATH": str(tmp_path)})

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

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.progress_reports import read_last_words
from checkpoint_spark.driver.main import parse
from checkpoint_spark.pods import pod
from checkpoint_spark.pods.pod import driver_conf, main, master_url
from checkpoint_spark.pods.pod_executor import WrongCall
from tests.support.waiting import patience

POD = {"POD_NAME": "flights-0-1-1", "POD_NAMESPACE": "team", "POD_IP": "10.1.2.3"}
API = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}

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
from checkpoint_spark.pods import pod
from checkpoint_work.tasks.ending import Ending
from tests.support.waiting import patience
pod._end_on_sigterm(Ending())
if sys.argv[1] == "python":
    print("ready", flush=True); time.sleep(3600)
else:
    # Python's own handlers run in the main thread between two steps of it, and this is one step of many minutes.
    print("ready", flush=True); hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2_000_000_000)
"""


@pytest.mark.parametrize("where", ["python", "foreign code"])
def test_a_driver_ends_promptly_at_sigterm(where: str) -> None:
    with subprocess.Popen([sys.executable, "-c", DEEP, where], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.5)  # until it is in the midst of it; were it not, less would be shown
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(patience(20)) == 143
        finally:
            process.kill()


LAST = """
import os, sys, time
from pathlib import Path
from checkpoint_spark.pods import pod
from checkpoint_work.tasks.ending import Ending
folder = Path(sys.argv[1])
(folder / f"task-{os.getppid()}").touch()
pod._end_on_sigterm(Ending(folder))
print("ready", flush=True)
time.sleep(60)
"""


def test_a_driver_that_runs_tasks_itself_ends_when_these_have_sealed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", LAST, str(tmp_path)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)
            assert (tmp_path / "announced").exists()
            (tmp_path / f"task-{os.getpid()}").unlink()
            assert process.wait(patience(30)) == 143
        finally:
            process.kill()


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


@pytest.mark.parametrize("message", ["the store said no", "größe\n" * 2_000, '"' * 5_000, "\x1b[31m" * 3_000, "\udcff"])
def test_an_error_goes_to_the_kubelet_as_an_object_that_is_never_cut(
    message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    monkeypatch.setattr(pod, "_TERMINATION_LOG", log)

    pod._tell(NeedsChange(reasons.CREDENTIALS_REFUSED, message))

    assert len(log.read_bytes()) <= 4096
    said = read_last_words(log.read_text())
    assert said is not None
    assert (said.family, said.reason) == ("NeedsChange", "CredentialsRefused")
    assert capsys.readouterr().err.startswith("CredentialsRefused: ")

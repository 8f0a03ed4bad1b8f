"""The entry point of the image: a driver that makes its executors' pods itself (Spark's client mode), or such an executor.

    python -m checkpoint_spark.pod driver --uri URI --uid UID --epoch N --attempt N --parallelism N --conf NAME=VALUE ...
    python -m checkpoint_spark.pod executor

The operator starts the first, with POD_NAME, POD_NAMESPACE and POD_IP from the downward API. Spark starts the second, with
`executor` as the only argument and everything else in SPARK_* variables. What is read from them, and in which order the class
path stands, is the contract of Spark's own image: resource-managers/kubernetes/docker/src/main/dockerfiles/spark/entrypoint.sh,
and BasicExecutorFeatureStep and KubernetesExecutorBackend, which are the other ends of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from checkpoint_spark import class_data

#: The executors' pod template as JSON: a file of it is made here, because Spark reads it from a file.
TEMPLATE_VARIABLE: Final = "CHECKPOINTED_WRITE_EXECUTOR_TEMPLATE"
EXIT_WRONG_CALL: Final = 2
EXIT_TERMINATED: Final = 128 + signal.SIGTERM

#: Where the kubelet reads a container's last words; they show in the pod's status.
_TERMINATION_LOG: Final = Path("/dev/termination-log")
_MOST_LAST_WORDS: Final = 4000
_JAVA_OPTION: Final = re.compile(r"SPARK_JAVA_OPT_([0-9]+)")
_BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
#: The backend's options, and the variables of which Spark makes them.
_BACKEND_OPTIONS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


class WrongCall(Exception):
    """This process was not started as the operator or Spark start it."""


def main(arguments: list[str]) -> int:
    try:
        match arguments:
            case ["driver", *rest]:
                return _run_driver(rest, os.environ)
            case ["executor"]:
                _become_executor(os.environ)
            case _:
                raise WrongCall(f"'driver' with its options, or 'executor' is expected, not {arguments[:1]}")
    except WrongCall as error:
        _tell(str(error))
        return EXIT_WRONG_CALL


# --- the driver -----------------------------------------------------------------------------------------------------------


def master_url(environment: Mapping[str, str]) -> str:
    """Return the API server as Spark wants it, from the variables that Kubernetes gives every container."""
    host, port = _required(environment, "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
    return f"k8s://https://{_in_brackets(host)}:{port}"


def driver_conf(environment: Mapping[str, str], given: Mapping[str, str], template: Path | None) -> dict[str, str]:
    """Return the given properties and those that only the pod itself knows, which win: nothing works without them."""
    name, namespace, address = _required(environment, "POD_NAME", "POD_NAMESPACE", "POD_IP")
    own = {
        # Executors call the driver at its pod's address; Spark wants IPv6 addresses in brackets.
        "spark.driver.host": _in_brackets(address),
        "spark.driver.bindAddress": _in_brackets(address),
        # So that the driver's pod owns its executors: they are removed with it.
        "spark.kubernetes.driver.pod.name": name,
        "spark.kubernetes.namespace": namespace,
    }
    if template is not None:
        own["spark.kubernetes.executor.podTemplateFile"] = str(template)
    return {**given, **own}


def _run_driver(arguments: list[str], environment: Mapping[str, str]) -> int:
    _end_on_sigterm()
    # Not at the top: an executor needs none of what a driver needs, and starts in a fraction of the time.
    from checkpoint_spark.driver import drive, parse

    orders = parse(arguments, master_url(environment))
    orders.spark_conf.update(driver_conf(environment, orders.spark_conf, _template_file(environment)))
    # Driver and executors are of one image: the interpreter that runs here is the one that the packages are installed for.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    return drive(orders, _tell)


def _template_file(environment: Mapping[str, str]) -> Path | None:
    text = environment.get(TEMPLATE_VARIABLE)
    if text is None:
        return None
    try:
        json.loads(text)
    except ValueError as error:
        raise WrongCall(f"${TEMPLATE_VARIABLE} is not JSON: {error}") from None
    path = Path(tempfile.mkdtemp(prefix="executor-")) / "template.json"
    path.write_text(text, encoding="utf-8")
    return path


def _end_on_sigterm() -> None:
    """End at SIGTERM at once, whatever runs: what counts is sealed, and executors end with their driver.

    As the first process of a container we would not get the signal at all without a handler of our own. The wake-up pipe is for
    the case that the main thread is deep in foreign code, where Python's handler would have to wait.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGTERM, _terminated)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_await_sigterm, args=(reading,), name="sigterm-watch", daemon=True).start()


def _await_sigterm(reading: int) -> None:
    while number := os.read(reading, 1):
        if number[0] == signal.SIGTERM:
            _terminated(signal.SIGTERM, None)


def _terminated(_signum: int, _frame: FrameType | None) -> None:
    os._exit(EXIT_TERMINATED)


# --- an executor ----------------------------------------------------------------------------------------------------------


def executor_command(environment: Mapping[str, str], java: str, spark_home: str) -> list[str]:
    """Return the command of the executor's JVM."""
    (memory,) = _required(environment, "SPARK_EXECUTOR_MEMORY")
    values = _required(environment, *_BACKEND_OPTIONS.values())
    shared, first = class_data.executor_start(environment.get("SPARK_CLASSPATH"), Path(spark_home))
    class_path = os.pathsep.join(first + _class_path(environment, spark_home))
    command = [java, *shared, *_java_options(environment), f"-Xms{memory}", f"-Xmx{memory}", "-cp", class_path, _BACKEND]
    for option, value in zip(_BACKEND_OPTIONS, values, strict=True):
        command += [option, value]
    return command


def _java_options(environment: Mapping[str, str]) -> list[str]:
    """Return the options that Spark numbered, in their order: `--add-opens` and the like are among them already."""
    numbered = {int(match[1]): value for name, value in environment.items() if (match := _JAVA_OPTION.fullmatch(name))}
    return [numbered[number] for number in sorted(numbered)]


def _class_path(environment: Mapping[str, str], spark_home: str) -> list[str]:
    """Return the parts of the class path in the order of Spark's image. An empty part would mean the current folder."""
    parts = [
        environment.get("SPARK_CONF_DIR") or f"{spark_home}/conf",
        environment.get("HADOOP_CONF_DIR"),
        environment.get("SPARK_CLASSPATH"),  # spark.executor.extraClassPath
        f"{spark_home}/jars/*",
        environment.get("SPARK_EXTRA_CLASSPATH"),
        environment.get("SPARK_DIST_CLASSPATH"),
    ]
    return [part for part in parts if part]


def _become_executor(environment: Mapping[str, str]) -> NoReturn:
    spark_home = class_data.home_of_spark(environment)
    if spark_home is None:
        raise WrongCall("this image has no pyspark: install it, or set SPARK_HOME")
    command = executor_command(environment, _java(environment), str(spark_home))
    # Java takes our place: it gets the signals, and its end is the container's. Its Python workers look for $SPARK_HOME.
    os.execve(command[0], command, {**environment, "SPARK_HOME": str(spark_home)})  # noqa: S606 a shell is what is left out


def _java(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java", path=environment.get("PATH"))
    if java is None:
        raise WrongCall(f"there is no java in {home}/bin ($JAVA_HOME)" if home else "this image has no java: install 17 or 21")
    return java


# --- both -----------------------------------------------------------------------------------------------------------------


def _required(environment: Mapping[str, str], *names: str) -> list[str]:
    missing = [name for name in names if not environment.get(name)]
    if missing:
        raise WrongCall(f"not set: {', '.join(missing)}; this runs in pods that the operator or Spark make, which set them")
    return [environment[name] for name in names]


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _tell(text: str) -> None:
    # Not at the top: an executor has nothing to say, and starts faster without.
    from checkpoint_spark.said import sayable

    text = sayable(text)
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
    with contextlib.suppress(OSError):
        if _TERMINATION_LOG.exists():
            _TERMINATION_LOG.write_text(text[:_MOST_LAST_WORDS], encoding="utf-8", errors="replace")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""An executor in a pod: Java, and this process, which started it and is the first one of the container.

It gets the pod's SIGTERM. The tasks are told to seal what they have (`ending.py`); Java is ended when all of them have. Whatever
takes longer ends with the pod's terminationGracePeriodSeconds.

What is read from SPARK_* variables, and in which order the class path stands, is the contract of Spark's own image:
resource-managers/kubernetes/docker/src/main/dockerfiles/spark/entrypoint.sh, and BasicExecutorFeatureStep and
KubernetesExecutorBackend, which are the other ends of it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from checkpoint_spark.process import class_data, gpus
from checkpoint_work.tasks.ending import FOLDER_VARIABLE, Ending


class WrongCall(Exception):
    """This process was not started as the operator or Spark start it."""


def required(environment: Mapping[str, str], *names: str) -> list[str]:
    missing = [name for name in names if not environment.get(name)]
    if missing:
        raise WrongCall(f"not set: {', '.join(missing)}; this runs in pods that the operator or Spark make, which set them")
    return [environment[name] for name in names]


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
#: How often the tasks are looked at while the end is awaited.
_LOOK_S: Final = 0.1
_LONG_S: Final = 3600.0
_SIGNALS: Final = frozenset({signal.SIGTERM, signal.SIGCHLD})


def run_executor(environment: Mapping[str, str]) -> int:
    """Run Java until it ends, and return the container's exit code."""
    spark_home = class_data.home_of_spark(environment)
    if spark_home is None:
        raise WrongCall("this image has no pyspark: install it, or set SPARK_HOME")
    folder = Path(tempfile.mkdtemp(prefix="executor-"))
    command = executor_command(environment, _java(environment), str(spark_home), _resources(environment, folder))
    # Held back, so that none is lost between two looks. As the first process of a container we would not get them otherwise.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    tasks = folder / "tasks"
    tasks.mkdir()
    # Python workers look for $SPARK_HOME.
    of_java = {**environment, "SPARK_HOME": str(spark_home), FOLDER_VARIABLE: str(tasks)}
    java = os.posix_spawn(command[0], command, of_java, setsigmask=())
    return _watch(java, Ending(tasks))


def _watch(java: int, ending: Ending) -> int:
    """Wait for the end of Java. End it when SIGTERM has come and no task has to be waited for any more, or at a second one."""
    terms, is_ended = 0, False
    while True:
        found = signal.sigtimedwait(_SIGNALS, _LOOK_S if terms and not is_ended else _LONG_S)
        if (code := _reap(java)) is not None:
            return code
        if found is not None and found.si_signo == signal.SIGTERM:
            terms += 1
            ending.announce()
        if terms and not is_ended and (terms > 1 or not ending.is_awaited()):
            os.kill(java, signal.SIGTERM)
            is_ended = True


def _reap(java: int) -> int | None:
    """Take note of the processes that have ended, and return the exit code if Java is one of them.

    Those that lost their parent are given to the first process of a container.
    """
    while True:
        process, status = os.waitpid(-1, os.WNOHANG)
        if process == java:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if not process:
            return None


def _resources(environment: Mapping[str, str], folder: Path) -> Path | None:
    try:
        text = gpus.resources_file(environment)
    except gpus.GpusMissing as error:
        raise WrongCall(str(error)) from None
    if text is None:
        return None
    path = folder / "resources.json"
    path.write_text(text, encoding="utf-8")
    return path


def executor_command(environment: Mapping[str, str], java: str, spark_home: str, resources: Path | None = None) -> list[str]:
    """Return the command of the executor's JVM. `resources`: a file with what Spark does not have to discover."""
    (memory,) = required(environment, "SPARK_EXECUTOR_MEMORY")
    values = required(environment, *_BACKEND_OPTIONS.values())
    shared, first = class_data.executor_start(environment.get("SPARK_CLASSPATH"), Path(spark_home))
    class_path = os.pathsep.join(first + _class_path(environment, spark_home))
    command = [java, *shared, *_java_options(environment), f"-Xms{memory}", f"-Xmx{memory}", "-cp", class_path, _BACKEND]
    for option, value in zip(_BACKEND_OPTIONS, values, strict=True):
        command += [option, value]
    if resources is not None:
        command += ["--resourcesFile", str(resources)]
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


def _java(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java", path=environment.get("PATH"))
    if java is None:
        raise WrongCall(f"there is no java in {home}/bin ($JAVA_HOME)" if home else "this image has no java: install 17 or 21")
    return java

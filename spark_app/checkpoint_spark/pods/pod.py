"""The entry point of the image: a driver that makes its executors' pods itself (Spark's client mode), or such an executor.

    python -m checkpoint_spark.pods.pod driver --uri URI --uid UID --epoch N --attempt N --parallelism N --conf NAME=VALUE ...
    python -m checkpoint_spark.pods.pod executor

The operator starts the first, with POD_NAME, POD_NAMESPACE and POD_IP from the downward API. Spark starts the second, with
`executor` as the only argument and everything else in SPARK_* variables (`pod_executor.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from checkpoint_protocol.errors import CheckpointError
from checkpoint_spark.pods.pod_executor import WrongCall, required, run_executor
from checkpoint_work.tasks.ending import FOLDER_VARIABLE, Ending

#: The executors' pod template as JSON: a file of it is made here, because Spark reads it from a file.
TEMPLATE_VARIABLE: Final = "CHECKPOINTED_WRITE_EXECUTOR_TEMPLATE"
EXIT_WRONG_CALL: Final = 2
EXIT_TERMINATED: Final = 128 + signal.SIGTERM

#: Where the kubelet reads a container's last words; they show in the pod's status.
_TERMINATION_LOG: Final = Path("/dev/termination-log")
_MOST_LAST_WORDS: Final = 4000
_MOST_OF_A_MESSAGE: Final = 3000
#: How often tasks are looked at that are to seal before the end.
_LOOK_S: Final = 0.1


def main(arguments: list[str]) -> int:
    try:
        match arguments:
            case ["driver", *rest]:
                return _run_driver(rest, os.environ)
            case ["executor"]:
                return run_executor(os.environ)
            case _:
                raise WrongCall(f"'driver' with its options, or 'executor' is expected, not {arguments[:1]}")
    except WrongCall as error:
        _tell(str(error))
        return EXIT_WRONG_CALL


# --- the driver -----------------------------------------------------------------------------------------------------------


def master_url(environment: Mapping[str, str]) -> str:
    """Return the API server as Spark wants it, from the variables that Kubernetes gives every container."""
    host, port = required(environment, "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
    return f"k8s://https://{_in_brackets(host)}:{port}"


def driver_conf(environment: Mapping[str, str], given: Mapping[str, str], template: Path | None) -> dict[str, str]:
    """Return the given properties and those that only the pod itself knows, which win: nothing works without them."""
    name, namespace, address = required(environment, "POD_NAME", "POD_NAMESPACE", "POD_IP")
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
    ending = Ending(Path(tempfile.mkdtemp(prefix="tasks-")))
    # Java gets it from here, and hands it to the Python workers of tasks that run in this pod.
    os.environ[FOLDER_VARIABLE] = str(ending.folder)
    _end_on_sigterm(ending)
    # Not at the top: an executor needs none of what a driver needs, and starts in a fraction of the time.
    from checkpoint_spark.driver.main import drive, parse

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


def _end_on_sigterm(ending: Ending) -> None:
    """End at SIGTERM, whatever runs here, when tasks in this pod have sealed what they have. Executors end with their driver.

    As the first process of a container we would not get the signal at all without a handler of our own. The wake-up pipe is for
    the case that the main thread is deep in foreign code, where Python's handler would have to wait.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGTERM, lambda _number, _frame: _end(ending))
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_await_sigterm, args=(reading, ending), name="sigterm-watch", daemon=True).start()


def _await_sigterm(reading: int, ending: Ending) -> None:
    while number := os.read(reading, 1):
        if number[0] == signal.SIGTERM:
            _end(ending)


def _end(ending: Ending) -> None:
    ending.announce()
    while ending.is_awaited():
        time.sleep(_LOOK_S)
    os._exit(EXIT_TERMINATED)


# --- both -----------------------------------------------------------------------------------------------------------------


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _tell(said: str | CheckpointError) -> None:
    # Not at the top: an executor has nothing to say, and starts faster without.
    from checkpoint_work.process.settings import loggable

    text = loggable(said if isinstance(said, str) else f"{said.reason}: {said.message}")
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
    with contextlib.suppress(OSError):
        if _TERMINATION_LOG.exists():
            last = text[:_MOST_LAST_WORDS] if isinstance(said, str) else _as_last_words(said)
            _TERMINATION_LOG.write_text(last, encoding="utf-8", errors="replace")


def _as_last_words(error: CheckpointError) -> str:
    """Return what the operator reads a driver's reason from, where the store has no record of it."""
    from checkpoint_protocol.progress_reports import LastWords
    from checkpoint_spark.driver.main import family_of
    from checkpoint_work.process.settings import loggable

    length = _MOST_OF_A_MESSAGE
    while True:
        message = loggable(error.message)[:length]
        text = LastWords(family=family_of(error), reason=error.reason, message=message).model_dump_json()
        # What the kubelet has cut is no object any more.
        if len(text.encode("utf-8", "replace")) <= _MOST_LAST_WORDS:
            return text
        length //= 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Drivers as processes of this machine: Spark with local[n], ended with the runner that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from checkpoint_control.code.trees import code_folder
from checkpoint_control.decision.observation import DriverObservation, DriverState, Failure
from checkpoint_control.loop.drivers import keep_arguments
from checkpoint_local.java import check_java, without_another_spark
from checkpoint_local.other_processes import MARK_VARIABLE, end_leftovers
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.places.handed_keys import HandedOut, RenewedKeys, written
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import LaunchRecord

#: A task that fails is tried this often; local[n] alone would give it one try.
_TASK_TRIES: Final = 4
_LOOPBACK: Final = "127.0.0.1"

_TAIL_BYTES: Final = 4096
_LAST_LINES: Final = 3
_MOST_OF_A_LINE: Final = 300
#: Of Linux, with the name of the variable and the zero at the end: 32 pages.
_MOST_OF_A_VARIABLE: Final = 131_000


@dataclass(slots=True)
class DriverProcesses:
    """The driver port over processes.

    Each driver holds the reading end of a pipe of ours: when this process is gone, also by kill -9, the pipe closes and the
    driver ends. It may linger for a moment as a zombie, and harms nobody. What a driver has started ends with it, too.
    """

    spec: Spec
    uri: str
    settings: Settings
    cores: int
    state_folder: Path
    master: str | None = None
    extra_environment: Mapping[str, str] = field(default_factory=dict)
    _started: dict[tuple[EpochKey, int], subprocess.Popen[bytes]] = field(default_factory=dict)
    _recorded: set[tuple[EpochKey, int]] = field(default_factory=set)
    _cleared: set[tuple[EpochKey, int]] = field(default_factory=set)
    _keys: KeysOfProcesses = field(init=False)

    def __post_init__(self) -> None:
        self._keys = KeysOfProcesses(self.settings.handed, self.state_folder)

    def expect(self, key: EpochKey, attempt: int) -> None:
        """Note that this runner has recorded the attempt, so that its driver is yet to be started."""
        self._recorded.add((key, attempt))

    def observe(self, key: EpochKey, attempt: int) -> DriverObservation:
        process = self._started.get((key, attempt))
        if process is not None:
            if (code := process.poll()) is None:
                self._keys.renew()
                return DriverObservation(DriverState.RUNNING)
            self._end_leftovers(key, attempt)
            # Recorded only where the driver has not said by itself why it ended.
            problem = Failure("Retryable", reasons.DRIVER_FAILED, how_it_ended(code, self.log_of(key, attempt)))
            return DriverObservation(DriverState.GONE, problem)
        # An attempt that another runner recorded: its driver ended with that runner, or is about to.
        return DriverObservation(DriverState.NOT_STARTED if (key, attempt) in self._recorded else DriverState.GONE)

    def start(self, key: EpochKey, launch: LaunchRecord) -> None:
        if not self._started:
            check_java()
        self.state_folder.mkdir(parents=True, exist_ok=True)
        self._keys.renew()
        with self.log_of(key, launch.attempt).open("ab") as log:
            self._started[key, launch.attempt] = subprocess.Popen(
                self._command(key, launch.attempt),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**self._environment(), MARK_VARIABLE: mark_of(key, launch.attempt)},
                # Ctrl-C is for the runner, which ends its driver itself.
                start_new_session=True,
            )

    def stop(self, key: EpochKey, attempt: int) -> None:
        process = self._started.get((key, attempt))
        if process is not None and process.poll() is None:
            process.terminate()

    def count_running(self) -> int:
        return sum(process.poll() is None for process in self._started.values())

    def stop_all(self, patience_s: float = 10.0) -> None:
        """End every driver of this runner and wait for them, so that nothing is left behind."""
        for process in self._started.values():
            if process.poll() is None:
                process.terminate()
            if process.stdin is not None:
                process.stdin.close()
        for process in self._started.values():
            try:
                process.wait(patience_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for key, attempt in self._started:
            self._end_leftovers(key, attempt)
        self._keys.remove()

    def _end_leftovers(self, key: EpochKey, attempt: int) -> None:
        """End what an ended driver has left, once: the next attempt needs the memory, and nobody the processes."""
        if (key, attempt) not in self._cleared:
            self._cleared.add((key, attempt))
            end_leftovers(self._started[key, attempt].pid, mark_of(key, attempt))

    def log_of(self, key: EpochKey, attempt: int) -> Path:
        """Return the file that the driver's output goes to."""
        return self.state_folder / f"driver-{key.epoch}-{f'{key.stage}-' if key.stage else ''}{attempt}.log"

    def _command(self, key: EpochKey, attempt: int) -> list[str]:
        command = [sys.executable, "-m", "checkpoint_spark.driver.main", "--end-with-parent"]
        command += ["--uri", self.uri, "--uid", key.uid, "--epoch", str(key.epoch)]
        command += [*(["--stage", key.stage] if key.stage else []), "--attempt", str(attempt)]
        command += ["--master", self.master or f"local[{self.cores},{_TASK_TRIES}]", "--parallelism", str(self.cores)]
        return [*command, *keep_arguments(self.spec, key.stage), *conf_arguments(self.spec)]

    def _environment(self) -> dict[str, str]:
        return {**environment_of(self.spec, self.settings), **self._keys.environment(), **self.extra_environment}


@dataclass(slots=True)
class KeysOfProcesses:
    """Hands the keys that catalogs hand out to processes of this machine, in a private file of a folder. They are short-lived: a
    file that a kill -9 leaves behind is worth nothing soon.

    `handed`: RenewedKeys, or None where there are none; then nothing is done.
    """

    handed: HandedOut | None
    folder: Path
    _written: bytes = b""

    @property
    def file(self) -> Path:
        return self.folder / "keys.json"

    def environment(self) -> dict[str, str]:
        return {} if self.handed is None else {"CHECKPOINTED_WRITE_KEYS_FILE": str(self.file)}

    def renew(self) -> None:
        """Put them where the processes read them, if they are others. The catalog is asked when half of their life is over."""
        if not isinstance(self.handed, RenewedKeys) or (text := written(self.handed.all())) == self._written:
            return
        made = self.folder / f".{self.file.name}-{os.getpid()}"
        made.touch(mode=0o600)
        made.write_bytes(text)
        made.replace(self.file)
        self._written = text

    def remove(self) -> None:
        if self._written:
            self.file.unlink(missing_ok=True)
            self._written = b""


def mark_of(key: EpochKey, attempt: int) -> str:
    """Return what a driver of this runner, and all that it starts, is known by among the processes of this machine."""
    return f"{os.getpid()} {key} {attempt}"


def environment_of(spec: Spec, settings: Settings) -> dict[str, str]:
    """Return the environment of a process that runs the steps of a write. The storage settings are in it, and no catalogs."""
    environment = without_another_spark(os.environ)
    folder = code_folder(spec)
    return environment | {
        # Not PYTHONPATH, which the driver would be made of: it looks at the folder first, and then puts it in front.
        "CHECKPOINTED_WRITE_CODE_FOLDER": str(folder) if folder else "",
        # Else modules of the folder that the user happens to stand in come before those of code.path, unseen by the digest.
        "PYTHONSAFEPATH": "1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": _LOOPBACK,
        "PYTHONUNBUFFERED": "1",
        "CHECKPOINTED_WRITE_LOCAL_STORAGE": _storage_of(settings),
    }


def conf_arguments(spec: Spec) -> list[str]:
    """Return Spark's properties of a driver on this machine, as arguments."""
    conf = {
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.driver.memory": f"{max(spec.driver.memory >> 20, 512)}m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **spec.spark_conf,
    }
    return [argument for name, value in conf.items() for argument in ("--conf", f"{name}={value}")]


def _storage_of(settings: Settings) -> str:
    text = settings.for_drivers().model_dump_json()
    if len(text.encode()) > _MOST_OF_A_VARIABLE:
        place = settings.place.name("storage")
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"the entries of {place} are {len(text.encode()):,} bytes of JSON, and a process takes {_MOST_OF_A_VARIABLE:,} at "
            "most; leave out there what this write does not need (--settings names another file)",
        )
    return text


def how_it_ended(code: int, log: Path) -> str:
    """Say how a process ended that has left no failure record; `code` is Popen's: negative for a signal."""
    if code == 0:
        how = "its driver ended with exit code 0, before all was sealed"
    elif code > 0:
        how = f"its driver ended with exit code {code} and did not say why"
    else:
        how = f"its driver was killed by {_name_of(-code)}"
    lines = _last_lines(log)
    said = f"; it ends with: {' | '.join(lines)}" if lines else ""
    return f"{how}; its log is {log}{said}"


def _name_of(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    if number == signal.SIGKILL:
        return f"{name} (by somebody, or by the kernel for want of memory: see driver.memory)"
    return name


def _last_lines(log: Path) -> list[str]:
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    lines = [" ".join(line.split())[:_MOST_OF_A_LINE] for line in text.splitlines()]
    return [line for line in lines if line][-_LAST_LINES:]

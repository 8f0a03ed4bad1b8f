"""The installed command as a user runs it: a process of its own, with a folder for its state."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.store.object_store import open_store
from checkpoint_protocol.writes import look_up_name
from tests.support.places import IcebergPlace, LancePlace, Place
from tests.support.waiting import Late, patience

PATIENCE_S = 60.0


class Running:
    """A process whose output goes to a file, so that it can be read while it runs."""

    def __init__(self, command: list[str], output: Path, environment: dict[str, str]) -> None:
        self._output = output
        with output.open("wb") as file:
            self._process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)

    @property
    def pid(self) -> int:
        return self._process.pid

    def output(self) -> str:
        return self._output.read_text()

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self, patience_s: float) -> int:
        return self._process.wait(patience_s)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@dataclass
class CommandLine:
    """A manifest and its settings as files, and `checkpointed-write` on them."""

    folder: Path
    place: Place
    manifest: CheckpointedWrite

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file.write_text(yaml.safe_dump(self.manifest.model_dump(mode="json", by_alias=True), allow_unicode=True))
        settings = self.place.settings.model_dump(mode="json", exclude_none=True)
        settings["storage"] = self.place.settings.for_drivers().model_dump(mode="json")["storage"]
        self.settings_file.write_text(yaml.safe_dump(settings, allow_unicode=True))

    @property
    def file(self) -> Path:
        return self.folder / "write.yaml"

    @property
    def settings_file(self) -> Path:
        return self.folder / "settings.yaml"

    def environment(self, machine: str = "one") -> dict[str, str]:
        """The environment; each `machine` has a state folder of its own, as if it were another machine."""
        return {**os.environ, "XDG_STATE_HOME": str(self.folder / f"state-{machine}"), "COLUMNS": "200"}

    def start(self, *arguments: str, machine: str = "one") -> Running:
        command = [sys.executable, "-m", "checkpoint_local.cli.main", "run", str(self.file)]
        command += ["--settings", str(self.settings_file), "--cores", "2", *arguments]
        return Running(command, self.folder / f"output-{time.monotonic_ns()}.txt", self.environment(machine))

    def run(self, *arguments: str, machine: str = "one") -> tuple[int, str]:
        return wait_for_end(self.start(*arguments, machine=machine))

    def say(self, *arguments: str) -> str:
        """Run another command to its end and return what it says on its standard output."""
        command = [sys.executable, "-m", "checkpoint_local.cli.main", *arguments, "--settings", str(self.settings_file)]
        return subprocess.run(
            command, env=self.environment(), stdout=subprocess.PIPE, check=False, text=True, timeout=patience(PATIENCE_S)
        ).stdout

    def ledger(self, epoch: int = 1) -> Ledger | None:
        """A fresh look at the store, or None while the write has no uid."""
        store = open_store(self.place.checkpoint_uri, self.place.settings)
        metadata = self.manifest.metadata
        uid = look_up_name(store, metadata.namespace, metadata.name)
        return Ledger(store, EpochKey(uid, epoch)) if uid else None

    def seals(self, attempt: int) -> int:
        ledger = self.ledger()
        return sum(ledger.seals.list_links(attempt).values()) if ledger else 0


def wait_for_end(process: Running, patience_s: float = PATIENCE_S) -> tuple[int, str]:
    """Return exit code and output; a process that does not end is killed and fails the test."""
    try:
        return process.wait(patience(patience_s)), process.output()
    except subprocess.TimeoutExpired:
        process.kill()
        raise Late(f"did not end within {patience(patience_s)} s:\n{process.output()}") from None


def driver_of(runner: Running) -> psutil.Process:
    """The driver process of a runner."""
    for child in psutil.Process(runner.pid).children():
        if "checkpoint_spark.driver.main" in " ".join(child.cmdline()):
            return child
    raise AssertionError("the runner has no driver")


def kill(process: Any) -> None:
    os.kill(process.pid, signal.SIGKILL)


def kill_with_all_below(process: psutil.Process) -> None:
    """End a process and all that it has begun, as the end of a pod does."""
    for each in [process, *process.children(recursive=True)]:
        with suppress(ProcessLookupError):
            kill(each)


def memory_bytes(root: int) -> int:
    """Proportional memory of a process and all below it: shared pages are counted once in all."""
    total = 0
    for process in [psutil.Process(root), *psutil.Process(root).children(recursive=True)]:
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return total


def save_place(place: Place, path: Path) -> Path:
    """Write a place to a file, for another process of the same test."""
    settings = place.settings.model_dump(mode="json")
    path.write_text(
        json.dumps(
            {
                "kind": type(place).__name__,
                "folder": str(place.folder),
                "settings": settings,
                "checkpoint_uri": place.checkpoint_uri,
                "base_uri": place.base_uri,
                "name": getattr(place, "name", None),
            }
        )
    )
    return path


def load_place(path: str) -> Place:
    """Read what save_place wrote."""
    plain = json.loads(Path(path).read_text())
    settings = Settings.model_validate_json(json.dumps(plain["settings"]))
    arguments = (Path(plain["folder"]), settings, plain["checkpoint_uri"], plain["base_uri"])
    return IcebergPlace(*arguments, name=plain["name"]) if plain["kind"] == "IcebergPlace" else LancePlace(*arguments)

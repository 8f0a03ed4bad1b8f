"""python -m benchmarks.front: the same small job with other tools, and what a failing row and a SIGKILL leave of it.

It measures no time; docs/comparison.md tells what came out. Each tool has a script of its own in `rivals/front`, written as its
users would write it, and an environment of its own, which is installed at first use. A script is copied beside its input as
`job.py`, since `daft.py` would be imported in place of Daft.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import lance
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import environments, processes

_ROWS: Final = 40_000
_FILES: Final = 8
_FRONT: Final = Path(__file__).parent / "rivals" / "front"
_FAILING: Final = f"the text of number {_ROWS * 3 // 4}"
_PATIENCE_S: Final = 300.0
_QUIET: Final = {"DO_NOT_TRACK": "true", "RUNTIME__DLTHUB_TELEMETRY": "false", "USERNAME": "someone"}
_DATACHAIN_IDS: Final = "import datachain, json; print(json.dumps(datachain.read_dataset('texts').to_values('id')))"


@dataclass(frozen=True)
class Tool:
    name: str
    script: str
    first: tuple[str, ...] = ()
    again: tuple[str, ...] = ()

    @property
    def python(self) -> str:
        return sys.executable if self.script == "ours" else environments.python_of_rival(f"front/{self.script}")

    @property
    def lines(self) -> int:
        """Count the script's lines, without blank ones and comments."""
        lines = [line.strip() for line in (_FRONT / f"{self.script}.py").read_text().splitlines()]
        return sum(bool(line) and not line.startswith("#") for line in lines)


TOOLS: Final = (
    Tool("Checkpointed Writes", "ours"),
    Tool("Daft", "daft"),
    Tool("DataChain", "datachain"),
    Tool("dlt", "dlt"),
    Tool("Metaflow, run again", "metaflow", ("run",), ("run",)),
    Tool("Metaflow, resumed", "metaflow", ("run",), ("resume",)),
)


class Job:
    """A tool's script beside its input, in a folder that is its home as well."""

    def __init__(self, tool: Tool, folder: Path) -> None:
        self._tool, self._folder, self._log = tool, folder, folder / "log"
        (folder / "texts").mkdir(parents=True)
        shutil.copy(_FRONT / "embedding.py", folder)
        shutil.copy(_FRONT / f"{tool.script}.py", folder / "job.py")
        for number in range(_FILES):
            ids = range(number * _ROWS // _FILES, (number + 1) * _ROWS // _FILES)
            rows = pa.table({"id": ids, "text": [f"the text of number {one}" for one in ids]})
            pq.write_table(rows, folder / "texts" / f"{number}.parquet")

    def run(self, *arguments: str, failing: str = "", kill_if: Callable[[], bool] = lambda: False) -> str:
        """Run the script to its end, or kill all its processes when it is time; say how it ended."""
        word = f"front-{uuid.uuid4().hex}"
        command = ["env", "-C", str(self._folder), self._tool.python, "job.py", *arguments]
        environment = {**_QUIET, "HOME": str(self._folder), "FAILING": failing}
        process = processes.start(command, word, self._log, environment)
        until = time.monotonic() + _PATIENCE_S
        try:
            while process.poll() is None:
                if time.monotonic() > until:
                    raise processes.Failed(f"{self._tool.name} did not end within {_PATIENCE_S:.0f} s; see {self._log}")
                if kill_if():
                    return "killed"
                time.sleep(0.005)
            return f"exit {process.returncode}"
        finally:
            processes.kill_all(word)
            process.wait()

    def calls(self) -> int:
        file = self._folder / "calls"
        return file.stat().st_size if file.exists() else 0

    def has_rows(self) -> bool:
        return bool(self._ids_in_lance())

    def table(self) -> str:
        """Say how many rows the table has, and how many are doubled or lost."""
        ids = self._ids_in_datachain() if self._tool.script == "datachain" else self._ids_in_lance()
        doubled, lost = len(ids) - len(set(ids)), _ROWS - len(set(ids))
        return f"{len(ids):,} rows" + (f", {doubled:,} doubled" if doubled else "") + (f", {lost:,} lost" if ids and lost else "")

    def _ids_in_lance(self) -> list[int]:
        for found in (*self._folder.glob("texts.lance"), *self._folder.glob("dlt_lance_root/*$texts")):
            try:
                ids: list[int] = lance.dataset(str(found)).to_table(columns=["id"])["id"].to_pylist()
            except (ValueError, OSError):  # it is not there yet
                continue
            return ids
        return []

    def _ids_in_datachain(self) -> list[int]:
        command = ["env", "-C", str(self._folder), f"HOME={self._folder}", self._tool.python, "-c", _DATACHAIN_IDS]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        ids: list[int] = json.loads(done.stdout) if done.returncode == 0 else []
        return ids


def failing_row(job: Job, tool: Tool) -> str:
    """The function raises for one row; then the same command is run again, and it does no more."""
    first = f"{job.run(*tool.first, failing=_FAILING)} after {job.calls():,} calls: {job.table()}"
    return f"{first}; again without the failure: {job.run(*tool.again)}, {job.calls():,} calls in all, {job.table()}"


def killed(when: Callable[[Job], bool]) -> Callable[[Job, Tool], str]:
    def outcome(job: Job, tool: Tool) -> str:
        first = f"{job.run(*tool.first, kill_if=lambda: when(job))} after {job.calls():,} calls: {job.table()}"
        return f"{first}; again: {job.run(*tool.again)}, {job.calls():,} calls in all, {job.table()}"

    return outcome


SCENES: Final[dict[str, Callable[[Job, Tool], str]]] = {
    "a failing row": failing_row,
    "killed at half": killed(lambda job: job.calls() >= _ROWS // 2),
    "killed at the last call": killed(lambda job: job.calls() >= _ROWS),
    "killed when the Lance table shows rows": killed(Job.has_rows),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.front", description="Run the same small job with other tools.")
    parser.add_argument(
        "scripts", nargs="*", metavar="SCRIPT", help=f"of {', '.join(sorted({tool.script for tool in TOOLS}))}; else all"
    )
    parser.add_argument("--folder", type=Path, help="where the jobs run and their logs stay; else a folder that is removed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="checkpointed-writes-front-", ignore_cleanup_errors=True) as name:
        root = (arguments.folder or Path(name)).absolute()
        print("| tool | lines | scene | outcome |\n|---|---|---|---|")
        for number, tool in enumerate(TOOLS):
            if arguments.scripts and tool.script not in arguments.scripts:
                continue
            for scene, outcome in SCENES.items():
                if scene.endswith("shows rows") and tool.script == "datachain":
                    continue
                job = Job(tool, root / f"{number}-{scene.replace(' ', '-')}")
                print(f"| {tool.name} | {tool.lines} | {scene} | {outcome(job, tool)} |", flush=True)


if __name__ == "__main__":
    main()

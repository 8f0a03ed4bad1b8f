"""A driver that is killed when 90 % of the rows were asked about, and nothing but whole tasks is sealed: calls made twice.

The step keeps its results (`memo: true`), and no segment ends before its task does. What may be asked for again is what was on
its way, and as many results that were not put yet: twice `concurrency` for each task that ran. The other side is that bound.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import yaml

from benchmarks import outputs, paces, processes
from benchmarks.bench import Bench
from benchmarks.checkpointed import Lake, iceberg
from benchmarks.http_service import counts, serving
from benchmarks.inputs import Input
from benchmarks.pairs import OutputsDiffer, ratio_of
from benchmarks.results import Result, with_ratio

_LATENCY_S: Final = 0.05
_AT_ONCE: Final = 64
_PART: Final = 0.9
_PATIENCE_S: Final = 300.0
_POLL_S: Final = 0.01
_DRIVER: Final = "checkpoint_spark.driver.main"


def measure(bench: Bench) -> Iterator[Result]:
    source = bench.input(20_000, small_rows=2_560)
    expected = outputs.of_files(source.files)
    again: list[int] = []
    for number in range(1, bench.rounds + 1):
        again.append(_calls_made_twice(bench, source, expected))
        bench.say(f"round {number}: {again[-1]} of {source.rows:,} calls were made twice")
    bound = _AT_ONCE * bench.cores * 2
    about = (
        f"a step with memo that asks a service of 50 ms about each of {source.rows:,} rows, {_AT_ONCE} at once in each of "
        f"{bench.cores} tasks, its driver killed at 90 % of the calls: calls made twice / {bound}"
    )
    ratio = ratio_of([float(count) for count in again], [float(bound)] * len(again))
    yield with_ratio("memo-kill", about, ratio, 1.0, len(again), raw={"again": again, "bound": bound})


def _calls_made_twice(bench: Bench, source: Input, expected: outputs.Content) -> int:
    folder, word = Path(tempfile.mkdtemp(prefix="memo-kill-")), f"job-{uuid.uuid4().hex}"
    log = folder / "output.log"
    try:
        with serving(_LATENCY_S) as url:
            lake = Lake(folder / "lake")
            table = lake.make_table(source.schema)
            step = {"call": "asking:Ask", "input": "row", "arguments": {"url": url}, "concurrency": _AT_ONCE, "memo": True}
            manifest = lake.manifest(source, iceberg(table), {"interval": "1h"}, steps=[step], code={"path": str(paces.CODE)})
            (folder / "write.yaml").write_text(yaml.safe_dump(manifest.model_dump(mode="json", by_alias=True)))
            (folder / "settings.yaml").write_text(yaml.safe_dump(lake.settings.model_dump(mode="json", exclude_none=True)))
            command = [sys.executable, "-m", "checkpoint_local.cli.main", "run", str(folder / "write.yaml")]
            command += ["--settings", str(folder / "settings.yaml"), "--cores", str(bench.cores)]
            environment = {"PYTHONPATH": os.pathsep.join(sys.path), "XDG_STATE_HOME": str(folder / "state")}
            run = processes.start(command, word, log, environment)
            _kill_driver_at(run.pid, url, int(source.rows * _PART))
            processes.finish(run, word, _PATIENCE_S, log)
            sent = counts(url)
        if (found := outputs.of_iceberg(table)) != expected or sent.paths != source.rows:
            raise OutputsDiffer(f"ours left {found} of {sent.paths} calls, and expected was {expected}")
        return sent.requests - sent.paths
    finally:
        processes.kill_all(word)
        shutil.rmtree(folder, ignore_errors=True)


def _kill_driver_at(runner: int, url: str, calls: int) -> None:
    began = time.monotonic()
    while counts(url).requests < calls:
        if time.monotonic() - began > _PATIENCE_S:
            raise processes.Failed(f"had not made {calls:,} calls within {_PATIENCE_S:.0f} s")
        time.sleep(_POLL_S)
    for driver in psutil.Process(runner).children():
        if _DRIVER in " ".join(driver.cmdline()):
            for process in [driver, *driver.children(recursive=True)]:
                process.kill()

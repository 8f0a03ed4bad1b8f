"""A small epoch, from the file that comes to the snapshot that has it: a driver that waits (`trigger.keepDriver`), `run --watch`.

The whole way of news: the look that is due, launch record, input, plan, tasks, seals, closing, commit. Files of 1,000 rows come
at times that have nothing to do with the looks, and each once the one before is in the table. The other side is what may be.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pyiceberg.table import Table

from benchmarks import processes
from benchmarks.bench import Bench
from benchmarks.checkpointed import Lake, iceberg
from benchmarks.pairs import OutputsDiffer, ratio_of
from benchmarks.results import Result, with_ratio

_ROWS: Final = 1_000
_EPOCHS: Final = 200
_SMALL_EPOCHS: Final = 3
_TRIGGER: Final = {"every": "1s", "keepDriver": "10m"}
#: The figures' bounds: of the middle one, and of the slowest of a hundred.
_MIDDLE_S, _SLOWEST_S = 3.0, 6.0
_PATIENCE_S: Final = 300.0
_POLL_S: Final = 0.02
#: Between two files, from a second on: steps that do not divide a second.
_STEP_S: Final = 0.37


def measure(bench: Bench) -> Iterator[Result]:
    seconds = _epochs(_SMALL_EPOCHS if bench.small else _EPOCHS)
    ordered = sorted(seconds)
    middle, slowest = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    bench.say(f"{len(seconds)} epochs: p50 {middle:.2f} s, p99 {slowest:.2f} s")
    about = f"a small epoch with a driver that waits, {_ROWS:,} rows from the file to the snapshot on disk, looks every second"
    for name, told, found, bound in (("p50", "the middle one", middle, _MIDDLE_S), ("p99", "99 of 100", slowest, _SLOWEST_S)):
        ratio = ratio_of([found], [bound])
        yield with_ratio(f"small-epochs-{name}", f"{about}: {told} / {bound:g} s", ratio, 1.0, 1, raw={"seconds": seconds})


def _epochs(number: int) -> list[float]:
    folder, word = Path(tempfile.mkdtemp(prefix="small-epochs-")), f"job-{uuid.uuid4().hex}"
    source, log = folder / "in", folder / "output.log"
    try:
        source.mkdir()
        lake = Lake(folder / "lake")
        table = lake.make_table(pa.schema([("id", pa.int64())]))
        _put_file(source, 0)
        manifest = lake.manifest(str(source), iceberg(table), trigger=_TRIGGER)
        (folder / "write.yaml").write_text(yaml.safe_dump(manifest.model_dump(mode="json", by_alias=True)))
        (folder / "settings.yaml").write_text(yaml.safe_dump(lake.settings.model_dump(mode="json", exclude_none=True)))
        command = [sys.executable, "-m", "checkpoint_local.cli.main", "run", "--watch", str(folder / "write.yaml")]
        command += ["--settings", str(folder / "settings.yaml")]
        environment = {"PYTHONPATH": os.pathsep.join(sys.path), "XDG_STATE_HOME": str(folder / "state")}
        processes.start(command, word, log, environment)
        _await_snapshots(table, 1, log)
        seconds = []
        for epoch in range(1, number + 1):
            time.sleep(1 + epoch * _STEP_S % 1)
            _put_file(source, epoch)
            came = time.perf_counter()
            _await_snapshots(table, epoch + 1, log)
            seconds.append(time.perf_counter() - came)
        found = sorted(table.refresh().scan().to_arrow()["id"].to_pylist())
        if found != list(range((number + 1) * _ROWS)):
            raise OutputsDiffer(f"{len(found):,} rows are in the table, and expected was each of {(number + 1) * _ROWS:,} once")
        return seconds
    finally:
        processes.kill_all(word)
        shutil.rmtree(folder, ignore_errors=True)


def _put_file(folder: Path, number: int) -> None:
    """Write a file elsewhere and move it in, so that nobody sees a part of it."""
    beside = folder.with_name("part")
    pq.write_table(pa.table({"id": range(number * _ROWS, (number + 1) * _ROWS)}), beside)
    beside.rename(folder / f"{number:06}.parquet")


def _await_snapshots(table: Table, number: int, log: Path) -> None:
    began = time.monotonic()
    for _ in count():
        if len(table.refresh().metadata.snapshots) >= number:
            return
        if time.monotonic() - began > _PATIENCE_S:
            raise processes.Failed(f"epoch {number} was not committed within {_PATIENCE_S:.0f} s: {log.read_text()[-2000:]}")
        time.sleep(_POLL_S)

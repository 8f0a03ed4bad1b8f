"""A hundred million rows that are known by keys, a driver killed when half of them are sealed, and the rest: in how much memory?

Measured is the most that all processes of the write have at once, shared pages counted once (PSS): runner, driver, JVM and
Python workers. The runner is this process, so what the benchmark itself holds counts too. The driver of the rest leaves fifty
million keys out, and counts them before.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bench import Bench
from benchmarks.checkpointed import Lake, iceberg
from benchmarks.killing import Killer
from benchmarks.pairs import OutputsDiffer, Ratio
from benchmarks.results import Result, with_ratio
from checkpoint_control.decision.actions import Finish, StartDriver
from checkpoint_local.runner import Report, Runner, identify
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.store.object_store import open_store

_ROWS: Final = 100_000_000
_FILES: Final = 64
_LIMIT_GIB: Final = 6.0
_DRIVER_MEMORY: Final = "3Gi"
_POLL_S: Final = 0.5


def measure(bench: Bench) -> Iterator[Result]:
    os.environ["XDG_STATE_HOME"] = str(bench.folder / "state")
    count = 640_000 if bench.small else _ROWS
    folder = bench.folder / "input"
    _write(folder, count)
    lake = Lake(bench.folder / "lake")
    table = lake.make_table(pq.read_schema(next(folder.glob("*.parquet"))))
    checkpoint = {"interval": "1s", "minimumBytes": "1"}
    manifest = lake.manifest(str(folder), iceberg(table), checkpoint, "id", driver={"memory": _DRIVER_MEMORY})
    ledger = Ledger(open_store(manifest.spec.checkpoint.uri, lake.settings), EpochKey(_uid(lake, manifest), 1))
    killer, memory = Killer(ledger, count // 2), _Memory()
    started: list[float] = []

    def note(report: Report) -> None:
        if report.round is not None and any(isinstance(action, StartDriver) for action in report.round.actions):
            started.append(time.time())

    began = time.time()
    killer.start()
    memory.start()
    done = Runner(manifest, lake.settings, bench.cores, note).run()
    ended = time.time()
    memory.stop()
    assert isinstance(done.outcome, Finish), done.outcome
    sealed = sum(seal.rows_read for seal in ledger.chains.counted_seals([1]))
    files = [task.file.file_path for task in table.refresh().scan().plan_files()]
    if (found := _content(files)) != (expected := _content([str(file) for file in folder.glob("*.parquet")])):
        raise OutputsDiffer(f"the table holds {found}, and expected was {expected}")
    if not bench.small:
        assert len(started) > 1, "everything was sealed before the driver was dead"
    first_s, rest_s = (killer.killed_at or ended) - began, ended - (killer.killed_at or ended)
    told = (
        f"killed with {sealed:,} rows sealed after {first_s:.0f} s; the rest took {rest_s:.0f} s; "
        f"{memory.peak / (1 << 30):.2f} GiB at the most, {memory.peak_after(killer.killed_at) / (1 << 30):.2f} after the kill; "
        f"the driver's heap may have {_DRIVER_MEMORY}"
    )
    bench.say(told)
    ratio = memory.peak / (1 << 30) / _LIMIT_GIB
    yield with_ratio(
        "keys-at-scale",
        f"memory of all processes, {count:,} rows by int64 keys, driver killed with half of them sealed / {_LIMIT_GIB:g} GiB",
        Ratio(ratio, ratio, ratio),
        target=1.0,
        pairs=1,
        raw={"peak_bytes": memory.peak, "seconds": {"until_the_kill": round(first_s, 1), "rest": round(rest_s, 1)}},
        seen=[told],
    )


def _uid(lake: Lake, manifest: Any) -> str:
    return identify(open_store(manifest.spec.checkpoint.uri, lake.settings), manifest)


def _write(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    part = count // _FILES
    for number in range(_FILES):
        # Times an odd number: each once, in no order.
        values = np.arange(number * part, (number + 1) * part, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        table = pa.table({"id": values.view(np.int64), "part": np.full(part, number, np.int32)})
        pq.write_table(table, folder / f"{number:02}.parquet", use_dictionary=["part"])


def _content(files: list[str]) -> tuple[int, ...]:
    """Rows, and sums over them that a lost or doubled row changes; exact counts of 100 million keys would take gigabytes."""
    names = [file.removeprefix("file://") for file in files]
    with duckdb.connect() as connection:
        relation = connection.read_parquet(names)
        found = relation.query("rows", "SELECT count(*), sum(hash(id, part)), bit_xor(hash(id)) FROM rows").fetchone()
    assert found is not None
    return tuple(int(value) for value in found)


class _Memory(threading.Thread):
    """Watches the memory of this process and all below it."""

    def __init__(self) -> None:
        super().__init__(name="memory", daemon=True)
        self._ended = threading.Event()
        self._seen: list[tuple[float, int]] = []

    @property
    def peak(self) -> int:
        return self.peak_after(0.0)

    def peak_after(self, moment: float) -> int:
        return max((size_bytes for at, size_bytes in self._seen if at >= moment), default=0)

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        own = psutil.Process()
        while not self._ended.wait(_POLL_S):
            total = 0
            for process in (own, *own.children(recursive=True)):
                try:
                    total += process.memory_full_info().pss
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue
            self._seen.append((time.time(), total))

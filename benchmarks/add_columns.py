"""Add a column to a Lance dataset by a step of 20 us a row: a write with AddColumns against the library's own `add_columns`.

Both make the same column of the same rows, and commit it once. The library calls the function in one process, batch by batch; we
start a driver, which has a task for each core. Its start is ours to pay: times are from the command to the commit. The second
figure kills the driver when half of the rows are sealed: from the kill to the commit, against all of the library's work, which
begins anew.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import paces
from benchmarks.bench import Bench
from benchmarks.checkpointed import Lake
from benchmarks.killing import Killer
from benchmarks.pairs import Ran, interleave
from benchmarks.results import Result, result_of
from checkpoint_control.decision.actions import Finish
from checkpoint_local.runner import Runner, identify
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.store.object_store import open_store

_ROW_US: Final = 20
_BATCH_ROWS: Final = 8_192
_FRAGMENTS: Final = 8
#: Rows, rows with a value, and the sum of the values.
_Column = tuple[int, int, int]


def measure(bench: Bench) -> Iterator[Result]:
    os.environ["XDG_STATE_HOME"] = str(bench.folder / "state")
    sys.path.insert(0, str(paces.CODE))
    job = _Job(bench, 40_000 if bench.small else 2_000_000)
    sides = {"library": job.by_library, "ours": job.by_us, "ours after a kill": job.after_a_kill}
    expected = (job.rows, job.rows, job.rows * (job.rows + 1) // 2)
    times = interleave(sides, expected, bench.rounds, bench.warm_ups, bench.say)
    what = f"add a column to {job.rows:,} rows in Lance, {_ROW_US} us a row"
    yield result_of("add-columns", f"{what}: AddColumns / the library's add_columns", times, "ours", "library", target=1.1)
    about = f"{what}, killed with half sealed: from the kill to the commit / all of the library's add_columns"
    yield result_of("add-columns-kill", about, times, "ours after a kill", "library", target=0.6)


@dataclass(frozen=True, slots=True)
class _Job:
    bench: Bench
    rows: int

    @property
    def lake(self) -> Lake:
        return Lake(self.bench.folder / "ours")

    def by_library(self) -> Ran:
        import lance
        from adding import Adding

        uri, step = self._dataset(), Adding(_ROW_US)
        started = time.perf_counter()
        lance.dataset(uri).add_columns(step, read_columns=["id"], batch_size=_BATCH_ROWS)
        return self._ended(uri, time.perf_counter() - started)

    def by_us(self) -> Ran:
        uri = self._dataset()
        started = time.perf_counter()
        self._run(self._manifest(uri))
        return self._ended(uri, time.perf_counter() - started)

    def after_a_kill(self) -> Ran:
        uri = self._dataset()
        manifest = self._manifest(uri)
        store = open_store(manifest.spec.checkpoint.uri, self.lake.settings)
        killer = Killer(Ledger(store, EpochKey(identify(store, manifest), 1)), self.rows // 2)
        killer.start()
        self._run(manifest)
        ended = time.time()
        killer.join()
        if not killer.killed_at:
            raise RuntimeError("everything was sealed before the driver was dead")
        return self._ended(uri, ended - killer.killed_at)

    def _run(self, manifest: CheckpointedWrite) -> None:
        done = Runner(manifest, self.lake.settings, self.bench.cores, lambda _: None).run()
        assert isinstance(done.outcome, Finish), done.outcome

    def _manifest(self, uri: str) -> CheckpointedWrite:
        step: dict[str, Any] = {
            "call": "adding:Adding",
            "input": "arrow",
            "arguments": {"row_us": _ROW_US},
            "output": {"more": "int64"},
        }
        sink = {"lance": {"uri": uri}, "mode": "AddColumns", "columns": ["more"]}
        checkpoint = {"interval": "0.5s", "minimumBytes": "1"}
        return self.lake.manifest({"lance": {"uri": uri}}, sink, checkpoint, steps=[step], code={"path": str(paces.CODE)})

    def _dataset(self) -> str:
        import lance
        import pyarrow as pa

        uri = str(self.bench.folder / "made" / uuid.uuid4().hex)
        part = self.rows // _FRAGMENTS
        for number in range(_FRAGMENTS):
            rows = pa.table({"id": pa.array(range(number * part, (number + 1) * part), pa.int64())})
            lance.write_dataset(rows, uri, mode="append" if number else "create")
        return uri

    def _ended(self, uri: str, seconds: float) -> Ran:
        import duckdb
        import lance

        with duckdb.connect() as connection:
            found = connection.from_arrow(lance.dataset(uri).scanner().to_reader())
            row = found.query("f", "SELECT count(*), count(more), sum(more)::BIGINT FROM f").fetchone()
        assert row is not None
        column: _Column = (int(row[0]), int(row[1]), int(row[2]))
        shutil.rmtree(Path(uri))
        return Ran(seconds, column)

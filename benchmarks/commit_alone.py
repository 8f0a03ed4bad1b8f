"""Everything is sealed and the driver is gone: what does the operator do, and how much longer than a bare commit does it take?

The bare commit is pyiceberg's fast append of the same data files, whose statistics it is given: it loads the table, writes one
manifest, and swaps. Ours reads the seals, closes the attempt, checks the files, claims, commits and puts the mark.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import psutil
from pyiceberg.manifest import DataFile

from benchmarks import outputs
from benchmarks.bench import Bench
from benchmarks.checkpointed import Lake, finish, iceberg, reconciler_of
from benchmarks.pairs import Ran, interleave
from benchmarks.results import Result, result_of
from checkpoint_control.decision.actions import StartDriver
from checkpoint_control.decision.observation import DriverObservation, DriverState
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.records import LaunchRecord
from checkpoint_protocol.store.object_store import open_store
from tests.support.direct_drivers import DirectDrivers

#: Tasks are three times as many, and each seals one file here.
_PARALLELISM: Final = 32


@dataclass(slots=True)
class NoDrivers:
    """The driver port of an operator that finds nobody and starts nobody."""

    def observe(self, key: EpochKey, attempt: int) -> DriverObservation:
        return DriverObservation(DriverState.GONE)

    def expect(self, key: EpochKey, attempt: int) -> None:
        raise AssertionError("an attempt was recorded")

    def start(self, key: EpochKey, launch: LaunchRecord) -> None:
        raise AssertionError("a driver was started")

    def stop(self, key: EpochKey, attempt: int) -> None:
        pass


def measure(bench: Bench) -> Iterator[Result]:
    source = bench.input(960_000, small_rows=9_600, group_rows=600 if bench.small else 10_000)
    lake = Lake(bench.folder / "lake")
    expected = outputs.of_files(source.files)
    staged: list[list[DataFile]] = []

    def operator() -> Ran:
        table = lake.make_table(source.schema)
        manifest = lake.manifest(source, iceberg(table))
        _stage(manifest, lake)
        started = time.perf_counter()
        finish(reconciler_of(manifest, lake.settings, NoDrivers()))
        seconds = time.perf_counter() - started
        content = outputs.of_iceberg(table)
        staged.append([task.file for task in table.scan().plan_files()])
        return Ran(seconds, content)

    def bare() -> Ran:
        """The files that the side before has committed, into another table."""
        table = lake.make_table(source.schema)
        name = table.name()
        started = time.perf_counter()
        with lake.catalog().load_table(name).transaction() as transaction, transaction.update_snapshot().fast_append() as update:
            for file in staged[-1]:
                update.append_data_file(file)
        return Ran(time.perf_counter() - started, outputs.of_iceberg(table))

    times = interleave({"operator": operator, "bare": bare}, expected, bench.rounds, bench.warm_ups, bench.say)
    assert "pyspark" not in sys.modules
    children = [child.name() for child in psutil.Process().children(recursive=True)]
    assert not children, children
    yield result_of(
        "commit-alone",
        f"{len(staged[-1])} staged files, sealed, no driver: close, check, commit and mark / pyiceberg's fast append of the same",
        times,
        "operator",
        "bare",
        target=2.0,
        seen=["the operator recorded no attempt and started no driver; Spark was not imported, and no process was started"],
    )


def _stage(manifest: CheckpointedWrite, lake: Lake) -> None:
    """Seal everything with tasks that run in this process, and end before anyone looks."""
    drivers = DirectDrivers(open_store(manifest.spec.checkpoint.uri, lake.settings), lake.settings, _PARALLELISM)
    reconciler = reconciler_of(manifest, lake.settings, drivers)
    while not any(isinstance(action, StartDriver) for action in reconciler.step().actions):
        pass
    drivers.finish()

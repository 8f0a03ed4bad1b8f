"""Three stages of one write, against the same three steps chained by hand in plain PySpark, with Parquet files between them.

Both in one Spark that is running already, in tasks of like size. Each step takes 20 us for each row of a batch. By hand there are
three jobs, of which each but the last writes a folder of Parquet files that the next one reads; the last one appends to Iceberg.

`pipeline-edit`: the step of the last stage raises, and another one takes its place. What is timed is the run after that, with the
commit, against a run of all three stages without an error. What the first run took is not counted.
"""

from __future__ import annotations

import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.table import Table

from benchmarks import outputs, paces, plain_spark
from benchmarks.bench import Bench
from benchmarks.checkpointed import Lake, SessionDrivers, iceberg, reconciler_of
from benchmarks.inputs import Input
from benchmarks.pairs import Ran, interleave
from benchmarks.results import Result, result_of
from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_control.decision.observation import DriverObservation, DriverState
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.records import FailureRecord, LaunchRecord
from checkpoint_protocol.store.object_store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROW_US: Final = 20
_STAGES: Final = ("first", "second", "third")
_INTERVAL: Final = "5s"
_POLL_S: Final = 0.05
#: The last stage's share of the steps, and what reading its input and the commit may take beside it.
_EDIT: Final = 1 / len(_STAGES) + 0.05


def measure(bench: Bench) -> Iterator[Result]:
    source = bench.input(1_000_000, small_rows=16_000)
    warehouse = bench.folder / "plain"
    with plain_spark.session(warehouse, bench.cores) as spark:
        job = _Job(spark, source, Lake(bench.folder / "ours"), warehouse, bench)
        sides = {"by hand": job.by_hand, "stages": job.stages, "after the edit": job.after_an_edit}
        times = interleave(sides, outputs.of_files(source.files), bench.rounds, bench.warm_ups, bench.say)
    rows = f"three steps of {_ROW_US} us a row each, {source.rows:,} rows into Iceberg"
    about = f"{rows}: as three stages, sealed every {_INTERVAL} / chained by hand in plain PySpark, with Parquet files between"
    yield result_of("pipeline", about, times, "stages", "by hand", target=1.1)
    about = f"{rows}: what is left after an error and an edit in the last of three stages / all three"
    yield result_of("pipeline-edit", about, times, "after the edit", "stages", target=_EDIT)


@dataclass(frozen=True, slots=True)
class _Job:
    """The sides. Each makes a table of its own, and leaves none."""

    spark: SparkSession
    source: Input
    lake: Lake
    warehouse: Path
    bench: Bench

    def stages(self) -> Ran:
        table = self.lake.make_table(self.source.schema)
        return self._run(table, self._manifest(table))

    def after_an_edit(self) -> Ran:
        table = self.lake.make_table(self.source.schema)
        manifest = self._manifest(table)
        self._fail(_with_faulty_end(manifest))
        return self._run(table, manifest)

    def by_hand(self) -> Ran:
        """Three jobs, one after the other, from the files to the snapshot."""
        from paced import Paced  # on the import path since Spark was started

        between = [self.bench.folder / f"between-{uuid.uuid4().hex[:12]}" for _ in _STAGES[1:]]
        with plain_spark.table_for(self.spark, self.warehouse, self.source) as (table, folder):
            started, given = time.perf_counter(), self.source
            for place in between:
                plain_spark.one_task_a_file(self.spark, given)
                frame = self.spark.read.parquet(str(given.folder))
                frame.mapInArrow(Paced(_ROW_US).each, frame.schema).write.parquet(str(place))
                given = Input(place, self.source.rows)
            plain_spark.one_task_a_file(self.spark, given)
            frame = self.spark.read.parquet(str(given.folder))
            plain_spark.append(frame.mapInArrow(Paced(_ROW_US).each, frame.schema), table)
            ran = Ran(time.perf_counter() - started, outputs.of_iceberg_folder(folder))
        for place in between:
            shutil.rmtree(place)
        return ran

    def _manifest(self, table: Table) -> CheckpointedWrite:
        stages: list[dict[str, Any]] = [{"name": name, "steps": [paces.step(_ROW_US)]} for name in _STAGES]
        checkpoint = {"interval": _INTERVAL, "minimumBytes": "1"}
        return self.lake.manifest(self.source, iceberg(table), checkpoint, stages=stages)

    def _run(self, table: Table, manifest: CheckpointedWrite) -> Ran:
        started = time.perf_counter()
        outcome = self._to_its_end(manifest)
        seconds = time.perf_counter() - started
        assert isinstance(outcome, Finish), outcome
        ran = Ran(seconds, outputs.of_iceberg(table))
        shutil.rmtree(table.location().removeprefix("file://"))
        shutil.rmtree(self.lake.folder / "checkpoints")
        return ran

    def _fail(self, manifest: CheckpointedWrite) -> None:
        """Run a write to where the step of its last stage raises."""
        outcome = self._to_its_end(manifest)
        assert isinstance(outcome, Stall), outcome
        assert outcome.reason == reasons.CODE_FAILED, outcome

    def _to_its_end(self, manifest: CheckpointedWrite) -> Finish | Stall:
        settings = self.lake.settings
        store = open_store(manifest.spec.checkpoint.uri, settings)
        drivers = _Drivers(self.spark, store, settings, self.bench.cores)
        reconciler = reconciler_of(manifest, settings, drivers)
        while (outcome := reconciler.step().outcome) is None:
            drivers.wait_a_moment()
        return outcome


@dataclass(slots=True)
class _Drivers(SessionDrivers):
    """An attempt runs in a thread: it asks the loop what its result is to look like. One that fails leaves a record of it."""

    _threads: dict[tuple[EpochKey, int], threading.Thread] = field(default_factory=dict)

    def observe(self, key: EpochKey, attempt: int) -> DriverObservation:
        thread = self._threads.get((key, attempt))
        if thread is not None and thread.is_alive():
            return DriverObservation(DriverState.RUNNING)
        return SessionDrivers.observe(self, key, attempt)

    def start(self, key: EpochKey, launch: LaunchRecord) -> None:
        thread = threading.Thread(target=self._drive, args=(key, launch), daemon=True)
        self._threads[key, launch.attempt] = thread
        thread.start()

    def wait_a_moment(self) -> None:
        for thread in self._threads.values():
            thread.join(_POLL_S)

    def _drive(self, key: EpochKey, launch: LaunchRecord) -> None:
        from checkpoint_spark.driver.main import family_of
        from checkpoint_work.tasks.failures import of_spark

        try:
            SessionDrivers.start(self, key, launch)
        except Exception as error:  # a step's own, or Spark's
            told = error if isinstance(error, CheckpointError) else of_spark(error)
            record = FailureRecord(
                token=new_token(), attempt=launch.attempt, family=family_of(told), reason=told.reason, message=told.message
            )
            Ledger(self.store, key).attempts.put_failure(record)
            self._ended.add((key, launch.attempt))


def _with_faulty_end(manifest: CheckpointedWrite) -> CheckpointedWrite:
    """Return the same write with a step that raises in its last stage."""
    *before, last = manifest.spec.stages
    faulty = last.steps[0].model_copy(update={"call": "paced:Faulty"})
    stages = (*before, last.model_copy(update={"steps": (faulty,)}))
    return manifest.model_copy(update={"spec": manifest.spec.model_copy(update={"stages": stages})})

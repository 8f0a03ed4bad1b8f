"""Our side: manifests of the figures, and the production loop over a Spark that is running already."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from benchmarks.inputs import Input
from checkpoint_commit.catalogs.named import open_catalog
from checkpoint_commit.sinks.registry import open_sink
from checkpoint_control.decision.actions import Finish
from checkpoint_control.decision.observation import DriverObservation, DriverState
from checkpoint_control.loop.observing import Observer
from checkpoint_control.loop.reconcile import Reconciler
from checkpoint_control.ports import Drivers, Write
from checkpoint_local.code import digests_with
from checkpoint_local.runner import LocalHost, identify
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import API_VERSION, KIND, CheckpointedWrite, parse_manifest
from checkpoint_protocol.places.settings import Settings, SqlCatalogSettings
from checkpoint_protocol.places.storage import StorageEntry
from checkpoint_protocol.records import LaunchRecord
from checkpoint_protocol.store.object_store import ObjectStore, open_store
from checkpoint_work.driver.attempt import run_attempt
from checkpoint_work.tasks.executor import execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Written out, so that all writers of Iceberg tables use the same.
CODEC = {"write.parquet.compression-codec": "zstd", "write.parquet.compression-level": "3"}


@dataclass(frozen=True, slots=True)
class Lake:
    """A folder with a SQLite catalog, tables and checkpoint stores."""

    folder: Path
    storage: tuple[StorageEntry, ...] = ()

    @property
    def settings(self) -> Settings:
        catalog = SqlCatalogSettings(uri=f"sqlite:///{self.folder}/catalog.db", warehouse=f"file://{self.folder}/tables")
        return Settings(catalogs={"bench": catalog}, storage=self.storage)

    def catalog(self) -> Catalog:
        self.folder.mkdir(parents=True, exist_ok=True)
        return open_catalog("bench", self.settings)

    def make_table(self, schema: pa.Schema) -> Table:
        catalog = self.catalog()
        catalog.create_namespace_if_not_exists("b")
        return catalog.create_table(f"b.t{uuid.uuid4().hex[:12]}", schema, properties=CODEC)

    def manifest(
        self,
        source: Input | str | dict[str, Any],
        sink: dict[str, Any],
        checkpoint: dict[str, Any] | None = None,
        keys: str = "",
        **spec: Any,
    ) -> CheckpointedWrite:
        """Return a manifest with a name of its own, so that each run is a new write. `source`: Parquet files, or a whole section.
        `keys`: by that key column, with Spark.
        """
        path = str(source.folder) if isinstance(source, Input) else source
        files = {"format": "parquet", "paths": [path]}
        of_files = {"spark": {**files, "keyColumns": [keys]}} if keys else {"files": files}
        sections = {
            "source": source if isinstance(source, dict) else of_files,
            "sink": sink,
            "checkpoint": {"uri": str(self.folder / "checkpoints"), **(checkpoint or {})},
            **spec,
        }
        name = f"bench-{uuid.uuid4().hex[:12]}"
        return parse_manifest({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": sections})


def iceberg(table: Table) -> dict[str, Any]:
    return {"iceberg": {"catalog": "bench", "table": ".".join(table.name())}}


@dataclass(slots=True)
class SessionDrivers:
    """The driver port: an attempt runs in this process and runs its tasks with the Spark that is running."""

    spark: SparkSession
    store: ObjectStore
    settings: Settings
    cores: int
    _ended: set[tuple[EpochKey, int]] = field(default_factory=set)

    def observe(self, key: EpochKey, attempt: int) -> DriverObservation:
        return DriverObservation(DriverState.GONE if (key, attempt) in self._ended else DriverState.NOT_STARTED)

    def expect(self, key: EpochKey, attempt: int) -> None:
        pass

    def start(self, key: EpochKey, launch: LaunchRecord) -> None:
        def run_tasks(orders: Sequence[str]) -> None:
            self.spark.sparkContext.parallelize(orders, len(orders)).foreach(execute)

        ledger, storage = Ledger(self.store, key), self.settings.for_drivers()
        run_attempt(ledger, launch.attempt, storage, self.cores, run_tasks, self._run_dataframes)
        self._ended.add((key, launch.attempt))

    def _run_dataframes(self, ledger: Ledger, launch: LaunchRecord, parallelism: int) -> None:
        """Run an attempt of the DataFrame way in a session of its own, with the properties that a driver would start with."""
        # Here, as the figures of commits show that Spark is not so much as imported.
        from checkpoint_spark.dataframes.attempt import run_dataframe_attempt
        from checkpoint_spark.driver.session import properties

        session = self.spark.newSession()
        for name, value in properties({}, parallelism).items():
            session.conf.set(name, value)
        run_dataframe_attempt(session, ledger, launch, parallelism)

    def stop(self, key: EpochKey, attempt: int) -> None:
        pass


def reconciler_of(manifest: CheckpointedWrite, settings: Settings, drivers: Drivers) -> Reconciler:
    """Return the production loop of a write, as its runner or its operator begins it."""
    store = open_store(manifest.spec.checkpoint.uri, settings)
    digest_of = digests_with(None)
    write = Write(uid=identify(store, manifest), spec=manifest.spec, code_digest=digest_of(manifest.spec))
    # Each stage has the digest of its own code.
    host = LocalHost(digest_of=digest_of if manifest.spec.stages else None)
    return Reconciler(Observer(write, store, drivers, open_sink(manifest.spec.sink, settings), host))


def finish(reconciler: Reconciler) -> None:
    """Run the loop to its commit; for drivers that have ended when `start` returns, so that nothing is waited for."""
    while (done := reconciler.step()).outcome is None:
        pass
    assert isinstance(done.outcome, Finish), done.outcome


def run_in(spark: SparkSession, manifest: CheckpointedWrite, settings: Settings, cores: int) -> float:
    """Run a write with the Spark that is running; return the seconds from the first round to the commit record."""
    started = time.perf_counter()
    store = open_store(manifest.spec.checkpoint.uri, settings)
    finish(reconciler_of(manifest, settings, SessionDrivers(spark, store, settings, cores)))
    return time.perf_counter() - started

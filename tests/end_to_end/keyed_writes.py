"""Writes whose rows are known by keys, run by the production loop in this process, over one Spark session for all tests."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pytest

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_control.loop.reconcile import Reconciler
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.records import LaunchRecord
from checkpoint_protocol.store.object_store import open_store
from devtools.spark_avro import spark_avro
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import Place
from tests.support.writes import drive, manifest_for, reconciler_for

ROOT = Path(__file__).resolve().parents[2]
TEXTS = pa.schema([("id", pa.int64()), ("text", pa.string())])


@pytest.fixture(scope="session")
def session() -> Iterator[Any]:
    """One session, as drivers open it, with tasks that are tried again."""
    from checkpoint_spark.driver.session import open_session
    from checkpoint_spark.driver.spark_runner import fast_start

    os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        # A package that is present, as users have them.
        "spark.jars": str(spark_avro()),
    }
    with ExitStack() as stack:
        with warnings.catch_warnings():
            # Lance warns of any fork after its import; this one becomes Java.
            warnings.filterwarnings("ignore", message="lance is not fork-safe")
            opened = stack.enter_context(open_session("tests", "local[2,2]", fast_start(conf, os.environ), 1))
        yield opened


@dataclass
class KeyedWrite:
    """A write to a place. Each `run` is another driver and another runner, as if the one before had been killed."""

    session: Any
    place: Place
    folder: Path
    source: dict[str, Any]
    steps: list[dict[str, Any]] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
    name: str = "write"

    @property
    def manifest(self) -> CheckpointedWrite:
        spec = {
            "checkpoint": {"uri": self.place.checkpoint_uri, "interval": "0.001s", "minimumBytes": "1"},
            "backoffLimit": 0,
            **self.more,
        }
        return manifest_for(self.place, "/unused", name=self.name, steps=self.steps, whole=["source"], source=self.source, **spec)

    def run(self) -> Finish | Stall:
        from checkpoint_spark.dataframes.attempt import run_dataframe_attempt

        def run_dataframes(ledger: Ledger, launch: LaunchRecord, parallelism: int) -> None:
            run_dataframe_attempt(self.session, ledger, launch, parallelism)

        store = open_store(self.place.checkpoint_uri, self.place.settings)
        drivers = DirectDrivers(store, self.place.settings, run_dataframes=run_dataframes)
        self.reconciler: Reconciler = reconciler_for(self.manifest, self.place, drivers)
        outcome = drive(self.reconciler, rounds=20_000).outcome
        assert outcome is not None
        return outcome

    def finish(self) -> None:
        outcome = self.run()
        assert isinstance(outcome, Finish), outcome

    def stall(self, reason: str, *words: str) -> str:
        """Run to a stall for this reason, whose message has these words."""
        outcome = self.run()
        assert isinstance(outcome, Stall), outcome
        assert outcome.reason == reason, outcome
        for word in words:
            assert word in outcome.message, outcome.message
        return outcome.message

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.reconciler.observer.store, self.reconciler.current_ledger().key)

    def sealed_rows(self, attempt: int) -> int:
        return sum(seal.rows_read for seal in self.ledger.chains.counted_seals([attempt]))


def write_orc(table: pa.Table, folder: Path, files: int = 3) -> Path:
    """Write a table as some ORC files, in its order."""
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-table.num_rows // files)
    for number in range(files):
        pyarrow.orc.write_table(table.slice(number * size, size), folder / f"part-{number}.orc")
    return folder


def numbered(*numbers: int) -> pa.Table:
    return pa.table({"id": list(numbers), "text": [f"zeile {number}" for number in numbers]}, schema=TEXTS)

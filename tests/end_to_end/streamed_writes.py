"""Writes of streams, run by the production loop in this process, over one Spark session for all tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checkpoint_commit.ports import Sink
from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_control.loop.reconcile import Reconciler, Round
from checkpoint_local.code import digests_with
from checkpoint_local.runner import LocalHost
from checkpoint_protocol.errors import CheckpointError, Superseded
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.records import CommitRecord, FailureRecord, LaunchRecord
from checkpoint_protocol.store.object_store import ObjectStore, open_store
from checkpoint_protocol.writes import look_up_name
from checkpoint_spark.driver.main import family_of
from checkpoint_spark.streams.checkpoint import Checkpoint
from checkpoint_work.process.reporting import AtWork
from tests.support import streams
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import Place
from tests.support.writes import drive, manifest_for, reconciler_for


@dataclass
class StreamedWrite:
    """A write of a stream to a place. Each `run` is another driver and another runner, as if the ones before had been killed."""

    session: Any
    place: Place
    folder: Path
    program: str = "append"
    stream: dict[str, Any] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
    partitions: int = 2
    #: Wraps the store of drivers, and of runners.
    of_driver: Callable[[ObjectStore], ObjectStore] = lambda store: store
    of_runner: Callable[[ObjectStore], ObjectStore] = lambda store: store
    sink: Sink | None = None
    #: The machine that runs it.
    recorder: str = ""
    name: str = "write"
    #: Where a cluster would have mounted the volume for Spark's own checkpoint.
    mount: Path | None = None

    @property
    def manifest(self) -> CheckpointedWrite:
        source = {"program": {"call": f"tests.support.streams:{self.program}", "stream": self.stream}}
        return manifest_for(self.place, source, name=self.name, steps=self.steps, **{"backoffLimit": 0, **self.more})

    def offer(self, rows: int) -> None:
        """Let the source have so many rows in all."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / "partitions").write_text(str(self.partitions))
        made = self.folder / "available.made"
        made.write_text(str(rows))
        made.rename(self.folder / "available")

    def reconciler(self) -> Reconciler:
        os.environ[streams.FOLDER] = str(self.folder)
        store = open_store(self.place.checkpoint_uri, self.place.settings)
        self.drivers = DirectDrivers(store, self.place.settings, run_dataframes=self._run_driver)
        host = LocalHost(self.recorder, digest_of=digests_with(None))
        return reconciler_for(self.manifest, self.place, self.drivers, self.of_runner(store), self.sink, host)

    def run(self) -> Round:
        self.ended = drive(self.reconciler(), rounds=20_000)
        self.drivers.finish()
        return self.ended

    def finish(self, rows: int | None = None) -> CommitRecord | None:
        """Run until the stream has no more rows; return the last commit. `rows`: so many are offered before."""
        if rows is not None:
            self.offer(rows)
        ended = self.run()
        assert isinstance(ended.outcome, Finish), ended.outcome
        return ended.last_commit[1] if ended.last_commit is not None else None

    def stall(self, reason: str, *words: str) -> None:
        outcome = self.run().outcome
        assert isinstance(outcome, Stall), outcome
        assert outcome.reason == reason, outcome
        for word in words:
            assert word in outcome.message, outcome.message

    def ledger(self, epoch: int) -> Ledger:
        return Ledger(open_store(self.place.checkpoint_uri, self.place.settings), EpochKey(self.uid, epoch))

    @property
    def uid(self) -> str:
        uid = look_up_name(open_store(self.place.checkpoint_uri, self.place.settings), "default", self.name)
        assert uid is not None
        return uid

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint.below(self.place.checkpoint_uri, self.uid)

    def sealed(self, epoch: int, attempt: int) -> list[int]:
        """Return the rows of each seal of an attempt."""
        return [seal.rows_read for seal in self.ledger(epoch).chains.counted_seals([attempt])]

    def _run_driver(self, ledger: Ledger, launch: LaunchRecord, parallelism: int) -> None:
        from checkpoint_spark.streams.query import run_stream

        at_work = AtWork((Ledger(self.of_driver(ledger.store), ledger.key), launch.attempt))
        try:
            run_stream(self.session, launch, parallelism, lambda phase: None, at_work, self.mount)
        except Superseded:
            raise
        except CheckpointError as error:
            own, attempt = at_work.now
            own.attempts.put_failure(
                FailureRecord(
                    token=new_token(), attempt=attempt, family=family_of(error), reason=error.reason, message=error.message
                )
            )
            raise Superseded("Failed", "it is said in the epoch at hand") from error

"""A table that is asked for and cannot be made: the attempt ends for good, and its driver is not started again and again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from checkpoint_commit.ports import Sink
from checkpoint_commit.sinks.registry import open_sink
from checkpoint_control.decision.actions import Stall
from checkpoint_control.decision.observation import DriverObservation, DriverState
from checkpoint_control.loop.observing import Observer
from checkpoint_control.loop.reconcile import Reconciler
from checkpoint_control.ports import Write
from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_local.runner import LocalHost
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.manifest.spec import API_VERSION, KIND, parse_manifest
from checkpoint_protocol.records import LaunchRecord, OutputRecord, Target
from checkpoint_protocol.store.object_store import open_store
from tests.support.places import on_disk


@dataclass
class OneDriver:
    """Asks for a table at once, and waits for it until it is told to end."""

    reconciler: Reconciler | None = None
    started: list[int] = field(default_factory=list)
    running: set[int] = field(default_factory=set)

    def observe(self, key: EpochKey, attempt: int) -> DriverObservation:
        return DriverObservation(DriverState.RUNNING if attempt in self.running else DriverState.NOT_STARTED)

    def expect(self, key: EpochKey, attempt: int) -> None:
        pass

    def start(self, key: EpochKey, launch: LaunchRecord) -> None:
        assert self.reconciler is not None
        self.started.append(launch.attempt)
        self.running.add(launch.attempt)
        output = OutputRecord(token=new_token(), arrow_schema=encode_schema(pa.schema([("id", pa.int64())])))
        self.reconciler.current_ledger().attempts.put_output(launch.attempt, output)

    def stop(self, key: EpochKey, attempt: int) -> None:
        self.running.discard(attempt)


class Refusing:
    """A sink whose catalog lets nobody make tables."""

    def __init__(self, inner: Sink) -> None:
        self.title, self.output, self.describe, self.pack = inner.title, inner.output, inner.describe, inner.pack
        self.commit, self.block_commit, self.discard = inner.commit, inner.block_commit, inner.discard

    def create(self, arrow_schema: str) -> Target:
        raise NeedsChange(reasons.CREDENTIALS_REFUSED, "no right to make a table")


def test_the_attempt_is_closed_its_driver_told_to_end_and_no_other_started(tmp_path: Path) -> None:
    place = on_disk(tmp_path, "iceberg")
    spec = parse_manifest(
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": "write"},
            "spec": {
                "source": {"files": {"format": "parquet", "paths": [str(tmp_path / "input")]}},
                "sink": {**place.sink(), "create": True},
                "checkpoint": {"uri": place.checkpoint_uri},
            },
        }
    ).spec
    drivers = OneDriver()
    sink = Refusing(open_sink(spec.sink, place.settings))
    write = Write(uid="ab" * 16, spec=spec, code_digest="0" * 64)
    reconciler = Reconciler(Observer(write, open_store(place.checkpoint_uri, place.settings), drivers, sink, LocalHost()))
    drivers.reconciler = reconciler

    outcomes = [reconciler.step().outcome for _ in range(20)]

    assert outcomes[-1] == Stall(reasons.CREDENTIALS_REFUSED, "no right to make a table")
    assert drivers.started == [1]
    assert drivers.running == set()
    closed = reconciler.current_ledger().attempts.read_closed(1)
    assert closed is not None
    assert not closed.complete

"""A write of three stages whose rows tell which version of which stage has made them, and of which row."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from checkpoint_commit.ports import NO_CODE
from checkpoint_control.decision.actions import Finish
from checkpoint_control.decision.code_changes import Approval, Choice
from checkpoint_control.loop.reconcile import Reconciler, Round
from checkpoint_control.pipelines.decisions import Decision
from checkpoint_control.pipelines.results import foresee
from checkpoint_local.runner import LocalHost
from checkpoint_protocol import writes
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import CheckpointedWrite, Spec
from checkpoint_protocol.store.object_store import ObjectStore, open_store
from tests.support.crashes import Died, DyingStore, Effects
from tests.support.direct_drivers import DirectDrivers
from tests.support.driver_threads import Killed
from tests.support.places import Place
from tests.support.writes import drive, manifest_for, reconciler_for, write_inputs

STAGES: Final = ("first", "second", "third")
#: The version of each stage's code, as it is now.
VERSIONS: Final[dict[str, int]] = dict.fromkeys(STAGES, 1)
#: How often each stage has been called with a row, by the version of its code.
CALLS: Final[Counter[tuple[str, int]]] = Counter()
#: How many rows each key has where the second stage gets the rows of one key together.
GROUPS: Final[Counter[int]] = Counter()
#: Rows that the second stage leaves out.
LEFT_OUT: Final[set[int]] = set()
#: Rows on which the second stage raises when it has given the first of the rows that it makes of each.
FAULTY: Final[set[int]] = set()
#: Stages, each with a row on which it raises.
FAILING: Final[set[tuple[str, int]]] = set()
#: What is added to the id of a row for the second one that is made of it.
SECOND_OF_ROW: Final = 1_000
_KEYS: Final = 3
TABLE: Final = pa.schema([("id", pa.int64()), *((name, pa.string()) for name in STAGES)])


def first(row: dict[str, Any], argument: str) -> dict[str, Any]:
    return {"id": row["id"], **_made("first", argument, row["id"])}


def first_with_key(row: dict[str, Any], argument: str) -> dict[str, Any]:
    return {**first(row, argument), "key": row["id"] % _KEYS}


def second(row: dict[str, Any], argument: str) -> dict[str, Any] | None:
    made = {**row, **_made("second", argument, row["id"])}
    return None if row["id"] in LEFT_OUT else made


def second_of_several(row: dict[str, Any], argument: str) -> Iterator[dict[str, Any]]:
    made = {**row, **_made("second", argument, row["id"])}
    yield made
    if row["id"] in FAULTY:
        raise ValueError("between two rows")
    yield {**made, "id": row["id"] + SECOND_OF_ROW}


def second_of_groups(rows: pa.RecordBatch, argument: str) -> pa.RecordBatch:
    keys = set(rows.column("key").to_pylist())
    assert len(keys) == 1
    assert rows.num_rows == GROUPS[keys.pop()], "not all rows of the key"
    made = [{**row, **_made("second", argument, row["id"])} for row in rows.to_pylist()]
    return pa.RecordBatch.from_pylist(made).drop_columns(["key"])


def third(row: dict[str, Any], argument: str) -> dict[str, Any]:
    return {**row, **_made("third", argument, row["id"])}


def _made(stage: str, argument: str, row: int) -> dict[str, Any]:
    CALLS[stage, VERSIONS[stage]] += 1
    if (stage, row) in FAILING:
        raise ValueError(f"no {row} in {stage}")
    return {stage: f"{argument} by {VERSIONS[stage]} of {row}"}


def digest_of_version(call: str, version: int) -> str:
    return hashlib.sha256(f"{call} {version}".encode()).hexdigest()


def digest_of(spec: Spec) -> str:
    """The digest of the last stage's code."""
    steps = spec.last_part.steps
    return digest_of_version(*((name := stage_of(steps[0].call)), VERSIONS[name])) if steps else NO_CODE


def stage_of(call: str) -> str:
    return call.partition(":")[2].partition("_")[0]


@dataclass
class PipelineLab:
    """One write, run again and again under manifests and code that change."""

    place: Place
    folder: Path
    files: int = 2
    rows_a_file: int = 4
    arguments: dict[str, str] = field(default_factory=lambda: dict.fromkeys(STAGES, "a"))
    nonces: dict[str, str] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    #: The second stage is an Aggregate.
    groups: bool = False
    buckets: int = 4
    #: The second stage makes two rows of each.
    several: bool = False
    #: How many cores a driver finds.
    parallelism: int = 2
    #: What a person decides where the manifest says onCodeChange: Ask; of the code as it is when a run begins.
    approve: Choice | None = None
    #: The name of the write, and of the one whose results it takes over.
    name: str = "write"
    inherit: str | None = None
    #: The machine that records attempts; in a cluster none is named.
    recorder: str = "here"

    def __post_init__(self) -> None:
        if self.name != "write":
            self.place.create(TABLE)
            return
        GROUPS.clear()
        GROUPS.update(number % _KEYS for number in self.ids)
        VERSIONS.update(dict.fromkeys(STAGES, 1))
        CALLS.clear()
        LEFT_OUT.clear()
        FAULTY.clear()
        FAILING.clear()
        write_inputs(self.folder / "in", self.files, self.rows_a_file)
        self.place.create(TABLE)

    @property
    def ids(self) -> range:
        return range(self.files * self.rows_a_file)

    def place_of(self, row: int) -> tuple[str, int]:
        """Return in which file of the source a row is, and where."""
        return f"part-{row // self.rows_a_file}.parquet", row % self.rows_a_file

    @property
    def manifest(self) -> CheckpointedWrite:
        nonces = {f"{nonce}" for nonce in self.nonces.values()}
        reset = {"reset": {"stages": sorted(self.nonces), "nonce": nonces.pop()}} if self.nonces else {}
        stages = [self._stage(number, name) for number, name in enumerate(STAGES)]
        checkpoint = {"uri": self.place.checkpoint_uri, "interval": "1h", "maximumRows": 2}
        return manifest_for(
            self.place,
            self.folder / "in",
            name=self.name,
            stages=stages,
            checkpoint=checkpoint,
            **{"backoffLimit": 100, **reset, **({"inherit": self.inherit} if self.inherit is not None else {}), **self.more},
        )

    def _stage(self, number: int, name: str) -> dict[str, Any]:
        # Declared, so that nothing is called on a sample.
        output = {"id": "int64", **dict.fromkeys(STAGES[: number + 1], "string")}
        step = {"call": f"{__name__}:{name}", "input": "row", "arguments": {"argument": self.arguments[name]}, "output": output}
        match name:
            case "first" if self.groups:
                step |= {"call": f"{__name__}:first_with_key", "output": {**output, "key": "int64"}}
            case "second" if self.groups:
                step |= {"call": f"{__name__}:second_of_groups", "input": "arrow"}
                return {"name": name, "kind": "Aggregate", "keyBy": ["key"], "buckets": self.buckets, "steps": [step]}
            case "second" if self.several:
                step |= {"call": f"{__name__}:second_of_several"}
        return {"name": name, "steps": [step]}

    @property
    def store(self) -> ObjectStore:
        return open_store(self.place.checkpoint_uri, self.place.settings)

    def reconciler(self, effects: Effects | None = None, kill_when: Callable[[], bool] = lambda: False) -> Reconciler:
        """Return the loop; `kill_when`: asked before each task but the first of an attempt, whether its driver dies there.

        One that dies before it has sealed anything has the next one try its steps in a process of their own: that takes time.
        """

        def between_tasks(number: int) -> None:
            if number and kill_when():
                raise Killed

        drivers = DirectDrivers(self.store, self.place.settings, self.parallelism, between_tasks)
        store = DyingStore(self.store, effects) if effects is not None else self.store
        reconciler = reconciler_for(self.manifest, self.place, drivers, store, host=LocalHost(self.recorder, digest_of=digest_of))
        if self.approve is not None:
            reconciler.observer.approval = Approval(self.approve, reconciler.observer.digest_to_approve())
        return reconciler

    def run(
        self,
        effects: Effects | None = None,
        kill_when: Callable[[], bool] = lambda: False,
        until: Callable[[Round], bool] | None = None,
    ) -> Round | None:
        """Run to the end, to where the runner dies, or to a round; None where it died. No driver is at work afterwards."""
        drivers: DirectDrivers | None = None
        try:
            reconciler = self.reconciler(effects, kill_when)
            assert isinstance(reconciler.observer.drivers, DirectDrivers)
            drivers = reconciler.observer.drivers
            return drive(reconciler) if until is None else self._run_until(reconciler, until)
        except Died:
            return None
        finally:
            if drivers is not None:
                drivers.finish()

    def _run_until(self, reconciler: Reconciler, until: Callable[[Round], bool]) -> Round:
        drivers = reconciler.observer.drivers
        assert isinstance(drivers, DirectDrivers)
        for _ in range(2_000):
            done = reconciler.step()
            if until(done) or done.outcome is not None:
                return done
            drivers.wait_a_moment()
        raise AssertionError("no such round")

    def finish(self) -> None:
        done = self.run()
        assert done is not None
        assert isinstance(done.outcome, Finish), done.outcome

    def uid(self) -> str:
        uid = writes.look_up_name(self.store, "default", self.name)
        assert uid is not None
        return uid

    def ledger(self) -> Ledger:
        return Ledger(self.store, EpochKey(self.uid(), 1))

    def plan(self) -> tuple[Decision, ...]:
        return foresee(self.ledger(), self.manifest.spec, digest_of)

    def chain(self) -> dict[str, Ledger]:
        """Return the ledgers that the table's rows went through, by stage."""
        found: dict[str, Ledger] = {}
        ledger = self.ledger()
        while len(found) < len(STAGES):
            commit = ledger.commits.read_commit()
            assert commit is not None
            launch = ledger.attempts.read_launch(commit.attempts)
            assert launch is not None
            assert launch.stage is not None
            if launch.stage.name in STAGES:
                found[launch.stage.name] = ledger
            ledger = Ledger(self.store, EpochKey(self.uid(), 1, launch.stage.reads))
        return found

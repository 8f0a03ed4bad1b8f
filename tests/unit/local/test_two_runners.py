"""Two runners of one write on two machines: each sees the other's driver in the store only."""

from __future__ import annotations

from dataclasses import dataclass, field

from checkpoint_commit.sinks.registry import open_sink
from checkpoint_control.decision.actions import StartDriver, StopDriver, Wait
from checkpoint_control.decision.observation import DriverObservation, DriverState
from checkpoint_control.loop.observing import Observer
from checkpoint_control.loop.reconcile import Reconciler
from checkpoint_control.ports import Write
from checkpoint_local.runner import LocalHost
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import parse_manifest
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import LaunchRecord
from tests.support.manifests import manifest
from tests.support.records import plan, seal
from tests.support.stores import MemoryStore

UID = "ab" * 16


@dataclass
class OwnDrivers:
    """Drivers that run until they are told to end."""

    running: set[int] = field(default_factory=set)
    _expected: set[int] = field(default_factory=set)

    def observe(self, key: EpochKey, attempt: int) -> DriverObservation:
        if attempt in self.running:
            return DriverObservation(DriverState.RUNNING)
        return DriverObservation(DriverState.NOT_STARTED if attempt in self._expected else DriverState.GONE)

    def expect(self, key: EpochKey, attempt: int) -> None:
        self._expected.add(attempt)

    def start(self, key: EpochKey, launch: LaunchRecord) -> None:
        self._expected.discard(launch.attempt)
        self.running.add(launch.attempt)

    def stop(self, key: EpochKey, attempt: int) -> None:
        self.running.discard(attempt)


@dataclass
class Machine:
    """A runner with its own drivers and its own clock."""

    store: MemoryStore
    name: str
    interval: str
    now_s: float = 1000.0
    drivers: OwnDrivers = field(default_factory=OwnDrivers)
    reconciler: Reconciler = field(init=False)

    def __post_init__(self) -> None:
        spec = parse_manifest(manifest(spec__sink={"none": {}}, spec__checkpoint__interval=self.interval)).spec
        write = Write(uid=UID, spec=spec, code_digest="0" * 64)
        sink = open_sink(spec.sink, Settings())
        observer = Observer(write, self.store, self.drivers, sink, LocalHost(self.name, clock=lambda: self.now_s))
        self.reconciler = Reconciler(observer)

    def begin(self) -> None:
        for _ in range(2):
            done = self.reconciler.step()
        assert isinstance(done.actions[-1], StartDriver)


def test_a_driver_that_seals_as_rarely_as_its_manifest_says_is_not_given_up_by_another_machine() -> None:
    store = MemoryStore()
    first, second = Machine(store, "one", "15m"), Machine(store, "two", "15m")
    first.begin()
    second.reconciler.step()

    second.now_s += 9_100.0  # a small segment is due after 9,000 s
    waited = second.reconciler.step()

    assert waited.actions == (Wait("the driver of attempt 1, which another machine has started"),)
    assert Ledger(store, waited.key).attempts.read_closed(1) is None


def test_a_runner_whose_attempt_was_taken_over_ends_its_driver_and_waits_for_the_other() -> None:
    store = MemoryStore()
    first, second = Machine(store, "one", "1s"), Machine(store, "two", "1s")
    first.begin()
    ledger = Ledger(store, first.reconciler.current_ledger().key)
    ledger.plans.put_plan(plan([(0, 0, 100)]))
    ledger.seals.put_seal(seal(0, 0, [(0, 0, 10)]))
    second.reconciler.step()
    second.now_s += 601.0
    second.reconciler.step()
    second.begin()
    assert second.drivers.running == {2}

    done = first.reconciler.step()

    assert done.actions == (StopDriver(1), Wait("the driver of attempt 2, which another machine has started"))
    assert first.drivers.running == set()
    assert first.reconciler.step().actions == (Wait("the driver of attempt 2, which another machine has started"),)

"""Whether another epoch follows, and after which."""

from __future__ import annotations

from typing import Any

from checkpoint_commit.sinks.registry import open_sink
from checkpoint_control.decision.actions import Finish, OpenEpoch, RecordAttempt
from checkpoint_control.decision.observation import DriverObservation, DriverState
from checkpoint_control.decision.triggers import NextEpoch, next_epoch
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
from tests.support.records import DIGEST, input_of, plan
from tests.support.stores import MemoryStore

UID = "ab" * 16


class SealingDrivers:
    """Each driver finds an empty input, and has no task to do."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    def observe(self, key: EpochKey, attempt: int) -> DriverObservation:
        is_planned = Ledger(self.store, key).plans.read_plan(attempt) is not None
        return DriverObservation(DriverState.GONE if is_planned else DriverState.NOT_STARTED)

    def expect(self, key: EpochKey, attempt: int) -> None:
        pass

    def start(self, key: EpochKey, launch: LaunchRecord) -> None:
        ledger = Ledger(self.store, key)
        ledger.inputs.put_input(input_of())
        ledger.plans.put_plan(plan(attempt=launch.attempt).model_copy(update={"offsets": DIGEST}))

    def stop(self, key: EpochKey, attempt: int) -> None:
        pass


def process(store: MemoryStore, run_nonce: str = "", **more: Any) -> Reconciler:
    spec = parse_manifest(manifest(spec__sink={"none": {}}, spec__runNonce=run_nonce, **more)).spec
    write = Write(uid=UID, spec=spec, code_digest="0" * 64)
    return Reconciler(Observer(write, store, SealingDrivers(store), open_sink(spec.sink, Settings()), LocalHost()))


def run(reconciler: Reconciler) -> list[object]:
    """Do rounds to the end; return what they did."""
    done: list[object] = []
    while not done or not isinstance(done[-1], Finish):
        done.extend(reconciler.step().actions)
    return done


def test_an_epoch_follows_where_the_run_nonce_is_not_that_of_the_last() -> None:
    assert next_epoch(3, began_with="a", run_nonce="b") == NextEpoch(4, after=3)
    assert next_epoch(3, began_with="a", run_nonce="a") is None


def test_of_an_epoch_that_has_not_begun_or_cannot_be_read_nothing_follows() -> None:
    assert next_epoch(1, began_with=None, run_nonce="b") is None


def test_a_micro_batch_is_committed_with_the_offsets_of_its_plan() -> None:
    store = MemoryStore()
    stream = process(store, spec__source={"program": {"call": "jobs:main", "stream": {}}})
    for _ in range(10):
        stream.step()

    commit = Ledger(store, EpochKey(UID, 1)).commits.read_commit()
    assert commit is not None
    assert commit.offsets == DIGEST


def test_opening_an_epoch_changes_nothing_in_the_store_and_the_next_round_begins_it() -> None:
    store = MemoryStore()
    run(process(store))
    before = dict(store.objects)
    again = process(store, run_nonce="2")

    opened = again.step()

    assert opened.actions == (OpenEpoch(2, after=1),)
    assert store.objects == before
    assert again.step().actions == (RecordAttempt(1, ()),)


def test_crash_after_opening_an_epoch_opens_it_again() -> None:
    store = MemoryStore()
    run(process(store))
    process(store, run_nonce="2").step()

    assert process(store, run_nonce="2").step().actions == (OpenEpoch(2, after=1),)


def test_crash_after_the_first_launch_record_of_an_epoch_opens_no_other() -> None:
    store = MemoryStore()
    run(process(store))
    first = process(store, run_nonce="2")
    first.step()
    first.step()

    done = run(process(store, run_nonce="2"))

    assert not any(isinstance(action, OpenEpoch) for action in done)
    assert Ledger(store, EpochKey(UID, 2)).commits.read_commit() is not None


def test_a_process_that_watches_another_follows_it_into_the_next_epoch_and_changes_nothing() -> None:
    store = MemoryStore()
    run(process(store))
    watching = process(store, run_nonce="2")
    before = dict(store.objects)
    assert watching.watch().actions == (OpenEpoch(2, after=1),)
    assert watching.watch().outcome is None
    assert store.objects == before

    run(process(store, run_nonce="2"))

    assert watching.watch().outcome == Finish()

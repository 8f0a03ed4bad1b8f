"""The controller with its queue, cache and ports as in production, over a cluster without servers and real stores and tables."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from checkpoint_commit.sinks.registry import open_sink
from checkpoint_operator.code_source import CodeSource
from checkpoint_operator.config import OperatorConfig, WorkloadDefaults
from checkpoint_operator.controller import Controller
from checkpoint_operator.crd.status_model import Condition, Status
from checkpoint_operator.metrics.counters import Metrics
from checkpoint_operator.record_keys import RecordKeys
from checkpoint_operator.status.object_status import status_of
from checkpoint_operator.watch.cache import Cache, WriteName, name_of
from checkpoint_operator.watch.work_queue import WorkQueue
from checkpoint_protocol.manifest.spec import API_VERSION, KIND
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.store.authenticated_store import AuthenticatedStore
from checkpoint_protocol.store.object_store import ObjectStore, open_store
from tests.support.driver_threads import end_with_the_test
from tests.support.fake_cluster import FakeApi, FakeKubelet
from tests.support.places import Place
from tests.support.waiting import patience

WORKLOADS = WorkloadDefaults(image="spark:1", storage_secret_name="storage")
#: A busy machine takes half a minute for a few drivers.
_PATIENCE_S = 30.0
_EPOCH = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

#: Of the operator, with the keys for records.
KEYS_SECRET = "record-keys"


@dataclass
class FakeClock:
    """Seconds that pass when the harness says so. One clock serves as both the monotonic and the wall clock."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s

    def moment(self) -> datetime.datetime:
        return _EPOCH + datetime.timedelta(seconds=self.now_s)


@dataclass
class Operator:
    """One operator process over a cluster that others may share."""

    place: Place
    api: FakeApi
    cache: Cache
    queue: WorkQueue[WriteName]
    clock: FakeClock
    controller: Controller
    turns: int = 0
    _turned: threading.Condition = field(default_factory=threading.Condition)

    def let_see(self, key: WriteName) -> None:
        """In a driver's thread: wait until a whole round has seen what the driver has done."""
        with self._turned:
            enough = self.turns + 2  # the first may have begun before
            while self.turns < enough:
                self.queue.add(key)
                if not self._turned.wait(1.0):
                    end_with_the_test()

    def work(self, is_enough: Any, kubelet: FakeKubelet, most_turns: int = 400) -> None:
        """Reconcile what is due, let time pass where nothing is, until it is enough.

        How long a driver at work takes is the machine's affair: only that is bounded by real time.
        """
        turns, give_up_at = 0, time.monotonic() + patience(_PATIENCE_S)
        while turns < most_turns and time.monotonic() < give_up_at:
            if is_enough():
                return
            turns += 1
            if self.queue.count_due():
                key = self.queue.take()
                assert key is not None
                delay_s = self.controller.reconcile(key)
                self.queue.done(key)
                with self._turned:
                    self.turns += 1
                    self._turned.notify_all()
                if delay_s is not None:
                    self.queue.add(key, delay_s)
            else:
                # A driver at work is waited for in real time, which passes here too: it may itself wait for a round.
                is_at_work = kubelet.join()
                turns -= is_at_work
                self.clock.now_s += (0.5 if kubelet.only_waits else 0.05) if is_at_work else 1.0
        raise AssertionError(f"not enough after {turns} turns: {[body.get('status') for body in self.api.writes.values()]}")


@dataclass
class World:
    """A cluster, an operator, and a place to write to."""

    place: Place
    clock: FakeClock = field(default_factory=FakeClock)
    config: OperatorConfig = field(
        default_factory=lambda: OperatorConfig(namespaces=("default",), workloads=WORKLOADS, allow_local_paths=True)
    )
    cache: Cache = field(default_factory=Cache)
    api: FakeApi = field(init=False)
    kubelet: FakeKubelet = field(init=False)
    operator: Operator = field(init=False)
    record_keys: RecordKeys = field(init=False)
    manifest: dict[str, Any] = field(default_factory=dict)
    key: WriteName = field(default_factory=lambda: WriteName("default", "write"))

    def __post_init__(self) -> None:
        queue: WorkQueue[WriteName] = WorkQueue(clock=self.clock)
        self.api = FakeApi(self.cache, queue.add)
        self.kubelet = FakeKubelet(self.api, self.place.settings)
        self.api.on_pod = self.kubelet.run
        self.api.put_secret(self.config.own_namespace, KEYS_SECRET)
        self.operator = self._operator(queue)

    def restart_operator(self) -> None:
        """As a new process: what was in memory is gone; the watch tells all objects again."""
        queue: WorkQueue[WriteName] = WorkQueue(clock=self.clock)
        self.cache = self.api.cache = Cache()
        self.api.wake = queue.add
        for body in self.api.writes.values():
            self.cache.hear_write(body)
            queue.add(name_of(body))
        for pod in self.api.pods.values():
            self.cache.put_pod(pod)
        self.operator = self._operator(queue)

    def store(self, uri: str | None = None) -> ObjectStore:
        """The checkpoint store as the operator has it: what is put there is signed."""
        return AuthenticatedStore(open_store(uri or self.place.checkpoint_uri, self.place.settings), self.record_keys)

    def _operator(self, queue: WorkQueue[WriteName]) -> Operator:
        self.record_keys = RecordKeys(self.api, self.config.own_namespace, KEYS_SECRET)
        self.record_keys.load()
        self.api.writes_made.clear()

        def settings_of(namespace: str) -> Settings:
            return self.place.settings.used_by(self.config.tenant(namespace))

        controller = Controller(
            api=self.api,
            cache=self.cache,
            config=self.config,
            metrics=Metrics(),
            settings_of=settings_of,
            catalogs=None,
            open_store=lambda namespace, uri: AuthenticatedStore(open_store(uri, settings_of(namespace)), self.record_keys),
            open_sink=lambda namespace, spec, written_by: open_sink(spec, settings_of(namespace), written_by=written_by),
            code_source=CodeSource(self.api, settings_of, self.config.workloads),
            instance="operator-0",
            clock=self.clock,
            now=self.clock.moment,
            jitter=lambda: 0.5,
            record_keys=self.record_keys,
            cluster=self.config.cluster_name or self.record_keys.cluster,
        )
        return Operator(self.place, self.api, self.cache, queue, self.clock, controller)

    # --- as a user ------------------------------------------------------------------------------------------------------------

    def apply(self, path: Any, **spec: Any) -> WriteName:
        """Apply a manifest for Parquet input; `spec` overrides sections, as the user edits the file."""
        sections: dict[str, Any] = {
            "source": {"files": {"format": "parquet", "paths": [str(path)]}},
            "sink": self.place.sink(),
            "checkpoint": {"uri": self.place.checkpoint_uri, "interval": "1h"},
            **spec,
        }
        self.manifest = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": self.key.name}, "spec": sections}
        return self.api.apply(self.manifest)

    def edit(self, **spec: Any) -> None:
        self.manifest = {**self.manifest, "spec": {**self.manifest["spec"], **spec}}
        self.api.apply(self.manifest)

    def delete(self) -> None:
        """Delete the object, and wait until it is gone."""
        self.api.delete(self.key)
        self.until(lambda: self.key not in self.api.writes)

    def recreate(self, **spec: Any) -> None:
        """Delete the object, and apply it again, with these sections changed."""
        self.delete()
        self.edit(**spec)

    def body(self) -> Mapping[str, Any]:
        return self.api.writes[self.key]

    @property
    def status(self) -> Status:
        return status_of(self.body())

    def condition(self, kind: str) -> Condition | None:
        return next((condition for condition in self.status.conditions or () if condition.type == kind), None)

    def is_true(self, kind: str) -> bool:
        condition = self.condition(kind)
        return condition is not None and condition.status == "True"

    def until(self, is_enough: Any, most_turns: int = 400) -> None:
        self.operator.work(is_enough, self.kubelet, most_turns)

    def until_committed(self) -> None:
        self.until(lambda: self.is_true("Committed"))

    def until_stalled(self) -> None:
        self.until(lambda: self.is_true("Stalled"))

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with all that is due in it."""
        end = self.clock.now_s + seconds
        self.until(lambda: self.clock.now_s >= end and not self.operator.queue.count_due(), 100_000)

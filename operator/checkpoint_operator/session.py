"""One generation of one write: what a cluster decides for it, and the ports that its rounds need. An edit makes another one."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

from checkpoint_commit.ports import PinSource, Sink
from checkpoint_control.decision import attempt_clock
from checkpoint_control.decision.attempt_clock import Noted
from checkpoint_control.decision.code_changes import parse_approval
from checkpoint_control.decision.observation import Failure
from checkpoint_control.loop.drivers import digest_of_kept
from checkpoint_control.loop.looks import Looks
from checkpoint_control.loop.observing import Observer
from checkpoint_control.loop.reconcile import Reconciler, Round
from checkpoint_control.pipelines.inherited import Parent
from checkpoint_control.ports import Write
from checkpoint_control.progress.epoch_progress import TimeLeft
from checkpoint_control.writes.registration import check_identity, registering
from checkpoint_operator.code_source import CodeSource
from checkpoint_operator.crd.status_model import Status
from checkpoint_operator.pods.driver_pod import Owner
from checkpoint_operator.pods.pod_drivers import PodDrivers
from checkpoint_operator.status.object_status import status_of
from checkpoint_operator.turns.turns import DriverTurns
from checkpoint_operator.watch.cache import WriteName
from checkpoint_protocol.identity import EpochKey, row_keys_of
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.store.object_store import ObjectStore


@dataclass(slots=True)
class ClusterHost:
    """Implements Host. `uid` is the write's, which its object's name means; `status` is that with which the session began."""

    key: WriteName
    drivers: PodDrivers
    uid: str
    store: ObjectStore
    status: Status
    code_source: CodeSource
    places: DriverTurns
    clock: Callable[[], float]
    now: Callable[[], datetime.datetime]
    pause_after = staticmethod(attempt_clock.pause_after)
    retry_after = staticmethod(attempt_clock.retry_after)
    #: Every operator sees all pods.
    recorder = ""
    driver_digest: str | None = field(init=False)

    def __post_init__(self) -> None:
        self.driver_digest = digest_of_kept(self.drivers.spec, self.drivers.workloads.model_dump_json())

    def renew(self, write: Write) -> Write:
        digest, archive = self.code_source.resolve(self.key.namespace, self.uid, write.spec, self.store)
        return dataclasses.replace(write, code_digest=digest, code=archive)

    def forgive(self, attempts: list[int]) -> int:
        """A manifest that was changed asks for new tries, as a person may."""
        status, owner, last = self.status, self.drivers.owner, attempts[-1] if attempts else 0
        if status.failed_before_generation not in (None, owner.generation) or (status.retried or "") != owner.retry:
            return last
        known = status.failed_before or 0
        return known if known <= last else 0

    def noted(self, key: EpochKey, attempt: int) -> Noted:
        """From the status, by the wall clock: no safety rests on it."""
        status, now = status_of(self.drivers.cache.existing_write(self.key)), self.now()

        def ago_s(moment: str) -> float:
            return max(0.0, (now - datetime.datetime.fromisoformat(moment)).total_seconds())

        if status.epoch != key.epoch or (status.stage or "") != key.stage:
            return Noted()
        closed = [one.closed_at for one in status.attempts or () if one.number == attempt and one.closed_at is not None]
        is_marked = status.attempt == attempt and status.progressed_at is not None
        return Noted(
            mark=status.progress_mark if is_marked else None,
            idle_s=ago_s(status.progressed_at) if status.progressed_at is not None else 0.0,
            starved_s=ago_s(status.starved_since) if status.starved_since is not None else None,
            closed_s=ago_s(closed[0]) if closed else 0.0,
        )

    def is_past_deadline(self, epoch: int) -> bool:
        """By the wall clock: it bounds effort, and no safety rests on it."""
        status, most_s = status_of(self.drivers.cache.existing_write(self.key)), self.drivers.spec.active_deadline_seconds
        if most_s is None or status.started_at is None or status.epoch != epoch:
            return False
        return (self.now() - datetime.datetime.fromisoformat(status.started_at)).total_seconds() > most_s

    def queue_for_a_place(self) -> int | None:
        return self.places.request(self.key)

    def count_starved(self) -> int:
        return self.drivers.cache.count_starved(self.key.namespace, self.key)

    def find_starvation(self, key: EpochKey, attempt: int, has_plan: bool) -> Failure | None:
        return self.drivers.find_starvation(key, attempt, has_plan)


_START_OVER: Final = (
    "; an earlier object of this name has begun the write: spec.onRecreate: New starts over as a new one, and leaves what "
    "that one has committed in its table"
)


@dataclass(slots=True)
class Session:
    """What is kept of a write between rounds, to save requests."""

    owner: Owner
    spec: Spec
    reconciler: Reconciler
    errors: int = 0
    last_patch_s: float = float("-inf")
    #: Of progress alone, since anything else was told.
    patches: int = 0
    #: What the metrics have of the rows of `counted_epoch`. `committing`: the epoch whose commit is made, and not counted yet.
    counted_epoch: int = 0
    rows_sealed: int = 0
    rows_failed: int = 0
    committing: int = 0
    counted_plan: tuple[int, int] | None = None
    #: The attempt whose start is in the metrics.
    counted_start: tuple[EpochKey, int] | None = None
    time_left: TimeLeft = field(default_factory=TimeLeft)


def open_session(
    host: ClusterHost,
    sink: Sink,
    pin_source: PinSource,
    looks: Looks | None,
    commit_turn: Callable[[], AbstractContextManager[object]],
    announce: Callable[[Round], None],
    parent: Parent | None = None,
) -> Session:
    """Return the session of a write. NeedsChange if it is not the write that its store knows."""
    store, uid, owner, spec = host.store, host.uid, host.drivers.owner, host.drivers.spec
    start_over = "" if uid == owner.uid else _START_OVER
    check_identity(store, uid, spec, start_over)
    row_keys = row_keys_of(spec.checkpoint.uri, owner.namespace, owner.name)
    write = Write(uid=uid, spec=spec, code_digest="", row_keys=row_keys)
    approval = parse_approval(owner.approval)
    observer = Observer(
        write, store, host.drivers, sink, host, pin_source=pin_source, looks=looks, approval=approval, parent=parent
    )
    register = registering(store, uid, owner.namespace, owner.name, spec, start_over)
    return Session(owner, spec, Reconciler(observer, commit_turn, announce, register))

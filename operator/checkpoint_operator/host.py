"""What a cluster decides for one generation of a write."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable
from dataclasses import dataclass, field

from checkpoint_control.decision import pauses
from checkpoint_control.decision.attempt_clock import Noted
from checkpoint_control.decision.observation import Failure
from checkpoint_control.loop.driver_digest import digest_of_kept
from checkpoint_control.ports import Write
from checkpoint_operator.code_source import CodeSource
from checkpoint_operator.crd.status_model import Status
from checkpoint_operator.pods.pod_drivers import PodDrivers
from checkpoint_operator.status.object_status import status_of
from checkpoint_operator.turns.driver_turns import DriverTurns
from checkpoint_operator.watch.cache import WriteName
from checkpoint_protocol.identity import EpochKey
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
    pause_after = staticmethod(pauses.pause_after)
    retry_after = staticmethod(pauses.retry_after)
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

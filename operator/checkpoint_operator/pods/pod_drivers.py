"""The driver port over pods: one pod for an attempt, with one name whoever makes it; and what keeps executors from running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from checkpoint_control.decision.observation import DriverObservation, DriverState, Failure
from checkpoint_control.loop.drivers import digest_for_attempts
from checkpoint_operator.config import WorkloadDefaults
from checkpoint_operator.crd.status_model import MAX_ATTEMPTS_SHOWN
from checkpoint_operator.kube.api import KubeApi
from checkpoint_operator.pods.capacity import with_way_out
from checkpoint_operator.pods.driver_pod import (
    ATTEMPT_LABEL,
    EPOCH_LABEL,
    STAGE_LABEL,
    UID_LABEL,
    Owner,
    driver_pod,
    executor_pod,
    keys_secret,
    pod_name,
)
from checkpoint_operator.pods.driver_status import observe_pod, obstacle_of
from checkpoint_operator.pods.handed_keys import HandedKeysEntry
from checkpoint_operator.pods.pod_policy import check_pods
from checkpoint_operator.watch.cache import Cache, WriteName
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.records import LaunchRecord
from checkpoint_protocol.store.authenticated_store import KeySource

Pod = Mapping[str, Any]


def starvation_of(pods: Sequence[Pod], refusal: str | None) -> Failure | None:
    """Return why a driver has no executor that runs; None if it has one, or nothing is known to keep them from running.

    `pods`: those of its executors. `refusal`: what the API server says to one more of them, where there are none. A driver whose
    executors come and go has as few as it likes: while one runs, none is missing, and a pod that it gives up waits for nothing.
    """
    waiting = [pod for pod in pods if _phase(pod) == "Pending" and not pod["metadata"].get("deletionTimestamp")]
    if any(_phase(pod) == "Running" for pod in pods):
        return None
    if waiting:
        found = (obstacle_of(pod.get("status") or {}, "executor") for pod in waiting)
        told = next((obstacle for obstacle in found if obstacle is not None), None)
        if told is None:
            return None
        count = f"{len(waiting)} executor{'s wait' if len(waiting) > 1 else ' waits'}"
        return Failure("Retryable", reasons.EXECUTORS_PENDING, f"{count}, and none runs: {told.message}")
    if refusal is not None:
        return Failure(
            "Retryable",
            reasons.EXECUTORS_REFUSED,
            f"the cluster does not admit the executors' pods: {with_way_out(refusal, 'executor')}",
        )
    return None


def _phase(pod: Pod) -> str | None:
    return (pod.get("status") or {}).get("phase")


#: Of a write, as many as the status shows attempts.
MOST_ENDED_PODS: Final = MAX_ATTEMPTS_SHOWN
_ENDED: Final = ("Succeeded", "Failed")


@dataclass(slots=True)
class PodDrivers:
    """Implements Drivers for one write. The cache has the pod that was made, before the watch tells of it."""

    api: KubeApi
    cache: Cache
    owner: Owner
    spec: Spec
    store_uri: str
    workloads: WorkloadDefaults
    record_keys: KeySource | None = None
    handed_keys: HandedKeysEntry | None = None
    _not_started: set[tuple[EpochKey, int]] = field(default_factory=set)
    _digest: str = field(init=False)
    #: Attempts whose pod this process has made, or found: where there is none any more, it was deleted.
    _made: set[tuple[EpochKey, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._digest = digest_for_attempts(self.spec)

    def observe(self, key: EpochKey, attempt: int) -> DriverObservation:
        observed = observe_pod(self._pod(key, attempt), self.owner.generation, self._digest)
        if self.handed_keys is not None and observed.state in (DriverState.RUNNING, DriverState.STARTING):
            self.handed_keys.renew(key.uid)
        if observed.state in (DriverState.RUNNING, DriverState.STARTING) or (key, attempt) in self._not_started:
            return observed
        # Before it counts that there is no pod, or that it has ended, the API server itself is asked: a watch lags.
        observed = observe_pod(self._pod(key, attempt, is_fresh=True), self.owner.generation, self._digest)
        if observed.state is DriverState.NOT_STARTED and (key, attempt) in self._made:
            return DriverObservation(DriverState.GONE, observed.problem)
        return observed

    def expect(self, key: EpochKey, attempt: int) -> None:
        """Nobody can have made the pod of an attempt that we have only just recorded. (If somebody has: we find it there.)"""
        self._not_started.add((key, attempt))

    def start(self, key: EpochKey, launch: LaunchRecord) -> None:
        secret = keys_secret(self.owner, key.uid, self.record_keys.of(key.uid)) if self.record_keys is not None else None
        secret_name = secret["metadata"]["name"] if secret is not None else None
        pod = driver_pod(
            self.owner,
            self.spec,
            key,
            launch.attempt,
            self.store_uri,
            self.workloads,
            secret_name,
            has_handed_keys=self.handed_keys is not None,
        )
        name = pod["metadata"]["name"]
        self._refuse_wrong_template_of_executors()
        check_pods(self.spec, self.workloads.allowed, self.workloads.service_account_name)
        self._not_started.discard((key, launch.attempt))
        if secret is not None:
            # Before the pod, whose start waits for it. If we die in between, the next round finds it made.
            self.api.create_secret(self.owner.namespace, secret)
        if self.handed_keys is not None:
            self.handed_keys.renew(key.uid)
        if (made := self._make(pod)) is not None:
            self._made.add((key, launch.attempt))
            self.cache.put_pod(made)
            self._remove_ended()
            return
        existing = self.api.get_pod(self.owner.namespace, name)
        if existing is not None and not _is_of(existing, key):
            raise NeedsChange(
                reasons.POD_REFUSED,
                f"the pod {self.owner.namespace}/{name} is not one of this write, and stands where its driver would: remove it",
            )

    def _remove_ended(self) -> None:
        """Remove the oldest pods that have ended, with their logs: nothing is read from the pod of a closed attempt."""
        for pod in self.cache.ended_pods(WriteName(self.owner.namespace, self.owner.name))[:-MOST_ENDED_PODS]:
            self.api.delete_pod(self.owner.namespace, pod["metadata"]["name"], pod["metadata"]["uid"])

    def _refuse_wrong_template_of_executors(self) -> None:
        """Raise NeedsChange if it has a field that Kubernetes does not know: Spark would drop it without a word."""
        if not self.spec.executor.template:
            return
        try:
            # What a quota says against it is no matter of the template, and is told when there are no executors.
            self.api.try_pod(self.owner.namespace, executor_pod(self.owner, self.spec, self.workloads))
        except NeedsChange as error:
            raise NeedsChange(error.reason, f"spec.executor.template: {error.message}") from error

    def _make(self, pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
        try:
            return self.api.create_pod(self.owner.namespace, pod)
        except NeedsChange as error:
            raise NeedsChange(error.reason, f"spec.driver.template: {error.message}") from error
        except Retryable as error:
            if error.reason != reasons.POD_REFUSED:
                raise
            raise Retryable(error.reason, with_way_out(error.message, "driver")) from error

    def stop(self, key: EpochKey, attempt: int) -> None:
        """Delete the pod if its driver is at work. A pod that has ended stays, with its log, as long as the write does."""
        pod = self._pod(key, attempt, is_fresh=True)
        if pod is not None and (pod.get("status") or {}).get("phase") not in _ENDED:
            self.api.delete_pod(self.owner.namespace, pod["metadata"]["name"], pod["metadata"]["uid"])

    def find_starvation(self, key: EpochKey, attempt: int, has_plan: bool) -> Failure | None:
        """Return why a driver at work has no executor that runs; None where nothing is known to keep them from it.

        Before it has planned, a driver needs none, unless it has asked for some already. It goes by the manifest that it was
        started with, whatever that is now.
        """
        # A pod without the label is one of no stage.
        labels = {UID_LABEL: key.uid, EPOCH_LABEL: str(key.epoch), ATTEMPT_LABEL: str(attempt), STAGE_LABEL: key.stage or None}
        refusal = None
        try:
            pods = self.api.list_executor_pods(self.owner.namespace, labels)
            if has_plan and not pods and self.spec.executor.instances != 0:
                refusal = self.api.try_pod(self.owner.namespace, executor_pod(self.owner, self.spec, self.workloads))
        except Retryable:
            return None  # an API server that does not answer holds up nothing that the store knows
        return starvation_of(pods, refusal)

    def _pod(self, key: EpochKey, attempt: int, is_fresh: bool = False) -> Mapping[str, Any] | None:
        name = pod_name(self.owner.name, key, attempt)
        pod = self.api.get_pod(self.owner.namespace, name) if is_fresh else self.cache.pod(self.owner.namespace, name)
        return pod if pod is not None and _is_of(pod, key) else None


def _is_of(pod: Mapping[str, Any], key: EpochKey) -> bool:
    """Whether a pod is one of this write, made for this object of its name or an earlier one: no other is known or touched."""
    return (pod["metadata"].get("labels") or {}).get(UID_LABEL) == key.uid

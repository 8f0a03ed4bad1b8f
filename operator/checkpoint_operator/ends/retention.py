"""After the last epoch: drivers are ended, objects expire, and what was staged is removed once it is old enough.

By the wall clock, which decides only how long people can look at it: the cleaner judges from records what nobody needs.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from checkpoint_control.writes.cleaning import CleanedEpoch, Cleaner
from checkpoint_operator.crd.status_model import Status
from checkpoint_operator.kube.api import KubeApi
from checkpoint_operator.status.object_status import status_of
from checkpoint_operator.watch.cache import Cache, WriteName
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.store.object_store import ObjectStore

_DAY_S: Final = 86_400.0
#: A store is listed no more often than this for what has become old enough since.
_LEAST_BETWEEN_S: Final = 3_600.0
#: What takes longer goes on in another turn: other writes wait for the worker.
_MOST_AT_ONCE_S: Final = 60.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Retention:
    """Cleans the checkpoint stores of writes. When each is due is kept in memory only: a new process looks once at each."""

    days: int
    open_store: Callable[[str, str], ObjectStore]
    storage_of: Callable[[str], StorageSettings]
    clock: Callable[[], float]
    now: Callable[[], datetime.datetime]
    _due: dict[WriteName, float] = field(default_factory=dict)

    def apply(self, key: WriteName, spec: Spec, status: Status) -> float | None:
        """Clean what is due of a write, and return after how many seconds more may be; None if nothing ever is.

        What cannot be cleaned is logged, and tried again later: no write waits for it.
        """
        after_s = self.days * _DAY_S if spec.checkpoint.retention is None else spec.checkpoint.retention
        if not after_s or status.write_uid is None or status.commit is None or status.commit.committed_at is None:
            return None
        if key not in self._due:
            age_s = (self.now() - datetime.datetime.fromisoformat(status.commit.committed_at)).total_seconds()
            # By the store's clock it may be a moment later.
            self._due[key] = self.clock() + max(0.0, after_s - age_s + 1.0)
        if self.clock() >= self._due[key]:
            is_done = self._clean(key, spec.checkpoint.uri, status.write_uid, after_s)
            self._due[key] = self.clock() + (max(after_s, _LEAST_BETWEEN_S) if is_done else _MOST_AT_ONCE_S)
        return self._due[key] - self.clock()

    def forget(self, key: WriteName) -> None:
        self._due.pop(key, None)

    def _clean(self, key: WriteName, uri: str, uid: str, after_s: float) -> bool:
        """Return whether the whole write was gone through."""
        until = self.clock() + _MOST_AT_ONCE_S
        before = self.now() - datetime.timedelta(seconds=after_s)
        where = {"write": f"{key.namespace}/{key.name}"}
        try:
            cleaner = Cleaner(self.open_store(key.namespace, uri), self.storage_of(key.namespace), before)
            for done in cleaner.clean(uid):
                if isinstance(done, CleanedEpoch):
                    if done.objects or done.data_files:
                        removed = f"{done.objects} objects and {done.data_files} data files"
                        _log.info("cleaned epoch %s: %s", done.key.epoch, removed, extra=where)
                elif done.problem is not None:
                    _log.warning("epoch %s is not cleaned: %s: %s", done.key.epoch, done.problem, done.why, extra=where)
                if self.clock() > until:
                    return False
        except CheckpointError as error:
            _log.warning("the checkpoint store could not be cleaned: %s", error.message, extra=where)
        return True


_LINGER_S: Final = 60.0


def clean_up_after(
    body: Mapping[str, Any], spec: Spec, api: KubeApi, cache: Cache, now: Callable[[], datetime.datetime]
) -> float | None:
    """Do what is due, and return after how many seconds more will be; None if nothing will.

    By the wall clock: no safety rests on it.
    """
    status = status_of(body)
    if status.commit is None or status.commit.committed_at is None:
        return None
    age_s = (now() - datetime.datetime.fromisoformat(status.commit.committed_at)).total_seconds()
    delays = (_end_lingering(body, status, spec, age_s, api, cache), _expire(body, spec, age_s, api))
    return min((delay for delay in delays if delay is not None), default=None)


def _end_lingering(body: Mapping[str, Any], status: Status, spec: Spec, age_s: float, api: KubeApi, cache: Cache) -> float | None:
    """A driver ends soon after its last task, or after it has waited for the next epoch; until then its pod is left alone."""
    kept_s = (spec.trigger.keep_driver or 0.0) if spec.trigger is not None else 0.0
    namespace = body["metadata"]["namespace"]
    attempt = (status.attempts or (None,))[-1]
    if attempt is None or attempt.pod is None:
        return None
    pod = cache.pod(namespace, attempt.pod)
    if pod is None or pod["status"].get("phase") in ("Succeeded", "Failed") or "deletionTimestamp" in pod["metadata"]:
        return None
    if age_s < kept_s + _LINGER_S:
        return kept_s + _LINGER_S - age_s + 1
    api.delete_pod(namespace, attempt.pod, pod["metadata"]["uid"])
    return None


def _expire(body: Mapping[str, Any], spec: Spec, age_s: float, api: KubeApi) -> float | None:
    """Delete a finished write whose time to live has passed."""
    if spec.ttl_seconds_after_finished is None:
        return None
    if age_s < spec.ttl_seconds_after_finished:
        return spec.ttl_seconds_after_finished - age_s + 1
    metadata = body["metadata"]
    api.delete_write(metadata["namespace"], metadata["name"], metadata["uid"])
    return None

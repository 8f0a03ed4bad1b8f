"""What is left to do for a write that is committed: a driver that does not end by itself is ended, and a time to live is kept."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any, Final

from checkpoint_operator.crd.status_model import Status
from checkpoint_operator.kube.api import KubeApi
from checkpoint_operator.status.object_status import status_of
from checkpoint_operator.watch.cache import Cache
from checkpoint_protocol.manifest.spec import Spec

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

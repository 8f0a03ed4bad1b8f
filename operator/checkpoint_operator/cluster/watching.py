"""Watch the cluster and wake the work queue. The only module that knows Kopf, of which we use watching and nothing else.

Raw events only: Kopf writes nothing onto any object, and keeps no state of its own.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import kopf

from checkpoint_operator.cluster.cache import Cache, WriteName, name_of, write_of
from checkpoint_operator.cluster.kube import PLURAL
from checkpoint_operator.cluster.pods import DRIVER_CONTAINER, ROLE_LABEL
from checkpoint_protocol.manifest import API_VERSION


def watch(
    cache: Cache,
    wake: Callable[[WriteName], None],
    namespaces: Sequence[str],
) -> None:
    """Feed the cache and wake a write's key at each event, until the process is told to end.

    No namespaces: all of them. Raises when a watch cannot go on.
    """
    registry = kopf.OperatorRegistry()
    group, version = API_VERSION.split("/")

    @kopf.on.login(registry=registry)
    async def _log_in(**context: Any) -> kopf.ConnectionInfo | None:
        # Asked again when the credentials are refused: a service account's token is renewed in its file.
        info = kopf.login_with_service_account(**context)
        if info is None:
            return kopf.login_with_kubeconfig(**context)
        # By address, as the Kubernetes client has it: Kopf's name for the server needs a DNS that answers.
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        return dataclasses.replace(info, server=f"https://{f'[{host}]' if ':' in host else host}:{port}")

    @kopf.on.event(group, version, PLURAL, registry=registry)
    async def _write_changed(event: Any, **_: Any) -> None:
        body = event["object"]
        if event["type"] == "DELETED":
            wake(cache.remove_write(body))
        elif cache.put_write(body):
            wake(name_of(body))

    @kopf.on.event("", "v1", "pods", labels={ROLE_LABEL: DRIVER_CONTAINER}, registry=registry)
    async def _pod_changed(event: Any, **_: Any) -> None:
        body = event["object"]
        if event["type"] == "DELETED":
            cache.remove_pod(body)
        elif not cache.put_pod(body):
            return
        if (key := write_of(body)) is not None:
            wake(key)

    settings = kopf.OperatorSettings()
    settings.persistence.diffbase_storage = _NoDiffs()
    settings.persistence.progress_storage = _NoProgress()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    # A watch that is silent may be dead: begin it anew now and then.
    settings.watching.server_timeout = 270
    settings.watching.client_timeout = 300
    settings.watching.connect_timeout = 10
    kopf.run(
        registry=registry,
        settings=settings,
        namespaces=list(namespaces),
        clusterwide=not namespaces,
        standalone=True,
    )


class _NoDiffs(kopf.DiffBaseStorage):
    """Kopf takes each object apart to tell what has changed since it last handled it. Nobody here asks that."""

    def build(self, *, body: kopf.Body, extra_fields: object = None) -> kopf.BodyEssence:
        return kopf.BodyEssence({})

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Nothing is ever written onto an object."""


class _NoProgress(kopf.ProgressStorage):
    """Handlers of raw events have no progress to keep."""

    def fetch(self, *, key: object, body: kopf.Body) -> kopf.ProgressRecord | None:
        return None

    def store(self, *, key: object, record: kopf.ProgressRecord, body: kopf.Body, patch: kopf.Patch) -> None:
        """Nothing is ever written onto an object."""

    def purge(self, *, key: object, body: kopf.Body, patch: kopf.Patch) -> None:
        """Nothing was written."""

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Nothing is ever written onto an object."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence

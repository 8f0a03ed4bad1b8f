"""Names of a cluster's objects in checkpoint stores, and whether an object is still the one of its name."""

from __future__ import annotations

from checkpoint_control.writes.recreation import NamedObject
from checkpoint_operator.kube.api import Conflict, KubeApi
from checkpoint_operator.pods.driver_pod import Owner
from checkpoint_operator.watch.cache import Cache
from checkpoint_protocol.store import layout


def named_object(cluster: str, owner: Owner) -> NamedObject:
    return NamedObject(layout.scope_in_cluster(cluster, owner.namespace), owner.name, owner.uid)


def confirm_object(api: KubeApi, cache: Cache, owner: Owner, *, at_generation: bool = False) -> None:
    """Ask the API server itself, as a watch lags. Raises Conflict if the object is gone, or another has its name.

    `at_generation`: also if its manifest was edited since.
    """
    body = api.get_write(owner.namespace, owner.name)
    if body is not None:
        cache.put_write(body)
    metadata = (body or {}).get("metadata") or {}
    if metadata.get("uid") != owner.uid:
        raise Conflict(f"the object {owner.namespace}/{owner.name} is gone, or was made again")
    if at_generation and metadata.get("generation") != owner.generation:
        raise Conflict(f"the manifest of {owner.namespace}/{owner.name} was changed")

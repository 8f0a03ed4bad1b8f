"""What a CheckpointedWrite's object says: whose it is, its manifest, and which write it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from checkpoint_control.writes.registration import NamedObject
from checkpoint_operator.kube.api import Conflict, KubeApi
from checkpoint_operator.pods.driver_pod import Owner
from checkpoint_operator.status.round_status import APPROVE_ANNOTATION, RETRY_ANNOTATION
from checkpoint_operator.watch.cache import Cache
from checkpoint_protocol.manifest.spec import CheckpointedWrite, ManifestInvalid, Spec, parse_manifest
from checkpoint_protocol.places.uris import local_path
from checkpoint_protocol.store import layout

_MOST_ANNOTATION_TEXT: Final = 128


def manifest_of(body: Mapping[str, Any]) -> CheckpointedWrite:
    """Read the manifest in an object, without what the API server has added. Raises ManifestInvalid."""
    if not has_spec(body):
        raise ManifestInvalid((f"spec: {body['spec']}",))
    metadata = {name: body["metadata"][name] for name in ("name", "namespace")}
    return parse_manifest({"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": metadata, "spec": body["spec"]})


def has_spec(body: Mapping[str, Any]) -> bool:
    """Whether the spec was read, and is not the text that says why not."""
    return not isinstance(body["spec"], str)


def owner_of(body: Mapping[str, Any]) -> Owner:
    metadata = body["metadata"]
    annotations = metadata.get("annotations") or {}
    retry, approval = (str(annotations.get(name, ""))[:_MOST_ANNOTATION_TEXT] for name in (RETRY_ANNOTATION, APPROVE_ANNOTATION))
    return Owner(metadata["namespace"], metadata["name"], metadata["uid"], metadata["generation"], retry, approval)


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


def refuse_own_disk(spec: Spec, *, allow_local_paths: bool) -> None:
    """Whoever may apply a manifest has no business with the operator's disk, and drivers could not see what is on it.

    The settings of the operator refuse it too, wherever something is opened; here the field is named.
    """
    of_sink = {f"spec.sink.{spec.sink.format}.{field}": uri for field, uri in spec.sink.named.uris.items()}
    uris = {"spec.checkpoint.uri": spec.checkpoint.uri, **of_sink}
    for field_path, uri in uris.items():
        if local_path(uri) is not None and not allow_local_paths:
            raise ManifestInvalid(
                (f"{field_path}: {uri} is a path; in a cluster it is to be in an object store (s3://, gs://, az://)",)
            )

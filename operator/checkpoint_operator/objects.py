"""What a CheckpointedWrite's object says: whose it is, and its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from checkpoint_operator.pods.driver_pod import Owner
from checkpoint_operator.status.round_status import APPROVE_ANNOTATION, RETRY_ANNOTATION
from checkpoint_protocol.manifest.spec import CheckpointedWrite, ManifestInvalid, parse_manifest

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

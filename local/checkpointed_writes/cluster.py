"""Writes that are applied to a Kubernetes cluster, with their code, and waited for."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from checkpoint_control.code.digest import code_files
from checkpoint_local.code import code_archive, code_tree
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.manifest.spec import API_VERSION, KIND, CheckpointedWrite
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.store.object_store import local_path

_FIELD_MANAGER: Final = "checkpointed-writes"
#: Kubernetes takes a mebibyte, with the names and the rest of the object.
_MOST_OF_A_CONFIG_MAP: Final = 1_000_000
#: A watch is begun again after so long: a connection that was cut is not noticed otherwise.
_WATCH_S: Final = 60
_ENDED: Final = ("Committed", "Stalled")


def apply(manifest: CheckpointedWrite, settings: Settings) -> None:
    """Apply a write, and before it the modules of its code where that is a folder of this machine, as a ConfigMap.

    Server-side, as a field manager of its own: applying it again changes what differs. Conflicts are not forced.
    """
    body = manifest.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    namespace, name = manifest.metadata.namespace, manifest.metadata.name
    with _talking():
        resources = _resources()
        if (path := manifest.spec.code.path) is not None and Path(local_path(path) or path).is_dir():
            made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-code", "namespace": namespace}}
            _put(resources, {**made, "data": dict(_modules(manifest, settings))})
            body["spec"]["code"] = {"configMap": {"name": f"{name}-code"}}
        _put(resources, body)


def wait(namespace: str, name: str, timeout_s: float | None) -> dict[str, Any]:
    """Return the status of a write once it is committed. NeedsChange with the status's reason if it is stalled instead.

    Retryable after the timeout. The status must be of the object as it is now: one of an earlier spec does not count.
    """
    from kubernetes.client import ApiException

    ends = None if timeout_s is None else time.monotonic() + timeout_s
    writes = None
    while ends is None or time.monotonic() < ends:
        left_s = _WATCH_S if ends is None else max(1, min(_WATCH_S, int(ends - time.monotonic())))
        with _talking():
            writes = writes or _resources().get(api_version=API_VERSION, kind=KIND)
            selector = f"metadata.name={name}"
            try:
                for event in writes.watch(namespace=namespace, field_selector=selector, timeout=left_s):
                    if event["type"] != "DELETED" and (ended := _ended(event["raw_object"])) is not None:
                        return ended
            except ApiException as error:
                if error.status != 410:  # the watch has got too old: it begins anew
                    raise
    raise Retryable(reasons.API_UNAVAILABLE, f"{namespace}/{name} was neither committed nor stalled in {timeout_s:g} s; wait on")


def _ended(found: Mapping[str, Any]) -> dict[str, Any] | None:
    status: dict[str, Any] = found.get("status") or {}
    if status.get("observedGeneration") != found["metadata"]["generation"] or status.get("phase") not in _ENDED:
        return None
    if status["phase"] == "Stalled":
        raise NeedsChange(str(status.get("reason")), str(status.get("message")))
    return status


def _modules(manifest: CheckpointedWrite, settings: Settings) -> Iterator[tuple[str, str]]:
    """Give the files of the code with their texts. NeedsChange where a ConfigMap cannot hold them."""
    spec = manifest.spec
    folder = Path(local_path(spec.code.path or "") or "")
    size = 0
    for file in code_files(spec, code_tree(spec, code_archive(spec, settings)), None).files:
        try:
            text = (folder / file).read_text(encoding="utf-8") if "/" not in file else None
        except (OSError, UnicodeDecodeError):
            text = None
        size += len((text or "").encode())
        if text is None or size > _MOST_OF_A_CONFIG_MAP:
            why = "is not a text file in the folder itself" if text is None else "makes it larger than a mebibyte"
            raise NeedsChange(
                reasons.CODE_MISSING,
                f"the code is applied as a ConfigMap, and {file} {why}; build a wheel and name it, options(code={{'uri': ...}}), "
                "or build an image",
            )
        yield file, text


def _put(resources: Any, body: Mapping[str, Any]) -> None:
    kind = resources.get(api_version=body["apiVersion"], kind=body["kind"])
    metadata = body["metadata"]
    kind.server_side_apply(
        body=body, name=metadata["name"], namespace=metadata.get("namespace", "default"), field_manager=_FIELD_MANAGER
    )


def _resources() -> Any:
    """Return the kinds of the cluster that kubectl talks to."""
    from kubernetes import config
    from kubernetes.dynamic import DynamicClient

    return DynamicClient(config.new_client_from_config()).resources  # type: ignore[no-untyped-call]


@contextmanager
def _talking() -> Iterator[None]:
    """Raise what the API server says, or does not say, as an error of ours."""
    from kubernetes.client import ApiException
    from kubernetes.config import ConfigException
    from kubernetes.dynamic.exceptions import ResourceNotFoundError
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ConfigException as error:
        raise NeedsChange(reasons.MANIFEST_INVALID, f"no cluster is known here: {error}; see kubectl config") from error
    except ResourceNotFoundError as error:
        why = "the cluster knows no CheckpointedWrite; install the chart of the operator"
        raise NeedsChange(reasons.MANIFEST_INVALID, why) from error
    except ApiException as error:
        raise NeedsChange(reasons.MANIFEST_INVALID, f"the API server refuses it: {_said(error)}") from error
    except HTTPError as error:
        raise Retryable(reasons.API_UNAVAILABLE, f"the API server does not answer: {error}") from error


def _said(error: Any) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason)

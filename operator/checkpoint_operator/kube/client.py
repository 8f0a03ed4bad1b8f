"""The API port over the Kubernetes client. The only module that knows it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from kubernetes import client, config
from urllib3.exceptions import HTTPError

from checkpoint_operator.kube import api_json
from checkpoint_operator.kube.api import Conflict, Object
from checkpoint_operator.pods.driver_pod import DRIVER_CONTAINER, EXECUTOR_CONTAINER, ROLE_LABEL
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable
from checkpoint_protocol.manifest.spec import API_VERSION

PLURAL: Final = "checkpointedwrites"
_OPERATOR: Final = "checkpointed-write-operator"
_TIMEOUT_S: Final = (5.0, 30.0)
#: A thousand objects with their specs are ten megabytes, and a spec may be as large as its author likes.
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
#: Of a list: as many of the largest objects that the API server takes are 30 MB, and a thousand writes are fifty requests.
PAGE: Final = 20
#: A list whose pages the API server does not keep any more is begun again.
_LISTS_BEGUN: Final = 3
#: Labels, annotations and who has managed which field may be as large as their author likes.
_LISTED: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
#: With several hundred executors, one that runs is soon among them.
_MOST_EXECUTORS: Final = 100
_NOT_ADMITTED: Final = "the cluster does not admit the driver's pod: "
_KEYS_NOT_ADMITTED: Final = "the cluster does not admit the Secret with the keys for the driver's pod: "
#: RBAC says so, and no quota or policy, which answer with 403 too.
_WITHOUT_RIGHT: Final = "cannot create resource"
_EXISTS: Final = "AlreadyExists"
_UNKNOWN_FIELD: Final = "strict decoding error: "
_MERGE_PATCH: Final = "application/merge-patch+json"
_NOT_FOUND, _CONFLICT, _GONE, _INVALID, _FORBIDDEN = 404, 409, 410, 422, 403
_PASSING: Final = frozenset({401, 408, 429})


class _Exists(Conflict):
    """There is an object of this name."""


class _Expired(Retryable):
    """The API server does not keep what the rest of a list is read from any more."""


def connect() -> KubernetesApi:
    """Return the API of the cluster that this process runs in, or of the current kubeconfig."""
    try:
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    except config.ConfigException:
        try:
            config.load_kube_config()  # type: ignore[no-untyped-call]
        except config.ConfigException as error:
            raise NeedsChange(
                reasons.API_UNAVAILABLE, f"no cluster: neither a pod's service account nor a kubeconfig was found ({error})"
            ) from error
    return KubernetesApi(named(client.ApiClient()))


def named(api: client.ApiClient) -> client.ApiClient:
    """Have the API server call the operator by its name: as the manager of fields, and in audit logs."""
    api.user_agent = _OPERATOR
    return api


class KubernetesApi:
    """Implements KubeApi. Each call is one request; nothing is tried again here."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api
        #: Requests by verb and kind, for the metrics and for whoever counts writes.
        self.requests: dict[tuple[str, str], int] = {}

    def get_write(self, namespace: str, name: str, *, is_whole: bool = False) -> Object | None:
        most = api_json.NO_LIMIT if is_whole else api_json.MOST_SPEC_BYTES
        return self._ask("GET", _write_path(namespace, name), "write", absent_is_none=True, most_spec_bytes=most)

    def list_writes(self, namespace: str | None) -> Sequence[Object]:
        place = f"namespaces/{namespace}/" if namespace else ""
        return self._list(f"/apis/{API_VERSION}/{place}{PLURAL}?", "writes")

    def patch_write(self, namespace: str, name: str, patch: Object) -> Object:
        return self._change("PATCH", _write_path(namespace, name), "write", patch)

    def patch_status(self, namespace: str, name: str, patch: Object) -> Object:
        return self._change("PATCH", f"{_write_path(namespace, name)}/status", "status", patch)

    def delete_write(self, namespace: str, name: str, uid: str) -> None:
        self._delete(_write_path(namespace, name), "write", uid)

    def get_pod(self, namespace: str, name: str) -> Object | None:
        return self._ask("GET", _pod_path(namespace, name), "pod", absent_is_none=True)

    def list_driver_pods(self, namespace: str | None) -> Sequence[Object]:
        place = f"namespaces/{namespace}/" if namespace else ""
        return self._list(f"/api/v1/{place}pods?labelSelector={ROLE_LABEL}%3D{DRIVER_CONTAINER}&", "pods")

    def list_executor_pods(self, namespace: str, labels: Mapping[str, str | None]) -> Sequence[Object]:
        chosen = {**labels, ROLE_LABEL: EXECUTOR_CONTAINER}
        wanted = (f"!{name}" if value is None else f"{name}={value}" for name, value in chosen.items())
        selector = quote(",".join(wanted), safe="")
        path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}&limit={_MOST_EXECUTORS}"
        answer = self._ask("GET", path, "pods", objects=api_json.OF_A_LIST)
        assert answer is not None
        return list(answer["items"] or ())

    def try_pod(self, namespace: str, pod: Object) -> str | None:
        try:
            self._ask("POST", f"{_pod_path(namespace)}?dryRun=All&fieldValidation=Strict", "pod", pod)
        except Retryable as error:
            if error.reason != reasons.POD_REFUSED:
                raise
            return error.message.removeprefix(_NOT_ADMITTED)
        return None

    def create_pod(self, namespace: str, pod: Object) -> Object | None:
        try:
            # Strict: a field that Kubernetes does not know, of a template, is an error and not dropped without a word.
            return self._ask("POST", f"{_pod_path(namespace)}?fieldValidation=Strict", "pod", pod)
        except Conflict:
            return None

    def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        self._delete(_pod_path(namespace, name), "pod", uid)

    def get_config_map(self, namespace: str, name: str) -> Object | None:
        return self._ask("GET", f"/api/v1/namespaces/{namespace}/configmaps/{name}", "configmap", absent_is_none=True)

    def get_secret(self, namespace: str, name: str) -> Object | None:
        return self._ask("GET", _secret_path(namespace, name), "secret", absent_is_none=True)

    def patch_secret(self, namespace: str, name: str, patch: Object) -> Object | None:
        return self._ask("PATCH", _secret_path(namespace, name), "secret", patch, _MERGE_PATCH, absent_is_none=True)

    def create_secret(self, namespace: str, secret: Object) -> None:
        # Another conflict is one over a quota, which is counted for somebody else at the same time: nothing was made.
        with contextlib.suppress(_Exists):
            self._ask("POST", _secret_path(namespace), "secret", secret)

    def create_event(self, namespace: str, event: Object) -> None:
        self._ask("POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", "event", event)

    def check(self) -> None:
        if self._ask("GET", f"/apis/{API_VERSION}", "discovery", absent_is_none=True) is None:
            raise NeedsChange(
                reasons.API_UNAVAILABLE,
                "the cluster does not know CheckpointedWrites: apply the files of crds/ (helm install does so)",
            )

    # --- inside ---------------------------------------------------------------------------------------------------------------

    def _list(self, path: str, kind: str) -> list[Object]:
        for _ in range(_LISTS_BEGUN):
            with contextlib.suppress(_Expired):
                return self._pages(path, kind)
        raise Retryable(
            reasons.API_UNAVAILABLE,
            f"the API server did not keep the list GET {path} until its end, {_LISTS_BEGUN} times; it is tried again",
        )

    def _pages(self, path: str, kind: str) -> list[Object]:
        """Read a list in pages; of each object, what tells it apart. Not of resourceVersion=0, for which `limit` is ignored."""
        found: list[Object] = []
        following = ""
        while True:
            page = self._ask("GET", f"{path}limit={PAGE}{following}", kind, accept=_METADATA_ONLY, objects=api_json.OF_A_LIST)
            assert page is not None
            for body in page["items"] or ():  # of no objects there is no list
                found.append({"metadata": {name: body["metadata"][name] for name in _LISTED if name in body["metadata"]}})
            token = page["metadata"].get("continue")
            if not token:
                return found
            following = f"&continue={quote(token, safe='')}"

    def _change(self, verb: str, path: str, kind: str, patch: Object) -> Object:
        changed = self._ask(verb, path, kind, patch, _MERGE_PATCH)
        assert changed is not None
        return changed

    def _delete(self, path: str, kind: str, uid: str) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        # A conflict: another object has the name by now, so ours is gone.
        with contextlib.suppress(Conflict):
            self._ask("DELETE", path, kind, options, absent_is_none=True)

    def _ask(
        self,
        verb: str,
        path: str,
        kind: str,
        body: Any = None,
        content_type: str = "application/json",
        absent_is_none: bool = False,
        accept: str = "application/json",
        objects: int = api_json.ALONE,
        most_spec_bytes: int = api_json.MOST_SPEC_BYTES,
    ) -> Object | None:
        headers = {"Accept": accept, "Content-Type": content_type}
        request = self._api.param_serialize(
            method=verb, resource_path=path, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        self.requests[verb, kind] = self.requests.get((verb, kind), 0) + 1
        try:
            response = self._api.call_api(*request, _request_timeout=_TIMEOUT_S)
            text: bytes = response.read()  # type: ignore[no-untyped-call]
        except (HTTPError, OSError, client.ApiException) as error:
            raise Retryable(
                reasons.API_UNAVAILABLE, f"the API server did not answer {verb} {path}: {type(error).__name__}"
            ) from error
        if response.status == _NOT_FOUND and absent_is_none:
            return None
        if response.status >= 300:
            raise _translate(verb, path, kind, response.status, text)
        try:
            answer: Object = api_json.loads(text, objects, most_spec_bytes)
        except ValueError as error:
            raise Retryable(
                reasons.API_UNAVAILABLE, f"the API server's answer to {verb} {path} is no JSON; is there a proxy between?"
            ) from error
        return answer


def _translate(verb: str, path: str, kind: str, status: int, text: bytes) -> CheckpointError:
    try:
        answer = api_json.loads(text)
        message, reason = str(answer.get("message", ""))[:1000], answer.get("reason")
    except ValueError:
        message, reason = text[:200].decode(errors="replace"), None
    said = f"{verb} {path}: {status}: {message}"
    if status == _CONFLICT:
        return _Exists(said) if reason == _EXISTS else Conflict(said)
    if status == _GONE:
        return _Expired(reasons.API_UNAVAILABLE, said)
    if kind == "pod" and verb == "POST" and _UNKNOWN_FIELD in message:
        return NeedsChange(reasons.MANIFEST_INVALID, f"{message.partition(_UNKNOWN_FIELD)[2]}")
    if kind == "pod" and verb == "POST" and status in (_INVALID, _FORBIDDEN, _NOT_FOUND, 400):
        # A quota may be freed, a namespace's level be changed, a service account be made: it is tried again, and told meanwhile.
        return Retryable(reasons.POD_REFUSED, f"{_NOT_ADMITTED}{message}")
    if (
        kind == "secret"
        and verb == "POST"
        and _WITHOUT_RIGHT not in message
        and status in (_INVALID, _FORBIDDEN, _NOT_FOUND, 400)
    ):
        return Retryable(reasons.POD_REFUSED, f"{_KEYS_NOT_ADMITTED}{message}")
    if status >= 500 or status in _PASSING:
        return Retryable(reasons.API_UNAVAILABLE, f"the API server refused for now: {said}")
    if status == _FORBIDDEN:
        return Retryable(reasons.API_FORBIDDEN, f"the operator may not do this, see the chart's roles: {said}")
    return Retryable(reasons.API_UNAVAILABLE, f"the API server refused: {said}")


def _write_path(namespace: str, name: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}/{name}"


def _pod_path(namespace: str, name: str | None = None) -> str:
    return f"/api/v1/namespaces/{namespace}/pods" + (f"/{name}" if name else "")


def _secret_path(namespace: str, name: str | None = None) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets" + (f"/{name}" if name else "")

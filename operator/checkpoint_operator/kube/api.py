"""The Kubernetes API as the controller needs it: a port, so that its logic is tested without a server.

Objects are plain data, as the API gives them. All methods raise Retryable where the API does not answer, and NeedsChange where
it refuses what a person must change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable

Object = Mapping[str, Any]


class Conflict(Retryable):
    """The object was changed since it was read. Somebody else is at work on it, or our watch lags: read it again."""

    def __init__(self, message: str) -> None:
        super().__init__(reasons.API_CONFLICT, message)

    def __reduce__(self) -> tuple[type[Conflict], tuple[str]]:  # type: ignore[override]
        return (type(self), (self.message,))


class KubeApi(Protocol):
    def get_write(self, namespace: str, name: str, *, is_whole: bool = False) -> Object | None:
        """Return a CheckpointedWrite as it is now, or None. `is_whole`: also with a spec that is too large to be kept."""

    def list_writes(self, namespace: str | None) -> Sequence[Object]:
        """Return which CheckpointedWrites a namespace has (None: all have), in which version, and since when."""

    def patch_write(self, namespace: str, name: str, patch: Object) -> Object:
        """Merge-patch a CheckpointedWrite and return it. Conflict if the patch names a resourceVersion that is not current."""

    def patch_status(self, namespace: str, name: str, patch: Object) -> Object:
        """The same for its status."""

    def delete_write(self, namespace: str, name: str, uid: str) -> None:
        """Delete a CheckpointedWrite if it is the one with this uid."""

    def get_pod(self, namespace: str, name: str) -> Object | None:
        """Return a pod as it is now, or None."""

    def list_driver_pods(self, namespace: str | None) -> Sequence[Object]:
        """Return which driver pods a namespace has (None: all have)."""

    def list_executor_pods(self, namespace: str, labels: Mapping[str, str | None]) -> Sequence[Object]:
        """Return executor pods with these labels, and without those of no value; of very many, some."""

    def try_pod(self, namespace: str, pod: Object) -> str | None:
        """Ask whether a pod would be admitted, and make none; return what the API server says against it."""

    def create_pod(self, namespace: str, pod: Object) -> Object | None:
        """Make a pod and return it; None if there is one of its name."""

    def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Ask that a pod ends, if it is the one with this uid."""

    def get_config_map(self, namespace: str, name: str) -> Object | None:
        """Return a ConfigMap, or None."""

    def get_secret(self, namespace: str, name: str) -> Object | None:
        """Return a Secret, or None."""

    def patch_secret(self, namespace: str, name: str, patch: Object) -> Object | None:
        """Merge-patch a Secret and return it, or None. Conflict if the patch names a resourceVersion that is not current."""

    def create_secret(self, namespace: str, secret: Object) -> None:
        """Make a Secret whose name tells what is in it. One that is there stays as it is."""

    def create_event(self, namespace: str, event: Object) -> None:
        """Tell people something about an object."""

    def check(self) -> None:
        """Make one round trip. Raises Retryable if the API does not answer, NeedsChange if our kind is not installed."""

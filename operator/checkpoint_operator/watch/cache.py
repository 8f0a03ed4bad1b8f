"""What is known of CheckpointedWrites and driver pods, from watches, lists and answers to our own requests, and what of the
writes came from the watch. Only saves questions to the API server.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from checkpoint_operator.kube.api import Conflict
from checkpoint_operator.kube.api_json import weight
from checkpoint_operator.pods.driver_pod import DRIVER_CONTAINER, WRITE_LABEL
from checkpoint_operator.watch.work_queue import MOST_OF_A_NAMESPACE, Share, rank_of
from checkpoint_protocol.manifest.spec import API_VERSION, KIND


class WriteName(NamedTuple):
    """Where a CheckpointedWrite stands: the key of the work queue."""

    namespace: str
    name: str


_MOST_GONE: Final = 1000
#: For the names and versions of one, wherever they stand.
_BYTES_OF_ANY: Final = 2_000
#: Of the metadata of writes: as large as who applies them likes.
_UNREAD: Final = ("managedFields", "labels", "ownerReferences")
_POD_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "labels",
    "annotations",
    "ownerReferences",
    "creationTimestamp",
    "deletionTimestamp",
)


@dataclass(slots=True)
class Cache:
    """Thread-safe. An object that is older than what is known is passed over: events may come after our own writes' answers.

    Of the writes of a namespace, those are kept that have room in its share (`work_queue.py`), and the others are as unknown.
    """

    most_of_a_namespace: int = MOST_OF_A_NAMESPACE
    _shares: dict[str, Share] = field(default_factory=dict)
    _writes: dict[WriteName, Mapping[str, Any]] = field(default_factory=dict)
    _told: dict[WriteName, Mapping[str, Any]] = field(default_factory=dict)
    _pods: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    #: The uids of the last pods that are gone: the answer to the request that made one may come after the end of it.
    _gone: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_GONE))

    def put_write(self, body: Mapping[str, Any]) -> bool:
        """Take a write as it is now; return whether that is a reason to reconcile it.

        It is not where only the status has changed: we have written it, or another operator has, whom we would answer for ever.
        """
        key, rank = name_of(body), rank_of(body)
        with self._lock:
            known = self._writes.get(key)
            share = self._share(key.namespace)
            if not _is_news(body, known):
                return False
            if not share.has_room(rank):
                self._let_go(key)  # of an object that had the name before
                return False
            kept = {**body, "metadata": {name: value for name, value in body["metadata"].items() if name not in _UNREAD}}
            self._writes[key] = kept
            for name in share.put(rank, _BYTES_OF_ANY + weight(kept)):
                self._let_go(key._replace(name=name))
            return key in self._writes and (known is None or _wanted(known) != _wanted(body))

    def hear_write(self, body: Mapping[str, Any]) -> bool:
        """Take a write as the watch tells it; return whether that is a reason to reconcile it."""
        key = name_of(body)
        metadata = {name: body["metadata"].get(name) for name in ("uid", "resourceVersion")}
        is_reason = self.put_write(body)
        with self._lock:
            if key in self._writes and _is_news(body, self._told.get(key)):
                self._told[key] = {"metadata": metadata}
        return is_reason

    def has_heard(self, body: Mapping[str, Any]) -> bool:
        """Whether the watch has told of this object, or of a later state of it."""
        with self._lock:
            told = self._told.get(name_of(body))
        return not _is_news(body, told)

    def remove_write(self, body: Mapping[str, Any]) -> WriteName:
        """Forget a write that is gone, unless another has taken its name since."""
        key = name_of(body)
        with self._lock:
            known = self._writes.get(key)
            if known is not None and known["metadata"]["uid"] == body["metadata"]["uid"]:
                self._let_go(key)
        return key

    def write(self, key: WriteName) -> Mapping[str, Any] | None:
        with self._lock:
            return self._writes.get(key)

    def existing_write(self, key: WriteName) -> Mapping[str, Any]:
        """Return a write as it is known. Raises Conflict if it is gone."""
        if (body := self.write(key)) is None:
            raise Conflict(f"{key.namespace}/{key.name} is gone")
        return body

    def is_behind(self, body: Mapping[str, Any]) -> bool:
        """Whether this object is newer than what is known of it."""
        with self._lock:
            known = self._writes.get(name_of(body))
        return _is_news(body, known)

    def has_room(self, body: Mapping[str, Any]) -> bool:
        """Whether this write is kept, or would be: one that is not is one too many in its namespace."""
        with self._lock:
            key = name_of(body)
            return key in self._writes or self._share(key.namespace).has_room(rank_of(body))

    def make_room(self, namespace: str | None) -> None:
        """Have the writes of a namespace (None: of all) kept again that had no room: others may have gone since."""
        with self._lock:
            for name, share in self._shares.items():
                if namespace in (None, name):
                    share.open()

    def _let_go(self, key: WriteName) -> None:
        self._writes.pop(key, None)
        self._told.pop(key, None)
        self._share(key.namespace).drop(key.name)

    def _share(self, namespace: str) -> Share:
        return self._shares.setdefault(namespace, Share(self.most_of_a_namespace))

    def write_names(self) -> list[WriteName]:
        with self._lock:
            return list(self._writes)

    def put_pod(self, body: Mapping[str, Any]) -> bool:
        """The same for a pod, of which only what is read is kept: its spec is large."""
        kept = {
            "metadata": {name: body["metadata"][name] for name in _POD_METADATA if name in body["metadata"]},
            "status": body.get("status") or {},
        }
        place = (body["metadata"]["namespace"], body["metadata"]["name"])
        with self._lock:
            is_news = _is_news(body, self._pods.get(place)) and body["metadata"]["uid"] not in self._gone
            if is_news:
                self._pods[place] = kept
        return is_news

    def remove_pod(self, body: Mapping[str, Any]) -> None:
        place = (body["metadata"]["namespace"], body["metadata"]["name"])
        with self._lock:
            self._gone.append(body["metadata"]["uid"])
            known = self._pods.get(place)
            if known is not None and known["metadata"]["uid"] == body["metadata"]["uid"]:
                del self._pods[place]

    def pods_at_work(self, namespace: str | None) -> list[Mapping[str, Any]]:
        """Return the pods of a namespace (None: of all) that have not ended, as far as is known."""
        with self._lock:
            pods = list(self._pods.values())
        return [
            pod
            for pod in pods
            if namespace in (None, pod["metadata"]["namespace"]) and pod["status"].get("phase") not in ("Succeeded", "Failed")
        ]

    def ended_pods(self, key: WriteName) -> list[Mapping[str, Any]]:
        """Return the driver pods of a write that have ended, oldest first, as far as is known."""
        with self._lock:
            pods = list(self._pods.values())
        ended = [pod for pod in pods if pod["status"].get("phase") in ("Succeeded", "Failed") and write_of(pod) == key]
        return sorted(ended, key=lambda pod: (pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]))

    def writes_at_work(self, namespace: str) -> set[WriteName]:
        """Return the writes of a namespace that have a driver which has not ended, as far as is known.

        A container beside it may go on, and with it the pod.
        """
        pods = [pod for pod in self.pods_at_work(namespace) if not _has_ended(pod)]
        return {key for pod in pods if (key := write_of(pod)) is not None}

    def count_starved(self, namespace: str, besides: WriteName) -> int:
        """Return how many other writes of a namespace have a driver without executors, as their statuses say.

        Of a write that cannot be reconciled the time stays in its status, and its driver may have ended since.
        """
        with self._lock:
            others = [body for key, body in self._writes.items() if key.namespace == namespace and key != besides]
        statuses = [body.get("status") or {} for body in others]
        return sum(status.get("phase") == "Running" and status.get("starvedSince") is not None for status in statuses)

    def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        with self._lock:
            return self._pods.get((namespace, name))


def name_of(body: Mapping[str, Any]) -> WriteName:
    return WriteName(body["metadata"]["namespace"], body["metadata"]["name"])


def write_of(pod: Mapping[str, Any]) -> WriteName | None:
    """Return the write that a pod belongs to, by its owner; the label alone is anybody's to set."""
    labels = pod["metadata"].get("labels") or {}
    for owner in pod["metadata"].get("ownerReferences") or ():
        if WRITE_LABEL in labels and (owner.get("apiVersion"), owner.get("kind")) == (API_VERSION, KIND):
            return WriteName(pod["metadata"]["namespace"], owner["name"])
    return None


def _wanted(body: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the parts of a write that a person, or another controller, has a say in."""
    metadata = body["metadata"]
    told = ("uid", "generation", "deletionTimestamp", "annotations", "finalizers")
    return tuple(metadata.get(name) for name in told)


def _is_news(body: Mapping[str, Any], known: Mapping[str, Any] | None) -> bool:
    """Whether an object is newer than what is known of it."""
    if known is None or known["metadata"]["uid"] != body["metadata"]["uid"]:
        return True
    ours, theirs = known["metadata"].get("resourceVersion", ""), body["metadata"].get("resourceVersion", "")
    # Versions of one resource can be compared as numbers (KEP-5504). What is no number is taken as it comes.
    return int(theirs) > int(ours) if ours.isdigit() and theirs.isdigit() else ours != theirs


def _has_ended(pod: Mapping[str, Any]) -> bool:
    """Whether the driver's container has; it is never started again."""
    containers = pod["status"].get("containerStatuses") or ()
    return any(one.get("name") == DRIVER_CONTAINER and "terminated" in (one.get("state") or {}) for one in containers)

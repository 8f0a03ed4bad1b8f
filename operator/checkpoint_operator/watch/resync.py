"""List all writes now and then, whatever the watch says; and find out whether the watch still says anything."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from checkpoint_operator.kube.api import KubeApi, Object
from checkpoint_operator.watch.cache import Cache, WriteName, name_of
from checkpoint_operator.watch.work_queue import rank_of
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.quantities import counted, format_size

#: Longer than a watch lasts, and than one that is silent or refused takes to be tried again: by then it would have recovered by
#: itself, if it could.
DEAD_AFTER_S: Final = 420.0

_log = logging.getLogger(__name__)


#: The reason of an event.
NOT_SERVED: Final = "NotServed"


class _Unheard(NamedTuple):
    """What a list has shown, and the watch has not told since then."""

    body: Mapping[str, Any]
    since: float


@dataclass(slots=True)
class Resync:
    """`namespaces`: those that are watched; None for all. `is_forbidden`: whether a namespace's watch is refused for want of
    rights, and still tried.

    A namespace that cannot be listed, or may be listed and not watched, says nothing of the others and is no dead watch: a
    restart would not help. A watch in any other problem is dead, if the list is answered all that time.
    """

    api: KubeApi
    cache: Cache
    wake: Callable[[WriteName], None]
    namespaces: Sequence[str | None]
    is_forbidden: Callable[[str | None], bool] = lambda namespace: False
    clock: Callable[[], float] = time.monotonic
    #: Tells people something about a write: its object, a reason and a message.
    warn: Callable[[Object, str, str], None] = lambda body, reason, message: None
    #: By namespace, how many writes are not served, because the others take all the memory that it may have.
    left_out: dict[str, int] = field(default_factory=dict)
    _first_left_out: dict[str, WriteName] = field(default_factory=dict)
    _unheard: dict[WriteName, _Unheard] = field(default_factory=dict)
    _absent: set[WriteName] = field(default_factory=set)
    _absent_pods: set[str] = field(default_factory=set)
    _unlisted: dict[str | None, str] = field(default_factory=dict)

    def run(self) -> bool:
        """List the writes, wake each; return False if the watch has not told of a change that was listed DEAD_AFTER_S ago.

        What the watch has not told goes into the cache, so that no write waits for a watch. A write, or a driver's pod, that is
        gone without a word of the watch is forgotten.
        """
        unheard: dict[WriteName, _Unheard] = {}
        absent: set[WriteName] = set()
        absent_pods: set[str] = set()
        for namespace in self.namespaces:
            known = {key for key in self.cache.write_names() if namespace in (None, key.namespace)}
            try:
                bodies = sorted(self.api.list_writes(namespace), key=rank_of)
                self.cache.make_room(namespace)
                missing = known - {name_of(body) for body in bodies}
                # A list may be older than what is known: who is absent twice is asked for, and so is who is there unknown.
                for key in missing & self._absent:
                    self._forget_if_gone(key)
                for body in bodies:
                    self._take(body)
                absent_pods |= self._forget_pods(namespace)
            except CheckpointError as error:
                self._tell(namespace, error.message)
                continue
            self._tell(namespace, None)
            absent |= missing
            is_forbidden = self.is_forbidden(namespace)
            self._tell_left_out([body for body in bodies if not self.cache.has_room(body)], namespace)
            for body in bodies:
                if not self.cache.has_room(body):
                    continue
                if not is_forbidden and not self.cache.has_heard(body):
                    unheard[name_of(body)] = self._since_when(body)
                self.wake(name_of(body))
        self._unheard, self._absent, self._absent_pods = unheard, absent, absent_pods
        return not any(self.clock() - since >= DEAD_AFTER_S for _, since in unheard.values())

    def _take(self, body: Mapping[str, Any]) -> None:
        """Put a write into the cache that is newer than what is known, as it is now."""
        if self.cache.is_behind(body) and self.cache.has_room(body):
            key = name_of(body)
            now = self.api.get_write(key.namespace, key.name)
            if now is not None:
                self.cache.put_write(now)

    def _since_when(self, body: Mapping[str, Any]) -> _Unheard:
        """A watch that lags behind a write which changes all the time is not dead: each change that it leaves out counts."""
        before = self._unheard.get(name_of(body))
        if before is None or self.cache.has_heard(before.body) or before.body["metadata"]["uid"] != body["metadata"]["uid"]:
            return _Unheard(body, self.clock())
        return before

    def _forget_if_gone(self, key: WriteName) -> None:
        body = self.cache.write(key)
        if body is not None and self.api.get_write(key.namespace, key.name) is None:
            self.wake(self.cache.remove_write(body))

    def _forget_pods(self, namespace: str | None) -> set[str]:
        """Forget pods that are gone unseen, whose drivers would count as running until a deadline; return who is absent now."""
        known = {pod["metadata"]["uid"]: pod for pod in self.cache.pods_at_work(namespace)}
        absent = known.keys() - {pod["metadata"]["uid"] for pod in (self.api.list_driver_pods(namespace) if known else ())}
        for uid in absent & self._absent_pods:
            metadata = known[uid]["metadata"]
            existing = self.api.get_pod(metadata["namespace"], metadata["name"])
            if existing is None or existing["metadata"]["uid"] != uid:
                self.cache.remove_pod(known[uid])
        return absent

    def _tell_left_out(self, bodies: Sequence[Object], namespace: str | None) -> None:
        """Say at the oldest write of each namespace that has no room, once, that it and the younger ones are not served."""
        left_out: dict[str, list[Object]] = {}
        for body in bodies:
            left_out.setdefault(name_of(body).namespace, []).append(body)
        for where, those in left_out.items():
            if self._first_left_out.get(where) != name_of(those[0]):
                self.warn(those[0], NOT_SERVED, _not_served(len(those), self.cache.most_of_a_namespace))
            self._first_left_out[where] = name_of(those[0])
        for where in {*self.left_out, *left_out}:
            if namespace in (None, where):
                self.left_out[where] = len(left_out.get(where, ()))
                if where not in left_out:
                    self._first_left_out.pop(where, None)

    def _tell(self, namespace: str | None, problem: str | None) -> None:
        """Say in the log what has changed."""
        where = f"of namespace {namespace}" if namespace is not None else "of all namespaces"
        before = self._unlisted.pop(namespace, None)
        if problem is not None:
            self._unlisted[namespace] = problem
            if before is None:
                _log.warning("the writes %s cannot be listed: %s", where, problem)
        elif before is not None:
            _log.warning("the writes %s are listed again", where)


def _not_served(count: int, most_bytes: int) -> str:
    return (
        f"{counted(count, 'write', 'writes')} of the namespace (this one and all that are younger) cannot be served: the older "
        f"ones take all of the {format_size(most_bytes)} of the operator's memory that a namespace may have; delete writes, or "
        "raise writesMemoryPerNamespace and resources.limits.memory in the chart's values"
    )

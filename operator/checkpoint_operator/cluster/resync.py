"""Look at all writes now and then, whatever the watch says; and find out whether the watch still says anything."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from checkpoint_operator.cluster.api import KubeApi
from checkpoint_operator.cluster.cache import Cache, WriteName, name_of
from checkpoint_protocol.errors import CheckpointError

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Resync:
    """`namespaces`: those that are watched; None for all. `is_in_trouble`: whether a namespace's watch is known to be refused.

    A namespace that cannot be listed, or whose watch is refused, says nothing of the others and is no dead watch: a restart
    would not help.
    """

    api: KubeApi
    cache: Cache
    wake: Callable[[WriteName], None]
    namespaces: Sequence[str | None]
    is_in_trouble: Callable[[str | None], bool] = lambda namespace: False
    _behind: dict[WriteName, str] = field(default_factory=dict)
    _absent: set[WriteName] = field(default_factory=set)
    _absent_pods: set[str] = field(default_factory=set)
    _unlisted: dict[str | None, str] = field(default_factory=dict)

    def run(self) -> bool:
        """List the writes, wake each; return False if the watch has not told of a change that the last run had listed already.

        A write, or a driver's pod, that is gone without a word of the watch, which was away when it went, is forgotten.
        """
        behind: dict[WriteName, str] = {}
        absent: set[WriteName] = set()
        absent_pods: set[str] = set()
        is_dead = False
        for namespace in self.namespaces:
            known = {key for key in self.cache.write_names() if namespace in (None, key.namespace)}
            try:
                bodies = self.api.list_writes(namespace)
                missing = known - {name_of(body) for body in bodies}
                # A list may be older than what is known: who is absent twice is asked for.
                for key in missing & self._absent:
                    self._forget_if_gone(key)
                absent_pods |= self._forget_pods(namespace)
            except CheckpointError as error:
                self._tell(namespace, error.message)
                continue
            self._tell(namespace, None)
            absent |= missing
            is_refused = self.is_in_trouble(namespace)
            for body in bodies:
                key, version = name_of(body), body["metadata"]["resourceVersion"]
                if self.cache.is_behind(body) and not is_refused:
                    behind[key] = version
                    is_dead = is_dead or self._behind.get(key) == version
                self.wake(key)
        self._behind, self._absent, self._absent_pods = behind, absent, absent_pods
        return not is_dead

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
            standing = self.api.get_pod(metadata["namespace"], metadata["name"])
            if standing is None or standing["metadata"]["uid"] != uid:
                self.cache.remove_pod(known[uid])
        return absent

    def _tell(self, namespace: str | None, trouble: str | None) -> None:
        """Say in the log what has changed."""
        where = f"of namespace {namespace}" if namespace is not None else "of all namespaces"
        before = self._unlisted.pop(namespace, None)
        if trouble is not None:
            self._unlisted[namespace] = trouble
            if before is None:
                _log.warning("the writes %s cannot be listed: %s", where, trouble)
        elif before is not None:
            _log.warning("the writes %s are listed again", where)

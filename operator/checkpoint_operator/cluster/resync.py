"""Look at all writes now and then, whatever the watch says; and find out whether the watch still says anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from checkpoint_operator.cluster.api import KubeApi
from checkpoint_operator.cluster.cache import Cache, WriteName, name_of


@dataclass(slots=True)
class Resync:
    """`namespaces`: those that are watched; None for all."""

    api: KubeApi
    cache: Cache
    wake: Callable[[WriteName], None]
    namespaces: Sequence[str | None]
    _behind: dict[WriteName, str] = field(default_factory=dict)

    def run(self) -> bool:
        """List the writes, wake each; return False if the watch has not told of a change that the last run had listed already."""
        behind: dict[WriteName, str] = {}
        is_dead = False
        for namespace in self.namespaces:
            for body in self.api.list_writes(namespace):
                key, version = name_of(body), body["metadata"]["resourceVersion"]
                if self.cache.is_behind(body):
                    behind[key] = version
                    is_dead = is_dead or self._behind.get(key) == version
                self.wake(key)
        self._behind = behind
        return not is_dead

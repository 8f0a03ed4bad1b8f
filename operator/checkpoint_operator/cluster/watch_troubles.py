"""Which watches do not get through to the API server, for the log, the metrics, and the judgement whether a watch is dead."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

_log = logging.getLogger(__name__)


class Watched(NamedTuple):
    """What a request is about. `namespace`: None for all, "" for what is no watch. `kind`: the plural, such as "pods"."""

    namespace: str | None
    kind: str


@dataclass(slots=True)
class WatchTroubles:
    """Thread-safe. Says each trouble in the log when it comes, when it changes and when it is over; not at each try between."""

    _troubles: dict[Watched, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, path: str, trouble: str | None) -> None:
        """Take what has become of a request at this path of the API server. None: it was granted."""
        watched = _watched(path)
        with self._lock:
            before = self._troubles.pop(watched, None)
            if trouble is not None:
                self._troubles[watched] = trouble
        if trouble == before:
            return
        where = f"in namespace {watched.namespace}" if watched.namespace else "in the cluster"
        if trouble is None:
            _log.warning("%s %s are watched again", watched.kind, where)
        else:
            way_out = "; bind the operator's role there again" if trouble.startswith("403") else ""
            _log.error("%s %s cannot be watched: %s%s; it is tried until it can", watched.kind, where, trouble, way_out)

    def now(self) -> Mapping[Watched, str]:
        """Return each watch that does not get through, and why."""
        with self._lock:
            return dict(self._troubles)

    def has(self, namespace: str | None) -> bool:
        """Whether a watch of this namespace (None: of all) does not get through."""
        with self._lock:
            return any(watched.namespace == namespace for watched in self._troubles)


def _watched(path: str) -> Watched:
    """Of /api[s/<group>]/<version>[/namespaces/<namespace>]/<plural>; any other path is one of the discovery, and no watch."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    match rest:
        case ["namespaces", namespace, kind]:
            return Watched(namespace, kind)
        case [kind]:
            return Watched(None, kind)
    return Watched("", path)

"""Which watches do not get through to the API server, for the log, the metrics, and the judgement whether a watch is dead."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_log = logging.getLogger(__name__)
#: A watch that is refused is tried again within half a minute, and a request without an answer is given up after a minute.
_TRIED_WITHIN_S: Final = 120.0
#: What passes by itself within a moment is not told: of a kind that was installed just now, the first watch may be put off.
_LASTS_S: Final = 3.0
_FORBIDDEN, _NOT_FOUND = "403", "404"
_WHAT_NEXT: Final = {
    _FORBIDDEN: "bind the operator's role there again; it is tried until it can",
    _NOT_FOUND: "the cluster does not know the kind",
}


class _Problem(NamedTuple):
    """`told`: the part that stands in the log, None while nothing does."""

    why: str
    since: float
    told: str | None


class Watched(NamedTuple):
    """What a request is about. `namespace`: None for all, "" for what is no watch. `kind`: the plural, such as "pods"."""

    namespace: str | None
    kind: str


@dataclass(slots=True)
class WatchErrors:
    """Thread-safe. Says each problem that lasts in the log once, when it changes and when it is over; not at each try between."""

    clock: Callable[[], float] = time.monotonic
    _errors: dict[Watched, _Problem] = field(default_factory=dict)
    _tried_at: dict[Watched, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, path: str, problem: str | None) -> None:
        """Take what has become of a request at this path of the API server. None: it was granted."""
        about = watched(path)
        with self._lock:
            now = self._tried_at[about] = self.clock()
            before = self._errors.pop(about, None)
            was_told = before.told if before is not None else None
            if problem is not None:
                since = before.since if before is not None else now
                is_told = was_told != problem and now - since >= _LASTS_S
                self._errors[about] = _Problem(problem, since, problem if is_told else was_told)
        where = f"in namespace {about.namespace}" if about.namespace else "in the cluster"
        if problem is None:
            if was_told is not None:
                _log.warning("%s %s are watched again", about.kind, where)
        elif is_told:
            what_next = _WHAT_NEXT.get(problem[:3], "it is tried until it can")
            _log.error("%s %s cannot be watched: %s; %s", about.kind, where, problem, what_next)

    def now(self) -> Mapping[Watched, str]:
        """Return each watch that does not get through, and why."""
        with self._lock:
            return {watched: problem.why for watched, problem in self._errors.items()}

    def is_forbidden(self, namespace: str | None, kind: str) -> bool:
        """Whether this watch is refused for want of rights, and still tried: a restart would not help.

        Of any other problem that lasts while the API server answers others, and of a watch that nobody tries any more, it may.
        """
        watched = Watched(namespace, kind)
        with self._lock:
            is_tried = self.clock() - self._tried_at.get(watched, float("-inf")) < _TRIED_WITHIN_S
            problem = self._errors.get(watched)
            return is_tried and problem is not None and problem.why.startswith(_FORBIDDEN)

    def is_unknown(self, kind: str) -> bool:
        """Whether the API server has answered a watch of this kind that there is no such kind."""
        with self._lock:
            return any(watched.kind == kind and problem.why.startswith(_NOT_FOUND) for watched, problem in self._errors.items())


def watched(path: str) -> Watched:
    """Of /api[s/<group>]/<version>[/namespaces/<namespace>]/<plural>; any other path is one of the discovery, and no watch."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    match rest:
        case ["namespaces", namespace, kind]:
            return Watched(namespace, kind)
        case [kind]:
            return Watched(None, kind)
    return Watched("", path)

"""Who waits for a turn, the earliest first. Each asks again within a minute and a half; one that does not is forgotten."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from checkpoint_operator.watch.cache import WriteName

_FORGOTTEN_AFTER_S: Final = 120.0


@dataclass(slots=True)
class Waiting:
    """Not thread-safe: used under the lock of the turns."""

    clock: Callable[[], float]
    _since: dict[WriteName, float] = field(default_factory=dict)
    _last_request: dict[WriteName, float] = field(default_factory=dict)

    def add(self, key: WriteName) -> None:
        """Note a request. A later one of the same write does not lose its place."""
        self._forget()
        self._since.setdefault(key, self.clock())
        self._last_request[key] = self.clock()

    def remove(self, key: WriteName) -> None:
        del self._since[key], self._last_request[key]

    def since(self) -> Mapping[WriteName, float]:
        """Return when each write that waits has asked first, the earliest first."""
        self._forget()
        return self._since

    def _forget(self) -> None:
        now = self.clock()
        for key in [key for key, at in self._last_request.items() if now - at >= _FORGOTTEN_AFTER_S]:
            self.remove(key)

"""Which writes of a namespace are kept where all of them would take too much memory: the oldest that have room together.

Whoever makes more, or larger ones, displaces nobody's but their own namespace's, and of these no older one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

#: Of the writes of one namespace, as they are in memory: of usual ones, with their statuses, more than a thousand.
MOST_OF_A_NAMESPACE: Final = 32 << 20


class Rank(NamedTuple):
    """Less is earlier. What is being deleted comes before all others, so that its object can go."""

    stays: bool
    created: str
    name: str


def rank_of(body: Mapping[str, Any]) -> Rank:
    metadata = body["metadata"]
    return Rank(metadata.get("deletionTimestamp") is None, metadata.get("creationTimestamp") or "", metadata["name"])


@dataclass(slots=True)
class Share:
    """What is kept of one namespace: by name, its rank and weight. The same whatever the order in which writes become known."""

    most: int
    held: dict[str, tuple[Rank, int]] = field(default_factory=dict)
    total: int = 0
    #: The first that had no room: nor has any after it, until `open` says that there may be room again.
    _first_out: Rank | None = None

    def has_room(self, rank: Rank) -> bool:
        return self._first_out is None or rank < self._first_out

    def open(self) -> None:
        self._first_out = None

    def put(self, rank: Rank, weight: int) -> list[str]:
        """Hold a write that `has_room`; return the names of those that have to go for it, itself perhaps one of them."""
        self.drop(rank.name)
        self.held[rank.name] = (rank, weight)
        self.total += weight
        gone = []
        while self.total > self.most:
            last, _ = max(self.held.values())
            self.drop(last.name)
            self._first_out = last
            gone.append(last.name)
        return gone

    def drop(self, name: str) -> None:
        _, weight = self.held.pop(name, (None, 0))
        self.total -= weight

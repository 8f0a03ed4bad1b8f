"""What a listing shows of an attempt's seals. A listing is no snapshot: what it does not show may be there."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Final

#: Bits of a seal's key that its link has: names have ten digits at the most.
_LINK_BITS: Final = 34


@dataclass(slots=True)
class SealListing:
    """What a listing shows of an attempt's seals: of each task and link the size and the etag; and the bundles that are there.

    There may be a million: a seal is one entry of one dict, about 200 bytes.
    """

    bundles: list[int] = field(default_factory=list)
    #: By task and link in one number, the size and the etag in one text.
    _seals: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of objects: of seals and of bundles."""
        return len(self._seals) + len(self.bundles)

    def add(self, task: int, link: int, size_bytes: int, etag: str | None) -> None:
        self._seals[_key(task, link)] = f"{size_bytes} {etag or ''}"

    def get(self, task: int, link: int) -> tuple[int, str | None] | None:
        """Return size and etag of a seal, or None if it is not shown."""
        if (stored := self._seals.get(_key(task, link))) is None:
            return None
        size_bytes, _, etag = stored.partition(" ")
        return int(size_bytes), etag or None

    def lengths(self) -> dict[int, int]:
        """Return, for each task with seals, how many links are shown without a gap."""
        tasks = dict.fromkeys(key >> _LINK_BITS for key in self._seals)
        return {task: next(link for link in count() if _key(task, link) not in self._seals) for task in tasks}


def _key(task: int, link: int) -> int:
    return task << _LINK_BITS | link

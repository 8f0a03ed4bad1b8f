"""What a listing shows of an attempt's seals. A listing is no snapshot: what it does not show may be there."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class SealListing:
    """What a listing shows of an attempt's seals: of each task and link the size and the etag; and the bundles that are there."""

    bundles: list[int] = field(default_factory=list)
    _links: dict[int, dict[int, tuple[int, str | None]]] = field(default_factory=dict)

    def add(self, task: int, link: int, size_bytes: int, etag: str | None) -> None:
        self._links.setdefault(task, {})[link] = (size_bytes, etag)

    def get(self, task: int, link: int) -> tuple[int, str | None] | None:
        """Return size and etag of a seal, or None if it is not shown."""
        return self._links.get(task, {}).get(link)

    def lengths(self) -> dict[int, int]:
        """Return, for each task with seals, how many links are shown without a gap."""
        return {task: next(link for link in range(len(links) + 1) if link not in links) for task, links in self._links.items()}

"""A checkpoint store that counts its requests, for the metrics."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from checkpoint_protocol.store.object_store import ObjectStore, StoredObject


@dataclass(slots=True)
class StoreCounts:
    """Requests of all stores of this process, by kind."""

    _counts: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, request: str) -> None:
        with self._lock:
            self._counts[request] += 1

    def by_request(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)


@dataclass(frozen=True, slots=True)
class CountingStore:
    """Implements ObjectStore over another."""

    inner: ObjectStore
    counts: StoreCounts

    @property
    def uri(self) -> str:
        return self.inner.uri

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.counts.add("put")
        return self.inner.put_if_absent(path, data)

    def get(self, path: str, most_bytes: int) -> bytes | None:
        self.counts.add("get")
        return self.inner.get(path, most_bytes)

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        self.counts.add("list")
        return self.inner.list(folder, borders)

    def delete(self, paths: Iterable[str]) -> None:
        self.counts.add("delete")
        self.inner.delete(paths)

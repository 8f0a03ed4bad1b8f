"""Stores in memory: an honest one, and wrappers that each show one thing that real stores do, or must not do."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.store.object_store import ObjectStore, StoredObject, refuse_larger


@dataclass
class MemoryStore:
    """The store port over a dict. Keeps the contract of tests/contract/test_object_store.py."""

    uri: str = "memory://checkpoints"
    objects: dict[str, bytes] = field(default_factory=dict)
    #: When objects are put, by the clock of the store.
    now: datetime.datetime = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    _modified: dict[str, datetime.datetime] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with self._lock:
            if path in self.objects:
                return False
            self.objects[path] = data
            self._modified[path] = self.now
            return True

    def get(self, path: str, most_bytes: int) -> bytes | None:
        with self._lock:
            found = self.objects.get(path)
        if found is not None:
            refuse_larger(len(found), most_bytes, f"{self.uri}/{path}")
        return found

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        with self._lock:
            found = [
                StoredObject(path, len(data), modified=self._modified.get(path, self.now))
                for path, data in self.objects.items()
                if path.startswith(folder)
            ]
        yield from found

    def delete(self, paths: Iterable[str]) -> None:
        with self._lock:
            for path in paths:
                self.objects.pop(path, None)


@dataclass
class Wrapped:
    """A store that passes everything on; the wrappers below change one answer each."""

    inner: ObjectStore = field(default_factory=MemoryStore)

    @property
    def uri(self) -> str:
        return self.inner.uri

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self.inner.put_if_absent(path, data)

    def get(self, path: str, most_bytes: int) -> bytes | None:
        return self.inner.get(path, most_bytes)

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        return self.inner.list(folder, borders)

    def delete(self, paths: Iterable[str]) -> None:
        self.inner.delete(paths)


@dataclass
class ListHides(Wrapped):
    """A listing is no snapshot: it may miss objects that a get finds."""

    hidden: set[str] = field(default_factory=set)

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        return (stored for stored in self.inner.list(folder, borders) if stored.path not in self.hidden)


@dataclass
class ListInvents(Wrapped):
    """Shows objects that are not there (any more)."""

    invented: tuple[str, ...] = ()

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        yield from self.inner.list(folder, borders)
        yield from (StoredObject(path, 1) for path in self.invented if path.startswith(folder))


@dataclass
class RetriesItsPuts(Wrapped):
    """A client that sends a put again after a lost answer: so many puts that win are answered "exists"."""

    times: int = 1_000_000

    def put_if_absent(self, path: str, data: bytes) -> bool:
        made = self.inner.put_if_absent(path, data)
        if made and self.times > 0:
            self.times -= 1
            return self.inner.put_if_absent(path, data)
        return made


@dataclass
class LosesAnswers(Wrapped):
    """The next puts are carried out, and their answers are lost."""

    lost: int = 1

    def put_if_absent(self, path: str, data: bytes) -> bool:
        made = self.inner.put_if_absent(path, data)
        if self.lost > 0:
            self.lost -= 1
            raise Retryable(reasons.STORE_UNAVAILABLE, f"no answer for {path}")
        return made


@dataclass
class SaysExists(Wrapped):
    """Another's put is in flight: for a while it is answered "exists", and nothing is there. `lands`: what it brings then."""

    times: int = 1_000_000
    lands: bytes | None = None
    refused: int = 0

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if self.refused < self.times:
            self.refused += 1
            if self.refused == self.times and self.lands is not None:
                self.inner.put_if_absent(path, self.lands)
            return False
        return self.inner.put_if_absent(path, data)


@dataclass
class IgnoresTheCondition(Wrapped):
    """A store that takes every put: nothing here can be safe on it."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.inner.delete([path])
        return self.inner.put_if_absent(path, data)


@dataclass
class SaysMade(Wrapped):
    """Keeps the first object, and tells everybody that theirs was taken: each would go on as the winner."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.inner.put_if_absent(path, data)
        return True


@dataclass
class IgnoresTheConditionAndSaysNo(Wrapped):
    """Worse: says that one exists, and has replaced it."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        existed = self.inner.get(path, len(data)) is not None
        self.inner.delete([path])
        self.inner.put_if_absent(path, data)
        return not existed

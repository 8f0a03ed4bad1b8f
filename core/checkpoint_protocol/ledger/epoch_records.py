"""Records of one epoch, put and read by their paths, and what a listing shows of its seals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, TypeVar

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.records import Record, StoredPart, decode, encode
from checkpoint_protocol.store.layout import EpochLayout
from checkpoint_protocol.store.macs import without_mac
from checkpoint_protocol.store.memory import reading
from checkpoint_protocol.store.object_store import ObjectStore
from checkpoint_protocol.store.parallel import Mapper, streamed
from checkpoint_protocol.store.parts import InputInParts, digest_of
from checkpoint_protocol.store.put_once import put_once, read

_R = TypeVar("_R", bound=Record)
_Item = TypeVar("_Item")
_First = TypeVar("_First")
_Second = TypeVar("_Second")

#: A part of a large record takes some megabytes.
_PARTS_AT_ONCE: Final = 4
#: So much of what is read twice, to close an attempt and to gather its results, is kept from the one to the other.
_MOST_KEPT_BYTES: Final = 4 << 20


@dataclass(slots=True)
class EpochRecords:
    """What all families of records share: the store, the paths, and what was read or put before."""

    store: ObjectStore
    at: EpochLayout
    pause: Callable[[float], None]
    map_all: Mapper
    part_bytes: int
    known: dict[str, Record | InputInParts] = field(default_factory=dict)
    _kept: dict[str, bytes] = field(default_factory=dict)
    _kept_bytes: int = 0

    def get(self, path: str, most_bytes: int, *, keeps: bool = False) -> bytes | None:
        """Return the bytes of an object that never changes. `keeps`: until they are asked for again, unless that is too much."""
        data = self._kept.pop(path, None)
        if data is not None:
            self._kept_bytes -= len(data)
        else:
            data = self.store.get(path, most_bytes)
        if keeps and data is not None and self._kept_bytes + len(data) <= _MOST_KEPT_BYTES:
            self._kept[path] = data
            self._kept_bytes += len(data)
        return data

    def let_go(self) -> None:
        """Keep nothing more of what `get` has kept."""
        self._kept.clear()
        self._kept_bytes = 0

    def where(self, path: str) -> str:
        """Name an object, for messages."""
        return f"{self.store.uri}/{path}"

    def put(self, path: str, record: _R) -> _R:
        """Put a record unless one is there; return the one that is there then."""
        found = put_once(self.store, path, record, self.pause)
        self.known[path] = found
        return found

    def read(self, path: str, model: type[_R]) -> _R | None:
        known = self.known.get(path)
        if isinstance(known, model):
            return known
        with reading() as held:
            found = read(self.store, path, model)
        if found is not None and held.is_kept:
            self.known[path] = found
        return found

    def read_both(self, first: Callable[[], _First], second: Callable[[], _Second]) -> tuple[_First, _Second]:
        """Ask two things side by side: each is a round trip to the store."""
        found: list[Any] = self.map_all(lambda question: question(), (first, second))
        return found[0], found[1]

    # --- large records ------------------------------------------------------------------------------------------------------

    def put_parts(self, path_of: Callable[[str], str], parts: Sequence[tuple[Record, int]]) -> tuple[StoredPart, ...]:
        """Store parts of a record, before the record that names them. Their names are random: nobody else puts there."""

        def put(numbered: tuple[Record, int]) -> StoredPart:
            part, count = numbered
            put_once(self.store, path_of(part.token), part, self.pause)
            return StoredPart(token=part.token, count=count, digest=digest_of(encode(part)))

        return tuple(streamed(self.map_all, put, parts, _PARTS_AT_ONCE))

    def read_part(
        self, path: str, part: StoredPart, model: type[_R], items_of: Callable[[_R], tuple[_Item, ...]]
    ) -> tuple[_Item, ...]:
        """Return what a part holds. Corrupt if it is gone, or is not as it was put."""
        with reading():
            data = self.store.get(path, model.most_bytes)
            if data is None:
                raise Corrupt(reasons.RECORD_UNREADABLE, f"{self.where(path)} is gone, though a record names it as its part")
            if digest_of(without_mac(data)) != part.digest:
                raise Corrupt(reasons.RECORD_UNREADABLE, f"{self.where(path)} is not what was put: its bytes have another digest")
            items = items_of(decode(model, data, self.where(path)))
        if len(items) != part.count:
            raise Corrupt(reasons.RECORD_UNREADABLE, f"{self.where(path)} has {len(items)} entries; its record says {part.count}")
        return items


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

"""Records of one epoch, put and read by their paths: each is remembered, and a large one is stored in parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class EpochRecords:
    """What all families of records share: the store, the paths, and what was read or put before."""

    store: ObjectStore
    at: EpochLayout
    pause: Callable[[float], None]
    map_all: Mapper
    part_bytes: int
    known: dict[str, Record | InputInParts] = field(default_factory=dict)

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

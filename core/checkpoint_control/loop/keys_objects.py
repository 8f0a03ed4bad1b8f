"""Many small keys objects put together, for the index of a write: a task of the next epoch reads each of them with a request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from checkpoint_formats.keys_objects import check_sealed, put_together
from checkpoint_protocol.ledger.epoch_index import CompactKeys
from checkpoint_protocol.records import KeysObject
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.memory import reading
from checkpoint_protocol.store.object_store import ObjectStore
from checkpoint_protocol.store.parts import digest_of
from checkpoint_protocol.store.put_once import put_object

#: An object of more bytes, or keys, stays as it is.
_SMALL_BYTES: Final = 4 << 20
_SMALL_ROWS: Final = 1 << 18
#: So many small ones stay beside one another. What one index puts together is bounded; the next goes on.
_MOST_SMALL: Final = 8
_AT_ONCE: Final = 1_000


def compacting(store: ObjectStore, uid: str) -> CompactKeys:
    """Return what puts small objects together in this store. Whoever does it with the same objects puts the same."""

    def compact(objects: Sequence[KeysObject]) -> Sequence[KeysObject]:
        kept = list(objects)
        for quarantined in (False, True):
            small = [item for item in kept if item.quarantined is quarantined and _is_small(item)]
            if len(small) > _MOST_SMALL:
                replaced = small[:_AT_ONCE]
                gone = {item.path for item in replaced}
                kept = [*(item for item in kept if item.path not in gone), *_put_together(store, uid, replaced)]
        return kept

    return compact


def _is_small(item: KeysObject) -> bool:
    return item.size_bytes < _SMALL_BYTES and item.rows < _SMALL_ROWS


def _put_together(store: ObjectStore, uid: str, objects: Sequence[KeysObject]) -> list[KeysObject]:
    """Put the keys of these objects into as few as are not small any more, reading one at a time."""
    made: list[KeysObject] = []
    for group in _groups(objects):
        held: list[bytes] = []
        for item in group:
            with reading():
                held.append(check_sealed(item, store.get(item.path, item.size_bytes), f"{store.uri}/{item.path}"))
        made.append(_put(store, uid, group, held))
    return made


def _groups(objects: Sequence[KeysObject]) -> Iterator[list[KeysObject]]:
    """Give the objects in groups, each of which is not small any more but for the last one."""
    group: list[KeysObject] = []
    rows = size_bytes = 0
    for item in objects:
        group.append(item)
        rows, size_bytes = rows + item.rows, size_bytes + item.size_bytes
        if rows >= _SMALL_ROWS or size_bytes >= _SMALL_BYTES:
            yield group
            group, rows, size_bytes = [], 0, 0
    if group:
        yield group


def _put(store: ObjectStore, uid: str, objects: Sequence[KeysObject], held: Sequence[bytes]) -> KeysObject:
    data = put_together(held)
    digest = digest_of(data)
    path = layout.index_keys(uid, digest)
    put_object(store, path, data)
    return KeysObject(
        path=path,
        rows=sum(item.rows for item in objects),
        size_bytes=len(data),
        values_bytes=sum(item.values_bytes for item in objects),
        quarantined=objects[0].quarantined,
        digest=digest,
    )

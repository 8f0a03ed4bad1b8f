"""The one rule of the store: the first put of an object stays, and whoever comes later is told which one that is.

The one place that tries a put again. What became of a put is never guessed: where the store does not say that this call made the
object, it is read back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.records import MAX_RECORD_BYTES, Record, decode, decode_one_of, encode, most_bytes_of, refuse_too_large
from checkpoint_protocol.store.memory import reading
from checkpoint_protocol.store.object_store import ObjectStore

_R = TypeVar("_R", bound=Record)

#: How often a put is sent again when the store says "exists" and nothing is there (a put of somebody else's is in flight).
_PUT_TRIES: Final = 8
_PUT_PAUSE_S: Final = 0.25


def read(store: ObjectStore, path: str, model: type[_R]) -> _R | None:
    """Return a record, or None if there surely is none. Corrupt if it cannot be read."""
    with reading():
        data = store.get(path, model.most_bytes)
        return None if data is None else decode(model, data, f"{store.uri}/{path}")


def read_one_of(store: ObjectStore, path: str, models: Sequence[type[_R]]) -> _R | None:
    """Return the record under a name which may hold one of several kinds."""
    with reading():
        data = store.get(path, most_bytes_of(models))
        return None if data is None else decode_one_of(models, data, f"{store.uri}/{path}")


def put_object(
    store: ObjectStore,
    path: str,
    data: bytes,
    pause: Callable[[float], None] = time.sleep,
    most_bytes: int = MAX_RECORD_BYTES,
) -> bytes:
    """Put an object unless one is there, and return the bytes that are there then: the given ones, or those of the first put.

    `most_bytes`: what may be there. Corrupt if there is something larger.

    Idempotent: where an earlier put of the same bytes had landed and its answer was lost, they are read back. Raises Retryable
    when the store does not answer, or says that the object exists and goes on returning none; the put may then still land,
    and the same call tells.
    """
    for _ in range(_PUT_TRIES):
        if store.put_if_absent(path, data):
            return data
        found = store.get(path, most_bytes)
        if found is not None:
            return found
        pause(_PUT_PAUSE_S)
    raise Retryable(
        reasons.STORE_UNAVAILABLE,
        f"{store.uri}/{path}: the store says that the object exists, and returns none; it may be held by an unfinished put",
    )


def put_once(
    store: ObjectStore,
    path: str,
    record: _R,
    pause: Callable[[float], None] = time.sleep,
    kinds: Sequence[type[_R]] = (),
) -> _R:
    """Put a record unless one is there, and return the one that is there then: ours if the tokens are equal.

    `kinds`: what may be there, if not only records of this kind. Idempotent, and raises, as `put_object`; and
    NeedsChange(RecordTooLarge), before anything is put, if nobody could read it.
    """
    data = encode(record)
    refuse_too_large(record, data, f"{store.uri}/{path}")
    models = kinds or (type(record),)
    with reading():
        found = put_object(store, path, data, pause, most_bytes_of(models))
        return record if found is data else decode_one_of(models, found, f"{store.uri}/{path}")

"""The one rule of records: the first put stands, and whoever comes later is told which one that is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.records import Record, decode, decode_one_of, encode, refuse_too_large
from checkpoint_protocol.store import ObjectStore

_R = TypeVar("_R", bound=Record)

#: How often a put is sent again when the store says "exists" and nothing is there (a put of somebody else's is in flight).
PUT_TRIES: Final = 8
PUT_PAUSE_S: Final = 0.25


def read(store: ObjectStore, path: str, model: type[_R]) -> _R | None:
    """Return a record, or None if there surely is none. Corrupt if it cannot be read."""
    data = store.get(path)
    return None if data is None else decode(model, data, f"{store.uri}/{path}")


def read_one_of(store: ObjectStore, path: str, models: Sequence[type[_R]]) -> _R | None:
    """Return the record that stands under a name which may hold one of several kinds."""
    data = store.get(path)
    return None if data is None else decode_one_of(models, data, f"{store.uri}/{path}")


def put_once(
    store: ObjectStore,
    path: str,
    record: _R,
    pause: Callable[[float], None] = time.sleep,
    kinds: Sequence[type[_R]] = (),
) -> _R:
    """Put a record unless one is there, and return the one that stands: ours if the tokens are equal. `kinds` may stand there.

    Idempotent: putting the same record again returns it. Raises Retryable when the store does not answer; the put may then
    still land, and the same call with the same record tells. NeedsChange(RecordTooLarge), before anything is put, if nobody could
    read it.
    """
    data = encode(record)
    refuse_too_large(record, data, f"{store.uri}/{path}")
    for _ in range(PUT_TRIES):
        if store.put_if_absent(path, data):
            return record
        standing = read_one_of(store, path, kinds or (type(record),))
        if standing is not None:
            return standing
        pause(PUT_PAUSE_S)
    raise Retryable(
        reasons.STORE_UNAVAILABLE,
        f"{store.uri}/{path}: the store says that the object exists, and returns none; it may be held by an unfinished put",
    )

"""The records of writes: which uid a name means, who a write is, whether it was deleted, which epochs it has."""

from __future__ import annotations

import time
from collections.abc import Callable

from checkpoint_protocol import layout
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.records import DeletedRecord, NameRecord, WriteRecord
from checkpoint_protocol.standing import put_once, read
from checkpoint_protocol.store import ObjectStore


def name_write(store: ObjectStore, namespace: str, name: str, uid: str) -> str:
    """Return the uid that this name means from now on: the given one, unless the name has one already."""
    return put_once(store, layout.name_path(namespace, name), NameRecord(token=new_token(), uid=uid)).uid


def look_up_name(store: ObjectStore, namespace: str, name: str) -> str | None:
    """Return the uid of a name, or None."""
    record = read(store, layout.name_path(namespace, name), NameRecord)
    return record.uid if record else None


def read_write(store: ObjectStore, uid: str) -> WriteRecord | None:
    return read(store, layout.write_path(uid), WriteRecord)


def put_write(store: ObjectStore, record: WriteRecord) -> WriteRecord:
    return put_once(store, layout.write_path(record.uid), record)


def put_deleted(store: ObjectStore, uid: str, pause: Callable[[float], None] = time.sleep) -> DeletedRecord:
    """Note that a write is deleted; from then on no new claim of it leads to a commit.

    Idempotent. Claims that were put before must be looked for afterwards, by `Ledger.read_claim`: see `Ledger.is_deleted`.
    """
    return put_once(store, layout.deleted_path(uid), DeletedRecord(token=new_token(), uid=uid), pause)


def read_deleted(store: ObjectStore, uid: str) -> DeletedRecord | None:
    """Return the note that a write is deleted, or None."""
    return read(store, layout.deleted_path(uid), DeletedRecord)


def list_epochs(store: ObjectStore, uid: str) -> list[int]:
    """Return the numbers of the epochs that have any control record, ascending."""
    folder = layout.control_folder(uid)
    return sorted({epoch for stored in store.list(folder) if (epoch := layout.epoch_of(stored.path, folder)) is not None})

"""The records of writes: which uid a name means, who a write is, whether it was deleted, which epochs it has.

A name's `scope` is its namespace, on one machine; in a cluster it is that of `layout.scope_in_cluster`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.records import ClaimRecord, DeletedRecord, LaunchRecord, NameRecord, WriteRecord
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.layout import EpochLayout
from checkpoint_protocol.store.object_listing import NotListed, shown
from checkpoint_protocol.store.object_store import ObjectStore
from checkpoint_protocol.store.put_once import put_once, read


def name_write(store: ObjectStore, scope: str, name: str, uid: str) -> str:
    """Return the uid that this name means from now on: the given one, unless the name has one already."""
    first = put_once(store, layout.name_path(scope, name), NameRecord(token=new_token(), uid=uid))
    return _latest(store, scope, name, first)[0]


def look_up_name(store: ObjectStore, scope: str, name: str) -> str | None:
    """Return the uid of a name, or None."""
    first = read(store, layout.name_path(scope, name), NameRecord)
    return _latest(store, scope, name, first)[0] if first else None


def rename(store: ObjectStore, scope: str, name: str, uid: str, new_uid: str) -> str:
    """Have a name mean another uid than this one from now on; return which.

    No record is changed or removed for that: the name gets one more. So it is idempotent, and whoever was slow, and would do it
    once more, finds that the name does not mean that uid any more.
    """
    first = read(store, layout.name_path(scope, name), NameRecord)
    if first is None:
        return name_write(store, scope, name, new_uid)
    known, times = _latest(store, scope, name, first)
    if known != uid:
        return known
    return put_once(store, layout.name_path(scope, name, times + 1), NameRecord(token=new_token(), uid=new_uid)).uid


def _latest(store: ObjectStore, scope: str, name: str, first: NameRecord) -> tuple[str, int]:
    """Return the uid that a name means now, and how often that was changed. A listing is only where the search begins."""

    def meant(times: int) -> str | None:
        record = read(store, layout.name_path(scope, name, times), NameRecord)
        return record.uid if record else None

    if meant(1) is None:
        return first.uid, 0
    folder = layout.names_folder(scope, name)
    times = max((layout.number_of(stored.path, folder) or 1 for stored in shown(store.list(folder))), default=1)
    uid = meant(times)
    if uid is None:
        where = layout.name_path(scope, name, times)
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{store.uri}/{where} is gone: records of names must not be removed")
    while (later := meant(times + 1)) is not None:
        uid, times = later, times + 1
    return uid, times


def read_write(store: ObjectStore, uid: str) -> WriteRecord | None:
    return read(store, layout.write_path(uid), WriteRecord)


def put_write(store: ObjectStore, record: WriteRecord) -> WriteRecord:
    return put_once(store, layout.write_path(record.uid), record)


def put_deleted(store: ObjectStore, uid: str, pause: Callable[[float], None] = time.sleep) -> DeletedRecord:
    """Note that a write is deleted; from then on no new claim of it leads to a commit.

    Idempotent. Claims that were put before must be looked for afterwards: see `Commits.is_deleted`.
    """
    return put_once(store, layout.deleted_path(uid), DeletedRecord(token=new_token(), uid=uid), pause)


def read_deleted(store: ObjectStore, uid: str) -> DeletedRecord | None:
    """Return the note that a write is deleted, or None."""
    return read(store, layout.deleted_path(uid), DeletedRecord)


def last_epoch(store: ObjectStore, uid: str) -> int:
    """Return the number of the epoch that was begun last, which has any control record; 0 if none was.

    Epochs have no gaps, so an index tells where to look on from, and the epochs before it are not listed. A listing is only
    where a search begins.
    """
    folder, indexes = layout.control_folder(uid), layout.index_folder(uid)
    if indexed := max((layout.number_of(stored.path, indexes) or 0 for stored in shown(store.list(indexes))), default=0):
        return _last_after(store, uid, indexed)
    last = 0
    try:
        for stored in store.list(folder):
            last = max(last, layout.epoch_of(stored.path, folder) or 0)
    except NotListed:
        return _last_after(store, uid, last)
    return last


def _last_after(store: ObjectStore, uid: str, epoch: int) -> int:
    while _is_begun(store, EpochLayout(EpochKey(uid, epoch + 1))):
        epoch += 1
    return epoch


def _is_begun(store: ObjectStore, at: EpochLayout) -> bool:
    try:
        return any(True for _ in islice(store.list(f"{at.control}/"), 1))
    except NotListed:
        return read(store, at.launch(1), LaunchRecord) is not None or read(store, at.claim(0), ClaimRecord) is not None


def list_stages(store: ObjectStore, key: EpochKey) -> list[EpochKey]:
    """Return the stages of an epoch that have any control record, by name."""
    folder = EpochLayout(key).stages
    names = {name for stored in shown(store.list(folder)) if (name := layout.stage_of(stored.path, folder)) is not None}
    return [key.of_stage(name) for name in sorted(names)]

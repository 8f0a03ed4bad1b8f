"""Forgetting a write by its name: deletion on one machine, after which the name means another uid, and a run begins anew.

    the runner's lock of this machine            nobody is at work here; on another machine only what is recorded can tell
    deletion (`deletion.py`)                     nothing of the uid can land any more, and what it has staged is gone
    names/<namespace>/<name>/<k>.json            the name means a new uid

The name comes last: until then it leads to the old uid, so that a forgetting that was cut off is found by the next one, and a
run says so. What is committed stays in its table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from checkpoint_commit.ports import Sink
from checkpoint_control.writes.deletion import Deleted, Kept, delete_write
from checkpoint_control.writes.registration import sink_to_end
from checkpoint_local.lock import RunnerLock
from checkpoint_local.runner import machine_id, state_folder
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import EpochKey, new_uid
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink as SinkSpec
from checkpoint_protocol.manifest.spec import Metadata
from checkpoint_protocol.store.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The name means `new_uid` from now on, of which nothing is known; `removed` is what went of the old one."""

    uid: str
    new_uid: str
    removed: Deleted


def forget(
    store: ObjectStore, metadata: Metadata, uid: str, open_sink: Callable[[SinkSpec], Sink], default: SinkSpec, *, force: bool
) -> Forgotten | Kept:
    """End the write of this uid, and have its name mean another. Idempotent: a call that was cut off is ended by the next.

    `default`: the sink, should the write have died before it said who it is. `force`: also where another machine may be at work.
    NeedsChange if somebody is at work. Kept: nothing was removed and the name stays, until a person has acted.
    """
    lock = RunnerLock(state_folder() / uid / "runner.lock")
    if not lock.take():
        holder = lock.holder()
        raise _at_work(f"on this machine{'' if holder is None else f' (process {holder.pid})'}", "end it first")
    try:
        if not force:
            _refuse_another_machine(store, uid)
        ended = delete_write(store, uid, open_sink(sink_to_end(store, uid, default)))
        if isinstance(ended, Kept):
            return ended
        return Forgotten(uid, writes.rename(store, metadata.namespace, metadata.name, uid, new_uid()), ended)
    finally:
        lock.release()


def _refuse_another_machine(store: ObjectStore, uid: str) -> None:
    """Refuse if the last attempt of the epoch, or of a stage of it, is open, and another machine has recorded it.

    Only that one knows whether it is at work.
    """
    epoch = writes.last_epoch(store, uid)
    if not epoch or writes.read_deleted(store, uid) is not None:
        return
    key = EpochKey(uid, epoch)
    if Ledger(store, key).commits.read_commit() is not None:
        return
    for place in (key, *writes.list_stages(store, key)):
        ledger = Ledger(store, place)
        number = max(ledger.attempts.list_attempts(), default=None)
        if number is None or ledger.attempts.read_closed(number) is not None:
            continue
        launch = ledger.attempts.read_launch(number)
        if launch is not None and launch.recorded_by != machine_id():
            of_stage = f" of the stage {place.stage}" if place.stage else ""
            raise _at_work(
                f"on another machine, which has begun attempt {number}{of_stage} and has not closed it",
                "end it there; if that machine is gone, say --force",
            )


def _at_work(where: str, remedy: str) -> NeedsChange:
    return NeedsChange(reasons.WRITE_AT_WORK, f"a run of this write is at work {where}; {remedy}. Nothing was removed")

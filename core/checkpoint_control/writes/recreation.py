"""Which write an object of a cluster is. Its name says: the same name is the same write, whatever object has it now.

    names/cluster=<cluster>/<namespace>/<name>.json        the uid of the first object of that name
    names/cluster=<cluster>/<namespace>/<name>/<k>.json    another's, since the write was deleted or started over

An object that is deleted and applied again (by a time to live, by GitOps, by a restore, in a cluster that was made anew) goes on
with what the one before has begun: what is committed stays committed, and what is sealed is not computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from checkpoint_control.writes.registration import changed_parts
from checkpoint_protocol import writes
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.store.object_store import ObjectStore

OnRecreate = Literal["Attach", "New"]


@dataclass(frozen=True, slots=True)
class NamedObject:
    """An object, and where its name is kept: `scope` as in `layout.scope_in_cluster`."""

    scope: str
    name: str
    uid: str


def write_of_object(
    store: ObjectStore,
    named: NamedObject,
    on_recreate: OnRecreate,
    *,
    end_former: Callable[[str], None],
    confirm: Callable[[], None],
) -> str:
    """Return the uid of the write that an object is from now on. Idempotent.

    It is the one that the name means, unless that was deleted, or is to be started over (New): then the name means the
    object's own uid from now on. What is left of the former write is ended before, by `end_former`, and so is a deletion of it
    that was cut off. `confirm` raises if there is another object of that name by now: it is asked after the name was read, so
    that an object that has gone never takes the name from one that came after it.
    """
    uid = writes.name_write(store, named.scope, named.name, named.uid)
    while uid != named.uid:
        if writes.read_deleted(store, uid) is None and (on_recreate == "New" or _is_deletion_cut_off(store, uid)):
            confirm()
            end_former(uid)
        if on_recreate == "Attach" and writes.read_deleted(store, uid) is None:
            return uid
        confirm()
        uid = writes.rename(store, named.scope, named.name, uid, named.uid)
    return uid


def write_to_delete(store: ObjectStore, named: NamedObject, spec: Spec) -> str | None:
    """Return the uid of the write that ends with this object; None where the object never was the write of its name."""
    uid = writes.look_up_name(store, named.scope, named.name)
    if uid is None or uid == named.uid:
        return named.uid  # an object of a release that kept no names, or one whose write was not begun
    record = writes.read_write(store, uid)
    is_attached = spec.on_recreate == "Attach" and record is not None and not changed_parts(store, record, spec)
    return uid if is_attached else None


def _is_deletion_cut_off(store: ObjectStore, uid: str) -> bool:
    epoch = writes.last_epoch(store, uid)
    last = Ledger(store, EpochKey(uid, epoch)) if epoch else None
    return last is not None and last.commits.read_deleted() is not None and last.commits.read_commit() is None

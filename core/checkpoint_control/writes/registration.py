"""A write makes itself known to its store, once. In a cluster the name of an object says which write it is.

It is recorded with its first attempt: what is refused before, a person may mend by whatever part of the manifest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.manifest.sources.source import without_reading
from checkpoint_protocol.manifest.spec import Spec, validate_model
from checkpoint_protocol.records import LaunchRecord, WriteRecord
from checkpoint_protocol.store.object_store import ObjectStore
from checkpoint_protocol.tables.lance import LanceDatasetPlace


def check_identity(store: ObjectStore, uid: str, spec: Spec, start_over: str = "") -> None:
    """Compare with the write's record, if there is one. Puts nothing. NeedsChange if its identity has changed.

    `start_over`: how a person makes this name mean a new write, where that is possible.
    """
    registered = writes.read_write(store, uid)
    if registered is not None:
        _compare(store, registered, spec, start_over)


def registering(store: ObjectStore, uid: str, namespace: str, name: str, spec: Spec, start_over: str = "") -> Callable[[], None]:
    """Return what puts the write's record when it is first called, and costs nothing later.

    It compares with the record that is there, and raises NeedsChange if the identity has changed. Two that begin a write at once
    are told apart by that: only the one whose record is there goes on.
    """

    @functools.cache
    def register() -> None:
        identity, digest = spec.identity, spec.identity_digest
        record = WriteRecord(
            token=new_token(), uid=uid, namespace=namespace, name=name, identity=identity, identity_digest=digest
        )
        _compare(store, writes.put_write(store, record), spec, start_over)

    return register


def _compare(store: ObjectStore, registered: WriteRecord, spec: Spec, start_over: str) -> None:
    if changed := changed_parts(store, registered, spec):
        places = spec.source.members if changed[0] == "source" else (spec.sink.lance,)
        named = (place for place in places if isinstance(place, LanceDatasetPlace) and place.name is not None)
        led = "".join(f" ({place.name} leads to {place.uri} now)" for place in named)
        raise NeedsChange(
            reasons.IDENTITY_CHANGED,
            f"spec.{changed[0]} is not what the write {registered.name!r} began with in {store.uri}{led}; "
            f"it is fixed for the life of a write: undo the change, or give the new write another metadata.name{start_over}",
        )


def sink_of(store: ObjectStore, uid: str) -> Sink | None:
    """Return the sink that the write began with, which alone its commits went to. The manifest may name another one now."""
    record = writes.read_write(store, uid)
    return validate_model(Sink, record.identity["sink"]) if record is not None else None


def sink_to_end(store: ObjectStore, uid: str, default: Sink) -> Sink:
    """Return the sink of a write that is to be ended. `default`: of its manifest, should the write not have said who it is.

    Then nothing was staged, and a table that its namespace does not know is none to look at.
    """
    is_nowhere = default.lance is not None and default.lance.uri is None
    return sink_of(store, uid) or (Sink.model_validate({"none": {}}) if is_nowhere else default)


def changed_parts(store: ObjectStore, registered: WriteRecord, spec: Spec) -> tuple[str, ...]:
    """Return which parts of a manifest may not be what they are: sink, checkpoint, or the source where rows of it are sealed.

    What is sealed now counts, and may be more a moment later: the rules ask again before the next attempt is recorded.
    """
    identity = spec.identity
    changed = [part for part in identity if part != "source" and identity[part] != registered.identity.get(part)]
    if _source_is_another(store, registered, spec):
        changed.insert(0, "source")
    return tuple(changed)


def _source_is_another(store: ObjectStore, registered: WriteRecord, spec: Spec) -> bool:
    epoch = writes.last_epoch(store, registered.uid)
    if not epoch:
        return False  # nothing was ever recorded: what is read is still open
    key = EpochKey(registered.uid, epoch)
    places = (key, *writes.list_stages(store, key)) if spec.stages else (key,)
    begun = [
        (ledger, last) for ledger in (Ledger(store, place) for place in places) if (last := _last_launch(ledger)) is not None
    ]
    if not begun:
        began_with = registered.identity.get("source")
        return not isinstance(began_with, dict) or without_reading(began_with) != spec.source.identity
    others = (key.epoch > 1 or _has_rows(*one) for one in begun if one[1].source.identity != spec.source.identity)
    # A stage that was given up for another source may have sealed something before it heard of that. It counts for nothing.
    same = (_has_rows(*one) for one in begun if one[1].source.identity == spec.source.identity)
    return any(others) and not any(same)


def _last_launch(ledger: Ledger) -> LaunchRecord | None:
    """Return the record of the last attempt that reads the source, or what is made of it. A merge reads the table."""
    number = max(ledger.attempts.list_attempts(), default=None)
    last = ledger.attempts.read_launch(number) if number is not None else None
    return None if last is not None and ledger.key.stage and last.stage is None else last


def _has_rows(ledger: Ledger, last: LaunchRecord) -> bool:
    return ledger.commits.read_commit() is not None or any(
        _holds_seals(ledger, number) for number in (*last.counted, last.attempt)
    )


def _holds_seals(ledger: Ledger, attempt: int) -> bool:
    closed = ledger.attempts.read_closed(attempt)
    return any(closed.chain_lengths) if closed is not None else bool(ledger.seals.list_links(attempt))


# Which write an object of a cluster is. Its name says: the same name is the same write, whatever object has it now.
#
#     names/cluster=<cluster>/<namespace>/<name>.json        the uid of the first object of that name
#     names/cluster=<cluster>/<namespace>/<name>/<k>.json    another's, since the write was deleted or started over
#
# An object that is deleted and applied again (by a time to live, by GitOps, by a restore, in a cluster that was made anew) goes
# on with what the one before has begun: what is committed stays committed, and what is sealed is not computed again.


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

"""A write makes itself known to its store, once; whoever comes under its uid later must be the same write."""

from __future__ import annotations

import json

from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest import FIRST_NULL_VALUES, Source, Spec, without_making
from checkpoint_protocol.records import WriteRecord
from checkpoint_protocol.store import ObjectStore


def register(store: ObjectStore, uid: str, namespace: str, name: str, spec: Spec) -> None:
    """Put the write's record, or compare with the one that stands. Idempotent. NeedsChange if its identity has changed."""
    standing = writes.put_write(
        store,
        WriteRecord(
            token=new_token(),
            uid=uid,
            namespace=namespace,
            name=name,
            identity=spec.identity,
            identity_digest=spec.identity_digest,
        ),
    )
    if _is_of_the_first_default(_source_of(store, standing), spec.source):
        raise NeedsChange(
            reasons.IDENTITY_CHANGED,
            f"the write {name!r} began when NA, null and NULL were read as NULL where spec.source.options.nullValues was not "
            f"given; now only the empty field is. Say nullValues: {json.dumps(FIRST_NULL_VALUES)} to go on as it began, or "
            "give the new write another metadata.name",
        )
    if changed := changed_parts(store, standing, spec):
        raise NeedsChange(
            reasons.IDENTITY_CHANGED,
            f"spec.{changed[0]} is not what the write {name!r} began with in {store.uri}; "
            "it is fixed for the life of a write: undo the change, or give the new write another metadata.name",
        )


def _is_of_the_first_default(began: Source | None, now: Source) -> bool:
    """Whether CSV was read with the first release's texts for NULL, and nobody has named any since."""
    is_csv = now.format == "csv" and not now.is_dataframe
    is_named = "null_values" in now.options.model_fields_set
    return is_csv and not is_named and began is not None and began.options.null_values == FIRST_NULL_VALUES


def _source_of(store: ObjectStore, standing: WriteRecord) -> Source | None:
    """Return the source that the last attempt was told; None if there is none."""
    epochs = writes.list_epochs(store, standing.uid)
    ledger = Ledger(store, EpochKey(standing.uid, epochs[-1])) if epochs else None
    numbers = ledger.list_attempts() if ledger is not None else []
    launch = ledger.read_launch(numbers[-1]) if ledger is not None and numbers else None
    return launch.source if launch is not None else None


def changed_parts(store: ObjectStore, standing: WriteRecord, spec: Spec) -> tuple[str, ...]:
    """Return which parts of a manifest may not be what they are: sink, checkpoint, or the source where rows of it are sealed.

    What is sealed is looked at, and may be more a moment later: before the next attempt is recorded the rounds look again.
    """
    identity = spec.identity
    sink = standing.identity.get("sink")
    began_with = {**standing.identity, "sink": without_making(sink) if isinstance(sink, dict) else sink}
    changed = [part for part in identity if part != "source" and identity[part] != began_with.get(part)]
    if _source_is_another(store, standing, spec):
        changed.insert(0, "source")
    return tuple(changed)


def _source_is_another(store: ObjectStore, standing: WriteRecord, spec: Spec) -> bool:
    epochs = writes.list_epochs(store, standing.uid)
    if not epochs:
        return False  # nothing was ever recorded: what is read is still open
    ledger = Ledger(store, EpochKey(standing.uid, epochs[-1]))
    numbers = ledger.list_attempts()
    last = ledger.read_launch(numbers[-1]) if numbers else None
    if last is None:
        began_with = standing.identity.get("source")
        return not isinstance(began_with, dict) or spec.source.without_reading(began_with) != spec.source.identity
    if last.source.identity == spec.source.identity:
        return False
    return (
        ledger.key.epoch > 1
        or ledger.read_mark() is not None
        or any(_holds_seals(ledger, n) for n in (*last.counted, last.attempt))
    )


def _holds_seals(ledger: Ledger, attempt: int) -> bool:
    closed = ledger.read_closed(attempt)
    return any(closed.chain_lengths) if closed is not None else bool(ledger.list_links(attempt))

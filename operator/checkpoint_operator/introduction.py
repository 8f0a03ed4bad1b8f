"""A write makes itself known to its store, once; whoever comes under its uid later must be the same write."""

from __future__ import annotations

import json

from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.manifest import FIRST_NULL_VALUES, SourceOptions, Spec
from checkpoint_protocol.records import WriteRecord
from checkpoint_protocol.store import ObjectStore


def introduce(store: ObjectStore, uid: str, namespace: str, name: str, spec: Spec) -> None:
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
    if standing.identity_digest != spec.identity_digest:
        if _is_of_the_first_default(standing, spec):
            raise NeedsChange(
                reasons.IDENTITY_CHANGED,
                f"the write {name!r} began when NA, null and NULL were read as NULL where spec.source.options.nullValues was not "
                f"given; now only the empty field is. Say nullValues: {json.dumps(FIRST_NULL_VALUES)} to go on as it began, or "
                "give the new write another metadata.name",
            )
        changed = [part for part in spec.identity if spec.identity[part] != standing.identity.get(part)]
        raise NeedsChange(
            reasons.IDENTITY_CHANGED,
            f"spec.{changed[0] if changed else 'source'} is not what the write {name!r} began with in {store.uri}; "
            "it is fixed for the life of a write: undo the change, or give the new write another metadata.name",
        )


def _is_of_the_first_default(standing: WriteRecord, spec: Spec) -> bool:
    """Whether the write would be the same with the texts for NULL that were the default of the first release."""
    if spec.source.options.null_values != SourceOptions().null_values:
        return False
    options = spec.source.options.model_copy(update={"null_values": FIRST_NULL_VALUES})
    source = spec.source.model_copy(update={"options": options})
    return standing.identity_digest == spec.model_copy(update={"source": source}).identity_digest

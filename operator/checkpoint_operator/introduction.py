"""A write makes itself known to its store, once; whoever comes under its uid later must be the same write."""

from __future__ import annotations

from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.manifest import Spec
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
        changed = [part for part in spec.identity if spec.identity[part] != standing.identity.get(part)]
        raise NeedsChange(
            reasons.IDENTITY_CHANGED,
            f"spec.{changed[0] if changed else 'source'} is not what the write {name!r} began with in {store.uri}; "
            "it is fixed for the life of a write: undo the change, or give the new write another metadata.name",
        )

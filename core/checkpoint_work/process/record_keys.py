"""The keys with which this process signs and checks the records of its write: in a pod's environment, from the operator."""

from __future__ import annotations

import os
from typing import Final

from pydantic import ValidationError

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.store.authenticated_store import AuthenticatedStore, KeysOfOneWrite
from checkpoint_protocol.store.macs import WriteKeys
from checkpoint_protocol.store.object_store import ObjectStore

#: Of driver and executors in a cluster. One machine has one user, and no keys.
RECORD_KEYS_VARIABLE: Final = "CHECKPOINTED_WRITE_RECORD_KEYS"


def record_keys() -> WriteKeys | None:
    """Return the keys of this process's write; None where it has none. NeedsChange if they cannot be read; it quotes none."""
    text = os.environ.get(RECORD_KEYS_VARIABLE)
    if text is None:
        return None
    try:
        return WriteKeys.model_validate_json(text)
    except ValidationError:
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"${RECORD_KEYS_VARIABLE} is not what the operator gives to pods; is it set in a pod template?",
        ) from None


def authenticated(store: ObjectStore, keys: WriteKeys | None) -> ObjectStore:
    """Return the store in which only records of the keys' write count; the same one where there are no keys."""
    return store if keys is None else AuthenticatedStore(store, KeysOfOneWrite(keys))

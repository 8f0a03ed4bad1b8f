"""Who a write is: names are reused, so nothing but the uid counts."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from dataclasses import dataclass

_UID = re.compile(r"[0-9a-zA-Z][0-9a-zA-Z-]{0,62}")
#: As long as the value of a label may be.
_STAGE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")

#: Prefix of the folder (below a table's data location) that holds the staged files of a write.
STAGED_FOLDER_PREFIX = "cw-"
#: Prefix of the table property / transaction property that carries the idempotence key.
KEY_PROPERTY_PREFIX = "checkpointed-write."


@dataclass(frozen=True, slots=True)
class EpochKey:
    """The idempotence key of one table transaction: a write's uid and the number of its epoch, from 1.

    `stage`: the name of a part of the epoch that has attempts and seals of its own, and no transaction; empty for the epoch.
    """

    uid: str
    epoch: int
    stage: str = ""

    def __post_init__(self) -> None:
        if not _UID.fullmatch(self.uid):
            raise ValueError(f"not a uid: {self.uid!r}")
        if self.epoch < 1:
            raise ValueError(f"epochs count from 1, not {self.epoch}")
        if self.stage and not is_stage(self.stage):
            raise ValueError(f"not the name of a stage: {self.stage!r}")

    def __str__(self) -> str:
        return f"{self.uid}/{self.epoch}" + (f"/stages/{self.stage}" if self.stage else "")

    def of_stage(self, stage: str) -> EpochKey:
        """Return the key of a stage of this epoch."""
        return EpochKey(self.uid, self.epoch, stage)

    @property
    def property_name(self) -> str:
        """Name of the table property whose value is the highest epoch of this write that is in the table."""
        return f"{KEY_PROPERTY_PREFIX}{self.uid}"

    @property
    def snapshot_id(self) -> int:
        """The Iceberg snapshot id of this epoch's commit, 1 .. 2^63-1: the same whoever commits.

        A catalog that follows the Iceberg rules refuses a second snapshot with an id that it has, so this is a second fence
        behind the compare-and-swap.
        """
        digest = hashlib.sha256(f"snapshot:{self}".encode()).digest()
        return (int.from_bytes(digest[:8], "big") & 0x7FFF_FFFF_FFFF_FFFF) or 1


def is_stage(name: str) -> bool:
    """Whether a stage may have this name."""
    return _STAGE.fullmatch(name) is not None


def row_keys_of(uri: str, namespace: str, name: str) -> str:
    """Return what tells the row keys of a write from those of others. A preview knows it, as it follows from the manifest."""
    return hashlib.sha256(json.dumps([uri, namespace, name]).encode()).hexdigest()[:32]


def new_token() -> str:
    """Return 128 random bits as hex: marks a put, a try or a file as ours."""
    return secrets.token_hex(16)


def new_uid() -> str:
    """Return a uid for a write that no cluster has named."""
    return secrets.token_hex(8)

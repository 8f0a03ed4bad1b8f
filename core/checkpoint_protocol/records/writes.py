"""Who a write is: records of a whole write, over all its epochs."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import JsonValue

from checkpoint_protocol.records.base import Digest, Record, Uid


class NameRecord(Record):
    """Which uid a name means."""

    #: A uid.
    most_bytes: ClassVar[int] = 4 << 10

    kind: Literal["name"] = "name"
    version: Literal[1] = 1
    uid: Uid


class WriteRecord(Record):
    """Who a write is."""

    kind: Literal["write"] = "write"
    version: Literal[1] = 1
    uid: Uid
    namespace: str
    name: str
    identity: dict[str, JsonValue]
    identity_digest: Digest


class DeletedRecord(Record):
    """The write was deleted, or one epoch of it, by where this lies: whoever claims after it was put commits nothing of that."""

    #: A uid.
    most_bytes: ClassVar[int] = 4 << 10

    kind: Literal["deleted"] = "deleted"
    version: Literal[1] = 1
    uid: Uid

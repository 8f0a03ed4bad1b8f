"""The commit of an epoch, the keys of its upsert, and who a write is."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import JsonValue

from checkpoint_protocol.records.base import Base64, Count, Digest, Number, Part, Record, Token, Uid, later
from checkpoint_protocol.records.formats.union import Base


class ClaimRecord(Record):
    """Permission to try a commit, and the base that was loaded before. No claim: no commit was ever tried.

    `for_audit`: only to put the rows where they are audited and readers do not see them; a commit takes a claim after that one.
    """

    #: An identity and a number.
    most_bytes: ClassVar[int] = 64 << 10

    kind: Literal["claim"] = "claim"
    version: Literal[1] = 1
    index: Count
    base: Base
    for_audit: bool = later(False)


class CleanedRecord(Record):
    """An epoch that has ended was cleaned: its seals, and what else it had staged and no later epoch needs, are removed.

    Put before the first of them goes, so that one that is not there any more is not taken for lost.
    """

    #: A key.
    most_bytes: ClassVar[int] = 4 << 10

    kind: Literal["cleaned"] = "cleaned"
    version: Literal[1] = 1
    key: str


class CommitRecord(Record):
    """The commit was seen in the table. `commit_id` is the snapshot id or version; None where there was nothing to commit.

    `was_rolled_back`: seen in the table's history only; before this was put, somebody had rolled the table back to before it.
    `input_since` names the input that was committed, as in launch records.
    `was_deleted`: the epoch has ended without a commit, and none can land: the write was deleted in it, and has earlier ones.
    `offsets`: of a stream, those of the plan that was committed.
    `rows_quarantined_before`: of a pipeline, in the stages whose results led to this one; `rows_quarantined` in this one.
    """

    #: Two digests of 67 bytes for each of thousands of attempts.
    most_bytes: ClassVar[int] = 16 << 20

    # Its kind in the stores of all releases.
    kind: Literal["mark"] = "mark"
    version: Literal[1] = 1
    key: str
    target: str
    table_identity: str | None
    commit_id: int | None
    rows_read: Count
    rows_written: Count
    files: Count
    attempts: Number
    code_digests: tuple[Digest, ...]
    rows_quarantined: Count = later(0)
    was_rolled_back: bool = later(False)
    read_digests: tuple[Digest, ...] = later(())
    input_since: Number = later(1)
    was_deleted: bool = later(False)
    offsets: Digest | None = later(None)
    rows_quarantined_before: Count = later(0)

    @property
    def rows_failed(self) -> int:
        """The rows that failed on the way from the source to here, in whichever stage."""
        return self.rows_quarantined + self.rows_quarantined_before


class MergeKeysPart(Part):
    """A Parquet object with keys: it counts because the record names it. `digest` is the SHA-256 of its bytes.

    Its columns are `k0`, `k1`, ... in the order of the record's keys, and where a row of each key lies: `file` (an index into
    the record's files) and `pos` (its number in that file).
    """

    token: Token
    rows: Count
    size_bytes: Count
    digest: Digest


class MergeKeysRecord(Record):
    """Each key of the staged rows once, in parts that are sorted by them.

    `bounds` is an Arrow IPC stream of one batch: for each part the first and the last value (`lower`, `upper`) of the first key
    column. `where` is true for each of the keys, as a row filter: it leaves out files of the table; None: nothing is known.
    `files` are the staged files; they are left out where no row is looked for there. `repeated`: so many rows have a key that
    another row counts for.
    """

    most_bytes: ClassVar[int] = 64 << 20

    kind: Literal["merge-keys"] = "merge-keys"
    version: Literal[1] = 1
    keys: tuple[str, ...]
    rows: Count
    parts: tuple[MergeKeysPart, ...]
    bounds: Base64
    where: str | None
    files: tuple[str, ...] = ()
    repeated: Count = 0


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

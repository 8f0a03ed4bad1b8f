"""The keys of all rows that an epoch's upsert has staged: put once, by the driver of its first merge."""

from __future__ import annotations

from typing import ClassVar, Literal

from checkpoint_protocol.records.base import Base64, Count, Digest, Part, Record, Token


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

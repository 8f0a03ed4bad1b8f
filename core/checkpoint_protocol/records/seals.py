"""A seal, the one object that makes a segment of a task count; and the header of many copies of seals."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from checkpoint_protocol.records.base import Count, Digest, Number, Record, Token, later
from checkpoint_protocol.records.coverage import Covered, KeysCovered
from checkpoint_protocol.records.formats.union import StagedFile
from checkpoint_protocol.records.quarantine import Quarantined
from checkpoint_protocol.rows.lineage import MOST_RUNS


class Seal(Record):
    """A finished segment of a task: what it covers and the files that hold its results, in one object.

    `rows_read` counts the source rows that the steps were given, and the lines that could not be read; `rows_written` what came
    of them. A row that `where` does not take, or that the source table has deleted, is covered, and counted in neither. `last`:
    the task's whole work is sealed by this link and those before it. `quarantined` rows are covered and read, and nothing was
    made of them. `read_digest`: of how text was read (types and options); None where it is no text.
    `left_by_try`: the try of Spark, counted from 0, that sealed this as its executor was about to end, and went no further.
    `lineage`: which of its rows were made of which of its positions (see `checkpoint_protocol.rows.lineage`); None: not known.
    """

    kind: Literal["seal"] = "seal"
    version: Literal[1] = 1
    attempt: Number
    task: Count
    link: Count
    covered: Covered
    rows_read: Count
    rows_written: Count
    code_digest: Digest
    files: tuple[StagedFile, ...]
    last: bool
    quarantined: Quarantined | None = later(None)
    read_digest: Digest | None = later(None)
    left_by_try: Count | None = later(None)
    lineage: Annotated[tuple[tuple[Count, Count, Count], ...], Field(max_length=MOST_RUNS)] | None = later(None)

    @property
    def rows_quarantined(self) -> int:
        return self.quarantined.count if self.quarantined is not None else 0

    @property
    def positions(self) -> int:
        """How many positions are done by it, or keys: those that `where` passed over are; a partition without rows has none."""
        if isinstance(self.covered, KeysCovered):
            return self.covered.keys.rows
        # To the end of the file (None) is one at the least; it is not known how many.
        return sum((piece.start + 1 if piece.end is None else piece.end) - piece.start for piece in self.covered.ranges)


class BundleRecord(Record):
    """The header of a bundle: copies of seals of one attempt, in this order, put by the driver whose plan has this token."""

    #: Of the header alone: a thousand seals with their etags.
    most_bytes: ClassVar[int] = 1 << 20

    kind: Literal["bundle"] = "bundle"
    version: Literal[1] = 1
    attempt: Number
    plan_token: Token
    # Task, link, size in bytes, etag: no Part, for there are a thousand of them.
    seals: tuple[tuple[Count, Count, Count, str], ...]

"""A seal, the one object that makes a segment of a task count, and the rows of it that failed; the header of a bundle."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from checkpoint_protocol.records.base import Count, Digest, Number, Part, Record, Token, later, without_surrogates
from checkpoint_protocol.records.formats.union import StagedFile
from checkpoint_protocol.records.plans import Covered, KeysCovered
from checkpoint_protocol.rows.lineage import MOST_RUNS
from checkpoint_protocol.rows.positions import Range

#: What is kept of a row that failed, in characters: 7 kB a row, however long a traceback or a message is.
MAX_STEP_LENGTH = 512
MAX_ERROR_TYPE_LENGTH = 256
MAX_ERROR_MESSAGE_LENGTH = 2_000
MAX_TRACEBACK_LENGTH = 4_000
MAX_KEY_LENGTH = 200


class RowPosition(Part):
    """Where a source row lies: its positions in a file of the epoch's input."""

    kind: Literal["position"] = "position"
    range: Range


class RowKey(Part):
    """Which source row it is, by its key as people read it, cut where it is long. Its exact values are in a keys object.

    `source` is the number of its source, which is 0 where there is one.
    """

    kind: Literal["key"] = "key"
    source: Count
    values: tuple[Annotated[str, BeforeValidator(without_surrogates), Field(max_length=MAX_KEY_LENGTH)], ...]


RowIdentity = Annotated[RowPosition | RowKey, Field(discriminator="kind")]


class QuarantinedRow(Part):
    """A source row of which nothing was made, and why. Its other values are not kept: `row` tells where to find them.

    `step` is the step's label, "(output)" where what the steps gave does not fit the table, or "(source)" where a line of text
    cannot be read. `error` is the exception's type.
    """

    row: RowIdentity
    step: Annotated[str, BeforeValidator(without_surrogates), Field(max_length=MAX_STEP_LENGTH)]
    error: Annotated[str, BeforeValidator(without_surrogates), Field(max_length=MAX_ERROR_TYPE_LENGTH)]
    message: Annotated[str, BeforeValidator(without_surrogates), Field(max_length=MAX_ERROR_MESSAGE_LENGTH)]
    traceback: Annotated[str, BeforeValidator(without_surrogates), Field(max_length=MAX_TRACEBACK_LENGTH)]


class QuarantineObject(Part):
    """An object with more quarantined rows, named by its token; it counts because a seal names it."""

    token: Token
    rows: Annotated[int, Field(ge=1)]


class Quarantined(Part):
    """The source rows of a segment that failed: the first ones here, the others in objects of their own."""

    rows: Annotated[tuple[QuarantinedRow, ...], Field(min_length=1)]
    objects: tuple[QuarantineObject, ...] = ()

    @property
    def count(self) -> int:
        return len(self.rows) + sum(stored.rows for stored in self.objects)


class QuarantineRecord(Record):
    """Quarantined rows of a segment that are too many for its seal."""

    kind: Literal["quarantine"] = "quarantine"
    version: Literal[1] = 1
    rows: Annotated[tuple[QuarantinedRow, ...], Field(min_length=1)]


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

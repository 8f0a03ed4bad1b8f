"""The rows of a segment that failed, until its seal names them. What is kept of each is bounded, and how many may fail."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import (
    MAX_ERROR_MESSAGE_LENGTH,
    MAX_ERROR_TYPE_LENGTH,
    MAX_STEP_LENGTH,
    LaunchRecord,
    Quarantined,
    QuarantinedRow,
    QuarantineObject,
    QuarantineRecord,
    RowKey,
    RowPosition,
)
from checkpoint_protocol.rows.quarantine import describe_limit, most_rows
from checkpoint_protocol.store.parts import Input
from checkpoint_work.steps.failing.failures import text_of

#: The label of what is no step: reading a row.
SOURCE: Final = "(source)"


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many rows of one task may fail, and how many are kept in its seals and in one object beside them."""

    most_rows: int
    limit: str = ""
    rows_of_a_seal: int = 10
    rows_of_an_object: int = 1000

    @classmethod
    def of(cls, launch: LaunchRecord, record: Input | None) -> Allowance | None:
        """Return what the write allows; None if the first row that fails ends the task."""
        if launch.on_row_error != "Quarantine":
            return None
        return cls(most_rows(launch.quarantine, record), describe_limit(launch.quarantine, record))


@dataclass(slots=True)
class QuarantineOfSegment:
    """Takes rows that failed. `rows_before` of the task's failed in its earlier segments.

    The limit is the whole epoch's, which one task cannot know: it only sees to it that no task goes beyond it alone. The
    operator counts all tasks.
    """

    ledger: Ledger
    attempt: int
    allowance: Allowance
    rows_before: int
    _rows: list[QuarantinedRow] = field(default_factory=list)
    _waiting: list[QuarantinedRow] = field(default_factory=list)
    _objects: list[QuarantineObject] = field(default_factory=list)
    _count: int = 0

    def add(self, where: RowPosition | RowKey, named: str, step: str, error: BaseException) -> None:
        """Keep why a row failed. Raises NeedsChange(TooManyRowErrors) at the first row beyond the limit; `named` is for that."""
        row = describe(where, step, error)
        self._count += 1
        if self.rows_before + self._count > self.allowance.most_rows:
            raise NeedsChange(
                reasons.TOO_MANY_ROW_ERRORS,
                f"{self.rows_before + self._count:,} rows of one task failed, and {self.allowance.limit}; the last is {named}: "
                f"{step}: {row.error}: {row.message[:500]}; {_mend(step)}, or raise the limit (spec.quarantine). Rows that are "
                "sealed as quarantined stay so until a later epoch takes them again (quarantine.retry); onCodeChange: Restart "
                "does all rows again with mended code",
            )
        if len(self._rows) < self.allowance.rows_of_a_seal:
            self._rows.append(row)
            return
        self._waiting.append(row)
        if len(self._waiting) >= self.allowance.rows_of_an_object:
            self._put_waiting()

    def copy(self) -> QuarantineOfSegment:
        """Return one that has taken the same rows, and takes more of its own."""
        return replace(self, _rows=[*self._rows], _waiting=[*self._waiting], _objects=[*self._objects])

    def finish(self) -> Quarantined | None:
        """Return what the segment's seal says of its rows that failed; None if there are none. Objects are in the store then."""
        if self._waiting:
            self._put_waiting()
        return Quarantined(rows=tuple(self._rows), objects=tuple(self._objects)) if self._rows else None

    def _put_waiting(self) -> None:
        # A fresh token each time: nothing is overwritten, and what no seal names exists for nobody.
        record = QuarantineRecord(token=new_token(), rows=tuple(self._waiting))
        self.ledger.quarantine.put_quarantine(self.attempt, record)
        self._objects.append(QuarantineObject(token=record.token, rows=len(record.rows)))
        self._waiting = []


def _mend(step: str) -> str:
    if step == SOURCE:
        return "mend the source, or how it is read (source.files.types, source.files.csv)"
    return "mend the code"


def describe(where: RowPosition | RowKey, step: str, error: BaseException) -> QuarantinedRow:
    """Return what is kept of a row that failed: no values of it but those that its error quotes."""
    text = text_of(error)
    return QuarantinedRow(
        row=where,
        step=step[:MAX_STEP_LENGTH],
        error=text.kind[:MAX_ERROR_TYPE_LENGTH],
        message=text.message[:MAX_ERROR_MESSAGE_LENGTH],
        traceback=text.traceback,
    )

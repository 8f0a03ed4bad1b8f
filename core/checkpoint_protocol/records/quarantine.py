"""Source rows that failed, and of which nothing was made."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from checkpoint_protocol.records.base import Count, Part, Record, Token, without_surrogates
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

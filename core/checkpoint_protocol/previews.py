"""What a preview finds: from the process that runs the steps to the one that shows it, as a file of a temporary folder."""

from __future__ import annotations

from typing import Final, Literal

from checkpoint_protocol.records import Grouping, Part

#: The rows that the steps gave, as an Arrow IPC stream; and all else. Both in the folder that is handed over.
ROWS_NAME: Final = "rows.arrow"
PREVIEW_NAME: Final = "preview.json"
#: What the steps get in place of the source, where that is so. It is there before the process is.
SEALED_NAME: Final = "sealed.json"


class SealedRows(Part):
    """The rows that a stage has sealed in a checkpoint store.

    `groups`: all rows of a key are to come together, of a stage that is done and has put them into buckets.
    """

    uri: str
    uid: str
    epoch: int
    stage: str
    groups: Grouping | None = None


class FailedRow(Part):
    """A row on which a step failed: where it lies, the step's label, and the type and the words of what it raised."""

    row: str
    step: str
    error: str
    message: str


class PreviewError(Part):
    """Why there is no preview: an error of the product."""

    family: Literal["Retryable", "NeedsChange", "Corrupt"]
    reason: str
    message: str


class PreviewOutcome(Part):
    """How many rows of the source the steps were given, and which of them failed; or why there is nothing to be seen."""

    rows_read: int = 0
    failed: tuple[FailedRow, ...] = ()
    error: PreviewError | None = None

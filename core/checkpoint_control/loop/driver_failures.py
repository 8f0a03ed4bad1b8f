"""Why an attempt ended without being complete.

What its driver says is text of others, which is checked before a status, a rule or a person gets it. Some reasons do not count
as failures, such as that somebody deleted the driver: a driver that could say so itself would be started again for ever.
"""

from __future__ import annotations

from typing import Final

from checkpoint_control.decision.observation import Failure
from checkpoint_protocol import reasons
from checkpoint_protocol.printable import printable
from checkpoint_protocol.records import ClosedRecord, FailureRecord

_MOST_OF_A_REASON: Final = 100


def failure_of(closed: ClosedRecord | None, record: FailureRecord | None, *, of_stream: bool) -> Failure | None:
    """Return what the controller has found out or, where it has not, what the driver says, under a reason that drivers have.

    Another one would be shown as a condition's, and hide the real one.
    """
    if closed is not None and (found := closed.given_up) is not None:
        return Failure(found.family, found.reason, printable(found.message))
    if record is None:
        return None
    message = printable(record.message)
    if reasons.is_of_drivers(record.reason, of_stream):
        return Failure(record.family, record.reason, message)
    return Failure(record.family, reasons.FAILURE_UNKNOWN, f"{printable(record.reason)[:_MOST_OF_A_REASON]}: {message}")

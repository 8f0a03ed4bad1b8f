"""Why a driver ended, from its own record: text of others, which is checked before a status, a rule or a person gets it."""

from __future__ import annotations

from typing import Final

from checkpoint_operator.core.observation import Failure
from checkpoint_protocol import reasons
from checkpoint_protocol.printable import printable
from checkpoint_protocol.records import FailureRecord

_MOST_OF_A_REASON: Final = 100


def failure_of(record: FailureRecord) -> Failure:
    """Return what a record says, under a reason of ours: another one would be shown as a condition's, and hide the real one."""
    message = printable(record.message)
    if reasons.is_known(record.reason):
        return Failure(record.family, record.reason, message)
    return Failure(record.family, reasons.FAILURE_UNKNOWN, f"{printable(record.reason)[:_MOST_OF_A_REASON]}: {message}")

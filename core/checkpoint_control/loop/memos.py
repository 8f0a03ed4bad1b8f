"""What attempts that were killed have kept of calls on rows that they did not seal: of no use to anybody after the commit."""

from __future__ import annotations

from contextlib import suppress

from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.ledger import Ledger


def remove_memos(ledger: Ledger, attempts: int) -> None:
    """Remove those of the first so many attempts of an epoch that is committed. What a store does not remove, `clean` takes."""
    with suppress(CheckpointError):
        for number in range(1, attempts + 1):
            ledger.store.delete([stored.path for stored in ledger.store.list(ledger.at.memos(number))])

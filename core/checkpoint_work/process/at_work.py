"""What a driver works on: one attempt to its end, but of a stream that of one epoch after another."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_protocol.ledger import Ledger


@dataclass(slots=True)
class AtWork:
    """The attempt at hand. Set by the thread that does it, in one assignment, and read by those that tell of it and watch it."""

    now: tuple[Ledger, int]

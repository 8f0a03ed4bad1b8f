"""Whether what earlier attempts have sealed belongs to the table of now: asked before an attempt does any work for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from checkpoint_operator.commit.results import target_of
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import IcebergTarget, LanceTarget, NoTarget, Target


def attempts_with_seals(ledger: Ledger, attempts: Sequence[int]) -> tuple[int, ...]:
    """Return those of closed attempts of which at least one seal counts: the others have nothing to take over."""
    return tuple(number for number in attempts if (closed := ledger.read_closed(number)) and any(closed.chain_lengths))


def sealed_for_another_table(ledger: Ledger, attempts: Sequence[int], now: Target | None) -> int | None:
    """Return the first of these attempts that staged its files for another table than the one of now; None if none did.

    `now` is None where there is no table: it was dropped, and one that is made from the steps' output would be another.
    """
    for number in attempts:
        then = target_of(ledger, number)
        if then is not None and _identity(then) != (_identity(now) if now is not None else None):
            return number
    return None


def _identity(target: Target) -> str:
    match target:
        case IcebergTarget(table_uuid=identity) | LanceTarget(identity=identity):
            return identity
        case NoTarget():
            return ""
        case _:
            assert_never(target)

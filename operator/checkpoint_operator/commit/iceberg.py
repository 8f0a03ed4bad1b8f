"""The Iceberg commit: claim, then one compare-and-swap at a time, looking before each.

    claim-0, naming the head that was looked at        no claim = never tried, which needs no catalog to know
    loop, bounded:
        look: is the key in the table?                 yes: already committed
        does it still fit?                             no: rejected
        ONE request: requirements are exactly what was looked at
        refused, or no believable answer               loop, which looks first

A late request of a dead committer lands only on the head that it had looked at; then ours is refused, and the look finds its
key. Clocks, locks and leases have no part in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from checkpoint_operator.commit.outcomes import (
    CommitOutcome,
    Committed,
    Landed,
    Refused,
    Rejected,
    RequestOutcome,
    TryLater,
    Unknown,
)
from checkpoint_operator.commit.results import Results
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import ClaimRecord, IcebergBase, IcebergFile, IcebergTarget

_ROUNDS: Final = 12
_FIRST_PAUSE_S: Final = 0.1
_MOST_PAUSE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class IcebergLook:
    """One metadata version of the table, as far as a commit depends on it.

    `committed` is the snapshot id that carries the key, if the key is in the table. `ancestry` are the ids of the snapshots of
    the branch that are still known, head first; `ancestry_is_whole` if it reaches the first snapshot.
    """

    table_uuid: str
    head: int | None
    committed: int | None
    ancestry: tuple[int, ...]
    ancestry_is_whole: bool

    def reaches(self, base: int | None) -> bool:
        """Whether all that was committed after the base can be seen."""
        return self.ancestry_is_whole or (base is not None and base in self.ancestry)


class IcebergTable(Protocol):
    """The table of one sink."""

    def look(self, key: EpochKey) -> IcebergLook | None:
        """Load the table anew. None: it does not exist. Raises Retryable where the catalog does not answer."""

    def find_misfit(self, look: IcebergLook, targets: Sequence[IcebergTarget], files: Sequence[IcebergFile]) -> Rejected | None:
        """Compare schema and specs of that look with those of staging, and the staged files with the store."""

    def references_any(self, look: IcebergLook, files: Sequence[IcebergFile]) -> bool:
        """Whether the current snapshot of that look names one of the files."""

    def swap(self, look: IcebergLook, key: EpochKey, files: Sequence[IcebergFile]) -> RequestOutcome:
        """Ask once that the table moves from exactly that look to one with the files and the key. Never retries."""


def commit(table: IcebergTable, ledger: Ledger, results: Results, pause: Callable[[float], None] = time.sleep) -> CommitOutcome:
    """Put the results into the table, once, whoever else tries. See the module for the protocol."""
    key = ledger.key
    files = [file for file in results.files if isinstance(file, IcebergFile)]
    targets = [target for target in results.targets if isinstance(target, IcebergTarget)]
    try:
        return _commit(table, ledger, key, files, targets, pause)
    except NeedsChange as error:
        return Rejected(error.reason, error.message)
    except Retryable as error:
        return TryLater(error.reason, error.message)


def _commit(
    table: IcebergTable,
    ledger: Ledger,
    key: EpochKey,
    files: Sequence[IcebergFile],
    targets: Sequence[IcebergTarget],
    pause: Callable[[float], None],
) -> CommitOutcome:
    look = table.look(key)
    if look is None:
        return _gone(targets)
    if look.committed is not None:
        return Committed(look.table_uuid, look.committed, by_us=False)
    claim = ledger.put_claim(
        ClaimRecord(token=new_token(), index=0, base=IcebergBase(table_uuid=look.table_uuid, snapshot_id=look.head))
    )
    assert isinstance(claim.base, IcebergBase)
    said = "the table kept moving"
    for number in range(_ROUNDS):
        look = table.look(key)
        if look is None:
            return _gone(targets)
        if look.committed is not None:
            return Committed(look.table_uuid, look.committed, by_us=False)
        # Before the misfit: "a staged file is gone" would be said of a commit that landed and was compacted and forgotten since.
        if look.table_uuid == claim.base.table_uuid and not look.reaches(claim.base.snapshot_id):
            if table.references_any(look, files):
                assert look.head is not None
                return Committed(look.table_uuid, look.head, by_us=False)
            return Unknown(
                f"a commit of {key} was tried on snapshot {claim.base.snapshot_id}, which the table's history no longer reaches "
                "(it was expired or rolled back), and neither the key nor a staged file is in the table; "
                "look whether the rows are there"
            )
        if (misfit := table.find_misfit(look, targets, files)) is not None:
            return misfit
        match table.swap(look, key, files):
            case Landed(commit_id):
                return Committed(look.table_uuid, commit_id, by_us=True)
            case Refused(message):
                said = message
            case unanswered:
                said = unanswered.message
        pause(min(_MOST_PAUSE_S, _FIRST_PAUSE_S * 2**number))
    return TryLater(reasons.COMMIT_CONTENDED, f"after {_ROUNDS} tries the commit of {key} is not in the table: {said}")


def _gone(targets: Sequence[IcebergTarget]) -> Rejected:
    name = targets[0].table if targets else "of this write"
    return Rejected(reasons.TABLE_MISSING, f"the table {name} does not exist any more; staged results cannot go anywhere else")

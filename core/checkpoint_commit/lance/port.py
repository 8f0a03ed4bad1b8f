"""A Lance dataset as its commits know it, and what each of them says where there is nothing to commit to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from checkpoint_commit.changes import Change
from checkpoint_commit.outcomes import Rejected, RequestOutcome
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import LanceTarget


@dataclass(frozen=True, slots=True)
class LanceState:
    """The dataset at one version.

    `committed` is the version that carries the key; `is_tombstone` if a deletion has put it there, with no rows. A real commit
    goes before a tombstone, should both be there. `history_reaches_back` if every version after the base that was asked for
    could be read, so that "not committed" is knowledge. `is_current`: see Committed.
    """

    identity: str | None
    at_version: int
    committed: int | None
    history_reaches_back: bool
    is_tombstone: bool = False
    is_current: bool = True


class LanceTable(Protocol):
    """The dataset of one sink. Requests raise NeedsChange where Lance would take them from nobody, at no version."""

    def load(self, key: EpochKey, since: int, up_to: int | None = None) -> LanceState | None:
        """Open the dataset at a version (the latest by default) and search the versions after `since`, up to it, for the key.

        None: there is no dataset. Raises Retryable where the store does not answer.
        """

    def latest_version(self) -> int | None:
        """Return the latest version, or None if there is no dataset."""

    def find_incompatibility(self, state: LanceState, targets: Sequence[LanceTarget], change: Change) -> Rejected | None:
        """Compare identity, field ids and types of that state with those of staging, and the staged files with the store."""

    def find_schema_change(self, at_version: int, targets: Sequence[LanceTarget]) -> str | None:
        """Say what has changed in the fields since staging, as of a version; None if staged files still read as they should.

        Raises Retryable where the store does not answer.
        """

    def references_any(self, state: LanceState, change: Change) -> bool:
        """Whether the dataset in that state names one of the staged data files."""

    def append(self, read_version: int, key: EpochKey, change: Change) -> RequestOutcome:
        """Ask once that the fragments be appended, based on a version; the key is in the transaction's properties."""

    def update(self, read_version: int, key: EpochKey, change: Change) -> RequestOutcome:
        """Ask once that rows of a version be taken out, and the fragments be added; else as `append`."""

    def swap(self, read_version: int, key: EpochKey, change: Change) -> RequestOutcome:
        """Ask once that the dataset moves from exactly that version to one with the change and the key. Never retries.

        One that landed counts only if `load` shows it: see `lance_swap`.
        """

    def fence(self, read_version: int) -> RequestOutcome:
        """Ask once for a transaction that changes nothing and that older appends conflict with."""

    def block_commit(self, read_version: int, key: EpochKey) -> RequestOutcome:
        """Ask once for a fence that carries the key, as a tombstone."""


def gone(targets: Sequence[LanceTarget]) -> Rejected:
    """There is no dataset (any more)."""
    name = targets[0].uri if targets else "of this write"
    return Rejected(
        reasons.TABLE_MISSING, f"the Lance dataset {name} does not exist any more; staged results cannot go anywhere else"
    )


def deleted(key: EpochKey) -> Rejected:
    """The write was deleted, and nothing of the epoch may land."""
    return Rejected(reasons.WRITE_DELETED, f"the write of {key} was deleted before its commit; nothing of it is in the dataset")


def without_evidence(key: EpochKey, at_version: int) -> str:
    """Say why it cannot be known whether a commit landed."""
    return (
        f"a commit of {key} was tried on version {at_version}, and versions after it were cleaned up; neither "
        "the key nor a staged file is in the dataset; check whether the rows are there"
    )

"""A Lance dataset as its commits know it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from checkpoint_commit.changes import Change
from checkpoint_commit.outcomes import Rejected, RequestOutcome
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import Base, LanceBase, LanceTarget


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

    @property
    def seen(self) -> int:
        return self.at_version

    @property
    def base(self) -> LanceBase:
        assert self.identity is not None  # it is the one that was staged for
        return LanceBase(identity=self.identity, at_version=self.at_version)

    def why_unseen(self, base: Base) -> str | None:
        """See `TableState`. Of a dataset that was made again, the versions have nothing to do with those of the claim."""
        if self.identity != base.table_identity or self.history_reaches_back:
            return None
        return f"on version {base.at}, and versions after it were cleaned up"


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

        One that landed counts only if `load` shows it: see `Swap`.
        """

    def fence(self, read_version: int) -> RequestOutcome:
        """Ask once for a transaction that changes nothing and that older appends conflict with."""

    def block_commit(self, read_version: int, key: EpochKey) -> RequestOutcome:
        """Ask once for a fence that carries the key, as a tombstone."""

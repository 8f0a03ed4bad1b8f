"""How a commit can end, and whether a committed one is still there, as values. An unknown outcome is one of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit is in the table and was seen there. `by_us`: this call put it there; else an earlier one had.

    `is_current`: False if the table was surely rolled back to before it since, so that readers do not see its rows.
    """

    table_identity: str
    commit_id: int
    by_us: bool
    is_current: bool = True


@dataclass(frozen=True, slots=True)
class Rejected:
    """The staged results cannot go into the table as it is now; nothing was committed. A person has to act."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Whether a commit landed cannot be known any more: the evidence is gone. A person has to check."""

    message: str


@dataclass(frozen=True, slots=True)
class TryLater:
    """The table did not answer or kept moving. What was sent may still land; the next call loads the table first."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Final:
    """There is no table to commit to: what is sealed counts as it is. The answer of a stage's sink."""


CommitOutcome = Committed | Final | Rejected | Unknown | TryLater


@dataclass(frozen=True, slots=True)
class CommitBlocked:
    """No commit of the epoch is in the table, and none can land any more.

    `table_identity` is the table in which that is known: the one that was claimed. None where there is no table, or another one
    than was claimed: the claimed table may come back (a drop can be undone, a name given back), perhaps with a commit in it, so
    that no data file may be removed on the strength of this.
    """

    table_identity: str | None


BlockOutcome = CommitBlocked | Committed | Rejected | Unknown | TryLater


@dataclass(frozen=True, slots=True)
class Landed:
    """One request to the table was accepted: this snapshot or version is ours."""

    commit_id: int


@dataclass(frozen=True, slots=True)
class Refused:
    """One request was refused, as the table says: it has moved. It may have been carried out even so: load the table again."""

    message: str


@dataclass(frozen=True, slots=True)
class Unanswered:
    """One request had no answer that can be believed. It may land at any later time."""

    message: str


RequestOutcome = Landed | Refused | Unanswered


class Presence(StrEnum):
    """What the table shows of a commit that was recorded. HERE also where nothing speaks against it."""

    HERE = "Here"
    GONE = "Gone"  # there is no table
    REPLACED = "Replaced"  # another table has its name
    ROLLED_BACK = "RolledBack"  # it is the table, in a state from before the commit
    BRANCH_DROPPED = "BranchDropped"  # the branch that it went to is gone, and main does not have it


@dataclass(frozen=True, slots=True)
class Former:
    """A commit in a table that another write of the same name has made."""

    target: str
    key: str

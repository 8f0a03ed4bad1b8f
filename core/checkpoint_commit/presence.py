"""Whether what was committed is still there: the commit record says that it was seen in the table, and tables change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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

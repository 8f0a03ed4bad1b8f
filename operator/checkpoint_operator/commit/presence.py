"""Whether what was committed is still there: the mark says that a commit was seen in the table, and tables change afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Presence(StrEnum):
    """What a look at the table shows of a commit that was marked. HERE also where nothing speaks against it."""

    HERE = "Here"
    GONE = "Gone"  # there is no table
    REPLACED = "Replaced"  # another table has its name
    ROLLED_BACK = "RolledBack"  # it is the table, in a state from before the commit


@dataclass(frozen=True, slots=True)
class Former:
    """A commit in a table that another write of the same name has made."""

    target: str
    key: str

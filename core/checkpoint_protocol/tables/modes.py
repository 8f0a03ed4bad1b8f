"""What a commit may do to a table. Each kind of sinks says which of these it can (`modes`)."""

from __future__ import annotations

from typing import Final, Literal

Mode = Literal["Append", "OverwriteAll", "OverwriteWhere", "OverwritePartitions", "Upsert", "AddColumns"]
#: Those that take away rows of the table by what they are or where they lie; each epoch reads the whole source for them.
OVERWRITING: Final = frozenset({"OverwriteAll", "OverwriteWhere", "OverwritePartitions"})
#: What an upsert does with rows of the table whose key the output has.
WhenMatched = Literal["Update", "Delete", "Ignore"]
#: What it does where several rows of the output have one key.
OnDuplicate = Literal["Fail", "Last"]

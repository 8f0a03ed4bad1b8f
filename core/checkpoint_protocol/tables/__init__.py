"""What a manifest says of a table, a module for each format: as a sink, and what source and sink have in common.

Each kind answers what is asked of all of them: `title` (None where there is no table), `uris` (by the field that holds them) and
`with_uris`. A sink also says its `modes`, whether it can be audited (`has_audit`), and names the module of the operator that
opens it, `committed_by`.
`records/formats/union.py` lists the kinds.
"""

from __future__ import annotations

from typing import Final, Literal

Mode = Literal["Append", "OverwriteAll", "OverwriteWhere", "OverwritePartitions", "Upsert", "AddColumns"]
#: Those that take away rows of the table by what they are or where they lie; each epoch reads the whole source for them.
OVERWRITING: Final = frozenset({"OverwriteAll", "OverwriteWhere", "OverwritePartitions"})
#: What an upsert does with rows of the table whose key the output has.
WhenMatched = Literal["Update", "Delete", "Ignore"]
#: What it does where several rows of the output have one key.
OnDuplicate = Literal["Fail", "Last"]

"""The operation: what a commit does to the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, assert_never

from pydantic import Field

from checkpoint_protocol.records.base import Number, Part, later
from checkpoint_protocol.records.formats.union import Base
from checkpoint_protocol.tables import OnDuplicate, WhenMatched

if TYPE_CHECKING:
    from checkpoint_protocol.manifest.sink import Sink


class Append(Part):
    """Add the rows of an epoch to the table, and leave what is there as it is."""

    kind: Literal["Append"] = "Append"


class OverwriteAll(Part):
    """Put the rows of an epoch in the place of all that the table has.

    `base` is the table as the epoch's first attempt found it, None if there was none: what others have added since is not known
    to the one who asked for the overwrite.
    """

    kind: Literal["OverwriteAll"] = "OverwriteAll"
    base: Base | None


class OverwriteWhere(Part):
    """Put the rows of an epoch in the place of those for which a condition is true. It is true for each of the new ones, too."""

    kind: Literal["OverwriteWhere"] = "OverwriteWhere"
    base: Base | None
    where: str


class OverwritePartitions(Part):
    """Put the rows of an epoch in the place of all that is in the partitions which they are in."""

    kind: Literal["OverwritePartitions"] = "OverwritePartitions"
    base: Base | None


class Upsert(Part):
    """Put each row of an epoch in the place of the rows that have its key, or do with those what else is asked for.

    `keys` are columns of the table. What is done with rows of one key in the epoch is not part of it: that is decided when rows
    are matched with those of the table.
    """

    kind: Literal["Upsert"] = "Upsert"
    keys: Annotated[tuple[str, ...], Field(min_length=1)]
    when_matched: WhenMatched = "Update"


class Merge(Part):
    """Find the rows of the table that an upsert takes out: what a stage of its epoch does.

    `keys` and `when_matched` are the upsert's. The keys are those of the rows that the counted `attempts` of the epoch have
    staged. `since` is a snapshot whose data files an earlier stage has done: of files that came after it the rest is done; None:
    all are to be done. `rewrites`: data files that have such rows are written anew without them (copy-on-write); else the rows
    are named by their positions.
    `found_by`: stages of the epoch that have named rows of staged files. Where there are some, nothing is searched: the staged
    files that have such rows are written anew without them.
    """

    kind: Literal["Merge"] = "Merge"
    keys: Annotated[tuple[str, ...], Field(min_length=1)]
    when_matched: WhenMatched
    on_duplicate: OnDuplicate
    order_by: str | None
    attempts: tuple[Number, ...]
    since: int | None
    rewrites: bool = later(False)
    found_by: tuple[str, ...] = later(())


class AddColumns(Part):
    """Give rows that the table has values in some of its columns, and leave all else of them as it is.

    `only`: of which rows the epoch makes values: those that have none yet in any of these columns (Null), these and those whose
    input has changed since theirs were made (Changed), or all.
    """

    kind: Literal["AddColumns"] = "AddColumns"
    columns: Annotated[tuple[str, ...], Field(min_length=1)]
    only: Literal["Null", "Changed", "All"]


#: Operations that take rows out of the table: those that it had when the epoch began.
Overwrite = OverwriteAll | OverwriteWhere | OverwritePartitions
#: What a commit does to the table. Whoever acts on one matches it, up to `assert_never`: a further one belongs into this union,
#: and says there what its commit has to know, e.g. the version of the table that it replaces.
Operation = Annotated[Append | Overwrite | Upsert | Merge | AddColumns, Field(discriminator="kind")]


def operation_of(sink: Sink, base: Base | None) -> Operation:
    """Return the operation that a manifest asks for, on the table as the epoch found it."""
    match sink.mode:
        case "Append":
            return Append()
        case "OverwriteAll":
            return OverwriteAll(base=base)
        case "OverwriteWhere":
            assert sink.where is not None
            return OverwriteWhere(base=base, where=sink.where)
        case "OverwritePartitions":
            return OverwritePartitions(base=base)
        case "Upsert":
            assert sink.upsert_keys is not None
            return Upsert(keys=sink.upsert_keys, when_matched=sink.when_matched)
        case "AddColumns":
            return AddColumns(columns=sink.columns, only=sink.only)
        case other:
            assert_never(other)


def base_of(operation: Operation, now: Base | None) -> Base | None:
    """Return the base for the next attempt of an epoch, whose last one had this operation; `now`: the table as it is by now.

    It stays what it was, unless the table was made again: then nothing of the old one can be in its way.
    """
    match operation:
        case Append() | Upsert() | Merge() | AddColumns():
            return now
        case OverwriteAll(base=base) | OverwriteWhere(base=base) | OverwritePartitions(base=base):
            is_another = base is not None and now is not None and base.table_identity != now.table_identity
            return now if is_another else base
        case other:
            assert_never(other)


def takes_the_whole_source(operation: Operation) -> bool:
    """Whether each epoch reads all of the source: what it does not give is not in the table afterwards."""
    match operation:
        case Append() | Upsert() | Merge() | AddColumns():
            return False
        case OverwriteAll() | OverwriteWhere() | OverwritePartitions():
            return True
        case other:
            assert_never(other)

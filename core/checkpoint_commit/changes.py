"""What one commit does to a table: an operation, with the staged files of an epoch.

Each format has a module for each operation that it can (such as `iceberg/changes/append.py`), which takes the staged files in and
makes the form that the table's library commits. Where a format takes an operation in is one `match` of it, in the adapter to its
table; what mypy then finds missing is what a further operation has to say: `changes_nothing`, `pack`, the stager of its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, assert_never

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import (
    Append,
    IcebergFile,
    LanceColumnFile,
    LanceFragment,
    Merge,
    Operation,
    OverwriteAll,
    OverwritePartitions,
    OverwriteWhere,
    StagedColumns,
    StagedFile,
    Target,
    Upsert,
)
from checkpoint_protocol.records.formats.operations import AddColumns


class Change(Protocol):
    """An operation with all staged files of an epoch, in the form that its sink has given them."""

    @property
    def operation(self) -> Operation: ...

    def __len__(self) -> int:
        """Return how many staged files it has."""


@dataclass(frozen=True, slots=True)
class StagedChange:
    """A change that no format has given a form yet."""

    operation: Operation
    files: tuple[StagedFile, ...]

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(path for file in self.files for path in file.paths)

    def __len__(self) -> int:
        return len(self.files)


#: Takes all the files of an epoch in, one at a time. `targets` are the tables that they were staged for.
Pack = Callable[[Operation, EpochKey, Sequence[Target], Iterable[StagedFile]], Change]


def as_staged(operation: Operation, _key: EpochKey, _targets: Sequence[Target], files: Iterable[StagedFile]) -> StagedChange:
    """Keep the files themselves."""
    return StagedChange(operation, tuple(files))


def changes_nothing(change: Change, *, has_table: bool) -> bool:
    """Whether the table is to stay as it is: then no commit is made, and the epoch is done all the same.

    `has_table`: False where no attempt got to know a table, as none was there and nothing was put out.
    """
    if len(change) or not has_table:
        return len(change) == 0
    match change.operation:
        case Append() | OverwritePartitions() | Upsert() | Merge():
            return True
        case AddColumns(only=only):
            return only == "Null"  # of all rows, those for which nothing came are NULL
        case OverwriteAll() | OverwriteWhere():
            return False  # what is there goes, and nothing takes its place
        case other:
            assert_never(other)


_Kind = TypeVar("_Kind", bound=IcebergFile | LanceFragment | StagedColumns | LanceColumnFile)


def only(kind: type[_Kind], files: Iterable[StagedFile], title: str) -> Iterator[_Kind]:
    """Pass the files on; refuse one of another kind than the operation takes: it would be passed over, and its rows be lost."""
    for file in files:
        if not isinstance(file, kind):
            raise refused_file(file, title)
        yield file


def refused_file(file: StagedFile, title: str) -> NeedsChange:
    """Return the error for a staged file that is not for this table, or for this operation on it."""
    return NeedsChange(
        reasons.STAGED_RESULT_REFUSED,
        f"a seal names the {file.format} file {', '.join(file.paths)}, which cannot be committed to {title}",
    )

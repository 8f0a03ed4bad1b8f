"""What an epoch takes of one source: what `take` of each format is given, and what these have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.recorded import Identify
from checkpoint_formats.rows.selecting import Selection
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.ledger.epoch_index import FileVersion
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import LaunchRecord, PinnedTable, SourceFile, TakenFile, TakenPartition


@dataclass(frozen=True, slots=True)
class EarlierOf:
    """What the epochs before have taken of one source; a union has several.

    `again` are rows that failed and are to be tried again, from and to, of each file by its path and etag.
    """

    taken: Sequence[TakenFile] = ()
    table: PinnedTable | None = None
    again: Mapping[FileVersion, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    partitions: Sequence[TakenPartition] = ()
    last_epoch: int = 0

    @property
    def files(self) -> dict[str, TakenFile]:
        """As they were taken last, by their paths."""
        return {file.path: file for file in self.taken}


@dataclass(frozen=True, slots=True)
class Taking:
    """What `take` goes by, beside the source, which is member `number` of a union. `found`: the files that it may take."""

    launch: LaunchRecord
    number: int
    selection: Selection
    storage: StorageSettings
    earlier: EarlierOf
    found: Sequence[FoundFile]
    identify: Identify

    @property
    def takes_new(self) -> bool:
        """Whether more is taken than the rows that are tried again."""
        return self.launch.quarantine.retry != "Only"

    @property
    def sets_apart(self) -> bool:
        return self.launch.on_row_error == "Quarantine"


def choose(
    files: Sequence[SourceFile], is_new: Callable[[SourceFile], bool], of: Taking, *, are_files: bool = False
) -> tuple[SourceFile, ...]:
    """Return what of the source's files the epoch takes: all of a new one, of a known one the rows that are tried again."""
    _refuse_lost_rows(files, of, are_files=are_files)
    taken = []
    for file in files:
        if rows := of.earlier.again.get((file.path, file.etag)):
            taken.append(replace(file, only=rows))
        elif of.takes_new and is_new(file):
            taken.append(file)
    return tuple(taken)


def _refuse_lost_rows(files: Sequence[SourceFile], of: Taking, *, are_files: bool) -> None:
    """Rows can be tried again only in the file in which they failed; with onReplaced, the others are passed over."""
    now = {file.path: file.etag for file in files}
    for (path, etag), rows in of.earlier.again.items():
        if of.launch.on_replaced != "Fail" or now.get(path) == etag:
            continue
        if are_files:
            found = f"it now has etag {now[path]}" if path in now else "it is not there any more"
            found, remedy = f"with etag {etag}, and {found}", "put the old file back"
        else:
            found = "and it has changed since" if path in now else "and the table does not have it any more"
            remedy = "set quarantine.retry: Never"
        raise NeedsChange(
            reasons.SOURCE_CHANGED,
            f"{len(rows)} quarantined rows of {path} are to be tried again (quarantine.retry); they failed in it {found}; "
            f"{remedy}, or set onReplaced: Process or Skip to pass them over",
        )

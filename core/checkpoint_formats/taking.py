"""What `take` of each format is given and shares, and files that earlier epochs have known under other names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, TypeVar

from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.source_files import for_each
from checkpoint_formats.rows.selecting import Selection
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.ledger.epoch_index import FileVersion
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import LaunchRecord, PinnedTable, TakenFile, TakenPartition
from checkpoint_protocol.records.inputs import FileColumns, SourceFile


@dataclass(frozen=True, slots=True)
class EarlierOf:
    """What the epochs before have taken of one source; a union has several.

    `again` are rows that failed and are to be tried again, from and to, of each file by its path and etag.
    `columns` are those that taken files name, by their digests. `committed_at` is the snapshot or version in which the epoch that
    has taken `table` was committed.
    """

    taken: Sequence[TakenFile] = ()
    table: PinnedTable | None = None
    again: Mapping[FileVersion, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    partitions: Sequence[TakenPartition] = ()
    last_epoch: int = 0
    columns: Mapping[str, FileColumns] = field(default_factory=dict)
    committed_at: int | None = None

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
    """Return the files that the epoch takes, or parts of them: all of a new one, of a known one the rows that are tried again."""
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


# Files that earlier epochs have recorded, found again in a listing of the source under whatever name they have now.
#
# On disk that is seen surely while the recorded name, or a link, still leads to the file. Where that name is gone, or holds
# something else, there is evidence only: then a person has to say what the file is.


#: Returns what tells the file under a path from all others that are there now; None if there is none.
Identify = Callable[[str], str | None]

_AT_ONCE: Final = 64

_T = TypeVar("_T")
_R = TypeVar("_R")
_File = TypeVar("_File", SourceFile, FoundFile)


def under_recorded_names(files: Sequence[_File], recorded: Collection[str], identify: Identify) -> tuple[_File, ...]:
    """Return the files, sorted by path, each under the name that an earlier epoch has recorded for it, if any has."""
    return renamed(files, recorded_names(files, recorded, identify))


def renamed(files: Sequence[_File], names: Mapping[str, str]) -> tuple[_File, ...]:
    """Return the files, sorted by path, under these names, each by the one that it has."""
    if not names:
        return tuple(files)
    found = (replace(file, path=names[file.path]) if file.path in names else file for file in files)
    return tuple(sorted(found, key=lambda file: file.path))


def recorded_names(
    files: Sequence[SourceFile] | Sequence[FoundFile], recorded: Collection[str], identify: Identify
) -> dict[str, str]:
    """Return the names that earlier epochs have recorded for files, by those that they have now where these are others.

    From then on a file is known by that name alone. One that is not recorded under its name of now is looked for among those that
    the listing does not have under theirs: a link was made or removed since, or another release, or another path of the source,
    spells it otherwise.
    """
    listed = {file.path for file in files}
    unlisted = [path for path in recorded if path not in listed]
    strangers = [file.path for file in files if file.path not in recorded]
    if not unlisted or not strangers:
        return {}
    names: dict[str, str] = {}
    for path, identity in zip(unlisted, _for_each_of_many(identify, unlisted), strict=True):
        if identity is not None:
            names.setdefault(identity, path)
    return {
        path: names[identity]
        for path, identity in zip(strangers, _for_each_of_many(identify, strangers), strict=True)
        if identity is not None and identity in names
    }


def find_moved(
    files: Sequence[SourceFile], recorded: Iterable[TakenFile], is_gone: Callable[[TakenFile], bool]
) -> dict[str, TakenFile]:
    """Return, by their paths, those of new files that seem to be recorded ones under another name, each with what it was.

    What a name held is told by its etag and size; on disk the etag has inode and time, and outlives a rename. In a bucket it may
    be a digest, and equal content is no evidence while the recorded file is still there. A file without rows says nothing.
    """
    new = {(file.etag, file.size_bytes) for file in files if _has_rows(file)}
    if not new:
        return {}
    alike = [file for file in recorded if (file.etag, file.size_bytes) in new]
    gone = {
        (file.etag, file.size_bytes): file for file, is_so in zip(alike, _for_each_of_many(is_gone, alike), strict=True) if is_so
    }
    return {file.path: before for file in files if (before := gone.get((file.etag, file.size_bytes))) is not None}


def _has_rows(file: SourceFile) -> bool:
    return file.end is None or file.start < file.end


def _for_each_of_many(work: Callable[[_T], _R], items: Sequence[_T]) -> Iterator[_R]:
    """As `for_each`, where each takes so little that handing it to a thread would take longer."""
    parts = [items[start : start + _AT_ONCE] for start in range(0, len(items), _AT_ONCE)]
    return chain.from_iterable(for_each(lambda part: [work(item) for item in part], parts))

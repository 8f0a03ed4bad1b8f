"""Files that earlier epochs have recorded, found again in a listing of the source under whatever name they have now.

On disk that is seen surely while the recorded name, or a link, still leads to the file. Where that name is gone, or holds
something else, there is evidence only: then a person has to say what the file is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, TypeVar

from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.source_files import for_each
from checkpoint_protocol.records import SourceFile, TakenFile

#: Returns what tells the file under a path from all others that are there now; None if there is none.
Identify = Callable[[str], str | None]

_AT_ONCE: Final = 64

_T = TypeVar("_T")
_R = TypeVar("_R")
_File = TypeVar("_File", SourceFile, FoundFile)


def under_recorded_names(files: Sequence[_File], recorded: Collection[str], identify: Identify) -> tuple[_File, ...]:
    """Return the files, sorted by path, each under the name that an earlier epoch has recorded for it, if any has.

    From then on a file is known by that name alone. One that is not recorded under its name of now is looked for among those that
    the listing does not have under theirs: a link was made or removed since, or another release, or another path of the source,
    spells it otherwise.
    """
    listed = {file.path for file in files}
    unlisted = [path for path in recorded if path not in listed]
    strangers = [file.path for file in files if file.path not in recorded]
    if not unlisted or not strangers:
        return tuple(files)
    names: dict[str, str] = {}
    for path, identity in zip(unlisted, _for_each_of_many(identify, unlisted), strict=True):
        if identity is not None:
            names.setdefault(identity, path)
    renamed = {
        path: names[identity]
        for path, identity in zip(strangers, _for_each_of_many(identify, strangers), strict=True)
        if identity is not None and identity in names
    }
    found = (replace(file, path=renamed[file.path]) if file.path in renamed else file for file in files)
    return tuple(sorted(found, key=lambda file: file.path))


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

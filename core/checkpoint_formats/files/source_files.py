"""The files of a source wherever they lie: found, described, and read in parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, TypeVar

import pyarrow as pa

from checkpoint_formats.failures import changed
from checkpoint_formats.files.buckets import Buckets
from checkpoint_formats.files.disk import Disk
from checkpoint_formats.files.locations import FoundFile
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.outputs import find_file_in, refuse
from checkpoint_protocol.places.patterns import is_wild, split
from checkpoint_protocol.places.source_paths import Location, better_name, is_folder, locate
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.places.uris import hint_on_pattern
from checkpoint_protocol.records import Output
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.store.parallel import in_threads, streamed

#: Of a store that takes 30 ms for an answer, 2,000 a second; S3 gives 5,500 a second of one prefix.
_AT_ONCE: Final = 64
_MOST_AT_A_TIME: Final = 32
#: A request for a file that takes longer than this waits for something: to hand it to a thread takes a third of that.
_FAST_S: Final = 0.000_3
_SLOW_IN_A_ROW: Final = 2
#: After so many side by side, a few are requested one by one again: a disk may only have been busy.
_SIDE_BY_SIDE: Final = 4_096
#: A thread gets its share of these in so many parts: to hand over single ones takes longer than to read a file that is in memory.
_TURNS: Final = 4

_T = TypeVar("_T")
_R = TypeVar("_R")


class SourceFiles:
    """Input files on disk and in buckets, by the paths that are recorded. Safe to use from several threads.

    `outputs` are the places that the write puts its own files to: to find one there is NeedsChange(ManifestInvalid).
    `settings_place`: where it stands how buckets are reached, for messages.

    All methods raise Retryable where a store does not answer, NeedsChange(CredentialsRefused) where it refuses us.
    """

    def __init__(self, storage: StorageSettings, outputs: Sequence[Output] = ()) -> None:
        self.settings_place = storage.place
        self._outputs = outputs
        self._disk = Disk()
        self._buckets = Buckets(storage)

    def expand(self, paths: Sequence[str]) -> tuple[FoundFile, ...]:
        """Return the files that the paths mean (files, folders, patterns), each once, sorted by path.

        One that is found under several names goes by the one that no link leads to, else by the first. NeedsChange(SourceMissing)
        names a path that means no file.
        """
        files = each_once(chain.from_iterable(map(self._find_some, paths)))
        refuse(find_file_in(self._outputs, (file.path for file in files)))
        return files

    def _find_some(self, path: str) -> Iterator[FoundFile]:
        is_empty = True
        for file in self.find(path):
            is_empty = False
            yield file
        if is_empty:
            raise NeedsChange(reasons.SOURCE_MISSING, f"source: {path}: {what_is_missing(path)}, or put the files there")

    def find(self, path: str) -> Iterable[FoundFile]:
        """Give the files that one path means, in any order, perhaps some under several names; none if it means none."""
        location = locate(path)
        folder, pattern = split(location.key)
        if not pattern.segments and not is_folder(path):
            file = self._medium(location).head(location.at(folder))
            if file is not None:
                return [file]
        return self._medium(location).walk(location.at(folder), pattern)

    def head(self, path: str) -> FoundFile | None:
        """Return the file as it is now; None if there surely is none."""
        location = locate(path)
        return self._medium(location).head(location)

    def identify(self, path: str) -> str | None:
        """Return what tells the file under a path from all others that are there now, whatever it is called; None: there is none.

        An object of a bucket need not be there.
        """
        location = locate(path)
        return self._medium(location).identify(location)

    def check_unchanged(self, file: SourceFile | FoundFile) -> None:
        """Raise NeedsChange(SourceChanged) if the file is no longer the one that was found or described."""
        now = self.head(file.path)
        if now is None:
            raise changed(file.path, f"its etag was {file.etag}, now it is not there")
        if (now.etag, now.size_bytes) != (file.etag, file.size_bytes):
            raise changed(
                file.path,
                f"its etag was {file.etag} and is {now.etag}, it had {file.size_bytes} bytes and has {now.size_bytes}",
            )

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Return the bytes of a range: fewer where the file ends in it. NeedsChange(SourceChanged) if it starts after the end."""
        if start >= end:
            return b""
        location = locate(path)
        return self._medium(location).read_range(location, start, end)

    def open_arrow(self, path: str) -> pa.NativeFile:
        """Return the file for pyarrow: reads from any place of it, each straight from the store."""
        location = locate(path)
        return self._medium(location).open_arrow(location)

    def _medium(self, location: Location) -> Disk | Buckets:
        return self._buckets if location.root else self._disk


def for_each(work: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    """Do something with many files at once, waiting for the store most of the time. The first error ends it."""
    return list(streamed_each(work, items))


def streamed_each(work: Callable[[_T], _R], items: Sequence[_T], clock: Callable[[], float] = time.monotonic) -> Iterator[_R]:
    """Give the results in the order of the files, some ahead: of a million files not all are in memory at once.

    One by one as long as that is fast, as on a local disk, where threads only wait for each other (five times the time); while
    requests wait for a store, many at once.
    """
    at = 0
    while at < len(items):
        count, slow = 1, 0
        while slow < _SLOW_IN_A_ROW and at < len(items):
            results: list[_R] = []
            waited = 0
            for item in items[at : at + count]:
                started = clock()
                results.append(work(item))
                waited += clock() - started >= _FAST_S
            # Most of them: a machine that has more to do than cores holds up a few, and these for long.
            slow = slow + 1 if 2 * waited > len(results) else 0
            yield from results
            at, count = at + len(results), min(2 * count, _MOST_AT_A_TIME)
        block = items[at : at + _SIDE_BY_SIDE]
        size = max(1, len(block) // (_AT_ONCE * _TURNS))
        parts = [block[start : start + size] for start in range(0, len(block), size)]
        yield from chain.from_iterable(streamed(in_threads, lambda part: [work(item) for item in part], parts, _AT_ONCE))
        at += _SIDE_BY_SIDE


def each_once(files: Iterable[FoundFile]) -> tuple[FoundFile, ...]:
    """Return files, sorted by path, each under one name: the one that no link leads to, else the first."""
    found: dict[tuple[str, str], FoundFile] = {}
    for file in files:
        # The etag too: what has one identity in two states, within one listing, cannot be told apart from two files.
        version = (file.identity, file.etag)
        known = found.get(version, file)
        if known is file or better_name(known.path, file.path) == file.path:
            found[version] = file
    return tuple(sorted(found.values(), key=lambda file: file.path))


def what_is_missing(path: str) -> str:
    """Say of a path that means no file what is wrong with it, and one way out."""
    problem = "the pattern matches no file" if is_wild(path) else "there is no such file, and no folder with files"
    passed_over = "in folders and patterns, names that start with . or _ are passed over, but not _key=value"
    hint = hint_on_pattern(path)
    return f"{problem} ({passed_over}); correct the path{hint and f' ({hint})'}"

"""Records that are too large for one object: cut into parts, which are put before the record that names them.

    staged/<uid>/<epoch>/input/<token>.json      files of an input
    staged/<uid>/<epoch>/<n>/plan/<token>.json   tasks of a plan

A part is nobody's until the record that names it stands: a driver that dies before, or whose record does not win, leaves parts
that nobody reads. It is named by a random token, so two drivers never put one object, and by the digest of its bytes, so that
what is read is what was put. Pure.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, TypeVar, overload

from pydantic import TypeAdapter

from checkpoint_protocol.records import InputIndexRecord, InputRecord, InputTotals, KeyColumn, PinnedTable, Retried, StoredPart
from checkpoint_protocol.records.inputs import FileColumns, SourceFile
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.store.memory import reading

#: So many items are measured at once.
_STEP: Final = 1_000
#: Two, for whoever goes back a little at the border of two parts.
_KEPT: Final = 2

_Item = TypeVar("_Item")

_FILES: Final[TypeAdapter[Sequence[SourceFile]]] = TypeAdapter(tuple[SourceFile, ...])
_TASKS: Final[TypeAdapter[Sequence[tuple[Range, ...]]]] = TypeAdapter(tuple[tuple[Range, ...], ...])


def cut_files(files: Sequence[SourceFile], part_bytes: int) -> list[Sequence[SourceFile]]:
    """Return the files in pieces that take about so many bytes as they are stored; none of them is empty."""
    return _cut(files, part_bytes, lambda some: len(_FILES.dump_json(tuple(some))))


def cut_tasks(tasks: Sequence[tuple[Range, ...]], part_bytes: int) -> list[Sequence[tuple[Range, ...]]]:
    """Return the tasks in pieces that take about so many bytes as they are stored; none of them is empty."""
    return _cut(tasks, part_bytes, lambda some: len(_TASKS.dump_json(tuple(some))))


def _cut(items: Sequence[_Item], part_bytes: int, size_of: Callable[[Sequence[_Item]], int]) -> list[Sequence[_Item]]:
    pieces: list[Sequence[_Item]] = []
    begin = at = size_bytes = 0
    while at < len(items):
        step = min(_STEP, len(items) - at)
        while (more := size_of(items[at : at + step])) > part_bytes and step > 1:
            step = max(1, step // 2)
        if at > begin and size_bytes + more > part_bytes:
            pieces.append(items[begin:at])
            begin, size_bytes = at, 0
        size_bytes += more
        at += step
    if begin < len(items):
        pieces.append(items[begin:])
    return pieces


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class FilesInParts(Sequence[SourceFile]):
    """The files of an input that is in parts. Each part is read when one of its files is asked for; the last two are kept.

    Safe to use from several threads, each of which then reads for itself. Raises what `load` does.
    """

    def __init__(self, parts: Sequence[StoredPart], load: Callable[[StoredPart], tuple[SourceFile, ...]]) -> None:
        self._parts, self._load = parts, load
        self._starts = list(accumulate((part.count for part in parts), initial=0))
        self._kept: tuple[tuple[int, tuple[SourceFile, ...]], ...] = ()

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> SourceFile: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[SourceFile]: ...
    def __getitem__(self, index: int | slice) -> SourceFile | Sequence[SourceFile]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        part = bisect_right(self._starts, index) - 1
        return self._files_of(part)[index - self._starts[part]]

    def __iter__(self) -> Iterator[SourceFile]:
        for part in self._parts:
            with reading():
                yield from self._load(part)

    def _files_of(self, number: int) -> tuple[SourceFile, ...]:
        for kept, files in self._kept:
            if kept == number:
                return files
        files = self._load(self._parts[number])
        self._kept = ((number, files), *self._kept[: _KEPT - 1])
        return files


@dataclass(frozen=True, slots=True)
class InputInParts:
    """An input in parts as its readers see it: like an InputRecord, and its files are read as they are needed."""

    index: InputIndexRecord
    files: FilesInParts

    @property
    def token(self) -> str:
        return self.index.token

    @property
    def totals(self) -> InputTotals:
        return self.index.totals

    @property
    def arrow_schema(self) -> str:
        return self.index.arrow_schema

    @property
    def tables(self) -> tuple[PinnedTable | None, ...]:
        return self.index.tables

    @property
    def file_columns(self) -> tuple[FileColumns, ...]:
        return self.index.file_columns

    @property
    def keys(self) -> tuple[KeyColumn, ...]:
        return ()

    @property
    def retried(self) -> Retried | None:
        return None


#: The input of an epoch, for whoever reads it. `totals` are known without reading files.
Input = InputRecord | InputInParts

"""The plan of an attempt: which task reads which positions. Pure but for the alignment that a reader does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.records import MAX_TASKS
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range, merge, subtract

_TASKS_PER_CORE: Final = 3
_SMALLEST_TASK_BYTES: Final = 512
#: A file is not cut for less than this part of a task: that is a file more to open, twice.
_SLACK: Final = 1 / 16
#: A border is moved by this part of a task at the most, to where reading starts with less to read.
_NEAR: Final = 1 / 8

#: A file that is a single row counts for this much more: it is opened, and a step has the work of a row, however small it is.
_ROW_BYTES: Final = 256 << 10

#: A task has no more pieces of files: what it is told, and each of its seals, stays below a megabyte.
MOST_PIECES: Final = 10_000

Align = Callable[[SourceFile, int, int], int]


def whole(files: Sequence[SourceFile]) -> tuple[Range, ...]:
    """Return all positions of the input."""
    return merge(_pieces(files))


def _pieces(files: Sequence[SourceFile]) -> Iterator[Range]:
    return (piece for index, file in enumerate(files) for piece in file.ranges(index))


def _size_bytes(files: Sequence[SourceFile], piece: Range) -> int:
    """Estimate how many bytes of its file a piece is, or takes as long as."""
    file = files[piece.file]
    if file.unit == "rows" and file.end is not None and file.end - file.start == 1:
        return file.size_bytes + _ROW_BYTES
    if piece.end is None or file.end is None or file.end <= file.start:
        return file.size_bytes
    return round(file.size_bytes * (piece.end - piece.start) / (file.end - file.start))


def plan_tasks(
    files: Sequence[SourceFile],
    covered: Sequence[Range],
    align: Align,
    parallelism: int,
    split_size_bytes: int,
    most_pieces: int = MOST_PIECES,
    most_tasks: int = MAX_TASKS,
) -> tuple[tuple[Range, ...], ...]:
    """Return the positions that are not covered, dealt to tasks of equal size in the order of the input.

    There are some tasks for each core, so that a slow one does not hold up the rest; however few bytes there are, since what
    takes time is the steps and not the reading. A file is cut where a task is full, so that no core works on a last large task
    while the others have nothing left; but not for a small rest of it, and not text that can only be read from its start. Of very
    small files a task has so many that it takes as long to open them as to read a large one. Files that are a single row each are
    dealt by their bytes and by their number.

    NeedsChange(RecordTooLarge) for more tasks than an attempt may have.
    """
    remaining = subtract(_pieces(files), covered)
    total_bytes = sum(_size_bytes(files, piece) for piece in remaining)
    wanted = max(parallelism * _TASKS_PER_CORE, round(total_bytes / split_size_bytes))
    dealing = _Dealing(total_bytes / max(1, min(wanted, total_bytes // _SMALLEST_TASK_BYTES)), most_pieces, most_tasks)
    for piece in remaining:
        rest, rest_bytes = piece, float(_size_bytes(files, piece))
        while (border := _border(files, rest, rest_bytes, align, dealing)) is not None:
            size_bytes = rest_bytes * (border - rest.start) / (_end(rest) - rest.start)
            dealing.deal(Range(file=rest.file, start=rest.start, end=border), size_bytes)
            dealing.begin_another()
            rest, rest_bytes = Range(file=rest.file, start=border, end=rest.end), rest_bytes - size_bytes
        if rest_bytes > 2 * dealing.room_bytes and not _can_be_cut(files[rest.file], rest):
            dealing.begin_afresh()
        dealing.deal(rest, rest_bytes)
        if dealing.room_bytes <= dealing.slack_bytes:
            dealing.begin_another()
    return dealing.finish()


@dataclass(slots=True)
class _Dealing:
    """Tasks that are filled one after the other. What one has too much or too little, the next makes up for."""

    share_bytes: float
    most_pieces: int
    most_tasks: int
    tasks: list[tuple[Range, ...]] = field(default_factory=list)
    room_bytes: float = field(init=False)
    _task: list[Range] = field(default_factory=list)
    _dealt_bytes: float = 0.0

    def __post_init__(self) -> None:
        self.room_bytes = self.share_bytes

    @property
    def slack_bytes(self) -> float:
        return self.share_bytes * _SLACK

    def deal(self, piece: Range, size_bytes: float) -> None:
        if len(self._task) == self.most_pieces:
            self.begin_afresh()
        self._task.append(piece)
        self.room_bytes -= size_bytes
        self._dealt_bytes += size_bytes

    def begin_another(self) -> None:
        """End the task that is being filled, if there is anything in it."""
        if self._task:
            if len(self.tasks) == self.most_tasks:
                raise NeedsChange(
                    reasons.RECORD_TOO_LARGE,
                    f"the input makes more than {self.most_tasks:,} tasks of about {round(self.share_bytes):,} bytes, and no "
                    "attempt has more; let splitSize of the source be larger, or give it fewer files",
                )
            self.tasks.append(tuple(self._task))
            self._task, self._dealt_bytes = [], 0.0
            # But for much too much, of a piece that could not be cut.
            self.room_bytes = self.share_bytes + max(self.room_bytes, -self.share_bytes / 2)

    def begin_afresh(self) -> None:
        """End the task, whose room is too small for what comes, and forget about that room."""
        self.begin_another()
        self.room_bytes = self.share_bytes

    def finish(self) -> tuple[tuple[Range, ...], ...]:
        """Return the tasks; crumbs go to the last one."""
        fits = self.tasks and len(self.tasks[-1]) + len(self._task) <= self.most_pieces
        if fits and self._dealt_bytes <= self.slack_bytes:
            self._task = [*self.tasks.pop(), *self._task]
        self.begin_another()
        return tuple(self.tasks)


def _border(files: Sequence[SourceFile], rest: Range, rest_bytes: float, align: Align, dealing: _Dealing) -> int | None:
    """Return where to cut the rest of a piece so that the task is full; None: it is to be dealt as it is."""
    file = files[rest.file]
    if not _can_be_cut(file, rest):
        return None
    room_bytes = dealing.room_bytes
    while rest_bytes > room_bytes + dealing.slack_bytes:
        near_bytes = min(dealing.share_bytes * _NEAR, room_bytes / 2)
        room, near = (round((_end(rest) - rest.start) * part / rest_bytes) for part in (room_bytes, near_bytes))
        border = align(file, rest.start + room, near)
        if rest.start < border < _end(rest):
            return border
        # Not a single row of it fits: then more than there is room for.
        room_bytes += dealing.share_bytes
    return None


def _can_be_cut(file: SourceFile, piece: Range) -> bool:
    """Whether reading may start within it."""
    return file.unit != "records" and piece.end is not None and piece.end - piece.start > 1


def _end(piece: Range) -> int:
    assert piece.end is not None
    return piece.end

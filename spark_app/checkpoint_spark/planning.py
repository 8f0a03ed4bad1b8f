"""The plan of an attempt: which task reads which positions. Pure but for the alignment that a reader does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from checkpoint_protocol.positions import Range, merge, subtract
from checkpoint_protocol.records import SourceFile

_TASKS_PER_CORE: Final = 3
_SMALLEST_SPLIT_BYTES: Final = 512

Align = Callable[[SourceFile, int], int]


def whole(files: Sequence[SourceFile]) -> tuple[Range, ...]:
    """Return all positions of the input."""
    return merge(piece for index, file in enumerate(files) for piece in file.ranges(index))


def _size_bytes(files: Sequence[SourceFile], piece: Range) -> int:
    """Estimate how many bytes of its file a piece is."""
    file = files[piece.file]
    if piece.end is None or file.end is None or file.end <= file.start:
        return file.size_bytes
    return round(file.size_bytes * (piece.end - piece.start) / (file.end - file.start))


def plan_tasks(
    files: Sequence[SourceFile], covered: Sequence[Range], align: Align, parallelism: int, split_size_bytes: int
) -> tuple[tuple[Range, ...], ...]:
    """Return the positions that are not covered, cut into splits of like size and dealt to tasks in the order of the input.

    There are some tasks for each core, so that a slow one does not hold up the rest; however few bytes there are, since what
    takes time is the steps and not the reading. Text that can only be read from its start is one split per file.
    """
    remaining = subtract(whole(files), covered)
    total_bytes = sum(_size_bytes(files, piece) for piece in remaining)
    wanted_bytes = total_bytes // (parallelism * _TASKS_PER_CORE) + 1
    split_bytes = max(_SMALLEST_SPLIT_BYTES, min(wanted_bytes, split_size_bytes))

    tasks: list[tuple[Range, ...]] = []
    task: list[Range] = []
    task_bytes = 0
    for piece in remaining:
        for split in _cut(files, piece, align, split_bytes):
            size_bytes = _size_bytes(files, split)
            if task and task_bytes + size_bytes > split_bytes * 1.25:
                tasks.append(tuple(task))
                task, task_bytes = [], 0
            task.append(split)
            task_bytes += size_bytes
    if task:
        tasks.append(tuple(task))
    return tuple(tasks)


def _cut(files: Sequence[SourceFile], piece: Range, align: Align, split_bytes: int) -> list[Range]:
    file = files[piece.file]
    size_bytes = _size_bytes(files, piece)
    count = min(round(size_bytes / split_bytes), piece.end - piece.start) if piece.end is not None else 1
    if file.unit == "records" or piece.end is None or count <= 1:
        return [piece]
    length = piece.end - piece.start
    borders = [piece.start]
    for number in range(1, count):
        border = align(file, piece.start + length * number // count)
        if borders[-1] < border < piece.end:
            borders.append(border)
    borders.append(piece.end)
    return [Range(file=piece.file, start=borders[i], end=borders[i + 1]) for i in range(len(borders) - 1)]

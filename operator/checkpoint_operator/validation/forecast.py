"""What a run would do, as bounds: nobody knows the number of data files before the steps have run.

The rules are the Spark application's (`checkpoint_spark.planning`): tasks of equal size, some for each core.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from checkpoint_operator.validation.checkpoint import CheckpointSeen
from checkpoint_operator.validation.report import Bounds, Prediction
from checkpoint_operator.validation.source import SourceSeen
from checkpoint_operator.validation.target import TargetSeen
from checkpoint_protocol.manifest import Spec
from checkpoint_protocol.quantities import format_duration, format_size

_TASKS_PER_CORE: Final = 3
_SMALLEST_TASK_BYTES: Final = 512
#: A task is filled up to this many times its share: both its borders may have been moved by an eighth to a row group ...
_FULLEST_TASK: Final = 1.25
#: ... or to this many times with a file that cannot be cut, if that is not too large for the room that is left.
_FULLEST_TASK_WITH_WHOLE_FILE: Final = 2.25
#: What would be less than this part of a last task goes to the one before.
_CRUMBS: Final = 1 / 16
#: So many files, or pieces of files, are in one task at the most.
_MOST_PIECES: Final = 10_000
#: Text is cut at the next line.
_LONGEST_LINE_BYTES: Final = 64 << 10


_PLACES: Final = {
    "parquet": ("files", "file and its place in it (row number)"),
    "csv": ("files", "file and its place in it (byte)"),
    "json": ("files", "file and its place in it (byte)"),
    "iceberg": ("an Iceberg table", "data file and its number in it, at the snapshot that the first attempt sees"),
    "lance": ("a Lance dataset", "fragment and its number in it, at the version that the first attempt sees"),
}


def predict(spec: Spec, source: SourceSeen, target: TargetSeen, checkpoint: CheckpointSeen, cores: int) -> Prediction:
    """Say what a run of the whole source would do on a machine with so many cores."""
    tasks = _tasks(source, cores, spec.source.split_size)
    what, place = _PLACES[spec.source.format]
    whole = f"; {len(source.whole)} of them can only be read from the start, by one task each" if source.whole else ""
    where = "; where may leave files out, and takes no more rows than there are" if spec.source.where is not None else ""
    return Prediction(
        source_files=len(source.files),
        source_bytes=source.size_bytes,
        source_rows=source.rows,
        columns=source.read,
        way="splits",
        why=f"the source is {what}, so a row is known by its {place}, and needs no key{whole}{where}",
        cores=cores,
        tasks=tasks,
        data_files=_data_files(spec, source, target, tasks),
        target=target.title,
        target_exists=target.exists,
        target_would_be_created=target.exists is False and spec.sink.create,
        checkpoint_uri=spec.checkpoint.uri,
        checkpoint_exists=checkpoint.exists,
        write=_write_text(checkpoint),
    )


def predict_dataframe(spec: Spec, target: TargetSeen, checkpoint: CheckpointSeen, cores: int) -> Prediction:
    """Say what a run over Spark would do, as far as that is known without Spark."""
    what = spec.source.why_this_way
    keys = ", ".join(spec.source.key_columns)
    return Prediction(
        source_files=None,
        source_bytes=None,
        source_rows=None,
        columns=(),
        way="dataframes",
        why=f"{what} ({keys}), and a resume first counts the rows that it passes over",
        cores=cores,
        tasks=Bounds(at_least=0, at_most=None, why="one for each partition of Spark's plan"),
        data_files=Bounds(
            at_least=0,
            at_most=0 if spec.sink.none is not None else None,
            why="there is no table" if spec.sink.none is not None else "some for each partition of Spark's plan that has rows",
        ),
        target=target.title,
        target_exists=target.exists,
        target_would_be_created=target.exists is False and spec.sink.create,
        checkpoint_uri=spec.checkpoint.uri,
        checkpoint_exists=checkpoint.exists,
        write=_write_text(checkpoint),
    )


def _tasks(source: SourceSeen, cores: int, most_bytes: int) -> Bounds:
    """Bound the number of tasks.

    A file without rows is in no task and does not count for their size; those that were not opened may be such.
    """
    filled_bytes = sum(file.size_bytes for file in source.filled)
    all_bytes = filled_bytes + sum(file.size_bytes for file in source.unopened)
    # The share of a task is the quotient, which is not the larger for more bytes: it is bounded for each rule that may hold.
    largest = max(2 * _SMALLEST_TASK_BYTES, min(all_bytes / (cores * _TASKS_PER_CORE), most_bytes * 7 / 6))
    whole = [file.size_bytes for file in source.filled if file.path in source.whole]
    alone = [size_bytes for size_bytes in whole if size_bytes > largest * _FULLEST_TASK_WITH_WHOLE_FILE]
    fullest = _FULLEST_TASK_WITH_WHOLE_FILE if whole else _FULLEST_TASK
    fullest_bytes = largest * fullest + _LONGEST_LINE_BYTES
    shared_bytes = filled_bytes - sum(alone) - largest * _CRUMBS
    least = max(len(alone) + ceil(max(0, shared_bytes) / fullest_bytes), 1 if filled_bytes else 0)
    # Tasks that have as many files as a task may have, and are full before they are as large as the others.
    least = max(least, ceil(len(source.filled) / _MOST_PIECES))
    can_be_cut = any(file.path not in source.whole for file in (*source.filled, *source.unopened))
    most = len(source.whole) + (_count(all_bytes, cores, most_bytes) if can_be_cut else 0)
    most += (len(source.files) + most) // _MOST_PIECES
    return Bounds(
        at_least=min(least, most),
        at_most=most,
        why=f"tasks of about {round(all_bytes / _count(all_bytes, cores, most_bytes)):,} bytes"
        if most
        else "there is nothing to read",
    )


def _count(total_bytes: int, cores: int, most_bytes: int) -> int:
    """Return how many tasks there are to be, if every file can be cut anywhere."""
    return max(1, min(max(cores * _TASKS_PER_CORE, round(total_bytes / most_bytes)), total_bytes // _SMALLEST_TASK_BYTES))


def _data_files(spec: Spec, source: SourceSeen, target: TargetSeen, tasks: Bounds) -> Bounds:
    if spec.sink.none is not None:
        return Bounds(at_least=0, at_most=0, why="there is no table")
    if tasks.at_most == 0:
        return Bounds(at_least=0, at_most=0, why="there is nothing to read")
    is_partitioned = target.is_partitioned or (target.exists is False and bool(spec.sink.partition_by))
    each = "one for each task, segment and partition value" if is_partitioned else "one for each task and segment"
    interval, minimum = format_duration(spec.checkpoint.interval), format_size(spec.checkpoint.minimum_bytes)
    why = (
        f"{each}; a task has one segment, and a further one whenever {interval} have passed and {minimum} were given; "
        f"files are rolled near {format_size(spec.sink.target_file_size)}"
    )
    if spec.steps:
        why += "; where the steps give no rows there is none"
    return Bounds(at_least=tasks.at_least if source.rows and not spec.steps else 0, at_most=None, why=why)


def _write_text(checkpoint: CheckpointSeen) -> str:
    status = checkpoint.status
    if status is None:
        return "the store could not be asked"
    if status.uid is None:
        return "not begun: a run would begin it"
    if status.phase == "Committed":
        return f"committed (epoch {status.epoch}): a run would do nothing; change runNonce to take files that came since"
    if status.phase == "NotStarted":
        return f"epoch {status.epoch} is not begun: a run would begin it, with the files that no earlier epoch has had"
    return (
        f"{status.phase} (epoch {status.epoch}, attempt {status.attempt}): a run would go on from there; "
        f"{status.sealed.rows_read:,} rows are sealed, and the numbers above are of the whole source"
    )

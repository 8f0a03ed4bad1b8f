"""What a run would do, as bounds: nobody knows the number of data files before the steps have run.

The tasks are planned as a driver plans them.
"""

from __future__ import annotations

import math

from checkpoint_commit.sinks.port import TargetSeen
from checkpoint_control.validation.checkpoint import CheckpointSeen
from checkpoint_control.validation.report import Bounds, Prediction
from checkpoint_control.validation.source import SourceSeen
from checkpoint_control.validation.target import what_a_commit_does
from checkpoint_formats.planning import plan_tasks
from checkpoint_protocol.deadlines import longest_segment_s
from checkpoint_protocol.manifest.quantities import counted, format_duration, format_size
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.records import operation_of, takes_the_whole_source


def predict(spec: Spec, source: SourceSeen, target: TargetSeen, checkpoint: CheckpointSeen, cores: int) -> Prediction:
    """Say what a run of the whole source would do on a machine with so many cores."""
    tasks = _tasks(source, cores, spec.source.split_size)
    place = " or ".join(dict.fromkeys(member.row_position for member in spec.source.members))
    from_start = sum(1 for file in source.opened if file.unit == "records")
    whole = f"; {counted(from_start, 'file')} can only be read from the start, by one task each" if from_start else ""
    where = "; where may leave files out, and takes no more rows than there are" if spec.source.where is not None else ""
    return Prediction(
        source_files=len(source.files),
        source_bytes=source.size_bytes,
        source_rows=source.rows,
        columns=source.read,
        row_identity=f"{place}{whole}{where}",
        cores=cores,
        tasks=tasks,
        data_files=_data_files(spec, source, target, tasks),
        target=target.title,
        target_exists=target.exists,
        target_would_be_created=target.exists is False and spec.sink.create,
        what_a_commit_does=what_a_commit_does(spec.sink),
        checkpoint_uri=spec.checkpoint.uri,
        checkpoint_exists=checkpoint.exists,
        a_crash_costs=_a_crash_costs(spec),
        write=_write_text(checkpoint, spec),
        not_tried=_not_tried(spec, target, checkpoint),
    )


def predict_keyed(spec: Spec, target: TargetSeen, checkpoint: CheckpointSeen, cores: int) -> Prediction:
    """Say what a run over Spark would do, as far as that is known without Spark."""
    counted = "" if spec.source.stream is not None else "; a resume first counts the rows that it passes over"
    return Prediction(
        source_files=None,
        source_bytes=None,
        source_rows=None,
        columns=(),
        row_identity=f"{spec.source.row_identity}{counted}",
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
        what_a_commit_does=what_a_commit_does(spec.sink),
        checkpoint_uri=spec.checkpoint.uri,
        checkpoint_exists=checkpoint.exists,
        a_crash_costs=_a_crash_costs(spec),
        write=_write_text(checkpoint, spec),
        not_tried=_not_tried(spec, target, checkpoint),
    )


def _not_tried(spec: Spec, target: TargetSeen, checkpoint: CheckpointSeen) -> str:
    """Say what only a run would find out."""
    parts = []
    if any(True for _ in spec.placed_steps()) or spec.sink.audit is not None:
        parts.append("importing and calling the code, which was only parsed (nor were modules that it imports looked for)")
    if spec.source.keyed is not None or spec.source.stream is not None:
        parts.append("reading the source with Spark")
    if spec.sink.none is None:
        parts.append("writing to the table" if target.exists else "making the table and writing to it")
    if checkpoint.exists is False:
        parts.append("put-if-absent in the checkpoint store, which a run would make")
    return "; ".join(parts) or "nothing that a run does"


def _tasks(source: SourceSeen, cores: int, split_bytes: int) -> Bounds:
    """Plan the files that were opened, as a driver does."""
    tasks = len(plan_tasks(source.opened, (), source.align, cores, split_bytes))
    size_bytes = sum(file.size_bytes for file in source.opened if file.has_positions)
    if source.unopened:
        share = source.size_bytes / max(1, size_bytes)
        about = max(tasks, round(source.size_bytes / split_bytes))
        return Bounds(
            at_least=1, at_most=None, why=f"about {about:,}, if the {share:.0f} times as many bytes are like those seen"
        )
    each = f"tasks of about {round(size_bytes / tasks):,} bytes" if tasks else "there is nothing to read"
    return Bounds(at_least=tasks, at_most=tasks, why=each)


def _data_files(spec: Spec, source: SourceSeen, target: TargetSeen, tasks: Bounds) -> Bounds:
    if spec.sink.none is not None:
        return Bounds(at_least=0, at_most=0, why="there is no table")
    if tasks.at_most == 0:
        return Bounds(at_least=0, at_most=0, why="there is nothing to read")
    is_partitioned = target.is_partitioned or (target.exists is False and bool(spec.sink.partition_by))
    each = "one for each task, segment and partition value" if is_partitioned else "one for each task and segment"
    interval, minimum = format_duration(spec.checkpoint.interval), format_size(spec.checkpoint.minimum_bytes)
    why = (
        f"{each}; a task has one segment, and a further one after {interval}, or where they gave less than {minimum}, after a "
        f"twentieth of the time that the task has been at work, if that is longer; "
        f"files are rolled near {format_size(spec.sink.file_size_bytes(target.file_size_bytes))}"
    )
    has_steps = spec.last_step is not None
    if has_steps:
        why += "; where the steps give no rows there is none"
    return Bounds(at_least=tasks.at_least if source.rows and not has_steps else 0, at_most=None, why=why)


def _a_crash_costs(spec: Spec) -> str:
    interval_s, rows = spec.checkpoint.interval, spec.checkpoint.maximum_rows
    most = f"{format_duration(interval_s)} of each task's work"
    if spec.checkpoint.minimum_bytes:
        most += (
            f", or a twentieth of the time that it has been at work, if that is longer (at most "
            f"{format_duration(longest_segment_s(math.inf, interval_s))})"
        )
    return f"at most {most}" + (f", or {counted(rows, 'row')}, if that is less" if rows is not None else "")


def _write_text(checkpoint: CheckpointSeen, spec: Spec) -> str:
    status = checkpoint.status
    if status is None:
        return "the store could not be asked"
    if status.uid is None:
        return "not begun: a run would begin it"
    if status.phase == "Committed" and (spec.source.stream is not None or spec.trigger is not None):
        return f"committed (epoch {status.epoch}): a run would take what came since"
    takes_all = takes_the_whole_source(operation_of(spec.sink, None))
    takes_failed = spec.quarantine.retry == "Only"
    if status.phase == "Committed" and takes_all:
        return f"committed (epoch {status.epoch}): a run would do nothing; change runNonce to read the whole source again"
    if status.phase == "Committed" and takes_failed:
        return f"committed (epoch {status.epoch}): a run would do nothing; run --again takes the rows that failed"
    if status.phase == "Committed":
        return f"committed (epoch {status.epoch}): a run would do nothing; run --again takes files that came since"
    if status.is_new:
        what = "the whole source" if takes_all else "the files that no earlier epoch has had"
        if takes_failed:
            what = "the rows that failed in earlier epochs, and no others"
        return f"epoch {status.epoch} is not begun: a run would begin it, with {what}"
    return (
        f"{status.phase} ({status.place}): a run would go on from there; "
        f"{counted(status.sealed.rows_read, 'row is', 'rows are')} sealed, and the numbers above are of the whole source"
    )

"""Every check, in order. Each finds what it can, whatever the others found."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from checkpoint_commit.sinks.port import TargetSeen
from checkpoint_commit.sinks.registry import format_of
from checkpoint_control.decision.table_rules import gone_with_its_rows
from checkpoint_control.decision.triggers import check_schedule
from checkpoint_control.validation.checkpoint import CheckpointSeen, check_checkpoint
from checkpoint_control.validation.code import check_code
from checkpoint_control.validation.fields import check_type_names, parsed_types, refusals
from checkpoint_control.validation.forecast import predict, predict_keyed
from checkpoint_control.validation.report import Findings, Prediction, Report
from checkpoint_control.validation.source import SourceSeen, check_keyed_source, check_source, placed_types
from checkpoint_control.validation.target import Giver, check_target, check_types, compare_columns
from checkpoint_control.views.inspection import open_existing
from checkpoint_control.writes.former import warn_of_former
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.spec import CheckpointedWrite, Spec
from checkpoint_protocol.places.outputs import checkpoint_output, find_file_in, find_path_into, refuse
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import operation_of, takes_the_whole_source
from checkpoint_protocol.store.object_store import local_path

_SOURCE: Final = Giver("the source", "spec.source.columns", "spec.source", "leave it out by source.columns, drop it in a step")


def check_all(manifest: CheckpointedWrite | None, settings: Settings | None, findings: Findings) -> Report:
    """Check what could be read: None stands for a manifest or settings that could not, which the findings say already."""
    prediction = _check_spec(manifest, settings, findings) if manifest is not None else None
    return Report(
        name=manifest.metadata.name if manifest is not None else None,
        valid=not findings.problems,
        problems=tuple(findings.problems),
        notes=tuple(findings.notes),
        prediction=prediction,
    )


def _check_spec(manifest: CheckpointedWrite, settings: Settings | None, findings: Findings) -> Prediction | None:
    spec = manifest.spec
    for field, error in refusals(spec).items():
        findings.error(field, error)
    if spec.trigger is not None:
        try:
            check_schedule(spec.trigger)
        except CheckpointError as error:
            findings.error("spec.trigger", error)
    check_code(spec, settings, findings)
    by_spark = spec.source.keyed is not None or spec.source.stream is not None
    source = _source(spec, settings, findings)
    if by_spark:
        check_keyed_source(spec.source, findings)
    target = check_target(spec, settings, findings)
    checkpoint = _checkpoint(manifest, settings, findings)
    _check_committed_rows(spec, target, checkpoint, findings)
    if settings is not None and target.exists and checkpoint.status is not None and checkpoint.status.is_new:
        _warn_of_former(manifest, settings, findings)
    _note_retry_without_failures(spec, checkpoint, findings)
    _check_apart(spec, source, target, findings)
    _note_times_of_day(spec, findings)
    _note_steps_without_gpus(spec, target, findings)
    for place, step in spec.placed_steps():
        check_type_names(step.output or {}, f"spec.{place}.output", findings, nested=True)
    last = spec.last_step
    if source is not None and last is None:
        _check_output(spec, target, source.columns, source.schema, _SOURCE, findings)
    if last is not None and (declared := last[1].output) is not None:
        at = f"spec.{last[0]}.output"
        steps = Giver(f"the output of step {last[1].label!r}", at, at, "drop it in the step")
        _check_output(spec, target, tuple(declared), parsed_types(declared, at), steps, findings)
    cores = os.cpu_count() or 1
    if by_spark:
        return predict_keyed(spec, target, checkpoint, cores)
    return None if source is None else predict(spec, source, target, checkpoint, cores)


def _check_output(
    spec: Spec, target: TargetSeen, names: Sequence[str] | None, schema: Any, giver: Giver, findings: Findings
) -> None:
    """Compare what the table is given with what it has, or what can be made. `names`, `schema`: None where they are not known."""
    before = len(findings.problems)
    if names is not None:
        compare_columns(spec.sink, target, names, giver, findings)
    if schema is not None and len(findings.problems) == before:
        check_types(spec.sink, target, schema, giver, findings)


# --- without settings, what lies on this machine can still be checked ---------------------------------------------------


def _source(spec: Spec, settings: Settings | None, findings: Findings) -> SourceSeen | None:
    source = spec.source
    places = [*source.paths, *(uri for member in source.members for uri in member.uris.values())]
    needs_settings = not all(member.uris for member in source.members)  # of catalogs, and of clusters
    if settings is None and (needs_settings or any(local_path(place) is None for place in places)):
        return None
    return check_source(spec, settings or Settings(), findings)


def _checkpoint(manifest: CheckpointedWrite, settings: Settings | None, findings: Findings) -> CheckpointSeen:
    if settings is None and local_path(manifest.spec.checkpoint.uri) is None:
        return CheckpointSeen(exists=None, status=None)
    return check_checkpoint(manifest, settings or Settings(), findings)


def _check_committed_rows(spec: Spec, target: TargetSeen, checkpoint: CheckpointSeen, findings: Findings) -> None:
    """Another epoch makes no table in the place of the one with the rows of earlier ones."""
    status = checkpoint.status
    if target.exists is not False or status is None or status.commit is None or status.committed_epoch is None:
        return
    if status.phase == "Committed":
        return  # no other epoch begins: `validate` says what became of this one
    if status.commit.commit_id is not None and not takes_the_whole_source(operation_of(spec.sink, None)):
        text = gone_with_its_rows(target.title, status.committed_epoch, status.commit.rows_written)
        findings.problem(format_of(spec.sink).field, text)


def _warn_of_former(manifest: CheckpointedWrite, settings: Settings, findings: Findings) -> None:
    store = open_existing(manifest.spec.checkpoint.uri, settings)
    if (warning := warn_of_former(manifest, store, settings)) is not None:
        findings.note(warning)


def _note_retry_without_failures(spec: Spec, checkpoint: CheckpointSeen, findings: Findings) -> None:
    """Say that a first epoch takes no rows where only those are taken that have failed."""
    status = checkpoint.status
    if spec.quarantine.retry == "Only" and status is not None and status.is_new and status.epoch == 1:
        findings.note(
            "spec.quarantine.retry: Only takes the rows that failed in earlier epochs, and there are none: the first epoch would "
            "take no rows; set Never or Also until it is committed"
        )


def _note_times_of_day(spec: Spec, findings: Findings) -> None:
    """Warn of a type that makes an Iceberg table unreadable for Spark."""
    if spec.sink.iceberg is None:
        return
    typed = placed_types(spec.source)
    last = spec.last_step
    if last is not None and (declared := last[1].output) is not None:
        typed = [(f"spec.{last[0]}.output", declared)]
    for where, types in typed:
        # Each by itself: another one may be misspelt, which is told elsewhere.
        for field in (field for column, kind in types.items() for field in parsed_types({column: kind}, where) or ()):
            if _has_time_of_day(field.type):
                findings.note(
                    f"{where}.{field.name}: Spark cannot read an Iceberg table that has a column of type time, not even its "
                    "other columns; let it be a string, if Spark is to read the table"
                )


def _has_time_of_day(kind: pa.DataType) -> bool:
    return pa.types.is_time(kind) or any(_has_time_of_day(kind.field(number).type) for number in range(kind.num_fields))


def _note_steps_without_gpus(spec: Spec, target: TargetSeen, findings: Findings) -> None:
    """Warn of steps that are run in the driver, whose pod has no GPU."""
    last = spec.last_step
    if spec.executor.gpus and target.exists is False and last is not None and last[1].output is None:
        findings.note(
            f"spec.{last[0]}.output: executor.gpus are those of executors, and the table does not exist: to "
            "see which columns it gets, the driver runs the steps on a few rows, and its pod has no GPU; declare the output"
        )


def _check_apart(spec: Spec, source: SourceSeen | None, target: TargetSeen, findings: Findings) -> None:
    """What the write itself puts somewhere must not be read: neither what the paths say, nor what was found by them, is that."""
    outputs = [checkpoint_output(spec.checkpoint.uri), *target.outputs]
    try:
        refuse(find_path_into(outputs, spec.source.paths))
        if source is not None and spec.source.paths:
            refuse(find_file_in(outputs, (file.path for file in source.files)))
    except CheckpointError as error:
        findings.error("spec.source", error)

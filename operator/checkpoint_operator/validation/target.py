"""The target: can it be reached, is it there or to be made, can it be written, does it have the columns?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from checkpoint_operator.sink_formats.registry import format_of
from checkpoint_operator.sink_formats.seen import TargetSeen
from checkpoint_operator.validation.report import Findings
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest import Spec
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.sink import Sink


def check_target(spec: Spec, settings: Settings | None, findings: Findings) -> TargetSeen:
    """Look at the target without changing it; without settings, only if it lies on this machine."""
    sink, fmt = spec.sink, format_of(spec.sink)
    if settings is None and fmt.needs_settings:
        return TargetSeen(fmt.title, exists=None)
    seen = fmt.look(settings or Settings())
    for field, problem in seen.problems:
        if isinstance(problem, CheckpointError):
            findings.error(field, problem)
        else:
            findings.problem(field, problem)
    for note in seen.notes:
        findings.note(note)
    if seen.exists is False and not sink.create:
        findings.problem(
            fmt.field,
            f"{seen.title} does not exist; make it, or set sink.create: true to have it made from the steps' output",
        )
    if seen.exists and sink.partition_by:
        findings.note(f"spec.sink.partitionBy: {seen.title} exists, so that its own partitioning holds")
    return seen


@dataclass(frozen=True, slots=True)
class Giver:
    """Who gives the columns of the target, for messages: the field that names them, that of what lacks one, and a way out."""

    name: str
    columns_at: str
    at: str
    way_out: str


def compare_columns(sink: Sink, target: TargetSeen, given: Sequence[str], giver: Giver, findings: Findings) -> None:
    """Compare the columns that are put into the target with what is there. Names only; types are seen by a run."""
    if target.columns is not None:
        for name in given:
            if name not in target.columns:
                findings.problem(
                    giver.columns_at,
                    f"{giver.name} has the column {name!r}, and {target.title} has not (it has {', '.join(target.columns)}); "
                    f"{giver.way_out}, or add it to the table",
                )
        for name, is_required in target.columns.items():
            if is_required and name not in given:
                findings.problem(giver.at, f"{target.title} requires the column {name!r}, and {giver.name} has none")
        return
    for number, field in enumerate(sink.partition_by):
        if field.column not in given:
            findings.problem(
                f"spec.sink.partitionBy.{number}.column",
                f"{giver.name} has no column {field.column!r} (it has {', '.join(given)})",
            )


def check_types(sink: Sink, target: TargetSeen, given: Any, findings: Findings) -> None:
    """Look whether a table can be made of the columns (an Arrow schema) of a write without steps."""
    if target.exists is not False or not sink.create:
        return
    fmt = format_of(sink)
    for note in fmt.notes_on(given):
        findings.note(note)
    try:
        fmt.check_schema(given)
    except CheckpointError as error:
        findings.problem("spec.source", f"no table {target.title} can be made: {error.message} by source.columns")

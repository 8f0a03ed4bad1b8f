"""The target: can it be reached, is it there or to be made, can it be written, does it have the columns?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from checkpoint_commit.sinks.port import TargetSeen
from checkpoint_commit.sinks.registry import format_of
from checkpoint_control.validation.report import Findings
from checkpoint_formats.rows.plain_types import came_as, schema_of_new, type_of_new
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.manifest.where import SINK_FIELD, as_of_the_sink, check_where, parse_where
from checkpoint_protocol.manifest.where import columns_of as where_columns
from checkpoint_protocol.places.settings import Settings


def check_target(spec: Spec, settings: Settings | None, findings: Findings) -> TargetSeen:
    """Examine the target without changing it; without settings, only if it lies on this machine."""
    sink, fmt = spec.sink, format_of(spec.sink)
    if settings is None and fmt.needs_settings:
        return TargetSeen(fmt.title, exists=None)
    seen = fmt.examine(settings or Settings())
    for field, problem in seen.problems:
        if isinstance(problem, CheckpointError):
            findings.error(field, problem)
        else:
            findings.problem(field, problem)
    for note in seen.notes:
        findings.note(note)
    columns = seen.columns or {}
    for name in sink.columns if seen.columns is not None else ():
        if name not in columns:
            findings.note(f"spec.sink.columns: {name!r} is added to {seen.title}, NULL in each row until the commit")
        elif columns[name]:
            findings.problem(
                "spec.sink.columns",
                f"{name!r} is required in {seen.title}, and is NULL in rows without a value; make it nullable (alter_columns)",
            )
    if seen.exists is False and not sink.create:
        findings.problem(
            fmt.field,
            f"{seen.title} does not exist; correct its uri: columns are added to rows that are there"
            if sink.mode == "AddColumns"
            else f"{seen.title} does not exist; make it, or set sink.create: true to have it made from the steps' output",
        )
    if seen.exists and sink.partition_by:
        findings.note(f"spec.sink.partitionBy: {seen.title} exists, so that its own partitioning holds")
    return seen


def what_a_commit_does(sink: Sink) -> str:
    """Say what becomes of the rows that the table has, also where a run gives none."""
    if sink.audit is not None:
        unseen = sink.model_copy(update={"audit": None})
        return f"{what_a_commit_does(unseen)}; readers see it once {sink.audit} has let it pass"
    if sink.none is not None:
        return "there is no table: the steps run once for each row"
    match sink.mode:
        case "Append":
            return "Append: rows are added, and the table's stay; without any, the table stays as it is"
        case "OverwriteAll":
            return "OverwriteAll: all rows that the table has are replaced; without new ones, it is empty afterwards"
        case "OverwriteWhere":
            return f"OverwriteWhere: rows for which {sink.where} are replaced; without new ones, they are deleted"
        case "OverwritePartitions":
            return "OverwritePartitions: what is in the partitions of new rows is replaced; without any, the table stays as it is"
        case "Upsert":
            keys = ", ".join(sink.upsert_keys or ())
            match sink.when_matched:
                case "Update":
                    does = f"rows with the {keys} of new rows are deleted, and all new rows are added"
                case "Delete":
                    does = f"rows with the {keys} of the output are deleted, and nothing is added"
                case "Ignore":
                    does = f"new rows whose {keys} are not in the table are added, and its rows stay"
            reads = (
                "all fragments, and say which rows go"
                if sink.lance is not None
                else "the data files that may have such rows, and put deletes of rows, which readers apply until the files are "
                "rewritten, or write these files anew, as the table asks for"
            )
            return f"Upsert: {does}; without any, the table stays as it is. Before the commit, drivers read {keys} of {reads}"
        case "AddColumns":
            which = {
                "Null": "rows that are NULL there get",
                "Changed": "rows that are NULL there, and those whose input has changed since the last epoch, get",
                "All": "all rows get, in the place of what they have,",
            }[sink.only]
            return f"AddColumns: {which} what the steps give in {', '.join(sink.columns)}; rows are neither added nor removed"
        case other:
            assert_never(other)


@dataclass(frozen=True, slots=True)
class Giver:
    """Who gives the columns of the target, for messages: the field that names them, that of what lacks one, and a way out."""

    name: str
    columns_at: str
    at: str
    remedy: str


def compare_columns(sink: Sink, target: TargetSeen, given: Sequence[str], giver: Giver, findings: Findings) -> None:
    """Compare the columns that are put into the target with what is there. Names only; types are seen by a run."""
    if sink.mode == "AddColumns":
        for name in sink.columns:
            if name not in given:
                findings.problem("spec.sink.columns", f"{giver.name} has no column {name!r} (it has {', '.join(given)})")
        return
    if target.columns is not None:
        for name in given:
            if name not in target.columns:
                findings.problem(
                    giver.columns_at,
                    f"{giver.name} has the column {name!r}, which {target.title} does not have "
                    f"(it has {', '.join(target.columns)}); {giver.remedy}, or add it to the table",
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
    for number, name in enumerate(sink.upsert_keys or ()):
        if name not in given:
            findings.problem(f"spec.sink.upsertKeys.{number}", f"{giver.name} has no column {name!r} (it has {', '.join(given)})")
    for name in where_columns(parse_where(sink.where)) if sink.where is not None else ():
        if name not in given:
            findings.problem(SINK_FIELD, f"{giver.name} has no column {name!r} (it has {', '.join(given)})")


def check_types(sink: Sink, target: TargetSeen, given: Any, giver: Giver, findings: Findings) -> None:
    """Check whether a table can be made of the columns (an Arrow schema) that are known before a run."""
    if target.exists is not False or not sink.create:
        return
    fmt = format_of(sink)
    if sink.where is not None and all(name in given.names for name in where_columns(parse_where(sink.where))):
        try:
            with as_of_the_sink():
                check_where(parse_where(sink.where), {field.name: str(field.type) for field in given})
        except CheckpointError as error:
            findings.error(SINK_FIELD, error)
    _note_conversions(given, findings)
    given = schema_of_new(given)
    for note in fmt.notes_on(given):
        findings.note(note)
    try:
        fmt.check_schema(given)
    except CheckpointError as error:
        at, _, message = error.message.partition(": ")
        if error.reason == reasons.MANIFEST_INVALID and at.startswith("spec."):
            findings.problem(at, message)
            return
        how = " by source.columns" if giver.at == "spec.source" and error.message.endswith(" out") else ""
        findings.problem(giver.at, f"no table {target.title} can be made: {error.message}{how}")


def _note_conversions(given: Any, findings: Findings) -> None:
    for field in given:
        names = came_as(field)
        if names and type_of_new(field) == field.type:
            findings.note(f"the column {field.name!r} is {', '.join(names)} in the source, and {field.type} in the new table")

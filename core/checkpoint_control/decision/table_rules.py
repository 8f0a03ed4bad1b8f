"""The rules about tables, asked last before an attempt is recorded: what they would refuse, no driver should begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from checkpoint_control.decision.actions import Action, Stall
from checkpoint_control.decision.observation import Observation
from checkpoint_protocol import reasons
from checkpoint_protocol.manifest.quantities import counted

#: What follows from an observation, in order; None where the rule does not apply.
Rule = Callable[[Observation], tuple[Action, ...] | None]


def stall_on_a_deleted_write(seen: Observation) -> tuple[Action, ...] | None:
    if seen.tables is None or not seen.tables.is_deleted:
        return None
    return (Stall(reasons.WRITE_DELETED, "the write was deleted; give a new write a new name"),)


def stall_on_a_table_that_cannot_be_used(seen: Observation) -> tuple[Action, ...] | None:
    """Its catalog, or what the manifest says of it, refuses the sink or the source."""
    if seen.tables is None or seen.tables.problem is None:
        return None
    return (Stall(seen.tables.problem.reason, seen.tables.problem.message),)


def stall_where_source_and_sink_are_one_table(seen: Observation) -> tuple[Action, ...] | None:
    if seen.tables is None or not seen.tables.is_own_source:
        return None
    return (
        Stall(
            reasons.MANIFEST_INVALID,
            f"source and sink are one table ({seen.tables.title}): what a run appends would be the next one's input; write to "
            "another table",
        ),
    )


def stall_where_the_table_is_gone_with_its_rows(seen: Observation) -> tuple[Action, ...] | None:
    """Another one would be made, of the new rows alone, and look whole."""
    if seen.tables is None or seen.tables.lost_rows is None:
        return None
    epoch, rows = seen.tables.lost_rows
    return (Stall(reasons.TABLE_MISSING, gone_with_its_rows(seen.tables.title, epoch, rows)),)


def gone_with_its_rows(title: str, epoch: int, rows: int) -> str:
    """Say that a table is not there, to which an epoch of this write has committed rows, and the ways out."""
    return (
        f"{title} is gone, and with it what earlier epochs of the write had committed (epoch {epoch}: {counted(rows, 'row')}), "
        "which this one does not write again; restore the table, or give the write a new name to write all rows again, or "
        "create the table yourself if it needs only the new rows"
    )


def stall_on_a_missing_table(seen: Observation) -> tuple[Action, ...] | None:
    if seen.tables is None or seen.tables.target is not None or seen.tables.creates_target:
        return None
    return (
        Stall(
            reasons.TABLE_MISSING,
            f"{seen.tables.title} does not exist; make it, or set sink.create: true to have it made from the steps' output",
        ),
    )


def stall_on_a_replaced_table(seen: Observation) -> tuple[Action, ...] | None:
    """What is sealed names files that were staged for another table than the one of now."""
    if seen.tables is None or seen.tables.staged_for_another is None:
        return None
    what = "was dropped" if seen.tables.target is None else "was dropped and made again"
    return (
        Stall(
            reasons.TABLE_REPLACED,
            f"{seen.tables.title} {what} after attempt {seen.tables.staged_for_another} had sealed results for it, whose files "
            "belong to the old table: restore that one, or give the write a new name to compute all again",
        ),
    )


TABLE_RULES: Final[tuple[Rule, ...]] = (
    stall_on_a_deleted_write,
    stall_on_a_table_that_cannot_be_used,
    stall_where_source_and_sink_are_one_table,
    stall_where_the_table_is_gone_with_its_rows,
    stall_on_a_missing_table,
    stall_on_a_replaced_table,
)

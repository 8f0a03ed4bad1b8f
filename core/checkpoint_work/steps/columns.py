"""Which columns a step gives: those that it declares (its `output`), else those of the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from checkpoint_formats.rows.type_names import parse_type
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.steps import Step
from checkpoint_work.steps.places import Place
from checkpoint_work.steps.row_steps import Row
from checkpoint_work.steps.values.schema_cast import ValueMismatch, fit_array, incompatibility_of


def declared_output(steps: Sequence[Step]) -> pa.Schema | None:
    """Return the schema of what the steps give, where the last one declares it. NeedsChange(ManifestInvalid): an unknown type."""
    return None if not steps else declared_by(steps[-1])


def declared_by(step: Step | None) -> pa.Schema | None:
    """Return the columns that a step declares; None where it declares none. NeedsChange(ManifestInvalid): an unknown type."""
    if step is None or step.output is None:
        return None
    where = f"the output of step {step.label!r}"
    return pa.schema([(name, parse_type(name, text, where, nested=True)) for name, text in step.output.items()])


def as_declared(rows: list[Row], step: Step) -> list[Row]:
    """Return what a row step gives to another one: with the columns that it declares, those that a row leaves out as None."""
    if step.output is None:
        return rows
    return [({name: row.get(name) for name in step.output}, number) for row, number in rows]


def refuse_undeclared(rows: list[Row], step: Step, place: Place | None) -> None:
    """Refuse columns that a step which declares its own gives beside them, as `refuse_surplus` does."""
    if step.output is not None:
        refuse_surplus(rows, step, list(step.output), place)


def refuse_surplus(given: list[Row], step: Step | None, known: Sequence[str], place: Place | None) -> None:
    """Refuse columns that are not among the known ones. ValueMismatch, with the first such row, if only some rows have one."""
    names = dict.fromkeys(name for row, _ in given for name in row)
    surplus = next((name for name in names if name not in known), None)
    if surplus is None:
        return
    label = step.label if step else "source"
    if step is not None and step.output is not None:
        problem, remedy = f"its output does not declare (it declares {', '.join(known)})", "drop it in the step, or declare it"
    else:
        problem, remedy = f"the table does not have (it has {', '.join(known)})", "drop it in the step, or add it to the table"
    rows = [surplus in row for row, _ in given]
    raise _incompatibility(rows, given, place, f"step {label!r} gives column {surplus!r}", f", which {problem}; {remedy}")


def refuse_names(given: list[Row], label: str, place: Place | None) -> None:
    """Refuse keys of rows that cannot be names of columns: numbers, None, text that is no Unicode. As `refuse_surplus` does."""
    names = dict.fromkeys(name for row, _ in given for name in row)
    for name in names:
        if not _may_be_a_name(name):
            rows = [name in row for row, _ in given]
            raise _incompatibility(
                rows, given, place, f"step {label!r} gives a row with the key {name!r}", ", and columns are named by text (str)"
            )


def _may_be_a_name(name: object) -> bool:
    try:
        return isinstance(name, str) and bool(name.encode() or True)
    except UnicodeEncodeError:
        return False


def refuse_left_out(given: list[Row], label: str, known: Sequence[str], place: Place | None) -> None:
    """Refuse rows without one of the known columns. ValueMismatch, with the first such row, if only some rows lack it."""
    for name in known:
        rows = [name not in row for row, _ in given]
        if any(rows):
            raise _incompatibility(
                rows,
                given,
                place,
                f"step {label!r} leaves out the column {name!r}",
                ", which the table has; give None where there is no value, or declare its output (output: {name: type}): "
                "of that, what is left out is NULL",
            )


def _incompatibility(wrong: Sequence[bool], given: list[Row], place: Place | None, problem: str, why: str) -> NeedsChange:
    """Return what to raise where the columns of some rows are wrong: the first of them is named."""
    family = NeedsChange if all(wrong) else ValueMismatch
    index = wrong.index(True)
    where = "" if place is None else f" in {place.of_given(index, given[index][1])}"
    return family(reasons.OUTPUT_SCHEMA_WRONG, f"{problem}{where}{why}")


def batch_as_declared(
    batch: pa.RecordBatch, declared: pa.Schema, label: str, of_row: Callable[[int], str] | None
) -> pa.RecordBatch:
    """Return a batch step's result with the columns and types that the step declares; those that it leaves out are NULL.

    `of_row` names a row of the result, for messages.
    NeedsChange(OutputSchemaWrong) for a column that it does not declare; ValueMismatch for a value that does not fit.
    """
    surplus = next((name for name in batch.schema.names if name not in declared.names), None)
    if surplus is not None:
        raise NeedsChange(
            reasons.OUTPUT_SCHEMA_WRONG,
            f"step {label!r} gives column {surplus!r}, which its output does not declare (it declares "
            f"{', '.join(declared.names)}); drop it in the step, or declare it",
        )
    arrays = []
    for field in declared:
        found = [number for number, name in enumerate(batch.schema.names) if name == field.name]
        try:
            if len(found) > 1:
                raise NeedsChange(reasons.OUTPUT_SCHEMA_WRONG, f"step {label!r} gives the column {field.name!r} more than once")
            arrays.append(fit_array(batch.column(found[0]), field.type) if found else pa.nulls(batch.num_rows, field.type))
        except pa.ArrowException as error:
            raise ValueMismatch(
                reasons.OUTPUT_SCHEMA_WRONG,
                f"step {label!r}: column {field.name!r} needs values of type {field.type}"
                f"{incompatibility_of(batch.column(found[0]), field.type, of_row)}: {error}; correct the step, or what it "
                "declares",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=declared)

"""The user's steps: load the callables and apply them, batch by batch, with errors that name step, file and row.

A step takes and gives a pyarrow.RecordBatch, a pandas.DataFrame, or one row as a dict. A class is instantiated once per
process and gets `setup()` called before its first batch.
"""

from __future__ import annotations

import datetime
import importlib
import inspect
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pyarrow as pa

from checkpoint_formats.type_names import parse_type
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.manifest import Step
from checkpoint_protocol.waiting_steps import CALLED_METHODS, refuse_to_wait
from checkpoint_spark.begun import Begun, tell_nobody
from checkpoint_spark.new_table_types import TypesByName
from checkpoint_spark.schema_cast import DECLARE, ValueMisfit, fit_array, incompatibility_of, said_of

_Callable = Callable[..., Any]
#: A row, and the number of the source row that it was made of; None after a batch step, which does not tell.
Row = tuple[dict[str, Any], int | None]
_instances: dict[str, _Callable] = {}
_instances_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Place:
    """Where the rows of a batch come from, for messages: a file, the unit of its positions and the first position.

    `kept`: the batch's rows among those of the file that follow that position, where some were left out.
    """

    file: str
    unit: str
    start: int
    kept: pa.Array | None = None

    def of_row(self, row: int) -> str:
        """Name a row of the batch, counted from 0."""
        row = row if self.kept is None else self.kept[row].as_py()
        if self.unit == "bytes":
            return f"row {row} after byte {self.start} of {self.file}"
        return f"row {self.start + row} of {self.file}"

    def of_rows(self, count: int) -> str:
        if self.unit == "bytes":
            return f"the {count} rows after byte {self.start} of {self.file}"
        if self.kept is not None and count:
            # A step before may have made more rows of them.
            first, last = self.kept[0].as_py(), self.kept[min(count, len(self.kept)) - 1].as_py()
            return f"{count} of the rows {self.start + first} to {self.start + last} of {self.file}"
        return f"rows {self.start} to {self.start + count - 1} of {self.file}"


def load(step: Step) -> _Callable:
    """Return the step's callable; for a class the process's one instance. NeedsChange if it cannot be had."""
    with _instances_lock:
        identity = step.model_dump_json()
        if identity not in _instances:
            _instances[identity] = _make(step)
        return _instances[identity]


def _make(step: Step) -> _Callable:
    module_name, attribute = step.call.split(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise NeedsChange(
            reasons.CODE_MISSING,
            f"step {step.label!r}: there is no module {error.name!r}; put it where spec.code says (code.path, code.uri or "
            "code.configMap), or install its package",
        ) from error
    except BaseException as error:  # user code: see code_failed
        raise NeedsChange(
            reasons.CODE_FAILED, f"step {step.label!r}: importing {module_name!r} raised {_cause(error, step)}"
        ) from error
    found = getattr(module, attribute, None)
    if not callable(found):
        raise NeedsChange(
            reasons.CODE_MISSING,
            f"step {step.label!r}: module {module_name!r} has no callable {attribute!r} ({getattr(module, '__file__', None)})",
        )
    if (name := _async_part(found, attribute)) is not None:
        raise NeedsChange(reasons.CODE_FAILED, f"step {step.label!r}: {refuse_to_wait(name)}")
    try:
        if inspect.isclass(found):
            instance = found(**step.arguments)
            if hasattr(instance, "setup"):
                _refuse_awaitable(instance.setup())
            if not callable(instance):
                raise TypeError(f"{attribute} has no __call__ method")
            return cast(_Callable, instance)
    except CheckpointError:
        raise
    except BaseException as error:
        raise NeedsChange(reasons.CODE_FAILED, f"step {step.label!r}: making {attribute} raised {_cause(error, step)}") from error
    function = cast(_Callable, found)
    return partial(_with_arguments, function, step.arguments) if step.arguments else function


def _async_part(found: Any, attribute: str) -> str | None:
    """Return the name of what is async of a function, or of what is called of a class or an instance of one."""
    if _is_async(found):
        return attribute
    owner = found if inspect.isclass(found) else type(found)
    if inspect.isroutine(found) or isinstance(found, partial):
        return None
    methods = CALLED_METHODS if inspect.isclass(found) else ("__call__",)
    return next((f"{attribute}.{name}" for name in methods if _is_async(getattr(owner, name, None))), None)


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _refuse_awaitable(result: object) -> None:
    """Refuse what a plain function gives that only calls an async one. WrongResult, as it is no row's fault."""
    if inspect.iscoroutine(result):
        result.close()  # or Python warns that it was never awaited
    if inspect.isawaitable(result) or hasattr(result, "__aiter__"):
        raise WrongResult(refuse_to_wait(getattr(result, "__qualname__", type(result).__name__)))


def _with_arguments(function: _Callable, arguments: dict[str, Any], rows: Any) -> Any:
    # The rows come first, also where an argument has the name of the first parameter.
    return function(rows, **arguments)


def _cause(error: BaseException, step: Step) -> str:
    """Describe an exception of user code with the innermost line of the step's own module, or of all."""
    frames = traceback.extract_tb(error.__traceback__)
    module = sys.modules.get(step.call.split(":")[0])
    theirs = [frame for frame in frames if frame.filename == getattr(module, "__file__", None)] or frames
    place = f" ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else ""
    text = str(error)
    return f"{type(error).__name__}: {text[:2000]}{place}" if text else f"{type(error).__name__}{place}"


class Pipeline:
    """The steps of a write, in order.

    Intermediate results of `row` steps stay Python rows until a step (or the table) wants Arrow, so that their types need not
    be guessed from each batch.
    """

    def __init__(self, steps: Iterable[Step], optional: Collection[str] = (), begun: Begun = tell_nobody) -> None:
        """Load the steps.

        `optional` are columns of the table that a row may leave out, since they came after the write began. `begun` is told what
        each call begins with.
        """
        self._begun = begun
        self._steps = [(step, self._load(step)) for step in steps]
        self.optional = frozenset(optional)

    def _load(self, step: Step) -> _Callable:
        self._begun(step.label, "no rows yet: it was imported and made")
        return load(step)

    def begin(self, step: Step, place: Place, rows: int) -> None:
        """Tell what begins, for whoever survives it."""
        self._begun(step.label, place.of_rows(rows))

    @property
    def steps(self) -> Sequence[tuple[Step, _Callable]]:
        return self._steps

    def row_of(self, place: Place, count: int) -> Callable[[int], str]:
        """Return what names a row of that which the steps make of so many rows."""
        return _row_made(self._steps[-1][0], place, count) if self._steps else place.of_row

    def apply(
        self, batch: pa.RecordBatch, place: Place, output_schema: pa.Schema | None, types: TypesByName | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Give what the steps make of a batch: no batch, one or several.

        `output_schema` tells how Python rows of the last step become Arrow; without it their types are inferred,
        and `types` takes down those that a new table is to have.
        NeedsChange(CodeFailed) names the step, the rows and the cause.
        """
        if batch.num_rows == 0:
            return
        pending: pa.RecordBatch | list[Row] = batch
        is_source, before = True, None
        for step, function in self._steps:
            self.begin(step, place, batch.num_rows)
            if step.input == "row":
                rows = as_declared(pending, before, place, types) if isinstance(pending, list) else None
                rows = _numbered(step, pending, is_source, place) if rows is None else rows
                pending = list(_apply_to_rows(step, function, rows, place))
            else:
                pending = _apply_to_batch(step, function, to_arrow(pending, None, before, place, types=types), place, types)
                is_source = False
            if len(pending) == 0:
                return
            before = step
        result = to_arrow(pending, output_schema, before, place, self.optional, types, is_last=True)
        if result.num_rows:
            yield result

    def schema_of(self, batch: pa.RecordBatch, place: Place) -> pa.Schema:
        """Return the schema of a new table for what the steps make of a batch, which may be empty.

        It is what the last step declares, where it does; else see `new_table_types`.
        """
        if (declared := declared_output([step for step, _ in self._steps])) is not None:
            return declared
        types = TypesByName(batch.schema)
        if batch.num_rows:
            for result in self.apply(batch, place, None, types):
                return types.of(result)
            batch = batch.slice(0, 0)
            types.begin()
        for step, function in self._steps:
            if step.input == "row":
                raise NeedsChange(
                    reasons.OUTPUT_SCHEMA_WRONG,
                    f"step {step.label!r} gave no rows, so the columns of a new table are unknown; declare what it gives by its "
                    "output (output: {name: type}), or create the table yourself",
                )
            batch = _apply_to_batch(step, function, batch, place, types)
        return types.of(batch)


def declared_output(steps: Sequence[Step]) -> pa.Schema | None:
    """Return the schema of what the steps give, where the last one declares it. NeedsChange(ManifestInvalid): an unknown type."""
    return None if not steps else _declared(steps[-1])


def _declared(step: Step | None) -> pa.Schema | None:
    if step is None or step.output is None:
        return None
    where = f"the output of step {step.label!r}"
    return pa.schema([(name, parse_type(name, text, where)) for name, text in step.output.items()])


class WrongResult(TypeError):
    """A batch step gives what is no batch at all."""


def rows_as_python(batch: pa.RecordBatch) -> Iterator[dict[str, Any] | Exception]:
    """Give each row as a dict; in place of one that Python cannot hold (text that is no UTF-8, the year 10000), why not."""
    try:
        rows: Iterable[dict[str, Any] | Exception] = batch.to_pylist()
    except (ValueError, OverflowError):
        rows = (_as_python(batch.slice(number, 1)) for number in range(batch.num_rows))
    yield from rows


def _as_python(row: pa.RecordBatch) -> dict[str, Any] | Exception:
    try:
        (found,) = row.to_pylist()
    except (ValueError, OverflowError) as error:
        return error
    return cast(dict[str, Any], found)


def _numbered(step: Step, batch: pa.RecordBatch, is_source: bool, place: Place) -> list[Row]:
    rows: list[Row] = []
    for index, row in enumerate(rows_as_python(batch)):
        number = index if is_source else None
        if isinstance(row, Exception):
            raise code_failed(step, _where(place, index, number), row) from row
        rows.append((row, number))
    return rows


def _where(place: Place, index: int, number: int | None) -> str:
    """Name a row that a step gets: a source row by its number, or what the steps before made."""
    made_of = f"row {index} of what the steps before made of a batch that begins at {place.of_row(0)}"
    return made_of if number is None else place.of_row(number)


def _apply_to_rows(step: Step, function: _Callable, rows: list[Row], place: Place) -> Iterator[Row]:
    for index, (row, number) in enumerate(rows):
        try:
            made = call_on_row(function, row)
        except CheckpointError:
            raise
        except BaseException as error:
            raise code_failed(step, _where(place, index, number), error) from error
        yield from ((result, number) for result in made)


def _row_made(step: Step, place: Place, count: int) -> Callable[[int], str]:
    return lambda row: f"row {row} of what step {step.label!r} makes of {place.of_rows(count)}"


def _apply_to_batch(
    step: Step, function: _Callable, batch: pa.RecordBatch, place: Place, types: TypesByName | None = None
) -> pa.RecordBatch:
    try:
        return call_on_batch(step, function, batch, types, _row_made(step, place, batch.num_rows))
    except CheckpointError:
        raise
    except BaseException as error:
        raise code_failed(step, place.of_rows(batch.num_rows), error) from error


def code_failed(step: Step, where: str, error: BaseException) -> NeedsChange:
    """Return what is said of an exception that a step raised.

    Of any: sys.exit and a native library's panic are no Exceptions, and would end a worker of Spark that nobody asks why.
    """
    hint = "; to leave a row out, give None instead of ending the process" if isinstance(error, SystemExit) else ""
    return NeedsChange(reasons.CODE_FAILED, f"step {step.label!r} raised on {where}: {_cause(error, step)}{hint}")


def call_on_row(function: _Callable, row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all that a row step makes of a row; it raises what the step raises, and keeps nothing then."""
    result = function(row)
    if result is None:
        return []
    _refuse_awaitable(result)
    if isinstance(result, dict):
        return [result]
    made = []
    for one in result:
        if not isinstance(one, dict):
            raise TypeError(f"a row step gives dicts, not {type(one).__name__}")
        made.append(one)
    return made


def call_on_batch(
    step: Step,
    function: _Callable,
    batch: pa.RecordBatch,
    types: TypesByName | None = None,
    of_row: Callable[[int], str] | None = None,
) -> pa.RecordBatch:
    """Return what an arrow or pandas step makes of a batch, as it declares it. Raises what the step raises, and WrongResult.

    `of_row` names a row of the result, for messages.
    NeedsChange(OutputSchemaWrong) for a column that it does not declare; ValueMisfit for a value that does not fit.
    """
    made, inferred = _made_of_batch(step, function, batch)
    declared = _declared(step)
    if declared is not None:
        made = _batch_as_declared(made, declared, step.label, of_row)
    if types is not None and declared is not None:
        types.declare(declared)
    elif types is not None:
        types.pass_through(batch.schema, made, inferred)
    return made


def _made_of_batch(step: Step, function: _Callable, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, frozenset[str]]:
    """Return what a step makes of a batch, and the columns whose types were inferred: those of pandas that hold objects."""
    if step.input == "pandas":
        frame = function(_frame_of(batch))
        _refuse_awaitable(frame)
        if not hasattr(frame, "columns"):
            raise WrongResult(f"a pandas step gives a pandas.DataFrame, not {type(frame).__name__}")
        made = pa.RecordBatch.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
        for number, name in enumerate(frame.columns):
            if frame.dtypes.iloc[number].kind == "O":
                _refuse_mixed_times(frame.iloc[:, number], made.column(number).type, str(name))
        return made, frozenset(str(name) for name, kind in zip(frame.columns, frame.dtypes, strict=True) if str(kind) == "object")
    result = function(batch)
    if result is None:
        return batch.slice(0, 0), frozenset()
    _refuse_awaitable(result)
    if isinstance(result, pa.Table):
        batches = result.combine_chunks().to_batches()
        if len(batches) > 1:  # Arrow does not join more than 2 GiB of one column; the rest of the rows would be lost
            raise ValueError(f"a result of {result.nbytes} bytes is too large; use large_binary, or give less at a time")
        return batches[0] if batches else _empty(result.schema), frozenset()
    if not isinstance(result, pa.RecordBatch):
        raise WrongResult(f"an arrow step gives a pyarrow.RecordBatch or Table, not {type(result).__name__}")
    return result, frozenset()


def _frame_of(batch: pa.RecordBatch) -> Any:
    """Return a pandas frame. Integers beside a NULL stay integers (Int64 and the like): as floats, large ones would change."""
    import pandas as pd

    frame = batch.to_pandas()
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if pa.types.is_integer(field.type) and column.null_count:
            kind = getattr(pd, f"{'U' if str(field.type).startswith('u') else ''}Int{field.type.bit_width}Dtype")()
            frame[field.name] = column.to_pandas(types_mapper={field.type: kind}.get)
    return frame


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


def as_declared(rows: list[Row], step: Step | None, place: Place | None = None, types: TypesByName | None = None) -> list[Row]:
    """Return what a row step gives another one: with the columns that it declares, those that a row leaves out as None."""
    if step is None or step.output is None:
        return rows
    if types is not None and (declared := _declared(step)) is not None:
        types.declare(declared)
    _refuse_surplus(rows, step, list(step.output), place)
    return [({name: row.get(name) for name in step.output or ()}, number) for row, number in rows]


def to_arrow(
    given: pa.RecordBatch | list[Row],
    schema: pa.Schema | None,
    step: Step | None,
    place: Place | None = None,
    optional: Collection[str] = (),
    types: TypesByName | None = None,
    is_last: bool = False,
) -> pa.RecordBatch:
    """Return what `step` gives as a batch: rows with a schema (the table's) as its types, a batch as it is.

    A row gives every column of the table that is not optional. Where the step declares its output, that counts in place of the
    table, and what is left out is NULL. `types` takes down the types that a new table is to have.
    NeedsChange(OutputSchemaWrong) names the column; ValueMisfit, which is one, where it is the fault of some rows only.
    """
    if not isinstance(given, list):
        return given
    label = step.label if step else "source"
    rows = [row for row, _ in given]
    declared = _declared(step)
    schema = schema if declared is None else declared
    # A key that only a later row has must not be lost, so the columns are those of all rows.
    names = dict.fromkeys(declared.names if declared is not None else (name for row in rows for name in row))
    if schema is not None:
        _refuse_surplus(given, step, schema.names, place)
        if declared is None:
            _refuse_left_out(given, label, [name for name in schema.names if name not in optional], place)
            names = names or dict.fromkeys(schema.names)  # rows that say nothing are rows of NULL
    arrays, fields = [], []
    for name in names:
        wanted = schema.field(name).type if schema is not None else None
        if is_last and wanted is None and types is not None and (kept := types.get(name)) is not None and _holds_a_map(kept):
            wanted = kept  # which cannot be inferred; the tasks are told it by the table
        values = [row.get(name) for row in rows]
        try:
            array = _array(values, wanted)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            expected = f"values of type {wanted}" if wanted is not None else "values of one type"
            way_out = DECLARE if declared is None else "correct the step, or what it declares"
            what = _said_of_incompatibility(values, wanted, given, place)
            raise ValueMisfit(
                reasons.OUTPUT_SCHEMA_WRONG,
                f"step {label!r}: column {name!r} needs {expected}{what}: {error}; {way_out}",
            ) from error
        arrays.append(array)
        fields.append(pa.field(name, array.type))
    made = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    if types is not None and declared is not None:
        types.declare(declared)
    elif types is not None:
        types.infer(made)
    return made


def _said_of_incompatibility(values: list[Any], wanted: pa.DataType | None, given: list[Row], place: Place | None) -> str:
    """Say which value does not fit by itself, and its row; nothing where nobody knows where many rows lie."""
    if place is None and len(values) > 1:
        return ""  # row_isolation.py looks for the row
    for index, value in enumerate(values):
        try:
            _array([value], wanted)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return said_of(value, None if place is None else _where(place, index, given[index][1]))
    return "" if place is None else f" in {place.of_rows(len(values))}"


def _refuse_surplus(given: list[Row], step: Step | None, known: Sequence[str], place: Place | None) -> None:
    names = dict.fromkeys(name for row, _ in given for name in row)
    surplus = next((name for name in names if name not in known), None)
    if surplus is None:
        return
    label = step.label if step else "source"
    if step is not None and step.output is not None:
        problem, way_out = f"its output does not declare (it declares {', '.join(known)})", "drop it in the step, or declare it"
    else:
        problem, way_out = f"the table does not have (it has {', '.join(known)})", "drop it in the step, or add it to the table"
    rows = [surplus in row for row, _ in given]
    raise _incompatibility(rows, given, place, f"step {label!r} gives column {surplus!r}", f", which {problem}; {way_out}")


def _refuse_left_out(given: list[Row], label: str, known: Sequence[str], place: Place | None) -> None:
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
    family = NeedsChange if all(wrong) else ValueMisfit
    index = wrong.index(True)
    where = "" if place is None else f" in {_where(place, index, given[index][1])}"
    return family(reasons.OUTPUT_SCHEMA_WRONG, f"{problem}{where}{why}")


def _batch_as_declared(
    batch: pa.RecordBatch, declared: pa.Schema, label: str, of_row: Callable[[int], str] | None
) -> pa.RecordBatch:
    """Return a batch step's result with the columns and types that the step declares; those that it leaves out are NULL."""
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
            raise ValueMisfit(
                reasons.OUTPUT_SCHEMA_WRONG,
                f"step {label!r}: column {field.name!r} needs values of type {field.type}"
                f"{incompatibility_of(batch.column(found[0]), field.type, of_row)}: {error}; correct the step, or what it "
                "declares",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=declared)


def _array(values: list[Any], wanted: pa.DataType | None) -> pa.Array:
    """Return Python values as Arrow. Told the type, pyarrow would cut 1.5 to 1 and drop unknown fields; so it finds its own."""
    if wanted is not None and _holds_a_map(wanted):
        return pa.array(values, type=wanted)
    found = pa.array(values)
    _refuse_mixed_times(values, found.type)
    if _holds_times(found.type) and any(map(_has_nanoseconds, values)):
        found = pa.array(values, type=_in_nanoseconds(found.type))  # inferred, they are cut off
    return found if wanted is None else fit_array(found, wanted)


def _refuse_mixed_times(values: Iterable[Any], found: pa.DataType, name: str = "") -> None:
    """Refuse dates beside times, and times with a zone beside those without: pyarrow would take all for the kind of the first."""
    if not _holds_times(found):
        return
    kinds: dict[str, set[str]] = {}
    for value in values:
        for path, kind in _kinds_of_times(value, ""):
            kinds.setdefault(path, set()).add(kind)
    for path, mixed in kinds.items():
        if len(mixed) > 1:
            place = f"{name}{path}"
            raise ValueError(f"{f'{place!r} has ' if place else ''}{' and '.join(sorted(mixed))} beside one another")


def _holds_times(kind: pa.DataType) -> bool:
    return (
        pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or any(_holds_times(kind.field(number).type) for number in range(kind.num_fields))
    )


def _kinds_of_times(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Give the kind of each time in a value, with the field that it lies in."""
    if isinstance(value, datetime.datetime):
        if value == value:  # not pandas' NaT
            yield path, "times with a zone" if value.tzinfo is not None else "times without a zone"
    elif isinstance(value, datetime.date):
        yield path, "dates"
    elif isinstance(value, dict):
        for field, part in value.items():
            yield from _kinds_of_times(part, f"{path}.{field}")
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _kinds_of_times(part, path)


def _has_nanoseconds(value: object) -> bool:
    if isinstance(value, datetime.datetime):
        return bool(getattr(value, "nanosecond", 0))  # pandas' Timestamp
    if isinstance(value, dict):
        return any(map(_has_nanoseconds, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_nanoseconds, value))


def _in_nanoseconds(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns", kind.tz)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_nanoseconds(field.type)) for field in kind])
    return pa.list_(_in_nanoseconds(kind.value_type)) if pa.types.is_list(kind) else kind


def _holds_a_map(kind: pa.DataType) -> bool:
    # A map is written as a dict or as pairs, of which pyarrow would make something else.
    return pa.types.is_map(kind) or any(_holds_a_map(kind.field(number).type) for number in range(kind.num_fields))

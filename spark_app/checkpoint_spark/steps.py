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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pyarrow as pa

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.manifest import Step
from checkpoint_spark.begun import Begun, tell_nobody
from checkpoint_spark.fitting import ValueMisfit, fit_array

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
    try:
        if inspect.isclass(found):
            instance = found(**step.arguments)
            if hasattr(instance, "setup"):
                instance.setup()
            if not callable(instance):
                raise TypeError(f"{attribute} has no __call__ method")
            return cast(_Callable, instance)
    except CheckpointError:
        raise
    except BaseException as error:
        raise NeedsChange(reasons.CODE_FAILED, f"step {step.label!r}: making {attribute} raised {_cause(error, step)}") from error
    function = cast(_Callable, found)
    return partial(_with_arguments, function, step.arguments) if step.arguments else function


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

    def __init__(self, steps: Iterable[Step], begun: Begun = tell_nobody) -> None:
        self._begun = begun
        self._steps = [(step, self._load(step)) for step in steps]

    def _load(self, step: Step) -> _Callable:
        self._begun(step.label, "no rows yet: it was imported and made")
        return load(step)

    def begin(self, step: Step, place: Place, rows: int) -> None:
        """Tell what begins, for whoever survives it."""
        self._begun(step.label, place.of_rows(rows))

    @property
    def steps(self) -> Sequence[tuple[Step, _Callable]]:
        return self._steps

    def apply(self, batch: pa.RecordBatch, place: Place, output_schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
        """Give what the steps make of a batch: no batch, one or several.

        `output_schema` tells how Python rows of the last step become Arrow; without it their types are inferred.
        NeedsChange(CodeFailed) names the step, the rows and the cause.
        """
        if batch.num_rows == 0:
            return
        pending: pa.RecordBatch | list[Row] = batch
        is_source = True
        for step, function in self._steps:
            self.begin(step, place, batch.num_rows)
            if step.input == "row":
                rows = pending if isinstance(pending, list) else _numbered(step, pending, is_source, place)
                pending = list(_apply_to_rows(step, function, rows, place))
            else:
                pending = _apply_to_batch(step, function, to_arrow(pending, None, step), place)
                is_source = False
            if len(pending) == 0:
                return
        result = to_arrow(pending, output_schema, self._steps[-1][0] if self._steps else None)
        if result.num_rows:
            yield result

    def schema_of(self, batch: pa.RecordBatch, place: Place) -> pa.Schema:
        """Return the schema of what the steps make of a batch, which may be empty."""
        if batch.num_rows:
            for result in self.apply(batch, place, None):
                return result.schema
            batch = batch.slice(0, 0)
        for step, function in self._steps:
            if step.input == "row":
                raise NeedsChange(
                    reasons.OUTPUT_SCHEMA_WRONG,
                    f"step {step.label!r} gave no rows, so the columns of a new table are unknown; create the table yourself",
                )
            batch = _apply_to_batch(step, function, batch, place)
        return batch.schema


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


def _apply_to_batch(step: Step, function: _Callable, batch: pa.RecordBatch, place: Place) -> pa.RecordBatch:
    try:
        return call_on_batch(step, function, batch)
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
    if isinstance(result, dict):
        return [result]
    made = []
    for one in result:
        if not isinstance(one, dict):
            raise TypeError(f"a row step gives dicts, not {type(one).__name__}")
        made.append(one)
    return made


def call_on_batch(step: Step, function: _Callable, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return what an arrow or pandas step makes of a batch. Raises what the step raises, and WrongResult."""
    if step.input == "pandas":
        frame = function(_frame_of(batch))
        if not hasattr(frame, "columns"):
            raise WrongResult(f"a pandas step gives a pandas.DataFrame, not {type(frame).__name__}")
        made = pa.RecordBatch.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
        for number, name in enumerate(frame.columns):
            if frame.dtypes.iloc[number].kind == "O":
                _refuse_mixed_times(frame.iloc[:, number], made.column(number).type, str(name))
        return made
    result = function(batch)
    if result is None:
        return batch.slice(0, 0)
    if isinstance(result, pa.Table):
        batches = result.combine_chunks().to_batches()
        if len(batches) > 1:  # Arrow does not join more than 2 GiB of one column; the rest of the rows would be lost
            raise ValueError(f"a result of {result.nbytes} bytes is too large; use large_binary, or give less at a time")
        return batches[0] if batches else _empty(result.schema)
    if not isinstance(result, pa.RecordBatch):
        raise WrongResult(f"an arrow step gives a pyarrow.RecordBatch or Table, not {type(result).__name__}")
    return result


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


def to_arrow(given: pa.RecordBatch | list[Row], schema: pa.Schema | None, step: Step | None) -> pa.RecordBatch:
    """Return Python rows as a batch; with a schema, the values as its types. A batch is returned as it is.

    NeedsChange(OutputSchemaWrong) names the column; ValueMisfit, which is one, where it is the fault of some rows only.
    """
    if not isinstance(given, list):
        return given
    rows = [row for row, _ in given]
    # A key that only a later row has must not be lost, so the columns are those of all rows.
    names = dict.fromkeys(name for row in rows for name in row)
    if not names and schema is not None:
        names = dict.fromkeys(schema.names)  # rows that say nothing are rows of NULL
    label = step.label if step else "source"
    if schema is not None and (unknown := [name for name in names if name not in schema.names]):
        family = NeedsChange if all(unknown[0] in row for row in rows) else ValueMisfit
        raise family(
            reasons.OUTPUT_SCHEMA_WRONG,
            f"step {label!r} gives column {unknown[0]!r}, which the table does not have (it has {', '.join(schema.names)}); "
            "drop it in the step, or add it to the table",
        )
    arrays, fields = [], []
    for name in names:
        wanted = schema.field(name).type if schema is not None else None
        try:
            array = _array([row.get(name) for row in rows], wanted)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            expected = f"values of type {wanted}" if wanted is not None else "values of one type"
            raise ValueMisfit(
                reasons.OUTPUT_SCHEMA_WRONG,
                f"step {label!r}: column {name!r} needs {expected}: {error}; correct the step",
            ) from error
        arrays.append(array)
        fields.append(pa.field(name, array.type))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _array(values: list[Any], wanted: pa.DataType | None) -> pa.Array:
    """Return Python values as Arrow. Told the type, pyarrow would cut 1.5 to 1 and drop unknown fields; so it finds its own."""
    if wanted is not None and _holds_a_map(wanted):
        return pa.array(values, type=wanted)
    found = pa.array(values)
    _refuse_mixed_times(values, found.type)
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


def _holds_a_map(kind: pa.DataType) -> bool:
    # A map is written as a dict or as pairs, of which pyarrow would make something else.
    return pa.types.is_map(kind) or any(_holds_a_map(kind.field(number).type) for number in range(kind.num_fields))

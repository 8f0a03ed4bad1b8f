"""The step engine: takes a batch through the steps, one after another, and fits what they make to the table.

The rows of a batch go through one step before they go to the next one (`call_on_rows`, `call_on_batch`). Steps that wait are
called on many rows at once (calls.py), and flow.py has several batches on their way then. A row step at the beginning knows which
source row it is given, and what it raises on is that row alone. From the first batch step on nobody knows, and the source rows
that are left work or fail together. What a failure means is not decided here: see row_errors.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, takewhile
from operator import itemgetter
from typing import Any

import pyarrow as pa

from checkpoint_formats.rows.selecting import asks_for_addresses, without_addresses
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.manifest.steps import Step
from checkpoint_work.process.last_call import NoteCall, tell_nobody
from checkpoint_work.process.reporting import CallCounts
from checkpoint_work.steps.batch_steps import call_on_batch
from checkpoint_work.steps.batches import Sizes
from checkpoint_work.steps.calling.calls import Calls, Surroundings
from checkpoint_work.steps.columns import as_declared, batch_as_declared, declared_by, declared_output, refuse_undeclared
from checkpoint_work.steps.failing.failures import Raised, StepFailed, cause_of
from checkpoint_work.steps.failing.row_errors import END_TASK, OnRowError, Part
from checkpoint_work.steps.failing.row_isolation import RowIsolation
from checkpoint_work.steps.loading import load
from checkpoint_work.steps.places import Place
from checkpoint_work.steps.row_numbers import (
    asks_for_numbers,
    numbers_of,
    of_these,
    one_for_each,
    only_these,
    with_numbers,
    without_numbers,
)
from checkpoint_work.steps.row_steps import Row, call_on_rows, rows_as_python
from checkpoint_work.steps.values.arrow_rows import to_arrow
from checkpoint_work.steps.values.new_table_types import TypesByName
from checkpoint_work.steps.values.schema_cast import ValueMismatch, fit

_LoadedStep = tuple[Step, Calls]
#: Does some work in the thread that asks for the results, or has it done there.
Do = Callable[[Callable[[], Any]], Any]


def do_here(work: Callable[[], Any]) -> Any:
    return work()


class Pipeline:
    """The steps of a write, in order.

    Intermediate results of `row` steps stay Python rows until a step (or the table) wants Arrow, so that their types need not
    be guessed from each batch.
    """

    def __init__(
        self,
        steps: Iterable[Step],
        optional: Collection[str] = (),
        note_call: NoteCall = tell_nobody,
        around: Surroundings | None = None,
    ) -> None:
        """Load the steps.

        `optional` are columns of the table that a row may leave out, since they came after the write began. `note_call` is told
        the step and the rows before each call.
        """
        self._note_call = note_call
        self._around = around or Surroundings()
        self._steps = [self._load(step) for step in steps]
        self._optional = frozenset(optional)

    def _load(self, step: Step) -> _LoadedStep:
        """Load a step. Where it declares no output, its annotation does."""
        self._note_call(step.label, "no rows yet: it was imported and made")
        loaded = load(step)
        if step.output is None and loaded.output is not None:
            step = step.model_copy(update={"output": loaded.output})
        return step, Calls(step, loaded.function, loaded.is_async, self._around)

    @property
    def declared(self) -> pa.Schema | None:
        """The columns that the last step declares, by its output or its annotation; None where it declares none."""
        return declared_output([step for step, _ in self._steps])

    @property
    def waits(self) -> bool:
        """Whether a step waits for something, so that many rows should be on their way at once."""
        return any(calls.waits for _, calls in self._steps)

    @property
    def leads(self) -> bool:
        """Whether the first step is a row step."""
        return bool(self._steps) and self._steps[0][0].input == "row"

    @property
    def sizes(self) -> Sizes:
        """How many rows the steps want at a time."""
        return Sizes([step for step, _ in self._steps])

    @property
    def least_rows(self) -> int:
        """The fewest rows that should be read at a time."""
        return self.sizes.least_rows

    @property
    def is_uncertain(self) -> bool:
        """Whether a row was set apart that may be in order: what was done may not be sealed yet."""
        return any(calls.is_uncertain for _, calls in self._steps)

    def count_calls(self) -> CallCounts:
        """Return what the steps that wait have done and do. For any thread."""
        of_steps = [calls for _, calls in self._steps]
        return CallCounts(
            sum(calls.ended for calls in of_steps),
            sum(calls.in_flight for calls in of_steps),
            sum(calls.tries_again for calls in of_steps),
        )

    @property
    def calls_left_running(self) -> int:
        """How many calls were given up, since they took too long, and have not ended: nobody can end a thread."""
        return sum(calls.left_running for _, calls in self._steps)

    def sealed(self) -> None:
        """Say that all that was given is sealed, and more rows come.

        Retryable(DriverFailed) where calls hang for good: they end with this process, and another one goes on after the seal.
        """
        for step, calls in self._steps:
            if hanging := calls.hanging:
                raise Retryable(
                    reasons.DRIVER_FAILED,
                    f"step {step.label!r}: {hanging} calls have not ended after twice their time (timeout); their process ends, "
                    "and another one goes on after what is sealed",
                )

    def end(self) -> None:
        """Say that no more rows come. Retryable(ServiceUnavailable) where a service has answered no call of the task."""
        for _, calls in self._steps:
            calls.end()

    def stop(self) -> None:
        """Give up all calls that are made now, and refuse new ones until `start`."""
        for _, calls in self._steps:
            calls.stop()

    def start(self, tell_few: Callable[[], None] = lambda: None) -> None:
        """Take calls. `tell_few` is called, from any thread, when `has_few` may have become true."""
        for _, calls in self._steps:
            calls.start(tell_few)

    @property
    def has_few(self) -> bool:
        """Whether few rows are being called because others wait for their next try."""
        of_steps = [calls.at_work for _, calls in self._steps if calls.waits]
        return any(rows.has_delayed for rows in of_steps) and all(rows.has_few for rows in of_steps)

    def lead(
        self,
        batch: pa.RecordBatch,
        place: Place,
        schema: pa.Schema | None,
        on_row_error: OnRowError,
        do: Do,
    ) -> pa.RecordBatch | list[Row]:
        """Take a batch, which has rows, through the row steps at the beginning, as `apply` does."""
        work = _BatchWork(self._steps, self._optional, self._note_call, batch.num_rows, place, schema, on_row_error, None, do)
        return work.begin(batch)

    def follow(
        self,
        rows: pa.RecordBatch | list[Row],
        source_rows: int,
        place: Place,
        schema: pa.Schema | None,
        on_row_error: OnRowError,
        do: Do,
    ) -> Iterator[pa.RecordBatch]:
        """Take what `lead` has made of so many source rows, and which are some, through the steps that are left."""
        work = _BatchWork(self._steps, self._optional, self._note_call, source_rows, place, schema, on_row_error, None, do)
        return on_row_error.finish(Part(rows), work.finish)

    def apply(
        self,
        batch: pa.RecordBatch,
        place: Place,
        schema: pa.Schema | None,
        on_row_error: OnRowError = END_TASK,
        types: TypesByName | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Give what the steps make of a batch: no batch, one or several.

        `schema` is what the table has, and what is given has it then; without it the types of Python rows are inferred, and
        `types` takes down those that a new table is to have.
        NeedsChange(CodeFailed) names the step, the rows and the cause, NeedsChange(OutputSchemaWrong) the column.
        """
        if batch.num_rows == 0:
            return
        work = _BatchWork(self._steps, self._optional, self._note_call, batch.num_rows, place, schema, on_row_error, types)
        whole = Part(work.begin(batch))
        if len(whole.rows):
            yield from on_row_error.finish(whole, work.finish)

    def schema_of(self, batch: pa.RecordBatch, place: Place, *, sets_apart: bool = False) -> pa.Schema:
        """Return the schema of a new table for what the steps make of a batch, which may be empty.

        It is what the last step declares, where it does; else see `new_table_types`. With `sets_apart`, rows that fail are passed
        over. NeedsChange(CodeFailed) names the first of them where no row is left.
        """
        if (declared := self.declared) is not None:
            return declared
        types = TypesByName(batch.schema)
        failed: list[tuple[int, str, BaseException]] = []
        on_row_error = RowIsolation(lambda *one: failed.append(one)) if sets_apart else END_TASK
        for result in self.apply(batch, place, None, on_row_error, types):
            return types.of(result)
        types.begin()
        try:
            return types.of(self._apply_to_no_rows(batch.slice(0, 0), place, types))
        except NeedsChange as unknown:
            raise (self._all_failed(batch.num_rows, place, failed) if failed else unknown) from None

    def _all_failed(self, rows: int, place: Place, failed: list[tuple[int, str, BaseException]]) -> NeedsChange:
        number, label, error = min(failed, key=itemgetter(0))
        step = next((step for step, _ in self._steps if step.label == label), None)
        cause = cause_of(error, step) if step is not None else str(error)
        others = "" if len(failed) == rows else ", and the others gave no rows"
        return NeedsChange(
            reasons.CODE_FAILED,
            f"of the first {counted(rows, 'row')}, which are to show the columns of a new table, {len(failed)} failed{others}: "
            f"step {label!r} raised on {place.of_row(number)}: {cause}; correct the step, or declare what it gives by its "
            "output, to have such rows quarantined",
        )

    def _apply_to_no_rows(self, batch: pa.RecordBatch, place: Place, types: TypesByName) -> pa.RecordBatch:
        for step, _ in self._steps:
            if step.input == "row":
                raise NeedsChange(
                    reasons.OUTPUT_SCHEMA_WRONG,
                    f"step {step.label!r} gave no rows, so the columns of a new table are unknown; declare what it gives by its "
                    "output (output: {name: type}), or create the table yourself",
                )
        work = _BatchWork(self._steps, self._optional, self._note_call, 0, place, None, END_TASK, types)
        try:
            for loaded in self._steps:
                batch = work.through_batch_step(loaded, batch)
        except StepFailed as failure:
            failure.end_task()
        return batch


@dataclass(frozen=True, slots=True)
class _BatchWork:
    """One batch, of so many source rows, on its way through the steps."""

    steps: Sequence[_LoadedStep]
    optional: Collection[str]
    note_call: NoteCall
    source_rows: int
    place: Place
    schema: pa.Schema | None
    on_row_error: OnRowError
    types: TypesByName | None
    do: Do = do_here

    @property
    def _leading(self) -> Sequence[_LoadedStep]:
        """The row steps before any batch step: they are given rows whose source row is known."""
        return list(takewhile(lambda loaded: loaded[0].input == "row", self.steps))

    @property
    def _named(self) -> Place | None:
        return self.place if self.on_row_error.names_rows else None

    def begin(self, batch: pa.RecordBatch) -> pa.RecordBatch | list[Row]:
        """Take a batch through its leading steps. They are told to `row_failed` on which rows they raise."""
        return self._through(self._leading, batch, None)

    def finish(self, part: Part) -> pa.RecordBatch | None:
        """Take a part through the steps that are left, and fit it to the table; None where no rows are left."""
        leading = self._leading
        if self.types is not None:
            self.types.begin()
            for step, _ in leading:
                self._note_declared(step)
        given = self._through(self.steps[len(leading) :], part.rows, leading[-1][0] if leading else None)
        last = self.steps[-1][0] if self.steps else None
        if self.schema is not None and asks_for_addresses(self.schema):
            return self._numbered(part, given, last, self.schema)
        if len(given) == 0:
            return None
        schema = without_numbers(self.schema)
        made = to_arrow(given, schema, last, self._named, self.optional, self.types, is_last=True)
        if made.num_rows == 0 or schema is None:
            return made if made.num_rows else None
        made = fit(made, schema, self._namer(last, self.source_rows))
        return with_numbers(made, numbers_of(part, given, was_given=not self.steps)) if asks_for_numbers(self.schema) else made

    def _numbered(
        self, part: Part, given: pa.RecordBatch | list[Row], last: Step | None, schema: pa.Schema
    ) -> pa.RecordBatch | None:
        """Fit what is for rows that the table has: each with the number of the row in the batch that it was made of."""
        values = without_addresses(schema)
        numbers = one_for_each(part, len(given), last, self.place, self.source_rows)
        if not len(numbers):
            return None
        made = to_arrow(only_these(given, values, last), values, last, self._named, self.optional, self.types, is_last=True)
        made = fit(of_these(made, values, last), values, self._namer(last, self.source_rows))
        return pa.RecordBatch.from_arrays([*made.columns, pa.array(numbers, pa.uint64())], schema=schema)

    def _namer(self, step: Step | None, rows: int) -> Callable[[int], str] | None:
        """Return what names a row that a step has made of so many, for messages."""
        if self._named is None or step is None:
            return None if self._named is None else self._named.of_row
        return self._named.of_made(step.label, rows)

    def _through(
        self, steps: Sequence[_LoadedStep], given: pa.RecordBatch | list[Row], before: Step | None
    ) -> pa.RecordBatch | list[Row]:
        """Take rows, which the step `before` has made, through some steps, up to one after which there are none left."""
        for loaded in steps:
            step, calls = loaded
            self.note_call(step.label, self.place.of_rows(self.source_rows))
            work = partial(self._through_step, loaded, given, before)
            # A step that does not wait is called by one thread, always the same: the one that has made it.
            given = work() if calls.waits else self.do(work)
            if len(given) == 0:
                break
            before = step
        return given

    def _through_step(
        self, loaded: _LoadedStep, given: pa.RecordBatch | list[Row], before: Step | None
    ) -> pa.RecordBatch | list[Row]:
        if loaded[0].input == "row":
            return self._through_row_step(loaded, given, before)
        return self.through_batch_step(loaded, to_arrow(given, None, before, self._named, types=self.types))

    def _through_row_step(self, loaded: _LoadedStep, given: pa.RecordBatch | list[Row], before: Step | None) -> list[Row]:
        step, calls = loaded
        rows: Iterable[tuple[dict[str, Any] | Raised, int | None]]
        if isinstance(given, list):
            assert before is not None
            rows = self._as_declared(given, before)
        else:
            is_source = before is None
            rows = ((row, number if is_source else None) for number, row in enumerate(rows_as_python(given)))
        made: list[Row] = []
        failed: set[int | None] = set()
        for index, (outcome, number) in enumerate(call_on_rows(calls, rows, failed, self.place)):
            if isinstance(outcome, Raised):
                self._row_failed(step, outcome.error, index, number)
                failed.add(number)
            else:
                for result in outcome:
                    made.append((result, number))
        return [row for row in made if row[1] not in failed] if failed else made

    def _row_failed(self, step: Step, error: BaseException, index: int, number: int | None) -> None:
        """Return where the steps go on without the source row: nothing is kept of it."""
        if isinstance(error, CheckpointError) and not isinstance(error, ValueMismatch):
            raise error  # a step may say itself what is to be done
        self._tell(number, StepFailed(step, error, lambda: self.place.of_given(index, number)))

    def _tell(self, number: int | None, failure: StepFailed) -> None:
        if number is None:
            raise failure
        self.on_row_error.row_failed(number, failure)

    def _as_declared(self, rows: list[Row], step: Step) -> list[Row]:
        """Return what a row step gives to another one. Rows with columns that it does not declare fail, unless all do."""
        self._note_declared(step)
        try:
            refuse_undeclared(rows, step, self._named)
        except NeedsChange as incompatibility:
            if rows[0][1] is None or (rows[0][1] != rows[-1][1] and not isinstance(incompatibility, ValueMismatch)):
                raise
            rows = list(self._without_undeclared(rows, step))
        return as_declared(rows, step)

    def _without_undeclared(self, rows: list[Row], step: Step) -> Iterator[Row]:
        for number, group in groupby(rows, key=itemgetter(1)):
            of_one = list(group)
            try:
                refuse_undeclared(of_one, step, self._named)
            except NeedsChange as incompatibility:
                self._tell(number, StepFailed(step, incompatibility, lambda: self.place.of_rows(self.source_rows)))
            else:
                yield from of_one

    def through_batch_step(self, loaded: _LoadedStep, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return what a batch step makes of a batch, as it declares it. StepFailed where rows may be at fault."""
        step, calls = loaded
        try:
            declared = declared_by(step)
            of_table = self.schema if self.schema is not None and step is self.steps[-1][0] else None
            made, inferred = call_on_batch(calls, batch, declared if declared is not None else of_table)
            if declared is not None:
                made = batch_as_declared(made, declared, step.label, self._namer(step, batch.num_rows))
        except BaseException as error:
            if isinstance(error, CheckpointError) and not isinstance(error, ValueMismatch):
                raise  # a step may say itself what is to be done; or its columns are wrong, in all rows
            raise StepFailed(step, error, lambda: self.place.of_rows(batch.num_rows)) from None
        if self.types is not None and declared is None:
            self.types.pass_through(batch.schema, made, inferred)
        self._note_declared(step)
        return made

    def _note_declared(self, step: Step) -> None:
        if self.types is not None and (declared := declared_by(step)) is not None:
            self.types.declare(declared)

"""One attempt on a source by key, as its driver does it: read, skip, check, count, plan, run.

The order is that of what may be lost: nothing is staged before the plan is put, and no plan is put before it is sure that what
is skipped is exactly what is sealed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StructField, StructType

from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.progress_reports import DriverPhase
from checkpoint_protocol.records import MAX_TASKS, InputRecord, KeyColumn, KeySet, LaunchRecord, PlanRecord, Retried, TakenKeys
from checkpoint_protocol.rows.keys import add_key_sets
from checkpoint_spark.dataframes import anti_join, keys
from checkpoint_spark.dataframes.anti_join import Skipped, join_with_sealed, of_earlier
from checkpoint_spark.dataframes.map_only import check_map_only, refuse_chance
from checkpoint_spark.dataframes.programs import write_source
from checkpoint_spark.dataframes.reading import column, map_in_arrow, refuse_repeated
from checkpoint_spark.dataframes.rows_by_key import KeyedPlace, keys_of_rows, shown_columns
from checkpoint_spark.dataframes.tasks import PartitionOrder, task_function
from checkpoint_work.driver.bundling import bundling
from checkpoint_work.driver.output import await_target, later_columns, schema_of_sample
from checkpoint_work.inputs.epoch_input import taken_before
from checkpoint_work.steps.columns import declared_output
from checkpoint_work.steps.places import Place
from checkpoint_work.tasks.memos import earlier_memos_by_number
from checkpoint_work.tasks.steps_in_process import needs_step_process

_SAMPLE_ROWS: Final = 64
_EMPTY: Final = add_key_sets(())


def run_dataframe_attempt(
    session: SparkSession,
    ledger: Ledger,
    launch: LaunchRecord,
    parallelism: int,
    enter: Callable[[DriverPhase], None] = lambda phase: None,
) -> None:
    """Do one attempt to its end. Raises Superseded before any task if another driver of the attempt has planned."""
    write_source(_Work(session, ledger, launch, parallelism, enter))


@dataclass(slots=True)
class _Source:
    """One source as it was read: its alias in the plan, and its keys as columns k0, k1, ..."""

    alias: str
    key_names: tuple[str, ...]
    keys: DataFrame


@dataclass(slots=True)
class _Work:
    """What an attempt knows of its sources until it writes."""

    session: SparkSession
    ledger: Ledger
    launch: LaunchRecord
    parallelism: int
    enter: Callable[[DriverPhase], None] = lambda phase: None
    is_written: bool = False
    _sources: list[_Source] = field(default_factory=list)
    _types: tuple[KeyColumn, ...] = ()
    _own: Skipped | None = None
    _earlier: Skipped | None = None
    _again: Skipped | None = None
    _retry: Literal["Also", "Only"] | None = None

    def read(self, frame: DataFrame, key_names: tuple[str, ...], is_numbered: bool = False) -> DataFrame:
        """Return the frame without the rows whose keys are sealed."""
        number = len(self._sources)
        refuse_chance(frame, key_names)
        for name in frame.columns:
            if name.startswith(keys.HIDDEN_PREFIX):
                raise NeedsChange(reasons.KEYS_UNSUITABLE, f"the source has a column {name!r}: such names are ours; rename it")
        fields = [self._key_field(frame, name) for name in key_names]
        types = tuple(KeyColumn(name=item.name, type=item.dataType.simpleString()) for item in fields)
        if not number:
            self._types = types
            self._prepare(fields)
        elif [item.type for item in types] != [item.type for item in self._types] or key_names != self._sources[0].key_names:
            raise NeedsChange(
                reasons.KEYS_UNSUITABLE,
                f"the sources of one write have the same key columns; the first has {_said(self._types)}, another {_said(types)}",
            )
        columns = [column(name) for name in key_names]
        names = [keys.column_of(place) for place in range(len(columns))]
        key_frame = frame.select(*(key.alias(name) for key, name in zip(columns, names, strict=True)))
        for skipped in (self._own, self._earlier):
            if skipped is not None:
                frame = skipped.remove_from(frame, number, key_names)
        if self._retry == "Only":
            frame = frame.where(sql.lit(False)) if self._again is None else self._again.keep_in(frame, number, key_names)
        if is_numbered:
            frame = frame.withColumn(keys.SOURCE, sql.lit(number))
        source = _Source(f"checkpointed_source_{new_token()}", key_names, key_frame)
        self._sources.append(source)
        return frame.alias(source.alias)

    def write(self, frame: DataFrame) -> None:
        """Check, count, plan, and run."""
        if self.is_written:
            raise NeedsChange(reasons.CODE_FAILED, "job.write was called a second time: a write has one result; use union")
        if not self._sources:
            raise NeedsChange(
                reasons.CODE_FAILED, "job.write was called without job.read: rows without keys cannot be checkpointed"
            )
        self.is_written = True
        key_names = self._sources[0].key_names
        numbered = (keys.SOURCE,) if len(self._sources) > 1 else ()
        checked = check_map_only(frame, {source.alias: (*key_names, *numbered) for source in self._sources})
        if checked.expands and self.launch.on_row_error == "Quarantine":
            raise NeedsChange(
                reasons.PLAN_NOT_MAP_ONLY,
                "onRowError: Quarantine sets whole rows of the source apart, and something between source and steps makes "
                "several rows of one (explode, LATERAL VIEW, a batch function): do that in a step that gives several rows, or "
                "set onRowError: Fail",
            )
        refuse_repeated(frame.columns)
        sealed = self._count(key_names)
        ready = self._with_hashes(frame, key_names)
        self._fix_input(ready)
        target = self.launch.target or await_target(self.ledger, self.launch.attempt, self._output_schema(ready, key_names))
        order = PartitionOrder(
            uri=self.ledger.store.uri,
            uid=self.ledger.key.uid,
            epoch=self.ledger.key.epoch,
            stage=self.ledger.key.stage,
            attempt=self.launch.attempt,
            target=target,
            key_names=key_names,
            # Rows that come through a shuffle come in another order each time; and what a function gives last may belong to
            # the row that it got first.
            cuts=not checked.reorders and not _is_shuffled(ready._jdf.queryExecution().executedPlan()),
            expands=checked.expands,
            later=later_columns(self.ledger, self.launch, target),
            at_once=self.parallelism,
            in_step_process=needs_step_process(self.ledger, self.launch),
            memos=earlier_memos_by_number(self.ledger, self.launch),
        )
        self._run(ready, order, sealed)

    # --- reading ----------------------------------------------------------------------------------------------------------

    def _key_field(self, frame: DataFrame, name: str) -> StructField:
        found = [item for item in frame.schema.fields if item.name == name]
        if len(found) != 1:
            raise NeedsChange(
                reasons.KEYS_UNSUITABLE if found else reasons.MANIFEST_INVALID,
                f"the source has {'no' if not found else 'more than one'} column {name!r}, which keyColumns names; it has "
                f"{', '.join(frame.columns)}",
            )
        keys.check_type(name, found[0].dataType.simpleString())
        return found[0]

    def _prepare(self, fields: list[StructField]) -> None:
        """Find out what is sealed, before the first source is read."""
        key_fields = [StructField(keys.column_of(place), item.dataType, False) for place, item in enumerate(fields)]
        schema = StructType([StructField("source", IntegerType(), False), *key_fields])
        taken = taken_before(self.ledger, self.launch).keys
        self._refuse_other_types(taken)
        own = anti_join.sealed_by(self.ledger, self.launch.counted)
        recorded, wanted = self.ledger.inputs.read_input(self.launch.input_since), self.launch.quarantine.retry
        if recorded is not None:
            self._retry = recorded.retried.retry if recorded.retried is not None else None
        elif wanted != "Never":
            self._retry = wanted
        self._own = self._skipped_of(own, schema)
        if taken is None:
            return
        if self._retry is not None:
            self._earlier = self._skipped_of(anti_join.with_result(taken), schema)
            self._again = self._skipped_of(anti_join.quarantined(taken), schema)
        else:
            self._earlier = self._skipped_of(of_earlier(self.session, self.ledger.store.uri, taken, schema), schema)

    def _skipped_of(self, sealed: anti_join.Sealed, schema: StructType) -> Skipped | None:
        return join_with_sealed(self.session, self.ledger.store.uri, sealed, schema, self.parallelism)

    def _refuse_other_types(self, taken: TakenKeys | None) -> None:
        """The keys of every attempt and epoch are of the same types: exact values of others do not compare."""
        record = self.ledger.inputs.read_input(self.launch.input_since)
        before = ((taken.columns,) if taken is not None else ()) + ((record.keys,) if record is not None else ())
        for columns in before:
            if columns != self._types:
                raise NeedsChange(
                    reasons.SOURCE_CHANGED,
                    f"the key columns were {_said(columns)} when the write began, and are {_said(self._types)} now; "
                    "undo the change, or start a new write",
                )

    # --- writing ----------------------------------------------------------------------------------------------------------

    def _count(self, key_names: tuple[str, ...]) -> KeySet:
        """Make sure that what is skipped is exactly what is sealed; return it."""
        if self._own is None and self._earlier is None:
            return _EMPTY
        sources = [source.keys for source in self._sources]
        if self._earlier is not None:
            found = anti_join.count_matching(sources, self._earlier.frame, self._earlier.strategy)
            anti_join.refuse_taken_twice(found, self._earlier.sealed.keys, sources, self._earlier.frame, key_names)
        if self._own is None:
            return _EMPTY
        found = anti_join.count_matching(sources, self._own.frame, self._own.strategy)
        anti_join.refuse_mismatch(found, self._own.sealed.keys, sources, self._own.frame, key_names)
        return found

    def _with_hashes(self, frame: DataFrame, key_names: tuple[str, ...]) -> DataFrame:
        source = sql.col(keys.SOURCE)
        if len(self._sources) == 1:
            # Tasks know the number of the only source; each column on the way to them costs time for each row.
            frame, source = frame.drop(keys.SOURCE), sql.lit(0)
        columns = [source, *map(column, key_names)]
        return frame.select("*", *anti_join.hashes(columns))

    def _fix_input(self, ready: DataFrame) -> None:
        """Note the keys, and what is taken again, for every attempt after this one."""
        recorded = self.ledger.inputs.read_input(self.launch.input_since)
        if recorded is None:
            record = InputRecord(
                token=new_token(),
                files=(),
                arrow_schema=encode_schema(_shown(to_arrow_schema(ready.schema))),
                keys=self._types,
                retried=None if self._retry is None else Retried(retry=self._retry, rows=self._count_again()),
            )
            recorded = self.ledger.inputs.put_input(record, self.launch.input_since)
        if self._retry != (recorded.retried.retry if recorded.retried is not None else None):
            raise Retryable(
                reasons.SOURCE_CHANGED,
                "another driver has fixed what this epoch reads, with another quarantine.retry; the next attempt goes by that",
            )
        self._refuse_other_types(None)

    def _count_again(self) -> int:
        """Return how many rows of the source earlier epochs have quarantined, and none has made good since."""
        if self._again is None:
            return 0
        sources = [source.keys for source in self._sources]
        if self._earlier is not None:
            earlier = self._earlier
            sources = [earlier.remove_from(each, number, tuple(each.columns)) for number, each in enumerate(sources)]
        return anti_join.count_matching(sources, self._again.frame, self._again.strategy).rows

    def _output_schema(self, ready: DataFrame, key_names: tuple[str, ...]) -> pa.Schema:
        """Return the columns that the steps declare, or run them on some rows of the source to see which they give."""
        if (declared := declared_output(self.launch.steps)) is not None:
            return declared
        batches = ready.limit(_SAMPLE_ROWS).toArrow().combine_chunks().to_batches()
        in_step_process = needs_step_process(self.ledger, self.launch)
        if not batches:
            none = pa.RecordBatch.from_pylist([], schema=_shown(to_arrow_schema(ready.schema)))
            return schema_of_sample(self.launch, in_step_process, none, Place("(no rows)", "rows", 0))
        (sample,) = batches
        place = KeyedPlace("the source", "rows", 0, key_names=key_names, key_values=keys_of_rows(sample, key_names))
        return schema_of_sample(self.launch, in_step_process, shown_columns(sample), place)

    def _run(self, ready: DataFrame, order: PartitionOrder, skipped: KeySet) -> None:
        # One plan, asked for its partitions and then run: Spark makes no other of it in between.
        planned = map_in_arrow(ready, task_function(order), "nothing int")._jdf.queryExecution().toRdd()
        partitions = planned.getNumPartitions()
        refuse_too_many(partitions)
        plan = PlanRecord(
            token=new_token(),
            attempt=self.launch.attempt,
            tasks=(),
            done_files=0,
            done_rows=skipped.rows,
            partitions=partitions,
            skipped=skipped,
        )
        # Nothing is staged before this put: a second driver of the attempt ends here.
        self.ledger.plans.put_plan(plan)
        self.enter("RunningTasks")
        with bundling(self.ledger, self.launch.attempt, plan.token):
            planned.count()


def refuse_too_many(partitions: int) -> None:
    """Raise NeedsChange(RecordTooLarge) for more tasks than an attempt may have."""
    if partitions > MAX_TASKS:
        raise NeedsChange(
            reasons.RECORD_TOO_LARGE,
            f"Spark plans {partitions:,} partitions, and no attempt has more than {MAX_TASKS:,} tasks; read the source in fewer "
            "(spark.sql.files.maxPartitionBytes in sparkConf, numPartitions in the options of a database)",
        )


def _said(columns: tuple[KeyColumn, ...]) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in columns)


def _shown(schema: pa.Schema) -> pa.Schema:
    return pa.schema([item for item in schema if not item.name.startswith(keys.HIDDEN_PREFIX)])


def _is_shuffled(plan: Any) -> bool:
    """Whether rows come through a shuffle, whose order is another each time."""
    name = plan.getClass().getSimpleName()
    children = plan.children()
    if name == "ShuffleExchangeExec":
        return True
    return any(_is_shuffled(children.apply(place)) for place in range(children.size()))

"""One attempt on a source by key, as its driver does it: read, skip, check, count, plan, run.

The order is that of what may be lost: nothing is staged before the plan is put, and no plan is put before it is sure that what
is skipped is exactly what is sealed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final, Literal, Protocol, assert_never

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StructField, StructType

from checkpoint_formats.arrow_schema import encode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.advice import DriverPhase
from checkpoint_protocol.errors import CheckpointError, Corrupt, NeedsChange, Retryable
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.keys import add_key_sets
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.quantities import parse_size_bytes
from checkpoint_protocol.quarantine import earlier_epochs
from checkpoint_protocol.records import MAX_TASKS, InputRecord, KeyColumn, KeySet, LaunchRecord, PlanRecord, Retried
from checkpoint_protocol.source import ProgramSource, SparkSource
from checkpoint_spark.bundling import bundling
from checkpoint_spark.careful import must_be_careful
from checkpoint_spark.dataframes import anti_join, keys
from checkpoint_spark.dataframes.map_only import check_map_only, refuse_chance
from checkpoint_spark.dataframes.reading import Secrets, first_line, read_source
from checkpoint_spark.dataframes.rows_by_key import KeyedPlace
from checkpoint_spark.dataframes.tasks import PartitionOrder, task_function
from checkpoint_spark.failures import of_spark
from checkpoint_spark.memos import earlier_memos_by_number
from checkpoint_spark.output import await_target, later_columns
from checkpoint_spark.sampling import schema_of_sample
from checkpoint_spark.steps.columns import declared_output
from checkpoint_spark.steps.places import Place

_INPUT_VIEW: Final = "input"
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


class Work(Protocol):
    """What becomes of the rows that Spark reads."""

    @property
    def session(self) -> SparkSession: ...

    @property
    def launch(self) -> LaunchRecord: ...

    @property
    def is_written(self) -> bool:
        """Whether `write` was called."""

    def read(self, frame: DataFrame, key_names: tuple[str, ...], is_numbered: bool = False) -> DataFrame:
        """Return the rows of a source that are to be done. `is_numbered`: with the number of the source, if there are several."""

    def write(self, frame: DataFrame) -> None:
        """Take what was made of them."""


def write_source(work: Work) -> None:
    """Read the source as the manifest or the program says, and hand it over. Raises CheckpointError, without secrets."""
    launch, secrets = work.launch, Secrets()
    with _errors_of_spark(secrets):
        match launch.source.keyed:
            case ProgramSource(call=call):
                _run_program(call, Job(work))
            case SparkSource() as source:
                work.write(_of_the_manifest(work, source, secrets))
            case None:
                raise Corrupt(reasons.RECORD_UNREADABLE, f"the launch record of attempt {launch.attempt} has no source for Spark")
            case other:
                assert_never(other)
    if not work.is_written:
        program = launch.source.program.call if launch.source.program is not None else "of the source"
        raise NeedsChange(reasons.CODE_FAILED, f"the program {program} returned without having called job.write(dataframe)")


@contextmanager
def _errors_of_spark(secrets: Secrets) -> Iterator[None]:
    """Translate what Spark raises, and let no secret out in a message."""
    try:
        yield
    except CheckpointError as error:
        raise type(error)(error.reason, secrets.hide(error.message)) from None
    except (AnalysisException, ParseException) as error:
        raise NeedsChange(reasons.MANIFEST_INVALID, secrets.hide(f"Spark refuses the query: {first_line(error)}")) from None
    except (Py4JError, PySparkException) as error:
        found = of_spark(error)
        raise type(found)(found.reason, secrets.hide(found.message)) from None
    except Exception as error:
        gist = f"{type(error).__name__}: {error}"
        if secrets.hide(gist) == gist:
            raise
        raise Retryable(reasons.DRIVER_FAILED, f"the driver ended unexpectedly: {secrets.hide(gist)}") from None


def _of_the_manifest(work: Work, source: SparkSource, secrets: Secrets) -> DataFrame:
    frame = work.read(read_source(work.session, source, work.launch.source.columns, secrets), source.key_columns)
    if source.sql is None:
        return frame
    frame.createOrReplaceTempView(_INPUT_VIEW)
    return work.session.sql(source.sql)


def _run_program(call: str, job: Job) -> None:
    module_name, name = call.split(":")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise NeedsChange(
            reasons.CODE_MISSING,
            f"there is no {call} ({error}); put its module where spec.code says, or install its package",
        ) from error
    try:
        found(job)
    except (CheckpointError, Py4JError, PySparkException):
        raise
    except BaseException as error:  # sys.exit, too, and what native libraries raise
        raise NeedsChange(reasons.CODE_FAILED, f"the program {call} raised {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class Job:
    """All that an own program has to know of checkpointing."""

    _work: Work

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self._work.session

    def read(self, dataframe: DataFrame, keys: tuple[str, ...] | list[str] | None = None) -> DataFrame:
        """Return the rows of a source that are not sealed yet; `keys` are the manifest's keyColumns unless they are named.

        Sources are told apart by the order in which they are read, which must be the same in every attempt.
        """
        return self._work.read(dataframe, tuple(keys or self._work.launch.source.key_columns), is_numbered=True)

    def write(self, dataframe: DataFrame) -> None:
        """Run the steps on these rows, stage and seal them. To be called once, with rows made of what `read` gave."""
        self._work.write(dataframe)


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
        columns = [sql.col(f"`{name}`") for name in key_names]
        names = [keys.column_of(place) for place in range(len(columns))]
        key_frame = frame.select(*(column.alias(name) for column, name in zip(columns, names, strict=True)))
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
        skipped = self._count(key_names)
        ready = self._with_hashes(frame, key_names)
        self._fix_input(ready)
        target = self.launch.target or await_target(self.ledger, self.launch.attempt, self._output_schema(ready, key_names))
        order = PartitionOrder(
            uri=self.ledger.store.uri,
            uid=self.ledger.key.uid,
            epoch=self.ledger.key.epoch,
            attempt=self.launch.attempt,
            target=target,
            key_names=key_names,
            # Rows that come through a shuffle come in another order each time; and what a function gives last may belong to
            # the row that it got first.
            cuts=not checked.reorders and not _is_shuffled(ready._jdf.queryExecution().executedPlan()),
            expands=checked.expands,
            later=later_columns(self.ledger, self.launch, target),
            at_once=self.parallelism,
            careful=must_be_careful(self.ledger, self.launch),
            memos=earlier_memos_by_number(self.ledger, self.launch),
        )
        self._run(ready, order, skipped)

    # --- reading ----------------------------------------------------------------------------------------------------------

    def _key_field(self, frame: DataFrame, name: str) -> StructField:
        found = [item for item in frame.schema.fields if item.name == name]
        if len(found) != 1:
            raise NeedsChange(
                reasons.KEYS_UNSUITABLE,
                f"the source has {'no' if not found else 'more than one'} column {name!r}, which keyColumns names; it has "
                f"{', '.join(frame.columns)}",
            )
        keys.check_type(name, found[0].dataType.simpleString())
        return found[0]

    def _prepare(self, fields: list[StructField]) -> None:
        """Find out what is sealed, before the first source is read."""
        key_fields = [StructField(keys.column_of(place), item.dataType, False) for place, item in enumerate(fields)]
        schema = StructType([StructField("source", IntegerType(), False), *key_fields])
        self._refuse_other_types()
        own = anti_join.sealed_by(self.ledger, self.launch.counted)
        recorded, wanted = self.ledger.inputs.read_input(self.launch.input_since), self.launch.quarantine.retry
        if recorded is not None:
            self._retry = recorded.retried.retry if recorded.retried is not None else None
        elif wanted != "Never":
            self._retry = wanted
        earlier = anti_join.sealed_before(self.ledger)
        self._own = self._skipped(own, schema)
        if self._retry is not None:
            self._earlier = self._skipped(earlier.with_result, schema)
            self._again = self._skipped(earlier.quarantined, schema)
        else:
            self._earlier = self._skipped(self._all_of(earlier, schema), schema)

    def _all_of(self, earlier: anti_join.Earlier, schema: StructType) -> anti_join.Sealed:
        """Return what earlier epochs have committed, with a result or quarantined; what it adds up to has each key once."""
        outstanding = earlier.quarantined.keys
        if earlier.was_retried and earlier.quarantined.objects:
            quarantined, with_result = (
                anti_join.as_dataframe(self.session, self.ledger.store.uri, sealed, schema) if sealed.objects else None
                for sealed in (earlier.quarantined, earlier.with_result)
            )
            assert quarantined is not None
            outstanding = anti_join.count_outstanding(quarantined, with_result)
        return anti_join.Sealed(
            (*earlier.with_result.objects, *earlier.quarantined.objects), add_key_sets([earlier.with_result.keys, outstanding])
        )

    def _skipped(self, sealed: anti_join.Sealed, schema: StructType) -> Skipped | None:
        if not sealed.objects:
            return None
        conf = self.session.sparkContext.getConf()
        heaps = [conf.get(f"spark.{role}.memory", "1g") or "1g" for role in ("driver", "executor")]
        is_local = (conf.get("spark.master") or "").startswith("local")
        memory_bytes = min(_heap_bytes(heap) for heap in (heaps[:1] if is_local else heaps))
        partitions = int(str(self.session.conf.get("spark.sql.shuffle.partitions")))
        strategy = anti_join.choose_strategy(sealed, memory_bytes, partitions, self.parallelism)
        frame = anti_join.as_dataframe(self.session, self.ledger.store.uri, sealed, schema)
        return Skipped(sealed, frame, strategy)

    def _refuse_other_types(self) -> None:
        """The keys of every attempt and epoch are of the same types: exact values of others do not compare."""
        inputs = [earlier.inputs.read_committed_input() for earlier in earlier_epochs(self.ledger)]
        for record in (*inputs, self.ledger.inputs.read_input(self.launch.input_since)):
            if record is not None and record.keys != self._types:
                raise NeedsChange(
                    reasons.SOURCE_CHANGED,
                    f"the key columns were {_said(record.keys)} when the write began, and are {_said(self._types)} now; "
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
        columns = [source, *(sql.col(f"`{name}`") for name in key_names)]
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
        self._refuse_other_types()

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
        table = ready.limit(_SAMPLE_ROWS).toArrow()
        rows = table.select([name for name in table.column_names if not name.startswith(keys.HIDDEN_PREFIX)])
        batches = rows.combine_chunks().to_batches()
        careful = must_be_careful(self.ledger, self.launch)
        if not batches:
            none = pa.RecordBatch.from_pylist([], schema=rows.schema)
            return schema_of_sample(self.launch, careful, none, Place("(no rows)", "rows", 0))
        sample = batches[0]
        key_values = sample.select([sample.schema.names[0], *key_names])
        place = KeyedPlace("the source", "rows", 0, key_names=key_names, key_values=key_values)
        return schema_of_sample(self.launch, careful, sample, place)

    def _run(self, ready: DataFrame, order: PartitionOrder, skipped: KeySet) -> None:
        # One plan, asked for its partitions and then run: Spark makes no other of it in between.
        planned = ready.mapInArrow(task_function(order), "nothing int")._jdf.queryExecution().toRdd()
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


@dataclass(slots=True)
class Skipped:
    """Sealed keys, and how they meet the rows."""

    sealed: anti_join.Sealed
    frame: DataFrame
    strategy: anti_join.Strategy

    def remove_from(self, frame: DataFrame, number: int, key_names: tuple[str, ...]) -> DataFrame:
        """Return the rows of a source without those that have one of the keys."""
        return self._joined(frame, number, key_names, "left_anti")

    def keep_in(self, frame: DataFrame, number: int, key_names: tuple[str, ...]) -> DataFrame:
        """Return the rows of a source that have one of the keys."""
        return self._joined(frame, number, key_names, "left_semi")

    def _joined(self, frame: DataFrame, number: int, key_names: tuple[str, ...], kind: str) -> DataFrame:
        names = [f"{keys.HIDDEN_PREFIX}{keys.column_of(place)}" for place in range(len(key_names))]
        own = anti_join.of_source(self.frame, number).select(
            *(sql.col(keys.column_of(place)).alias(name) for place, name in enumerate(names))
        )
        equal = [sql.col(f"`{key}`") == sql.col(name) for key, name in zip(key_names, names, strict=True)]
        return frame.join(own.hint(self.strategy), reduce(lambda one, other: one & other, equal), kind)


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


def _heap_bytes(text: str) -> int:
    """Read a size as Spark writes it: 512m, 2g, or bytes."""
    units = {"k": "Ki", "m": "Mi", "g": "Gi", "t": "Ti"}
    digits, unit = text.lower().rstrip("b"), ""
    if digits and digits[-1] in units:
        digits, unit = digits[:-1], units[digits[-1]]
    return int(parse_size_bytes(f"{digits}{unit}"))

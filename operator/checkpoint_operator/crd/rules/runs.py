"""Rules of all else in a manifest: its parts that concern the run, and what goes together over several parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel

from checkpoint_operator.crd.rules.cel import Rule, count_of_given, exactly_one_of, is_given, is_same_table, never_changes, text
from checkpoint_protocol.manifest import pipelines, spark_properties, steps, trigger, workloads
from checkpoint_protocol.manifest import spec as manifest
from checkpoint_protocol.tables import OVERWRITING


def _is_read_and_written(fmt: str, *fields: str) -> str:
    """Say in CEL that a table is the source, or a member of the union, and the sink."""
    in_union = f"self.source.union.exists(member, {is_same_table(fmt, 'member', 'self.sink', *fields)})"
    of_union = f"{is_given('union', 'self.source')} && {in_union}"
    return f"({is_same_table(fmt, 'self.source', 'self.sink', *fields)}) || ({of_union})"


RUN_RULES: Final[Mapping[type[BaseModel], tuple[Rule, ...]]] = {
    workloads.Code: (
        Rule(f"{count_of_given('path', 'configMap', 'uri')} <= 1", "at most one of path, configMap and uri is expected"),
    ),
    workloads.ExecutorSpec: (
        Rule(
            f"!{is_given('minInstances')} || ({is_given('instances')} && self.minInstances <= self.instances)",
            "minInstances is the minimum number of pods; also set instances, the maximum, which must not be less",
            "minInstances",
        ),
        Rule(
            f"self.gpus == 0 || !{is_given('instances')} || self.instances > 0",
            "gpus are for executors, and with instances: 0 there are none (the driver pod has no GPU); leave one of them out",
            "gpus",
        ),
        Rule(
            f"self.gpus == 0 || !{is_given('tasksPerExecutor')} || self.tasksPerExecutor % self.gpus == 0 || "
            "self.gpus % self.tasksPerExecutor == 0",
            "tasks do not share gpus evenly: each task must have whole GPUs, or each GPU must have the same number of tasks; let "
            "one of tasksPerExecutor and gpus be a multiple of the other",
            "tasksPerExecutor",
        ),
    ),
    pipelines.StageSpec: (
        Rule(
            f"self.kind == 'Aggregate' || (self.keyBy.size() == 0 && !{is_given('buckets')})",
            "rows come together in an Aggregate only; add kind: Aggregate",
            "keyBy",
        ),
        Rule(
            f"!{is_given('buckets')} || self.keyBy.size() > 0",
            "without keyBy all rows are in one; leave it out, or add keyBy",
            "buckets",
        ),
        Rule(
            "self.keyBy.all(name, self.keyBy.filter(other, other == name).size() == 1)",
            "a column is named twice; name it once",
            "keyBy",
        ),
        Rule(
            "self.kind != 'Aggregate' || self.checkpoint",
            "the result of an Aggregate is kept, as rows came together for it; leave it out",
            "checkpoint",
        ),
        Rule(
            f"self.kind != 'Aggregate' || self.steps.all(step, step.input != 'row' && !{is_given('batchSize', 'step')})",
            "an Aggregate's steps get all rows of a key at once: arrow or pandas, without batchSize; what is done row by row "
            "belongs to a stage before or after it",
            "steps",
        ),
    ),
    steps.Step: (
        Rule(
            f"!{is_given('batchSize')} || self.input != 'row'",
            "a row step receives one row at a time; leave it out, and see concurrency",
            "batchSize",
        ),
        Rule(
            f"!{is_given('memo')} || !self.memo || self.input == 'row'",
            "batches may differ in the next try, so their results cannot be kept; only row steps can have it",
            "memo",
        ),
    ),
    manifest.CheckpointSpec: (never_changes("uri", "checkpoint.uri"),),
    trigger.Trigger: (
        exactly_one_of("every", "cron"),
        Rule(f"!{is_given('every')} || duration(self.every) >= duration('1s')", "1s or more is expected", "every"),
        Rule(f"!{is_given('timeZone')} || {is_given('cron')}", "timeZone goes with cron; leave it out", "timeZone"),
    ),
    trigger.AtMost: (Rule(f"{is_given('files')} || {is_given('bytes')}", "files, bytes or both are expected"),),
    trigger.AtLeast: (Rule(f"{is_given('files')} || {is_given('bytes')}", "files, bytes or both are expected"),),
    manifest.Spec: (
        Rule(
            f"!{is_given('trigger')} || !{is_given('ttlSecondsAfterFinished')}",
            "a write with a trigger never finishes; leave one of them out",
            "ttlSecondsAfterFinished",
        ),
        Rule(
            f"!{is_given('trigger')} || !({sorted(OVERWRITING)}.exists(mode, self.sink.mode == mode))",
            "each epoch of a write that overwrites reads the whole source, so that none of it is new; leave it out",
            "trigger",
        ),
        Rule(
            f"!{is_given('trigger')} || !({is_given('atMost', 'self.trigger')} || {is_given('atLeast', 'self.trigger')}) || "
            f"!({' || '.join(is_given(name, 'self.source') for name in ('spark', 'program', 'kafka'))})",
            "atMost and atLeast count files, and this source has none that can be counted; leave them out",
            "trigger",
        ),
        Rule(
            f"!{is_given('trigger')} || !{is_given('atMost', 'self.trigger')} || {is_given('files', 'self.source')} || "
            f"({is_given('union', 'self.source')} && self.source.union.all(one, {is_given('files', 'one')}))",
            "atMost applies only to files; from a table, an epoch takes all new rows: leave it out",
            "trigger",
        ),
        Rule(
            "self.sink.mode != 'AddColumns' || self.stages.size() == 0",
            "AddColumns adds columns to the rows of the source, but stages replace these rows; use steps",
            "sink.mode",
        ),
        Rule(
            "self.stages.size() == 0 || self.steps.size() == 0",
            "stages replace steps: put the steps into a stage, or leave the stages out",
            "steps",
        ),
        Rule(
            "self.stages.all(one, self.stages.filter(other, other.name == one.name).size() == 1)",
            "two stages have one name; give each a name of its own",
            "stages",
        ),
        Rule(
            "self.stages.all(one, one.kind != 'Aggregate' || !self.stages.exists(other, other.name == one.name + '-shuffle'))",
            "a stage has the name of the pass before an Aggregate (the name of the Aggregate and -shuffle); give it another name",
            "stages",
        ),
        Rule(
            "self.stages.size() == 0 || self.stages[self.stages.size() - 1].checkpoint",
            "checkpoint: false does not apply to the last stage: its result is in the table",
            "stages",
        ),
        Rule(
            "self.stages.size() == 0 || self.quarantine.retry == 'Never'",
            "with stages, rows that failed are known by the results of stages, which end with their epoch; leave it out, and "
            "reset the stage instead",
            "quarantine.retry",
        ),
        Rule(
            f"!{is_given('reset')} || self.reset.stages.all(name, self.stages.exists(stage, stage.name == name))",
            "there is no stage of that name",
            "reset",
        ),
        Rule(
            f"self.sparkConf.all(name, name.matches({text(spark_properties.NAME)}))",
            "properties of Spark start with 'spark.', without = or spaces",
            "sparkConf",
        ),
        Rule(
            f"self.sparkConf.all(name, !name.matches({text(spark_properties.SECRET_NAME)}) || "
            f"name.matches({text(spark_properties.NO_SECRET_NAME)}) || "
            f"self.sparkConf[name].matches({text(spark_properties.SECRET_VALUE)}))",
            "this property is a secret; say ${env:NAME}, a variable of the driver's environment",
            "sparkConf",
        ),
        Rule(
            f"self.sparkConf.all(name, !self.sparkConf[name].matches({text(spark_properties.HIDDEN_SECRET)}))",
            "there is a password in a property; say ${env:NAME} in its place, a variable of the driver's environment",
            "sparkConf",
        ),
        *(
            Rule(
                f"self.sparkConf.all(name, !name.matches({text(refused.pattern)}))",
                f"this property would change more than a manifest may set for its pods: {refused.remedy}",
                "sparkConf",
            )
            for refused in spark_properties.REFUSED
        ),
        Rule(
            "self.sink.mode == 'AddColumns' || "
            f"(!({_is_read_and_written('iceberg', 'catalog', 'table')}) && !({_is_read_and_written('lance', 'uri')}))",
            "source and sink are one table: what a run appends would be the next one's input; use another table, or add columns "
            "to its rows (sink.mode: AddColumns)",
        ),
        Rule(
            # Of a slash at the end, the model is the less strict.
            f"self.sink.mode != 'AddColumns' || ({is_same_table('lance', 'self.source', 'self.sink', 'uri')} && "
            f"!{is_given('version', 'self.source.lance')})",
            "sink.mode: AddColumns adds columns to the rows that are read: name the dataset of the sink as the source, too "
            "(source.lance.uri), without a version",
        ),
        Rule(
            "self.sink.mode != 'AddColumns' || self.steps.size() > 0",
            "nothing makes the columns of sink.columns; add a step",
            "steps",
        ),
        Rule(
            "self.sink.mode in ['Append', 'Upsert'] || self.quarantine.retry == 'Never'",
            "with an overwriting sink.mode each epoch reads the whole source, quarantined rows too, and with AddColumns they are "
            "NULL, so that a write of another name takes them; leave it out",
            "quarantine.retry",
        ),
        Rule(
            f"!{is_given('kafka', 'self.source')} || self.source.kafka.onLost == 'Stall' || self.onRowError == 'Quarantine'",
            "source.kafka.onLost: Skip needs onRowError: Quarantine, because lost offsets are quarantined",
        ),
        Rule(
            # Whole milliseconds: of less than one, the model is the stricter.
            f"!{is_given('progressDeadlineSeconds')} || self.progressDeadlineSeconds * 1000 >= "
            "duration(self.checkpoint.interval).getMilliseconds() * "
            "(quantity(string(self.checkpoint.minimumBytes)).compareTo(quantity('0')) == 0 ? 2 : 20)",
            "20 times checkpoint.interval is the least (2 times where minimumBytes is 0): a seal may take ten intervals, and "
            "attempts at work would be given up; leave progressDeadlineSeconds out, or raise it, or lower the interval",
            "progressDeadlineSeconds",
        ),
    ),
}

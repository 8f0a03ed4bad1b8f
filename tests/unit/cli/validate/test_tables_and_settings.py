"""What `checkpointed-write validate` finds wrong with the manifest, the settings, the table and the checkpoints."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.support.grounds import Ground, Look, Scenarios, catalog_settings, each_of
from tests.unit.cli.validate.looks import (
    BY_SPARK,
    NEW_ICEBERG,
    NEW_LANCE,
    OF_A_STEP,
    SAME,
    UNREADABLE_SETTINGS,
    of_json,
)

TEXT = pa.field("text", pa.string())
#: What is wrong with it is told for a table and for a dataset with these columns.
OTHER_COLUMNS = {
    "lacks a column": ("spec.source.columns: ...the column 'text'...", pa.schema([("id", pa.int64())])),
    "requires a column": (
        "spec.source: ...requires the column 'day'...",
        pa.schema([("id", pa.int64()), TEXT, pa.field("day", pa.date32(), nullable=False)]),
    ),
}
TO_UPSERT = "partitionBy: [{column: id}], mode: Upsert, upsertKeys: [id]}"
#: The same columns from a source and from a step.
DAY_AND_ITS_MONTH: dict[str, tuple[str, dict[str, Any]]] = {
    "CSV": ("", {"text": "day,day_month\n2026-01-02,1\n"}),
    "JSON": ("source.files.types: {day: date}, ", {"text": '{"day": "2026-01-02", "day_month": 1}\n', "name": "rows.json"}),
    "a step": (f"{OF_A_STEP} {{day: date, day_month: int32}}, ", SAME),
}
A_DOT: dict[str, tuple[str, str, dict[str, Any]]] = {
    "CSV": ("spec.source", "", {"text": "a.b\n1\n"}),
    "JSON": ("spec.source", "", {"text": '{"a.b": 1}\n', "name": "rows.json"}),
    "a step": ("spec.steps.0.output", f"{OF_A_STEP} {{a.b: int32}}, ", SAME),
}

RIGHT_TABLES: Scenarios = {
    "the columns of steps, which nobody knows": Look(call="json:loads", table=pa.schema([("other", pa.int64())])),
    **{
        f"what only Spark knows of the columns of a {what}": (
            Look(
                BY_SPARK,
                f"code: {{path: code}}, source: {source}",
                code="def of_orders(job): ...",
                table=pa.schema([pa.field("id", pa.int64(), nullable=False), TEXT]),
            ),
            Look(BY_SPARK, f"{NEW_ICEBERG}, {TO_UPSERT}"),
        )
        for what, source in {
            "source": "{spark: {format: orc, paths: [in], keyColumns: [id]}}",
            "stream": "{program: {call: 'steps:of_orders', stream: {outputMode: Append}}}",
        }.items()
    },
}
WRONG_TABLES: Scenarios = {
    "misspelt fields, whatever is wrong with the settings": Look(
        (
            "spec.source.files.format: ...",
            "spec.source.files.fromat: ...did you mean 'format'...",
            "spec.backoffLimit: ...",
            "settings.catalog: ...",
            "would: None",
        ),
        "source.files: {fromat: parquet, paths: [in]}, backoffLimit: '3'",
        files=UNREADABLE_SETTINGS,
    ),
    "settings that cannot be read, and what lies on this machine": Look(
        ("settings.catalog: ...", "spec.source.columns.0: ..."), "source.columns: [nosuch]", files=UNREADABLE_SETTINGS
    ),
    "what only a cluster has": Look(
        ("spec.suspend: ...take it out...", "spec.code.configMap: ...code.path..."),
        "code: {configMap: {name: flights}}, suspend: true",
        call="flights:clean",
    ),
    "a schedule that never comes": Look("spec.trigger.cron: ...0 0 31 2 *...", "trigger: {cron: 0 0 31 2 *}"),
    "no time zone": Look("spec.trigger.timeZone: ...Europe...", "trigger: {cron: 0 3 * * *, timeZone: Europe}"),
    "no table": Look("spec.sink.iceberg.table: ...sink.create: true...", bare=True),
    "an unknown catalog": Look("spec.sink.iceberg.catalog: ...there are: lake...", "sink.iceberg.catalog: laek"),
    "a catalog that does not answer": Look(
        "spec.sink.iceberg.catalog: ...did not answer...",
        files={"settings.yaml": catalog_settings({"type": "rest", "uri": "http://127.0.0.1:9"})},
    ),
    "a table with a feature that is not supported": Look(
        "spec.sink.iceberg.table: ...write.format.default is 'orc'...",
        bare=True,
        prepare=lambda ground: ground.make_table(properties={"write.format.default": "orc"}),
    ),
    **{f"a table that {what}": Look(says, table=schema) for what, (says, schema) in OTHER_COLUMNS.items()},
    **{
        f"a dataset that {what}": Look(says, "sink: {lance: {uri: rows.lance}}", files={"rows.lance": schema.empty_table()})
        for what, (says, schema) in OTHER_COLUMNS.items()
    },
    "a partition column that the source lacks": Look(
        "spec.sink.partitionBy.1.column: ...", "sink.create: true, sink.partitionBy: [{column: id}, {column: day}]", bare=True
    ),
    "a partition column that the last step does not declare": Look(
        "spec.sink.partitionBy.0.column: the output of step 'json:loads' has no column 'day' (it has id)",
        "sink.create: true, steps.0.output: {id: int64}, sink.partitionBy: [{column: day}]",
        call="json:loads",
        bare=True,
    ),
    "a declared type that does not exist, beside a time": Look(
        ("spec.steps.0.output.id: ...", "note: spec.steps.0.output.at: Spark cannot read..."),
        "sink.create: true, steps.0.output: {id: integer, at: time}",
        call="json:loads",
        bare=True,
    ),
    "a condition of columns that a new table would lack": Look(
        "spec.sink.where: the source has no column 'day' (it has id, text)",
        "sink.create: true, sink.mode: OverwriteWhere, sink.where: day = '2026-11-24'",
        bare=True,
    ),
    "a condition of other types than a new table would have": Look(
        "spec.sink.where: ...the column 'id' is int64...",
        "sink.create: true, sink.mode: OverwriteWhere, sink.where: id = 'x'",
        bare=True,
    ),
    "a condition of columns that the table lacks": Look(
        "spec.sink.where: there is no column 'day'...", "sink.mode: OverwriteWhere, sink.where: day = '2026-11-24'"
    ),
    "an upsert key that the table lacks": Look(
        "spec.sink.upsertKeys.1: there is no column 'day'...", "sink.mode: Upsert, sink.upsertKeys: [id, day]"
    ),
    "an upsert key that a new table would lack": Look(
        "spec.sink.upsertKeys.1: the source has no column 'day' (it has id, text)",
        "sink.create: true, sink.mode: Upsert, sink.upsertKeys: [id, day]",
        bare=True,
    ),
    **{
        f"a partition field with the name of a column of {form}": Look(
            "spec.sink.partitionBy.0: the partition field would have the name 'day_month', which is that of a column of the "
            "output; rename...",
            f"{spec}{NEW_ICEBERG}, partitionBy: [{{column: day, transform: month}}]}}",
            bare=True,
            **given,
        )
        for form, (spec, given) in DAY_AND_ITS_MONTH.items()
    },
    **{
        f"a dot in a column of {form} for a new dataset": Look(
            f"{at}: ...the column 'a.b' has a dot in its name...rename it in a step, or leave it out...",
            f"{spec}{NEW_LANCE}",
            bare=True,
            **given,
        )
        for form, (at, spec, given) in A_DOT.items()
    },
    **{
        f"an empty JSON object for a new {what}": of_json(
            "spec.source: ...the column 'more' has the type struct<>...", '{"id": 1, "more": {}}\n', sink
        )
        for what, sink in {"table": NEW_ICEBERG + "}", "dataset": NEW_LANCE}.items()
    },
    **{
        f"a bucket of {field} that no storage entry covers": Look(
            f"spec.{field}...: ...no storage entry covers s3://bucket...credentials: ambient...", f"{field}: {section}"
        )
        for field, section in {
            "source": "{files: {format: parquet, paths: ['s3://bucket/in']}}",
            "sink": "{lance: {uri: 's3://bucket/rows.lance'}}",
            "checkpoint": "{uri: 's3://bucket/checkpoints'}",
            "code": "{uri: 's3://bucket/code.zip'}",
        }.items()
    },
    "a checkpoint store of an unknown kind": Look("spec.checkpoint.uri: ...", "checkpoint.uri: 'ftp://host/checkpoints'"),
}


@each_of(RIGHT_TABLES)
def test_what_is_right_is_let_be(looks: tuple[Look, ...], bare_ground: Ground) -> None:
    bare_ground.see(*looks)


@each_of(WRONG_TABLES)
def test_what_is_wrong_is_a_problem_of_its_field(looks: tuple[Look, ...], bare_ground: Ground) -> None:
    bare_ground.see(*looks)

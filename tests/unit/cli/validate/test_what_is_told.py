"""What `checkpointed-write validate` tells until it is corrected, and what it notes for a person to judge."""

from __future__ import annotations

import pyarrow as pa

from tests.support.grounds import Ground, Look, Scenarios, each_of
from tests.support.writes import rows_of
from tests.unit.cli.validate.looks import (
    BY_SPARK,
    DURATIONS,
    NEW_ICEBERG,
    NEW_LANCE,
    NO_TABLE,
    OF_A_STEP,
    SAME,
    UNREADABLE_SETTINGS,
    files_in,
    of_csv,
    of_json,
)

TIME = "Spark cannot read an Iceberg table that has a column of type time..."
NO_GPU = "note: spec.steps.0.output: executor.gpus are those of executors, and the table does not exist...its pod has no GPU..."
MICROSECONDS = "note: ...'at'...microseconds..."
WITH_NA = "id,text\n1,2\n2,NA\n"


def rename_what_hides(ground: Ground) -> None:
    for name in ("email.py", "pandas"):
        (ground.code / name).rename(ground.code / f"our_{name}")


#: The last look is at what is right, where the one before it was not.
CORRECTED: Scenarios = {
    "modules that hide what the driver needs, until they are renamed": (
        Look(
            "spec.code.path: ...email.py hides 'email' of Python's standard library...pandas/__init__.py hides the installed "
            "package 'pandas'...",
            code="def clean(rows): return rows",
            call="steps:clean",
            files={"code/email.py": "", "code/pandas/__init__.py": ""},
        ),
        Look(prepare=rename_what_hides),
    ),
    "the volume of a stream on one machine, until it is left out": (
        Look(
            ("spec.source.program.stream.checkpointVolume: one machine has no PersistentVolumeClaims; leave it out...", BY_SPARK),
            "source: {program: {call: 'jobs:main', stream: {checkpointVolume: {claimName: spark-state}}}}",
            files={"jobs.py": "def main(job): ..."},
        ),
        Look(BY_SPARK, "source: {program: {call: 'jobs:main', stream: {}}}"),
    ),
    **{
        f"durations of {kind}, which no Iceberg table has, until they are left out, or go elsewhere": (
            Look(
                ("spec.source: ...'took' has the type duration[us]...", MICROSECONDS),
                f"source: {source}, sink.create: true",
                bare=True,
                files={"pandas.parquet": DURATIONS, "rows.lance": DURATIONS},
            ),
            Look(MICROSECONDS, "source.columns: [id, at]"),
            Look("", f"source.columns: null, {NEW_LANCE}"),
        )
        for kind, source in {"Parquet": files_in("pandas.parquet"), "Lance": "{lance: {uri: rows.lance}}"}.items()
    },
    "a text that often means NULL, until it does": (
        of_csv(
            (
                "column id: int64...",
                "column text: string: 'NA' in line 3 is text; where it means NULL, name it in source.files.csv.nullValues",
            ),
            WITH_NA,
        ),
        of_csv(("column id: ...", "column text: int64: ..."), WITH_NA, nullValues=["NA"]),
    ),
    "a header that is one name with another delimiter in it, until that is set": (
        of_csv(
            "note: spec.source.files.csv.delimiter: {folder}/rows.csv has one column, 'id;text'; if ';' is between the columns, "
            "set source.files.csv.delimiter: ';'",
            "id;text\n1;a\n",
            NO_TABLE,
        ),
        Look(
            (
                "spec.source.columns.0: the source has no column 'id'; it has id;text, or set source.files.csv.delimiter: ';'...",
                "note: spec.source.files.csv.delimiter: ...",
            ),
            "source.columns: [id]",
        ),
        of_csv("", "id;text\n1;a\n", delimiter=";"),
    ),
    "text that is not UTF-8, until its type is binary": (
        of_csv("spec.source: ...'text'...", b"id,text\n" + b"1,a\n" * 70_000 + b"1,\xe9\n"),
        Look("", "source.files.types: {text: binary}"),
    ),
    **{
        f"{what} that the first rows of JSON lack, until it has a type": (
            of_json(f"{at}: ...source.files.types...", '{"id": 1}\n', spec),
            Look("", "source.files.types: {text: string}"),
        )
        for what, at, spec in (
            ("a column", "spec.source.columns.1", "source.columns: [id, text]"),
            ("a field of where", "spec.source.where", "source.columns: [id], source.where: text = 'a'"),
        )
    },
    "what a step declares, until it is what the table has": (
        Look(
            (
                "spec.steps.0.output: the output of step 'json:loads' has the column 'id', which lake.db.rows does not have...",
                "spec.steps.0.output: lake.db.rows requires the column 'other', and the output of step 'json:loads' has none",
            ),
            "steps.0.output: {id: int64}",
            call="json:loads",
            table=pa.schema([pa.field("other", pa.int64(), nullable=False)]),
        ),
        Look("", "steps.0.output: {other: int64}"),
    ),
    "a time of day in an Iceberg table, until there is no table, or no time": (
        of_csv(f"note: spec.source.files.types.text: {TIME}", "id,text\n1,10:30\n", "source.files.types: {text: time}"),
        Look("", NO_TABLE),
        Look("", "sink: {iceberg: {catalog: lake, table: db.rows}}, source.files.types: {text: string}"),
    ),
    "steps that need a GPU, until the driver need not run them": (
        Look("", "sink.create: true", call="steps:work", code="def work(batch): ...", bare=True),
        Look(NO_GPU, "executor: {gpus: 1}"),
        Look("", "steps.0.output: {id: int64}"),
        Look(NO_GPU, "steps.0.output: null"),
        Look(table=rows_of([]).schema),
    ),
    "a checkpoint folder that is below a file, or is one": (
        Look("spec.checkpoint.uri: ...cannot be made...is a file...", "checkpoint.uri: settings.yaml/checkpoints"),
        Look("spec.checkpoint.uri: ...settings.yaml is a file and no folder; correct the URI", "checkpoint.uri: settings.yaml"),
        Look("", "checkpoint.uri: checkpoints"),
    ),
}
EXTENSIONS = pa.table(
    {
        "kept": pa.array([bytes(16)], pa.uuid()),
        "listed": pa.ListArray.from_arrays([0, 1], pa.array([bytes(16)], pa.uuid())),
        "text": pa.array(["{}"], pa.json_()),
    }
)
NOTED: Scenarios = {
    "a star import, which may bring anything": Look(
        "note: ...without importing...", code="from somewhere import *", call="steps:clean"
    ),
    "a time of day in a member of a union": Look(
        f"note: spec.source.union.1.files.types.day: {TIME}",
        f"source: {{union: [{files_in('in')}, {files_in('more.csv', ', types: {day: time}')}], columns: [id]}}",
        files={"more.csv": "id,day\n1,10:30\n"},
    ),
    "a time of day in values of Kafka, whose cluster is not asked without settings": Look(
        ("settings.catalog: ...", f"note: spec.source.kafka.types.text: {TIME}"),
        "source: {kafka: {bootstrapServers: ['kafka:9092'], topics: [orders], format: json, types: {text: time}}}",
        files=UNREADABLE_SETTINGS,
    ),
    **{
        f"a time of day in {kind} of a step": Look(
            f"note: spec.steps.0.output.x: {TIME}",
            f"sink.create: true, {OF_A_STEP} {{id: int64, time: string, x: '{kind}'}}",
            bare=True,
            **SAME,
        )
        for kind in ("time", "list<time>", "map<string, time>", "struct<at: list<time>>")
    },
    **{
        f"extension types that a new {what} does not keep, and a UUID that it keeps": Look(
            (
                "note: the column 'listed' is arrow.uuid in the source, and list<item: fixed_size_binary[16]> in the new table",
                "note: the column 'text' is arrow.json in the source, and string in the new table",
            ),
            f"source.files.paths: [extensions.parquet], {sink}",
            bare=True,
            files={"extensions.parquet": EXTENSIONS},
        )
        for what, sink in {"table": NEW_ICEBERG + "}", "dataset": NEW_LANCE}.items()
    },
    "a first epoch that only tries again, and takes no rows": Look(
        "note: ...the first epoch would take no rows...", "onRowError: Quarantine, quarantine: {retry: Only}"
    ),
    "a first epoch that tries again too": Look("", "onRowError: Quarantine, quarantine: {retry: Also}"),
}


@each_of(CORRECTED)
def test_what_is_corrected_as_was_told_is_told_no_more(looks: tuple[Look, ...], bare_ground: Ground) -> None:
    bare_ground.see(*looks)


@each_of(NOTED)
def test_what_a_person_has_to_judge_is_noted(looks: tuple[Look, ...], bare_ground: Ground) -> None:
    bare_ground.see(*looks)

"""What a run would do, and which types columns have, as `checkpointed-write validate` foresees it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable

from tests.support.grounds import Ground, Look, Scenarios, each_of
from tests.support.stored_writes import StoredWrite
from tests.support.writes import rows_of
from tests.unit.cli.validate.looks import BY_SPARK, CSV, MORE_CSV, NO_TABLE, files_in, launched, of_audit, of_csv, of_json, stored


def committed_and_wanted_again(write: StoredWrite) -> None:
    write.run_nonce = "monday"
    write.commit()


def of_stored(would: str, does: Callable[[StoredWrite], None], spec: str = "") -> Look:
    # Of a commit that was only recorded, the table has no rows: that is the one problem.
    lost = ("spec.sink.iceberg.table: ...",) if does is StoredWrite.commit else ()
    return Look((*lost, f"would.write: {would}"), spec, prepare=stored(does))


ONLY_AGAIN = "onRowError: Quarantine, quarantine: {retry: Only}"
UPSERT = "sink.mode: Upsert, sink.upsertKeys: [id]"
FORESEEN: Scenarios = {
    "code, which is parsed only": Look(
        "would.notTried: importing and calling the code, which was only parsed (nor were modules that it imports looked for); "
        "writing to the table",
        code="import a_module_that_nobody_has\n\ndef clean(rows): ...",
        call="steps:clean",
    ),
    "a source that Spark reads by keys": Look(
        (
            BY_SPARK,
            "would.notTried: reading the source with Spark; writing to the table",
            "would.rowIdentity: key (id, day)...",
            "would.sourceFiles: None",
            "would.tasks: {'atLeast': 0, 'atMost': None, 'why': \"one for each partition of Spark's plan\"}",
        ),
        "source: {spark: {format: orc, paths: [in], keyColumns: [id, day]}}",
    ),
    "an audit, before which nobody sees the rows": of_audit(
        "would.whatACommitDoes: ...readers see it once steps:run has let it pass", "steps:run", "def run(table): ..."
    ),
    "whole files, of which all are counted and none is opened, and their columns": (
        Look(
            ("would.rowIdentity: file", "would.sourceFiles: 250", "would.sourceRows: 250"),
            f'source: {{files: {{format: binary, paths: ["in/*.png"]}}, columns: [path, content]}}, {NO_TABLE}',
            files={f"in/{number}.png": b"x" * number for number in range(250)},
        ),
        Look(
            "spec.source.columns.1: the source has no column 'contents'; did you mean 'content'?",
            "source.columns: [path, contents]",
        ),
    ),
    "a union as one source": Look(
        ("would.sourceFiles: 3", "would.rowIdentity: file and row number in it or file and byte in it"),
        f"source: {{union: [{files_in('in')}, {files_in('more.csv')}], columns: [day, id]}}, sink.create: true",
        bare=True,
        files=MORE_CSV,
    ),
    **{
        f"{what} of the table": Look(f"would.whatACommitDoes: ...{said}...", spec)
        for what, spec, said in (
            ("rows that are added beside those", "", "rows are added"),
            ("new rows for all", "sink.mode: OverwriteAll", "without new ones, it is empty afterwards"),
            (
                "new rows for some",
                "sink.mode: OverwriteWhere, sink.where: id >= 0",
                "rows for which id >= 0 are replaced; without new ones, they are deleted",
            ),
            ("new partitions for those", "sink.mode: OverwritePartitions", "without any, the table stays as it is"),
            ("new rows for those of their keys", UPSERT, "drivers read id of the data files that may have such rows"),
            ("deletes of rows of keys", f"{UPSERT}, sink.whenMatched: Delete", "are deleted, and nothing is added"),
            ("only new keys", f"{UPSERT}, sink.whenMatched: Ignore", "new rows whose id are not in the table are added"),
        )
    },
    "no table, so that there are no data files": Look(
        ("would.dataFiles.atMost: 0", "would.whatACommitDoes: there is no table..."), NO_TABLE
    ),
    "a committed write": of_stored(
        "committed (epoch 1): a run would do nothing; run --again takes files that came since", StoredWrite.commit
    ),
    "a write that was at work": of_stored(
        "Running (epoch 1, attempt 1): a run would go on from there; 10 rows are sealed...", launched
    ),
    "a write that is wanted again": of_stored("epoch 2 is not begun: a run would begin it...", committed_and_wanted_again),
    "a committed write with a trigger, which takes what is new": of_stored(
        "committed (epoch 1): a run would take what came since", StoredWrite.commit, "trigger: {every: 5m}"
    ),
    "a committed write that overwrites": of_stored(
        "...change runNonce to read the whole source again", StoredWrite.commit, "sink.mode: OverwriteAll"
    ),
    "a write that overwrites and is wanted again": of_stored(
        "...a run would begin it, with the whole source", committed_and_wanted_again, "sink.mode: OverwriteAll"
    ),
    "a committed write that only tries again": of_stored(
        "...run --again takes the rows that failed", StoredWrite.commit, ONLY_AGAIN
    ),
    "a write that only tries again and is wanted again": of_stored(
        "...a run would begin it, with the rows that failed in earlier epochs, and no others",
        committed_and_wanted_again,
        ONLY_AGAIN,
    ),
    "another source while nothing is sealed": (
        Look(prepare=stored(StoredWrite.launch, StoredWrite.plan)),
        Look("", "source.files.paths: [in/*]"),
    ),
}

SEVERAL_LINES = b'id,text\n1,"a\nb"\n01,c\n'
OF_ROW_2 = ("column id: string: '01' in row 2 is no number that can be written back as it stands", "column text: ...")
OF_FOLDERS = (
    "column year: int64: the folder year=2024 is one",
    "column zip: string: the folder zip=007 is no number that can be written back as it stands",
    "column code: string: source.files.types says so",
    "column none: string: every folder means NULL",
)
FOLDERS = ("year=2024/zip=007/code=1/none=", "year=2025/zip=12/code=2/none=__HIVE_DEFAULT_PARTITION__")
TYPES: Scenarios = {
    "CSV, with the texts that decided": of_csv(
        (
            "column id: int64: '1' in line 4 is one",
            "column zip: string: '00501' in line 6 is no number that can be written back as it stands",
            "column price: double: '1.5' in line 6 is one",
            "column at: string: '10:30' in line 4 is a time of day, which is never inferred",
            "column none: string: it has no value in the rows of the sample",
            "column name: binary: source.files.types says so",
        ),
        "\n\nid,zip,price,at,none,name\n1,501,1,10:30,,x\n\n2,00501,1.5,11:00,,y\n",
        f"source.files.types: {{name: binary}}, {NO_TABLE}",
    ),
    "several files, with the one that decided": Look(
        ("column id: string: '01' in line 2 of {folder}/2.csv is no...", "column text: ..."),
        f"source: {files_in('1.csv, 2.csv')}",
        files={"1.csv": CSV, "2.csv": "id,text\n01,a\n"},
    ),
    "gzip, with the row that decided": of_csv(OF_ROW_2, gzip.compress(SEVERAL_LINES), name="rows.csv.gz"),
    "rows of several lines, with the row that decided": of_csv(OF_ROW_2, SEVERAL_LINES, multiLine=True),
    **{
        f"folders of {format}": Look(
            (*own, *OF_FOLDERS),
            f"source: {{files: {{format: {format}, paths: [rows/], types: {{code: string}}}}}}, {NO_TABLE}",
            files={f"rows/{folder}/x.{format}": content for folder in FOLDERS},
        )
        for format, content, own in (("csv", CSV, ("column id: ...", "column text: ...")), ("parquet", rows_of([1]), ()))
    },
    "JSON, with values that have them": of_json(
        (
            "column id: int64: 1 in line 1 has this type",
            "column price: double: 1.5 in line 2 has this type",
            "column name: binary: source.files.types says so",
            "column big: decimal128(38, 1): 9007199254740993 in line 3 has this type",
            'column tags: list<item: string>: ["a"] in line 2 has this type',
            'column at: struct<x: int64>: {"x": 1} in line 2 has this type',
            "column never: string: it is NULL in all of the first rows",
        ),
        '{"id": 1, "price": 2, "name": null, "big": 1}\n'
        '{"id": 2, "price": 1.5, "tags": ["a"], "at": {"x": 1}, "big": 0.5, "never": null}\n'
        '{"id": 3, "name": "x", "big": 9007199254740993}\n',
        f"source.files.types: {{name: binary}}, {NO_TABLE}",
    ),
    "fields in JSON, with values that have them": of_json(
        (
            "column at: struct<x: double, y: string>: at.x: 1.5 in line 2; at.y: NULL in all of the first rows",
            'column on: struct<a: int64, b: string>: on.a: 1 in line 1; on.b: "c" in line 2',
            "column list: list<item: double>: [2.5] in line 3 has this type",
            'column parts: list<item: struct<n: double>>: [{"n": 2}, {"n": 0.5}] in line 2 has this type',
            'column one: struct<x: double>: {"x": 0.5} in line 2 has this type',
        ),
        '{"at": {"x": 1, "y": null}, "on": {"a": 1}, "list": [], "parts": [{"n": 1}], "one": {"x": 1}}\n'
        '{"at": {"x": 1.5, "y": null}, "on": {"b": "c"}, "list": [1, 2], "parts": [{"n": 2}, {"n": 0.5}], "one": {"x": 0.5}}\n'
        '{"at": null, "on": {"a": 2}, "list": [2.5], "parts": []}\n',
        NO_TABLE,
    ),
    "many fields in JSON, of which the first are told": of_json(
        ("column id: ...", "column at: ...: at.f0: 0 in line 1; at.f1: 1 in line 1; ...; and 13 more fields"),
        json.dumps({"id": 1, "at": {f"f{number}": number for number in range(20)} | {"none": None}}) + "\n",
        NO_TABLE,
    ),
    "JSON with a line that is set apart, and counts": of_json(
        ("column id: ...", "column price: double: 1.5 in line 3 has this type"),
        '{"id": 1, "price": 2}\nno object\n{"id": 2, "price": 1.5}\n',
        f"onRowError: Quarantine, {NO_TABLE}",
    ),
}


@each_of(FORESEEN)
def test_what_a_run_would_do_is_foreseen(looks: tuple[Look, ...], bare_ground: Ground) -> None:
    bare_ground.see(*looks)


@each_of(TYPES)
def test_the_types_of_columns_are_told_with_what_decided_them(looks: tuple[Look, ...], bare_ground: Ground) -> None:
    bare_ground.see(*looks)

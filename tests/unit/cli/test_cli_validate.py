"""`checkpointed-write validate`: everything that is wrong, each with its field, and nothing changed or run on the way."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from checkpoint_local.cli.files import load_manifest
from devtools.s3_server import S3Server
from tests.support.archives import HOSTILE, zip_of
from tests.support.grounds import RAISES, Ground, Look, Scenarios, catalog_settings, each_of
from tests.support.places import on_s3
from tests.support.stored_writes import StoredWrite
from tests.support.writes import manifest_for, rows_of


@pytest.fixture
def bare_ground(tmp_path: Path) -> Ground:
    """No table, no catalog, no checkpoint folder yet."""
    return Ground(tmp_path)


@pytest.fixture
def ground(bare_ground: Ground) -> Ground:
    """Everything is right: the table and the checkpoint folder exist."""
    bare_ground.see(Look())
    return bare_ground


@pytest.fixture(autouse=True)
def _imports_nothing_of_the_user() -> Iterator[None]:
    before = set(sys.modules)
    yield
    assert not {"steps", "nested", "nested.deep"} & (set(sys.modules) - before)


NO_TABLE = "sink: {none: {}}"
NEW_ICEBERG = "sink: {iceberg: {catalog: lake, table: db.new}, create: true"
NEW_LANCE = "sink: {lance: {uri: new.lance}, create: true}"
UNREADABLE_SETTINGS = {"settings.yaml": "catalog: {}\n"}
BY_SPARK = "note: what Spark makes of the source is seen when a driver reads it; columns and types were not checked"


# --- looks at one kind of thing -------------------------------------------------------------------------------------------------


def of_step(says: str, call: str, code: str = "", **arguments: Any) -> Look:
    """`says` is below the step."""
    return Look(f"spec.steps.0.{says}" if says else "", code=code, call=call, arguments=arguments)


def of_audit(says: str, call: str, code: str = "") -> Look:
    return Look(says, f"code: {{path: code}}, sink.audit: '{call}'", code=code)


def of_code(says: str, uri: str, content: str | bytes, call: str = "flights:clean") -> Look:
    return Look(says, f"code: {{uri: {uri}}}", call=call, files={uri: content})


def of_csv(says: str | tuple[str, ...], text: str | bytes, spec: str = "", name: str = "rows.csv", **options: Any) -> Look:
    return Look(says, spec, text=text, name=name, options=options)


def of_json(says: str | tuple[str, ...], text: str, spec: str = "") -> Look:
    return Look(says, spec, text=text, name="rows.json")


def files_in(path: str, more: str = "") -> str:
    """Return the section of these files."""
    return f"{{files: {{format: {'csv' if 'csv' in path else 'parquet'}, paths: [{path}]{more}}}}}"


def of_more(says: str, table: pa.Table | str, spec: str = "") -> Look:
    """Return the look at a source with another Parquet file."""
    return Look(says, spec, files={"in/part-9.parquet": table})


# --- steps and audits ---------------------------------------------------------------------------------------------------------

CALLED = "class Clean:\n    def __call__(self, rows): ..."
MADE_WITH_LIMIT = "class Clean:\n    def __init__(self, limit): ...\n    def __call__(self, rows): ..."
AWAITED = "class Clean:\n    async def __init__(self): ...\n    def __call__(self, rows): ..."
DATACLASS = "@dataclass\nclass Clean:\n    limit: int\n    def __call__(self, rows): ..."
STEPS = zip_of({"package/__init__.py": "", "package/steps.py": "def clean(rows): ..."})

RIGHT_STEPS: Scenarios = {
    "a function": of_step("", "steps:clean", "def clean(rows): ..."),
    "a function with an argument": of_step("", "steps:clean", "def clean(rows, limit): ...", limit=3),
    "a function with an argument by its name": of_step("", "steps:clean", "def clean(rows, *, limit, other=1): ...", limit=3),
    "a function of any arguments": of_step("", "steps:clean", "def clean(*rows, **arguments): ...", any=3),
    "a decorated function, of which nothing is known": of_step("", "steps:clean", "@decorated\ndef clean(rows): ...", any=3),
    "what a call returns": of_step("", "steps:clean", "clean = make()"),
    "what is imported by another name": of_step("", "steps:clean", "from elsewhere import tidy as clean"),
    "a function in except": of_step("", "steps:clean", "try:\n    import fast\nexcept ImportError:\n    def clean(rows): ..."),
    "a function in else": of_step("", "steps:clean", "if True:\n    pass\nelse:\n    def clean(rows): ..."),
    "a class": of_step("", "steps:Clean", CALLED),
    "a class with an argument": of_step("", "steps:Clean", MADE_WITH_LIMIT, limit=3),
    "a class with a base, of which nothing is known": of_step("", "steps:Clean", "class Clean(Base): ...", limit=3),
    "a decorated class": of_step("", "steps:Clean", DATACLASS, limit=3),
    "a compiled module": of_step("", "math:sqrt"),
    "an installed module": of_step("", "json:loads"),
    "a module in a package, which is not imported": Look(
        call="nested.deep:clean", files={"code/nested/__init__.py": RAISES, "code/nested/deep.py": "def clean(rows): ..."}
    ),
    "a module in an archive": of_code("", "code.zip", STEPS, "package.steps:clean"),
}
WRONG_STEPS: Scenarios = {
    "no module": of_step("call: ...no module 'stepz'...", "stepz:clean"),
    "no module in a module": of_step("call: ...no module 'steps.inner'...", "steps.inner:clean"),
    "a misspelt function": of_step("call: ...did you mean 'clean'...", "steps:claen", "def clean(rows): ..."),
    "a function in another": of_step("call: ...defines no 'clean'...", "steps:clean", "def other():\n    def clean(rows): ..."),
    "a syntax error": of_step("call: ...steps.py, line...", "steps:clean", "def clean(rows:\n"),
    "an async __init__": of_step("call: ...async setup...", "steps:Clean", AWAITED),
    "a function of nothing": of_step("call: ...takes no positional argument...", "steps:clean", "def clean(): ..."),
    "a misspelt argument": of_step(
        "arguments.limti: ...mean 'limit'...", "steps:clean", "def clean(rows, limit=1): ...", limti=3
    ),
    "an argument for the rows": of_step("arguments.rows: ...takes no argument...", "steps:clean", "def clean(rows): ...", rows=3),
    "an argument too few": of_step("arguments: ...needs the argument 'limit'...", "steps:clean", "def clean(rows, limit): ..."),
    "a class that is not called": of_step("call: ...no __call__...", "steps:Clean", "class Clean:\n    def setup(self): ..."),
    "an argument for a class that takes none": of_step("arguments.a: ...takes no arguments...", "steps:Clean", CALLED, a=1),
    "an argument too few for a class": of_step("arguments: ...needs the argument 'limit'...", "steps:Clean", MADE_WITH_LIMIT),
    "a folder in place of a module": Look(
        "spec.steps.0.call: ...folder without __init__.py...", call="nested:clean", files={"code/nested/deep.py": ""}
    ),
    "no module for an audit": of_audit("spec.sink.audit: ...there is no module 'chekcs'...", "chekcs:run"),
    "a misspelt audit": of_audit(
        "spec.sink.audit: ...defines no 'run'; did you mean 'runs'?...", "steps:run", "def runs(table): ..."
    ),
    "an audit of nothing": of_audit(
        "spec.sink.audit: ...takes no positional argument, and an audit is given the table as one...",
        "steps:run",
        "def run(): ...",
    ),
    "a code folder that is not there": Look("spec.code.path: ...", "code.path: cdoe", call="steps:clean"),
    "a function that an archive lacks": of_code(
        "spec.steps.0.call: {folder}/code.zip/package/steps.py defines no 'claen'; did you mean 'clean'?",
        "code.zip",
        STEPS,
        "package.steps:claen",
    ),
    "a syntax error in a file that is the code": of_code(
        "spec.steps.0.call: {folder}/flights.py, line 1:...", "flights.py", "def clean(rows)\n"
    ),
    **{
        f"an archive with {kind}": of_code(f"spec.code.uri: ...{HOSTILE[kind][1]}...", "code.zip", HOSTILE[kind][0]())
        for kind in ("a name that climbs out", "no zip")
    },
    **{
        f"{name} with a module that hides what the driver needs": of_code(
            "spec.code.uri: ...queue.py hides 'queue' of Python's standard library...", name, content, "queue:clean"
        )
        for name, content in {"queue.py": b"def clean(rows): ...", "code.zip": zip_of({"queue.py": "", "a.py": ""})}.items()
    },
}

# --- the source ---------------------------------------------------------------------------------------------------------------

CSV = "id,text\n1,a\n"
MORE_CSV = {"more.csv": "id,day\n1,2024-01-05\n"}
DURATIONS = pa.table({"id": [1], "took": pa.array([1], pa.duration("us")), "at": pa.array([1], pa.timestamp("ns"))})
DICTIONARY = pa.table({"text": pa.array(["a"]).dictionary_encode(), "id": [1]})
INTO_TABLE = "spec.source: ...leads into the data of the sink's table..."
INTO_STORE = "spec.source: ...leads into the checkpoint store..."


def data_by_a_link(ground: Ground) -> None:
    ground.write("warehouse/db/rows/data/x.parquet", rows_of([1]))
    (ground.source / "more").symlink_to(ground.folder / "warehouse" / "db" / "rows" / "data")


def link_to_x(ground: Ground) -> None:
    (ground.folder / "link.parquet").symlink_to(ground.folder / "x.parquet")


RIGHT_SOURCES: Scenarios = {
    "Parquet without a column": of_more("", pa.table({"id": [1]})),
    "Parquet with a smaller type": of_more("", pa.table({"text": ["a"], "id": pa.array([1], pa.int32())})),
    "Parquet with NULL only": of_more("", pa.table({"id": pa.nulls(1)})),
    "Parquet with text in a dictionary": of_more("", DICTIONARY),
    "CSV": of_csv("", CSV),
    "CSV with a byte order mark": of_csv("", "\ufeffid,text\r\n1,a\r\n"),
    "CSV after empty lines": of_csv("", "\n\nid,text\n1,a"),
    "CSV in quotes": of_csv("", '"id","text"\n1,"a,b"\n'),
    "CSV with a delimiter": of_csv("", "id;text\n1;a\n", delimiter=";"),
    "CSV with a delimiter and a quote": of_csv("", "'id'|'text'\n1|a\n", delimiter="|", quote="'"),
    "CSV with rows of several lines": of_csv("", CSV, multiLine=True),
    "CSV without a header, whose columns are numbered": of_csv("", "1,a\n", f"source.columns: [f0], {NO_TABLE}", header=False),
    **{
        f"gzip of several members: {what}": of_csv("", b"".join(map(gzip.compress, parts)), name="rows.csv.gz")
        for what, parts in {
            "one is empty": (b"", b"id,text\n1,a\n"),
            "the header is in two": (b"id,te", b"xt\n1,a\n"),
            "a letter is in two": (b"id,text\n1,\xc3", b"\xbc\n"),
        }.items()
    },
    "files beside the table and the checkpoints": Look(
        "", 'source.files.paths: ["*.parquet"]', files={"x.parquet": rows_of([1])}
    ),
}
WRONG_SOURCES: Scenarios = {
    "a path that is not there": Look("spec.source.files.paths.0: ...no such file...", "source.files.paths: [nowhere]"),
    "a pattern without files": Look("spec.source.files.paths.0: ...matches no file...", "source.files.paths: [in/*.csv]"),
    "the second path": Look("spec.source.files.paths.1: ...matches no file...", "source.files.paths: [in, in/*.csv]"),
    "an unknown scheme": Look("spec.source.files.paths.0: ...s3://...", "source.files.paths: ['ftp://host/in']"),
    "a misspelt column": Look("spec.source.columns.0: ...did you mean 'text'...", "source.columns: [txet, id]"),
    "checkpoints in the source": Look("spec.source: ...would be read as its input...", "checkpoint.uri: in/checkpoints"),
    "a file that is no Parquet": of_more("spec.source: ...part-9.parquet: it cannot be read as Parquet...", "hello"),
    "Parquet whose types do not unite": of_more("spec.source: ...has string in the column 'id'...", pa.table({"id": ["1"]})),
    "Parquet with nothing in common": of_more("spec.source: ...they have no column in common...", pa.table({"nr": [1]})),
    "Parquet without a column, where all are to be the same": of_more(
        "spec.source: ...has no column 'text'...", pa.table({"id": [1]}), "source.files.schema: Same"
    ),
    "30 broken files": Look(
        (*["spec.source: ...bad-..."] * 10, "spec.source: 20 more files..."),
        files={f"in/bad-{number}.parquet": "hello" for number in range(30)},
    ),
    **{
        f"gzip in {name}": of_csv(
            ("spec.source.columns: ...'txet'...", "would.tasks.atMost: 1"),
            gzip.compress(b"id,txet\n" + b"1,a\n" * 100_000),
            name=name,
        )
        for name in ("rows.csv.gz", "rows.CSV.GZ")
    },
    "two columns of one name": of_csv("spec.source: ...two columns are called 'id'...", "id,text,id\n"),
    "UTF-16": of_csv("spec.source: ...UTF-16...", "id,text\n".encode("utf-16")),
    "Latin-1": of_csv("spec.source: ...convert it to UTF-8...", b"id,t\xe9xt\n1,a\n"),
    "Parquet as CSV": of_csv("spec.source: ...not text but Parquet...", b"PAR1\x15\x00"),
    "gzip as it is": of_csv("spec.source: ...not text but gzip...", b"\x1f\x8b\x08\x00", compression="None"),
    "text as gzip": of_csv("spec.source: ...incorrect header check...", CSV, compression="Gzip"),
    "an empty file": of_csv("spec.source: ...has a line of text...", ""),
    "empty lines": of_csv("spec.source: ...has a line of text...", "\n\n"),
    "a delimiter that ends lines": of_csv("spec.source.files.csv.delimiter: ...ASCII...", "id,text\n", delimiter="\n"),
    "a quote that is not ASCII": of_csv("spec.source.files.csv.quote: ...ASCII...", "id,text\n", quote="“"),
    "a quote that is the delimiter": of_csv(
        "spec.source.files.csv.quote: ...is the delimiter too...", 'id"text\n', delimiter='"'
    ),
    "an escape that is the delimiter": of_csv(
        "spec.source.files.csv.escape: ...or set escape: '' if there is none...", "id,text\n", escape=","
    ),
    "bzip2": of_csv("spec.source: ...only gzip is supported...", "id,text\n", name="rows.csv.bz2"),
    "a row with a value too many": of_csv(
        "spec.source: ...rows.csv: line at byte 8: CSV parse error: Expected 2 columns, got 3...", "id,text\n1,a,b\n"
    ),
    "CSV with other headers": Look(
        "spec.source: ...csv-2.csv has 1, a, and...",
        f"source: {files_in('csv-*.csv')}",
        files={"csv-1.csv": CSV, "csv-2.csv": "1,a\n2,b\n"},
    ),
    "a column that the header lacks": of_csv("spec.source.columns.1: ...", CSV, f"source.columns: [text, di], {NO_TABLE}"),
    "a type for a column that the header lacks": of_csv(
        "spec.source: ...it has no column 'idd' (it has id, text); correct source.files.types...",
        CSV,
        "source.files.types: {idd: int64}",
    ),
    "a type that does not exist": of_csv("spec.source.files.types.id: ...int64...", CSV, "source.files.types: {id: integer}"),
    "folders of other keys": Look(
        "spec.source: ...year=2024/x.csv...month=1/x.csv...source.files.partitions: Ignore...",
        "source: {files: {format: csv, paths: [rows/]}}",
        files={"rows/year=2024/x.csv": CSV, "rows/month=1/x.csv": CSV},
    ),
    **{
        f"a JSON array in {where}": of_json("spec.source: ...rows.json...JSON array...one object a line...jq -c '.[]'...", text)
        for where, text in {"one line": '[{"a": 1}, {"a": 2}]', "lines": '[\n  {"a": 1},\n  {"a": 2}\n]\n'}.items()
    },
    "a JSON array of numbers": of_json("spec.source: ...JSON array...", "[1, 2]\n"),
    "JSON of several lines, in wrong quotes": of_json("spec.source: ...JSON parse error...", "{\n  'id': 1\n}\n"),
    "JSON without an object": of_json("spec.source: ...has an object with fields...", "\n \n"),
    "JSON fields of other types": of_json("spec.source: ...rows.json...line at byte 10...", '{"id": 1}\n{"id": [1]}\n'),
    "the warehouse": Look(("spec.source: ...it cannot be read as Parquet...", INTO_TABLE), "source.files.paths: [warehouse]"),
    "a pattern of the warehouse": Look(
        ("spec.source.files.paths.0: ...matches no file...", INTO_TABLE), "source.files.paths: [warehouse/*/*/data/*.parquet]"
    ),
    "a link to the warehouse": Look(("spec.source: ...is the folder of an Iceberg table...", INTO_TABLE), prepare=data_by_a_link),
    "the checkpoints": Look(("spec.source.files.paths.0: ...no such file...", INTO_STORE), "source.files.paths: [checkpoints]"),
    "a pattern of the checkpoints": Look(
        ("spec.source: ...it cannot be read as Parquet...", INTO_STORE), 'source.files.paths: ["**/*.json"]'
    ),
    "members of a union": Look(
        (
            "spec.source.union.1.files.csv.delimiter: ...",
            "spec.source.union.2.files.paths.0: ...",
            "spec.source.union.3.iceberg: ...",
        ),
        f"source: {{union: [{files_in('in')}, {files_in('more.csv', ', csv: {delimiter: ä}')}, {files_in('nowhere')}, "
        "{iceberg: {catalog: lake, table: db.other}}]}",
        files=MORE_CSV,
    ),
    **{
        f"{name} in a union with x.parquet": Look(
            "spec.source.union: the sources 0 and 2 both have the file...name it in one of them...",
            f"source: {{union: [{files_in('x.parquet')}, {files_in('in')}, {files_in(name)}]}}",
            files={"x.parquet": rows_of([1])},
            prepare=link_to_x,
        )
        for name in ("x.parquet", "link.parquet")
    },
    "what can be seen of a source that only Spark reads": Look(
        ("spec.source.spark.paths.0: ...", "note: ...NOT_SET_HERE...", BY_SPARK),
        'source: {spark: {format: orc, paths: [nowhere], options: {password: "${env:NOT_SET_HERE}"}, keyColumns: [id]}}',
    ),
}

# --- manifest, settings, target, checkpoints ------------------------------------------------------------------------------------

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
OF_A_STEP = "steps.0.input: row, steps.0.output:"
SAME: dict[str, Any] = {"call": "steps:same", "code": "def same(row): ..."}
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

# --- what is told until it is corrected -----------------------------------------------------------------------------------------

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

# --- what a run would do --------------------------------------------------------------------------------------------------------


def stored(*does: Callable[[StoredWrite], None]) -> Callable[[Ground], None]:
    """Have the store know of this write, and of what is done to it."""

    def prepare(ground: Ground) -> None:
        write = StoredWrite(ground.folder, given=load_manifest(ground.file))
        for each in (StoredWrite.begin, *does):
            each(write)

    return prepare


def launched(write: StoredWrite) -> None:
    write.launch()
    write.plan()
    write.seal(0)


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

# --- the tests ------------------------------------------------------------------------------------------------------------------


@each_of(RIGHT_STEPS, RIGHT_SOURCES, RIGHT_TABLES)
def test_what_is_right_is_let_be(looks: tuple[Look, ...], bare_ground: Ground) -> None:
    bare_ground.see(*looks)


@each_of(WRONG_STEPS, WRONG_SOURCES, WRONG_TABLES)
def test_what_is_wrong_is_a_problem_of_its_field(looks: tuple[Look, ...], bare_ground: Ground) -> None:
    bare_ground.see(*looks)


@each_of(CORRECTED)
def test_what_is_corrected_as_was_told_is_told_no_more(looks: tuple[Look, ...], bare_ground: Ground) -> None:
    bare_ground.see(*looks)


@each_of(NOTED)
def test_what_a_person_has_to_judge_is_noted(looks: tuple[Look, ...], bare_ground: Ground) -> None:
    bare_ground.see(*looks)


@each_of(FORESEEN)
def test_what_a_run_would_do_is_foreseen(looks: tuple[Look, ...], bare_ground: Ground) -> None:
    bare_ground.see(*looks)


@each_of(TYPES)
def test_the_types_of_columns_are_told_with_what_decided_them(looks: tuple[Look, ...], bare_ground: Ground) -> None:
    bare_ground.see(*looks)


def test_a_right_write_exits_with_0_and_says_what_a_run_would_do(ground: Ground) -> None:
    result = ground.run()

    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    size = sum(path.stat().st_size for path in ground.source.iterdir()) / 1024
    assert f"source 2 files, {size:.1f} KiB, 100 rows" in lines
    assert "rows by file and row number in it" in lines
    assert "target lake.db.rows: exists" in lines
    assert f"checkpoint {ground.folder / 'checkpoints'}: exists and honours put-if-absent" in lines
    assert "write not begun: a run would begin it" in lines
    assert lines[-1] == "not tried writing to the table"
    assert result.stderr == ""


def test_the_prediction_has_stable_names_and_is_the_same_in_yaml(ground: Ground) -> None:
    report = ground.report()

    assert yaml.safe_load(ground.run("-o", "yaml").stdout) == report
    prediction = report["prediction"]
    assert prediction["tasks"].pop("why")
    tasks = prediction["tasks"].pop("atMost")
    assert tasks >= 2
    assert prediction["dataFiles"].pop("why")
    assert prediction.pop("cores") >= 1
    assert prediction == {
        "sourceFiles": 2,
        "sourceBytes": sum(path.stat().st_size for path in ground.source.iterdir()),
        "sourceRows": 100,
        "columns": [],
        "rowIdentity": "file and row number in it",
        "tasks": {"atLeast": tasks},
        "dataFiles": {"atLeast": tasks, "atMost": None},
        "target": "lake.db.rows",
        "targetExists": True,
        "targetWouldBeCreated": False,
        "whatACommitDoes": "Append: rows are added, and the table's stay; without any, the table stays as it is",
        "checkpointUri": str(ground.folder / "checkpoints"),
        "checkpointExists": True,
        "aCrashCosts": "at most 1m of each task's work, or a twentieth of the time that it has been at work, if that is longer "
        "(at most 10m)",
        "write": "not begun: a run would begin it",
        "notTried": "writing to the table",
    }


def test_validating_changes_nothing_where_everything_exists(bare_ground: Ground) -> None:
    bare_ground.make_table()
    (bare_ground.folder / "checkpoints").mkdir()
    bare_ground.file.touch()
    before = bare_ground.everything()

    assert bare_ground.run().exit_code == 0

    assert bare_ground.everything() == before


def test_validating_makes_no_folder_catalog_or_table_that_a_run_would_make(bare_ground: Ground) -> None:
    bare_ground.spec["sink"]["create"] = True
    bare_ground.file.touch()
    before = bare_ground.everything()

    would = ("would.targetExists: False", "would.targetWouldBeCreated: True", "would.checkpointExists: False")
    not_tried = "making the table and writing to it; put-if-absent in the checkpoint store, which a run would make"
    bare_ground.see(Look((*would, f"would.notTried: {not_tried}"), bare=True))

    assert bare_ground.everything() == before


def test_a_lance_dataset_is_looked_at_without_giving_it_an_identity(bare_ground: Ground) -> None:
    bare_ground.see(Look("would.targetExists: True", "sink: {lance: {uri: rows.lance}}", files={"rows.lance": rows_of([1])}))

    assert lance.dataset(str(bare_ground.folder / "rows.lance")).version == 1


def test_a_missing_dataset_without_create_is_a_problem_and_is_not_made(bare_ground: Ground) -> None:
    bare_ground.see(Look("spec.sink.lance.uri: ...", "sink: {lance: {uri: rows.lance}}"))

    assert not (bare_ground.folder / "rows.lance").exists()


def test_all_problems_are_listed_at_once_each_with_its_field(ground: Ground) -> None:
    ground.change(Look("", "source.columns: [id, txet], sink.iceberg.catalog: laek", call="steps:missing"))
    ground.java_home = ground.folder
    (ground.folder / "checkpoints").rmdir()
    (ground.folder / "checkpoints").write_text("")

    result = ground.run()

    assert result.exit_code == 2
    assert result.stdout == ""
    lines = ground.file.read_text().splitlines()
    (call, column, catalog, uri) = (
        next(number for number, line in enumerate(lines, 1) if part in line) for part in ("call:", "txet", "catalog:", "uri:")
    )
    assert [line.partition(": ")[0] + ": " + line.split(": ")[1] for line in result.stderr.splitlines()[1:-1]] == [
        f"{ground.file}:{call}: spec.steps.0.call",
        f"{ground.file}:{column}: spec.source.columns.1",
        f"{ground.file}:{catalog}: spec.sink.iceberg.catalog",
        f"{ground.file}:{uri}: spec.checkpoint.uri",
    ]
    assert result.stderr.startswith("java: ")
    assert result.stderr.splitlines()[-1] == "5 problems found; nothing was run"
    assert [problem["place"] for problem in ground.report()["problems"]] == [
        None,
        *(f"{ground.file}:{number}" for number in (call, column, catalog, uri)),
    ]


def test_a_problem_of_the_settings_says_their_file_and_line(ground: Ground) -> None:
    ground.settings.write_text(catalog_settings({"type": "rest", "tokn": "x", "uri": "http://lake"}))

    (problem,) = ground.report()["problems"]

    assert (problem["path"], problem["place"]) == ("settings.catalogs.lake.tokn", f"{ground.settings}:3")


def test_without_java_the_problem_names_java(bare_ground: Ground) -> None:
    java, bare_ground.java_home = bare_ground.java_home, bare_ground.folder / "nowhere"

    bare_ground.see(Look("java: ...set JAVA_HOME..."), Look(prepare=lambda ground: setattr(ground, "java_home", java)))


def test_the_types_of_csv_columns_are_shown(ground: Ground) -> None:
    ground.change(of_csv("", "id,text\n007,a\n"))

    lines = [" ".join(line.split()) for line in ground.run().stdout.splitlines()]

    at = lines.index("columns id: string ('007' in line 2 is no number that can be written back as it stands)")
    assert lines[at + 1] == "text: string ('a' in line 2 is text)"


def test_more_columns_than_a_screen_shows_are_counted(ground: Ground) -> None:
    ground.change(of_csv("", ",".join(f"c{number}" for number in range(60)) + "\n", NO_TABLE))

    assert "and 10 more, which -o json shows" in ground.run().stdout


def test_a_changed_identity_is_a_problem_of_the_section(bare_ground: Ground) -> None:
    bare_ground.see(
        Look(prepare=stored(launched)),
        Look("spec.source: ...undo the change...", "source.files.paths: [in/*]"),
        Look("", "source.files.paths: [in]"),
        Look("", "source.files.paths: [in/*]", prepare=lambda ground: ground.document["metadata"].update(name="another")),
    )


def test_an_unreadable_record_of_the_write_is_a_problem_of_the_checkpoint(ground: Ground) -> None:
    write = StoredWrite(ground.folder, given=load_manifest(ground.file))
    write.begin()
    write.commit()
    write.break_record(write.ledger.at.commit_record)

    (problem,) = ground.report()["problems"]

    assert problem["path"] == "spec.checkpoint.uri"
    assert write.ledger.at.commit_record in problem["message"]


@pytest.fixture
def on_a_server(s3_server: S3Server, bare_ground: Ground) -> Ground:
    """The checkpoints and the target, a dataset, are on an object store."""
    place = on_s3(bare_ground.folder, "lance", s3_server)
    place.create(rows_of([]).schema)
    filesystem = pa.fs.S3FileSystem(
        access_key=s3_server.access_key,
        secret_key=s3_server.secret_key,
        region=s3_server.region,
        endpoint_override=s3_server.endpoint,
    )
    bucket = place.base_uri.removeprefix("s3://")
    pq.write_table(rows_of(range(7)), f"{bucket}/in/a.parquet", filesystem=filesystem)
    pq.write_table(rows_of(range(5)), f"{bucket}/in/_hidden.parquet", filesystem=filesystem)
    bare_ground.document = json.loads(manifest_for(place, f"{place.base_uri}/in").model_dump_json(by_alias=True))
    storage = place.settings.for_drivers().model_dump(mode="json")["storage"]
    bare_ground.settings.write_text(yaml.safe_dump({"storage": storage}))
    return bare_ground


def test_an_object_store_is_probed_and_a_bucket_that_is_not_there_is_a_problem(on_a_server: Ground) -> None:
    (storage,) = yaml.safe_load(on_a_server.settings.read_text())["storage"]
    anywhere = yaml.safe_dump({"storage": [{**storage, "prefix": "s3://"}]})
    on_a_server.see(
        Look(("would.checkpointExists: True", "would.targetExists: True"), bare=True),
        Look(
            "spec.checkpoint.uri: ...bucket...",
            "checkpoint.uri: 's3://no-such-bucket-here/checkpoints'",
            files={"settings.yaml": anywhere},
        ),
    )


def test_parquet_in_a_bucket_is_listed_and_its_footers_are_read(on_a_server: Ground) -> None:
    on_a_server.see(
        Look(("would.sourceFiles: 1", "would.sourceRows: 7"), bare=True),
        Look("spec.source.columns.1: ...", "source.columns: [id, nosuch]"),
    )

"""What `checkpointed-write validate` finds wrong with steps, audits and the source, without importing any of the code."""

from __future__ import annotations

import gzip

import pyarrow as pa

from tests.support.archives import HOSTILE, zip_of
from tests.support.grounds import RAISES, Ground, Look, Scenarios, each_of
from tests.support.writes import rows_of
from tests.unit.cli.validate.looks import (
    BY_SPARK,
    CSV,
    MORE_CSV,
    NO_TABLE,
    files_in,
    of_audit,
    of_code,
    of_csv,
    of_json,
    of_more,
    of_step,
)

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


@each_of(RIGHT_STEPS, RIGHT_SOURCES)
def test_what_is_right_is_let_be(looks: tuple[Look, ...], bare_ground: Ground) -> None:
    bare_ground.see(*looks)


@each_of(WRONG_STEPS, WRONG_SOURCES)
def test_what_is_wrong_is_a_problem_of_its_field(looks: tuple[Look, ...], bare_ground: Ground) -> None:
    bare_ground.see(*looks)

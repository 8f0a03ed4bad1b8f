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
from click.testing import CliRunner, Result

from checkpoint_commit.catalogs.named import open_catalog
from checkpoint_local.cli.files import load_manifest
from checkpoint_local.cli.main import main
from checkpoint_protocol.places.settings import CatalogSettings, Settings
from devtools.s3_server import S3Server
from tests.support.archives import HOSTILE, zip_of
from tests.support.places import on_s3
from tests.support.reading import files_source
from tests.support.stored_writes import StoredWrite
from tests.support.writes import manifest_for, rows_of

Change = Callable[[dict[str, Any]], None]


class Ground:
    """A folder with an input, a catalog with the table db.rows, a step, and a manifest that is right."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "in"
        self.source.mkdir()
        for number in range(2):
            pq.write_table(rows_of(range(number * 50, number * 50 + 50)), self.source / f"part-{number}.parquet")
        self.code = folder / "code"
        self.code.mkdir()
        self.settings = folder / "settings.yaml"
        self.document: dict[str, Any] = {
            "apiVersion": "checkpointed.dev/v1alpha1",
            "kind": "CheckpointedWrite",
            "metadata": {"name": "nightly"},
            "spec": {
                "source": {"files": {"format": "parquet", "paths": ["in"]}},
                "sink": {"iceberg": {"catalog": "lake", "table": "db.rows"}},
                "checkpoint": {"uri": "checkpoints"},
            },
        }
        self.write_settings({"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "warehouse"})
        java = folder / "java" / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
        java.chmod(0o755)
        self.java_home = java.parents[1]

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.document["spec"]
        return spec

    @property
    def files(self) -> dict[str, Any]:
        files: dict[str, Any] = self.spec["source"]["files"]
        return files

    @property
    def file(self) -> Path:
        file = self.folder / "write.yaml"
        file.write_text(yaml.safe_dump(self.document))
        return file

    def write_settings(self, catalog: dict[str, Any]) -> None:
        self.settings.write_text(yaml.safe_dump({"catalogs": {"lake": catalog}}))

    def make_table(self, schema: pa.Schema | None = None, properties: dict[str, str] | None = None) -> None:
        entry = CatalogSettings(
            type="sql", uri=f"sqlite:///{self.folder}/catalog.db", warehouse=(self.folder / "warehouse").as_uri()
        )
        catalog = open_catalog("lake", Settings(catalogs={"lake": entry}))
        catalog.create_namespace("db")
        catalog.create_table("db.rows", schema or rows_of([]).schema, properties=properties or {})
        catalog.close()

    def write_step(self, text: str, name: str = "steps.py") -> None:
        file = self.code / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def use_step(self, call: str, **arguments: Any) -> None:
        self.spec["code"] = {"path": "code"}
        self.spec["steps"] = [{"call": call, "arguments": arguments}]

    def use_text(self, text: str | bytes, format: str = "csv", name: str = "rows.csv", **options: Any) -> None:
        (self.folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        self.spec["source"] = files_source(format, [name], options).model_dump(mode="json", by_alias=True, exclude_defaults=True)

    def run(self, *arguments: str) -> Result:
        environment = {"JAVA_HOME": str(self.java_home), "XDG_CONFIG_HOME": "/nonexistent"}
        command = ["validate", str(self.file), "--settings", str(self.settings), *arguments]
        return CliRunner(env=environment).invoke(main, command, catch_exceptions=False)

    def report(self) -> dict[str, Any]:
        result = self.run("-o", "json")
        answer: dict[str, Any] = json.loads(result.stdout)
        assert result.exit_code == (0 if answer["valid"] else 2)
        assert answer["valid"] == (not answer["problems"])
        return answer

    def problems(self) -> list[tuple[str, str]]:
        return [(problem["path"], problem["message"]) for problem in self.report()["problems"]]

    def only_problem(self) -> tuple[str, str]:
        problems = self.problems()
        assert len(problems) == 1, problems
        return problems[0]

    def everything(self) -> dict[Path, bytes | None]:
        return {path: path.read_bytes() if path.is_file() else None for path in self.folder.rglob("*")}


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """Everything is right: the table and the checkpoint folder exist."""
    made = Ground(tmp_path)
    made.make_table()
    (tmp_path / "checkpoints").mkdir()
    return made


@pytest.fixture
def bare_ground(tmp_path: Path) -> Ground:
    """No table, no catalog, no checkpoint folder yet."""
    return Ground(tmp_path)


@pytest.fixture(autouse=True)
def _imports_nothing_of_the_user() -> Iterator[None]:
    before = set(sys.modules)
    yield
    assert not {"steps", "nested", "nested.deep"} & (set(sys.modules) - before)


# --- texts ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ['[{"a": 1}, {"a": 2}]', '[\n  {"a": 1},\n  {"a": 2}\n]\n'])
def test_an_array_of_json_objects_is_told_with_how_to_make_lines_of_it(ground: Ground, text: str) -> None:
    ground.use_text(text, format="json", name="rows.json")

    problems = ground.problems()

    assert len(problems) == 1, problems
    for part in ("rows.json", "JSON array", "one object a line", "jq -c '.[]'"):
        assert part in problems[0][1]


# --- nothing wrong ------------------------------------------------------------------------------------------------------------


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


def test_code_is_said_to_have_been_parsed_only(ground: Ground) -> None:
    ground.write_step("import a_module_that_nobody_has\n\ndef clean(rows): ...")
    ground.use_step("steps:clean")

    said = ground.report()["prediction"]["notTried"]

    assert said == (
        "importing and calling the code, which was only parsed (nor were modules that it imports looked for); "
        "writing to the table"
    )


def test_a_source_of_spark_is_said_not_to_have_been_read(ground: Ground) -> None:
    ground.spec["source"] = {"spark": {"format": "orc", "paths": ["in"], "keyColumns": ["id"]}}

    assert ground.report()["prediction"]["notTried"] == "reading the source with Spark; writing to the table"


def test_the_prediction_as_json_has_stable_names(ground: Ground) -> None:
    report = ground.report()

    assert report["problems"] == []
    assert report["notes"] == []
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


def test_yaml_says_the_same_as_json(ground: Ground) -> None:
    assert yaml.safe_load(ground.run("-o", "yaml").stdout) == ground.report()


def test_validating_changes_nothing_where_everything_exists(ground: Ground) -> None:
    ground.file.touch()
    before = ground.everything()

    assert ground.run().exit_code == 0

    assert ground.everything() == before


def test_validating_makes_no_folder_catalog_or_table_that_a_run_would_make(bare_ground: Ground) -> None:
    bare_ground.spec["sink"]["create"] = True
    bare_ground.file.touch()
    before = bare_ground.everything()

    report = bare_ground.report()

    assert report["valid"], report["problems"]
    assert bare_ground.everything() == before
    prediction = report["prediction"]
    assert (prediction["targetExists"], prediction["targetWouldBeCreated"]) == (False, True)
    assert prediction["checkpointExists"] is False
    assert report["notes"] == []
    assert prediction["notTried"] == (
        "making the table and writing to it; put-if-absent in the checkpoint store, which a run would make"
    )


def test_whole_files_are_all_counted_and_none_is_opened_and_their_columns_are_known(ground: Ground) -> None:
    for number in range(250):
        (ground.folder / "in" / f"{number}.png").write_bytes(b"x" * number)
    ground.spec["source"] = {"files": {"format": "binary", "paths": ["in/*.png"]}, "columns": ["path", "content"]}
    ground.spec["sink"] = {"none": {}}

    report = ground.report()

    assert report["problems"] == []
    assert report["prediction"]["rowIdentity"] == "file"
    assert (report["prediction"]["sourceFiles"], report["prediction"]["sourceRows"]) == (250, 250)
    assert not any("opened" in note for note in report["notes"])

    ground.spec["source"]["columns"] = ["path", "contents"]
    assert ground.problems() == [("spec.source.columns.1", "the source has no column 'contents'; did you mean 'content'?")]


def test_a_lance_dataset_is_looked_at_without_giving_it_an_identity(ground: Ground) -> None:
    uri = ground.folder / "rows.lance"
    lance.write_dataset(rows_of([1]), str(uri))
    ground.spec["sink"] = {"lance": {"uri": "rows.lance"}}

    report = ground.report()

    assert report["valid"], report["problems"]
    assert report["prediction"]["targetExists"] is True
    assert lance.dataset(str(uri)).version == 1


# --- manifest, settings, machine ----------------------------------------------------------------------------------------------


def test_all_problems_are_listed_at_once_each_with_its_field(ground: Ground) -> None:
    ground.spec["source"]["columns"] = ["id", "txet"]
    ground.spec["sink"]["iceberg"]["catalog"] = "laek"
    ground.use_step("steps:missing")
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
    ground.write_settings({"type": "rest", "tokn": "x", "uri": "http://lake"})

    (problem,) = ground.report()["problems"]

    assert problem["path"] == "settings.catalogs.lake.tokn"
    assert problem["place"] == f"{ground.settings}:3"


def test_a_wrong_manifest_lists_each_field_and_the_settings_are_looked_at_too(ground: Ground) -> None:
    ground.files["fromat"] = ground.files.pop("format")
    ground.spec["backoffLimit"] = "3"
    ground.settings.write_text("catalog: {}\n")

    problems = dict(ground.problems())

    assert problems.keys() == {"spec.source.files.fromat", "spec.source.files.format", "spec.backoffLimit", "settings.catalog"}
    assert "did you mean 'format'" in problems["spec.source.files.fromat"]
    assert ground.report()["prediction"] is None


def test_with_unreadable_settings_what_lies_on_this_machine_is_still_checked(ground: Ground) -> None:
    ground.settings.write_text("catalog: {}\n")
    ground.spec["source"]["columns"] = ["nosuch"]

    assert [path for path, _ in ground.problems()] == ["settings.catalog", "spec.source.columns.0"]


def test_without_java_the_problem_names_java(ground: Ground) -> None:
    java, ground.java_home = ground.java_home, ground.folder / "nowhere"

    path, message = ground.only_problem()

    assert path == "java"
    assert "set JAVA_HOME" in message

    ground.java_home = java
    assert ground.problems() == []


# --- the code -----------------------------------------------------------------------------------------------------------------

RAISES = "raise AssertionError('user code was imported')\n"


@pytest.mark.parametrize(
    ("call", "arguments", "text"),
    [
        ("steps:clean", {}, "def clean(rows): ..."),
        ("steps:clean", {"limit": 3}, "def clean(rows, limit): ..."),
        ("steps:clean", {"limit": 3}, "def clean(rows, *, limit, other=1): ..."),
        ("steps:clean", {"any": 3}, "def clean(*rows, **arguments): ..."),
        ("steps:clean", {"any": 3}, "@decorated\ndef clean(rows): ..."),
        ("steps:clean", {}, "clean = make()"),
        ("steps:clean", {}, "from elsewhere import tidy as clean"),
        ("steps:clean", {}, "try:\n    import fast\nexcept ImportError:\n    def clean(rows): ..."),
        ("steps:clean", {}, "if True:\n    pass\nelse:\n    def clean(rows): ..."),
        ("steps:Clean", {}, "class Clean:\n    def __call__(self, rows): ..."),
        ("steps:Clean", {"limit": 3}, "class Clean:\n    def __init__(self, limit): ...\n    def __call__(self, rows): ..."),
        ("steps:Clean", {"limit": 3}, "class Clean(Base): ..."),
        ("steps:Clean", {"limit": 3}, "@dataclass\nclass Clean:\n    limit: int\n    def __call__(self, rows): ..."),
        ("math:sqrt", {}, ""),
        ("json:loads", {}, ""),
    ],
)
def test_a_step_that_a_driver_would_find_is_right_and_is_not_imported(
    call: str, arguments: dict[str, Any], text: str, ground: Ground
) -> None:
    ground.write_step(f"{RAISES}{text}\n")
    ground.use_step(call, **arguments)

    assert ground.problems() == []


@pytest.mark.parametrize(
    ("call", "arguments", "text", "path", "message"),
    [
        ("stepz:clean", {}, "", "call", "no module 'stepz'"),
        ("steps.inner:clean", {}, "", "call", "no module 'steps.inner'"),
        ("steps:claen", {}, "def clean(rows): ...", "call", "did you mean 'clean'"),
        ("steps:clean", {}, "def other():\n    def clean(rows): ...", "call", "defines no 'clean'"),
        ("steps:clean", {}, "def clean(rows:\n", "call", "steps.py, line"),
        (
            "steps:Clean",
            {},
            "class Clean:\n    async def __init__(self): ...\n    def __call__(self, rows): ...",
            "call",
            "async setup",
        ),
        ("steps:clean", {}, "def clean(): ...", "call", "takes no positional argument"),
        ("steps:clean", {"limti": 3}, "def clean(rows, limit=1): ...", "arguments.limti", "did you mean 'limit'"),
        ("steps:clean", {"rows": 3}, "def clean(rows): ...", "arguments.rows", "takes no argument"),
        ("steps:clean", {}, "def clean(rows, limit): ...", "arguments", "needs the argument 'limit'"),
        ("steps:Clean", {}, "class Clean:\n    def setup(self): ...", "call", "no __call__"),
        ("steps:Clean", {"a": 1}, "class Clean:\n    def __call__(self, rows): ...", "arguments.a", "takes no arguments"),
        (
            "steps:Clean",
            {},
            "class Clean:\n    def __init__(self, limit): ...\n    def __call__(self, rows): ...",
            "arguments",
            "needs the argument 'limit'",
        ),
    ],
)
def test_a_step_that_a_driver_could_not_call_is_a_problem_of_that_step(
    call: str, arguments: dict[str, Any], text: str, path: str, message: str, ground: Ground
) -> None:
    ground.write_step(f"{RAISES}{text}\n")
    ground.use_step(call, **arguments)

    where, what = ground.only_problem()

    assert where == f"spec.steps.0.{path}"
    assert message in what


@pytest.mark.parametrize(
    ("function", "text", "message"),
    [
        ("chekcs:run", "", "there is no module 'chekcs'"),
        ("steps:run", "def runs(table): ...", "defines no 'run'; did you mean 'runs'?"),
        ("steps:run", "def run(): ...", "takes no positional argument, and an audit is given the table as one"),
    ],
)
def test_an_audit_that_a_driver_could_not_call_is_a_problem_of_its_field(
    function: str, text: str, message: str, ground: Ground
) -> None:
    ground.write_step(f"{RAISES}{text}\n")
    ground.spec["code"] = {"path": "code"}
    ground.spec["sink"]["audit"] = function

    path, found = ground.only_problem()

    assert path == "spec.sink.audit"
    assert message in found


def test_of_an_audit_it_is_said_when_readers_see_the_rows(ground: Ground) -> None:
    ground.write_step("def run(table): ...")
    ground.spec["code"] = {"path": "code"}
    ground.spec["sink"]["audit"] = "steps:run"

    assert ground.report()["prediction"]["whatACommitDoes"].endswith("readers see it once steps:run has let it pass")


def test_a_module_in_a_package_is_found_without_importing_the_package(ground: Ground) -> None:
    ground.write_step(RAISES, "nested/__init__.py")
    ground.write_step("def clean(rows): ...", "nested/deep.py")
    ground.use_step("nested.deep:clean")

    assert ground.problems() == []


def test_a_folder_in_place_of_a_module_is_a_problem(ground: Ground) -> None:
    ground.write_step("", "nested/deep.py")
    ground.use_step("nested:clean")

    assert "folder without __init__.py" in ground.only_problem()[1]


def test_what_a_star_import_brings_cannot_be_told_and_is_noted(ground: Ground) -> None:
    ground.write_step("from somewhere import *\n")
    ground.use_step("steps:clean")

    report = ground.report()

    assert report["valid"]
    assert any("without importing" in note for note in report["notes"])


def test_a_code_folder_that_is_not_there_is_a_problem_of_code_path(ground: Ground) -> None:
    ground.use_step("steps:clean")
    ground.spec["code"]["path"] = "cdoe"

    assert ground.only_problem()[0] == "spec.code.path"


def test_modules_of_the_code_folder_that_hide_what_the_driver_needs_are_named_until_they_are_renamed(ground: Ground) -> None:
    ground.write_step("def clean(rows): return rows\n")
    ground.use_step("steps:clean")
    (ground.code / "email.py").touch()
    (ground.code / "pandas").mkdir()
    (ground.code / "pandas" / "__init__.py").touch()

    path, message = ground.only_problem()

    assert path == "spec.code.path"
    assert "email.py hides 'email' of Python's standard library" in message
    assert "pandas/__init__.py hides the installed package 'pandas'" in message
    (ground.code / "email.py").rename(ground.code / "mails.py")
    (ground.code / "pandas" / "__init__.py").unlink()
    assert ground.problems() == []


# --- the source ---------------------------------------------------------------------------------------------------------------


def two_paths(spec: dict[str, Any]) -> None:
    spec["source"]["files"]["paths"] = ["in", "in/*.csv"]


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        (lambda spec: spec["source"]["files"].update(paths=["nowhere"]), "spec.source.files.paths.0", "no such file"),
        (lambda spec: spec["source"]["files"].update(paths=["in/*.csv"]), "spec.source.files.paths.0", "matches no file"),
        (two_paths, "spec.source.files.paths.1", "matches no file"),
        (lambda spec: spec["source"]["files"].update(paths=["ftp://host/in"]), "spec.source.files.paths.0", "s3://"),
        (lambda spec: spec["source"].update(columns=["txet", "id"]), "spec.source.columns.0", "did you mean 'text'"),
        (lambda spec: spec["checkpoint"].update(uri="in/checkpoints"), "spec.source", "would be read as its input"),
    ],
)
def test_a_source_that_cannot_be_read_as_said_is_a_problem_of_the_field(
    change: Change, path: str, message: str, ground: Ground
) -> None:
    change(ground.spec)

    where, what = ground.only_problem()

    assert where == path
    assert message in what


def test_a_file_that_is_not_parquet_is_named(ground: Ground) -> None:
    (ground.source / "readme.txt").write_text("hello")

    path, message = ground.only_problem()

    assert path == "spec.source"
    assert "readme.txt: it cannot be read as Parquet" in message


@pytest.mark.parametrize("kind", ["parquet", "lance"])
def test_columns_that_no_table_can_be_made_of_are_named_before_a_run(kind: str, bare_ground: Ground) -> None:
    given = pa.table({"id": [1], "took": pa.array([1], pa.duration("us")), "at": pa.array([1], pa.timestamp("ns"))})
    pq.write_table(given, bare_ground.folder / "pandas.parquet")
    bare_ground.spec["source"] = {"files": {"format": "parquet", "paths": ["pandas.parquet"]}}
    if kind == "lance":
        lance.write_dataset(given, bare_ground.folder / "rows.lance")
        bare_ground.spec["source"] = {"lance": {"uri": "rows.lance"}}
    bare_ground.spec["sink"]["create"] = True

    path, message = bare_ground.only_problem()

    assert path == "spec.source"
    assert "'took' has the type duration[us]" in message
    assert any("'at'" in note and "microseconds" in note for note in bare_ground.report()["notes"])
    bare_ground.spec["source"]["columns"] = ["id", "at"]
    assert bare_ground.problems() == []
    bare_ground.spec["source"].pop("columns")
    bare_ground.spec["sink"] = {"lance": {"uri": "sink.lance"}, "create": True}
    assert bare_ground.problems() == []


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"id": ["1"]}), "has string in the column 'id'"),
        (pa.table({"nr": [1]}), "they have no column in common"),
    ],
)
def test_parquet_files_whose_columns_cannot_be_united_are_a_problem(table: pa.Table, message: str, ground: Ground) -> None:
    pq.write_table(table, ground.source / "part-9.parquet")

    assert message in ground.only_problem()[1]


@pytest.mark.parametrize(
    "table", [pa.table({"id": [1]}), pa.table({"text": ["a"], "id": pa.array([1], pa.int32())}), pa.table({"id": pa.nulls(1)})]
)
def test_parquet_files_of_different_columns_are_no_problem_where_they_unite(table: pa.Table, ground: Ground) -> None:
    pq.write_table(table, ground.source / "part-9.parquet")

    assert ground.problems() == []


def test_parquet_files_of_different_columns_are_a_problem_where_all_are_to_be_the_same(ground: Ground) -> None:
    pq.write_table(pa.table({"id": [1]}), ground.source / "part-9.parquet")
    ground.files["schema"] = "Same"

    assert "has no column 'text'" in ground.only_problem()[1]


def test_parquet_text_in_another_form_is_the_same_column(ground: Ground) -> None:
    table = pa.table({"text": pa.array(["a"]).dictionary_encode(), "id": [1]})
    pq.write_table(table, ground.source / "part-9.parquet")

    assert ground.problems() == []


def test_many_broken_files_are_named_up_to_a_number(ground: Ground) -> None:
    for number in range(30):
        (ground.source / f"bad-{number}.parquet").write_text("hello")

    messages = [message for _, message in ground.problems()]

    assert len(messages) == 11
    assert messages[-1].startswith("20 more files")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("id,text\n1,a\n", {}),
        ("\ufeffid,text\r\n1,a\r\n", {}),
        ("\n\nid,text\n1,a", {}),
        ('"id","text"\n1,"a,b"\n', {}),
        ("id;text\n1;a\n", {"delimiter": ";"}),
        ("'id'|'text'\n1|a\n", {"delimiter": "|", "quote": "'"}),
        ("id,text\n1,a\n", {"multiLine": True}),
    ],
)
def test_a_csv_header_is_read_as_its_options_say(text: str, options: dict[str, Any], ground: Ground) -> None:
    ground.use_text(text, **options)

    assert ground.problems() == []


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.CSV.GZ"])
def test_a_gzip_file_is_looked_into_and_is_one_task(name: str, ground: Ground) -> None:
    ground.use_text(gzip.compress(b"id,txet\n" + b"1,a\n" * 100_000), name=name)

    path, message = ground.only_problem()
    assert path == "spec.source.columns"
    assert "'txet'" in message
    assert ground.report()["prediction"]["tasks"]["atMost"] == 1


@pytest.mark.parametrize(
    "parts",
    [(b"", b"id,text\n1,a\n"), (b"id,te", b"xt\n1,a\n"), (b"id,text\n1,\xc3", b"\xbc\n")],
    ids=["none", "header", "letter"],
)
def test_a_gzip_file_of_several_members_is_one_text(parts: tuple[bytes, ...], ground: Ground) -> None:
    ground.use_text(b"".join(map(gzip.compress, parts)), name="rows.csv.gz")

    assert ground.problems() == []


@pytest.mark.parametrize(
    ("content", "options", "path", "message"),
    [
        (b"id,text,id\n", {}, "spec.source", "two columns are called 'id'"),
        ("id,text\n".encode("utf-16"), {}, "spec.source", "UTF-16"),
        (b"id,t\xe9xt\n1,a\n", {}, "spec.source", "convert it to UTF-8"),
        (b"PAR1\x15\x00", {}, "spec.source", "not text but Parquet"),
        (b"\x1f\x8b\x08\x00", {"compression": "None"}, "spec.source", "not text but gzip"),
        (b"id,text\n1,a\n", {"compression": "Gzip"}, "spec.source", "incorrect header check"),
        (b"", {}, "spec.source", "has a line of text"),
        (b"\n\n", {}, "spec.source", "has a line of text"),
        (b"id,text\n", {"delimiter": "\n"}, "spec.source.files.csv.delimiter", "ASCII"),
        (b"id,text\n", {"quote": "“"}, "spec.source.files.csv.quote", "ASCII"),
        (b'id"text\n', {"delimiter": '"'}, "spec.source.files.csv.quote", "is the delimiter too"),
        (b"id,text\n", {"escape": ","}, "spec.source.files.csv.escape", "or set escape: '' if there is none"),
    ],
)
def test_a_csv_file_that_is_not_what_the_source_says_is_named(
    content: bytes, options: dict[str, Any], path: str, message: str, ground: Ground
) -> None:
    ground.use_text(content, **options)

    where, what = ground.only_problem()

    assert where == path
    assert message in what


def test_a_compression_that_is_not_supported_is_told_by_the_name(ground: Ground) -> None:
    ground.use_text("id,text\n", name="rows.csv.bz2")

    assert "only gzip is supported" in ground.only_problem()[1]


def read_columns(ground: Ground) -> list[tuple[str, str, str]]:
    columns = ground.report()["prediction"]["columns"]
    assert all(column["inferred"] is (column["column"] not in ground.files.get("types", {})) for column in columns)
    return [(column["column"], column["type"], column["why"]) for column in columns]


def test_the_types_of_csv_columns_are_told_with_the_texts_that_decided(ground: Ground) -> None:
    ground.use_text("\n\nid,zip,price,at,none,name\n1,501,1,10:30,,x\n\n2,00501,1.5,11:00,,y\n")
    ground.files["types"] = {"name": "binary"}

    assert read_columns(ground) == [
        ("id", "int64", "'1' in line 4 is one"),
        ("zip", "string", "'00501' in line 6 is no number that can be written back as it stands"),
        ("price", "double", "'1.5' in line 6 is one"),
        ("at", "string", "'10:30' in line 4 is a time of day, which is never inferred"),
        ("none", "string", "it has no value in the rows of the sample"),
        ("name", "binary", "source.files.types says so"),
    ]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_the_types_of_folders_are_told_with_the_folders_that_decided(ground: Ground, format: str) -> None:
    for folder in ("year=2024/zip=007/code=1/none=", "year=2025/zip=12/code=2/none=__HIVE_DEFAULT_PARTITION__"):
        (ground.folder / "rows" / folder).mkdir(parents=True)
        file = ground.folder / "rows" / folder / f"x.{format}"
        if format == "csv":
            file.write_text("id,text\n1,x\n")
        else:
            pq.write_table(pa.table({"id": [1], "text": ["x"]}), file)
    ground.spec["source"] = {"files": {"format": format, "paths": ["rows/"], "types": {"code": "string"}}}

    assert [column for column in read_columns(ground) if column[0] not in ("id", "text")] == [
        ("year", "int64", "the folder year=2024 is one"),
        ("zip", "string", "the folder zip=007 is no number that can be written back as it stands"),
        ("code", "string", "source.files.types says so"),
        ("none", "string", "every folder means NULL"),
    ]


def test_files_in_folders_of_other_keys_are_told_with_both_paths(ground: Ground) -> None:
    for folder in ("year=2024", "month=1"):
        (ground.folder / "rows" / folder).mkdir(parents=True)
        (ground.folder / "rows" / folder / "x.csv").write_text("id,text\n1,x\n")
    ground.spec["source"] = {"files": {"format": "csv", "paths": ["rows/"]}}

    for part in ("year=2024/x.csv", "month=1/x.csv", "source.files.partitions: Ignore"):
        assert part in ground.only_problem()[1]


def test_the_types_of_json_fields_are_told_with_values_that_have_them(ground: Ground) -> None:
    rows = [
        '{"id": 1, "price": 2, "name": null, "big": 1}',
        '{"id": 2, "price": 1.5, "tags": ["a"], "at": {"x": 1}, "big": 0.5, "never": null}',
        '{"id": 3, "name": "x", "big": 9007199254740993}',
    ]
    ground.use_text("\n".join(rows) + "\n", "json", "rows.json")
    ground.files["types"] = {"name": "binary"}

    columns = ground.report()["prediction"]["columns"]

    assert [(column["column"], column["type"], column["why"]) for column in columns] == [
        ("id", "int64", "1 in line 1 has this type"),
        ("price", "double", "1.5 in line 2 has this type"),
        ("name", "binary", "source.files.types says so"),
        ("big", "decimal128(38, 1)", "9007199254740993 in line 3 has this type"),
        ("tags", "list<item: string>", '["a"] in line 2 has this type'),
        ("at", "struct<x: int64>", '{"x": 1} in line 2 has this type'),
        ("never", "string", "it is NULL in all of the first rows"),
    ]
    assert [column["inferred"] for column in columns] == [True, True, False, True, True, True, True]


def test_the_types_inside_of_json_fields_are_told_with_values_that_have_them(ground: Ground) -> None:
    rows = [
        '{"at": {"x": 1, "y": null}, "on": {"a": 1}, "list": [], "parts": [{"n": 1}], "one": {"x": 1}}',
        '{"at": {"x": 1.5, "y": null}, "on": {"b": "c"}, "list": [1, 2], "parts": [{"n": 2}, {"n": 0.5}], "one": {"x": 0.5}}',
        '{"at": null, "on": {"a": 2}, "list": [2.5], "parts": []}',
    ]
    ground.use_text("\n".join(rows) + "\n", "json", "rows.json")

    assert read_columns(ground) == [
        ("at", "struct<x: double, y: string>", "at.x: 1.5 in line 2; at.y: NULL in all of the first rows"),
        ("on", "struct<a: int64, b: string>", 'on.a: 1 in line 1; on.b: "c" in line 2'),
        ("list", "list<item: double>", "[2.5] in line 3 has this type"),
        ("parts", "list<item: struct<n: double>>", '[{"n": 2}, {"n": 0.5}] in line 2 has this type'),
        ("one", "struct<x: double>", '{"x": 0.5} in line 2 has this type'),
    ]


def test_of_many_types_inside_of_a_json_field_the_first_are_told(ground: Ground) -> None:
    fields = ", ".join(f'"f{number}": {number}' for number in range(20))
    ground.use_text(f'{{"id": 1, "at": {{{fields}, "none": null}}}}\n', "json", "rows.json")

    why = read_columns(ground)[1][2]

    assert why.startswith("at.f0: 0 in line 1; at.f1: 1 in line 1; ")
    assert why.endswith("; and 13 more fields")


def test_lines_of_json_that_are_set_apart_count_as_lines(ground: Ground) -> None:
    ground.use_text('{"id": 1, "price": 2}\nno object\n{"id": 2, "price": 1.5}\n', "json", "rows.json")
    ground.spec["onRowError"] = "Quarantine"

    assert read_columns(ground)[1] == ("price", "double", "1.5 in line 3 has this type")


def test_where_the_first_rows_of_json_cannot_be_read_the_problem_has_the_words_of_a_run(ground: Ground) -> None:
    ground.use_text('{"id": 1}\n{"id": [1]}\n', "json", "rows.json")

    path, message = ground.only_problem()

    assert path == "spec.source"
    assert "rows.json" in message
    assert "line at byte 10" in message


def test_the_types_of_csv_columns_are_shown(ground: Ground) -> None:
    ground.use_text("id,text\n007,a\n")

    lines = [" ".join(line.split()) for line in ground.run().stdout.splitlines()]

    at = lines.index("columns id: string ('007' in line 2 is no number that can be written back as it stands)")
    assert lines[at + 1] == "text: string ('a' in line 2 is text)"


def test_a_time_of_day_in_an_iceberg_table_is_noted_as_spark_could_not_read_it(ground: Ground) -> None:
    ground.use_text("id,text\n1,10:30\n")
    ground.files["types"] = {"text": "time"}

    (note,) = ground.report()["notes"]
    assert note.startswith("spec.source.files.types.text: Spark cannot read an Iceberg table that has a column of type time")

    sink, ground.spec["sink"] = ground.spec["sink"], {"none": {}}
    assert ground.report()["notes"] == []

    ground.spec["sink"] = sink
    ground.files["types"] = {"text": "string"}
    assert ground.report()["notes"] == []


def test_a_time_of_day_in_a_member_of_a_union_is_noted_with_the_number_of_the_member(ground: Ground) -> None:
    ground.use_text("id,text\n1,10:30\n")
    other = {"files": {"format": "csv", "paths": ["rows.csv"], "types": {"text": "time"}}}
    ground.spec["source"] = {"union": [{"files": {"format": "parquet", "paths": ["in"]}}, other]}

    (note,) = [note for note in ground.report()["notes"] if "of type time" in note]
    assert note.startswith("spec.source.union.1.files.types.text: Spark cannot read")


def test_a_time_of_day_in_values_of_kafka_is_noted_as_in_files(ground: Ground) -> None:
    ground.settings.write_text("catalog: {}\n")  # settings that cannot be read: no cluster is asked
    kafka = {"bootstrapServers": ["kafka:9092"], "topics": ["orders"], "format": "json", "types": {"text": "time"}}
    ground.spec["source"] = {"kafka": kafka}

    (note,) = [note for note in ground.report()["notes"] if "of type time" in note]
    assert note.startswith("spec.source.kafka.types.text: Spark cannot read")


@pytest.mark.parametrize("kind", ["time", "list<time>", "map<string, time>", "struct<at: list<time>>"])
def test_a_time_of_day_in_what_a_step_gives_is_noted_however_deep_it_lies(bare_ground: Ground, kind: str) -> None:
    bare_ground.write_step("def work(row):\n    return row\n")
    bare_ground.use_step("steps:work")
    bare_ground.spec["sink"]["create"] = True
    bare_ground.spec["steps"][0] |= {"input": "row", "output": {"id": "int64", "time": "string", "x": kind}}

    (note,) = [note for note in bare_ground.report()["notes"] if "of type time" in note]
    assert note.startswith("spec.steps.0.output.x: Spark cannot read")


def test_steps_that_need_a_gpu_are_noted_where_the_driver_would_run_them_without_one(bare_ground: Ground) -> None:
    def notes() -> list[str]:
        return [note for note in bare_ground.report()["notes"] if "no GPU" in note]

    bare_ground.write_step("def work(batch):\n    return batch\n")
    bare_ground.use_step("steps:work")
    bare_ground.spec["sink"]["create"] = True
    assert notes() == []

    bare_ground.spec["executor"] = {"gpus": 1}
    (note,) = notes()
    assert note.startswith("spec.steps.0.output: executor.gpus are those of executors, and the table does not exist")

    bare_ground.spec["steps"][0]["output"] = {"id": "int64"}
    assert notes() == []

    del bare_ground.spec["steps"][0]["output"]
    bare_ground.make_table()
    assert notes() == []


def test_a_text_that_often_means_null_is_told_with_the_option_that_makes_it_so(ground: Ground) -> None:
    ground.use_text("id,text\n1,2\n2,NA\n")
    _, (_, kind, why) = read_columns(ground)
    assert (kind, why) == ("string", "'NA' in line 3 is text; where it means NULL, name it in source.files.csv.nullValues")

    ground.use_text("id,text\n1,2\n2,NA\n", nullValues=["NA"])
    assert read_columns(ground)[1][1] == "int64"


def test_a_header_that_is_one_name_with_another_delimiter_in_it_is_noted_with_the_option(bare_ground: Ground) -> None:
    def delimiter_notes() -> list[str]:
        return [note for note in bare_ground.report()["notes"] if "delimiter" in note]

    bare_ground.use_text("id;text\n1;a\n")
    (note,) = delimiter_notes()
    assert note == (
        f"spec.source.files.csv.delimiter: {bare_ground.folder}/rows.csv has one column, 'id;text'; "
        "if ';' is between the columns, set source.files.csv.delimiter: ';'"
    )
    bare_ground.spec["source"]["columns"] = ["id"]
    assert (
        "spec.source.columns.0",
        "the source has no column 'id'; it has id;text, or set source.files.csv.delimiter: ';' if that is between the columns",
    ) in bare_ground.problems()

    bare_ground.use_text("id;text\n1;a\n", delimiter=";")
    assert delimiter_notes() == []


def test_of_several_files_the_one_is_named_that_decided_a_type(ground: Ground) -> None:
    ground.use_text("id,text\n1,a\n", name="1.csv")
    ground.use_text("id,text\n01,a\n", name="2.csv")
    ground.files["paths"] = ["*.csv"]

    (_, kind, why), _ = read_columns(ground)

    assert (kind, why.partition(" is no")[0]) == ("string", f"'01' in line 2 of {ground.folder}/2.csv")


@pytest.mark.parametrize(("name", "options"), [("rows.csv.gz", {}), ("rows.csv", {"multiLine": True})])
def test_where_a_row_may_have_several_lines_the_row_that_decided_is_told(
    name: str, options: dict[str, Any], ground: Ground
) -> None:
    text = b'id,text\n1,"a\nb"\n01,c\n'
    ground.use_text(gzip.compress(text) if name.endswith(".gz") else text, name=name, **options)

    assert read_columns(ground)[0] == ("id", "string", "'01' in row 2 is no number that can be written back as it stands")


def test_where_the_first_rows_cannot_be_read_the_line_is_named_as_a_run_would_do(ground: Ground) -> None:
    ground.use_text("id,text\n1,a,b\n")

    message = ground.only_problem()[1]

    assert "rows.csv: line at byte 8: CSV parse error: Expected 2 columns, got 3" in message


def test_text_that_is_not_utf8_in_a_row_is_a_problem_unless_its_type_is_given(ground: Ground) -> None:
    ground.use_text(b"id,text\n" + b"1,a\n" * 70_000 + b"1,\xe9\n")
    path, message = ground.only_problem()
    assert path == "spec.source"
    assert "'text'" in message
    ground.files["types"] = {"text": "binary"}
    assert ground.problems() == []


def test_more_columns_than_a_screen_shows_are_counted(ground: Ground) -> None:
    ground.spec["sink"] = {"none": {}}
    ground.use_text(",".join(f"c{number}" for number in range(60)) + "\n")
    assert "and 10 more, which -o json shows" in ground.run().stdout


def test_csv_files_with_other_headers_are_a_problem(ground: Ground) -> None:
    ground.use_text("id,text\n1,a\n", name="csv-1.csv")
    ground.use_text("1,a\n2,b\n", name="csv-2.csv")
    ground.files["paths"] = ["csv-*.csv"]

    assert "csv-2.csv has 1, a, and" in ground.only_problem()[1]


def test_without_a_header_the_columns_are_numbered(ground: Ground) -> None:
    ground.use_text("1,a\n", header=False)
    ground.spec["source"]["columns"] = ["f0"]
    ground.use_step("json:loads")

    assert ground.problems() == []


def test_a_column_that_the_csv_header_lacks_is_a_problem_of_the_field(ground: Ground) -> None:
    ground.use_text("id,text\n1,a\n")
    ground.spec["source"]["columns"] = ["text", "di"]
    ground.use_step("json:loads")

    assert [path for path, _ in ground.problems()] == ["spec.source.columns.1"]

    ground.files["types"] = {"idd": "int64"}

    path, message = ground.only_problem()
    assert path == "spec.source"
    assert "it has no column 'idd' (it has id, text); correct source.files.types" in message


def test_a_type_that_does_not_exist_is_a_problem_of_the_column(ground: Ground) -> None:
    ground.use_text("id,text\n1,a\n")
    ground.files["types"] = {"id": "integer"}

    path, message = ground.only_problem()

    assert path == "spec.source.files.types.id"
    assert "int64" in message


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"[1, 2]\n", "JSON array"), (b"{\n  'id': 1\n}\n", "JSON parse error"), (b"\n \n", "has an object with fields")],
)
def test_json_that_is_not_one_object_a_line_is_a_problem(content: bytes, message: str, ground: Ground) -> None:
    ground.use_text(content, "json", "rows.json")

    assert message in ground.only_problem()[1]


@pytest.mark.parametrize("asked", [{"columns": ["id", "text"]}, {"columns": ["id"], "where": "text = 'a'"}])
def test_a_json_field_that_the_first_rows_lack_is_a_problem_as_in_a_run_until_it_has_a_type(
    asked: dict[str, Any], ground: Ground
) -> None:
    ground.use_text('{"id": 1}\n', "json", "rows.json")
    ground.spec["source"] |= asked

    path, message = ground.only_problem()
    ground.spec["source"]["files"]["types"] = {"text": "string"}

    assert path in ("spec.source.columns.1", "spec.source.where")
    assert "source.files.types" in message
    assert ground.report()["valid"]


# --- the target ---------------------------------------------------------------------------------------------------------------


def test_a_missing_table_without_create_is_a_problem_with_the_way_out(bare_ground: Ground) -> None:
    path, message = bare_ground.only_problem()

    assert path == "spec.sink.iceberg.table"
    assert "sink.create: true" in message


def test_a_missing_dataset_without_create_is_a_problem_and_is_not_made(ground: Ground) -> None:
    ground.spec["sink"] = {"lance": {"uri": "rows.lance"}}

    assert ground.only_problem()[0] == "spec.sink.lance.uri"
    assert not (ground.folder / "rows.lance").exists()


def test_a_catalog_that_is_not_declared_is_a_problem_of_the_field_and_lists_the_known(ground: Ground) -> None:
    ground.spec["sink"]["iceberg"]["catalog"] = "laek"

    path, message = ground.only_problem()

    assert path == "spec.sink.iceberg.catalog"
    assert "there are: lake" in message


def test_a_catalog_that_does_not_answer_is_a_problem_of_the_catalog(ground: Ground) -> None:
    ground.write_settings({"type": "rest", "uri": "http://127.0.0.1:9"})

    path, message = ground.only_problem()

    assert path == "spec.sink.iceberg.catalog"
    assert "did not answer" in message


def test_a_table_with_an_unsupported_feature_is_a_problem_of_the_table(bare_ground: Ground) -> None:
    bare_ground.make_table(properties={"write.format.default": "orc"})

    path, message = bare_ground.only_problem()

    assert path == "spec.sink.iceberg.table"
    assert "write.format.default is 'orc'" in message


@pytest.mark.parametrize(
    ("schema", "path", "message"),
    [
        (pa.schema([("id", pa.int64())]), "spec.source.columns", "the column 'text'"),
        (
            pa.schema([("id", pa.int64()), ("text", pa.string()), pa.field("day", pa.date32(), nullable=False)]),
            "spec.source",
            "requires the column 'day'",
        ),
    ],
)
@pytest.mark.parametrize("sink", ["iceberg", "lance"])
def test_without_steps_the_columns_of_source_and_table_are_compared(
    sink: str, schema: pa.Schema, path: str, message: str, bare_ground: Ground
) -> None:
    if sink == "iceberg":
        bare_ground.make_table(schema)
    else:
        lance.write_dataset(schema.empty_table(), str(bare_ground.folder / "rows.lance"), schema=schema)
        bare_ground.spec["sink"] = {"lance": {"uri": "rows.lance"}}

    where, what = bare_ground.only_problem()

    assert where == path
    assert message in what


def test_with_steps_the_columns_are_theirs_and_are_not_compared(bare_ground: Ground) -> None:
    bare_ground.make_table(pa.schema([("other", pa.int64())]))
    bare_ground.use_step("json:loads")

    assert bare_ground.problems() == []


def test_the_columns_that_the_last_step_declares_are_compared_with_the_table(bare_ground: Ground) -> None:
    bare_ground.make_table(pa.schema([pa.field("other", pa.int64(), nullable=False)]))
    bare_ground.use_step("json:loads")
    bare_ground.spec["steps"][0]["output"] = {"id": "int64"}

    (where, surplus), (_, required) = bare_ground.problems()

    assert where == "spec.steps.0.output"
    assert surplus.startswith("the output of step 'json:loads' has the column 'id', which lake.db.rows does not have")
    assert required == "lake.db.rows requires the column 'other', and the output of step 'json:loads' has none"

    bare_ground.spec["steps"][0]["output"] = {"other": "int64"}
    assert bare_ground.problems() == []


def test_a_partition_column_that_the_last_step_does_not_declare_is_a_problem(bare_ground: Ground) -> None:
    bare_ground.use_step("json:loads")
    bare_ground.spec["steps"][0]["output"] = {"id": "int64"}
    bare_ground.spec["sink"] |= {"create": True, "partitionBy": [{"column": "day"}]}

    assert bare_ground.only_problem() == (
        "spec.sink.partitionBy.0.column",
        "the output of step 'json:loads' has no column 'day' (it has id)",
    )


def test_a_declared_type_that_does_not_exist_is_a_problem_of_the_column_and_a_time_is_noted(bare_ground: Ground) -> None:
    bare_ground.spec["sink"] |= {"create": True}
    bare_ground.use_step("json:loads")
    bare_ground.spec["steps"][0]["output"] = {"id": "integer", "at": "time"}

    assert bare_ground.only_problem()[0] == "spec.steps.0.output.id"
    assert any("spec.steps.0.output.at: Spark cannot read" in note for note in bare_ground.report()["notes"])


def _into_the_warehouse(ground: Ground) -> str:
    return "warehouse"


def _by_a_link(ground: Ground) -> str:
    (ground.folder / "warehouse" / "db" / "rows" / "data").mkdir(parents=True, exist_ok=True)
    pq.write_table(rows_of([1]), ground.folder / "warehouse" / "db" / "rows" / "data" / "x.parquet")
    (ground.source / "more").symlink_to(ground.folder / "warehouse" / "db" / "rows" / "data")
    return "in"


@pytest.mark.parametrize(
    ("path", "title"),
    [
        (_into_the_warehouse, "the data of the sink's table"),
        (lambda ground: "warehouse/*/*/data/*.parquet", "the data of the sink's table"),
        (_by_a_link, "the data of the sink's table"),
        (lambda ground: "checkpoints", "the checkpoint store"),
        (lambda ground: "**/*.json", "the checkpoint store"),
    ],
)
def test_a_source_that_leads_to_what_the_write_puts_somewhere_is_a_problem(
    path: Callable[[Ground], str], title: str, ground: Ground
) -> None:
    ground.files["paths"] = [path(ground)]

    found = [message for field, message in ground.problems() if field == "spec.source" and "leads into" in message]

    assert len(found) == 1
    assert title in found[0]


def test_files_beside_the_table_and_the_checkpoints_are_no_problem(ground: Ground) -> None:
    pq.write_table(rows_of([1]), ground.folder / "x.parquet")
    ground.files["paths"] = ["*.parquet"]
    assert ground.problems() == []


def test_a_partition_column_that_the_source_lacks_is_a_problem_of_the_field(bare_ground: Ground) -> None:
    bare_ground.spec["sink"] |= {"create": True, "partitionBy": [{"column": "id"}, {"column": "day"}]}

    assert bare_ground.only_problem()[0] == "spec.sink.partitionBy.1.column"


def test_a_condition_of_an_overwrite_that_does_not_fit_a_table_to_be_made_is_a_problem_of_the_field(bare_ground: Ground) -> None:
    bare_ground.spec["sink"] |= {"create": True, "mode": "OverwriteWhere", "where": "day = '2026-11-24'"}
    assert bare_ground.only_problem() == ("spec.sink.where", "the source has no column 'day' (it has id, text)")

    bare_ground.spec["sink"]["where"] = "id = 'x'"
    path, message = bare_ground.only_problem()
    assert path == "spec.sink.where"
    assert "the column 'id' is int64" in message


def test_a_condition_of_an_overwrite_that_does_not_fit_the_table_is_a_problem_of_the_field(ground: Ground) -> None:
    ground.spec["sink"] |= {"mode": "OverwriteWhere", "where": "day = '2026-11-24'"}

    path, message = ground.only_problem()

    assert path == "spec.sink.where"
    assert message.startswith("there is no column 'day'")


def test_a_key_of_an_upsert_that_the_table_lacks_is_a_problem_of_the_field(ground: Ground) -> None:
    ground.spec["sink"] |= {"mode": "Upsert", "upsertKeys": ["id", "day"]}
    path, message = ground.only_problem()
    assert path == "spec.sink.upsertKeys.1"
    assert message.startswith("there is no column 'day'")


def test_a_key_of_an_upsert_that_the_source_of_a_table_to_be_made_lacks_is_a_problem_of_the_field(bare_ground: Ground) -> None:
    bare_ground.spec["sink"] |= {"create": True, "mode": "Upsert", "upsertKeys": ["id", "day"]}
    assert bare_ground.only_problem() == ("spec.sink.upsertKeys.1", "the source has no column 'day' (it has id, text)")


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ({}, "rows are added"),
        ({"mode": "OverwriteAll"}, "without new ones, it is empty afterwards"),
        (
            {"mode": "OverwriteWhere", "where": "id >= 0"},
            "rows for which id >= 0 are replaced; without new ones, they are deleted",
        ),
        ({"none": {}, "iceberg": None}, "there is no table"),
        ({"mode": "OverwritePartitions"}, "without any, the table stays as it is"),
        ({"mode": "Upsert", "upsertKeys": ["id"]}, "drivers read id of the data files that may have such rows"),
        ({"mode": "Upsert", "upsertKeys": ["id"], "whenMatched": "Delete"}, "are deleted, and nothing is added"),
        ({"mode": "Upsert", "upsertKeys": ["id"], "whenMatched": "Ignore"}, "new rows whose id are not in the table are added"),
    ],
)
def test_what_becomes_of_the_rows_of_the_table_is_told(sink: dict[str, Any], said: str, ground: Ground) -> None:
    ground.spec["sink"] |= sink

    assert said in ground.report()["prediction"]["whatACommitDoes"]


def test_a_write_without_a_table_has_no_data_files(ground: Ground) -> None:
    ground.spec["sink"] = {"none": {}}

    report = ground.report()

    assert report["valid"], report["problems"]
    assert report["prediction"]["dataFiles"]["atMost"] == 0


# --- the checkpoint store -----------------------------------------------------------------------------------------------------


def test_a_checkpoint_folder_below_a_file_cannot_be_made(ground: Ground) -> None:
    ground.spec["checkpoint"]["uri"] = "settings.yaml/checkpoints"

    path, message = ground.only_problem()

    assert path == "spec.checkpoint.uri"
    assert "cannot be made" in message
    assert "is a file" in message

    ground.spec["checkpoint"]["uri"] = "settings.yaml"
    assert ground.only_problem()[1].endswith("settings.yaml is a file and no folder; correct the URI")
    ground.spec["checkpoint"]["uri"] = "checkpoints"
    assert ground.problems() == []


def test_a_checkpoint_store_of_an_unknown_kind_is_a_problem_of_the_field(ground: Ground) -> None:
    ground.spec["checkpoint"]["uri"] = "ftp://host/checkpoints"

    assert ground.only_problem()[0] == "spec.checkpoint.uri"


def test_a_real_object_store_is_probed_and_left_as_it_was(s3_server: S3Server, tmp_path: Path) -> None:
    place = on_s3(tmp_path, "lance", s3_server)
    place.create(rows_of([]).schema)
    ground = Ground(tmp_path)
    ground.document = json.loads(manifest_for(place, ground.source).model_dump_json(by_alias=True))
    storage = place.settings.for_drivers().model_dump(mode="json")["storage"]
    ground.settings.write_text(yaml.safe_dump({"storage": storage}))

    report = ground.report()

    assert report["valid"], report["problems"]
    assert report["prediction"]["checkpointExists"] is True
    assert report["prediction"]["targetExists"] is True

    ground.spec["checkpoint"]["uri"] = "s3://no-such-bucket-here/checkpoints"
    ground.settings.write_text(yaml.safe_dump({"storage": [{**storage[0], "prefix": "s3://"}]}))
    path, message = ground.only_problem()
    assert path == "spec.checkpoint.uri"
    assert "bucket" in message


def test_parquet_in_a_bucket_is_listed_and_its_footers_are_read(s3_server: S3Server, tmp_path: Path) -> None:
    place = on_s3(tmp_path, "lance", s3_server)
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
    ground = Ground(tmp_path)
    ground.document = json.loads(manifest_for(place, f"{place.base_uri}/in").model_dump_json(by_alias=True))
    ground.settings.write_text(yaml.safe_dump({"storage": place.settings.for_drivers().model_dump(mode="json")["storage"]}))

    report = ground.report()

    assert report["valid"], report["problems"]
    assert (report["prediction"]["sourceFiles"], report["prediction"]["sourceRows"]) == (1, 7)

    ground.spec["source"]["columns"] = ["id", "nosuch"]
    assert ground.only_problem()[0] == "spec.source.columns.1"


def test_a_changed_identity_is_a_problem_of_the_section(ground: Ground) -> None:
    write = StoredWrite(ground.folder, given=load_manifest(ground.file))
    write.begin()
    launched(write)
    before, ground.files["paths"] = ground.files["paths"], ["in/*"]

    path, message = ground.only_problem()

    assert path == "spec.source"
    assert "undo the change" in message

    ground.files["paths"] = before
    assert ground.problems() == []
    ground.files["paths"], ground.document["metadata"]["name"] = ["in/*"], "another"
    assert ground.problems() == []


def test_another_source_is_no_problem_while_nothing_is_sealed(ground: Ground) -> None:
    write = StoredWrite(ground.folder, given=load_manifest(ground.file))
    write.begin()
    write.launch()
    write.plan()
    ground.files["paths"] = ["in/*"]

    assert ground.report()["valid"]


def launched(write: StoredWrite) -> None:
    write.launch()
    write.plan()
    write.seal(0)


def committed_and_wanted_again(write: StoredWrite) -> None:
    write.run_nonce = "monday"
    write.commit()


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (StoredWrite.commit, "committed (epoch 1): a run would do nothing"),
        (launched, "Running (epoch 1, attempt 1): a run would go on from there; 10 rows are sealed"),
        (committed_and_wanted_again, "epoch 2 is not begun: a run would begin it"),
    ],
)
def test_what_the_store_knows_of_the_write_is_told(prepare: Callable[[StoredWrite], None], message: str, ground: Ground) -> None:
    write = StoredWrite(ground.folder, given=load_manifest(ground.file))
    write.begin()
    prepare(write)

    report = ground.report()

    # Of a commit that was only recorded, the table has no rows: that is the one problem.
    is_committed = message.startswith("committed")
    assert [problem["path"] for problem in report["problems"]] == (["spec.sink.iceberg.table"] if is_committed else [])
    assert report["prediction"]["write"].startswith(message)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (StoredWrite.commit, "change runNonce to read the whole source again"),
        (committed_and_wanted_again, "a run would begin it, with the whole source"),
    ],
)
def test_a_run_that_overwrites_would_read_the_whole_source(
    prepare: Callable[[StoredWrite], None], message: str, ground: Ground
) -> None:
    ground.spec["sink"]["mode"] = "OverwriteAll"
    write = StoredWrite(ground.folder, given=load_manifest(ground.file))
    write.begin()
    prepare(write)

    assert ground.report()["prediction"]["write"].endswith(message)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (StoredWrite.commit, "run --again takes the rows that failed"),
        (committed_and_wanted_again, "a run would begin it, with the rows that failed in earlier epochs, and no others"),
    ],
)
def test_a_run_that_only_tries_again_would_take_rows_that_failed(
    prepare: Callable[[StoredWrite], None], message: str, ground: Ground
) -> None:
    ground.spec.update({"onRowError": "Quarantine", "quarantine": {"retry": "Only"}})
    write = StoredWrite(ground.folder, given=load_manifest(ground.file))
    write.begin()
    prepare(write)

    report = ground.report()

    assert report["prediction"]["write"].endswith(message)
    assert not [note for note in report["notes"] if "take no rows" in note]


@pytest.mark.parametrize("retry", ["Only", "Also"])
def test_a_first_epoch_that_only_tries_again_is_told_to_take_no_rows(retry: str, ground: Ground) -> None:
    ground.spec.update({"onRowError": "Quarantine", "quarantine": {"retry": retry}})

    said = [note for note in ground.report()["notes"] if "the first epoch would take no rows" in note]

    assert len(said) == (retry == "Only")


def test_a_write_with_a_trigger_would_take_what_is_new_though_an_epoch_of_it_is_committed(ground: Ground) -> None:
    ground.spec["trigger"] = {"every": "5m"}
    write = StoredWrite(ground.folder, given=load_manifest(ground.file))
    write.begin()
    write.commit()

    report = ground.report()

    assert report["prediction"]["write"] == "committed (epoch 1): a run would take what came since"


def test_an_unreadable_record_of_the_write_is_a_problem_of_the_checkpoint(ground: Ground) -> None:
    write = StoredWrite(ground.folder, given=load_manifest(ground.file))
    write.begin()
    write.commit()
    write.break_record(write.ledger.at.commit_record)

    path, message = ground.only_problem()

    assert path == "spec.checkpoint.uri"
    assert write.ledger.at.commit_record in message


# --- code in an archive ---------------------------------------------------------------------------------------------------


def test_the_steps_in_an_archive_are_found_and_read(ground: Ground) -> None:
    (ground.folder / "code.zip").write_bytes(zip_of({"package/__init__.py": "", "package/steps.py": "def clean(rows): ..."}))
    ground.use_step("package.steps:clean")
    ground.spec["code"] = {"uri": "code.zip"}
    assert ground.problems() == []

    ground.use_step("package.steps:claen")
    ground.spec["code"] = {"uri": "code.zip"}

    path, message = ground.only_problem()
    assert path == "spec.steps.0.call"
    assert f"{ground.folder}/code.zip/package/steps.py defines no 'claen'; did you mean 'clean'?" in message


def test_a_module_of_its_own_is_named_as_it_was_given(ground: Ground) -> None:
    (ground.folder / "flights.py").write_text("def clean(rows)\n")
    ground.use_step("flights:clean")
    ground.spec["code"] = {"uri": "flights.py"}

    path, message = ground.only_problem()

    assert path == "spec.steps.0.call"
    assert message.startswith(f"{ground.folder}/flights.py, line 1:")


@pytest.mark.parametrize("kind", ["a name that climbs out", "no zip"])
def test_an_archive_that_cannot_be_used_is_a_problem_of_code_uri(ground: Ground, kind: str) -> None:
    (ground.folder / "code.zip").write_bytes(HOSTILE[kind][0]())
    ground.use_step("flights:clean")
    ground.spec["code"] = {"uri": "code.zip"}

    path, message = ground.only_problem()

    assert path == "spec.code.uri"
    assert HOSTILE[kind][1] in message


@pytest.mark.parametrize("name", ["queue.py", "code.zip"])
def test_an_archive_with_a_module_that_hides_what_the_driver_needs_is_a_problem_of_code_uri(ground: Ground, name: str) -> None:
    (ground.folder / name).write_bytes(b"def clean(rows): ..." if name == "queue.py" else zip_of({"queue.py": "", "a.py": ""}))
    ground.use_step("queue:clean")
    ground.spec["code"] = {"uri": name}

    path, message = ground.only_problem()

    assert path == "spec.code.uri"
    assert "queue.py hides 'queue' of Python's standard library" in message


def test_what_only_a_cluster_has_is_a_problem_with_a_way_out(ground: Ground) -> None:
    ground.use_step("flights:clean")
    ground.spec["code"] = {"configMap": {"name": "flights"}}
    ground.spec["suspend"] = True

    problems = dict(ground.problems())

    assert problems.keys() == {"spec.code.configMap", "spec.suspend"}
    assert "code.path" in problems["spec.code.configMap"]
    assert "take it out" in problems["spec.suspend"]


def test_the_volume_of_a_stream_is_a_problem_on_one_machine_until_its_checkpoint_is_on_a_disk(ground: Ground) -> None:
    (ground.folder / "jobs.py").write_text("def main(job): ...")
    program = {"call": "jobs:main", "stream": {"checkpointVolume": {"claimName": "spark-state"}}}
    ground.spec["source"] = {"program": program}

    problems = dict(ground.problems())

    assert problems.keys() == {"spec.source.program.stream.checkpointVolume"}
    assert "one machine has no PersistentVolumeClaims; leave it out" in problems["spec.source.program.stream.checkpointVolume"]
    ground.spec["source"] = {"program": {"call": "jobs:main", "stream": {}}}
    assert dict(ground.problems()) == {}


# --- rows known by keys ---------------------------------------------------------------------------------------------------


def test_a_source_that_only_spark_reads_goes_by_keys_and_says_why(ground: Ground) -> None:
    ground.spec["source"] = {"spark": {"format": "orc", "paths": ["in"], "keyColumns": ["id", "day"]}}

    would = ground.report()["prediction"]

    assert would["rowIdentity"].startswith("key (id, day)")
    assert would["sourceFiles"] is None
    assert would["tasks"] == {"atLeast": 0, "atMost": None, "why": "one for each partition of Spark's plan"}


def test_a_union_is_checked_member_by_member(ground: Ground) -> None:
    (ground.folder / "more.csv").write_text("id,day\n1,2024-01-05\n")
    ground.spec["source"] = {
        "union": [
            {"files": {"format": "parquet", "paths": ["in"]}},
            {"files": {"format": "csv", "paths": ["more.csv"], "csv": {"delimiter": "\u00e4"}}},
            {"files": {"format": "csv", "paths": ["nowhere"]}},
            {"iceberg": {"catalog": "lake", "table": "db.other"}},
        ]
    }

    assert [path for path, _ in ground.problems()] == [
        "spec.source.union.1.files.csv.delimiter",
        "spec.source.union.2.files.paths.0",
        "spec.source.union.3.iceberg",
    ]


def test_a_right_union_is_foreseen_as_one_source(bare_ground: Ground) -> None:
    (bare_ground.folder / "more.csv").write_text("id,day\n1,2024-01-05\n")
    union = [{"files": {"format": "parquet", "paths": ["in"]}}, {"files": {"format": "csv", "paths": ["more.csv"]}}]
    bare_ground.spec["source"] = {"union": union, "columns": ["day", "id"]}
    bare_ground.spec["sink"]["create"] = True

    report = bare_ground.report()

    assert report["problems"] == []
    assert report["prediction"]["sourceFiles"] == 3
    assert report["prediction"]["rowIdentity"] == "file and row number in it or file and byte in it"


def test_what_can_be_seen_of_a_source_that_only_spark_reads_is_checked(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET_HERE", raising=False)
    ground.spec["source"] = {
        "spark": {"format": "orc", "paths": ["nowhere"], "options": {"password": "${env:NOT_SET_HERE}"}, "keyColumns": ["id"]}
    }

    report = ground.report()

    assert [problem["path"] for problem in report["problems"]] == ["spec.source.spark.paths.0"]
    assert any("NOT_SET_HERE" in note for note in report["notes"])


@pytest.mark.parametrize("field", ["source", "sink", "checkpoint", "code"])
def test_a_bucket_that_no_storage_entry_covers_is_told_without_asking_for_an_identity(ground: Ground, field: str) -> None:
    """The metadata address of a cloud would be asked otherwise, and who knows for how long."""
    change: dict[str, Any] = {
        "source": {"files": {"format": "parquet", "paths": ["s3://bucket/in"]}},
        "sink": {"lance": {"uri": "s3://bucket/rows.lance"}},
        "checkpoint": {"uri": "s3://bucket/checkpoints"},
        "code": {"uri": "s3://bucket/code.zip"},
    }
    ground.spec[field] = change[field]

    problems = [message for _, message in ground.problems()]

    assert any("no storage entry covers s3://bucket" in message for message in problems), problems
    assert any("credentials: ambient" in message for message in problems)


# --- what a run would find when it makes the table ------------------------------------------------------------------------

_NEW_ICEBERG = {"iceberg": {"catalog": "lake", "table": "db.new"}, "create": True}
_NEW_LANCE = {"lance": {"uri": "new.lance"}, "create": True}
#: The output has these columns.
_OUTPUTS: dict[str, dict[str, str]] = {
    "a field that is taken": {"day": "date", "day_month": "int32"},
    "a column with a dot": {"a.b": "int32"},
    "an empty struct": {"id": "int32", "more": "struct<>"},
}


def given_as(form: str, ground: Ground, output: dict[str, str]) -> str:
    """Have the source, or the last step, give these columns; return the field of the manifest to which problems belong."""
    if form == "declared":
        ground.write_step("def same(row):\n    return row\n")
        ground.use_step("steps:same")
        ground.spec["steps"][0] |= {"input": "row", "output": output}
        return "spec.steps.0.output"
    values = {"date": "2026-01-02", "int32": 1, "struct<>": {}}
    row = {name: values[kind] for name, kind in output.items()}
    if form == "csv":
        ground.use_text(f"{','.join(row)}\n{','.join(str(value) for value in row.values())}\n")
    else:
        ground.use_text(json.dumps(row) + "\n", format="json", name="rows.json")
        ground.files["types"] = {name: kind for name, kind in output.items() if kind == "date"}
    return "spec.source"


@pytest.mark.parametrize("form", ["csv", "json", "declared"])
def test_a_name_that_a_partition_field_would_have_and_a_column_has_is_told(bare_ground: Ground, form: str) -> None:
    given_as(form, bare_ground, _OUTPUTS["a field that is taken"])
    bare_ground.spec["sink"] = {**_NEW_ICEBERG, "partitionBy": [{"column": "day", "transform": "month"}]}

    path, message = bare_ground.only_problem()
    assert path == "spec.sink.partitionBy.0"
    assert message.startswith(
        "the partition field would have the name 'day_month', which is that of a column of the output; rename"
    )


@pytest.mark.parametrize("form", ["csv", "json", "declared"])
def test_a_dot_in_a_column_name_of_a_new_lance_dataset_is_told(bare_ground: Ground, form: str) -> None:
    field = given_as(form, bare_ground, _OUTPUTS["a column with a dot"])
    bare_ground.spec["sink"] = _NEW_LANCE

    path, message = bare_ground.only_problem()
    assert path == field
    assert "the column 'a.b' has a dot in its name" in message
    assert "rename it in a step, or leave it out" in message


@pytest.mark.parametrize("sink", [_NEW_ICEBERG, _NEW_LANCE], ids=["iceberg", "lance"])
def test_an_empty_object_in_json_which_no_table_takes_is_told(bare_ground: Ground, sink: dict[str, Any]) -> None:
    given_as("json", bare_ground, _OUTPUTS["an empty struct"])
    bare_ground.spec["sink"] = sink

    path, message = bare_ground.only_problem()
    assert path == "spec.source"
    assert "the column 'more' has the type struct<>" in message


@pytest.mark.parametrize(
    ("field", "value", "trigger"),
    [("cron", "0 0 31 2 *", {}), ("timeZone", "Europe", {"cron": "0 3 * * *"})],
)
def test_a_schedule_that_never_comes_is_told(ground: Ground, field: str, value: str, trigger: dict[str, str]) -> None:
    ground.spec["trigger"] = {**trigger, field: value}

    path, message = ground.only_problem()
    assert path == f"spec.trigger.{field}"
    assert value in message


@pytest.mark.parametrize("sink", [{"iceberg": {"catalog": "lake", "table": "db.new"}}, {"lance": {"uri": "sink.lance"}}])
def test_an_extension_type_that_a_new_table_does_not_keep_is_said_and_a_uuid_is_kept(
    bare_ground: Ground, sink: dict[str, Any]
) -> None:
    columns = {
        "kept": pa.array([bytes(16)], pa.uuid()),
        "listed": pa.ListArray.from_arrays([0, 1], pa.array([bytes(16)], pa.uuid())),
        "text": pa.array(["{}"], pa.json_()),
    }
    pq.write_table(pa.table(columns), bare_ground.folder / "extensions.parquet")
    bare_ground.files["paths"] = ["extensions.parquet"]
    bare_ground.spec["sink"] = {**sink, "create": True}

    notes = [note for note in bare_ground.report()["notes"] if "in the source" in note]

    assert notes == [
        "the column 'listed' is arrow.uuid in the source, and list<item: fixed_size_binary[16]> in the new table",
        "the column 'text' is arrow.json in the source, and string in the new table",
    ]


@pytest.mark.parametrize("name", ["x.parquet", "link.parquet"])
def test_a_file_that_two_sources_of_a_union_find_is_refused_as_by_a_run(ground: Ground, name: str) -> None:
    pq.write_table(rows_of([1]), ground.folder / "x.parquet")
    (ground.folder / "link.parquet").symlink_to(ground.folder / "x.parquet")
    once, again = ({"files": {"format": "parquet", "paths": [path]}} for path in ("x.parquet", name))
    ground.spec["source"] = {"union": [once, {"files": {"format": "parquet", "paths": ["in"]}}, again]}

    path, message = ground.only_problem()

    assert path == "spec.source.union"
    assert message.startswith("the sources 0 and 2 both have the file")
    assert "name it in one of them" in message


@pytest.mark.parametrize(
    "source",
    [
        {"spark": {"format": "orc", "paths": ["in"], "keyColumns": ["id"]}},
        {"program": {"call": "steps:of_orders", "stream": {"outputMode": "Append"}}},
    ],
    ids=["by key", "stream"],
)
def test_what_only_spark_knows_of_the_columns_is_no_problem_of_the_table(source: dict[str, Any], bare_ground: Ground) -> None:
    bare_ground.write_step("def of_orders(job): ...\n")
    bare_ground.spec.update(source=source, code={"path": "code"})
    bare_ground.make_table(pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())]))
    assert bare_ground.problems() == []

    bare_ground.spec["sink"] = {
        "iceberg": {"catalog": "lake", "table": "db.made"},
        "create": True,
        "partitionBy": [{"column": "id"}],
        "mode": "Upsert",
        "upsertKeys": ["id"],
    }
    assert bare_ground.problems() == []

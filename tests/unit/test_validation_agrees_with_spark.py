"""What `validate` says of a source is what a driver will do: the operator may not import the driver's code, a test may."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.parquet_rows import nearest_start
from checkpoint_formats.readers import file_reader_for
from checkpoint_formats.type_names import parse_type
from checkpoint_operator.validation.code import check_code
from checkpoint_operator.validation.forecast import _tasks
from checkpoint_operator.validation.report import Findings
from checkpoint_operator.validation.source import SourceSeen, check_source
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest import Source, parse_manifest
from checkpoint_protocol.records import SourceFile
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.storage import StorageSettings
from checkpoint_spark.planning import MOST_PIECES, plan_tasks
from checkpoint_spark.steps import Pipeline, Place
from tests.support.manifests import manifest


def test_files_that_several_paths_mean_go_by_the_same_names(tmp_path: Path) -> None:
    for name in ("in/b.csv", "in/x/c.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("id\n1\n")
    (tmp_path / "in" / "a.csv").symlink_to(tmp_path / "in" / "b.csv")
    (tmp_path / "other").symlink_to(tmp_path / "in")
    paths = tuple(f"{tmp_path}/{path}" for path in ("other", "in/*.csv", "in//x/c.csv", "/in", "other/a.csv"))

    seen = check_source(Source(format="csv", paths=paths), Settings(), Findings())

    assert seen is not None
    assert [file.path for file in seen.files] == [file.path for file in SourceFiles(StorageSettings()).expand(paths)]
    assert [file.path for file in seen.files] == [f"{tmp_path}/in/b.csv", f"{tmp_path}/in/x/c.csv"]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("id,text\n1,a\n", {}),
        ("\ufeffid,text\r\n1,a\r\n", {}),
        ("\n\nid,text\n1,a", {}),
        ('"id","te,xt"\n1,a\n', {}),
        ('"i""d",text\n1,a\n', {}),
        ("id;text\n1;a\n", {"delimiter": ";"}),
        ("'id'|'text'\n1|a\n", {"delimiter": "|", "quote": "'"}),
        ('"id",text\n1,a\n', {"quote": ""}),
        ("1,a\n2,b\n", {"header": False}),
        ('"i\nd",text\n1,a\n', {"multi_line": True}),
        ("i\\,d,text\n1,a\n", {"escape": "\\"}),
        (" id , text\n1,a\n", {}),
    ],
)
@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
def test_a_csv_header_has_the_same_columns(name: str, text: str, options: dict[str, Any], tmp_path: Path) -> None:
    content = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    source = Source.model_validate({"format": "csv", "path": str(tmp_path / name), "options": options})
    findings = Findings()

    seen = check_source(source, Settings(), findings)
    described, schema = file_reader_for(source, StorageSettings()).describe(source.all_paths)

    assert findings.problems == []
    assert seen is not None
    assert seen.columns == tuple(schema.names)
    assert (described[0].path in seen.whole) is (described[0].unit == "records")


_values = st.sampled_from(
    [
        "1",
        "07",
        "1.5",
        "1.50",
        "9007199254740993",
        "12E45",
        "true",
        "TRUE",
        "2024-01-05",
        "10:30",
        "2024-01-05 10:30",
        "NA",
        "",
        '""',
        "x",
    ]
)


@settings(deadline=None, max_examples=60)
@given(
    files=st.lists(st.lists(st.tuples(_values, _values), max_size=4), min_size=1, max_size=4),
    name=st.sampled_from(["rows{}.csv", "rows{}.csv.gz"]),
    options=st.sampled_from([{}, {"multi_line": True}, {"null_values": ("NA", "x")}, {"header": False}]),
)
def test_csv_columns_have_the_same_types(files: list[list[tuple[str, str]]], name: str, options: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, rows in enumerate(files):
            lines = ["" if options.get("header") is False else "id,text", *(f"{one},{other}" for one, other in rows), "", "1,1"]
            content = "\n".join(lines).encode()
            (Path(folder) / name.format(number)).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        source = Source.model_validate({"format": "csv", "path": folder, "options": options})
        findings = Findings()

        seen = check_source(source, Settings(), findings)
        _, schema = file_reader_for(source, StorageSettings()).describe(source.all_paths)

    assert seen is not None
    assert findings.notes == []
    assert {column.column: parse_type(column.column, column.type) for column in seen.read} == dict(
        zip(schema.names, schema.types, strict=True)
    )


def test_a_csv_file_that_is_longer_than_the_sample_is_sampled_to_the_same_row(tmp_path: Path) -> None:
    """The text that is no number stands around the border of the sample, one line further in each file."""
    kinds = set()
    for offset in range(-3, 4):
        line = "1,2345\n"
        text = "id,text\n" + line * ((4 << 20) // len(line) + offset) + "01,2345\n" + line * 10
        (tmp_path / "rows.csv").write_text(text)
        source = Source.model_validate({"format": "csv", "path": str(tmp_path / "rows.csv")})
        seen = check_source(source, Settings(), Findings())
        _, schema = file_reader_for(source, StorageSettings()).describe(source.all_paths)
        assert seen is not None
        assert [parse_type("id", column.type) for column in seen.read] == schema.types
        kinds.add(schema.types[0])
    assert len(kinds) == 2


@pytest.mark.parametrize("text", ["id\n", "id", "\nid\n", "id\n\n", "id\n1", "\ufeffid\n"])
@pytest.mark.parametrize("header", [True, False])
def test_a_csv_file_without_rows_is_in_no_task(header: bool, text: str, tmp_path: Path) -> None:
    (tmp_path / "full.csv").write_text("id\n1\n" if header else "1\n")
    (tmp_path / "this.csv").write_text(text)
    source = Source.model_validate({"format": "csv", "path": str(tmp_path), "options": {"header": header}})

    seen = check_source(source, Settings(), Findings())
    described, _ = file_reader_for(source, StorageSettings()).describe(source.all_paths)

    assert seen is not None
    assert [file.path for file in seen.filled] == [file.path for file in described if file.start < (file.end or 0)]


# --- the number of tasks ------------------------------------------------------------------------------------------------------

_FILE = st.tuples(st.integers(1, 50_000), st.sampled_from(["rows", "bytes", "records", "empty"]), st.integers(1, 5_000))
_FILES = st.lists(_FILE, min_size=1, max_size=20)


@given(
    files=_FILES,
    scale=st.sampled_from([1, 1 << 10]),
    cores=st.integers(1, 64),
    split_bytes=st.integers(400, 200_000),
    opened=st.integers(0, 20),
)
@example(files=[(1_000, "records", 1)] * 20, scale=1 << 10, cores=2, split_bytes=100_000, opened=20)
@example(files=[(9_000, "rows", 1), *[(50_000, "empty", 1)] * 5], scale=1 << 10, cores=4, split_bytes=100_000, opened=1)
@example(files=[(size, "rows", 1) for size in (1, 470, 83, 1, 388, 81)], scale=1, cores=1, split_bytes=400, opened=0)
@settings(deadline=None)
def test_the_planned_tasks_are_within_the_bounds(
    files: list[tuple[int, str, int]], scale: int, cores: int, split_bytes: int, opened: int
) -> None:
    """Whatever the files, some without rows, and however few were opened. Rows are 100 bytes; the last number: a row group's."""
    records = []
    for number, (size, unit, group) in enumerate(files):
        size_bytes = size * scale
        end = {"rows": max(1, size_bytes // 100), "bytes": size_bytes, "records": None, "empty": 0}[unit]
        cuts = tuple(range(0, end, max(group, end // 1_000 + 1))) if unit == "rows" and end else ()
        plain: dict[str, Any] = {"path": f"/in/{number}", "etag": "e", "size_bytes": size_bytes, "end": end, "cuts": cuts}
        records.append(SourceFile(**plain, unit="rows" if unit == "empty" else unit))  # type: ignore[arg-type]

    def align(file: SourceFile, position: int, slack: int) -> int:
        end = file.end or 0
        if file.unit == "bytes":
            return min(end, -(-position // 100) * 100)
        return nearest_start(file.cuts, end, position, slack)

    found = tuple(FoundFile(record.path, "", record.size_bytes, "") for record in records)
    filled = tuple(file for file, record in zip(found[:opened], records, strict=False) if record.end != 0)
    whole = frozenset(record.path for record in records if record.unit == "records")
    bounds = _tasks(SourceSeen(found, filled, found[opened:], whole, None, None), cores, split_bytes * scale)

    planned = len(plan_tasks(records, (), align, cores, split_bytes * scale))

    assert bounds.at_most is not None
    assert bounds.at_least <= planned <= bounds.at_most


@pytest.mark.parametrize("count", [MOST_PIECES - 1, MOST_PIECES, MOST_PIECES + 1, 4 * MOST_PIECES + 3])
@pytest.mark.parametrize("unit", ["rows", "records"])
def test_the_planned_tasks_are_within_the_bounds_where_very_many_files_are_very_small(count: int, unit: Any) -> None:
    record = SourceFile(path="/in/a", etag="e", size_bytes=1, unit=unit, end=1 if unit == "rows" else None)
    files = tuple(FoundFile(f"/in/{number}", "", 1, "") for number in range(count))
    whole = frozenset(file.path for file in files) if unit == "records" else frozenset[str]()

    bounds = _tasks(SourceSeen(files, files[:200], files[200:], whole, None, None), 1, 128 << 20)
    planned = len(plan_tasks([record] * count, (), lambda file, position, slack: position, 1, 128 << 20))

    assert bounds.at_most is not None
    assert bounds.at_least <= planned <= bounds.at_most


# --- steps that would have to be awaited ----------------------------------------------------------------------------------

ASYNC = {
    "a function": ("work", "async def work(row): return row"),
    "a generator": ("work", "async def work(row): yield row"),
    "a call": ("Work", "class Work:\n    async def __call__(self, row): return row"),
    "a call that yields": ("Work", "class Work:\n    async def __call__(self, row): yield row"),
    "a setup": ("Work", "class Work:\n    async def setup(self): ...\n    def __call__(self, row): return row"),
    "a making": ("Work", "class Work:\n    async def __init__(self): ...\n    def __call__(self, row): return row"),
    "a call beside a base": ("Work", "class Base: ...\nclass Work(Base):\n    async def __call__(self, row): return row"),
}


@pytest.mark.parametrize("input", ["row", "arrow", "pandas"])
@pytest.mark.parametrize(("name", "text"), ASYNC.values(), ids=ASYNC)
def test_an_async_step_is_refused_in_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, input: str
) -> None:
    module = f"async_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(f"{text}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    step = {"call": f"{module}:{name}", "input": input}
    spec = parse_manifest(manifest(spec__steps=[step], spec__code={"path": str(tmp_path)})).spec
    findings = Findings()

    check_code(spec, None, findings)
    with pytest.raises(NeedsChange) as refused:
        Pipeline(spec.steps)

    (problem,) = findings.problems
    assert "is async, and nobody awaits a step" in problem.message
    assert refused.value.message == f"step '{module}:{name}': {problem.message}"


def test_a_decorator_may_make_an_async_function_a_plain_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"async_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(
        "import asyncio\n"
        "def plain(function): return lambda row: asyncio.run(function(row))\n"
        "@plain\n"
        "async def work(row): return row\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = parse_manifest(
        manifest(spec__steps=[{"call": f"{module}:work", "input": "row"}], spec__code={"path": str(tmp_path)})
    ).spec
    findings = Findings()

    check_code(spec, None, findings)

    assert findings.problems == []
    rows = pa.record_batch({"id": [1]})
    assert next(Pipeline(spec.steps).apply(rows, Place("f", "rows", 0), rows.schema)).to_pylist() == [{"id": 1}]

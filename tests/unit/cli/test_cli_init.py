"""`checkpointed-write init`: what it finds, what it writes, what `validate` says of that, and that nothing is overwritten."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner, Result

from checkpoint_local.cli.main import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner(env={"XDG_CONFIG_HOME": "/nonexistent"}).invoke(main, list(arguments), catch_exceptions=False)


def parquet(folder: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2], "text": ["a", "b"]}), folder / "one.parquet")


def csv(folder: Path) -> None:
    (folder / "one.csv").write_text("id,text\n1,a\n")


def lines(folder: Path) -> None:
    (folder / "one.jsonl").write_text('{"id": 1, "text": "a"}\n')


def images(folder: Path) -> None:
    (folder / "one.png").write_bytes(b"picture")


@pytest.mark.parametrize(
    ("put", "kind", "pattern", "columns"),
    [
        (parquet, "parquet", "*.parquet", "id, text"),
        (csv, "csv", "*.csv", "id, text"),
        (lines, "json", "*.jsonl", "id, text"),
        (images, "binary", "*.png", "path, size, etag, modified, content"),
    ],
)
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("deep", [True, False])
def test_what_is_written_for_a_folder_is_valid(
    put: Callable[[Path], None], kind: str, pattern: str, columns: str, given: bool, deep: bool, folder: Path
) -> None:
    inner = folder / "My [new] data" / ("day=1" if deep else "")
    inner.mkdir(parents=True)
    put(inner)

    done = run("init", *(["My [new] data/"] if given else []))

    assert done.exit_code == 0, done.output
    spec = yaml.safe_load(Path("write.yaml").read_text())["spec"]
    assert spec["source"]["files"] == {"format": kind, "paths": [f"My [[]new] data/{'**/' if deep else ''}{pattern}"]}
    assert spec["sink"] == {"lance": {"uri": "my-new-data.lance"}, "create": True}
    assert f"The row is a dict with {columns}" in Path("steps.py").read_text()
    valid = run("validate", "write.yaml")
    assert valid.exit_code == 0, valid.output
    assert "1 file" in valid.output


@pytest.mark.parametrize(("path", "name"), [("texts/one.csv", "one"), ("texts/*.csv", "texts"), ("**/*.csv", "texts")])
def test_a_file_or_a_pattern_is_named_as_it_was_given(path: str, name: str, folder: Path) -> None:
    (folder / "texts").mkdir()
    csv(folder / "texts")
    lines(folder)

    assert run("init", path).exit_code == 0

    manifest = yaml.safe_load(Path("write.yaml").read_text())
    assert (manifest["spec"]["source"]["files"]["paths"], manifest["metadata"]["name"]) == ([path], name)
    assert run("validate", "write.yaml").exit_code == 0


def test_the_schema_is_named_where_it_is_written_and_the_sink_can_be_a_table_of_iceberg(folder: Path) -> None:
    csv(folder)

    assert run("init", "--iceberg", "lake.db.texts", "--schema").exit_code == 0

    text = Path("write.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=write.schema.json\n")
    assert yaml.safe_load(text)["spec"]["sink"]["iceberg"] == {"catalog": "lake", "table": "db.texts"}
    assert json.loads(Path("write.schema.json").read_text())["properties"]["spec"]


def test_one_of_several_is_taken_when_it_is_named(folder: Path) -> None:
    parquet(folder)
    csv(folder)
    refused = run("init")

    command = next(line for line in refused.stderr.splitlines() if "1 CSV file" in line).partition("checkpointed-write ")[2]

    assert run(*shlex.split(command)).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "there are several kinds of files, or folders; name one:"),
        ([], "1 CSV file: checkpointed-write init 'a/*.csv'"),
        (["a"], "1 Parquet file: checkpointed-write init 'a/*.parquet'"),
        (["empty"], "empty: there are no files of a known kind"),
        (["nowhere"], "nowhere: there are no files of a known kind"),
        (["s3://bucket/a"], "files of this machine are expected"),
        (["a/one.csv", "--iceberg", "texts"], "--iceberg texts: CATALOG.NAMESPACE.TABLE is expected"),
        (["bad.parquet"], "bad.parquet"),
    ],
)
def test_what_is_not_one_kind_of_files_is_refused_and_nothing_is_written(arguments: list[str], told: str, folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "a").mkdir()
    csv(folder / "a")
    parquet(folder / "a")
    (folder / "bad.parquet").write_text("no parquet")

    refused = run("init", *arguments)

    assert refused.exit_code == 2
    assert told in refused.stderr
    assert not Path("write.yaml").exists()


@pytest.mark.parametrize("name", ["write.yaml", "steps.py", "write.schema.json"])
def test_nothing_is_overwritten(name: str, folder: Path) -> None:
    csv(folder)
    Path(name).write_text("mine")

    refused = run("init", "--schema")

    assert refused.exit_code == 2
    assert f"{name} is there already" in refused.stderr
    assert sorted(path.name for path in folder.iterdir()) == sorted([name, "one.csv"])
    assert Path(name).read_text() == "mine"
    Path(name).rename("moved")
    assert run("init", "--schema").exit_code == 0

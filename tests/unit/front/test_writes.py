"""Rows and writes from Python: what they are called, what a manifest they make, and what is refused at once."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

import checkpointed_writes as cw
from checkpoint_protocol.identity import row_keys_of
from checkpoint_protocol.manifest.spec import CheckpointedWrite, parse_manifest
from checkpointed_writes import Write, WriteFailed
from devtools.documentation.python_calls import python_page
from tests.support.stored_writes import StoredWrite

ROWS = cw.read_parquet("in/*.parquet").step("m:f")


def manifest_of(write: Write) -> CheckpointedWrite:
    return parse_manifest(yaml.safe_load(write.to_yaml()))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("write", "name", "checkpoint"),
    [
        (ROWS.write_lance("Vectors_of 2026.lance"), "vectors-of-2026", "{folder}/checkpoints"),
        (ROWS.write_lance("/data/v.lance/"), "v", "/data/checkpoints"),
        (ROWS.write_lance("s3://b/deep/v.lance"), "v", "s3://b/deep/checkpoints"),
        (ROWS.write_lance(Path("v.lance"), name="own", checkpoint="elsewhere"), "own", "{folder}/elsewhere"),
        (ROWS.write_iceberg("local.travel.flights"), "flights", "{folder}/checkpoints"),
        (ROWS.write_nothing("calls"), "calls", "{folder}/checkpoints"),
    ],
)
def test_a_write_is_called_as_its_table_and_seals_beside_it(write: Write, name: str, checkpoint: str, folder: Path) -> None:
    manifest = manifest_of(write)

    assert manifest.metadata.name == name
    assert manifest.spec.checkpoint.uri == checkpoint.format(folder=folder)


def test_every_part_has_its_place() -> None:
    write = (
        cw.union(cw.read_csv("a.csv", types={"n": "int64"}), cw.read_iceberg("local.n.t", branch="b"))
        .select("n", "text")
        .where("n > 3")
        .stage("parse")
        .step("m:parse", concurrency=16, timeout=timedelta(minutes=1), retry=7, rate_limit={"calls": 10, "per": "1s"})
        .batch_step("m:embed", batch_format="pandas", batch_size=64)
        .aggregate("m:count", ["n"], buckets=8)
        .stage("last", checkpoint=None)
        .step("m:last", output={"n": "int64"})
        .write_iceberg("local.n.out", mode="upsert", keys="n", when_matched="ignore", partition_by=["n", ("at", "day")])
        .options(on_row_error="quarantine", trigger={"every": timedelta(hours=1)}, checkpoint={"interval": "30s"})
    )

    spec: Any = write.manifest
    assert spec["spec"] == {
        "source": {
            "union": [
                {"files": {"format": "csv", "paths": ["a.csv"], "types": {"n": "int64"}}},
                {"iceberg": {"catalog": "local", "table": "n.t", "branch": "b"}},
            ],
            "columns": ["n", "text"],
            "where": "n > 3",
        },
        "stages": [
            {
                "name": "parse",
                "steps": [
                    {
                        "call": "m:parse",
                        "input": "row",
                        "concurrency": 16,
                        "timeout": "60s",
                        "retry": {"attempts": 7},
                        "rateLimit": {"calls": 10, "per": "1s"},
                    },
                    {"call": "m:embed", "input": "pandas", "batchSize": 64},
                ],
            },
            {
                "name": "count",
                "kind": "Aggregate",
                "keyBy": ["n"],
                "buckets": 8,
                "steps": [{"call": "m:count", "input": "arrow"}],
            },
            {"name": "last", "steps": [{"call": "m:last", "input": "row", "output": {"n": "int64"}}]},
        ],
        "sink": {
            "iceberg": {"catalog": "local", "table": "n.out"},
            "mode": "Upsert",
            "upsertKeys": ["n"],
            "whenMatched": "Ignore",
            "create": True,
            "partitionBy": [{"column": "n"}, {"column": "at", "transform": "day"}],
        },
        "checkpoint": {"uri": "checkpoints", "interval": "30s"},
        "onRowError": "Quarantine",
        "trigger": {"every": "3600s"},
    }


def test_steps_before_the_first_stage_are_a_stage_of_their_own() -> None:
    document: Any = cw.read_parquet("in").step("m:Parse_It").stage("b").step("m:f").write_lance("o.lance").manifest

    assert [stage["name"] for stage in document["spec"]["stages"]] == ["parse-it", "b"]


@pytest.mark.parametrize(
    ("mode", "more", "said"),
    [
        ("append", {}, "Append"),
        ("overwrite", {}, "OverwriteAll"),
        ("overwrite", {"where": "a = 1"}, "OverwriteWhere"),
        ("overwrite_partitions", {}, "OverwritePartitions"),
        ("upsert", {"keys": ["a"]}, "Upsert"),
    ],
)
def test_modes_have_the_names_of_python(mode: Any, more: Any, said: str) -> None:
    assert manifest_of(ROWS.write_iceberg("local.n.t", mode=mode, **more)).spec.sink.mode == said


@pytest.mark.parametrize("said", ["sampled_footers", "SampledFooters", "SAMPLED_FOOTERS", "sampledFooters"])
def test_choices_are_said_in_any_case(said: Any) -> None:
    assert manifest_of(ROWS.write_lance("v.lance", verify=said)).spec.sink.verify == "SampledFooters"


def test_columns_are_added_to_the_source_which_is_not_made() -> None:
    rows = cw.read_lance("d.lance").step("m:f")
    spec = manifest_of(rows.write_lance("d.lance", mode="add_columns", columns="v", only="all", vectors={"v": 8})).spec

    assert (spec.sink.mode, spec.sink.columns, spec.sink.only, spec.sink.create) == ("AddColumns", ("v",), "All", False)


def test_what_is_read_is_said_before_the_first_step() -> None:
    with pytest.raises(ValueError, match="select says what is read of the source; call it before the first step"):
        ROWS.select("a")
    with pytest.raises(ValueError, match="where says what is read"):
        cw.read_parquet("in").stage("s").where("a = 1")


@pytest.mark.parametrize("one", [ROWS, cw.read_parquet("in").select("a"), cw.read_kafka("b:1", "t")])
def test_a_union_takes_sources_as_they_are_read(one: cw.Rows) -> None:
    with pytest.raises(ValueError, match="union takes files, Iceberg tables and Lance datasets"):
        cw.union(cw.read_parquet("in"), one)


def test_a_file_and_its_objects_are_one_write(folder: Path) -> None:
    (folder / "write.yaml").write_text(ROWS.write_lance("v.lance").to_yaml())
    write = Write.of("write.yaml")

    assert manifest_of(write) == manifest_of(ROWS.write_lance("v.lance"))
    assert manifest_of(write.options(run_nonce="2")).spec.run_nonce == "2"
    assert write.status()["phase"] == "Pending"


def test_what_is_wrong_is_told_with_the_field_and_by_validate_as_data(folder: Path) -> None:
    write = ROWS.write_lance("v.lance").options(backoff_limit=-1)

    with pytest.raises(WriteFailed, match=r"spec\.backoffLimit: it must be 0 or more") as failed:
        write.status()
    assert failed.value.reason == "ManifestInvalid"
    report = write.validate()
    assert not report["valid"]
    assert "spec.backoffLimit" in str(report["problems"])


def test_a_value_that_is_no_choice_is_told_by_the_manifests_rules() -> None:
    with pytest.raises(WriteFailed, match=r"spec\.onRowError"):
        ROWS.write_lance("v.lance").options(on_row_error="ignore").to_yaml()  # type: ignore[arg-type]


def test_a_function_of_a_notebook_becomes_a_module_in_the_working_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def embed(row: dict[str, Any]) -> dict[str, Any]:
        return row

    monkeypatch.setattr(embed, "__module__", "of a cell")
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    write = cw.read_parquet("in").step(embed).write_lance("v.lance", name="own-name")

    assert manifest_of(write).spec.steps[0].call == "own_name_steps:embed"
    assert manifest_of(write).spec.code.path == str(folder)
    assert "def embed(row: dict[str, Any])" in (folder / "own_name_steps.py").read_text()


def test_a_lambda_is_refused_with_its_place() -> None:
    with pytest.raises(WriteFailed, match=r"spec\.steps\.0\.call: it is a lambda"):
        cw.read_parquet("in").step(lambda row: row).write_lance("v.lance").to_yaml()


def test_functions_of_two_folders_are_refused() -> None:
    with pytest.raises(WriteFailed, match=r"spec\.code: the functions lie in .* and .*; put them into one folder"):
        cw.read_parquet("in").step(row_keys_of).step(python_page).write_lance("v.lance").to_yaml()


def test_previews_and_results_draw_themselves_and_cut_and_escape_what_is_of_others() -> None:
    import pyarrow as pa

    rows = pa.table({"<b>": ["<script>", "x" * 500]})
    drawn = cw.Preview(rows, 3, (cw.PreviewFailure("row 2", "s", "E", "<i>"),))._repr_html_()

    assert "&lt;script&gt;" in drawn
    assert "<script>" not in drawn
    assert "x" * 120 + "…" in drawn
    assert "<th>&lt;b&gt;: string</th>" in drawn
    assert "&lt;i&gt;" in drawn
    result = cw.Result("t", 7, 1_000, 999, 1, 1, 1, "k/1", 2.25, was_committed=False)
    assert "<tr><td>rows read</td><td>1,000</td></tr>" in result._repr_html_()


def test_a_report_is_written_where_it_is_asked_for_or_under_the_name_of_the_write(folder: Path) -> None:
    stored = StoredWrite(folder / "store")
    write = Write.of(stored.file)
    with pytest.raises(WriteFailed) as unknown:
        ROWS.write_lance("v.lance").report()
    stored.begin()

    assert unknown.value.reason == "WriteUnknown"
    assert write.report() == Path(f"{stored.manifest.metadata.name}-report.html")
    assert write.report("own.html").read_text() == write.report().read_text()

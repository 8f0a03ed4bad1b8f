"""`validate` on source tables, and on `where`: what it foresees, and what it says before a run would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_commit.catalogs.named import open_catalog
from checkpoint_control.validation.report import Findings
from checkpoint_control.validation.source import SourceSeen, check_source
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.places.settings import Settings, SqlCatalogSettings

ROWS = pa.table({"id": [1, 2, 3], "text": ["a", "b", "c"]})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A catalog with the table db.source, of two files."""
    sql = SqlCatalogSettings(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    made = Settings(catalogs={"test": sql})
    catalog = open_catalog("test", made)
    catalog.create_namespace("db")
    for _ in range(2):
        catalog.create_table_if_not_exists("db.source", ROWS.schema).append(ROWS)
    return made


def checked(settings: Settings, **source: Any) -> tuple[SourceSeen | None, list[str]]:
    findings = Findings()
    spec = Spec.model_validate_json(json.dumps({"source": source, "sink": {"none": {}}, "checkpoint": {"uri": "/tmp/c"}}))
    seen = check_source(spec, settings, findings)
    return seen, [f"{problem.path}: {problem.message}" for problem in findings.problems]


def iceberg(settings: Settings, **source: Any) -> tuple[SourceSeen | None, list[str]]:
    table = {"catalog": "test", "table": "db.source", **source.pop("iceberg", {})}
    return checked(settings, iceberg=table, **source)


def test_the_files_rows_and_columns_of_a_table_are_foreseen(settings: Settings, tmp_path: Path) -> None:
    lance.write_dataset(ROWS, tmp_path / "a.lance")

    table, problems = iceberg(settings, columns=["id"])
    dataset, others = checked(settings, lance={"uri": str(tmp_path / "a.lance")})

    assert problems == others == []
    assert table is not None
    assert dataset is not None
    assert (len(table.files), table.rows, table.columns) == (2, 6, ("id",))
    assert (len(dataset.files), dataset.rows, dataset.columns) == (1, 3, ("id", "text"))
    assert table.size_bytes > 0
    assert dataset.size_bytes > 0


def test_a_table_that_is_not_there_is_a_problem(settings: Settings, tmp_path: Path) -> None:
    assert "has no table db.other" in iceberg(settings, iceberg={"table": "db.other"})[1][0]
    assert "has no snapshot 5" in iceberg(settings, iceberg={"snapshotId": 5})[1][0]
    assert "has no branch or tag 'audit'" in iceberg(settings, iceberg={"branch": "audit"})[1][0]
    assert "there is no catalog 'x'" in iceberg(settings, iceberg={"catalog": "x"})[1][0]
    assert "there is no Lance dataset" in checked(settings, lance={"uri": str(tmp_path / "b.lance")})[1][0]

    # Each corrected as it says.
    table = open_catalog("test", settings).load_table("db.source")
    (snapshot,) = [each.snapshot_id for each in table.snapshots()][-1:]
    with table.manage_snapshots() as refs:
        refs.create_branch(snapshot, "audit")
    lance.write_dataset(ROWS, tmp_path / "b.lance")
    for corrected in ({}, {"snapshotId": snapshot}, {"branch": "audit"}):
        assert iceberg(settings, iceberg=corrected)[1] == []
    assert checked(settings, lance={"uri": str(tmp_path / "b.lance")})[1] == []


def test_a_snapshot_that_a_run_could_not_list_is_a_problem_in_its_words(settings: Settings, tmp_path: Path) -> None:
    for lists in tmp_path.rglob("snap-*.avro"):
        lists.unlink()

    seen, (problem,) = iceberg(settings)

    assert seen is None
    assert problem.startswith("spec.source.iceberg: a metadata file of snapshot ")


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("id > ", "spec.source.where: at the end (character 6): a literal is expected"),
        ("nr > 1", "spec.source.where: there is no column 'nr' (there are id, text); correct it"),
        ("id > 1.5", "spec.source.where: the column 'id' is int64, with which 1.5 cannot be compared; write a number"),
    ],
)
def test_a_wrong_condition_is_told_for_every_format(where: str, problem: str, settings: Settings, tmp_path: Path) -> None:
    lance.write_dataset(ROWS, tmp_path / "a.lance")
    pq.write_table(ROWS, tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("id,text\n1,a\n")
    answers = [
        iceberg(settings, where=where)[1],
        checked(settings, lance={"uri": str(tmp_path / "a.lance")}, where=where)[1],
        checked(settings, files={"format": "parquet", "paths": [str(tmp_path / "a.parquet")]}, where=where)[1],
        checked(settings, files={"format": "csv", "paths": [str(tmp_path / "a.csv")]}, where=where)[1],
    ]

    for problems in answers:
        assert len(problems) == 1
        assert problems[0].startswith(problem)


def test_a_condition_is_judged_by_the_types_that_a_run_reads(settings: Settings, tmp_path: Path) -> None:
    """A dictionary is an encoding, and old times of Parquet (INT96) are read as microseconds, whose years go on beyond 2262."""
    text = pa.table({"kind": pa.array(["a", "b"]).dictionary_encode()})
    lance.write_dataset(text, tmp_path / "a.lance")
    pq.write_table(text, tmp_path / "a.parquet")
    pq.write_table(
        pa.table({"at": pa.array([0], pa.timestamp("us"))}), tmp_path / "b.parquet", use_deprecated_int96_timestamps=True
    )

    answers = [
        checked(settings, lance={"uri": str(tmp_path / "a.lance")}, where="kind in ('a')")[1],
        checked(settings, files={"format": "parquet", "paths": [str(tmp_path / "a.parquet")]}, where="kind in ('a')")[1],
        checked(
            settings,
            files={"format": "parquet", "paths": [str(tmp_path / "b.parquet")]},
            where="at < '2500-01-01T00:00:00'",
        )[1],
    ]

    assert answers == [[], [], []]


def test_a_condition_makes_the_rows_unsure(settings: Settings) -> None:
    seen, problems = iceberg(settings, where="id > 1 and text like 'b%'")

    assert problems == []
    assert seen is not None
    assert seen.rows is None

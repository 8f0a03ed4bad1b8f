"""Columns of Arrow's extension types from a source into a table that is made for them."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import UUIDType

from checkpoint_control.decision.actions import Finish
from tests.support.places import IcebergPlace, Place
from tests.support.writes import drive, manifest_for, reconciler_for

UUIDS = [uuid.UUID(int=number) for number in (1, 2)]
TABLE = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "u": pa.array([each.bytes for each in UUIDS], pa.uuid()),
        "j": pa.array(['{"a": 1}', None], pa.json_()),
    }
)
#: A step that gives what it gets, by its input.
PASS = {
    "no step": None,
    "row": "def work(row): return row",
    "arrow": "def work(rows): return rows",
    "pandas": "def work(rows): return rows",
}


def source_of(folder: Path, kind: str) -> dict[str, Any]:
    if kind == "lance":
        lance.write_dataset(TABLE, str(folder / "in.lance"), mode="overwrite")
        return {"lance": {"uri": str(folder / "in.lance")}}
    pq.write_table(TABLE, folder / "in.parquet")
    return {"files": {"format": "parquet", "paths": [str(folder / "in.parquet")]}}


def finish(place: Place, source: dict[str, Any], **spec: Any) -> None:
    manifest = manifest_for(place, source, sink={**place.sink(), "create": True, **spec.pop("sink", {})}, **spec)
    ended = drive(reconciler_for(manifest, place))
    assert isinstance(ended.outcome, Finish), ended.outcome


@pytest.mark.parametrize("kind", ["parquet", "lance"])
@pytest.mark.parametrize("step", PASS)
def test_uuids_of_the_source_are_uuids_in_the_new_table(
    disk_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, step: str
) -> None:
    steps = []
    if (code := PASS[step]) is not None:
        (tmp_path / "passing.py").write_text(code, encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "passing", raising=False)
        steps = [{"call": "passing:work", "input": step}]

    finish(disk_place, source_of(tmp_path, kind), steps=steps)

    assert [(row["id"], row["u"]) for row in disk_place.rows()] == list(enumerate(UUIDS, 1))


def test_uuids_of_an_iceberg_table_are_uuids_in_the_new_table(iceberg_place: IcebergPlace, tmp_path: Path) -> None:
    finish(iceberg_place, source_of(tmp_path, "parquet"), name="first")
    of_table = iceberg_place.sink()["iceberg"]
    other = {"iceberg": {**of_table, "table": "db.other"}}

    finish(iceberg_place, {"iceberg": of_table}, sink=other, name="second")

    assert isinstance(iceberg_place.opened().load_table("db.other").schema().find_type("u"), UUIDType)


def test_rows_are_upserted_by_uuids(disk_place: Place, tmp_path: Path) -> None:
    by_uuid = {"mode": "Upsert", "upsertKeys": ["u"]}
    for name in ("first", "second"):
        finish(disk_place, source_of(tmp_path, "parquet"), sink=by_uuid, name=name)

    assert sorted(row["u"] for row in disk_place.rows()) == UUIDS

"""Previews: the steps on the first rows of a source, in a process of their own; nothing stays of them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from checkpoint_control.code.archive import CodeArchive
from checkpoint_local.cli.commands.preview import preview_command
from checkpoint_local.preview import Previewed, preview
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from tests.support.archives import zip_of
from tests.support.places import on_disk
from tests.support.slow import slow_except
from tests.support.source_places import source_beside
from tests.support.writes import SCHEMA, manifest_for, rows_of, write_inputs

STEPS = """
import asyncio, datetime, os, typing
from checkpointed_writes import RowError

def note(row):
    with open(LOG, "a") as log:
        log.write(f"{row['id']}\\n")

def plain(row):
    note(row)
    return row

async def waits(row):
    note(row)
    await asyncio.sleep(0.001)
    return row

def fails(row):
    if row["id"] % 5 == 3:
        raise RowError(f"{row['id']} is no good")
    return row

def dates(row):
    return {"id": row["id"], "day": datetime.date(2026, 11, 24), "bytes": b"\\x00\\xff", "list": [0.5, None], "none": None}

class Found(typing.NamedTuple):
    id: int
    at: datetime.datetime

def annotated(row) -> Found | None:
    return None if row["id"] < 5 else Found(row["id"], datetime.datetime(2026, 11, 24))

def batch(rows):
    return rows.slice(0, rows.num_rows // 2)

def ends(row):
    os._exit(7)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with code, input, and a temporary folder that is to be empty at the end."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "previewed.py").write_text(f"LOG = {str(tmp_path / 'log')!r}\n{STEPS}")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    write_inputs(tmp_path / "in", files=2, rows=50)
    return tmp_path


def previewed(folder: Path, call: str, rows: int = 20, step: dict[str, Any] | None = None, **spec: Any) -> Previewed:
    place = on_disk(folder, "lance")
    steps = [{"call": f"previewed:{call}", "input": "row", **(step or {})}]
    spec = {"code": {"path": str(folder / "code")}, **spec}
    source = spec.pop("source", folder / "in")
    found = preview(manifest_for(place, source, steps=steps, **spec), place.settings, rows)
    assert not place.exists()
    assert not Path(place.checkpoint_uri).exists()
    assert list((folder / "tmp").iterdir()) == [], "what a preview needs meanwhile is gone with it"
    return found


@pytest.mark.parametrize("step", [{}, {"concurrency": 16}], ids=["one by one", "at once"])
@pytest.mark.parametrize("call", slow_except(["plain", "waits"], "waits"))
def test_the_steps_are_called_for_the_first_rows_and_for_no_others(folder: Path, call: str, step: dict[str, Any]) -> None:
    found = previewed(folder, call, rows=7, step=step)

    assert found.rows.schema.names == SCHEMA.names
    assert found.rows.to_pylist() == rows_of(range(7)).to_pylist()
    assert sorted(map(int, (folder / "log").read_text().split())) == list(range(7))
    assert (found.rows_read, found.failed) == (7, ())


def test_more_rows_than_there_are_is_all_rows(folder: Path) -> None:
    assert previewed(folder, "plain", rows=1000).rows_read == 100


def test_a_batch_step_gets_as_many_rows_as_are_asked_for(folder: Path) -> None:
    found = previewed(folder, "batch", rows=10, step={"input": "arrow"})

    assert (found.rows_read, found.rows.num_rows) == (10, 5)


@pytest.mark.parametrize(("rows", "ids"), [(5, []), (6, [5])])
def test_the_columns_of_an_annotation_are_known_also_without_rows(folder: Path, rows: int, ids: list[int]) -> None:
    found = previewed(folder, "annotated", rows=rows).rows

    assert found.schema == pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))])
    assert found["id"].to_pylist() == ids


def test_rows_are_looked_for_that_where_takes(folder: Path) -> None:
    source = {"files": {"format": "parquet", "paths": [str(folder / "in")]}, "where": "id > 42"}

    assert previewed(folder, "plain", rows=3, source=source).rows["id"].to_pylist() == [43, 44, 45]


def test_rows_that_fail_are_named_and_the_others_are_shown(folder: Path) -> None:
    found = previewed(folder, "fails", rows=10)

    assert found.rows["id"].to_pylist() == [0, 1, 2, 4, 5, 6, 7, 9]
    assert [(one.step, one.error, one.message) for one in found.failed] == [
        ("previewed:fails", "checkpointed_writes.RowError", "3 is no good"),
        ("previewed:fails", "checkpointed_writes.RowError", "8 is no good"),
    ]
    assert found.failed[0].row.startswith("row 3 of ")


def test_whole_files_are_read_too_and_a_content_is_shown_by_its_beginning(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "images").mkdir()
    for number in range(4):
        (folder / "images" / f"{number}.png").write_bytes(bytes([number]) * (1 << 20))
    source = {"files": {"format": "binary", "paths": [str(folder / "images")]}, "columns": ["size", "content"]}
    place, file = on_disk(folder, "lance"), folder / "write.yaml"
    file.write_text(yaml.safe_dump(manifest_for(place, source).model_dump(mode="json", by_alias=True)))

    assert preview_command(file, None, "table", 3) == 0
    shown = capsys.readouterr()

    assert [line.split()[0] for line in shown.out.splitlines()] == ["size", "int64", *["1048576"] * 3]
    assert "020202" in shown.out
    assert max(map(len, shown.out.splitlines())) < 200


@pytest.mark.parametrize("kind", slow_except(["iceberg", "lance"], "lance"))
def test_tables_are_read_too(folder: Path, kind: str) -> None:
    place = on_disk(folder / "tables", kind)
    source = source_beside(place, kind)
    source.append(rows_of(range(40)))
    manifest = manifest_for(
        place, source.section(), steps=[{"call": "previewed:plain", "input": "row"}], code={"path": str(folder / "code")}
    )

    assert preview(manifest, place.settings, 5).rows["id"].to_pylist() == [0, 1, 2, 3, 4]


def test_code_of_an_archive_is_run(folder: Path) -> None:
    archive: CodeArchive | Path = folder / "code.zip"
    assert isinstance(archive, Path)
    archive.write_bytes(zip_of({"previewed.py": (folder / "code" / "previewed.py").read_text()}))

    assert previewed(folder, "plain", rows=2, code={"uri": str(archive)}).rows.num_rows == 2


@pytest.mark.parametrize(
    ("call", "reason", "word"),
    [("nothing", reasons.CODE_MISSING, "has no callable 'nothing'"), ("ends", reasons.CODE_FAILED, "ended with exit code 7")],
)
def test_steps_that_cannot_be_run_are_told_as_a_run_tells_them(folder: Path, call: str, reason: str, word: str) -> None:
    with pytest.raises(NeedsChange) as caught:
        previewed(folder, call)

    assert caught.value.reason == reason
    assert word in caught.value.message


def test_the_command_shows_every_type_as_data_and_as_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = on_disk(folder, "lance")
    manifest = manifest_for(
        place, folder / "in", steps=[{"call": "previewed:dates", "input": "row"}], code={"path": str(folder / "code")}
    )
    file = folder / "write.yaml"
    file.write_text(yaml.safe_dump(manifest.model_dump(mode="json", by_alias=True)))

    assert preview_command(file, None, "json", 1) == 0
    answer = json.loads(capsys.readouterr().out)
    assert preview_command(file, None, "table", 2) == 0
    shown = capsys.readouterr()

    assert answer["rows"] == [{"id": 0, "day": "2026-11-24", "bytes": "00ff", "list": [0.5, None], "none": None}]
    assert answer["columns"][1] == {"name": "day", "type": "date32[day]"}
    assert answer["rowsRead"] == 1
    assert [line.split()[:2] for line in shown.out.splitlines()] == [
        ["id", "day"],
        ["int64", "date32[day]"],
        ["0", "2026-11-24"],
        ["1", "2026-11-24"],
    ]
    assert "2 rows read, 2 rows given; nothing was written" in shown.err


def test_the_command_ends_with_2_where_the_manifest_is_wrong_and_with_1_where_rows_fail(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, file = on_disk(folder, "lance"), folder / "write.yaml"
    manifest = manifest_for(
        place, folder / "in", steps=[{"call": "previewed:fails", "input": "row"}], code={"path": str(folder / "code")}
    )
    document = manifest.model_dump(mode="json", by_alias=True)
    file.write_text(yaml.safe_dump(document))
    assert preview_command(file, None, "table", 5) == 1
    assert "3 is no good" in capsys.readouterr().err

    document["spec"]["stepz"] = []
    file.write_text(yaml.safe_dump(document))
    assert preview_command(file, None, "table", 5) == 2
    assert "stepz" in capsys.readouterr().err

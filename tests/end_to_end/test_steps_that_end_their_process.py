"""Rows on which a step ends the Python process of its task, with Spark: they are found alone, and named or set apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkpoint_control.views.inspection import inspect_store
from checkpoint_protocol.store.object_store import open_store
from tests.end_to_end.keyed_writes import write_orc
from tests.support.command_line import CommandLine
from tests.support.places import Place
from tests.support.writes import SCHEMA, manifest_for, rows_of, write_inputs

pytestmark = pytest.mark.spark

ENDS = {"exit": "os._exit(3)", "fault": "ctypes.string_at(0)", "memory": "bytearray(1 << 45)", "polite": "sys.exit(3)"}


def write_of(place: Place, folder: Path, source: Path | dict[str, Any], ends: dict[int, str], **spec: Any) -> CommandLine:
    """Return a write whose step ends its process at these rows so. The table is there: no row is sampled by a driver."""
    code = folder / "code"
    code.mkdir()
    body = "".join(f"    if row['id'] == {row}: {ENDS[end]}\n" for row, end in ends.items())
    (code / "ending.py").write_text(f"import ctypes, os, sys\ndef work(row):\n{body}    return row\n")
    place.create(SCHEMA)
    steps = [{"call": "ending:work", "input": "row", "name": "predict"}]
    manifest = manifest_for(place, source, steps=steps, code={"path": str(code)}, backoffLimit=0, **spec)
    return CommandLine(folder / "cli", place, manifest)


def by_key(folder: Path, rows: int) -> dict[str, Any]:
    path = write_orc(rows_of(range(rows)), folder / "in", 1)
    return {"spark": {"format": "orc", "paths": [str(path)], "keyColumns": ["id"]}}


@pytest.mark.slow
@pytest.mark.parametrize(("end", "how"), [("exit", "os._exit"), ("fault", "Segmentation fault")])
def test_a_row_that_ends_the_process_of_its_task_is_named_in_the_same_attempt(
    lance_place: Place, tmp_path: Path, end: str, how: str
) -> None:
    source = write_inputs(tmp_path / "in", files=1, rows=20)

    code, output = write_of(lance_place, tmp_path, source, {5: end}).run()

    assert code == 1, output
    assert "CodeFailed: step 'predict' ends its process on row 5 of " in output
    assert "part-0.parquet" in output
    assert how in output
    assert "attempt 2" not in output


@pytest.mark.slow
def test_a_row_of_the_dataframe_way_that_ends_the_process_is_named_by_its_key(lance_place: Place, tmp_path: Path) -> None:
    code, output = write_of(lance_place, tmp_path, by_key(tmp_path, 20), {5: "exit"}).run()

    assert code == 1, output
    assert "CodeFailed: step 'predict' ends its process on the row with id=5" in output, output
    assert "attempt 2" not in output


@pytest.mark.parametrize("way", [pytest.param("splits", marks=pytest.mark.slow), "keys"])
def test_rows_that_end_the_process_are_quarantined_with_how_and_all_others_are_committed(
    lance_place: Place, tmp_path: Path, way: str
) -> None:
    ends = {5: "exit", 33: "fault", 34: "memory", 59: "polite"}
    source = write_inputs(tmp_path / "in", files=2, rows=30) if way == "splits" else by_key(tmp_path, 60)
    run = write_of(lance_place, tmp_path, source, ends, onRowError="Quarantine", quarantine={"maxRows": 4, "maxShare": "100%"})

    code, output = run.run()

    assert code == 0, output
    assert "attempt 2" not in output
    assert sorted(row["id"] for row in lance_place.rows()) == [row for row in range(60) if row not in ends]
    shown = inspect_store(open_store(lance_place.checkpoint_uri, lance_place.settings))
    (epoch,) = shown.writes[0].epochs
    assert sorted(row.error for attempt in epoch.attempts for row in attempt.quarantined) == [
        "MemoryError",
        "SIGSEGV",
        "SystemExit",
        "os._exit",
    ]


@pytest.mark.slow
def test_sys_exit_is_the_codes_failure_at_once_with_its_row(lance_place: Place, tmp_path: Path) -> None:
    source = write_inputs(tmp_path / "in", files=1, rows=20)

    code, output = write_of(lance_place, tmp_path, source, {5: "polite"}).run()

    assert code == 1, output
    assert "CodeFailed: step 'predict' raised on row 5 of" in output
    assert "attempt 2" not in output

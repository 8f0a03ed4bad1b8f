"""Steps that end the Python process of their task, with Spark: the failure names step, file and rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.end_to_end.keyed_writes import write_orc
from tests.support.command_line import CommandLine
from tests.support.places import Place
from tests.support.writes import SCHEMA, manifest_for, rows_of, write_inputs

pytestmark = pytest.mark.spark

ENDS = {"exit": "os._exit(3)", "fault": "ctypes.string_at(0)", "polite": "sys.exit(3)"}


def ended(place: Place, folder: Path, end: str, source: Path | dict[str, Any]) -> tuple[int, str]:
    """Run a write whose step ends its process at the row 5 so. Nothing is sealed before: so there is one attempt."""
    code = folder / "code"
    code.mkdir()
    (code / "ending.py").write_text(
        f"import ctypes, os, sys\ndef work(row):\n    if row['id'] == 5: {ENDS[end]}\n    return row\n"
    )
    place.create(SCHEMA)
    manifest = manifest_for(
        place,
        source,
        steps=[{"call": "ending:work", "input": "row", "name": "predict"}],
        code={"path": str(code)},
        backoffLimit=0,
    )
    return CommandLine(folder / "cli", place, manifest).run()


@pytest.mark.parametrize(("end", "how"), [("exit", "os._exit"), ("fault", "Segmentation fault")])
def test_a_task_whose_process_is_gone_names_the_step_and_the_rows_that_had_begun(
    lance_place: Place, tmp_path: Path, end: str, how: str
) -> None:
    code, output = ended(lance_place, tmp_path, end, write_inputs(tmp_path / "in", files=1, rows=20))

    assert code == 1, output
    for part in ("step 'predict' on rows ", "part-0.parquet", how):
        assert part in output, output


def test_a_task_of_the_dataframe_way_names_the_step_and_the_rows_that_had_begun(lance_place: Place, tmp_path: Path) -> None:
    table: pa.Table = rows_of(range(20))
    folder = write_orc(table, tmp_path / "in", 1)

    code, output = ended(
        lance_place, tmp_path, "exit", {"spark": {"format": "orc", "paths": [str(folder)], "keyColumns": ["id"]}}
    )

    assert code == 1, output
    assert "step 'predict' on rows " in output, output
    assert "of partition 0 of the source" in output, output


def test_sys_exit_is_the_codes_failure_at_once_with_its_row(lance_place: Place, tmp_path: Path) -> None:
    code, output = ended(lance_place, tmp_path, "polite", write_inputs(tmp_path / "in", files=1, rows=20))

    assert code == 1, output
    assert "CodeFailed: step 'predict' raised on row 5 of" in output
    assert "attempt 2" not in output

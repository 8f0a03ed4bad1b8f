"""`init` in a folder with data: what it writes is run as it is, and the rows are in the table. tests/unit has the other kinds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pytest

from tests.end_to_end.test_your_own_files import run
from tests.unit.cli.test_cli_init import images, parquet

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("put", "rows"), [(parquet, 2), (images, 1)])
def test_what_init_writes_is_run_as_it_is(put: Callable[[Path], None], rows: int, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    put(tmp_path / "data")

    for command in ("init", "validate write.yaml", "run write.yaml"):
        done = run(["checkpointed-write", *command.split()], tmp_path)
        assert done.returncode == 0, done.stdout
        assert command != "init" or "then: checkpointed-write preview write.yaml" in done.stdout

    steps = tmp_path / "steps.py"
    steps.write_text(steps.read_text().replace("return row", 'return {"made": 7}'))
    assert "made" in run(["checkpointed-write", "preview", "write.yaml"], tmp_path).stdout
    assert lance.dataset(str(tmp_path / "data.lance")).count_rows() == rows

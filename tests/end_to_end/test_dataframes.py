"""The DataFrame way with the real thing: the installed command, Spark, its own readers; rows known by keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.orc
import pytest

from checkpoint_protocol.records import KeysCovered
from checkpoint_protocol.rows.keys import add_key_sets
from tests.end_to_end.conftest import make_place
from tests.support.checks import assert_exactly_once
from tests.support.command_line import CommandLine, driver_of, kill, wait_for_end
from tests.support.places import Place
from tests.support.waiting import until
from tests.support.writes import SCHEMA, manifest_for, rows_of

pytestmark = pytest.mark.spark
ROWS = 400

GATED = """
import os, time
seen = 0
def work(row):
    # Each task process does some rows, and the rest when the gate is open: what is killed then is surely in the middle.
    global seen
    seen += 1
    time.sleep(0.01)
    while seen > 60 and not os.path.exists({gate!r}):
        time.sleep(0.02)
    with open({log!r}, "a") as log:
        log.write(f"{{row['id']}}\\n")
    return row
"""


def write_orc(folder: Path, files: int = 4, rows: int = 100) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        pyarrow.orc.write_table(rows_of(range(number * rows, (number + 1) * rows)), folder / f"part-{number}.orc")
    return folder


def gated_write(place: Place, folder: Path, **source: Any) -> CommandLine:
    code = folder / "code"
    code.mkdir()
    (code / "gated.py").write_text(GATED.format(log=str(folder / "rows.log"), gate=str(folder / "gate")))
    place.create(SCHEMA)
    manifest = manifest_for(
        place,
        {"spark": {"format": "orc", "paths": [str(folder / "in")], "keyColumns": ["id"], **source}},
        steps=[{"call": "gated:work", "input": "row"}],
        code={"path": str(code)},
        checkpoint={"uri": place.checkpoint_uri, "interval": "0.05s", "minimumBytes": "1"},
    )
    return CommandLine(folder / "cli", place, manifest)


def computed(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "rows.log").read_text().split()]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["iceberg-sql-s3", "lance-s3"])
def test_a_driver_killed_while_tasks_run_is_followed_by_one_that_skips_what_is_sealed_by_key(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = make_place(name, tmp_path, request)
    write_orc(tmp_path / "in")
    command = gated_write(place, tmp_path)
    runner = command.start()
    until(lambda: command.seals(1) >= 2, "two seals")

    kill(driver_of(runner))
    (tmp_path / "gate").touch()
    code, output = wait_for_end(runner)

    assert code == 0, output
    assert_exactly_once(place, range(ROWS))
    assert len(place.keys()) == 1
    ledger = command.ledger()
    assert ledger is not None
    sealed = list(ledger.chains.counted_seals([1]))
    covered = [seal.covered for seal in sealed]
    assert all(isinstance(each, KeysCovered) for each in covered)
    rows = sum(seal.rows_read for seal in sealed)
    assert 0 < rows < ROWS
    plan = ledger.plans.read_plan(2)
    assert plan is not None
    assert plan.skipped == add_key_sets(each.keys for each in covered if isinstance(each, KeysCovered))
    assert sum(seal.rows_read for seal in ledger.chains.counted_seals([2])) == ROWS - rows
    assert len(computed(tmp_path)) <= ROWS + (ROWS - rows)

"""A write with a trigger: new files become epochs, one after the other, whoever dies meanwhile."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.epoch_index import of_the_source
from checkpoint_protocol.store.object_store import open_store
from checkpoint_protocol.writes import last_epoch, look_up_name
from tests.support.checks import assert_exactly_once
from tests.support.command_line import CommandLine
from tests.support.places import Place
from tests.support.slow import slow_except_on
from tests.support.waiting import until
from tests.support.writes import SCHEMA, manifest_for, rows_of, write_inputs


def put_file(folder: Path, name: str, numbers: range) -> None:
    """Write a file elsewhere and move it in, so that nobody sees a part of it."""
    beside = folder.with_name(f"{name}.part")
    pq.write_table(rows_of(numbers), beside)
    beside.rename(folder / name)


def ledger_of(place: Place, epoch: int) -> Ledger:
    store = open_store(place.checkpoint_uri, place.settings)
    uid = look_up_name(store, "default", "write")
    return Ledger(store, EpochKey(uid or "none", epoch))


def is_committed(place: Place, epoch: int) -> bool:
    return ledger_of(place, epoch).commits.read_commit() is not None


def with_trigger(place: Place, source: Path, **spec: Any) -> Any:
    return manifest_for(place, source, trigger={"every": "1s", "keepDriver": "10m"}, **spec)


def started_drivers(line: CommandLine) -> list[str]:
    """Return the drivers that were started, by the epoch and the attempt that they were started for: each has a log."""
    return sorted(log.stem.removeprefix("driver-") for log in line.folder.rglob("driver-*.log"))


def end_driver_that_waits(runner: int) -> None:
    """Kill the only driver of this runner, whose attempt has ended."""
    (driver,) = psutil.Process(runner).children()
    driver.kill()


@pytest.mark.spark
@slow_except_on("disk_place", "iceberg-sql-disk")
def test_a_run_that_watches_takes_new_files_epoch_by_epoch_and_goes_on_after_a_kill(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in", files=2)
    line = CommandLine(tmp_path / "cli", disk_place, with_trigger(disk_place, source))
    first = line.start("--watch")
    try:
        until(lambda: is_committed(disk_place, 1), "the first epoch is committed")
        put_file(source, "a-late-file-with-an-older-name.parquet", range(200, 300))
        until(lambda: ledger_of(disk_place, 2).attempts.read_launch(1) is not None, "the second epoch begins")
    finally:
        first.kill()
    put_file(source, "x.parquet", range(300, 310))

    second = line.start("--watch")
    try:
        until(lambda: is_committed(disk_place, 2), "the second epoch is committed")
        put_file(source, "y.parquet", range(310, 320))
        until(lambda: len(disk_place.rows()) == 320, "all rows are there")
        kept = started_drivers(line)
        time.sleep(2.5)  # some looks without news
        end_driver_that_waits(second.pid)
        put_file(source, "z.parquet", range(320, 330))
        until(lambda: len(disk_place.rows()) == 330, "the rows of the last file are there")
    finally:
        second.kill()

    assert_exactly_once(disk_place, range(330))
    store = open_store(disk_place.checkpoint_uri, disk_place.settings)
    last = last_epoch(store, ledger_of(disk_place, 1).key.uid)
    assert last in (4, 5), "without news no epoch begins"
    assert ledger_of(disk_place, last).attempts.list_attempts() == [1], "a driver that is lost while it waits is no failure"
    assert started_drivers(line) == sorted([*kept, f"{last}-1"])
    assert len(kept) < last - 1, "epochs that follow are done by the driver that waits"
    for epoch in range(2, last + 1):
        launch = ledger_of(disk_place, epoch).attempts.read_launch(1)
        assert launch is not None
        assert launch.began is not None
        assert launch.began.why == "Trigger"
        assert launch.began.files >= 1


@pytest.mark.spark
@slow_except_on("disk_place", "lance-disk")
def test_a_run_that_does_not_watch_takes_what_is_new_through_all_stages_and_ends(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in", files=3)
    modules = tmp_path / "code"
    modules.mkdir()
    (modules / "shaping.py").write_text("def same(row):\n    return row\n")
    step = {"call": "shaping:same", "input": "row", "output": {"id": "int64", "text": "string"}}
    manifest = manifest_for(
        disk_place,
        source,
        stages=[{"name": "first", "steps": [step]}, {"name": "second", "steps": [step]}],
        code={"path": str(modules)},
        trigger={"cron": "0 3 * * *", "atMost": {"files": 2}},
    )
    line = CommandLine(tmp_path / "cli", disk_place, manifest)

    code, said = line.run()
    assert code == 0, said

    assert "100 read by the stage second, 100 written" in said
    assert "attempts  1 of the stage second" in said
    assert_exactly_once(disk_place, range(300))
    assert is_committed(disk_place, 2)
    assert not is_committed(disk_place, 3)
    record = of_the_source(ledger_of(disk_place, 1)).inputs.read_input()
    assert record is not None
    assert (record.totals.files, record.totals.left) == (2, 1)
    assert "already committed" in line.run()[1]

"""kill -9 with the real thing: the installed command, Spark, its task processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from checkpoint_control.progress.epoch_progress import describe, measure
from checkpoint_control.progress.tallies import Tallies
from checkpoint_protocol.rows.positions import Range
from checkpoint_work.tasks.rows_by_position import ranges_of
from devtools.kafka_broker import KafkaBroker
from tests.end_to_end.conftest import make_place
from tests.support.checks import assert_exactly_once
from tests.support.command_line import CommandLine, driver_of, kill, wait_for_end
from tests.support.kafka import Topic
from tests.support.places import LancePlace, Place, on_disk
from tests.support.slow import slow_except_on
from tests.support.source_places import source_beside
from tests.support.vectors import make_dataset
from tests.support.waiting import patience, until
from tests.support.writes import SCHEMA, manifest_for, rows_of, write_inputs

pytestmark = pytest.mark.spark
ROWS = 400

GATED = """
import os, time
seen = 0
def parse(row):
    return {{"id": int(row["content"]), "text": "zeile " + row["content"].decode()}}
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


@dataclass
class Gated:
    """A write of 400 rows that seals often and stops in the middle until its gate is opened. `log` has the rows it computed."""

    command: CommandLine
    log: Path
    gate: Path

    def open_gate(self) -> None:
        self.gate.touch()

    def wait_for_seals(self) -> None:
        until(lambda: self.command.seals(1) >= 2, "two seals")


def gated_write(place: Place, folder: Path, source: dict[str, Any] | None = None, before: Sequence[str] = ()) -> Gated:
    log, gate = folder / "rows.log", folder / "gate"
    code = folder / "code"
    code.mkdir()
    (code / "gated.py").write_text(GATED.format(log=str(log), gate=str(gate)))
    place.create(SCHEMA)
    manifest = manifest_for(
        place,
        source or write_inputs(folder / "in"),
        steps=[{"call": f"gated:{call}", "input": "row"} for call in (*before, "work")],
        code={"path": str(code)},
        checkpoint={"uri": place.checkpoint_uri, "interval": "0.05s", "minimumBytes": "1"},
    )
    return Gated(CommandLine(folder / "cli", place, manifest), log, gate)


@pytest.mark.slow
def test_records_of_kafka_that_a_killed_driver_has_sealed_are_not_read_again(
    iceberg_place: Place, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = Topic(kafka_broker, partitions=2)
    topic.send(range(ROWS // 2), partition=0)
    topic.send(range(ROWS // 2, ROWS), partition=1)
    write = gated_write(iceberg_place, tmp_path, topic.section())
    command, log = write.command, write.log
    runner = command.start()
    write.wait_for_seals()

    kill(driver_of(runner))
    topic.send(range(ROWS, ROWS + 100))  # for the next epoch
    write.open_gate()
    code, output = wait_for_end(runner)

    assert code == 0, output
    assert_exactly_once(iceberg_place, range(ROWS))
    sealed = sealed_rows(command, 1)
    assert sealed > 0
    assert sealed_rows(command, 2) == ROWS - sealed
    assert len(computed(log)) <= ROWS + (ROWS - sealed)


def computed(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()]


def sealed_rows(command: CommandLine, attempt: int) -> int:
    ledger = command.ledger()
    assert ledger is not None
    return sum(seal.rows_read for seal in ledger.chains.counted_seals([attempt]))


@pytest.mark.slow
def test_columns_of_a_dataset_are_computed_once_though_the_driver_is_killed_in_the_middle(tmp_path: Path) -> None:
    place = on_disk(tmp_path / "place", "lance")
    assert isinstance(place, LancePlace)
    make_dataset(place, ROWS, per_fragment=100)
    log, gate, code = tmp_path / "rows.log", tmp_path / "gate", tmp_path / "code"
    code.mkdir()
    (code / "gated.py").write_text(
        GATED.format(log=str(log), gate=str(gate)) + "\ndef double(row):\n    return {'twice': 2 * work(row)['id']}\n"
    )
    manifest = manifest_for(
        place,
        {"lance": {"uri": place.uri}},
        steps=[{"call": "gated:double", "input": "row", "output": {"twice": "int64"}}],
        code={"path": str(code)},
        sink={"mode": "AddColumns", "columns": ["twice"]},
        checkpoint={"uri": place.checkpoint_uri, "interval": "0.05s", "minimumBytes": "1"},
    )
    write = Gated(CommandLine(tmp_path / "cli", place, manifest), log, gate)
    runner = write.command.start()
    write.wait_for_seals()

    kill(driver_of(runner))
    place.dataset().optimize.compact_files(target_rows_per_fragment=1_000)
    write.open_gate()
    code_of_exit, output = wait_for_end(runner)

    assert code_of_exit == 0, output
    assert {row["id"]: row["twice"] for row in place.rows()} == {number: 2 * number for number in range(ROWS)}
    assert len(place.keys()) == 1
    sealed = sealed_rows(write.command, 1)
    assert sealed > 0
    assert sealed_rows(write.command, 2) == ROWS - sealed
    assert len(computed(log)) <= ROWS + (ROWS - sealed)


@slow_except_on("disk_place", "iceberg-sql-disk")
def test_a_driver_killed_while_tasks_run_is_followed_by_one_that_computes_only_the_rest(
    disk_place: Place, tmp_path: Path
) -> None:
    write = gated_write(disk_place, tmp_path)
    command, log = write.command, write.log
    runner = command.start()
    write.wait_for_seals()

    kill(driver_of(runner))
    write.open_gate()
    code, output = wait_for_end(runner)

    assert code == 0, output
    assert_exactly_once(disk_place, range(ROWS))
    assert len(disk_place.keys()) == 1
    sealed = sealed_rows(command, 1)
    assert sealed > 0
    assert sealed_rows(command, 2) == ROWS - sealed
    # What was computed twice was in flight when the driver died: never a row that was sealed.
    assert len(computed(log)) <= ROWS + (ROWS - sealed)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "sink"), [("iceberg", "lance-disk"), ("lance", "iceberg-sql-disk")])
def test_a_killed_reader_of_a_table_is_followed_by_one_that_reads_the_rest_of_the_same_version(
    kind: str, sink: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = make_place(sink, tmp_path, request)
    source = source_beside(place, kind)
    for start in range(0, ROWS + 5, 81):
        source.append(rows_of(range(start, start + 81)))
    source.delete(f"id >= {ROWS}")
    write = gated_write(place, tmp_path, source.section(where="id != 7"))
    command = write.command
    runner = command.start()
    write.wait_for_seals()

    kill(driver_of(runner))
    source.append(rows_of(range(1000, 1050)))
    source.delete("id < 200")
    write.open_gate()
    code, output = wait_for_end(runner)

    assert code == 0, output
    assert_exactly_once(place, set(range(ROWS)) - {7})
    assert len(place.keys()) == 1
    sealed = sealed_rows(command, 1)
    assert sealed > 0
    assert sealed_rows(command, 2) == ROWS - 1 - sealed


@pytest.mark.slow
def test_a_killed_reader_of_whole_files_is_followed_by_one_that_opens_only_the_rest(lance_place: Place, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(ROWS):
        (tmp_path / "in" / f"{number:03}.txt").write_text(str(number))
    source = {"files": {"format": "binary", "paths": [str(tmp_path / "in")]}}
    write = gated_write(lance_place, tmp_path, source, before=["parse"])
    command = write.command
    runner = command.start()
    write.wait_for_seals()

    kill(driver_of(runner))
    (tmp_path / "in" / "later.txt").write_text("1000")
    write.open_gate()
    code, output = wait_for_end(runner)

    assert code == 0, output
    assert_exactly_once(lance_place, range(ROWS))
    assert len(lance_place.keys()) == 1
    sealed = sealed_rows(command, 1)
    assert sealed > 0
    assert sealed_rows(command, 2) == ROWS - sealed


@pytest.mark.slow
def test_a_runner_killed_after_some_seals_is_resumed_by_the_next_run(lance_place: Place, tmp_path: Path) -> None:
    write = gated_write(lance_place, tmp_path)
    command = write.command
    runner = command.start()
    write.wait_for_seals()
    driver = driver_of(runner)

    kill(runner)
    runner.wait(patience(30))
    until(lambda: not psutil.pid_exists(driver.pid), "the driver to end with its runner", 30)
    write.open_gate()
    code, output = command.run()

    assert code == 0, output
    assert "resuming:" in output
    assert "were sealed before and were not computed again" in output
    assert_exactly_once(lance_place, range(ROWS))
    assert len(lance_place.keys()) == 1


def test_an_interrupted_run_ends_with_130_says_how_to_resume_and_leaves_no_process(iceberg_place: Place, tmp_path: Path) -> None:
    write = gated_write(iceberg_place, tmp_path)
    command = write.command
    runner = command.start()
    write.wait_for_seals()
    below = psutil.Process(runner.pid).children(recursive=True)

    os.kill(runner.pid, signal.SIGINT)
    code, output = wait_for_end(runner)

    assert code == 130, output
    assert "resumes it" in output
    assert "Traceback" not in output
    until(lambda: not any(process.is_running() for process in below), "all processes to end", 30)


@pytest.mark.slow
def test_a_second_runner_attaches_and_takes_over_when_the_first_is_gone(lance_place: Place, tmp_path: Path) -> None:
    write = gated_write(lance_place, tmp_path)
    command = write.command
    first = command.start()
    write.wait_for_seals()
    second = command.start()
    until(lambda: "another run of this write is at work" in second.output(), "the second to attach")
    assert first.poll() is None

    kill(first)
    first.wait(patience(30))
    write.open_gate()
    code, output = wait_for_end(second)

    assert code == 0, output
    assert_exactly_once(lance_place, range(ROWS))
    assert len(lance_place.keys()) == 1


@pytest.mark.slow
def test_a_stopped_runner_is_named_and_passed_over_and_attaches_when_it_wakes(lance_place: Place, tmp_path: Path) -> None:
    """Ctrl-Z: it holds the lock, its driver goes on, and nobody would close or commit."""
    write = gated_write(lance_place, tmp_path)
    command = write.command
    first = command.start()
    try:
        write.wait_for_seals()
        os.kill(first.pid, signal.SIGSTOP)
        second = command.start()
        until(lambda: f"(process {first.pid} on " in second.output() and "is stopped" in second.output(), "its name", 30)
        until(
            lambda: (ledger := command.ledger()) is not None and ledger.attempts.list_attempts() == [1, 2], "the next attempt", 60
        )
        os.kill(first.pid, signal.SIGCONT)
        until(lambda: "another run of this write is at work" in first.output(), "the first to attach", 60)
        write.open_gate()
        codes = [wait_for_end(runner) for runner in (second, first)]
    finally:
        if first.poll() is None:
            first.kill()

    assert [code for code, _ in codes] == [0, 0], codes
    ledger = command.ledger()
    assert ledger is not None
    assert ledger.attempts.list_attempts() == [1, 2], "they closed each other's attempts"
    assert_exactly_once(lance_place, range(ROWS))
    assert len(lance_place.keys()) == 1


@pytest.mark.slow
def test_a_task_that_fails_on_its_first_try_after_a_seal_goes_on_after_it(iceberg_place: Place, tmp_path: Path) -> None:
    write = gated_write(iceberg_place, tmp_path)
    write.open_gate()
    command, marker = write.command, tmp_path / "failed"
    (tmp_path / "code" / "gated.py").write_text(
        GATED.format(log=str(write.log), gate=str(write.gate)).replace(
            "    return row",
            f"    if row['id'] == 190 and not os.path.exists({str(marker)!r}):\n"
            f"        open({str(marker)!r}, 'w').close()\n        raise RuntimeError('once')\n    return row",
        )
    )

    code, output = command.run()

    assert code == 0, output
    assert marker.exists()
    ledger = command.ledger()
    assert ledger is not None
    assert ledger.attempts.list_attempts() == [1], "Spark tries the task again within the attempt"
    assert_exactly_once(iceberg_place, range(ROWS))
    plan = ledger.plans.read_plan(1)
    assert plan is not None
    task = next(number for number, pieces in enumerate(plan.tasks) if _holds(pieces, 1, 90))
    chain = ledger.chains.read_chain(1, task)
    assert len(chain) > 1
    seen = computed(write.log)
    sealed_before = [n for n in range(100, 190) if seen.count(n) == 1 and any(_holds(ranges_of(s), 1, n - 100) for s in chain)]
    assert sealed_before, "nothing of the task was sealed before it failed, or all of it was done again"


def _holds(pieces: Sequence[Range], file: int, position: int) -> bool:
    return any(piece.file == file and piece.start <= position < (piece.end or 0) for piece in pieces)


@pytest.mark.slow
def test_what_the_driver_is_at_is_told_long_before_the_first_seal_and_nothing_of_it_is_left(
    disk_place: Place, tmp_path: Path
) -> None:
    """With an interval of an hour the first seal may take ten."""
    write = gated_write(disk_place, tmp_path)
    command = write.command
    manifest = command.manifest.model_dump(mode="json", by_alias=True)
    manifest["spec"]["checkpoint"]["interval"] = "1h"
    command.file.write_text(yaml.safe_dump(manifest))
    runner = command.start()
    try:
        until(lambda: "starting Spark" in phases_told(command), "the phase", 60)
        until(lambda: "tasks running: " in phases_told(command) and " not sealed yet" in phases_told(command), "rows", 90)
        assert command.seals(1) == 0
        said = command.say("status", str(command.file))
        until(lambda: "rows not sealed yet" in runner.output(), "a line of the run", 60)
    finally:
        write.open_gate()
        code, output = wait_for_end(runner)

    assert "tasks running: " in said
    assert f"of {ROWS} rows" in said
    assert code == 0, output
    assert_exactly_once(disk_place, range(ROWS))
    ledger = command.ledger()
    assert ledger is not None
    until(lambda: list(ledger.store.list(ledger.at.works(1))) == [], "the tasks to take theirs away", 30)


def phases_told(command: CommandLine) -> str:
    """What a look at the store says of the driver, as `status` and `run` do."""
    ledger = command.ledger()
    return describe(measure(Tallies(ledger))) if ledger is not None else ""

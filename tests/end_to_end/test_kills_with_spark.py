"""kill -9 with the real thing: the installed command, Spark, its task processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.support.checks import assert_exactly_once
from tests.support.command_line import CommandLine, driver_of, kill, wait_for_end, wait_until
from tests.support.places import Place
from tests.support.writes import SCHEMA, manifest_for, write_inputs

pytestmark = pytest.mark.spark
ROWS = 400

SLOW = """
import time
def work(row):
    time.sleep(0.02)
    with open({log!r}, "a") as log:
        log.write(f"{{row['id']}}\\n")
    return row
"""


def slow_write(place: Place, folder: Path) -> tuple[CommandLine, Path]:
    """A write of 400 rows that takes some seconds and seals often; returns it and the log of rows that the step saw."""
    log = folder / "rows.log"
    code = folder / "code"
    code.mkdir()
    (code / "slow.py").write_text(SLOW.format(log=str(log)))
    place.create(SCHEMA)
    manifest = manifest_for(
        place,
        write_inputs(folder / "in"),
        steps=[{"call": "slow:work", "input": "row"}],
        code={"path": str(code)},
        checkpoint={"uri": place.checkpoint_uri, "interval": "0.2s", "minimumBytes": "1"},
    )
    return CommandLine(folder / "cli", place, manifest), log


def computed(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()]


def sealed_rows(command: CommandLine, attempt: int) -> int:
    ledger = command.ledger()
    assert ledger is not None
    return sum(seal.rows_read for seal in ledger.counted_seals([attempt]))


def test_a_driver_killed_while_tasks_run_is_followed_by_one_that_computes_only_the_rest(
    disk_place: Place, tmp_path: Path
) -> None:
    command, log = slow_write(disk_place, tmp_path)
    runner = command.start()
    wait_until(lambda: command.seals(1) >= 3, "three seals")

    kill(driver_of(runner))
    code, output = wait_for_end(runner)

    assert code == 0, output
    assert_exactly_once(disk_place, range(ROWS))
    assert len(disk_place.keys()) == 1
    sealed = sealed_rows(command, 1)
    assert sealed > 0
    assert sealed_rows(command, 2) == ROWS - sealed
    # What was computed twice was in flight when the driver died: never a row that was sealed.
    assert len(computed(log)) <= ROWS + (ROWS - sealed)


def test_a_runner_killed_after_some_seals_is_resumed_by_the_next_run(lance_place: Place, tmp_path: Path) -> None:
    command, _ = slow_write(lance_place, tmp_path)
    runner = command.start()
    wait_until(lambda: command.seals(1) >= 3, "three seals")
    driver = driver_of(runner)

    kill(runner)
    runner.wait(30)
    wait_until(lambda: not psutil.pid_exists(driver.pid), "the driver to end with its runner", 30)
    code, output = command.run()

    assert code == 0, output
    assert "resuming:" in output
    assert "were sealed before and were not computed again" in output
    assert_exactly_once(lance_place, range(ROWS))
    assert len(lance_place.keys()) == 1


def test_an_interrupted_run_ends_with_130_says_how_to_resume_and_leaves_no_process(iceberg_place: Place, tmp_path: Path) -> None:
    command, _ = slow_write(iceberg_place, tmp_path)
    runner = command.start()
    wait_until(lambda: command.seals(1) >= 1, "a seal")
    below = psutil.Process(runner.pid).children(recursive=True)

    os.kill(runner.pid, signal.SIGINT)
    code, output = wait_for_end(runner)

    assert code == 130, output
    assert "resumes it" in output
    assert "Traceback" not in output
    wait_until(lambda: not any(process.is_running() for process in below), "all processes to end", 30)


def test_a_second_runner_attaches_and_takes_over_when_the_first_is_gone(lance_place: Place, tmp_path: Path) -> None:
    command, _ = slow_write(lance_place, tmp_path)
    first = command.start()
    wait_until(lambda: command.seals(1) >= 1, "a seal")
    second = command.start()
    wait_until(lambda: "another run of this write is at work" in second.output(), "the second to attach")
    assert first.poll() is None

    kill(first)
    first.wait(30)
    code, output = wait_for_end(second)

    assert code == 0, output
    assert_exactly_once(lance_place, range(ROWS))
    assert len(lance_place.keys()) == 1


def test_a_task_that_fails_on_its_first_try_after_a_seal_goes_on_after_it(iceberg_place: Place, tmp_path: Path) -> None:
    command, log = slow_write(iceberg_place, tmp_path)
    marker = tmp_path / "failed"
    code_file = tmp_path / "code" / "slow.py"
    code_file.write_text(
        SLOW.format(log=str(log)).replace(
            "    return row",
            f"    import os\n    if row['id'] == 140 and not os.path.exists({str(marker)!r}):\n"
            f"        open({str(marker)!r}, 'w').close()\n        raise RuntimeError('once')\n    return row",
        )
    )

    code, output = command.run()

    assert code == 0, output
    assert marker.exists()
    ledger = command.ledger()
    assert ledger is not None
    assert ledger.list_attempts() == [1], "Spark tries the task again within the attempt"
    assert_exactly_once(iceberg_place, range(ROWS))
    seen = computed(log)
    twice = {row for row in seen if seen.count(row) > 1}
    assert len(twice) < 67, "the second try of the task did all of it again"

"""Two drivers in one attempt, two runners, a runner that is paused between its look and its commit and wakes much later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from checkpoint_control.decision.actions import Finish, Wait
from checkpoint_local.code import digests_with
from checkpoint_local.runner import LocalHost
from checkpoint_protocol.errors import Superseded
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.store.object_store import open_store
from checkpoint_spark.driver.main import EXIT_SUPERSEDED
from checkpoint_work.driver.attempt import run_attempt
from checkpoint_work.tasks.executor import execute_order
from tests.support.checks import assert_exactly_once
from tests.support.crashes import Died, DyingStore, Effects, dying_sink
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import Place
from tests.support.slow import slow_except_on
from tests.support.waiting import patience, until
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of, write_inputs

ROWS = 400


def recorded(place: Place, source: Path) -> Ledger:
    """Return the ledger of a write whose first attempt is recorded, and has no driver yet."""
    reconciler = reconciler_for(manifest_for(place, source), place)
    reconciler.step()
    ledger = reconciler.current_ledger()
    assert ledger.attempts.list_attempts() == [1]
    return ledger


def test_a_second_driver_of_an_attempt_ends_before_any_task(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    ledger = recorded(disk_place, write_inputs(tmp_path / "in"))
    storage = disk_place.settings.for_drivers()
    run_attempt(ledger, 1, storage, 2, lambda orders: execute_order(orders[0], storage))
    sealed = ledger.seals.list_links(1)
    shipped: list[object] = []

    with pytest.raises(Superseded):
        run_attempt(Ledger(ledger.store, ledger.key), 1, storage, 7, shipped.append)

    assert shipped == []
    assert ledger.seals.list_links(1) == sealed


def test_a_second_driver_process_exits_with_its_own_code_and_leaves_no_failure(iceberg_place: Place, tmp_path: Path) -> None:
    iceberg_place.create(SCHEMA)
    ledger = recorded(iceberg_place, write_inputs(tmp_path / "in"))
    run_attempt(ledger, 1, iceberg_place.settings.for_drivers(), 2, lambda orders: None)
    command = [sys.executable, "-m", "checkpoint_spark.driver.main", "--uri", ledger.store.uri, "--uid", ledger.key.uid]
    command += ["--epoch", "1", "--attempt", "1", "--master", "local[2]", "--parallelism", "2"]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=patience(120), check=False)

    assert ended.returncode == EXIT_SUPERSEDED, ended.stderr
    assert "another driver" in ended.stderr
    assert ledger.attempts.read_failure(1) is None


def test_two_drivers_that_both_run_all_tasks_of_one_plan_stage_each_row_once(disk_place: Place, tmp_path: Path) -> None:
    """As speculation and zombies do: two tries of every task, one after the other and at once."""
    import threading

    disk_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    manifest = manifest_for(disk_place, source)
    store = open_store(disk_place.checkpoint_uri, disk_place.settings)
    storage = disk_place.settings.for_drivers()

    class TwiceDrivers(DirectDrivers):
        def _run_tasks(self, orders: object) -> None:
            tries = [threading.Thread(target=execute_order, args=(order, storage)) for order in [*orders, *orders]]  # type: ignore[misc]
            for one in tries:
                one.start()
            for one in tries:
                one.join(patience(60))

    ended = drive(reconciler_for(manifest, disk_place, TwiceDrivers(store, disk_place.settings), store))

    assert isinstance(ended.outcome, Finish)
    assert_exactly_once(disk_place, range(ROWS))


def seal_all(place: Place, source: Path) -> None:
    """Bring a write to where everything is sealed and closed, and nothing is claimed."""
    effects = Effects()
    manifest = manifest_for(place, source)
    store = open_store(place.checkpoint_uri, place.settings)

    class UntilTheClaim(Effects):
        def around(self, name: str, effect: object) -> object:
            if name.endswith("claim-0.json"):
                raise Died
            return effect()  # type: ignore[operator]

    effects = UntilTheClaim()
    try:
        drive(reconciler_for(manifest, place, None, DyingStore(store, effects), dying_sink(manifest, place.settings, effects)))
    except Died:
        return
    raise AssertionError("the write ended without a claim")


PAUSED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.support.command_line import load_place
from tests.support.crashes import Effects, DyingStore, dying_sink
from tests.support.writes import drive, manifest_for, reconciler_for
from checkpoint_protocol.store.object_store import open_store

place = load_place({place!r})
class Pausing(Effects):
    def around(self, name, effect):
        if name in ("swap", "append"):
            Path({marker!r}).touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        return effect()

effects = Pausing()
manifest = manifest_for(place, {source!r})
store = open_store(place.checkpoint_uri, place.settings)
ended = drive(reconciler_for(manifest, place, None, DyingStore(store, effects), dying_sink(manifest, place.settings, effects)))
print(ended.outcome)
"""


@slow_except_on("place", "iceberg-sql-s3", "lance-disk")
def test_a_runner_paused_before_its_commit_wakes_after_another_has_committed_and_adds_nothing(
    place: Place, tmp_path: Path
) -> None:
    from tests.support.command_line import save_place

    place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    seal_all(place, source)
    marker = tmp_path / "paused"
    script = PAUSED.format(
        root=str(Path(__file__).parents[2]),
        place=str(save_place(place, tmp_path / "place.json")),
        marker=str(marker),
        source=str(source),
    )
    with (tmp_path / "output.txt").open("wb") as output:
        paused = subprocess.Popen([sys.executable, "-c", script], stdout=output, stderr=output)
    try:
        until(marker.exists, "the first runner to be about to commit", 60)
        until(lambda: psutil.Process(paused.pid).status() == psutil.STATUS_STOPPED, "the first runner to be paused")

        other = drive(reconciler_for(manifest_for(place, source), place))
        assert isinstance(other.outcome, Finish)
        place.append(rows_of(range(800, 805)))
        os.kill(paused.pid, signal.SIGCONT)
        assert paused.wait(patience(60)) == 0, (tmp_path / "output.txt").read_text()
    finally:
        if paused.poll() is None:
            paused.kill()
            paused.wait()

    assert "Finish" in (tmp_path / "output.txt").read_text()
    assert_exactly_once(place, [*range(ROWS), *range(800, 805)])
    assert len(place.keys()) == 1


def test_runners_on_two_machines_do_not_close_each_others_attempts(lance_place: Place, tmp_path: Path) -> None:
    """The lock that makes a second runner attach is one machine's; elsewhere only the launch record tells."""
    lance_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    time_now = [0.0]
    hosts = (
        LocalHost("one", digest_of=digests_with(None)),
        LocalHost("two", digest_of=digests_with(None), clock=lambda: time_now[0]),
    )
    first, second = (reconciler_for(manifest_for(lance_place, source), lance_place, host=host) for host in hosts)
    first.step()

    for _ in range(5):
        assert isinstance(second.step().actions[-1], Wait)
    assert second.current_ledger().attempts.read_closed(1) is None

    time_now[0] = 61.0  # an interval of an hour is no reason to give a driver up after a minute
    assert isinstance(second.step().actions[-1], Wait)
    time_now[0] = second.observer.write.spec.progress_deadline_s + 1.0
    second.step()
    assert second.current_ledger().attempts.read_closed(1) is not None
    ended = drive(first)
    assert isinstance(ended.outcome, Finish)
    assert_exactly_once(lance_place, range(ROWS))


@slow_except_on("disk_place", "lance-disk")
def test_a_driver_whose_attempt_was_closed_elsewhere_ends_with_its_spark(disk_place: Place, tmp_path: Path) -> None:
    """Its runner may be on another machine, and not know; beside the next attempt it would take the cores for hours."""
    disk_place.create(SCHEMA)
    code = tmp_path / "code"
    code.mkdir()
    (code / "slow.py").write_text("import time\ndef wait(batch):\n    time.sleep(600)\n    return batch\n")
    reconciler = reconciler_for(
        manifest_for(disk_place, write_inputs(tmp_path / "in"), steps=[{"call": "slow:wait"}], code={"path": str(code)}),
        disk_place,
    )
    reconciler.step()
    ledger = reconciler.current_ledger()
    command = [sys.executable, "-m", "checkpoint_spark.driver.main", "--uri", ledger.store.uri, "--uid", ledger.key.uid]
    command += ["--epoch", "1", "--attempt", "1", "--master", "local[2]", "--parallelism", "2"]
    output = tmp_path / "driver.txt"
    with output.open("wb") as file:
        environment = {"PYTHONPATH": str(code), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        driver = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, **environment})
    below: list[psutil.Process] = []
    try:
        until(lambda: ledger.plans.read_plan(1) is not None, "the plan", 120)
        until(lambda: any("java" in one.name() for one in psutil.Process(driver.pid).children(recursive=True)), "Java", 60)
        below = psutil.Process(driver.pid).children(recursive=True)

        Ledger(ledger.store, ledger.key).chains.close(1)

        assert driver.wait(patience(60)) == EXIT_SUPERSEDED, output.read_text()
        assert "was closed" in output.read_text()
        assert ledger.attempts.read_failure(1) is None
        assert not psutil.wait_procs(below, timeout=patience(60))[1], "Spark goes on without its driver"
    finally:
        driver.kill()
        driver.wait()
        for process in below:
            with suppress(psutil.NoSuchProcess):
                process.kill()

"""Streams whose drivers and runners die: between micro-batches, inside one, between its seals and its commit, and after that."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_work.driver.bundling import bundling
from tests.end_to_end.conftest import make_place
from tests.end_to_end.keyed_writes import TEXTS, session
from tests.end_to_end.streamed_writes import StreamedWrite
from tests.support import streams
from tests.support.checks import assert_exactly_once
from tests.support.command_line import CommandLine, driver_of, kill
from tests.support.crashes import Died, DyingStore, Effects, dying_sink
from tests.support.driver_threads import Killed
from tests.support.places import Place
from tests.support.stores import MemoryStore
from tests.support.waiting import patience, until

__all__ = ["session"]
pytestmark = pytest.mark.spark
ROWS = 10


@dataclass
class Death(Effects):
    """Dies at an effect of this name, once, before or after it. `dead`: whoever shares it is dead from then on."""

    name: str = ""
    dead: threading.Event = field(default_factory=threading.Event)

    def around(self, name: str, effect: Callable[[], Any]) -> Any:
        is_here = name == self.name and not self.dead.is_set()
        if is_here and not self.after:
            self._die()
        result = effect()
        if is_here and self.after:
            self._die()
        return result

    def _die(self) -> None:
        self.dead.set()
        self.kill()


@dataclass
class MortalStore(DyingStore):
    """The store as a driver has it, which also asks for nothing any more when it is dead. Its reads are effects, too."""

    def get(self, path: str, most_bytes: int) -> bytes | None:
        assert isinstance(self.effects, Death)
        if self.effects.dead.is_set():
            raise Killed
        kind, _, *rest = path.split("/")
        found: bytes | None = self.effects.around("/".join([f"get {kind}", *rest]), lambda: self.inner.get(path, most_bytes))
        return found


def killed() -> None:
    raise Killed


def test_what_a_dead_driver_has_begun_beside_its_work_ends_without_a_word(tmp_path: Path) -> None:
    death = Death()
    store = MortalStore(MemoryStore(), death)

    # Its last pass reads in threads of its own; an error that one of them does not take is a failed test.
    with bundling(Ledger(store, EpochKey("uid", 1)), 1, "token"):
        death.dead.set()


BEFORE, AFTER = False, True


@pytest.mark.parametrize(
    ("place_name", "effect", "after"),
    [
        pytest.param("lance-disk", "staged/1/1/plan.json", BEFORE, id="before its plan"),
        pytest.param("iceberg-sql-disk", "staged/1/1/plan.json", AFTER, id="after its plan"),
        pytest.param("lance-disk", "get control/2/launch/1.json", BEFORE, id="after the commit and before Spark's note"),
        pytest.param(
            "iceberg-sql-disk", "get control/2/launch/1.json", AFTER, id="when the next epoch has begun", marks=pytest.mark.slow
        ),
    ],
)
def test_a_driver_that_dies_is_followed_by_one_that_goes_on(
    session: Any, place_name: str, effect: str, after: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place, death = make_place(place_name, tmp_path, request), Death(name=effect, after=after, kill=killed)
    place.create(TEXTS)
    write = StreamedWrite(session, place, tmp_path / "in", more={"backoffLimit": 3})
    write.of_driver = lambda store: MortalStore(store, Death() if death.dead.is_set() else death)

    write.finish(ROWS)

    assert write.drivers.started == 2
    assert_that_each_is_there_once(write, place)


@pytest.mark.parametrize(
    ("place_name", "effect", "after"),
    [
        pytest.param("iceberg-sql-disk", "control/1/launch/1.json", AFTER, id="before the driver"),
        pytest.param("lance-disk", "control/1/closed/1.json", BEFORE, id="all is sealed", marks=pytest.mark.slow),
        pytest.param("iceberg-sql-disk", "control/1/closed/1.json", AFTER, id="closed", marks=pytest.mark.slow),
        pytest.param("lance-disk", "control/1/commit/claim-0.json", AFTER, id="claimed"),
        pytest.param("iceberg-sql-disk", "swap", AFTER, id="committed to Iceberg", marks=pytest.mark.slow),
        pytest.param("lance-disk", "append", AFTER, id="committed to Lance"),
        pytest.param("iceberg-sql-disk", "control/1/commit/done.json", AFTER, id="recorded", marks=pytest.mark.slow),
        pytest.param("lance-disk", "control/0-index/1.json", AFTER, id="the index of the next epoch", marks=pytest.mark.slow),
        pytest.param("iceberg-sql-disk", "control/2/launch/1.json", AFTER, id="the next epoch", marks=pytest.mark.slow),
    ],
)
def test_runner_and_driver_die_together_and_the_next_run_goes_on(
    session: Any, place_name: str, effect: str, after: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place, death = make_place(place_name, tmp_path, request), Death(name=effect, after=after)
    place.create(TEXTS)
    write = StreamedWrite(session, place, tmp_path / "in")
    dying = replace(
        write,
        of_driver=lambda store: MortalStore(store, death),
        of_runner=lambda store: DyingStore(store, death),
        sink=dying_sink(write.manifest, place.settings, death),
    )
    dying.offer(ROWS)

    with pytest.raises(Died):
        dying.run()
    dying.drivers.finish()
    write.finish()

    assert_that_each_is_there_once(write, place)


def assert_that_each_is_there_once(write: StreamedWrite, place: Place) -> None:
    """Each epoch is one commit, in order, of as many rows as Spark's source gives; none is left out."""
    keys = place.keys()
    assert keys == [f"{write.uid}/{epoch}" for epoch in range(len(keys), 0, -1)]
    assert_exactly_once(place, range(ROWS * len(keys)))
    assert keys, "something is committed"
    for epoch in range(1, len(keys) + 1):
        commit = write.ledger(epoch).commits.read_commit()
        assert commit is not None
        assert commit.offsets == write.checkpoint.digest_of(epoch - 1)


@pytest.mark.slow
def test_an_endless_stream_goes_on_over_kills_of_its_driver_and_its_runner(
    session: Any, lance_place: Place, tmp_path: Path
) -> None:
    lance_place.create(TEXTS)
    write = StreamedWrite(session, lance_place, tmp_path / "in", more={"backoffLimit": 3})
    write.offer(ROWS)
    (write.folder / "for ever").touch()
    os.environ[streams.FOLDER] = str(write.folder)
    command = CommandLine(tmp_path / "cli", lance_place, write.manifest)

    runner = command.start()
    until(lambda: len(lance_place.keys()) >= 3, "three commits")
    first = driver_of(runner)
    kill(first)
    so_far = len(lance_place.keys())
    until(lambda: len(lance_place.keys()) >= so_far + 3, "three more by another driver")
    second = driver_of(runner)
    assert second.pid != first.pid
    runner.kill()
    psutil.wait_procs([second], timeout=patience(60))
    assert not second.is_running()
    (write.folder / "for ever").unlink()
    launch = write.ledger(1).attempts.read_launch(1)
    assert launch is not None
    write.recorder = launch.recorded_by
    write.finish()

    assert_that_each_is_there_once(write, lance_place)

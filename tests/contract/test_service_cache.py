"""Two runs at once, or a killed one, must not leave a cache entry that later runs take for whole."""

import multiprocessing
import os
import signal
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from devtools import cache
from tests.support.waiting import patience

processes = multiprocessing.get_context("spawn")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CHECKPOINTED_WRITES_CACHE", str(tmp_path / "cache"))
    return tmp_path


def slow_build(target: Path) -> None:
    with (target.parent / "builds").open("a") as builds:
        builds.write("built\n")
    (target / "first").write_text("half")
    time.sleep(0.3)
    (target / "second").write_text("whole")


def build_with_another(together: Barrier) -> None:
    together.wait()
    assert (cache.ensure("thing-1", slow_build) / "second").read_text() == "whole"


def die_while_building() -> None:
    def build(target: Path) -> None:
        (target / "first").write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)

    cache.ensure("thing-1", build)


def test_two_processes_build_an_entry_once(root: Path) -> None:
    together = processes.Barrier(2)
    builders = [processes.Process(target=build_with_another, args=(together,)) for _ in range(2)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(patience(60))

    assert [builder.exitcode for builder in builders] == [0, 0]
    assert (root / "cache" / "builds").read_text() == "built\n"


def test_a_killed_build_is_not_an_entry_and_is_cleared_by_the_next(root: Path) -> None:
    builder = processes.Process(target=die_while_building)
    builder.start()
    builder.join(patience(60))
    assert builder.exitcode == -signal.SIGKILL
    assert not (root / "cache" / "thing-1").exists()

    entry = cache.ensure("thing-1", slow_build)

    assert sorted(path.name for path in entry.iterdir()) == ["first", "second"]
    assert [path for path in (root / "cache").iterdir() if "unfinished" in path.name] == []


def test_a_failed_build_is_not_an_entry(root: Path) -> None:
    def build(target: Path) -> None:
        (target / "first").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cache.ensure("thing-1", build)

    assert not (root / "cache" / "thing-1").exists()

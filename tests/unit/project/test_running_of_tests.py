"""How tests are run: by how many processes, which after a change, and what is said of those that failed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grimp
import pytest

from devtools.build_tools import BuildToolFailed, fetch
from devtools.testing.changed import BY_HAND, OF_FILES, PACKAGES, module_of, reached_by
from devtools.testing.triage import SECONDS, triage
from devtools.testing.workers import number_of_workers

ROOT: Final = Path(__file__).parents[3]
GIB: Final = 1 << 30


@pytest.mark.parametrize(
    ("cpus", "quota", "memory", "expected"),
    [
        (2, None, 24 * GIB, 3),
        (64, None, 256 * GIB, 5),
        (64, 2.0, 256 * GIB, 3),
        (2, 0.5, 24 * GIB, 2),
        (8, None, 8 * GIB, 2),
        (1, None, GIB, 1),
    ],
    ids=["two-cpus", "many-cpus", "quota", "half-a-cpu", "little-memory", "least"],
)
def test_workers_are_as_many_as_cpus_quota_and_memory_bear(cpus: int, quota: float | None, memory: int, expected: int) -> None:
    assert number_of_workers(cpus, quota, memory) == expected


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES, cache_dir=None)


def test_a_changed_module_is_judged_by_the_tests_that_import_it_and_a_changed_test_by_itself(graph: grimp.ImportGraph) -> None:
    found = reached_by(["devtools/testing/workers.py", "tests/end_to_end/test_files.py"], graph)

    assert found == {"tests/unit/project/test_running_of_tests.py", "tests/end_to_end/test_files.py"}


def test_a_module_of_a_format_is_judged_also_by_what_starts_processes_for_it(graph: grimp.ImportGraph) -> None:
    found = reached_by(["core/checkpoint_formats/iceberg/writing/metrics.py"], graph)

    assert "tests/end_to_end/test_files.py" in found
    assert "tests/contract/iceberg_tables/test_partitions.py" in found
    assert not [path for path in found if "/cluster/" in path and "unit" not in path]


def test_a_changed_conftest_is_judged_by_the_tests_of_its_folder(graph: grimp.ImportGraph) -> None:
    found = reached_by(["tests/cluster/conftest.py"], graph)

    assert "tests/cluster/test_deaths.py" in found
    assert all(path.startswith("tests/cluster/") for path in found)


def test_the_tables_of_what_is_run_name_modules_and_tests_that_exist(graph: grimp.ImportGraph) -> None:
    named = {test for tests in (*BY_HAND.values(), *OF_FILES.values()) for test in tests}

    assert [name for name in BY_HAND if name not in graph.modules] == []
    assert [test for test in named if not (ROOT / test).exists()] == []
    assert [path for path in OF_FILES if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("local/checkpoint_local/cli/__init__.py", "checkpoint_local.cli"),
        ("tests/servers.py", "tests.servers"),
        ("examples/nearest_images.py", None),
        ("docs/guides/upsert.md", None),
        ("setup.py", None),
    ],
)
def test_a_path_names_its_module_or_none(path: str, module: str | None) -> None:
    assert module_of(path) == module


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def said_of(results: Iterator[bool], seconds_each: float = 1.0, names: tuple[str, ...] = ("test_a",)) -> list[str]:
    clock, said = Clock(), list[str]()

    def run_once(name: str, seconds: float) -> tuple[bool, str]:
        clock.now += min(seconds_each, seconds)
        return next(results), f"first line\nwhat {name} said"

    triage(names, run_once, said.append, clock)
    return said


def test_tests_that_failed_are_told_apart_by_how_they_do_alone() -> None:
    alone = said_of(iter([False] * 3))
    beside = said_of(iter([True] * 3))
    sometimes = said_of(iter([True, False, True]))

    assert alone == ["FAILS ALONE (0 of 3 passed)  test_a", "    first line\n    what test_a said"]
    assert beside == ["PASSES ALONE (3 of 3 passed)  test_a"]
    assert sometimes[0] == "SOMETIMES (2 of 3 passed)  test_a"


def test_tests_for_which_no_time_is_left_are_named() -> None:
    said = said_of(iter([True] * 9), SECONDS / 2, ("test_a", "test_b"))

    assert said == ["PASSES ALONE (2 of 2 passed)  test_a", "NOT TRIED (no time was left)  test_b"]


def test_a_fetch_that_fails_once_is_tried_again_and_one_that_fails_for_good_is_told(tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    third = f"with open({str(tries)!r}, 'a+') as f: f.write('x'); f.seek(0); raise SystemExit(len(f.read()) < 3)"

    fetch([sys.executable, "-c", third], pause=0)
    assert tries.read_text() == "xxx"

    with pytest.raises(BuildToolFailed, match=r"(?s)tried 3 times.*out of reach.*no such host"):
        fetch([sys.executable, "-c", "raise SystemExit('no such host')"], pause=0)

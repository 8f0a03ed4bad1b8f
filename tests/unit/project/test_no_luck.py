"""No test depends on how fast a machine is: who waits uses tests/support/waiting.py; other clocks and sleeps have a reason.

Code of steps and drivers that tests keep in strings is not looked at: it runs in other processes, and sleeps to be killed there.
"""

from __future__ import annotations

import ast
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support import driver_threads
from tests.support.privileges import without_privileges
from tests.support.stores import MemoryStore
from tests.support.waiting import patience, time_limit, until, wait

ROOT: Final = Path(__file__).parents[3]
_CLOCKS: Final = {"monotonic", "perf_counter", "time"}
_MADE_OF_THE_TIME: Final = {"gzip.compress", "datetime.now", "datetime.datetime.now", "uuid.uuid4", "uuid4", "time.time"}

#: What waits for another thread or process, with a bound as its only argument.
_WAITS: Final = ("wait", "join", "result", "communicate")
_BOUNDED: Final = rf"\btimeout=|\.({'|'.join(_WAITS)})\([0-9A-Z_]"
#: A second or less is a look whether something has happened that should not.
_NOTHING_IS_WAITED_FOR: Final = 1

#: By file: how many calls of a sleep or of a real clock it has, and why none of them decides whether a test passes.
ALLOWED: Final[dict[str, tuple[int, str]]] = {
    "tests/support/waiting.py": (3, "the helper itself"),
    "tests/judge/search.py": (2, "how long a search goes on, which is no test"),
    "tests/cluster/test_deaths.py": (1, "kills come at different moments of the commit"),
    "tests/cluster/test_what_people_see.py": (4, "nothing is written afterwards; a longer life may cost more changes"),
    "tests/contract/kubernetes/test_operator_that_hears.py": (2, "nothing is heard meanwhile"),
    "tests/contract/kubernetes/test_watching.py": (5, "nothing ends meanwhile; connections close a moment after their session"),
    "tests/contract/test_kafka_reader.py": (2, "segments of a topic that compaction may take are so old"),
    "tests/contract/test_service_cache.py": (1, "a build that another process may meet in the middle"),
    "tests/controller/harness.py": (2, "patience with drivers in threads"),
    "tests/end_to_end/test_input.py": (3, "a file system may tell times of files in hundredths of a second"),
    "tests/end_to_end/test_spark_itself.py": (1, "the pause between two looks at memory"),
    "tests/end_to_end/test_triggers.py": (1, "some looks find nothing meanwhile"),
    "tests/support/fake_cluster.py": (1, "the pause between two looks of a driver that waits"),
    "tests/support/vending.py": (1, "when keys expire, which others judge by their clocks"),
    "tests/support/http_service.py": (1, "how long the service takes"),
    "tests/unit/project/test_benchmarks.py": (2, "another process writes times, which are compared with those around it"),
    "tests/unit/protocol/test_record_bounds.py": (2, "readers stay a while, so that they meet"),
    "tests/unit/protocol/test_source_paths.py": (1, "the first error comes while the others begin"),
    "tests/unit/spark/test_pod.py": (1, "the signal comes in the midst of a call"),
    "tests/unit/spark/test_pod_executor.py": (1, "nothing ends meanwhile"),
    "tests/unit/spark/test_steps_that_wait.py": (
        5,
        "nothing is called meanwhile; calls are no faster than a limit; turns of the loop",
    ),
    "tests/unit/spark/test_slots.py": (3, "gives others a turn"),
    "tests/simulation/source.py": (1, "gives others a turn"),
    "tests/end_to_end/test_maximum_rows.py": (1, "rows end in another order than they began"),
}


class SeenStore(MemoryStore):
    """Tells of each look."""

    def __init__(self, looks: list[str]) -> None:
        super().__init__()
        self._looks = looks

    def get(self, path: str, most_bytes: int) -> bytes | None:
        self._looks.append(path)
        return super().get(path, most_bytes)


def nodes_of(path: Path, pattern: str) -> Iterator[ast.AST]:
    """Give all of a file whose text has the pattern in it: to look for that is faster by far than to parse."""
    text = path.read_text(encoding="utf-8")
    if re.search(pattern, text):
        yield from ast.walk(ast.parse(text))


def calls_of(path: Path) -> int:
    found = 0
    for node in nodes_of(path, r"\b(time|asyncio)\."):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            module, name = node.func.value.id, node.func.attr
            found += (module == "time" and name in {"sleep", *_CLOCKS}) or (module == "asyncio" and name == "sleep")
    return found


def bounds_of(call: ast.Call) -> Iterator[ast.expr]:
    """Give what says for how long a call waits at the most."""
    yield from (keyword.value for keyword in call.keywords if keyword.arg == "timeout")
    if isinstance(call.func, ast.Attribute) and call.func.attr in _WAITS and len(call.args) == 1:
        yield call.args[0]


def is_impatient(bound: ast.expr) -> bool:
    """Return whether a bound is a time of its own, long enough to be waited for, and not as long as this run's patience."""
    if isinstance(bound, ast.Constant):
        return isinstance(bound.value, int | float) and bound.value > _NOTHING_IS_WAITED_FOR
    return isinstance(bound, ast.Name) and bound.id.endswith("_S")


def test_who_waits_is_as_patient_as_the_run() -> None:
    """A bound of its own would be too short on a slow machine, whatever CHECKPOINTED_WRITES_PATIENCE says."""
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{call.lineno}"
        for path in (ROOT / "tests").rglob("*.py")
        for call in nodes_of(path, _BOUNDED)
        if isinstance(call, ast.Call) and any(is_impatient(bound) for bound in bounds_of(call))
    ]

    assert sorted(set(found)) == [], "wait for patience(seconds), of tests/support/waiting.py"


def test_sleeps_and_real_clocks_are_where_they_have_a_reason() -> None:
    counted = Counter({path.relative_to(ROOT).as_posix(): calls_of(path) for path in (ROOT / "tests").rglob("*.py")})
    found = {path: count for path, count in counted.items() if count}

    assert found == {path: count for path, (count, _) in ALLOWED.items()}, (
        "wait with tests/support/waiting.py, or inject a clock; what cannot: name it in ALLOWED with its reason"
    )


def test_no_parameter_of_a_test_is_made_of_the_time() -> None:
    """The processes that share the tests collect them in different seconds, and must find the same ones."""
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{call.lineno}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for function in nodes_of(path, "|".join(map(re.escape, _MADE_OF_THE_TIME)))
        if isinstance(function, ast.FunctionDef)
        for decorator in function.decorator_list
        for call in ast.walk(decorator)
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) in _MADE_OF_THE_TIME
        and "mtime" not in {k.arg for k in call.keywords}
    ]

    assert found == [], "gzip.compress(..., mtime=0); other values made of the time: an id of the parameter"


def test_a_test_has_the_time_that_its_waits_may_take(request: pytest.FixtureRequest) -> None:
    (limit, *_) = request.node.iter_markers("timeout")

    assert limit.args == (time_limit(float(request.config.getini("timeout"))),)
    assert limit.args[0] > patience(60.0), "a wait in vain is told by what waits"


def test_a_driver_that_waits_for_an_operator_ends_with_its_test_and_looks_into_no_store_afterwards() -> None:
    looks: list[str] = []
    store = driver_threads.while_the_test_runs(SeenStore(looks))

    def wait_for_an_operator() -> None:
        while store.get("target/1.json", 1) is None:
            pass

    driver = driver_threads.start(wait_for_an_operator)
    until(lambda: looks, "the driver's first look")
    driver_threads.end_all()
    seen = len(looks)

    assert not driver.is_alive()
    with pytest.raises(driver_threads.Killed):
        store.get("target/1.json", 1)
    assert len(looks) == seen


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has privileges to do without")
def test_a_thread_without_privileges_leaves_the_others_theirs(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    begin, ended = threading.Event(), threading.Event()

    def write() -> None:
        wait(begin, "the other thread to be without privileges")
        try:
            (folder / "driver").touch()
        finally:
            ended.set()

    threading.Thread(target=write, daemon=True).start()
    with without_privileges():
        with pytest.raises(PermissionError):
            (folder / "test").touch()
        begin.set()
        wait(ended, "the other thread")

    assert [path.name for path in folder.iterdir()] == ["driver"]
    (folder / "test").touch()

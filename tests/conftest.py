"""Fixtures of all tests, and how hypothesis searches: the same examples each time, however busy the machine is.

HYPOTHESIS_PROFILE=search looks for new ones.
"""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]
from xdist.scheduler.protocol import Scheduling  # type: ignore[import-untyped]

from devtools.build_tools import BuildToolMissing
from tests.support import driver_threads, needs
from tests.support.effort import examples
from tests.support.waiting import time_limit

pytest_plugins = ["tests.servers"]

settings.register_profile(
    "same",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
if settings.default is settings.get_profile("same"):
    # hypothesis draws from the constants of every module that a process has loaded: the same search would differ with each edit
    # anywhere, and with the tests that share a process. There is no setting for it.
    providers.is_local_module_file = lambda _: False  # type: ignore[attr-defined, assignment]


#: Folders whose tests have servers in common that cost a process half a minute, or of which a machine has one.
TOGETHER = ("tests/cluster/", "tests/contract/kubernetes/")


class ByServers(LoadScopeScheduling):  # type: ignore[misc]
    """Where several processes share the tests: one file goes to one process, and so do those with such servers in common."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid.partition("::")[0])


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    return ByServers(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.hookimpl(trylast=True)  # after pytest's own, which sets what is told of errors in threads
def pytest_configure(config: pytest.Config) -> None:
    # Where Spark runs in the process of the tests: pyspark leaves the sockets over which results come to the garbage collector.
    config.addinivalue_line("filterwarnings", r"ignore:unclosed <socket\.socket .*laddr=\('127\.0\.0\.1':ResourceWarning")
    # Spark runs for seconds here: time for the best machine code is not earned back. (Spark's own variable for Java's options.)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    # A shell lets what it starts in the background ignore Ctrl-C, and so would all that the tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    driver_threads.let_threads_be_killed()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test the time that its waits may take with this run's patience."""
    usual = float(config.getini("timeout"))
    for item in items:
        marker = item.get_closest_marker("timeout")
        seconds = float(marker.args[0]) if marker else usual
        item.add_marker(pytest.mark.timeout(time_limit(seconds)), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """A test whose fixture needs what this machine lacks is skipped; a fixture that failed once fails one test, not all."""
    try:
        return (yield)
    except BuildToolMissing as missing:
        needs.skip(str(missing))
    except Exception as error:
        # A fixture that several tests share gives each of them the same error.
        first = item.config.stash.setdefault(_BROKEN, {}).setdefault(id(error), (item.nodeid, error))[0]
        if first != item.nodeid:
            pytest.skip(f"blocked by a fixture that failed in {first}")
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    except BuildToolMissing as missing:
        needs.skip(str(missing))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Before the fixtures of the test go: its drivers are at work with them."""
    driver_threads.end_all()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what this run did not prove, so that a green one is not taken for more."""
    skipped = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", ()) if isinstance(report.longrepr, tuple)]
    unproven = sorted({reason.partition(needs.MARK)[2] for reason in skipped if needs.MARK in reason})
    if unproven:
        terminalreporter.section("not proven on this machine")
        for reason in unproven:
            terminalreporter.line(reason)


#: The errors of fixtures by identity, with the first test that each failed; kept, so that no other object gets that identity.
_BROKEN = pytest.StashKey[dict[int, tuple[str, BaseException]]]()

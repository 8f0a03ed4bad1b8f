"""Fixtures of all tests, and how hypothesis searches: the same examples each time, however busy the machine is.

HYPOTHESIS_PROFILE=search looks for new ones.
"""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]
from xdist.scheduler.protocol import Scheduling  # type: ignore[import-untyped]

from tests.support.effort import examples

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


#: Folders whose tests have servers in common that cost a process half a minute, or of which a machine has one.
TOGETHER = ("tests/cluster/", "tests/contract/kubernetes/")


class ByServers(LoadScopeScheduling):  # type: ignore[misc]
    """Where several processes share the tests: one file goes to one process, and so do those with such servers in common."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid.partition("::")[0])


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    return ByServers(config, log) if config.getvalue("dist") == "loadscope" else None


def pytest_configure(config: pytest.Config) -> None:
    # Where Spark runs in the process of the tests: pyspark leaves the sockets over which results come to the garbage collector.
    config.addinivalue_line("filterwarnings", r"ignore:unclosed <socket\.socket .*laddr=\('127\.0\.0\.1':ResourceWarning")
    # Spark runs for seconds here: time for the best machine code is not earned back. (Spark's own variable for Java's options.)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    # A shell lets what it starts in the background ignore Ctrl-C, and so would all that the tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

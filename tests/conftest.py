"""Fixtures of all tests, and how hypothesis searches: the same examples each time, however busy the machine is.

HYPOTHESIS_PROFILE=search looks for new ones.
"""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.servers"]

settings.register_profile("same", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


#: Fixtures that cost seconds for each process that asks for them.
SHARED = ("cluster", "api_server", "session")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several processes share the tests, those with a costly server in common stay together, and else those of a file."""
    for item in items:
        group = next((name for name in SHARED if name in getattr(item, "fixturenames", ())), Path(item.path).stem)
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_configure(config: pytest.Config) -> None:
    # Where Spark runs in the process of the tests: pyspark leaves the sockets over which results come to the garbage collector.
    config.addinivalue_line("filterwarnings", r"ignore:unclosed <socket\.socket .*laddr=\('127\.0\.0\.1':ResourceWarning")
    # Spark runs for seconds here: time for the best machine code is not earned back. (Spark's own variable for Java's options.)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    # A shell lets what it starts in the background ignore Ctrl-C, and so would all that the tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

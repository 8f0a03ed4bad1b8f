"""A real cluster with the operator installed by helm, an S3 server and an Iceberg REST catalog beside it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from devtools.gate import Gate
from devtools.kubernetes import Cluster, machine
from devtools.rest_catalog import RestCatalog
from devtools.s3_server import S3Server
from tests.cluster.barriers import Barriers
from tests.cluster.installation import Installation
from tests.cluster.lake import Lake
from tests.cluster.user import User
from tests.support import needs
from tests.support.vending import vending

HERE = Path(__file__).parent
#: "1": the cluster that runs is used as it is, and left running (`make cluster`).
KEEP = "CHECKPOINTED_WRITES_KEEP_CLUSTER"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before the limits of all tests are made longer (tests/conftest.py)."""
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    if reason := machine.why_impossible():
        needs.skip(f"nothing about pods is proven without a cluster of this machine's own, and {reason}")
    made = Cluster()
    keep = os.environ.get(KEEP) == "1"
    with made.reserved():
        if not keep:
            # What an earlier run has left that was killed in the middle is no place to begin.
            made.down()
        made.up(lambda text: None)
        yield made
        if not keep:
            made.down()


@pytest.fixture(scope="session")
def lake(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """On the host's end of the cluster's cable: pods and this process reach it under one address."""
    folder = tmp_path_factory.mktemp("lake")
    with (
        S3Server(folder / "s3", host=cluster.host_address) as s3,
        RestCatalog(folder / "catalog", s3, host=cluster.host_address) as catalog,
        Gate(catalog.uri, host=cluster.host_address) as gate,
        vending(catalog.uri, s3, host=cluster.host_address) as front,
        Barriers(cluster.host_address) as barriers,
    ):
        yield Lake(s3, catalog, gate, front, barriers)


@pytest.fixture(scope="session")
def installation(cluster: Cluster, lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return Installation(cluster, lake, tmp_path_factory.mktemp("installation"))


@pytest.fixture
def users(installation: Installation, tmp_path: Path) -> Iterator[Callable[[], User]]:
    """As many as are asked for, who work in one namespace at the same time, each with a write."""
    installation.make_sound()
    with ExitStack() as stack:
        stack.callback(installation.cluster.require_judge)

        def one_more() -> User:
            folder = tmp_path / uuid.uuid4().hex[:8]
            folder.mkdir()
            somebody = User(installation, folder)
            stack.callback(somebody.leave)
            return somebody

        yield one_more


@pytest.fixture
def user(users: Callable[[], User]) -> User:
    """Somebody who works in a namespace; what went wrong is shown when a test fails."""
    return users()

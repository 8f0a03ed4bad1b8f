"""A catalog that takes connections and never answers, and others beside it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpoint_commit.catalogs.named import CatalogBook, _bounded_uri
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.places.settings import Settings, SqlCatalogSettings
from tests.support.waiting import until

WITHIN_S = 1.0
SIGNING = {"region": "eu-central-1", "name": "glue", "access_key_id": "key", "secret_access_key": "secret"}


class Silent:
    """A server that takes connections, counts them, and never says a word."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self.taken: list[socket.socket] = []
        self.port: int = server.getsockname()[1]

    def take(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self.taken.append(self._server.accept()[0])


@pytest.fixture
def silent() -> Iterator[Silent]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        made = Silent(server)
        taking = threading.Thread(target=made.take)
        taking.start()
        yield made
        server.shutdown(socket.SHUT_RDWR)
        taking.join()
    for connection in made.taken:
        connection.close()


@pytest.fixture
def silent_port(silent: Silent) -> int:
    return silent.port


def book(silent_port: int, folder: Path, clock: Callable[[], float] = time.monotonic, **more: Any) -> CatalogBook:
    silent = {"type": "rest", "uri": f"http://127.0.0.1:{silent_port}", **more}
    disk = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    settings = Settings.model_validate({"catalogs": {"silent": silent, "disk": disk}})
    return CatalogBook(settings, WITHIN_S, clock)


@pytest.mark.parametrize("more", [{}, {"credential": "id:secret"}, {"signing": SIGNING}], ids=["config", "token", "signed"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_catalog_that_never_answers_is_asked_once_and_given_up_within_the_bound(
    silent: Silent, tmp_path: Path, more: dict[str, Any]
) -> None:
    with pytest.raises(Retryable) as given_up:
        book(silent.port, tmp_path, **more).open("silent")

    assert given_up.value.reason == reasons.CATALOG_UNAVAILABLE
    assert len(silent.taken) == 1


def test_nobody_waits_for_a_catalog_of_another_name(silent: Silent, tmp_path: Path) -> None:
    catalogs = book(silent.port, tmp_path)
    catalogs.answer_within_s = 20.0

    def be_stuck() -> None:
        with contextlib.suppress(Retryable):
            catalogs.open("silent")

    stuck = threading.Thread(target=be_stuck, daemon=True)
    stuck.start()
    until(lambda: silent.taken, "the first one to ask")

    assert catalogs.open("disk").name == "disk"

    assert stuck.is_alive()


def test_one_at_a_time_asks_a_catalog_that_did_not_answer_and_not_at_once(silent: Silent, tmp_path: Path) -> None:
    now = [0.0]
    catalogs = book(silent.port, tmp_path, lambda: now[0])

    def ask(refused: list[Retryable]) -> None:
        with pytest.raises(Retryable) as raised:
            catalogs.open("silent")
        refused.append(raised.value)

    def asked_by(count: int) -> int:
        """Return how often the catalog itself was asked by so many at once."""
        before, refused = len(silent.taken), list[Retryable]()
        threads = [threading.Thread(target=ask, args=(refused,)) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == count
        return len(silent.taken) - before

    assert asked_by(4) == 1, "all wait for what the first one brings"
    assert asked_by(4) == 0, "it has only just not answered"
    now[0] = 3600.0
    assert asked_by(4) == 1


def test_a_catalog_that_answers_again_is_opened(tmp_path: Path) -> None:
    now = [0.0]
    folder = tmp_path / "absent"
    disk = SqlCatalogSettings(uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{tmp_path}")
    catalogs = CatalogBook(Settings(catalogs={"disk": disk}), WITHIN_S, lambda: now[0])
    with pytest.raises(Retryable):
        catalogs.open("disk")

    folder.mkdir()
    now[0] = 3600.0

    assert catalogs.open("disk") is catalogs.open("disk")


def test_connections_to_postgres_are_bounded_unless_the_uri_says_how() -> None:
    bounded = _bounded_uri("postgresql+psycopg2://me:s%40cret@host/db?connect_timeout=3", 60.0)

    assert bounded.startswith("postgresql+psycopg2://me:s%40cret@host/db?connect_timeout=3&")
    assert "tcp_user_timeout=60000" in bounded
    assert _bounded_uri("sqlite:////tmp/catalog.db", 60.0) == "sqlite:////tmp/catalog.db"

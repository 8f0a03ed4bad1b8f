"""A catalog that takes connections and never answers, and others beside it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkpoint_operator.catalogs import CatalogBook, _bounded_uri
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.settings import CatalogSettings, Settings

WITHIN_S = 1.0


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Connections are taken by the kernel; nobody ever says a word on them."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def book(
    silent_port: int, folder: Path, clock: Callable[[], float] = time.monotonic, credential: str | None = None
) -> CatalogBook:
    silent = {"type": "rest", "uri": f"http://127.0.0.1:{silent_port}", "credential": credential}
    disk = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    settings = Settings.model_validate({"catalogs": {"silent": silent, "disk": disk}})
    return CatalogBook(settings, WITHIN_S, clock)


@pytest.mark.parametrize("credential", [None, "id:secret"], ids=["asked for its configuration", "asked for a token"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_catalog_that_never_answers_is_given_up_within_the_bound(
    silent_port: int, tmp_path: Path, credential: str | None
) -> None:
    started = time.monotonic()

    with pytest.raises(Retryable) as given_up:
        book(silent_port, tmp_path, credential=credential).open("silent")

    assert given_up.value.reason == reasons.CATALOG_UNAVAILABLE
    assert time.monotonic() - started < 5 * WITHIN_S


def test_nobody_waits_for_a_catalog_of_another_name(silent_port: int, tmp_path: Path) -> None:
    catalogs = book(silent_port, tmp_path)
    catalogs.answer_within_s = 20.0

    def be_stuck() -> None:
        with contextlib.suppress(Retryable):
            catalogs.open("silent")

    stuck = threading.Thread(target=be_stuck, daemon=True)
    stuck.start()
    time.sleep(0.3)
    started = time.monotonic()

    assert catalogs.open("disk").name == "disk"

    assert stuck.is_alive()
    assert time.monotonic() - started < 10


def test_one_at_a_time_waits_for_a_catalog_that_did_not_answer_and_not_at_once(silent_port: int, tmp_path: Path) -> None:
    now = [0.0]
    catalogs = book(silent_port, tmp_path, lambda: now[0])
    durations: list[float] = []

    def ask() -> None:
        started = time.monotonic()
        with pytest.raises(Retryable):
            catalogs.open("silent")
        durations.append(time.monotonic() - started)

    def ask_at_once(count: int) -> list[bool]:
        """Whether each has waited for the catalog itself."""
        durations.clear()
        threads = [threading.Thread(target=ask) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(durations) == count
        assert max(durations) < 3 * WITHIN_S, "several have tried one after the other"
        return [duration > WITHIN_S / 2 for duration in durations]

    assert all(ask_at_once(4)), "all wait for what the first attempt brings"
    assert not any(ask_at_once(4)), "it has only just not answered"
    now[0] = 3600.0
    assert sum(ask_at_once(4)) == 1


def test_a_catalog_that_answers_again_is_opened(tmp_path: Path) -> None:
    now = [0.0]
    folder = tmp_path / "absent"
    disk = CatalogSettings(type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{tmp_path}")
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

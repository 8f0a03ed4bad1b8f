"""How many requests to stores follow one another in a commit: by a clock that each of them moves on by one.

A request that is sent beside others begins at the time of whoever asks for all of them, who goes on at that of the last answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import lance
import obstore
import pytest
from pydantic import SecretStr

from benchmarks.commit_files import ours
from benchmarks.commit_scene import Rig, set_the_scene
from checkpoint_control.decision.actions import Finish, StartDriver
from checkpoint_formats.iceberg import file_io
from checkpoint_protocol.places.settings import Settings, SqlCatalogSettings
from checkpoint_protocol.places.storage import StorageEntry
from checkpoint_protocol.store import parallel
from checkpoint_protocol.store.object_store import open_store
from devtools.s3_server import S3Server
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import on_s3
from tests.support.writes import SCHEMA, manifest_for, reconciler_for, write_inputs

#: Names in an answer to a listing.
_PAGE: Final = 1_000


class Clock(threading.local):
    waits = 0


CLOCK: Final = Clock()


@dataclass
class Answer:
    """What a thread has found, and at what time."""

    asked: Future[tuple[Any, int]]

    def result(self) -> Any:
        found, ended = self.asked.result()
        CLOCK.waits = max(CLOCK.waits, ended)
        return found


class Threads(ThreadPoolExecutor):
    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        began = CLOCK.waits

        def run() -> tuple[Any, int]:
            CLOCK.waits = began
            return function(*args, **named), CLOCK.waits

        return Answer(super().submit(run))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What the programs ask of obstore and Lance takes its time. The catalog is a file of SQLite, and takes none."""

    def counted(ask: Callable[..., Any]) -> Callable[..., Any]:
        def request(*args: Any, **named: Any) -> Any:
            CLOCK.waits += 1
            return ask(*args, **named)

        return request

    def pages(store: Any, **named: Any) -> Iterator[Any]:
        CLOCK.waits += 1
        seen = 0
        for chunk in listed(store, **named):
            yield chunk
            seen += len(chunk)
            CLOCK.waits += seen % _PAGE == 0

    listed = obstore.list
    monkeypatch.setattr(obstore, "list", pages)
    for name in ("get", "get_range", "head", "put", "list_with_delimiter", "open_reader", "open_writer"):
        monkeypatch.setattr(obstore, name, counted(getattr(obstore, name)))
    for owner, name in ((lance.LanceDataset, "__init__"), (lance.LanceDataset, "commit")):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    monkeypatch.setattr(parallel, "ThreadPoolExecutor", Threads)
    return CLOCK


@pytest.mark.parametrize(("files", "waits"), [(1, 7), (1_000, 8)])
def test_a_commit_waits_so_many_times_in_a_row(
    files: int, waits: int, s3_server: S3Server, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3_server.make_bucket(f"waits-{files}")
    storage = StorageEntry(
        prefix=f"s3://{bucket}/",
        endpoint=s3_server.endpoint,
        region=s3_server.region,
        access_key_id=SecretStr(s3_server.access_key),
        secret_access_key=SecretStr(s3_server.secret_key),
    )
    catalog = SqlCatalogSettings(uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"s3://{bucket}/w")
    settings = Settings(catalogs={"bench": catalog}, storage=(storage,))
    rig = Rig("in a bucket", f"s3://{bucket}", s3_server.objects / bucket, settings, settings)
    staged = set_the_scene(rig, files)

    monkeypatch.delattr(file_io, "load_file_io")  # what pyarrow asks would not be counted
    clock.waits = 0
    ours(rig, staged)

    assert clock.waits == waits


@pytest.mark.parametrize(("kind", "waits"), [("iceberg", 13), ("lance", 17)])
def test_the_rounds_from_the_last_seal_to_the_commit_record_wait_so_many_times_in_a_row(
    kind: str, waits: int, s3_server: S3Server, tmp_path: Path, clock: Clock
) -> None:
    """Each call of Lance that opens a dataset, or commits to it, is taken for one."""
    place = on_s3(tmp_path, kind, s3_server)
    place.create(SCHEMA)
    store = open_store(place.checkpoint_uri, place.settings)
    drivers = DirectDrivers(store, place.settings)
    reconciler = reconciler_for(manifest_for(place, write_inputs(tmp_path / "in", files=1, rows=10)), place, drivers, store)
    while not any(isinstance(action, StartDriver) for action in reconciler.step().actions):
        pass
    drivers.finish()

    clock.waits = 0
    while not isinstance(reconciler.step().outcome, Finish):
        pass

    assert clock.waits == waits
    assert len(place.keys()) == 1

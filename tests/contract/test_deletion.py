"""Deletion on real stores and real tables, on disk and on S3, through the sinks as the operator opens them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_commit.outcomes import Committed, Landed
from checkpoint_commit.results import Results
from checkpoint_commit.sinks.registry import open_sink
from checkpoint_control.writes.deletion import Deleted, delete_write
from checkpoint_formats.iceberg.stager import IcebergStager
from checkpoint_formats.lance.stager import LanceStager
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.records import IcebergTarget, LanceTarget, StagedFile, Target
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.object_store import open_store
from tests.support.places import Place, on_disk, on_s3
from tests.support.records import DIGEST, KEY, appended, launch, seal
from tests.support.writes import SCHEMA, rows_of

SECOND = EpochKey(KEY.uid, 2)


class World:
    """A place with a table that has a stranger's row, and a write into it, staged by hand."""

    def __init__(self, place: Place) -> None:
        self.place = place
        place.create(SCHEMA)
        place.append(rows_of([1_000_000]))
        self.store = open_store(place.checkpoint_uri, place.settings)
        self.sink: Any = open_sink(Sink.model_validate(place.sink()), place.settings)

    def stage(self, *numbers: int, key: EpochKey = KEY) -> Results:
        """Launch an attempt, write a data file for each number, and seal it."""
        ledger = Ledger(self.store, key)
        target = self.sink.describe(key)
        ledger.attempts.put_launch(launch(target=target))
        files = [self._file(target, number, key) for number in numbers]
        for link, file in enumerate(files):
            ledger.seals.put_seal(seal(0, link, [(0, link, link + 1)], files=[file], last=link == len(files) - 1))
        return Results(appended(tuple(files)), (target,), len(files), len(files), 1, (DIGEST,))

    def _file(self, target: Target, number: int, key: EpochKey) -> StagedFile:
        storage = self.place.settings.for_drivers()
        batch: pa.RecordBatch = rows_of([number]).to_batches()[0]
        if isinstance(target, IcebergTarget):
            stager = IcebergStager(target, key, "1-0", 1 << 20, storage)
            return stager.stage(iter([batch.cast(stager.arrow_schema)]))[0]
        assert isinstance(target, LanceTarget)
        return LanceStager(target, 1 << 20, storage).stage(iter([batch]))[0]

    def delete(self) -> Any:
        return delete_write(self.store, KEY.uid, self.sink)

    @property
    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.place.rows())

    def listed(self, folder: str) -> list[str]:
        return [stored.path for stored in self.store.list(folder)]


@pytest.fixture(params=["iceberg-disk", "iceberg-s3", "lance-disk", "lance-s3"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    kind, where = request.param.split("-")
    if where == "s3":
        return World(on_s3(tmp_path, kind, request.getfixturevalue("s3_server")))
    return World(on_disk(tmp_path, kind))


def data_files_of(world: World, results: Results) -> int:
    """Return how many data files deletion removes: those of a Lance dataset stay."""
    return len(results.change) if isinstance(results.targets[0], IcebergTarget) else 0


def test_an_unclaimed_write_leaves_its_control_records_and_nothing_else(world: World) -> None:
    results = world.stage(*range(40))

    assert world.delete() == Deleted((), data_files_of(world, results), objects=40)

    assert world.listed(layout.staged_folder(KEY.uid)) == []
    assert layout.deleted_path(KEY.uid) in world.listed(layout.control_folder(KEY.uid))
    assert world.ids == [1_000_000]
    assert world.delete() == Deleted((), 0, 0)


def test_a_claimed_write_is_buried_and_a_request_that_was_prepared_before_is_refused(world: World) -> None:
    results = world.stage(1, 2)
    ledger = Ledger(world.store, KEY)
    late = world.sink.table
    look: Any = None
    # A Lance dataset has both: appends go by the latter.
    real_request = late.append if hasattr(late, "append") else late.swap

    class Asleep(BaseException):
        """The committer falls asleep at its request."""

    def fall_asleep(*arguments: Any) -> Any:
        nonlocal look
        look = arguments
        raise Asleep

    setattr(late, real_request.__name__, fall_asleep)
    with pytest.raises(Asleep):
        world.sink.commit(ledger, results)
    other = open_sink(Sink.model_validate(world.place.sink()), world.place.settings)

    assert delete_write(world.store, KEY.uid, other) == Deleted((), data_files_of(world, results), objects=2)

    assert not isinstance(real_request(*look), Landed)
    assert world.ids == [1_000_000]
    world.place.append(rows_of([1_000_001]))
    assert world.ids == [1_000_000, 1_000_001]


def test_what_is_committed_stays_and_the_next_epoch_goes(world: World) -> None:
    outcome = world.sink.commit(Ledger(world.store, KEY), world.stage(1, 2))
    assert isinstance(outcome, Committed)
    results = world.stage(3, key=SECOND)

    assert isinstance(deleted := world.delete(), Deleted)

    assert deleted.committed_epochs == (1,)
    assert deleted.data_files == data_files_of(world, results)
    assert world.ids == [1, 2, 1_000_000]

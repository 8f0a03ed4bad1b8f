"""The Lance port of the committer over real datasets, on disk and in S3, and over the fakes."""

from __future__ import annotations

import datetime
import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_commit.lance.port import LanceState, LanceTable
from checkpoint_commit.lance.table import PylanceTable
from checkpoint_commit.outcomes import RequestOutcome
from checkpoint_formats.lance.stager import LanceStager
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import LanceFragment, LanceTarget
from tests.simulation.lance_table import SimulatedLance
from tests.simulation.scheduler import Scheduler
from tests.simulation.tables import DataFiles
from tests.support.places import LancePlace, on_disk, on_s3
from tests.support.records import KEY, appended, lance_fragment
from tests.support.tables import FakeLance
from tests.support.writes import rows_of

OTHER = EpochKey("fedcba9876543210", 1)
SECOND = EpochKey(KEY.uid, 2)
_names = itertools.count()


class World(ABC):
    """One dataset, any number of committers, and strangers."""

    @abstractmethod
    def port(self) -> LanceTable:
        """The port of one more committer."""

    @abstractmethod
    def stage(self, *numbers: int) -> tuple[LanceFragment, ...]:
        """Return staged fragments with these rows."""

    @abstractmethod
    def append_as_stranger(self) -> None: ...

    @abstractmethod
    def clean_all_but_the_latest(self) -> None: ...

    def loaded(self, key: EpochKey = KEY, since: int = 1, up_to: int | None = None) -> LanceState:
        state = self.port().load(key, since, up_to)
        assert state is not None
        return state

    @property
    def latest(self) -> int:
        latest = self.port().latest_version()
        assert latest is not None
        return latest

    def append(self, based_on: int, *numbers: int, key: EpochKey = KEY) -> RequestOutcome:
        return self.port().append(based_on, key, appended(self.stage(*numbers)))


@dataclass
class RealWorld(World):
    place: LancePlace

    def port(self) -> PylanceTable:
        return PylanceTable(self.place.uri, self.place.settings)

    def target(self) -> LanceTarget:
        target = self.port().describe()
        assert target is not None
        return target

    def stage(self, *numbers: int) -> tuple[LanceFragment, ...]:
        return self.stage_batch(rows_of(numbers).to_batches()[0])

    def stage_batch(self, batch: pa.RecordBatch, target: LanceTarget | None = None) -> tuple[LanceFragment, ...]:
        stager = LanceStager(target or self.target(), 1 << 20, self.place.settings.for_drivers())
        return stager.stage(iter([batch]))

    def append_as_stranger(self) -> None:
        self.place.append(rows_of([1_000_000]))

    def clean_all_but_the_latest(self) -> None:
        self.place.dataset().cleanup_old_versions(older_than=datetime.timedelta(0), delete_unverified=False)

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.place.rows())


@dataclass
class FakeWorld(World):
    table: FakeLance = field(default_factory=FakeLance)

    def port(self) -> FakeLance:
        return self.table

    def stage(self, *numbers: int) -> tuple[LanceFragment, ...]:
        return (lance_fragment(f"{next(_names)}.lance", rows=len(numbers)),)

    def append_as_stranger(self) -> None:
        self.table.append_as_stranger()

    def clean_all_but_the_latest(self) -> None:
        self.table.clean_all_but_the_latest()


@dataclass
class SimulatedWorld(World):
    table: SimulatedLance = field(default_factory=lambda: SimulatedLance(Scheduler(), DataFiles()))

    def port(self) -> SimulatedLance:
        return self.table

    def stage(self, *numbers: int) -> tuple[LanceFragment, ...]:
        name = f"{next(_names)}.lance"
        self.table.files.put(name, [(number, None) for number in numbers], self.table.layout)
        return (lance_fragment(name, rows=len(numbers)),)

    def append_as_stranger(self) -> None:
        self.table.append_as_stranger()

    def clean_all_but_the_latest(self) -> None:
        self.table.remove_history()


REAL = ("disk", "s3")
WORLDS = (*REAL, "fake", "simulated")


def make_world(name: str, folder: Path, request: pytest.FixtureRequest) -> World:
    if name == "fake":
        return FakeWorld()
    if name == "simulated":
        return SimulatedWorld()
    place = on_s3(folder, "lance", request.getfixturevalue("s3_server")) if name == "s3" else on_disk(folder, "lance")
    assert isinstance(place, LancePlace)
    return RealWorld(place)


def changed(fragment: LanceFragment, rows: int | None = None, **fields: Any) -> LanceFragment:
    (data_file,) = fragment.files
    return fragment.model_copy(
        update={
            "files": (data_file.model_validate({**data_file.model_dump(), **fields}),),
            "rows": fragment.rows if rows is None else rows,
        }
    )


def add_column(world: RealWorld) -> None:
    world.place.dataset().add_columns(pa.schema([("more", pa.string())]))

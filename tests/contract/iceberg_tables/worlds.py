"""The Iceberg port of the committer over real tables, of several catalogs on disk and in S3, and over the fakes."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from checkpoint_commit.iceberg.commit import IcebergState, IcebergTable
from checkpoint_commit.iceberg.table import PyicebergTable
from checkpoint_commit.outcomes import Landed
from checkpoint_formats.iceberg.stager import IcebergStager
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import IcebergFile, IcebergTarget
from tests.simulation.iceberg_port import IcebergPort
from tests.simulation.iceberg_table import SimulatedIceberg
from tests.simulation.scheduler import Scheduler
from tests.simulation.tables import DataFiles
from tests.support.places import IcebergPlace, on_disk, on_glue, on_s3
from tests.support.records import KEY, appended, iceberg_file
from tests.support.tables import FakeIceberg
from tests.support.writes import rows_of

OTHER = EpochKey("fedcba9876543210", 1)
SECOND = EpochKey(KEY.uid, 2)
_names = itertools.count()


def changed(file: IcebergFile, **fields: Any) -> IcebergFile:
    return IcebergFile.model_validate({**file.model_dump(), **fields})


class World(ABC):
    """One table, any number of committers, and strangers."""

    @abstractmethod
    def port(self) -> IcebergTable:
        """The port of one more committer."""

    @abstractmethod
    def stage(self, *numbers: int) -> tuple[IcebergFile, ...]:
        """Return staged files with these rows."""

    @abstractmethod
    def append_as_stranger(self) -> None: ...

    @abstractmethod
    def expire_all_but_the_head(self) -> None: ...

    def loaded(self, key: EpochKey = KEY) -> tuple[IcebergTable, IcebergState]:
        port = self.port()
        state = port.load(key)
        assert state is not None
        return port, state

    def commit(self, *numbers: int, key: EpochKey = KEY) -> int:
        port, state = self.loaded(key)
        landed = port.swap(state, key, appended(self.stage(*numbers)))
        assert isinstance(landed, Landed)
        return landed.commit_id


@dataclass
class RealWorld(World):
    place: IcebergPlace

    def port(self) -> PyicebergTable:
        return PyicebergTable(self.place.catalog, self.place.name, self.place.settings)

    def target(self) -> IcebergTarget:
        target = self.port().describe()
        assert target is not None
        return target

    def stage(self, *numbers: int) -> tuple[IcebergFile, ...]:
        return self.stage_batch(rows_of(numbers).to_batches()[0])

    def stage_batch(self, batch: pa.RecordBatch, target: IcebergTarget | None = None) -> tuple[IcebergFile, ...]:
        stager = IcebergStager(target or self.target(), KEY, "1-0", 1 << 20, self.place.settings.for_drivers())
        return stager.stage(iter([batch.cast(stager.arrow_schema)]))

    def append_as_stranger(self) -> None:
        self.place.append(rows_of([1_000_000]))

    def expire_all_but_the_head(self) -> None:
        table = self.place.table()
        head = table.current_snapshot()
        assert head is not None
        old = [snapshot.snapshot_id for snapshot in table.snapshots() if snapshot.snapshot_id != head.snapshot_id]
        table.maintenance.expire_snapshots().by_ids(old).commit()

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.place.rows())

    def create(
        self, schema: Schema, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC, properties: Mapping[str, str] = {}
    ) -> None:
        catalog = self.place.opened()
        catalog.create_namespace_if_not_exists(self.place.name.split(".")[0])
        catalog.create_table(self.place.name, schema, partition_spec=spec, properties=dict(properties))


@dataclass
class FakeWorld(World):
    table: FakeIceberg = field(default_factory=FakeIceberg)

    def port(self) -> FakeIceberg:
        return self.table

    def stage(self, *numbers: int) -> tuple[IcebergFile, ...]:
        return (iceberg_file(f"{next(_names)}.parquet", rows=len(numbers)),)

    def append_as_stranger(self) -> None:
        self.table.append_as_stranger()

    def expire_all_but_the_head(self) -> None:
        self.table.expire_all_but_the_head()


@dataclass
class SimulatedWorld(World):
    table: SimulatedIceberg = field(default_factory=lambda: SimulatedIceberg(Scheduler(), DataFiles()))

    def port(self) -> IcebergPort:
        return IcebergPort(self.table)

    def stage(self, *numbers: int) -> tuple[IcebergFile, ...]:
        staged = iceberg_file(f"{next(_names)}.parquet", rows=len(numbers))
        self.table.files.put(staged.path, [(number, None) for number in numbers], self.table.layout)
        return (changed(staged, size_bytes=self.table.files.size_of(staged.path)),)

    def append_as_stranger(self) -> None:
        self.table.append_as_stranger()

    def expire_all_but_the_head(self) -> None:
        self.table.remove_history()


REAL = ("sql-disk", "rest-disk", "sql-s3")
WORLDS = (*REAL, "glue-s3", "fake", "simulated")


def make_world(name: str, folder: Path, request: pytest.FixtureRequest) -> World:
    if name == "fake":
        return FakeWorld()
    if name == "simulated":
        return SimulatedWorld()
    if name == "sql-s3":
        place = on_s3(folder, "iceberg", request.getfixturevalue("s3_server"))
    elif name == "glue-s3":
        place = on_glue(folder, request.getfixturevalue("glue_server"), request.getfixturevalue("s3_server"))
    else:
        place = on_disk(folder, "iceberg", request.getfixturevalue("rest_catalog") if name == "rest-disk" else None)
    assert isinstance(place, IcebergPlace)
    return RealWorld(place)


def refused(world: RealWorld) -> str:
    with pytest.raises(NeedsChange) as caught:
        world.port().describe()
    assert caught.value.reason == reasons.TABLE_UNSUPPORTED, caught.value.message
    assert world.place.name in caught.value.message
    return caught.value.message


FLAT = Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))

"""An Iceberg table and writes that upsert into it, by the production loop with drivers in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from checkpoint_control.decision.actions import BeginStage, EndStage, Finish, Wait
from checkpoint_control.loop.reconcile import Reconciler, Round
from checkpoint_protocol import writes
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import IcebergPlace
from tests.support.writes import drive, manifest_for, reconciler_for

Row = tuple[int | None, str | None]
ARROW = pa.schema([("id", pa.int64()), ("text", pa.string())])
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "text", StringType(), required=False))
BY_TEXT = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="text"))
DELETE: dict[str, Any] = {"whenMatched": "Delete"}
IGNORE: dict[str, Any] = {"whenMatched": "Ignore"}
COPY_ON_WRITE: Mapping[str, str] = MappingProxyType({"write.merge.mode": "copy-on-write"})
#: Properties of tables, by the ways in which rows of them go.
WAYS: dict[str, Mapping[str, str]] = {"merge-on-read": MappingProxyType({}), "copy-on-write": COPY_ON_WRITE}


def rows_of(rows: Sequence[Row]) -> pa.Table:
    return pa.table([[number for number, _ in rows], [text for _, text in rows]], schema=ARROW)


def those(numbers: range, text: str) -> list[Row]:
    return [(number, text) for number in numbers]


@dataclass
class World:
    """A table, and writes that upsert into it. `properties`: what each table has that is made."""

    place: IcebergPlace
    folder: Path
    properties: Mapping[str, str] = field(default_factory=dict)
    numbers: count[int] = field(default_factory=lambda: count(1))

    def create(
        self, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC, properties: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        catalog = self.place.opened()
        catalog.create_namespace_if_not_exists(self.place.name.split(".")[0])
        catalog.create_table(self.place.name, SCHEMA, partition_spec=spec, properties={**self.properties, **properties})

    def manifest(self, *files: pa.Table, sink: dict[str, Any] | None = None, **spec: Any) -> CheckpointedWrite:
        number = next(self.numbers)
        folder = self.folder / str(number)
        folder.mkdir(parents=True)
        for name, rows in enumerate(files):
            pq.write_table(rows, folder / f"{name}.parquet")
        upsert = {"mode": "Upsert", "upsertKeys": ["id"], **(sink or {})}
        return manifest_for(self.place, folder, name=f"write-{number}", sink=upsert, **spec)

    def begin(self, *files: pa.Table, sink: dict[str, Any] | None = None, **spec: Any) -> Reconciler:
        return reconciler_for(self.manifest(*files, sink=sink, **spec), self.place)

    def upsert(self, *files: pa.Table, sink: dict[str, Any] | None = None, **spec: Any) -> Round:
        done = drive(self.begin(*files, sink=sink, **spec))
        assert isinstance(done.outcome, Finish), done.outcome
        return done

    def rows(self) -> list[Row]:
        return sorted(((row["id"], row["text"]) for row in self.place.rows()), key=repr)

    def said(self) -> tuple[str, dict[str, str]]:
        """Return the head's operation and what else its summary says."""
        head = self.place.table().current_snapshot()
        assert head is not None
        assert head.summary is not None
        return head.summary.operation.value, head.summary.additional_properties

    def delete_files(self) -> list[DataFile]:
        table = self.place.table()
        head = table.current_snapshot()
        assert head is not None
        return [
            entry.data_file
            for manifest in head.manifests(table.io)
            if manifest.content == ManifestContent.DELETES
            for entry in manifest.fetch_manifest_entry(table.io)
        ]


def step_until(reconciler: Reconciler, kind: type[BeginStage | EndStage]) -> str:
    """Run rounds up to one that begins, or ends, a stage; return the stage's name."""
    for _ in range(2_000):
        done = reconciler.step()
        assert done.outcome is None, done.outcome
        found = next((action for action in done.actions if isinstance(action, kind)), None)
        if found is not None:
            return found.name
        if isinstance(done.actions[-1], Wait) and isinstance(reconciler.observer.drivers, DirectDrivers):
            reconciler.observer.drivers.wait_a_moment()
    raise AssertionError("no such round")


def stages_of(reconciler: Reconciler) -> list[Ledger]:
    ledger = reconciler.observer.current_ledger
    return [Ledger(ledger.store, key) for key in writes.list_stages(ledger.store, EpochKey(ledger.key.uid, ledger.key.epoch))]

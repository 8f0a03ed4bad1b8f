"""The data files that are left: rolled near the target size, none for nothing, and only those that seals name in the table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checkpoint_control.decision.actions import Finish
from tests.support.checks import assert_exactly_once
from tests.support.places import IcebergPlace, LancePlace, Place
from tests.support.slow import slow_except_on
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for

ROWS = 60_000
TARGET_BYTES = 256 << 10


def sizes(place: Place) -> list[int]:
    if isinstance(place, IcebergPlace):
        return [task.file.file_size_in_bytes for task in place.table().scan().plan_files()]
    assert isinstance(place, LancePlace)
    return [(Path(place.uri) / "data" / name).stat().st_size for name in place.data_files()]


@slow_except_on("disk_place", "lance-disk")
def test_files_are_rolled_near_the_target_size_of_real_bytes(disk_place: Place, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    noise = [rng.bytes(40).hex() for _ in range(ROWS)]  # cannot be compressed below half
    source = tmp_path / "in"
    source.mkdir()
    pq.write_table(pa.table({"id": range(ROWS), "text": noise}, schema=SCHEMA), source / "a.parquet")
    disk_place.create(SCHEMA)
    sink = {**disk_place.sink(), "targetFileSize": "256Ki"}

    ended = drive(reconciler_for(manifest_for(disk_place, source, sink=sink), disk_place))

    assert isinstance(ended.outcome, Finish)
    assert_exactly_once(disk_place, range(ROWS))
    found = sorted(sizes(disk_place))
    whole = found[len(found) // 2 :]  # each task ends with a smaller one
    assert len(found) > 6  # 12 files of the target size; Lance ends one after a batch, which grows with the speed
    assert all(TARGET_BYTES * 0.5 < size < TARGET_BYTES * 2.5 for size in whole), found


def test_output_that_compresses_well_is_rolled_by_written_bytes(tmp_path: Path, iceberg_place: Place) -> None:
    source = tmp_path / "in"
    source.mkdir()
    pq.write_table(pa.table({"id": range(ROWS), "text": ["always the same"] * ROWS}, schema=SCHEMA), source / "a.parquet")
    iceberg_place.create(SCHEMA)
    sink = {**iceberg_place.sink(), "targetFileSize": "256Ki"}

    drive(reconciler_for(manifest_for(iceberg_place, source, sink=sink), iceberg_place))

    # In memory it is 1.6 MB; as Parquet each task's part is less than one file.
    assert len(sizes(iceberg_place)) <= 6

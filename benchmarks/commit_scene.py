"""Writes whose tasks have all sealed, of any number of files, and the same files for pyiceberg: the scene of the commit figures.

    python -m benchmarks.commit_scene FOLDER COUNT      sets one on disk for another process, and prints its uid and table

Staged files are real Parquet files, many names for one content. Each has a seal of its own (the worst case), in tasks of a
hundred. The driver's bundles are made here, as a driver makes them while it runs.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pydantic import SecretStr
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record as PartitionRecord

from checkpoint_commit.catalogs.named import open_catalog
from checkpoint_commit.sinks.registry import open_sink
from checkpoint_formats.iceberg.stager import IcebergStager
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.places.settings import Settings, SqlCatalogSettings
from checkpoint_protocol.places.storage import StorageEntry, StorageSettings
from checkpoint_protocol.records import (
    FieldMetrics,
    IcebergFile,
    IcebergTarget,
    InputRecord,
    PlanRecord,
    PositionsCovered,
    Seal,
    encode,
)
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.store.object_store import open_store
from checkpoint_work.driver.bundling import Bundler
from devtools.ports import free_port
from devtools.s3_server import S3Server
from tests.support.records import launch

DELAY_S = 0.05
#: In the folder of a slow rig: see slow_proxy.
TRACE = "requests"
_LINKS = 100
#: A file system has a limit of names for one file.
_MOST_LINKS = 10_000
ROWS = 100
_SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "key": pa.string(),
        "at": pa.timestamp("us", "UTC"),
        "kind": pa.string(),
        "value": pa.float64(),
        "text": pa.string(),
    }
)


@dataclass
class Rig:
    """A place for tables and checkpoints. `base` is what the measured code is given, `folder` the same on disk."""

    name: str
    base: str
    folder: Path
    settings: Settings
    #: Without delay, to set the scene.
    fast: StorageSettings

    def table(self, name: str) -> Table:
        catalog = open_catalog("bench", self.settings)
        catalog.create_namespace_if_not_exists("b")
        return catalog.create_table(f"b.{name}", _SCHEMA)


@dataclass(frozen=True)
class Staged:
    """A write whose tasks have all sealed, and the same files for pyiceberg."""

    key: EpochKey
    table: str
    files: list[DataFile]


def local_rig(folder: Path) -> Rig:
    settings = Settings(catalogs={"bench": SqlCatalogSettings(uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/w")})
    return Rig("local", f"file://{folder}", folder, settings, settings)


@contextmanager
def local(work: Path) -> Iterator[Rig]:
    folder = work / "local"
    folder.mkdir()
    yield local_rig(folder)


@contextmanager
def slow(work: Path) -> Iterator[Rig]:
    with S3Server(work / "s3") as server:
        bucket = server.make_bucket("bench")
        port = free_port()
        target = server.endpoint.rpartition(":")[2]
        proxy = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.slow_proxy", str(port), target, str(DELAY_S), str(work / TRACE)]
        )
        try:
            time.sleep(1)
            fast, slowed = (
                StorageEntry(
                    prefix=f"s3://{bucket}/",
                    endpoint=endpoint,
                    region=server.region,
                    access_key_id=SecretStr(server.access_key),
                    secret_access_key=SecretStr(server.secret_key),
                )
                for endpoint in (server.endpoint, f"http://127.0.0.1:{port}")
            )
            catalog = SqlCatalogSettings(uri=f"sqlite:///{work}/c.db", warehouse=f"s3://{bucket}/w")
            settings = Settings(catalogs={"bench": catalog}, storage=(slowed,))
            folder = work / "s3" / "objects" / bucket
            yield Rig("50 ms a request", f"s3://{bucket}", folder, settings, StorageSettings(storage=(fast,)))
        finally:
            proxy.terminate()
            proxy.wait()


def stage_one(key: EpochKey, target: IcebergTarget, settings: Settings) -> IcebergFile:
    """Write one data file as a task does."""
    stager = IcebergStager(target, key, "1-0", 1 << 20, settings)
    rows = range(ROWS)
    batch = pa.RecordBatch.from_pydict(
        {
            "id": list(rows),
            "key": [f"{row:016x}" for row in rows],
            "at": [1_700_000_000_000_000 + row for row in rows],
            "kind": [str(row % 20) for row in rows],
            "value": [row / 7 for row in rows],
            "text": [f"{row:060x}" for row in rows],
        },
        schema=stager.arrow_schema,
    )
    (file,) = stager.stage(iter([batch]))
    return file


def set_the_scene(rig: Rig, count: int) -> Staged:
    """Do what a driver and its tasks do: plan, stage, seal, bundle. Each file has a name of its own, and all one content."""
    key = EpochKey(secrets.token_hex(8), 1)
    name = f"ours_{key.uid}"
    rig.table(name)
    sink = open_sink(Sink.model_validate({"iceberg": {"catalog": "bench", "table": f"b.{name}"}}), rig.settings)
    target = sink.describe(key)
    assert isinstance(target, IcebergTarget)
    fast = rig.settings.model_copy(update={"storage": rig.fast.storage})
    first = stage_one(key, target, fast)
    folder, _, _ = first.path.rpartition("/")
    on_disk = rig.folder / first.path.removeprefix(rig.base + "/")
    names = [f"1-1-{number // _LINKS}-{new_token()}.parquet" for number in range(count)]
    for number, file in enumerate(names):
        if number % _MOST_LINKS == 0:
            copied = shutil.copyfile(on_disk, on_disk.parent / file)
        else:
            os.link(copied, on_disk.parent / file)
    ledger = Ledger(open_store(f"{rig.base}/checkpoints", fast), key)
    ledger.attempts.put_launch(launch(target=target))
    source = SourceFile(path="/in", etag="e", size_bytes=1, unit="rows", start=0, end=count)
    ledger.inputs.put_input(InputRecord(token=new_token(), files=(source,), arrow_schema=""))
    starts = range(0, count, _LINKS)
    tasks = tuple((Range(file=0, start=start, end=min(start + _LINKS, count)),) for start in starts)
    plan = ledger.plans.put_plan(PlanRecord(token=new_token(), attempt=1, tasks=tasks, done_files=0, done_rows=0))

    def put(number: int) -> None:
        seal = Seal(
            token=new_token(),
            attempt=1,
            task=number // _LINKS,
            link=number % _LINKS,
            covered=PositionsCovered(ranges=(Range(file=0, start=number, end=number + 1),)),
            rows_read=1,
            rows_written=ROWS,
            code_digest="d" * 64,
            files=(first.model_copy(update={"path": f"{folder}/{names[number]}"}),),
            last=number % _LINKS == _LINKS - 1 or number == count - 1,
        )
        path = ledger.at.seal(1, seal.task, seal.link)
        if rig.name == "local":  # as the store does it, without its fuss about files that may be there
            file = rig.folder / "checkpoints" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(encode(seal))
        else:
            ledger.seals.put_seal(seal)

    ledger.map_all(put, range(count))
    Bundler(ledger, 1, plan.token).bundle(32)
    files = [as_pyiceberg_has_it(first, f"{folder}/{file}") for file in names]
    return Staged(key, name, files)


def as_pyiceberg_has_it(file: IcebergFile, path: str) -> DataFile:
    """Return the object that pyiceberg's own writer would have made."""
    metrics = [FieldMetrics(*stored) for stored in file.metrics]
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=PartitionRecord(),
        record_count=file.rows,
        file_size_in_bytes=file.size_bytes,
        column_sizes={m.field_id: m.column_size for m in metrics if m.column_size is not None},
        value_counts={m.field_id: m.value_count for m in metrics if m.value_count is not None},
        null_value_counts={m.field_id: m.null_count for m in metrics if m.null_count is not None},
        nan_value_counts={m.field_id: m.nan_count for m in metrics if m.nan_count is not None},
        lower_bounds={m.field_id: b64decode(m.lower) for m in metrics if m.lower is not None},
        upper_bounds={m.field_id: b64decode(m.upper) for m in metrics if m.upper is not None},
        split_offsets=list(file.split_offsets) or None,
        key_metadata=None,
        equality_ids=None,
        sort_order_id=None,
    )
    made.spec_id = file.spec_id
    return made


def remove(rig: Rig) -> None:
    shutil.rmtree(rig.folder / "checkpoints", ignore_errors=True)
    shutil.rmtree(rig.folder / "w", ignore_errors=True)


def main() -> None:
    folder, count = sys.argv[1:]
    staged = set_the_scene(local_rig(Path(folder)), int(count))
    print(staged.key.uid, staged.table)


if __name__ == "__main__":
    main()

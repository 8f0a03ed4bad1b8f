"""Closing and committing many staged files, against pyiceberg's own append of the same files.

    python -m benchmarks.commit_files [--counts 1 1000 100000] [--places local slow] [--pairs N] [--memory]

Ours is timed from "the last seal is put" to "the snapshot is in the table": a process that knows nothing closes the attempt,
gathers its seals, looks whether the staged files are there with their sizes, and commits. pyiceberg's is timed from the opening
of the table; it gets the files as objects that were made beforehand. Interleaved A B A B after one warm-up of each; the files and
the rows of both tables are compared before times count. Each file has a seal of its own (the worst case), in tasks of a hundred;
the driver's bundles are made before, as a driver makes them while it runs. `--without-bundles`: as if every driver had died
early.

`slow`: everything lies in an S3 server behind a proxy that lets each request wait for 50 ms; the catalog is a file. Staged files
are real Parquet files, many names for one content.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import SecretStr
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record as PartitionRecord

from checkpoint_operator.catalogs import open_catalog
from checkpoint_operator.commit.outcomes import Committed
from checkpoint_operator.commit.results import gather
from checkpoint_operator.sinks import open_sink
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest import Sink
from checkpoint_protocol.positions import Range
from checkpoint_protocol.records import (
    FieldMetrics,
    IcebergFile,
    IcebergTarget,
    InputRecord,
    PlanRecord,
    PositionsCovered,
    Seal,
    SourceFile,
    encode,
)
from checkpoint_protocol.settings import CatalogSettings, Settings
from checkpoint_protocol.storage import StorageEntry, StorageSettings
from checkpoint_protocol.store import open_store
from checkpoint_spark.bundling import Bundler
from checkpoint_spark.formats.iceberg import IcebergStager
from tests.services.ports import free_port
from tests.services.s3_server import S3Server
from tests.support.records import launch

RESULTS = Path(__file__).parent / "results.json"
TARGETS = {1: 1.5, 1_000: 1.2, 100_000: 0.5}
MEMORY_TARGET_MB = 64
DELAY_S = 0.05
LINKS = 100
#: A file system has a limit of names for one file.
_MOST_LINKS = 10_000
ROWS = 100
SCHEMA = pa.schema(
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
        return catalog.create_table(f"b.{name}", SCHEMA)


@dataclass(frozen=True)
class Staged:
    """A write whose tasks have all sealed, and the same files for pyiceberg."""

    key: EpochKey
    table: str
    files: list[DataFile]


def local_rig(folder: Path) -> Rig:
    settings = Settings(
        catalogs={"bench": CatalogSettings(type="sql", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/w")}
    )
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
        proxy = subprocess.Popen([sys.executable, "-m", "benchmarks.slow_proxy", str(port), target, str(DELAY_S)])
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
            catalog = CatalogSettings(type="sql", uri=f"sqlite:///{work}/c.db", warehouse=f"s3://{bucket}/w")
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


def set_the_scene(rig: Rig, count: int, with_bundles: bool) -> Staged:
    """Do what a driver and its tasks do: plan, stage, seal, bundle. Each file has a name of its own, and all one content."""
    key = EpochKey(secrets.token_hex(8), 1)
    name = f"ours_{key.uid}"
    rig.table(name)
    sink = open_sink(Sink.model_validate({"iceberg": {"catalog": "bench", "table": f"b.{name}"}}), rig.settings)
    target = sink.describe()
    assert isinstance(target, IcebergTarget)
    fast = rig.settings.model_copy(update={"storage": rig.fast.storage})
    first = stage_one(key, target, fast)
    folder, _, _ = first.path.rpartition("/")
    on_disk = rig.folder / first.path.removeprefix(rig.base + "/")
    names = [f"1-1-{number // LINKS}-{new_token()}.parquet" for number in range(count)]
    for number, file in enumerate(names):
        if number % _MOST_LINKS == 0:
            copied = shutil.copyfile(on_disk, on_disk.parent / file)
        else:
            os.link(copied, on_disk.parent / file)
    ledger = Ledger(open_store(f"{rig.base}/checkpoints", fast), key)
    ledger.put_launch(launch(target=target))
    source = SourceFile(path="/in", etag="e", size_bytes=1, unit="rows", start=0, end=count)
    ledger.put_input(InputRecord(token=new_token(), files=(source,), arrow_schema=""))
    starts = range(0, count, LINKS)
    tasks = tuple((Range(file=0, start=start, end=min(start + LINKS, count)),) for start in starts)
    plan = ledger.put_plan(PlanRecord(token=new_token(), attempt=1, tasks=tasks, done_files=0, done_rows=0))

    def put(number: int) -> None:
        seal = Seal(
            token=new_token(),
            attempt=1,
            task=number // LINKS,
            link=number % LINKS,
            covered=PositionsCovered(ranges=(Range(file=0, start=number, end=number + 1),)),
            rows_read=1,
            rows_written=ROWS,
            code_digest="d" * 64,
            files=(first.model_copy(update={"path": f"{folder}/{names[number]}"}),),
            last=number % LINKS == LINKS - 1 or number == count - 1,
        )
        path = ledger.at.seal(1, seal.task, seal.link)
        if rig.name == "local":  # as the store does it, without its fuss about files that may be there
            file = rig.folder / "checkpoints" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(encode(seal))
        else:
            ledger.put_seal(seal)

    ledger.ask_all(put, range(count))
    if with_bundles:
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


def ours(rig: Rig, staged: Staged) -> dict[str, float]:
    """Close, gather and commit, as a process that comes anew."""
    started = time.perf_counter()
    ledger = Ledger(open_store(f"{rig.base}/checkpoints", rig.settings), staged.key)
    sink = open_sink(Sink.model_validate({"iceberg": {"catalog": "bench", "table": f"b.{staged.table}"}}), rig.settings)
    assert ledger.close(1).complete
    closed = time.perf_counter()
    results = gather(ledger, 1, sink.pack)
    gathered = time.perf_counter()
    outcome = sink.commit(ledger, results)
    ended = time.perf_counter()
    assert isinstance(outcome, Committed), outcome
    assert outcome.by_us
    return {"close": closed - started, "gather": gathered - closed, "commit": ended - gathered, "all": ended - started}


def theirs(rig: Rig, name: str, files: list[DataFile]) -> float:
    started = time.perf_counter()
    table = open_catalog("bench", rig.settings).load_table(f"b.{name}")
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)
    return time.perf_counter() - started


def fingerprint(rig: Rig, name: str) -> tuple[int, int, int]:
    """Return how many files and rows a table's snapshot names, and a sum over their names."""
    table = open_catalog("bench", rig.settings).load_table(f"b.{name}")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    paths: set[str] = set()
    rows = 0
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io):
            paths.add(entry.data_file.file_path)
            rows += entry.data_file.record_count
    return len(paths), rows, sum(hash(path) for path in paths)


def compare(rig: Rig, count: int, pairs: int, with_bundles: bool) -> dict[str, Any]:
    times: dict[str, list[float]] = {name: [] for name in ("pyiceberg", "ours", "close", "gather", "commit")}
    for number in range(pairs + 1):
        staged = set_the_scene(rig, count if number else min(count, 100), with_bundles)
        bare = f"bare_{staged.key.uid}"
        rig.table(bare)
        gc.collect()
        gc.freeze()  # the objects that were made for pyiceberg are nobody's load
        theirs_s = theirs(rig, bare, staged.files)
        took = ours(rig, staged)
        gc.unfreeze()
        found, expected = fingerprint(rig, staged.table), fingerprint(rig, bare)
        assert found == expected, f"the outputs differ: {found} and {expected}"
        assert found[:2] == (len(staged.files), ROWS * len(staged.files))
        if number:
            times["pyiceberg"].append(round(theirs_s, 4))
            for name in ("close", "gather", "commit"):
                times[name].append(round(took[name], 4))
            times["ours"].append(round(took["all"], 4))
            print(
                f"{rig.name}, {count:,} files, pair {number}: pyiceberg {theirs_s:.3f} s, ours {took['all']:.3f} s (close "
                f"{took['close']:.3f}, gather {took['gather']:.3f}, commit {took['commit']:.3f}), ratio "
                f"{took['all'] / theirs_s:.2f}",
                flush=True,
            )
        remove(rig)
    ratios = [mine / other for mine, other in zip(times["ours"], times["pyiceberg"], strict=True)]
    alone = [
        (gather + commit) / other
        for gather, commit, other in zip(times["gather"], times["commit"], times["pyiceberg"], strict=True)
    ]
    bundles = "" if with_bundles else ", no bundles"
    return {
        "figure": f"close and commit of {count:,} staged files, {rig.name}{bundles} / pyiceberg fast_append",
        "ratio": round(statistics.median(ratios), 3),
        "ratio_without_closing": round(statistics.median(alone), 3),
        "target": TARGETS.get(count),
        "pairs": len(ratios),
        "raw_s": times,
        "machine": machine(),
    }


def remove(rig: Rig) -> None:
    shutil.rmtree(rig.folder / "checkpoints", ignore_errors=True)
    shutil.rmtree(rig.folder / "w", ignore_errors=True)


def machine() -> dict[str, Any]:
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return {
        "cores": cores,
        "python": platform.python_version(),
        "system": platform.system(),
        "load": round(load, 1),
        **({"note": "others were using the machine"} if load > 2 * cores else {}),
    }


# --- memory ---------------------------------------------------------------------------------------------------------------


def peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def measure_memory(count: int) -> None:
    """Print how much the peak of a process grows by a commit, after a small one."""
    with tempfile.TemporaryDirectory(prefix="checkpointed-writes-bench-") as folder:
        rig = local_rig(Path(folder))
        ours(rig, set_the_scene(rig, 10, True))
        scene = [sys.executable, "-m", "benchmarks.commit_files", "--scene", folder, str(count)]
        uid, table = subprocess.run(scene, stdout=subprocess.PIPE, check=True).stdout.decode().split()
        before = peak_mb()
        took = ours(rig, Staged(EpochKey(uid, 1), table, []))
        grown = round(peak_mb() - before, 1)
    print(
        f"{count:,} files: {before:.0f} MB before, {grown} MB more at the peak; to reach: {MEMORY_TARGET_MB}; {took['all']:.2f} s"
    )
    record(
        {
            "figure": f"memory of close and commit of {count:,} staged files, over that of a small commit (MB)",
            "ratio": grown,
            "target": MEMORY_TARGET_MB,
            "pairs": 1,
            "machine": machine(),
        }
    )


def record(result: dict[str, Any]) -> None:
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    kept = [entry for entry in known if entry["figure"] != result["figure"]]
    RESULTS.write_text(json.dumps([*kept, result], indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--counts", type=int, nargs="+", default=list(TARGETS))
    parser.add_argument("--places", nargs="+", choices=("local", "slow"), default=["local", "slow"])
    parser.add_argument("--pairs", type=int, help="for each count (else 15, 7 and 5)")
    parser.add_argument("--without-bundles", action="store_true")
    parser.add_argument("--memory", action="store_true", help="measure memory only, with the largest of the counts")
    parser.add_argument("--scene", nargs=2, metavar=("FOLDER", "COUNT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.scene:
        rig = local_rig(Path(arguments.scene[0]))
        staged = set_the_scene(rig, int(arguments.scene[1]), True)
        print(staged.key.uid, staged.table)
        return
    if arguments.memory:
        measure_memory(max(arguments.counts))
        return
    work = Path(tempfile.mkdtemp(prefix="checkpointed-writes-bench-"))
    try:
        for place in arguments.places:
            with {"local": local, "slow": slow}[place](work) as rig:
                for count in arguments.counts:
                    pairs = arguments.pairs or (15 if count < 1_000 else 7 if count < 100_000 else 5)
                    result = compare(rig, count, pairs, not arguments.without_bundles)
                    print(f"{result['figure']}: {result['ratio']}; to reach: {result['target']}", flush=True)
                    record(result)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()

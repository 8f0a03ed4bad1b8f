"""Close and commit many staged files, against pyiceberg's own append of the same files.

Ours is timed from "the last seal is put" to "the snapshot is in the table": a process that knows nothing closes the attempt,
gathers its seals, looks whether the staged files are there with their sizes, and commits. pyiceberg's is timed from the opening
of the table; it gets the files as objects that were made beforehand.

On disk, and with everything on an S3 server behind a proxy that lets each request wait for 50 ms; the catalog is a file.
Spark's Iceberg appends the same files too (see commit_spark.py).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from benchmarks.bench import Bench
from benchmarks.commit_scene import ROWS, Rig, Staged, local, remove, set_the_scene, slow
from benchmarks.commit_spark import SparkCommits, spark_for_commits
from benchmarks.pairs import OutputsDiffer
from benchmarks.results import Result, result_of
from checkpoint_commit.catalogs.named import open_catalog
from checkpoint_commit.outcomes import Committed
from checkpoint_commit.results import gather
from checkpoint_commit.sinks.registry import open_sink
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.store.object_store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TARGETS: Final = {1: 1.5, 1_000: 1.2, 100_000: 0.5}
_FEW: Final = (1, 1_000)
_MANY: Final = 100_000
_SMALL: Final = (1, 50)
_STEPS: Final = ("close", "gather", "commit")


def measure(bench: Bench) -> Iterator[Result]:
    """Commit few files, in both places."""
    with ExitStack() as stack:
        rigs = {
            suffix: stack.enter_context(place(_folder(bench, place.__name__))) for place, suffix in ((local, ""), (slow, "-50ms"))
        }
        spark = stack.enter_context(spark_for_commits(_folder(bench, "spark"), bench.cores))
        for count in _SMALL if bench.small else _FEW:
            # What takes milliseconds is asked more often.
            rounds = bench.rounds * (3 if count < 1_000 and not bench.small else 1)
            for suffix, rig in rigs.items():
                yield from _compare(bench, rig, count, rounds, suffix, spark)


def measure_many(bench: Bench) -> Iterator[Result]:
    """Commit many files on disk."""
    with local(_folder(bench, "local")) as rig, spark_for_commits(_folder(bench, "spark"), bench.cores) as spark:
        yield from _compare(bench, rig, _SMALL[-1] if bench.small else _MANY, bench.rounds, "", spark)


def measure_many_slowly(bench: Bench) -> Iterator[Result]:
    """Commit many files where each request waits. Setting the scene takes most of the time."""
    with slow(_folder(bench, "slow")) as rig, spark_for_commits(_folder(bench, "spark"), bench.cores) as spark:
        yield from _compare(bench, rig, _SMALL[-1] if bench.small else _MANY, bench.rounds, "-50ms", spark)


def _folder(bench: Bench, name: str) -> Path:
    folder = bench.folder / name
    folder.mkdir()
    return folder


def _compare(bench: Bench, rig: Rig, count: int, rounds: int, suffix: str, spark: SparkSession) -> Iterator[Result]:
    times: dict[str, list[float]] = {name: [] for name in ("pyiceberg", "ours", *_STEPS, "spark")}
    commits = SparkCommits(spark, rig)
    for number in range(rounds + 1):
        is_warm_up = number == 0
        staged = set_the_scene(rig, min(count, 100) if is_warm_up else count)
        bare = f"bare_{staged.key.uid}"
        rig.table(bare)
        gc.collect()
        gc.freeze()  # the objects that were made for pyiceberg are nobody's load
        took = {"pyiceberg": _theirs(rig, bare, staged.files), **ours(rig, staged)}
        gc.unfreeze()
        left = {
            name: open_catalog("bench", rig.settings).load_table(f"b.{table}")
            for name, table in (("ours", staged.table), ("pyiceberg", bare))
        }
        took["spark"], left["spark"] = commits.append(left["pyiceberg"])
        found = {name: _fingerprint(table) for name, table in left.items()}
        if len(set(found.values())) > 1 or found["ours"][:2] != (len(staged.files), ROWS * len(staged.files)):
            raise OutputsDiffer(f"of {len(staged.files)} files of {ROWS} rows are there (files, rows, names): {found}")
        remove(rig)
        told = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in took.items())
        bench.say(f"{rig.name}, {count:,} files, {f'round {number}' if number else 'warm-up'}: {told}")
        if not is_warm_up:
            for name, seconds in took.items():
                times[name].append(round(seconds, 4))
    about = f"close and commit of {count:,} staged files, {rig.name} / "
    target = _TARGETS.get(count, 1.5)
    yield result_of(f"commit-{count}{suffix}", f"{about}pyiceberg's fast append", times, "ours", "pyiceberg", target)
    yield result_of(f"commit-{count}{suffix}-spark", f"{about}the commit of Spark's Iceberg", times, "ours", "spark", target)


def ours(rig: Rig, staged: Staged) -> dict[str, float]:
    """Close, gather and commit, as a process that comes anew."""
    started = time.perf_counter()
    ledger = Ledger(open_store(f"{rig.base}/checkpoints", rig.settings), staged.key)
    sink = open_sink(Sink.model_validate({"iceberg": {"catalog": "bench", "table": f"b.{staged.table}"}}), rig.settings)
    assert ledger.chains.close(1).complete
    closed = time.perf_counter()
    results = gather(ledger, 1, sink.pack)
    gathered = time.perf_counter()
    outcome = sink.commit(ledger, results)
    ended = time.perf_counter()
    assert isinstance(outcome, Committed), outcome
    assert outcome.by_us
    return {"close": closed - started, "gather": gathered - closed, "commit": ended - gathered, "ours": ended - started}


def _theirs(rig: Rig, name: str, files: list[DataFile]) -> float:
    started = time.perf_counter()
    table = open_catalog("bench", rig.settings).load_table(f"b.{name}")
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)
    return time.perf_counter() - started


def _fingerprint(table: Table) -> tuple[int, int, int]:
    """Return how many files and rows a table's snapshot names, and a sum over their names."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    paths: set[str] = set()
    rows = 0
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io):
            paths.add(entry.data_file.file_path)
            rows += entry.data_file.record_count
    return len(paths), rows, sum(hash(path) for path in paths)

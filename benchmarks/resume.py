"""Kill the driver when a part of the rows is sealed, and time what is left: against a full run, in time and in input bytes.

The runner stays and starts the next driver by itself. Driver and executor are killed together, as they are where a pod dies.
From each time its own driver start is taken off: what it takes Python to import the driver, measured right before, and what
Spark takes from the plan, which is put just before, to the first task. Planning what is left is no start-up, and counts.

The input lies on an S3 server behind a proxy that counts what is fetched, footers and all; store and table lie on disk. The part
that is sealed when the driver is dead is a little more than what was waited for; targets are set by that part.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import obstore
from pydantic import SecretStr

from benchmarks import outputs, paces
from benchmarks.bench import Bench
from benchmarks.checkpointed import Lake, iceberg
from benchmarks.counting import CountingProxy
from benchmarks.inputs import Input
from benchmarks.killing import Killer
from benchmarks.pairs import OutputsDiffer, ratio_of
from benchmarks.results import Result, with_ratio
from checkpoint_control.decision.actions import Finish, StartDriver
from checkpoint_local.runner import Report, Runner, identify
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.places.storage import StorageEntry
from checkpoint_protocol.store.object_store import open_store
from devtools.s3_server import S3Server

_PARTS: Final = (0.10, 0.50, 0.90, 0.99)
_TIME_SLACK: Final = 0.03
_BYTES_SLACK: Final = 0.05
_ROW_US: Final = 20
_TRIES: Final = 5
#: Often enough that the last percent is still several seals.
_CHECKPOINT: Final = {"interval": "0.1s", "minimumBytes": "1"}
_BUCKET: Final = "input"


@dataclass(frozen=True, slots=True)
class Rest:
    """A run, or the rest of one: seconds from its beginning (or the kill) to its mark, and what a driver start was of them."""

    sealed: float
    whole_s: float
    driver_start_s: float
    input_bytes: int

    @property
    def seconds(self) -> float:
        return self.whole_s - self.driver_start_s


class TooLate(Exception):
    """Everything was sealed before the driver was dead."""


def measure(bench: Bench) -> Iterator[Result]:
    os.environ["XDG_STATE_HOME"] = str(bench.folder / "state")
    source = bench.input(2_000_000, small_rows=160_000, group_rows=2_000 if bench.small else 16_384)
    expected = outputs.of_files(source.files)
    parts = (0.5,) if bench.small else _PARTS
    full: list[Rest] = []
    rests: dict[float, list[Rest]] = {part: [] for part in parts}
    with S3Server(bench.folder / "s3") as server, CountingProxy(server.endpoint) as proxy:
        lake = Lake(bench.folder / "lake", (_upload(source, server, proxy),))
        for number in range(1 - bench.warm_ups, bench.rounds + 1):
            for part in (1.0, *parts) if number > 0 else (1.0,):
                rest = _until_it_works(bench, source, lake, proxy, part, expected)
                told = "full run" if part == 1.0 else f"killed at {rest.sealed:.1%}: the rest"
                bench.say(
                    f"round {number}: {told} {rest.seconds:.2f} s and a driver start of {rest.driver_start_s:.2f} s, "
                    f"{rest.input_bytes:,} bytes read"
                )
                if number > 0:
                    (full if part == 1.0 else rests[part]).append(rest)
    yield from _results(source, full, rests)


def _results(source: Input, full: list[Rest], rests: dict[float, list[Rest]]) -> Iterator[Result]:
    full_s = [round(rest.seconds, 3) for rest in full]
    full_bytes = [rest.input_bytes for rest in full]
    for part, some in rests.items():
        sealed = statistics.median(rest.sealed for rest in some)
        start_s = statistics.median(rest.driver_start_s for rest in some)
        rest_s = [round(rest.seconds, 3) for rest in some]
        more_s = statistics.median(rest.seconds - (1 - rest.sealed) * statistics.median(full_s) for rest in some)
        raw = {
            "sealed": [round(rest.sealed, 5) for rest in some],
            "seconds": {"full": full_s, "rest": rest_s},
            "driver_start_seconds": {
                "full": [round(rest.driver_start_s, 3) for rest in full],
                "rest": [round(rest.driver_start_s, 3) for rest in some],
            },
            "input_bytes": {"full": full_bytes, "rest": [rest.input_bytes for rest in some]},
        }
        name = f"resume-{round(part * 100)}"
        what = f"driver killed with {part:.0%} of {source.rows:,} rows sealed ({_ROW_US} us a row)"
        yield with_ratio(
            name,
            f"{what}: time of the rest / full run, without driver starts",
            ratio_of(rest_s, full_s),
            1 - sealed + _TIME_SLACK,
            len(some),
            raw=raw,
            seen=[
                f"{sealed:.2%} were sealed when the driver was dead (median); a driver start, {start_s:.2f} s, is taken off",
                f"it took {more_s:.2f} s more than its share of a full run of {statistics.median(full_s):.1f} s (medians)",
            ],
        )
        yield with_ratio(
            f"{name}-bytes",
            f"{what}: input bytes read after it / by a full run",
            ratio_of([rest.input_bytes for rest in some], full_bytes),
            1 - sealed + _BYTES_SLACK,
            len(some),
        )


def _upload(source: Input, server: S3Server, proxy: CountingProxy) -> StorageEntry:
    store = server.store(server.make_bucket(_BUCKET))
    for file in source.files:
        obstore.put(store, file.name, file)
    return StorageEntry(
        prefix=f"s3://{_BUCKET}/",
        endpoint=proxy.endpoint,
        region=server.region,
        access_key_id=SecretStr(server.access_key),
        secret_access_key=SecretStr(server.secret_key),
    )


def _until_it_works(
    bench: Bench, source: Input, lake: Lake, proxy: CountingProxy, part: float, expected: outputs.Content
) -> Rest:
    for _ in range(_TRIES):
        table = lake.make_table(source.schema)
        log = bench.folder / f"step-{time.monotonic_ns()}.log"
        manifest = lake.manifest(
            f"s3://{_BUCKET}/",
            iceberg(table),
            dict(_CHECKPOINT),
            steps=[paces.step(_ROW_US, log)],
            code={"path": str(paces.CODE)},
        )
        try:
            rest = _run(bench, source, lake, proxy, part, manifest, log)
        except TooLate:
            bench.say(f"the driver was done before it could be killed at {part:.0%}; once more")
            continue
        found = outputs.of_iceberg(table)
        if found != expected:
            raise OutputsDiffer(f"after a kill at {part:.0%} the table holds {found}, and expected was {expected}")
        shutil.rmtree(table.location().removeprefix("file://"))
        return rest
    raise TooLate(f"{_TRIES} times everything was sealed before the driver was dead")


def _run(
    bench: Bench, source: Input, lake: Lake, proxy: CountingProxy, part: float, manifest: CheckpointedWrite, log: Path
) -> Rest:
    """Run a write to its end in this process, with its drivers in processes of their own; kill the first at that part."""
    store = open_store(manifest.spec.checkpoint.uri, lake.settings)
    ledger = Ledger(store, EpochKey(identify(store, manifest), 1))
    started: list[float] = []
    killer = Killer(ledger, round(source.rows * part), lambda: proxy.given_bytes) if part < 1 else None

    def note(report: Report) -> None:
        if report.round is not None and any(isinstance(action, StartDriver) for action in report.round.actions):
            started.append(time.time())

    import_s = _import_s()
    began, bytes_before = time.time(), proxy.given_bytes
    if killer is not None:
        killer.start()
    done = Runner(manifest, lake.settings, bench.cores, note).run()
    ended = time.time()
    assert isinstance(done.outcome, Finish), done.outcome
    sealed = sum(seal.rows_read for seal in ledger.chains.counted_seals([1])) / source.rows
    if killer is not None:
        killer.join()
        if len(started) < 2:
            raise TooLate
        began, bytes_before = killer.killed_at, killer.counted
    plan = lake.folder / "checkpoints" / "staged" / ledger.key.uid / "1" / str(len(started)) / "plan.json"
    planned = plan.stat().st_mtime
    spark_start_s = paces.first_begin_after(log, planned) - planned
    return Rest(sealed, ended - began, import_s + spark_start_s, proxy.given_bytes - bytes_before)


def _import_s() -> float:
    """Return the seconds that a new Python takes to import the driver."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import checkpoint_spark.driver.main"], stdin=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started

"""The step of `service-step` in Daft's async UDF and in an actor of Ray Data: the same rows, service, client and calls at once.

Ours in a Spark that is running, theirs in a process that has done one of the sixteen files before the time counts, so that no
start counts on either side. Daft runs on its own runner and Ray Data without a checkpoint: neither keeps what was computed.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from benchmarks import environments, outputs, paces, plain_spark, processes
from benchmarks.bench import Bench
from benchmarks.checkpointed import Lake, iceberg, run_in
from benchmarks.http_service import serving
from benchmarks.inputs import FILES, Input
from benchmarks.pairs import Ran, Side, interleave
from benchmarks.results import Result, result_of

_LATENCY_S: Final = 0.05
_AT_ONCE: Final = 64
_INTERVAL: Final = "5s"
_PATIENCE_S: Final = 900.0
_JOBS: Final = Path(__file__).parent / "rivals"
_ABOUT: Final = {"daft": "Daft's async UDF, into Iceberg", "ray": "an async actor of Ray Data, into Parquet files"}


def measure(bench: Bench) -> Iterator[Result]:
    source = bench.input(20_000, small_rows=1_280)
    lake = Lake(bench.folder / "lake")
    rivals = [name for name in _ABOUT if not bench.small or environments.rival_is_there(name)]
    if bench.small and not rivals:
        bench.say("there are no rivals: a smoke test installs nothing")
    with serving(_LATENCY_S) as url, plain_spark.session(bench.folder / "plain", 1) as spark:
        step = {"call": "asking:Ask", "input": "row", "arguments": {"url": url}, "concurrency": _AT_ONCE}
        checkpoint = {"interval": _INTERVAL, "minimumBytes": "1"}

        def checkpointed() -> Ran:
            table = lake.make_table(source.schema)
            seconds = run_in(spark, lake.manifest(source, iceberg(table), checkpoint, steps=[step]), lake.settings, 1)
            return Ran(seconds, outputs.of_iceberg(table))

        sides: dict[str, Side] = {"checkpointed": checkpointed}
        sides |= {name: _side(bench, source, lake, url, name) for name in rivals}
        times = interleave(sides, outputs.of_files(source.files), bench.rounds, bench.warm_ups, bench.say)
    for name in rivals:
        about = (
            f"a service of 50 ms asked about each of {source.rows:,} rows, {_AT_ONCE} at once: sealed every {_INTERVAL} and "
            f"appended to Iceberg / {_ABOUT[name]}"
        )
        yield result_of(f"service-step-{name}", about, times, "checkpointed", name, target=1.0)


def _side(bench: Bench, source: Input, lake: Lake, url: str, name: str) -> Callable[[], Ran]:
    python, script = environments.python_of_rival(name), _JOBS / f"{name}_service.py"

    def run() -> Ran:
        # A short path: Ray's sockets lie below it, and a socket's name has 107 characters at the most.
        folder, word = Path(tempfile.mkdtemp(prefix="asked-")), f"job-{uuid.uuid4().hex}"
        table, warm_up = (lake.make_table(source.schema) for _ in range(2))
        catalog = lake.settings.catalogs["bench"]
        job = {
            "url": url,
            "source": str(source.folder),
            "files": FILES,
            "at_once": _AT_ONCE,
            "cores": bench.cores,
            "catalog": {"type": "sql", "uri": catalog.uri, "warehouse": catalog.warehouse},
            "table": ".".join(table.name()),
            "warm_up_table": ".".join(warm_up.name()),
            "output": str(folder / "output"),
            "warm_up_output": str(folder / "warm-up"),
            "scratch": str(folder / "ray"),
            "told": str(folder / "seconds"),
        }
        log = folder / "output.log"
        try:
            (folder / "job.json").write_text(json.dumps(job))
            environment = {"PYTHONPATH": str(paces.CODE)}
            process = processes.start([python, str(script), str(folder / "job.json")], word, log, environment)
            processes.finish(process, word, _PATIENCE_S, log)
            found = outputs.of_iceberg(table) if name == "daft" else outputs.of_files((folder / "output").glob("*.parquet"))
            return Ran(float((folder / "seconds").read_text()), found)
        finally:
            processes.kill_all(word)
            shutil.rmtree(folder, ignore_errors=True)

    return run

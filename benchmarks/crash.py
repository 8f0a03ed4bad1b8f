"""A whole job that is killed when half of its rows went through the step, and run again at once: to the end, start-ups and all.

The same input, the same step and the same moment of death for all; everything of the job is killed, workers and servers too.
When half of the rows are through is told by the step itself, so what an engine has kept by then is its own affair. Each round
runs every engine once. What is in the output is counted by DuckDB, and shown beside the time: an engine that is fast and loses
rows is shown as that.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks import environments, outputs, paces, processes
from benchmarks.bench import Bench
from benchmarks.checkpointed import Lake, iceberg
from benchmarks.inputs import FILES, Input
from benchmarks.outputs import Content
from benchmarks.pairs import OutputsDiffer, ratio_of
from benchmarks.results import Result, with_ratio

_ROW_US: Final = 5
_PART: Final = 0.5
_PATIENCE_S: Final = 240.0
_POLL_S: Final = 0.05
_JOBS: Final = Path(__file__).parent / "rivals"
_OURS: Final = "checkpointed write"


@dataclass(frozen=True, slots=True)
class Job:
    """How to run a job (twice the same command), and how to read what it left."""

    command: list[str]
    read: Callable[[], Content]


@dataclass(frozen=True, slots=True)
class Ended:
    """One killed and resumed job. `computed` are the rows that went through the step, both times together."""

    seconds: float
    content: Content
    computed: int


@dataclass(slots=True)
class Engine:
    """One of those that are compared. `make` prepares a fresh job in a folder, for a log."""

    name: str
    figure: str | None
    make: Callable[[Path, Path], Job]
    ended: list[Ended] = field(default_factory=list)
    failure: str | None = None


def measure(bench: Bench) -> Iterator[Result]:
    source = bench.input(8_000_000, small_rows=800_000)
    expected = outputs.of_files(source.files)
    engines = _engines(bench, source)
    for number in range(1, bench.rounds + 1):
        for engine in engines:
            if engine.failure is None:
                _run(bench, source, engine, number)
        if (failure := engines[0].failure) is not None:
            raise processes.Failed(failure)
        found = engines[0].ended[-1].content
        if found != expected:
            raise OutputsDiffer(f"ours left {found}, and expected was {expected}")
        # A round takes ten minutes: what is measured is kept, in case the next one is not seen to its end.
        yield from _results(source, engines)


def _engines(bench: Bench, source: Input) -> list[Engine]:
    engines = [
        Engine(_OURS, None, lambda folder, log: _ours(bench, source, folder, log)),
        Engine("plain Spark, from the start", "crash-spark", lambda folder, log: _spark(bench, source, folder, log)),
    ]
    for name, figure, title, sink in (
        ("ray", "crash-ray", "Ray Data into Parquet files", "parquet"),
        ("ray", "crash-ray-iceberg", "Ray Data into Iceberg", "iceberg"),
        ("daft", "crash-daft", "Daft into Iceberg", "iceberg"),
    ):
        if bench.small and not environments.rival_is_there(name):
            bench.say(f"{title} is left out: a smoke test installs nothing")
            continue
        python = environments.python_of_rival(name)
        script = _JOBS / f"{name}_job.py"
        engines.append(Engine(title, figure, _rival(bench, source, python, script, sink)))
    return engines


def _rival(bench: Bench, source: Input, python: str, script: Path, sink: str) -> Callable[[Path, Path], Job]:
    def make(folder: Path, log: Path) -> Job:
        lake = Lake(folder / "lake")
        table = lake.make_table(source.schema)
        catalog = lake.settings.catalogs["bench"]
        job = _write_job(
            bench,
            source,
            folder,
            log,
            sink=sink,
            table=".".join(table.name()),
            catalog={"type": "sql", "uri": catalog.uri, "warehouse": catalog.warehouse},
        )
        if sink == "parquet":
            return Job([python, str(script), str(job)], lambda: outputs.of_files((folder / "output").glob("*.parquet")))
        return Job([python, str(script), str(job)], lambda: outputs.of_iceberg(table))

    return make


def _spark(bench: Bench, source: Input, folder: Path, log: Path) -> Job:
    job = _write_job(bench, source, folder, log, warehouse=str(folder / "warehouse"))
    command = [sys.executable, "-m", "benchmarks.rivals.spark_job", str(job)]
    return Job(command, lambda: outputs.of_iceberg_folder(folder / "warehouse" / "b" / "rows"))


def _write_job(bench: Bench, source: Input, folder: Path, log: Path, **more: Any) -> Path:
    file = folder / "job.json"
    job = {
        "source": str(source.folder),
        "files": FILES,
        "row_us": _ROW_US,
        "log": str(log),
        "cores": bench.cores,
        "checkpoint": str(folder / "checkpoint"),
        "output": str(folder / "output"),
        "scratch": str(folder / "ray"),
        **more,
    }
    file.write_text(json.dumps(job))
    return file


def _ours(bench: Bench, source: Input, folder: Path, log: Path) -> Job:
    lake = Lake(folder / "lake")
    table = lake.make_table(source.schema)
    manifest = lake.manifest(
        source, iceberg(table), {"interval": "2s"}, steps=[paces.step(_ROW_US, log)], code={"path": str(paces.CODE)}
    )
    (folder / "write.yaml").write_text(yaml.safe_dump(manifest.model_dump(mode="json", by_alias=True)))
    (folder / "settings.yaml").write_text(yaml.safe_dump(lake.settings.model_dump(mode="json", exclude_none=True)))
    command = [sys.executable, "-m", "checkpoint_local.cli.main", "run", str(folder / "write.yaml")]
    command += ["--settings", str(folder / "settings.yaml"), "--cores", str(bench.cores)]
    return Job(command, lambda: outputs.of_iceberg(table))


def _run(bench: Bench, source: Input, engine: Engine, number: int) -> None:
    """Run the engine's job, kill it in the middle, run it again; note how it ended, or why it did not."""
    # A short path: Ray's sockets lie below it, and a socket's name has 107 characters at the most.
    folder = Path(tempfile.mkdtemp(prefix="crash-"))
    log, output, word = folder / "step.log", folder / "output.log", f"job-{uuid.uuid4().hex}"
    environment = {"PYTHONPATH": os.pathsep.join([str(paces.CODE), str(Path(__file__).parent.parent)])}
    environment["XDG_STATE_HOME"] = str(folder / "state")
    try:
        job = engine.make(folder, log)
        began = time.perf_counter()
        first = processes.start(job.command, word, output, environment)
        while paces.rows_done(log) < source.rows * _PART:
            if first.poll() is not None:
                processes.finish(first, word, 0.1, output)
                raise processes.Failed("was done before half of the rows went through the step")
            if time.perf_counter() - began > _PATIENCE_S:
                raise processes.Failed(f"had not half of the rows through the step within {_PATIENCE_S:.0f} s")
            time.sleep(_POLL_S)
        processes.kill_all(word)
        first.wait()
        second = processes.start(job.command, word, output, environment)
        processes.finish(second, word, _PATIENCE_S, output)
        seconds = time.perf_counter() - began
        processes.kill_all(word)
        ended = Ended(seconds, job.read(), paces.rows_done(log))
    except processes.Failed as failure:
        engine.failure = str(failure)
        bench.say(f"round {number}: {engine.name} {failure}")
    else:
        engine.ended.append(ended)
        bench.say(f"round {number}: {engine.name} {seconds:.2f} s, {_told(ended, source)}")
    finally:
        processes.kill_all(word)
        shutil.rmtree(folder, ignore_errors=True)


def _told(ended: Ended, source: Input) -> str:
    content = ended.content
    return (
        f"{content.rows:,} rows, {content.distinct:,} distinct, {content.missing_of(source.rows):,} missing, "
        f"{content.doubled:,} doubled; {ended.computed:,} rows computed"
    )


def _results(source: Input, engines: list[Engine]) -> Iterator[Result]:
    ours = engines[0]
    outcomes: list[dict[str, str | int | float]] = []
    for engine in (engine for engine in engines if engine.ended):
        # The worst of the rounds: an engine that loses rows once loses rows.
        worst = max(engine.ended, key=lambda ended: ended.content.missing_of(source.rows) + ended.content.doubled)
        outcomes.append(
            {
                "engine": engine.name,
                "seconds (median)": round(statistics.median(ended.seconds for ended in engine.ended), 1),
                "rows computed (median)": round(statistics.median(ended.computed for ended in engine.ended)),
                "rows": worst.content.rows,
                "distinct": worst.content.distinct,
                "missing": worst.content.missing_of(source.rows),
                "doubled": worst.content.doubled,
                "rounds": len(engine.ended),
            }
        )
    about = f"{source.rows:,} rows, {_ROW_US} us a row, killed at {_PART:.0%} and run again, both start-ups included: ours"
    for number, engine in enumerate(engine for engine in engines[1:] if engine.ended):
        assert engine.figure is not None
        pairs = min(len(engine.ended), len(ours.ended))
        mine, theirs = ([round(ended.seconds, 3) for ended in some.ended[:pairs]] for some in (ours, engine))
        yield with_ratio(
            engine.figure,
            f"{about} / {engine.name}",
            ratio_of(mine, theirs),
            1.0,
            pairs,
            raw={"seconds": {ours.name: mine, engine.name: theirs}, "computed": [ended.computed for ended in engine.ended]},
            outcomes=outcomes if number == 0 else [],
            seen=[f"{other.name} failed: {other.failure.splitlines()[0]}" for other in engines if other.failure and number == 0],
        )

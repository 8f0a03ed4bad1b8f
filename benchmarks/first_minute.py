"""A small job from its command to its end, with a process and all that it starts anew each time; and what looks at one first.

1,000 rows go through a step that takes no time, into Iceberg: by `checkpointed-write run`, by a plain PySpark script with the
same settings of Spark, and by a Daft script on its own runner, which starts no Java. `validate` and `preview` of ten files of the
same rows are measured against two seconds.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks import environments, outputs, paces, processes
from benchmarks.bench import Bench
from benchmarks.checkpointed import Lake, iceberg
from benchmarks.inputs import Input
from benchmarks.outputs import Content
from benchmarks.pairs import Ran, Side, interleave, ratio_of
from benchmarks.results import Result, result_of, with_ratio

_ROWS: Final = 1_008
_LOOKED_AT: Final = 10
_LOOK_S: Final = 2.0
_PATIENCE_S: Final = 240.0
_RIVALS: Final = Path(__file__).parent / "rivals"
_OURS: Final = "checkpointed"

Make = Callable[[Path], tuple[list[str], Callable[[], Content]]]


def measure(bench: Bench) -> Iterator[Result]:
    source = bench.input(_ROWS, small_rows=_ROWS)
    makes: dict[str, Make] = {
        _OURS: lambda folder: _ours(bench, source, folder),
        "spark": lambda folder: _spark(bench, source, folder),
    }
    if environments.rival_is_there("daft") or not bench.small:
        makes["daft"] = lambda folder: _daft(source, folder)
    sides = {name: _side(make) for name, make in makes.items()}
    times = interleave(sides, outputs.of_files(source.files), bench.rounds, bench.warm_ups, bench.say)
    about = f"{source.rows:,} rows to Iceberg by a step that takes no time, from the command to its end"
    yield result_of("first-minute-spark", f"{about} / a plain PySpark script", times, _OURS, "spark", 1.0)
    if "daft" in makes:
        yield result_of("first-minute-daft", f"{about} / a Daft script, which starts no Java", times, _OURS, "daft", 1.0)
    yield from _looks(bench, source)


def _looks(bench: Bench, source: Input) -> Iterator[Result]:
    files = {"format": "parquet", "paths": [str(file) for file in source.files[:_LOOKED_AT]]}
    for command, arguments in (("validate", []), ("preview", ["--rows", "10"])):

        def run(command: str = command, arguments: list[str] = arguments) -> Ran:
            return Ran(
                _of_process(lambda folder: (_command(bench, {"files": files}, folder, command, *arguments), _nothing))[0], 0
            )

        times = interleave({command: run}, 0, bench.rounds, bench.warm_ups, bench.say)[command]
        ratio = ratio_of(times, [_LOOK_S] * len(times))
        about = f"{command} of {_LOOKED_AT} files, from the command to its end / {_LOOK_S:g} s"
        yield with_ratio(f"first-minute-{command}", about, ratio, 1.0, bench.rounds, raw={"seconds": times})


def _side(make: Make) -> Side:
    return lambda: Ran(*_of_process(make))


def _of_process(make: Make) -> tuple[float, Content]:
    folder, word = Path(tempfile.mkdtemp(prefix="first-")), f"job-{uuid.uuid4().hex}"
    log = folder / "output.log"
    environment = {"PYTHONPATH": f"{paces.CODE}:{Path(__file__).parent.parent}", "XDG_STATE_HOME": str(folder / "state")}
    try:
        command, read = make(folder)
        began = time.perf_counter()
        processes.finish(processes.start(command, word, log, environment), word, _PATIENCE_S, log)
        return time.perf_counter() - began, read()
    finally:
        processes.kill_all(word)
        shutil.rmtree(folder, ignore_errors=True)


def _nothing() -> Content:
    return Content(0, 0, 0)


def _ours(bench: Bench, source: Input, folder: Path) -> tuple[list[str], Callable[[], Content]]:
    files = {"format": "parquet", "paths": [str(source.folder)]}
    command = _command(bench, {"files": files}, folder, "run", "--cores", str(bench.cores))
    table = yaml.safe_load((folder / "write.yaml").read_text())["spec"]["sink"]["iceberg"]["table"]
    return command, lambda: outputs.of_iceberg(Lake(folder / "lake").catalog().load_table(table))


def _command(bench: Bench, files: dict[str, Any], folder: Path, command: str, *arguments: str) -> list[str]:
    lake = Lake(folder / "lake")
    table = lake.make_table(bench.input(_ROWS, small_rows=_ROWS).schema)
    manifest = lake.manifest(files, iceberg(table), steps=[paces.step(0)], code={"path": str(paces.CODE)})
    (folder / "write.yaml").write_text(yaml.safe_dump(manifest.model_dump(mode="json", by_alias=True)))
    (folder / "settings.yaml").write_text(yaml.safe_dump(lake.settings.model_dump(mode="json", exclude_none=True)))
    command_line = [sys.executable, "-m", "checkpoint_local.cli.main", command, str(folder / "write.yaml")]
    return [*command_line, "--settings", str(folder / "settings.yaml"), *arguments]


def _spark(bench: Bench, source: Input, folder: Path) -> tuple[list[str], Callable[[], Content]]:
    job = {"source": str(source.folder), "row_us": 0, "log": None, "cores": bench.cores, "warehouse": str(folder / "warehouse")}
    (folder / "job.json").write_text(json.dumps(job))
    command = [sys.executable, "-m", "benchmarks.rivals.spark_job", str(folder / "job.json")]
    return command, lambda: outputs.of_iceberg_folder(folder / "warehouse" / "b" / "rows")


def _daft(source: Input, folder: Path) -> tuple[list[str], Callable[[], Content]]:
    lake = Lake(folder / "lake")
    table = lake.make_table(source.schema)
    catalog = lake.settings.catalogs["bench"]
    job = {
        "source": str(source.folder),
        "table": ".".join(table.name()),
        "catalog": {"type": "sql", "uri": catalog.uri, "warehouse": catalog.warehouse},
    }
    (folder / "job.json").write_text(json.dumps(job))
    python = environments.python_of_rival("daft")
    return [python, str(_RIVALS / "daft_plain.py"), str(folder / "job.json")], lambda: outputs.of_iceberg(table)

"""Three stages with Spark and records in a bucket: all dies within stages and at their borders, and nothing is done twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.end_to_end.conftest import make_place
from tests.end_to_end.test_pipelines_with_spark import is_done, plan, stage
from tests.support.command_line import CommandLine, Running, driver_of, kill_with_all_below
from tests.support.places import Place
from tests.support.waiting import until
from tests.support.writes import manifest_for

pytestmark = pytest.mark.spark

ROWS = 1_000
FILES = 4
#: Each task process does some rows, and the rest when the gate of its stage is open.
STAGE = """
import os, time
seen = 0
def do(row):
    global seen
    seen += 1
    time.sleep(0.01)
    while seen > 30 and not os.path.exists({gate!r}):
        time.sleep(0.02)
    with open({log!r}, "a") as log:
        log.write(str(row["id"]) + "\\n")
    return {{**row, {name!r}: row["id"] * {factor}}}
"""
STAGES = ("parse", "embed", "score")
SCHEMA = pa.schema([("id", pa.int64()), *((name, pa.int64()) for name in STAGES)])


@dataclass
class Pipeline:
    folder: Path
    command: CommandLine

    @classmethod
    def begin(cls, folder: Path, place: Place) -> Pipeline:
        source, code = folder / "in", folder / "code"
        source.mkdir()
        code.mkdir()
        each = ROWS // FILES
        for number in range(FILES):
            table = pa.table({"id": range(number * each, (number + 1) * each)})
            pq.write_table(table, source / f"{number}.parquet", row_group_size=20)
        for factor, name in enumerate(STAGES, start=2):
            gate, log = str(folder / f"gate-{name}"), str(folder / f"log-{name}")
            (code / f"{name}s.py").write_text(STAGE.format(gate=gate, log=log, name=name, factor=factor))
        place.create(SCHEMA)
        columns = {"id": "int64"}
        stages = []
        for name in STAGES:
            columns |= {name: "int64"}
            step = {"call": f"{name}s:do", "input": "row", "output": dict(columns)}
            stages.append({"name": name, "code": [f"{name}s"], "steps": [step]})
        manifest = manifest_for(
            place,
            source,
            stages=stages,
            code={"path": str(code)},
            checkpoint={"uri": place.checkpoint_uri, "interval": "0.05s", "minimumBytes": "1"},
        )
        return cls(folder, CommandLine(folder / "cli", place, manifest))

    def open_gate(self, name: str) -> None:
        (self.folder / f"gate-{name}").touch()

    def done_rows(self, name: str) -> list[str]:
        log = self.folder / f"log-{name}"
        return log.read_text().split() if log.exists() else []

    def await_seals(self, name: str) -> None:
        def are_there() -> bool:
            ledger = stage(self.command, name)
            attempts = ledger.attempts.list_attempts() if ledger is not None else []
            return ledger is not None and sum(sum(ledger.seals.list_links(one).values()) for one in attempts) >= 2

        until(are_there, f"seals of {name}", report=self._outputs)

    def await_end(self, name: str) -> None:
        until(lambda: is_done(self.command, name), f"the end of {name}", report=self._outputs)

    def kill_all(self, runner: Running) -> None:
        kill_with_all_below(psutil.Process(runner.pid))
        runner.kill()

    def planned(self, name: str) -> dict[str, Any]:
        """Return what a run would do with a stage."""
        return next(one for one in plan(self.command) if one["name"] == name)

    def _outputs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.command.folder.glob("output-*.txt")))


# Five drivers are started, one after the other.
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["iceberg-sql-s3", "lance-s3"])
def test_everything_dies_within_stages_and_at_their_borders_and_a_run_on_one_core_ends_it(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = make_place(name, tmp_path, request)
    pipeline = Pipeline.begin(tmp_path, place)

    # Within the first stage the driver dies; at its border to the second one everything does.
    runner = pipeline.command.start()
    pipeline.await_seals("parse")
    kill_with_all_below(driver_of(runner))
    pipeline.open_gate("parse")
    pipeline.await_end("parse")
    pipeline.kill_all(runner)
    parsed = pipeline.done_rows("parse")
    assert pipeline.planned("parse")["what"] == "keep"

    # Within the second stage, and at its border to the last one.
    runner = pipeline.command.start()
    pipeline.await_seals("embed")
    pipeline.kill_all(runner)
    lost = len(pipeline.done_rows("embed")) - pipeline.planned("embed")["rowsDone"]
    pipeline.open_gate("embed")
    runner = pipeline.command.start()
    pipeline.await_end("embed")
    pipeline.kill_all(runner)

    pipeline.open_gate("score")
    ended, output = pipeline.command.run("--cores", "1")

    assert ended == 0, output
    expected = [{"id": row, **{stage: row * factor for factor, stage in enumerate(STAGES, start=2)}} for row in range(ROWS)]
    assert sorted(place.rows(), key=lambda row: row["id"]) == expected
    assert len(place.keys()) == 1
    assert pipeline.done_rows("parse") == parsed, "a stage that has ended is not begun again"
    embedded = Counter(pipeline.done_rows("embed"))
    assert set(embedded) == {str(row) for row in range(ROWS)}
    assert sum(embedded.values()) == ROWS + lost, "rows that are sealed are not done again"

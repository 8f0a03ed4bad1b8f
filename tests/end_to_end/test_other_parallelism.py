"""Writes that go on with other cores, executors and splits than they began with: no step is called again for sealed rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from checkpoint_control.decision.actions import Finish
from checkpoint_protocol.store.object_store import open_store
from tests.end_to_end.test_pipelines import assert_as_from_scratch, has_failed, in_the_middle_of, what
from tests.support.checks import assert_exactly_once
from tests.support.direct_drivers import DirectDrivers
from tests.support.driver_threads import Killed
from tests.support.pipelines import CALLS, STAGES, PipelineLab
from tests.support.places import Place
from tests.support.slow import slow_except, slow_except_on
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, write_inputs

#: What the manifest says of it, beside the splits of the source.
BEFORE: Final[Mapping[str, Any]] = {"driver": {"cores": 1}, "executor": {"instances": 1, "cores": 2}}
NOW: Final[Mapping[str, Any]] = {
    "driver": {"cores": 4, "memory": "2Gi"},
    "executor": {"instances": 9, "minInstances": 2, "cores": 8, "tasksPerExecutor": 3},
    "sparkConf": {"spark.default.parallelism": "13", "spark.sql.shuffle.partitions": "13"},
}
OTHERS: Final = [(2, 16), (16, 1)]
COMPUTED: Final[Counter[int]] = Counter()


def compute(row: dict[str, Any]) -> dict[str, Any]:
    COMPUTED[int(row["id"])] += 1
    return {"id": int(row["id"]), "text": str(row["text"])}


@pytest.mark.parametrize(
    ("stage", "groups"),
    slow_except([*((stage, False) for stage in STAGES), ("second", True)], ("third", False), ("second", True)),
)
@pytest.mark.parametrize(("before", "now"), OTHERS)
def test_a_pipeline_goes_on_with_other_tasks_after_what_is_sealed(
    lance_place: Place, tmp_path: Path, stage: str, groups: bool, before: int, now: int
) -> None:
    lab = PipelineLab(lance_place, tmp_path, files=3, rows_a_file=6, groups=groups, parallelism=before, more=dict(BEFORE))
    lab.run(kill_when=in_the_middle_of(stage), until=has_failed)
    lab.parallelism = now
    files = {"format": "parquet", "paths": [str(tmp_path / "in")], "splitSize": "1Ki"}
    lab.more = {**NOW, "source": {"files": files}}
    assert {name: done for name, done, _ in what(lab)} == {
        **{name: "keep" if STAGES.index(name) < STAGES.index(stage) else "begin" for name in STAGES},
        stage: "continue",
    } | ({"second-shuffle": "keep"} if groups else {})

    lab.finish()

    assert_as_from_scratch(lab)
    assert {(name, 1): len(lab.ids) for name in STAGES} == CALLS, "what was sealed was done again"


@pytest.mark.parametrize("kind", slow_except(["parquet", "csv"], "csv"))
@pytest.mark.parametrize(("before", "now"), OTHERS)
@slow_except_on("disk_place", "iceberg-sql-disk")
def test_a_write_without_stages_goes_on_with_other_tasks_after_what_is_sealed(
    disk_place: Place, tmp_path: Path, kind: str, before: int, now: int
) -> None:
    disk_place.create(SCHEMA)
    COMPUTED.clear()
    rows = 120
    source = INPUTS[kind](tmp_path / "in", rows)

    def drivers(parallelism: int, between_tasks: Callable[[int], None] = lambda _: None) -> DirectDrivers:
        store = open_store(disk_place.checkpoint_uri, disk_place.settings)
        return DirectDrivers(store, disk_place.settings, parallelism, between_tasks)

    def write(drivers: DirectDrivers, split: str, **spec: Any) -> Any:
        manifest = manifest_for(
            disk_place,
            {"files": {"format": kind, "paths": [str(source)], "splitSize": split}},
            steps=[{"call": f"{__name__}:compute", "input": "row", "output": {"id": "int64", "text": "string"}}],
            checkpoint={"uri": disk_place.checkpoint_uri, "interval": "1h", "maximumRows": 7},
            **spec,
        )
        return reconciler_for(manifest, disk_place, drivers)

    def die(number: int) -> None:
        if sum(COMPUTED.values()) >= rows // 3:
            raise Killed

    first = drivers(before, die)
    reconciler = write(first, "64Mi", **BEFORE)
    while not first.started:
        reconciler.step()
    first.finish()
    assert 0 < sum(COMPUTED.values()) < rows

    ended = drive(write(drivers(now), "1Ki", **NOW))

    assert isinstance(ended.outcome, Finish)
    assert_exactly_once(disk_place, range(rows))
    assert dict.fromkeys(range(rows), 1) == COMPUTED, "what was sealed was done again"
    one, other = (reconciler.current_ledger().plans.read_plan(attempt) for attempt in (1, 2))
    assert one is not None
    assert other is not None
    assert (len(one.tasks) < len(other.tasks)) == (before < now)


def _parquet(folder: Path, rows: int) -> Path:
    return write_inputs(folder, files=4, rows=rows // 4)


def _csv(folder: Path, rows: int) -> Path:
    folder.mkdir()
    lines = "".join(f"{number},zeile {number} {'-' * 60}\n" for number in range(rows))
    (folder / "all.csv").write_text(f"id,text\n{lines}")
    return folder


INPUTS: Final[Mapping[str, Callable[[Path, int], Path]]] = {"parquet": _parquet, "csv": _csv}

"""What only a real Spark does: speculative tries in separate executors, and many rows in bounded memory."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from checkpoint_control.decision.actions import Finish
from checkpoint_local.runner import Report, Runner
from devtools.spark_cluster import SparkCluster
from tests.end_to_end.conftest import make_place
from tests.support.checks import assert_exactly_once
from tests.support.command_line import CommandLine, memory_bytes, wait_for_end
from tests.support.places import IcebergPlace
from tests.support.writes import SCHEMA, manifest_for, write_inputs

pytestmark = [pytest.mark.slow, pytest.mark.spark]
ROWS = 400

STRAGGLER = """
import os, time
def work(row):
    # The first process that meets row 10 hangs there until Spark has started a second try of its task elsewhere.
    if row["id"] == 10:
        try:
            os.close(os.open({marker!r}, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            open({second!r}, "w").close()
        else:
            began = time.monotonic()
            while not os.path.exists({second!r}) and time.monotonic() - began < 200:
                time.sleep(0.1)
    return row
"""


@pytest.mark.parametrize(
    ("name", "is_keyed"), [("iceberg-sql-disk", False), ("lance-disk", True)], ids=["iceberg-by-position", "lance-by-key"]
)
def test_a_speculative_try_of_a_straggling_task_adds_no_row(
    name: str, is_keyed: bool, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_place(name, tmp_path, request)
    marker, second = tmp_path / "first-try", tmp_path / "second-try"
    code = tmp_path / "code"
    code.mkdir()
    (code / "straggler.py").write_text(STRAGGLER.format(marker=str(marker), second=str(second)))
    place.create(SCHEMA)
    folder = str(write_inputs(tmp_path / "in"))
    keyed = {"spark": {"format": "parquet", "paths": [folder], "keyColumns": ["id"]}}
    manifest = manifest_for(
        place,
        keyed if is_keyed else folder,
        steps=[{"call": "straggler:work", "input": "row"}],
        code={"path": str(code)},
        sparkConf={
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.minTaskRuntime": "1s",
            "spark.executor.memory": "512m",
        },
    )
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def report(_: Report) -> None:
        pass

    with SparkCluster(tmp_path / "cluster", {"PYTHONPATH": str(code)}) as cluster:
        ended = Runner(manifest, place.settings, 2, report, master=cluster.master).run()

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert second.exists(), "Spark started no second try, so nothing was shown"
    assert_exactly_once(place, range(ROWS))


MANY = 5_000_000
LIMIT_BYTES = 3 << 30


def test_five_million_rows_pass_within_three_gigabytes_in_all_processes(iceberg_place: IcebergPlace, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    part = MANY // 5
    rng = np.random.default_rng(7)
    for number in range(5):
        ids = np.arange(number * part, (number + 1) * part)
        table = pa.table(
            {
                "id": ids,
                "text": pc.binary_join_element_wise("value", pa.array(rng.integers(0, 1 << 40, part)).cast("string"), "-"),
            }
        )
        pq.write_table(table, source / f"{number}.parquet")
    iceberg_place.create(SCHEMA)
    command = CommandLine(tmp_path / "cli", iceberg_place, manifest_for(iceberg_place, source))
    runner = command.start()
    peak = [0]

    def measure() -> None:
        while runner.poll() is None:
            peak[0] = max(peak[0], memory_bytes(runner.pid))
            time.sleep(0.2)

    watcher = threading.Thread(target=measure)
    watcher.start()
    code, output = wait_for_end(runner)
    watcher.join()

    assert code == 0, output
    ids = iceberg_place.table().scan(selected_fields=("id",)).to_arrow()["id"].combine_chunks()
    assert len(ids) == MANY
    assert pc.count_distinct(ids).as_py() == MANY
    assert len(iceberg_place.keys()) == 1
    print(f"peak of all processes: {peak[0] / 2**20:.0f} MiB")  # noqa: T201
    assert 0 < peak[0] < LIMIT_BYTES

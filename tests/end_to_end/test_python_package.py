"""`checkpointed_writes`, as a notebook or a user's test has it: writes that are run and previewed from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import checkpointed_writes
from checkpointed_writes import WriteFailed
from tests.end_to_end.test_dataframes import write_orc
from tests.support.checks import assert_exactly_once
from tests.support.command_line import CommandLine
from tests.support.places import IcebergPlace, Place
from tests.support.slow import slow_except
from tests.support.writes import SCHEMA, manifest_for, rows_of, write_inputs

pytestmark = pytest.mark.spark
STEPS = """
from checkpointed_writes import Job, Retryable, RowError

tries = 0

def work(row):
    global tries
    if row["id"] == 3 and tries < 2:
        tries += 1
        raise Retryable("not now", retry_after=0.01)
    return row

def fails(row):
    if row["id"] == 3:
        raise RowError("3 is no good")
    return row

def program(job: Job) -> None:
    job.write(job.read(job.spark.read.orc(FOLDER)))
"""


@pytest.fixture
def command(iceberg_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A write whose step says twice that it is to be tried again."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "of_python.py").write_text(f"FOLDER = {str(tmp_path / 'orc')!r}\n{STEPS}")
    iceberg_place.create(SCHEMA)
    return CommandLine(tmp_path / "cli", iceberg_place, manifest(iceberg_place, tmp_path, "work"))


def manifest(place: Place, folder: Path, call: str, source: Any = None) -> Any:
    steps = [{"call": f"of_python:{call}", "input": "row", "retry": {"firstDelay": "1ms"}}]
    return manifest_for(
        place, source or write_inputs(folder / "in", files=1, rows=20), steps=steps, code={"path": str(folder / "code")}
    )


def test_a_write_is_run_to_its_commit_and_a_second_time_nothing_is_done(
    command: CommandLine, capfd: pytest.CaptureFixture[str]
) -> None:
    first = checkpointed_writes.run(command.file, settings=command.settings_file, cores=1)
    second = checkpointed_writes.run(str(command.file), settings=str(command.settings_file), cores=1)

    assert_exactly_once(command.place, range(20))
    assert (first.rows_read, first.rows_written, first.rows_quarantined, first.attempts) == (20, 20, 0, 1)
    assert first.version is not None
    assert not first.was_committed
    assert second.was_committed
    assert (second.version, second.key) == (first.version, first.key)
    assert capfd.readouterr().out == "", "the answer is the result"


def test_a_write_that_fails_raises_with_the_reason_and_is_resumed_by_the_next_run(command: CommandLine, tmp_path: Path) -> None:
    document = manifest(command.place, tmp_path, "fails").model_dump(mode="json", by_alias=True)
    with pytest.raises(WriteFailed, match="3 is no good") as caught:
        checkpointed_writes.run(document, settings=command.settings_file, cores=1)

    assert caught.value.reason == "CodeFailed"
    (tmp_path / "code" / "of_python.py").write_text("def fails(row): return row\n")
    document["spec"]["onCodeChange"] = "Continue"
    assert checkpointed_writes.run(document, settings=command.settings_file, cores=1).rows_written == 20
    assert_exactly_once(command.place, range(20))


@pytest.mark.slow
def test_rows_that_are_lost_with_their_table_are_not_reported_as_committed(command: CommandLine) -> None:
    checkpointed_writes.run(command.file, settings=command.settings_file, cores=1)
    assert isinstance(command.place, IcebergPlace)
    command.place.opened().drop_table(command.place.name)

    with pytest.raises(WriteFailed, match="the table is gone since") as caught:
        checkpointed_writes.run(command.file, settings=command.settings_file)

    assert caught.value.reason == "TableMissing"


@pytest.mark.parametrize("way", slow_except(["sql", "program"], "sql"))
def test_rows_that_spark_reads_are_previewed_too(command: CommandLine, tmp_path: Path, way: str) -> None:
    write_orc(tmp_path / "orc", files=1, rows=50)
    source = {
        "sql": {
            "spark": {
                "format": "orc",
                "paths": [str(tmp_path / "orc")],
                "keyColumns": ["id"],
                "sql": "SELECT * FROM input WHERE id > 1",
            }
        },
        "program": {"program": {"call": "of_python:program", "keyColumns": ["id"]}},
    }[way]

    found = checkpointed_writes.preview(
        manifest(command.place, tmp_path, "fails", source).model_dump(mode="json", by_alias=True),
        rows=4,
        settings=command.settings_file,
    )

    first = {"sql": 2, "program": 0}[way]
    assert found.rows_read == 4
    assert found.rows.to_pylist() == [row for row in rows_of(range(first, first + 4)).to_pylist() if row["id"] != 3]
    assert [(one.row, one.error, one.message) for one in found.failed] == [
        ("the row with id=3", "checkpointed_writes.RowError", "3 is no good")
    ]
    assert command.place.rows() == []

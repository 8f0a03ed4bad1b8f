"""Poison rows: they are set apart with place and error, the others are committed, and a later epoch tries them again."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_control.loop.reconcile import Reconciler, Round
from checkpoint_control.views.inspection import inspect_store
from checkpoint_protocol import reasons
from checkpoint_protocol.records import QuarantinedRow
from checkpoint_protocol.store.object_store import open_store
from tests.support.checks import assert_exactly_once
from tests.support.command_line import CommandLine, driver_of, kill, wait_for_end
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import Place
from tests.support.records import position_of, seals_shown
from tests.support.slow import slow_except_on
from tests.support.waiting import until
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of, write_inputs

ROWS = 400
_numbers = itertools.count()

Code = Callable[[str], str]


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Code]:
    """Return a function that writes a module under a fresh name and returns the name."""
    folder = tmp_path / "code"
    folder.mkdir()
    sys.path.insert(0, str(folder))

    def write(text: str) -> str:
        name = f"poison_code_{next(_numbers)}"
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        return name

    yield write
    sys.path.remove(str(folder))


def poison(*ids: int) -> str:
    return f"def work(row):\n    if row['id'] in {ids!r}: raise ValueError('poison ' + str(row['id']))\n    return row\n"


def prepared(place: Place, source: Path, module: str, /, **spec: Any) -> Reconciler:
    sections = {"onRowError": "Quarantine", **spec}
    steps = [{"call": f"{module}:work", "input": sections.pop("input", "row"), "name": "predict"}]
    return reconciler_for(manifest_for(place, source, steps=steps, **sections), place)


def run(place: Place, source: Path, module: str, /, **spec: Any) -> Round:
    return drive(prepared(place, source, module, **spec))


def finished(ended: Round) -> Round:
    assert isinstance(ended.outcome, Finish), ended.outcome
    return ended


def quarantined(reconciler: Reconciler) -> list[QuarantinedRow]:
    """Return the rows that the committed seals quarantine."""
    ledger = reconciler.current_ledger()
    commit_record = ledger.commits.read_commit()
    assert commit_record is not None
    launch = ledger.attempts.read_launch(commit_record.attempts)
    assert launch is not None
    seals = list(ledger.chains.counted_seals((*launch.counted, commit_record.attempts)))
    assert commit_record.rows_quarantined == sum(seal.rows_quarantined for seal in seals)
    assert commit_record.rows_read == ROWS if commit_record.key.endswith("/1") else True
    return [row for seal in seals for row in ledger.quarantine.quarantined_rows(seal)]


def test_a_poison_row_is_quarantined_with_place_step_error_and_traceback_and_the_others_are_committed(
    place: Place, tmp_path: Path, code: Code
) -> None:
    place.create(SCHEMA)
    module = code(poison(123))
    reconciler = prepared(place, write_inputs(tmp_path / "in"), module)

    ended = finished(drive(reconciler))

    assert ended.commit is not None
    assert (ended.commit.rows_read, ended.commit.rows_written, ended.commit.rows_quarantined) == (ROWS, ROWS - 1, 1)
    assert_exactly_once(place, [number for number in range(ROWS) if number != 123])
    (row,) = quarantined(reconciler)
    assert (position_of(row).file, position_of(row).start, position_of(row).end) == (1, 23, 24)
    assert (row.step, row.error, row.message) == ("predict", "ValueError", "poison 123")
    assert f"{module}.py" in row.traceback
    assert "checkpoint_spark" not in row.traceback


def test_with_the_policy_fail_a_poison_row_ends_the_write_as_ever(iceberg_place: Place, tmp_path: Path, code: Code) -> None:
    iceberg_place.create(SCHEMA)

    ended = run(iceberg_place, write_inputs(tmp_path / "in"), code(poison(123)), onRowError="Fail")

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.CODE_FAILED
    assert iceberg_place.rows() == []


@pytest.mark.parametrize("kind", ["arrow", "pandas"])
def test_poison_rows_of_a_batch_step_are_found_and_the_others_committed(
    disk_place: Place, tmp_path: Path, code: Code, kind: str
) -> None:
    disk_place.create(SCHEMA)
    module = code(
        "def work(batch):\n    if {7, 8, 399} & set(batch['id'].tolist()): raise ValueError('poison')\n    return batch\n"
    )

    ended = finished(run(disk_place, write_inputs(tmp_path / "in"), module, input=kind))

    assert ended.commit is not None
    assert ended.commit.rows_quarantined == 3
    assert_exactly_once(disk_place, [number for number in range(ROWS) if number not in (7, 8, 399)])


def test_a_write_without_a_table_quarantines_too(tmp_path: Path, code: Code, iceberg_place: Place) -> None:
    log = tmp_path / "log"
    module = code(
        f"def work(row):\n    assert row['id'] != 5\n"
        f"    with open({str(log)!r}, 'a') as file: file.write(str(row['id']) + '\\n')\n"
    )

    ended = finished(run(iceberg_place, write_inputs(tmp_path / "in"), module, sink={"iceberg": None, "none": {}}))

    assert ended.commit is not None
    assert (ended.commit.rows_written, ended.commit.rows_quarantined) == (0, 1)
    assert sorted(map(int, log.read_text().split())) == [number for number in range(ROWS) if number != 5]


# --- the limit ------------------------------------------------------------------------------------------------------------


def test_more_than_max_rows_stop_the_write_before_its_commit_and_say_what_to_do(
    disk_place: Place, tmp_path: Path, code: Code
) -> None:
    disk_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    module = code(poison(*range(0, ROWS, 40)))

    ended = run(disk_place, source, module, quarantine={"maxRows": 5})

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.TOO_MANY_ROW_ERRORS
    for words in ("maxRows allows 5", "poison", "quarantine.retry", "part-"):
        assert words in ended.outcome.message
    assert disk_place.rows() == []

    ended = finished(run(disk_place, source, module, quarantine={"maxRows": 10}))
    assert ended.commit is not None
    assert ended.commit.rows_quarantined == 10
    assert_exactly_once(disk_place, [number for number in range(ROWS) if number % 40])


def test_more_than_max_share_stop_the_write(iceberg_place: Place, tmp_path: Path, code: Code) -> None:
    iceberg_place.create(SCHEMA)

    ended = run(iceberg_place, write_inputs(tmp_path / "in"), code(poison(*range(0, ROWS, 40))), quarantine={"maxShare": "2%"})

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.TOO_MANY_ROW_ERRORS
    assert "maxShare, 2% of all rows, allows 8" in ended.outcome.message


def test_one_task_alone_cannot_go_far_beyond_the_limit(iceberg_place: Place, tmp_path: Path, code: Code) -> None:
    iceberg_place.create(SCHEMA)
    log = tmp_path / "log"
    module = code(
        f"def work(row):\n    with open({str(log)!r}, 'a') as file: file.write('x')\n    raise ValueError('all fail')\n"
    )

    ended = run(iceberg_place, write_inputs(tmp_path / "in", files=1, rows=5000), module, quarantine={"maxRows": 20})

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.TOO_MANY_ROW_ERRORS
    assert "rows of one task failed" in ended.outcome.message
    assert len(log.read_text()) < 1000


def test_a_small_write_all_of_whose_rows_fail_is_not_committed(iceberg_place: Place, tmp_path: Path, code: Code) -> None:
    iceberg_place.create(SCHEMA)

    ended = run(iceberg_place, write_inputs(tmp_path / "in", files=1, rows=30), code(poison(*range(30))))

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.TOO_MANY_ROW_ERRORS


def test_of_text_the_share_is_judged_when_all_rows_are_read(iceberg_place: Place, tmp_path: Path, code: Code) -> None:
    iceberg_place.create(SCHEMA)
    source = tmp_path / "in.csv"
    pa.csv.write_csv(rows_of(range(ROWS)), source)

    ended = run(iceberg_place, source, code(poison(1, 2, 3, 4, 5)), files={"format": "csv"}, quarantine={"maxShare": "1%"})

    assert isinstance(ended.outcome, Stall)
    assert "all rows, allows 4" in ended.outcome.message


def test_quarantined_rows_are_not_committed_after_the_policy_was_set_back_to_fail(
    iceberg_place: Place, tmp_path: Path, code: Code
) -> None:
    iceberg_place.create(SCHEMA)
    source, module = write_inputs(tmp_path / "in"), code(poison(3))
    first = prepared(iceberg_place, source, module)
    while not first.step().seen.attempts or not first.current_ledger().attempts.read_closed(1):
        assert isinstance(first.observer.drivers, DirectDrivers)
        first.observer.drivers.wait_a_moment()

    ended = run(iceberg_place, source, module, onRowError="Fail")

    assert isinstance(ended.outcome, Stall)
    assert "onRowError: Fail allows none" in ended.outcome.message


# --- again ----------------------------------------------------------------------------------------------------------------


@slow_except_on("disk_place", "lance-disk")
def test_a_later_epoch_takes_the_quarantined_rows_alone_and_those_that_fail_again_wait_for_the_next(
    disk_place: Place, tmp_path: Path, code: Code
) -> None:
    disk_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    finished(run(disk_place, source, code(poison(3, 123, 124))))
    pq.write_table(rows_of(range(ROWS, ROWS + 10)), source / "part-9.parquet")

    again = prepared(disk_place, source, code(poison(124)), runNonce="2", quarantine={"retry": "Only"})
    ended = finished(drive(again))

    assert ended.commit is not None
    assert (ended.commit.rows_read, ended.commit.rows_written, ended.commit.rows_quarantined) == (3, 2, 1)
    assert_exactly_once(disk_place, [number for number in range(ROWS) if number != 124])

    ended = finished(run(disk_place, source, code(poison()), runNonce="3", quarantine={"retry": "Also"}))

    assert ended.commit is not None
    assert (ended.commit.rows_read, ended.commit.rows_quarantined) == (11, 0)
    assert_exactly_once(disk_place, range(ROWS + 10))

    ended = finished(run(disk_place, source, code(poison()), runNonce="4", quarantine={"retry": "Also"}))
    assert ended.commit is not None
    assert ended.commit.rows_read == 0
    assert_exactly_once(disk_place, range(ROWS + 10))


def test_a_later_epoch_that_does_not_ask_for_them_takes_no_quarantined_row(
    iceberg_place: Place, tmp_path: Path, code: Code
) -> None:
    iceberg_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    finished(run(iceberg_place, source, code(poison(3))))

    ended = finished(run(iceberg_place, source, code(poison()), runNonce="2"))

    assert ended.commit is not None
    assert ended.commit.rows_read == 0


@pytest.mark.parametrize("on_replaced", ["Fail", "Process", "Skip"])
def test_rows_of_a_file_that_was_replaced_are_not_taken_from_the_new_one(
    iceberg_place: Place, tmp_path: Path, code: Code, on_replaced: str
) -> None:
    iceberg_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    finished(run(iceberg_place, source, code(poison(3, 250))))
    pq.write_table(rows_of(range(1000, 1010)), source / "part-0.parquet")

    ended = run(
        iceberg_place,
        source,
        code(poison()),
        runNonce="2",
        quarantine={"retry": "Only" if on_replaced == "Fail" else "Also"},
        onReplaced=on_replaced,
    )

    others = [number for number in range(ROWS) if number not in (3, 250)]
    if on_replaced == "Fail":
        assert isinstance(ended.outcome, Stall)
        assert ended.outcome.reason == reasons.SOURCE_CHANGED
        assert_exactly_once(iceberg_place, others)
        return
    finished(ended)
    assert_exactly_once(iceberg_place, [*others, 250, *(range(1000, 1010) if on_replaced == "Process" else ())])


def test_rows_of_a_file_that_is_gone_stop_a_retry_that_would_lose_them_silently(
    iceberg_place: Place, tmp_path: Path, code: Code
) -> None:
    iceberg_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    finished(run(iceberg_place, source, code(poison(3, 250))))
    taken = (source / "part-0.parquet").rename(tmp_path / "taken")

    ended = run(iceberg_place, source, code(poison()), runNonce="2", quarantine={"retry": "Also"})

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.SOURCE_CHANGED
    assert "1 quarantined rows" in ended.outcome.message
    assert "not there any more" in ended.outcome.message

    taken.rename(source / "part-0.parquet")
    finished(run(iceberg_place, source, code(poison()), runNonce="2", quarantine={"retry": "Also"}))


@pytest.mark.parametrize("name", ["in.csv", "in.json", "in.csv.gz"])
def test_rows_of_text_are_found_again_by_their_line(iceberg_place: Place, tmp_path: Path, code: Code, name: str) -> None:
    iceberg_place.create(SCHEMA)
    source = tmp_path / name
    if "csv" in name:
        with pa.output_stream(str(source), compression="gzip" if name.endswith("gz") else None) as out:
            pa.csv.write_csv(rows_of(range(ROWS)), out)
    else:
        source.write_text("".join(f'{{"id": {n}, "text": "zeile {n}"}}\n' + "\n" * (n % 3) for n in range(ROWS)))
    kind = {"files": {"format": "json" if "json" in name else "csv"}}
    finished(run(iceberg_place, source, code(poison(0, 57, 58, 399)), **kind))

    ended = finished(run(iceberg_place, source, code(poison()), runNonce="2", quarantine={"retry": "Only"}, **kind))

    assert ended.commit is not None
    assert ended.commit.rows_read == 4
    assert_exactly_once(iceberg_place, range(ROWS))


def test_a_missing_record_of_an_earlier_epoch_stops_a_retry_rather_than_doubling_rows(
    iceberg_place: Place, tmp_path: Path, code: Code
) -> None:
    iceberg_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    first = prepared(iceberg_place, source, code(poison(3)))
    finished(drive(first))
    first.observer.store.delete([first.current_ledger().at.closed(1)])

    ended = run(iceberg_place, source, code(poison()), runNonce="2", quarantine={"retry": "Only"})

    assert isinstance(ended.outcome, Stall)
    assert "is gone" in ended.outcome.message
    # What was taken is known without it, and nothing more is asked for where nothing is tried again.
    finished(run(iceberg_place, source, code(poison()), runNonce="3", quarantine={"retry": "Never"}))
    assert_exactly_once(iceberg_place, (number for number in range(ROWS) if number != 3))


# --- many, and shown ------------------------------------------------------------------------------------------------------


def test_rows_that_are_too_many_for_a_seal_lie_beside_it_and_inspect_shows_them_all(
    disk_place: Place, tmp_path: Path, code: Code
) -> None:
    disk_place.create(SCHEMA)
    failing = [number for number in range(ROWS) if number % 2]
    reconciler = prepared(
        disk_place,
        write_inputs(tmp_path / "in"),
        code("def work(row):\n    if row['id'] % 2: raise ValueError('odd')\n    return row\n"),
        quarantine={"maxShare": "50%"},
    )
    finished(drive(reconciler))

    assert len(quarantined(reconciler)) == len(failing)
    shown = inspect_store(open_store(disk_place.checkpoint_uri, disk_place.settings))
    assert shown.errors == ()
    assert shown.strays == ()
    (epoch,) = shown.writes[0].epochs
    rows = [row for attempt in epoch.attempts for row in attempt.quarantined]
    assert epoch.sealed.rows_quarantined == len(rows) == len(failing)
    assert sorted((row.file or "", row.start) for row in rows) == sorted(
        (str(tmp_path / "in" / f"part-{number // 100}.parquet"), number % 100) for number in failing
    )
    assert any(path.path.split("/")[-2] == "quarantine" for path in reconciler.observer.store.list("staged/"))


def test_an_object_of_quarantined_rows_that_is_gone_is_named(iceberg_place: Place, tmp_path: Path, code: Code) -> None:
    iceberg_place.create(SCHEMA)
    source = write_inputs(tmp_path / "in")
    reconciler = prepared(iceberg_place, source, code(poison(*range(0, 100, 2))), quarantine={"maxShare": "50%"})
    finished(drive(reconciler))
    lost = [stored.path for stored in reconciler.observer.store.list("staged/") if "/quarantine/" in stored.path]
    assert lost
    reconciler.observer.store.delete(lost)

    shown = inspect_store(reconciler.observer.store)
    assert any("is gone" in error.message for error in shown.errors)
    ended = run(iceberg_place, source, code(poison()), runNonce="2", quarantine={"retry": "Only"})
    assert isinstance(ended.outcome, Stall)
    assert "is gone" in ended.outcome.message


# --- the real thing -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spark
def test_a_driver_killed_after_a_poison_row_was_sealed_leaves_it_quarantined_once(disk_place: Place, tmp_path: Path) -> None:
    """The installed command, Spark, a poison row in each file, and kill -9 of the driver."""
    gate, folder = tmp_path / "gate", tmp_path / "code"
    folder.mkdir()
    (folder / "gated_poison.py").write_text(
        "import os, time\nseen = 0\ndef work(row):\n    global seen\n    seen += 1\n    time.sleep(0.01)\n"
        f"    while seen > 60 and not os.path.exists({str(gate)!r}):\n        time.sleep(0.02)\n"
        "    if row['id'] % 100 in (1, 98): raise ValueError('poison')\n    return row\n"
    )
    disk_place.create(SCHEMA)
    sections: dict[str, Any] = {
        "steps": [{"call": "gated_poison:work", "input": "row"}],
        "code": {"path": str(folder)},
        "checkpoint": {"uri": disk_place.checkpoint_uri, "interval": "0.05s", "minimumBytes": "1"},
        "onRowError": "Quarantine",
    }
    source = write_inputs(tmp_path / "in")
    command = CommandLine(tmp_path / "cli", disk_place, manifest_for(disk_place, source, **sections))
    runner = command.start()

    def sealed_poison() -> int:
        ledger = command.ledger()
        return sum(seal.rows_quarantined for seal in seals_shown(ledger, 1)) if ledger else 0

    until(lambda: sealed_poison() > 0, "a sealed poison row")
    kill(driver_of(runner))
    gate.touch()
    code, output = wait_for_end(runner)

    assert code == 0, output
    assert "8 rows are quarantined" in output
    poisonous = [number for number in range(ROWS) if number % 100 in (1, 98)]
    assert_exactly_once(disk_place, [number for number in range(ROWS) if number not in poisonous])
    status = json.loads(command.say("status", str(command.file), "-o", "json"))
    assert status["sealed"]["rowsQuarantined"] == 8
    shown = json.loads(command.say("inspect", disk_place.checkpoint_uri, "-o", "json"))
    epoch = shown["writes"][0]["epochs"][0]
    counting = [attempt for attempt in epoch["attempts"] if attempt["quarantined"]]
    assert len(epoch["attempts"]) > 1
    found = [(row["file"], row["start"], row["message"]) for attempt in counting for row in attempt["quarantined"]]
    assert sorted(found) == [(str(source / f"part-{file}.parquet"), at, "poison") for file in range(4) for at in (1, 98)]
    assert "poison" in command.say("inspect", disk_place.checkpoint_uri)

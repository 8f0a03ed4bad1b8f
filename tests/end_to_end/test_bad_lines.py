"""Lines of text that cannot be read, met after much is sealed: each way out that a message names ends with every row once."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from checkpoint_operator.core.actions import Finish, Stall
from checkpoint_operator.inspection import inspect_store
from checkpoint_operator.reconcile import Reconciler, Round
from checkpoint_protocol import reasons
from tests.support.checks import assert_exactly_once
from tests.support.places import Place
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for

ROWS = 60_000
BAD = 50_000


def write_text(path: Path, bad: str, rows: int = ROWS) -> Path:
    """Write rows beyond the sample from which types are taken, and a line in the place of one of them."""
    if ".csv" in path.name:
        lines = ["id,text", *(f"{n},{'y' * 100}" for n in range(rows))]
        lines[BAD + 1] = bad
    else:
        lines = [f'{{"id": {n}, "text": "{"y" * 100}"}}' for n in range(rows)]
        lines[BAD] = bad
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def prepared(place: Place, path: Path, /, **spec: Any) -> Reconciler:
    kind = "csv" if ".csv" in path.name else "json"
    spec["source"] = {"format": kind, **spec.get("source", {})}
    return reconciler_for(manifest_for(place, path, **spec), place)


def stopped(place: Place, path: Path, /, **spec: Any) -> Stall:
    """Run the write until it stops at its bad line, with the tasks before sealed; a compressed file is one task."""
    reconciler = prepared(place, path, **spec)
    outcome = drive(reconciler).outcome
    assert isinstance(outcome, Stall)
    if path.suffix != ".gz":
        assert rows_sealed(reconciler) > 10_000
    return outcome


def rows_sealed(reconciler: Reconciler) -> int:
    ledger = reconciler.current_ledger()
    return sum(seal.rows_read for seal in ledger.counted_seals(ledger.list_attempts()))


def finished(place: Place, path: Path, /, **spec: Any) -> Round:
    ended = drive(prepared(place, path, **spec))
    assert isinstance(ended.outcome, Finish), ended.outcome
    return ended


BAD_LINES = {
    "in.csv": ("oops,zzz", "column 'id'"),
    "in.json": ('{"id": "oops"}', "JSON"),
    "in.json.gz": ('{"id": 1, ', "JSON"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_after_much_was_sealed_is_set_apart_as_the_message_advises(
    disk_place: Place, tmp_path: Path, name: str
) -> None:
    disk_place.create(SCHEMA)
    bad, what = BAD_LINES[name]
    source = write_text(tmp_path / name, bad)
    refused = stopped(disk_place, source)
    assert refused.reason == reasons.SOURCE_UNREADABLE
    for part in (str(source), "line at byte", what, "set onRowError: Quarantine"):
        assert part in refused.message

    ended = finished(disk_place, source, onRowError="Quarantine")

    assert ended.mark is not None
    assert (ended.mark.rows_read, ended.mark.rows_written, ended.mark.rows_quarantined) == (ROWS, ROWS - 1, 1)
    assert_exactly_once(disk_place, [number for number in range(ROWS) if number != BAD])
    shown = inspect_store(prepared(disk_place, source).store)
    assert shown.errors == ()
    (row,) = [row for attempt in shown.writes[0].epochs[0].attempts for row in attempt.quarantined]
    assert (row.file, row.step, row.error) == (str(source), "(source)", reasons.SOURCE_UNREADABLE)
    if name.endswith(".gz"):
        assert (row.start, row.end) == (BAD, BAD + 1)
    else:
        assert source.read_bytes()[row.start : row.end] == f"{bad}\n".encode()


def test_lines_that_were_set_apart_are_taken_by_a_later_epoch_that_can_read_them(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = write_text(tmp_path / "in.csv", "n/a,zzz")
    finished(disk_place, source, onRowError="Quarantine")

    again = {"onRowError": "Quarantine", "runNonce": "2", "quarantine": {"retry": "Only"}}
    ended = finished(disk_place, source, source={"options": {"nullValues": ["", "n/a"]}}, **again)

    assert ended.mark is not None
    assert (ended.mark.rows_read, ended.mark.rows_quarantined) == (1, 0)
    ids = [row["id"] for row in disk_place.rows()]
    assert ids.count(None) == 1
    assert sorted(number for number in ids if number is not None) == [number for number in range(ROWS) if number != BAD]


def test_more_bad_lines_than_the_limit_allows_stop_the_write(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    source = tmp_path / "in.csv"
    source.write_text("id,text\n" + "1,x\n" * 10 + "oops,x\n" * 20)

    ended = drive(
        prepared(disk_place, source, source={"types": {"id": "int64"}}, onRowError="Quarantine", quarantine={"maxRows": 5})
    )

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.TOO_MANY_ROW_ERRORS
    assert "(source)" in ended.outcome.message
    assert disk_place.rows() == []

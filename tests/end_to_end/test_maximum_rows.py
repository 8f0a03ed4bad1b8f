"""checkpoint.maximumRows: what a crash costs, in rows, whatever their size and however the steps are called."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_control.decision.actions import Finish
from checkpoint_protocol.ledger import Ledger
from tests.support.checks import assert_exactly_once
from tests.support.places import on_disk
from tests.support.slow import slow_except
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, write_inputs

ROWS = 600


def plain(row: dict[str, Any]) -> dict[str, Any]:
    return row


async def waits(row: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(0.001 * (row["id"] % 3))
    return row


def batch(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


TEXT = {
    "csv": {"format": "csv"},
    "csv with line breaks in fields": {"format": "csv", "csv": {"multiLine": True}},
    "csv, compressed": {"format": "csv", "compression": "Gzip"},
    "json": {"format": "json"},
}


def write_text(folder: Path, form: dict[str, Any]) -> Path:
    """Write all rows as one file."""
    folder.mkdir()
    if form["format"] == "json":
        text = "".join(f'{{"id": {number}, "text": "zeile {number}"}}\n' for number in range(ROWS))
    else:
        text = "id,text\n" + "".join(f"{number},zeile {number}\n" for number in range(ROWS))
    data = text.encode()
    (folder / "rows.txt").write_bytes(gzip.compress(data) if "compression" in form else data)
    return folder


def sealed_rows(folder: Path, maximum_rows: int, form: dict[str, Any] | None = None, **step: Any) -> list[int]:
    """Return the source rows of each seal, of one task after the other."""
    place = on_disk(folder, "iceberg")
    place.create(SCHEMA)
    checkpoint = {"uri": place.checkpoint_uri, "interval": "1h", "maximumRows": maximum_rows}
    manifest = manifest_for(
        place,
        write_text(folder / "in", form) if form else write_inputs(folder / "in", files=2, rows=ROWS // 2),
        files=form,
        steps=[{**step, "call": f"{__name__}:{step['call']}"}],
        checkpoint=checkpoint,
    )
    reconciler = reconciler_for(manifest, place)
    ended = drive(reconciler)
    assert isinstance(ended.outcome, Finish)
    assert_exactly_once(place, range(ROWS))
    return [seal.rows_read for seal in Ledger(reconciler.observer.store, ended.key).chains.counted_seals([1])]


@pytest.mark.parametrize("maximum_rows", slow_except([7, 50], 50))
@pytest.mark.parametrize(
    "step",
    [
        {"call": "plain", "input": "row"},
        {"call": "batch"},
        {"call": "waits", "input": "row", "concurrency": 8},
        {"call": "waits", "input": "row", "concurrency": 64},
        {"call": "plain", "input": "row", "concurrency": 6},
    ],
    ids=lambda step: "-".join(map(str, step.values())),
)
def test_no_seal_has_more_rows_and_few_have_less(step: dict[str, Any], maximum_rows: int, tmp_path: Path) -> None:
    sealed = sealed_rows(tmp_path, maximum_rows, **step)

    assert sum(sealed) == ROWS
    assert max(sealed) <= maximum_rows
    assert len(sealed) <= 2 * (4 + ROWS // maximum_rows), "seals of a few rows cost as much as large ones"


@pytest.mark.parametrize("form", TEXT.values(), ids=TEXT)
@pytest.mark.parametrize(
    "step", slow_except([{"call": "plain"}, {"call": "waits", "concurrency": 8}], {"call": "plain"}), ids=["plain", "waits"]
)
def test_text_which_is_read_by_bytes_is_sealed_by_rows_too(form: dict[str, Any], step: dict[str, Any], tmp_path: Path) -> None:
    sealed = sealed_rows(tmp_path, 50, form, input="row", **step)

    assert sum(sealed) == ROWS
    assert max(sealed) <= 50
    assert len(sealed) <= 2 * (4 + ROWS // 50)


def test_a_batch_of_a_size_that_is_asked_for_stays_whole(tmp_path: Path) -> None:
    sealed = sealed_rows(tmp_path, 20, call="batch", batchSize=50)

    assert sum(sealed) == ROWS
    assert set(sealed) == {50}


def test_without_it_rows_alone_end_no_segment(tmp_path: Path) -> None:
    sealed = sealed_rows(tmp_path, 10**9, call="plain", input="row")

    assert sealed == [ROWS // len(sealed)] * len(sealed), "one seal of each task"

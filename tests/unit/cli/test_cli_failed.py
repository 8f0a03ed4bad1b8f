"""`checkpointed-write failed`: the rows that are quarantined, with columns of theirs, where the source is as it was."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import checkpointed_writes as cw
from checkpoint_local.cli.main import main
from checkpoint_protocol.manifest.spec import CheckpointedWrite, parse_manifest
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import InputRecord, KeyColumn, Quarantined, QuarantinedRow, RowKey, RowPosition
from checkpoint_protocol.rows.positions import Range
from checkpoint_work.inputs.epoch_input import Earlier, list_source
from tests.support.records import TOKEN, launch, seal
from tests.support.stored_writes import StoredWrite

#: A source, and from where to where the rows with the ids 1 and 3 lie.
Made = tuple[dict[str, Any], list[tuple[int, int]]]
ROWS: Final = [{"id": number, "text": f"text {number}"} for number in range(5)]
LINES: Final = ["id,text", *(f"{row['id']},{row['text']}" for row in ROWS)]


def run(file: Path, *arguments: str) -> Result:
    return CliRunner(env={"XDG_CONFIG_HOME": "/nonexistent"}).invoke(
        main, ["failed", str(file), *arguments], catch_exceptions=False
    )


def shown(write: StoredWrite, *arguments: str) -> Any:
    return json.loads(run(write.file, "-o", "json", *arguments).stdout)


def manifest(folder: Path, source: dict[str, Any]) -> CheckpointedWrite:
    spec = {"source": source, "sink": {"none": {}}, "checkpoint": {"uri": str(folder / "checkpoints")}}
    document = {"apiVersion": "checkpointed.dev/v1alpha1", "kind": "CheckpointedWrite", "metadata": {"name": "nightly"}}
    return parse_manifest({**document, "spec": spec})


def with_failed(folder: Path, source: dict[str, Any], *failed: tuple[int, int], epoch: int = 1, stage: str = "") -> StoredWrite:
    """Return a write of a source whose rows at these positions have failed, in one seal."""
    write = StoredWrite(folder, given=manifest(folder, source), epoch=epoch, stage=stage)
    write.begin()
    orders = launch().model_copy(update={"source": write.manifest.spec.source, "on_row_error": "Quarantine"})
    write.ledger.attempts.put_launch(orders)
    record = list_source(orders, StorageSettings(), str(write.uri), Earlier())
    write.ledger.inputs.put_input(record)
    put_failed(write, *(RowPosition(range=Range(file=0, start=start, end=end)) for start, end in failed))
    return write


def put_failed(write: StoredWrite, *rows: RowPosition | RowKey) -> None:
    failed = [QuarantinedRow(row=row, step="steps:f", error="ValueError", message="bad\nrow", traceback="at f") for row in rows]
    quarantined = Quarantined(rows=tuple(failed)) if failed else None
    write.ledger.seals.put_seal(seal(0, 0, [(0, 0, 5)], rows=5, last=True).model_copy(update={"quarantined": quarantined}))


def parquet(folder: Path) -> Made:
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "in.parquet")
    return {"files": {"format": "parquet", "paths": [str(folder / "in.parquet")]}}, [(1, 2), (3, 4)]


def csv(folder: Path) -> Made:
    (folder / "in.csv").write_text("\n".join(LINES) + "\n")
    ends = list(accumulate(len(line) + 1 for line in LINES))
    return {"files": {"format": "csv", "paths": [str(folder / "in.csv")]}}, [(ends[1], ends[2]), (ends[3], ends[4])]


def csv_in_a_folder_of_a_key(folder: Path) -> Made:
    (folder / "id=1").mkdir()
    source, places = csv(folder / "id=1")
    (folder / "id=1" / "in.csv").write_text((folder / "id=1" / "in.csv").read_text().replace("id,", "no,", 1))
    return source, places


def packed_json(folder: Path) -> Made:
    (folder / "in.json.gz").write_bytes(gzip.compress("".join(f"{json.dumps(row)}\n" for row in ROWS).encode()))
    return {"files": {"format": "json", "paths": [str(folder / "in.json.gz")]}}, [(1, 2), (3, 4)]


def dataset(folder: Path) -> Made:
    lance.write_dataset(pa.Table.from_pylist(ROWS), str(folder / "in.lance"))
    return {"lance": {"uri": str(folder / "in.lance")}}, [(1, 2), (3, 4)]


@pytest.mark.parametrize("made", [parquet, csv, packed_json, dataset])
@pytest.mark.parametrize("narrow", [{}, {"columns": ["id"], "where": "id > 0"}])
def test_columns_are_read_of_the_rows_that_failed(made: Callable[[Path], Made], narrow: dict[str, Any], tmp_path: Path) -> None:
    source, places = made(tmp_path)
    write = with_failed(tmp_path, {**source, **narrow}, *places)

    found = shown(write, "--columns", "id")

    assert [(row["start"], row["columns"]["id"]) for row in found["rows"]] == [(places[0][0], 1), (places[1][0], 3)]
    assert (found["epoch"], found["rows"][0]["traceback"]) == (1, "at f")


def test_a_column_of_a_folder_is_read_alone(tmp_path: Path) -> None:
    source, places = csv_in_a_folder_of_a_key(tmp_path)

    found = shown(with_failed(tmp_path, source, *places), "--columns", "id")

    assert [row["columns"] for row in found["rows"]] == [{"id": 1}, {"id": 1}]


def test_a_row_is_shown_on_a_line_with_its_columns(tmp_path: Path) -> None:
    source, places = parquet(tmp_path)

    said = run(with_failed(tmp_path, source, *places).file, "--columns", "id,text")

    assert said.exit_code == 0
    assert f"row 3 of {tmp_path}/in.parquet (id=3, text=text 3): steps:f: ValueError: bad row\n" in said.stdout
    assert "epoch 1: 2 rows failed\n" in said.stdout


def test_rows_of_a_file_that_was_replaced_are_listed_with_null_and_one_note(tmp_path: Path) -> None:
    source, places = parquet(tmp_path)
    write = with_failed(tmp_path, source, *places)
    pq.write_table(pa.Table.from_pylist(ROWS[:2]), tmp_path / "in.parquet")

    said = run(write.file, "--columns", "id")

    assert said.stdout.count("(id=NULL)") == 2
    assert said.stderr.count("note: ") == said.stderr.count("was replaced or removed") == 1


def test_of_rows_that_are_known_by_keys_the_key_is_shown_and_no_column_is_read(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path, given=manifest(tmp_path, {"spark": {"format": "jdbc", "keyColumns": ["nr"]}}))
    write.begin()
    write.ledger.attempts.put_launch(launch().model_copy(update={"source": write.manifest.spec.source}))
    keys = (KeyColumn(name="nr", type="bigint"),)
    write.ledger.inputs.put_input(InputRecord(token=TOKEN, files=(), arrow_schema="", keys=keys))
    put_failed(write, RowKey(source=0, values=("7",)))

    (row,) = cw.Write.of(write.file).failed().to_pylist()
    refused = run(write.file, "--columns", "nr")

    assert (row["key"], row["place"]) == ("nr=7", None)
    assert refused.exit_code == 2
    assert "--columns nr: columns are read of files, Iceberg and Lance sources" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--columns", "nobody"], "--columns nobody: the write reads id, text"),
        (["--columns", "error"], "--columns error: the answer has a column of that name"),
        (["--epoch", "3"], "--epoch 3: the last epoch of the write is 2"),
    ],
)
def test_what_is_not_there_is_refused_by_name(arguments: list[str], told: str, tmp_path: Path) -> None:
    source, places = parquet(tmp_path)
    with_failed(tmp_path, source, *places)
    write = with_failed(tmp_path, source, epoch=2)

    said = run(write.file, *arguments)

    assert said.exit_code == 2
    assert told in said.stderr


def test_the_last_epoch_in_which_rows_failed_is_shown_unless_another_is_asked_for(tmp_path: Path) -> None:
    source, places = parquet(tmp_path)
    with_failed(tmp_path, source, *places)
    write = with_failed(tmp_path, source, epoch=2)

    assert shown(write)["epoch"] == 1
    assert shown(write, "--epoch", "2") == {"epoch": None, "rows": []}


def test_a_write_that_has_not_begun_has_no_failed_rows_and_nothing_is_made(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    said = run(write.file)

    assert (said.exit_code, said.stdout) == (0, "no row has failed\n")


def test_while_a_stage_is_at_work_its_rows_are_listed_with_its_name(tmp_path: Path) -> None:
    source, places = parquet(tmp_path)
    write = with_failed(tmp_path, source, *places, stage=f"parse-{'a' * 16}-1")

    (row, _) = shown(write, "--columns", "id")["rows"]

    assert (row["stage"], row["columns"]) == ("parse", {"id": 1})


def test_a_parquet_file_and_python_have_the_same_rows_with_types(tmp_path: Path) -> None:
    source, places = parquet(tmp_path)
    write = with_failed(tmp_path, source, *places)

    said = run(write.file, "--columns", "id", "--parquet", str(tmp_path / "failed.parquet"))
    table = cw.Write.of(write.file).failed(["id"])

    assert "2 rows written" in said.stderr
    assert pq.read_table(tmp_path / "failed.parquet").equals(table)
    assert table.schema.field("id").type == pa.int64()
    assert table["place"].to_pylist() == [f"row 1 of {tmp_path}/in.parquet", f"row 3 of {tmp_path}/in.parquet"]
    assert run(write.file, "--parquet", str(tmp_path / "nowhere" / "f")).exit_code == 1

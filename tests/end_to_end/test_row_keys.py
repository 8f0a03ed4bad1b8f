"""row_key(): one key for one row, however it is read, called and tried again, and another one for every other."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_control.loop.reconcile import Round
from checkpoint_local.preview import preview
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_work.steps.row_keys import current
from checkpointed_writes import row_key
from tests.support.places import Place, on_disk
from tests.support.slow import slow_except
from tests.support.writes import drive, manifest_for, reconciler_for, write_inputs

Keys = dict[tuple[int, int], str]
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int64()), ("key", pa.string())])
ROWS = 120
tries: dict[str, int] = {}
given: list[str] = []


def plain(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "part": row.get("part", 0), "key": row_key()}


def noted(row: dict[str, Any]) -> dict[str, Any]:
    given.append(row_key())
    return plain(row)


async def waits(row: dict[str, Any]) -> dict[str, Any]:
    return plain(row)


def twice(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"id": row["id"], "part": part} for part in range(2)]


def again(row: dict[str, Any]) -> dict[str, Any]:
    key = row_key()
    tries[key] = tries.get(key, 0) + 1
    if tries[key] == 1:
        raise TimeoutError
    return {"id": row["id"], "part": 0, "key": key}


def batch(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.append_column("key", pa.array([row_key()] * rows.num_rows))


def passed_on(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


def step(name: str, **fields: Any) -> dict[str, Any]:
    return {"call": f"{__name__}:{name}", "input": "row", "name": "step", **fields}


def keys(folder: Path, *steps: dict[str, Any], **more: Any) -> Keys:
    """Return the keys that the rows were given, by id and part."""
    place, ended = run(folder, *steps, **more)
    assert isinstance(ended.outcome, Finish), ended.outcome
    return {(row["id"], row["part"]): row["key"] for row in place.rows()}


def run(
    folder: Path, *steps: dict[str, Any], maximum_rows: int = 1000, name: str = "write", create: bool = False, **source: Any
) -> tuple[Place, Round]:
    """Run the write to its end, as if it had lost all that it knew."""
    shutil.rmtree(folder / "place", ignore_errors=True)
    place = on_disk(folder / "place", "iceberg")
    if not create:
        place.create(SCHEMA)
    manifest = write_of(place, folder, *steps, maximum_rows=maximum_rows, name=name, create=create, **source)
    return place, drive(reconciler_for(manifest, place))


def write_of(
    place: Place,
    folder: Path,
    *steps: dict[str, Any],
    maximum_rows: int = 1000,
    name: str = "write",
    create: bool = False,
    code: str = ".",
    **source: Any,
) -> CheckpointedWrite:
    return manifest_for(
        place,
        {"files": {"format": "parquet", "paths": [str(folder / "in")]}, **source},
        name=name,
        steps=steps,
        code={"path": code},
        sink={**place.sink(), "create": create},
        checkpoint={"uri": place.checkpoint_uri, "interval": "1h", "maximumRows": maximum_rows},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_inputs(tmp_path / "in", files=3, rows=ROWS // 3)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "rows.csv").write_text("id,text\n" + "".join(f"{number},{'x' * 200}\n" for number in range(ROWS)))
    return tmp_path


@pytest.mark.parametrize("form", slow_except(["parquet", "csv"], "csv"))
def test_a_row_has_one_key_however_it_is_read_and_called_and_no_other_row_has_it(folder: Path, form: str) -> None:
    paths = {"parquet": "in", "csv": "text"}[form]
    source: dict[str, Any] = {"files": {"format": form, "paths": [str(folder / paths)]}}
    expected = keys(folder, step("plain"), **source)

    assert len(set(expected.values())) == len(expected) == ROWS
    assert all(len(key) == 32 for key in expected.values())
    assert keys(folder, step("plain"), maximum_rows=7, **source) == expected
    assert keys(folder, step("plain", concurrency=4), maximum_rows=11, **source) == expected, "in threads"
    assert keys(folder, step("waits", concurrency=8), maximum_rows=13, **source) == expected
    assert keys(folder, step("waits", concurrency=32), **source) == expected, "in groups of several batches"
    assert keys(folder, step("waits"), **source) == expected
    kept = keys(folder, step("plain"), where="id > 17 AND id <> 20", **source)
    assert kept == {(number, 0): expected[number, 0] for number in range(18, ROWS) if number != 20}


@pytest.mark.parametrize("form", slow_except(["parquet", "csv"], "csv"))
@pytest.mark.parametrize("how", [{}, {"where": "id > 17 AND id <> 20"}], ids=["all rows", "some rows"])
def test_the_rows_that_a_new_table_is_made_of_have_the_keys_of_the_run(folder: Path, form: str, how: dict[str, Any]) -> None:
    given.clear()
    source = {"files": {"format": form, "paths": [str(folder / {"parquet": "in", "csv": "text"}[form])]}, **how}

    found = keys(folder, step("noted"), create=True, **source)

    assert len(given) > len(found), "some rows were a sample"
    assert set(given) == set(found.values())


@pytest.mark.parametrize("form", slow_except(["parquet", "csv"], "parquet"))
def test_a_preview_has_the_keys_of_the_run_that_follows(folder: Path, form: str) -> None:
    source: dict[str, Any] = {"files": {"format": form, "paths": [str(folder / {"parquet": "in", "csv": "text"}[form])]}}
    place = on_disk(folder / "place", "iceberg")
    (folder / "code").mkdir()
    body = "from checkpointed_writes import row_key\n\ndef keyed(row):\n    return {'id': row['id'], 'key': row_key()}\n"
    (folder / "code" / "previewed.py").write_text(body)
    manifest = write_of(place, folder, {**step("plain"), "call": "previewed:keyed"}, code=str(folder / "code"), **source)

    shown = preview(manifest, place.settings, 30).rows.to_pylist()

    found = keys(folder, step("plain"), **source)
    assert len(shown) == 30
    assert {(row["id"], 0): row["key"] for row in shown}.items() <= found.items()


def test_a_row_that_is_tried_again_keeps_its_key(folder: Path) -> None:
    tries.clear()
    quickly = {"firstDelay": "1ms"}

    assert keys(folder, step("again", retry=quickly, concurrency=8)) == keys(folder, step("plain"))
    assert set(tries.values()) == {2}


@pytest.mark.slow
def test_rows_that_are_made_of_one_row_have_keys_of_their_own(folder: Path) -> None:
    found = keys(folder, step("twice", output={"id": "int64", "part": "int64"}), step("waits", concurrency=8))

    assert len(set(found.values())) == len(found) == 2 * ROWS
    assert keys(folder, step("twice", output={"id": "int64", "part": "int64"}), step("plain"), maximum_rows=9) == found


@pytest.mark.slow
def test_another_write_and_another_step_have_other_keys(folder: Path) -> None:
    found = [
        keys(folder, step("plain")),
        keys(folder, step("plain"), name="other"),
        keys(folder, {**step("plain"), "name": "another"}),
    ]

    assert len({key for one in found for key in one.values()}) == 3 * ROWS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([step("batch", input="arrow")], "is for row steps, while they are called"),
        ([step("passed_on", input="arrow"), step("plain")], "a batch step has made this row"),
    ],
    ids=["in a batch step", "after one"],
)
def test_where_there_is_no_source_row_that_is_said(folder: Path, steps: list[dict[str, Any]], words: str) -> None:
    ended = run(folder, *steps)[1].outcome

    assert isinstance(ended, Stall)
    assert words in ended.message

    # Asked for in a row step before, and handed on.
    assert keys(folder, step("plain"), step("passed_on", input="arrow"))


def test_outside_of_a_step_there_is_no_row() -> None:
    current.set(None)
    with pytest.raises(RuntimeError, match="while they are called"):
        row_key()

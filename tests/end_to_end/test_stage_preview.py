"""Previews of one stage: its steps on what the stage before has really sealed; nothing stays of them. Without Spark."""

from __future__ import annotations

import functools
import importlib
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import checkpointed_writes
from checkpoint_control.decision.actions import Close, EndStage, Finish
from checkpoint_control.loop.reconcile import Round
from checkpoint_control.pipelines.decisions import IN_WORDS, Cause, named
from checkpoint_local.cli.commands.preview import preview_command
from checkpoint_local.cli.main import main
from checkpoint_local.preview import preview
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.store.object_store import open_store
from checkpointed_writes import WriteFailed
from tests.support.direct_drivers import DirectDrivers
from tests.support.driver_threads import Killed
from tests.support.places import LancePlace, Place, on_disk
from tests.support.slow import slow_except
from tests.support.waiting import patience
from tests.support.writes import manifest_for, reconciler_for, write_inputs

PARSED = {"id": "int64", "key": "int64", "parsed": "string"}
EMBEDDED = {**PARSED, "key_of_row": "string"}
COUNTED = {"key": "int64", "rows": "int64"}
ROWS = 30
CODE = """
import pyarrow as pa
from checkpointed_writes import RowError, row_key

def parse(row, version="1"):
    return {"id": row["id"], "key": row["id"] % 3, "parsed": f"parsed {version}"}

def clean(row):
    return {**row, "parsed": row["parsed"] + " clean"}

def embed(row):
    return {**row, "key_of_row": row_key()}

def fails(row):
    if row["id"] % 5 == 3:
        raise RowError(f"{row['id']} is no good")
    return embed(row)

def fails_on_one(rows):
    if rows.column("key")[0].as_py() == 1:
        raise RowError("1 is no good")
    return count(rows)

def count(rows):
    return pa.RecordBatch.from_pylist([{"key": rows.column("key")[0].as_py(), "rows": rows.num_rows}])
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with code, which this process imports too, input, and a temporary folder that is to be empty at the end."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "staged_code.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, "staged_code", raising=False)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    write_inputs(tmp_path / "in", files=3, rows=ROWS // 3)
    yield tmp_path
    assert list((tmp_path / "tmp").iterdir()) == []


@functools.cache
def place_of(folder: Path) -> Place:
    return on_disk(folder / "place", "lance")


def stage(name: str, call: str, output: dict[str, str], **more: Any) -> dict[str, Any]:
    step = {"call": f"staged_code:{call}", "input": "row", "output": output}
    if more.get("kind") == "Aggregate":
        del step["input"]
    step |= {field: more.pop(field) for field in ("arguments",) if field in more}
    return {"name": name, "steps": [step], **more}


PARSE = stage("parse", "parse", PARSED)
EMBED = stage("embed", "embed", EMBEDDED)
COUNT = stage("count", "count", COUNTED, kind="Aggregate", keyBy=["key"], buckets=2)


def manifest(folder: Path, *stages: dict[str, Any]) -> CheckpointedWrite:
    place = place_of(folder)
    checkpoint = {"interval": "1h", "maximumRows": 5}
    return manifest_for(
        place,
        folder / "in",
        stages=list(stages),
        sink={"create": True},
        checkpoint=checkpoint,
        code={"path": str(folder / "code")},
        backoffLimit=9,
    )


def run(folder: Path, write: CheckpointedWrite, until: Callable[[Round], bool], kill_after: int | None = None) -> None:
    """Run the write to a round, or until some tasks are sealed, whose driver dies then."""
    place, is_over = place_of(folder), threading.Event()

    def between_tasks(number: int) -> None:
        if number == kill_after:
            # One that is at work when the run ends has no closing record.
            if until is begun:
                is_over.wait(patience(60))
            raise Killed

    store = open_store(place.checkpoint_uri, place.settings)
    drivers = DirectDrivers(store, place.settings, between_tasks=between_tasks)
    reconciler = reconciler_for(write, place, drivers, store)
    for _ in range(500):
        done = reconciler.step()
        if until(done):
            is_over.set()
            drivers.finish()
            return
        assert done.outcome is None, done.outcome
        drivers.wait_a_moment()
    raise AssertionError("no such round")


def after(name: str) -> Callable[[Round], bool]:
    def is_after(done: Round) -> bool:
        known = named(done.key.stage)
        return isinstance(done.actions[-1], EndStage) and known is not None and known.stage == name

    return is_after


def begun(done: Round) -> bool:
    """An attempt is at work that has sealed something."""
    last = done.seen.last
    return last is not None and last.holds_seals and not last.is_closed


def cut_off(done: Round) -> bool:
    last = done.seen.last
    return last is not None and not last.is_sealed and isinstance(done.actions[-1], Close)


def everything(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def previewed(folder: Path, write: CheckpointedWrite, name: str | None, rows: int = 20) -> Any:
    """Preview a stage, of which nothing may stay."""
    before = everything(folder / "place")
    found = preview(write, place_of(folder).settings, rows, name)
    assert everything(folder / "place") == before
    return found


@pytest.mark.slow
def test_a_stage_gets_what_the_stage_before_has_sealed_and_nothing_is_written(folder: Path) -> None:
    write = manifest(folder, PARSE, EMBED)
    run(folder, write, after("parse"))
    # Neither the source nor the code of the stage before is needed any more.
    for path in (folder / "in").iterdir():
        path.unlink()

    found = previewed(folder, write, "embed", rows=12)

    assert (found.rows_read, found.failed, found.notice) == (12, (), "")
    assert {row["parsed"] for row in found.rows.to_pylist()} == {"parsed 1"}
    assert found.rows.schema.names == list(EMBEDDED)


@pytest.mark.slow
def test_rows_have_the_keys_that_they_have_in_the_run(folder: Path) -> None:
    write = manifest(folder, PARSE, EMBED)
    run(folder, write, after("parse"))
    found = previewed(folder, write, "embed", rows=100)

    run(folder, write, lambda done: isinstance(done.outcome, Finish))

    place = place_of(folder)
    assert isinstance(place, LancePlace)
    assert found.rows_read == ROWS
    assert {row["id"]: row["key_of_row"] for row in found.rows.to_pylist()} == {
        row["id"]: row["key_of_row"] for row in place.rows()
    }


@pytest.mark.parametrize("until", slow_except([begun, cut_off], begun), ids=["at work", "cut off"])
def test_what_a_stage_has_sealed_that_is_not_done_is_shown_too(folder: Path, until: Callable[[Round], bool]) -> None:
    write = manifest(folder, PARSE, EMBED)
    run(folder, write, until, kill_after=1)

    found = previewed(folder, write, "embed", rows=100)

    assert 0 < found.rows_read < ROWS
    assert found.notice == ""


def test_the_first_stage_gets_rows_of_the_source(folder: Path) -> None:
    found = previewed(folder, manifest(folder, PARSE, EMBED), "parse", rows=4)

    assert found.rows.to_pylist() == [{"id": n, "key": n % 3, "parsed": "parsed 1"} for n in range(4)]


@pytest.mark.slow
def test_steps_of_stages_that_keep_nothing_are_run_with_it(folder: Path) -> None:
    clean = stage("clean", "clean", PARSED, checkpoint=False)
    write = manifest(folder, PARSE, clean, EMBED)
    run(folder, write, after("parse"))

    assert {row["parsed"] for row in previewed(folder, write, "embed").rows.to_pylist()} == {"parsed 1 clean"}
    found = previewed(folder, write, "clean")
    assert found.rows.schema.names == list(PARSED)
    assert {row["parsed"] for row in found.rows.to_pylist()} == {"parsed 1 clean"}


def test_rows_that_fail_are_named_by_their_place_in_the_result(folder: Path) -> None:
    write = manifest(folder, PARSE, stage("embed", "fails", EMBEDDED))
    run(folder, write, after("parse"))

    found = previewed(folder, write, "embed", rows=100)

    assert sorted(one.message for one in found.failed) == sorted(f"{n} is no good" for n in range(ROWS) if n % 5 == 3)
    assert all("/stages/parse-" in one.row for one in found.failed)


@pytest.mark.slow
def test_an_aggregate_gets_whole_groups_until_there_are_so_many_rows(folder: Path) -> None:
    write = manifest(folder, PARSE, COUNT)
    run(folder, write, after("count-shuffle"))

    assert [row["rows"] for row in previewed(folder, write, "count", rows=11).rows.to_pylist()] == [10, 10]
    found = previewed(folder, write, "count", rows=1000)
    assert sorted(row["key"] for row in found.rows.to_pylist()) == [0, 1, 2]
    assert {row["rows"] for row in found.rows.to_pylist()} == {10}


@pytest.mark.slow
def test_a_group_that_fails_ends_the_preview_with_its_key(folder: Path) -> None:
    count = stage("count", "fails_on_one", COUNTED, kind="Aggregate", keyBy=["key"], buckets=2)
    write = manifest(folder, PARSE, count)
    run(folder, write, after("count-shuffle"))

    with pytest.raises(NeedsChange, match=r"the 10 rows with key = 1.*1 is no good"):
        previewed(folder, write, "count", rows=1000)


def test_an_aggregate_whose_groups_are_not_all_there_is_refused_until_they_are(folder: Path) -> None:
    write = manifest(folder, PARSE, COUNT)
    with pytest.raises(NeedsChange, match=r"'count' is an Aggregate, .*; preview one stage \(--stage NAME\), or a manifest with"):
        previewed(folder, write, None)
    assert previewed(folder, manifest(folder, PARSE), None, rows=4).rows_read == 4
    run(folder, write, after("parse"))
    with pytest.raises(NeedsChange, match=r"'count-shuffle', has sealed nothing yet; run the write until it has$"):
        previewed(folder, write, "count")

    run(folder, write, cut_off, kill_after=1)
    with pytest.raises(NeedsChange, match=r"it is an Aggregate, .* 'count-shuffle', which puts them together, is not done yet"):
        previewed(folder, write, "count")

    run(folder, write, after("count-shuffle"))
    assert previewed(folder, write, "count", rows=4).rows["rows"].to_pylist() == [10]


def edited_code(folder: Path) -> None:
    (folder / "code" / "staged_code.py").write_text(f"{CODE}\n# edited\n")


@pytest.mark.parametrize("edit", slow_except(["code", "arguments"], "code"))
@pytest.mark.parametrize("is_done", slow_except([True, False], False), ids=["done", "cut off"])
def test_rows_of_other_code_or_arguments_are_shown_with_a_line_that_says_so(folder: Path, edit: Cause, is_done: bool) -> None:
    parse = {**PARSE, "code": ["staged_code"]}
    write = manifest(folder, parse, EMBED)
    if is_done:
        run(folder, write, after("parse"))
    else:
        run(folder, write, cut_off, kill_after=1)
    if edit == "code":
        edited_code(folder)
    else:
        parse = stage("parse", "parse", PARSED, arguments={"version": "2"}, code=["staged_code"])

    found = previewed(folder, manifest(folder, parse, EMBED), "embed")

    assert (
        found.notice == f"the rows of the stage 'parse' were made by other code or arguments than those of now: {IN_WORDS[edit]}"
    )
    assert {row["parsed"] for row in found.rows.to_pylist()} == {"parsed 1"}


@pytest.mark.parametrize(
    ("stages", "name", "words"),
    [
        ([], "embed", "spec.stages: there are none; preview without --stage"),
        ([PARSE, EMBED], "embd", "spec.stages has no stage of that name; name one of these: parse, embed"),
        ([PARSE, EMBED], "", "spec.stages has no stage of that name; name one of these: parse, embed"),
        ([PARSE, COUNT], "count-shuffle", "spec.stages has no stage of that name; name one of these: parse, count"),
        (
            [PARSE, EMBED],
            "embed",
            "the stage before, 'parse', has sealed nothing yet; run the write until it has, or preview without --stage",
        ),
    ],
)
def test_the_command_ends_with_2_where_there_is_no_such_stage_or_nothing_for_it_to_read(
    folder: Path, stages: list[dict[str, Any]], name: str, words: str
) -> None:
    file = saved(folder, manifest(folder, *stages))

    done = CliRunner().invoke(main, ["preview", str(file), "--stage", name])

    assert done.exit_code == 2
    assert f"--stage {name}: {words}" in " ".join(done.stderr.split())
    assert everything(folder / "place") == {}


@pytest.mark.slow
def test_what_the_messages_say_shows_rows(folder: Path) -> None:
    write = manifest(folder, PARSE, EMBED)

    assert previewed(folder, manifest(folder), None, rows=4).rows_read == 4
    assert previewed(folder, write, "parse", rows=4).rows_read == 4
    assert previewed(folder, write, None, rows=4).rows.schema.names == list(EMBEDDED)
    run(folder, write, after("parse"))
    assert previewed(folder, write, "embed", rows=4).rows_read == 4


def test_the_command_and_python_show_a_stage_as_they_do_a_source(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write = manifest(folder, PARSE, EMBED)
    run(folder, write, after("parse"))
    edited_code(folder)
    file = saved(folder, write)

    assert preview_command(file, None, "json", 3, "embed") == 0
    shown = capsys.readouterr()

    answer = json.loads(shown.out)
    assert (answer["rowsRead"], len(answer["rows"])) == (3, 3)
    assert set(answer) == {"rowsRead", "columns", "rows", "failed"}
    assert "were made by other code" in shown.err
    found = checkpointed_writes.preview(file, rows=3, stage="embed")
    assert found.rows.to_pylist() == answer["rows"]
    assert "its code has changed" in found.notice
    with pytest.raises(WriteFailed) as caught:
        checkpointed_writes.preview(file, stage="other")
    assert caught.value.reason == reasons.MANIFEST_INVALID


def saved(folder: Path, write: CheckpointedWrite) -> Path:
    file = folder / "write.yaml"
    file.write_text(yaml.safe_dump(write.model_dump(mode="json", by_alias=True)))
    return file

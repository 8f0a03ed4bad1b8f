"""A run after the commit says what is new and how to go on, and --again takes it. Without Spark but in the last test."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from checkpoint_control.decision.actions import OpenEpoch
from checkpoint_control.loop.reconcile import Reconciler
from checkpoint_local.code import digests_with
from checkpoint_local.since_commit import SinceCommit, has_more, said_of, since_commit
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from tests.support.command_line import CommandLine
from tests.support.places import Place, on_disk
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of, write_inputs

NOW = datetime.datetime(2026, 3, 28, 12, 0, tzinfo=datetime.UTC)
CODE = """
import own_helper
import pyarrow as pa

def same(rows):
    return own_helper.same(rows)

def marked(rows, mark):
    return own_helper.same(rows).set_column(1, "text", pa.array([mark] * rows.num_rows))
"""
PLAIN = {"steps": [{"call": "own_steps:same"}]}
STAGED: dict[str, Any] = {
    "stages": [
        {"name": "first", "steps": [{"call": "own_steps:same"}]},
        {"name": "last", "steps": [{"call": "own_last:same"}]},
    ]
}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return on_disk(tmp_path, "lance")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that has all: the code, which this process imports too, the input and the checkpoints."""
    (tmp_path / "own_steps.py").write_text(CODE)
    (tmp_path / "own_helper.py").write_text("def same(rows):\n    return rows\n")
    (tmp_path / "own_last.py").write_text("def same(rows):\n    return rows\n")
    monkeypatch.syspath_prepend(tmp_path)
    write_inputs(tmp_path / "in", files=2, rows=10)
    yield tmp_path
    for module in ("own_steps", "own_helper", "own_last"):
        sys.modules.pop(module, None)


def a_write(place: Place, folder: Path, **spec: Any) -> CheckpointedWrite:
    return manifest_for(place, folder / "in", code={"path": str(folder)}, **{**PLAIN, **spec})


def committed(place: Place, manifest: CheckpointedWrite) -> Reconciler:
    place.create(SCHEMA)
    reconciler = reconciler_for(manifest, place)
    drive(reconciler)
    return reconciler


def since(reconciler: Reconciler, place: Place, now: CheckpointedWrite) -> SinceCommit:
    return since_commit(reconciler.current_ledger(), now.spec, place.settings, digests_with(None), lambda: NOW)


def test_nothing_has_changed_while_nothing_was_edited(place: Place, folder: Path) -> None:
    manifest = a_write(place, folder)
    found = since(committed(place, manifest), place, manifest)

    assert found == SinceCommit(0)
    assert said_of(found, manifest.spec, Path("w.yaml")) == [
        "nothing is new since; checkpointed-write run w.yaml --again takes what comes later"
    ]


def test_new_files_and_an_edit_of_a_module_that_a_step_imports_are_told(place: Place, folder: Path) -> None:
    manifest = a_write(place, folder)
    reconciler = committed(place, manifest)
    pq.write_table(rows_of(range(90, 95)), folder / "in" / "new.parquet")
    (folder / "own_helper.py").write_text("def same(rows):\n    return rows.slice(0)\n")
    found = since(reconciler, place, manifest)

    assert found == SinceCommit(1, ("the code of the steps has changed",))
    assert said_of(found, manifest.spec, Path("w.yaml")) == [
        "since then: 1 new file; the code of the steps has changed",
        "checkpointed-write run w.yaml --again takes what is new, with the steps as they are now",
    ]


def test_an_edited_field_counts_for_new_input(place: Place, folder: Path) -> None:
    """It is named, and not taken for an edit of code."""
    reconciler = committed(place, a_write(place, folder))
    edited = a_write(place, folder, steps=[{"call": "own_steps:marked", "arguments": {"mark": "later"}}])
    found = since(reconciler, place, edited)

    assert found == SinceCommit(0, ("spec.steps.0.arguments.mark has changed", "spec.steps.0.call has changed"))
    assert said_of(found, edited.spec, Path("w.yaml"))[1] == (
        "rows that are committed stay as they are; an edit counts for new input, or for a write with another metadata.name"
    )
    pq.write_table(rows_of(range(90, 92)), folder / "in" / "new.parquet")
    again = reconciler_for(edited, place)
    again.observer.once_more_after = 1
    drive(again)
    assert {row["text"] for row in place.rows() if row["id"] >= 90} == {"later"}
    assert {row["text"] for row in place.rows() if row["id"] < 90} == {f"zeile {number}" for number in range(20)}


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("own_helper", ("the stage first: its code has changed",)),
        ("own_last", ("the code of the last stage has changed",)),
    ],
)
def test_the_stage_whose_code_was_edited_is_named(place: Place, folder: Path, module: str, told: tuple[str, ...]) -> None:
    manifest = a_write(place, folder, **STAGED, steps=[])
    reconciler = committed(place, manifest)
    (folder / f"{module}.py").write_text("def same(rows):\n    return rows.slice(0)\n")

    assert since(reconciler, place, manifest).edits == told


def test_an_overwriting_write_is_told_to_read_all_again(place: Place, folder: Path) -> None:
    manifest = a_write(place, folder, sink={**place.sink(), "mode": "OverwriteAll"})
    found = since(committed(place, manifest), place, manifest)

    assert "reads the whole source again" in said_of(found, manifest.spec, Path("w.yaml"))[-1]


def test_one_more_epoch_that_is_asked_for_takes_what_is_new_and_is_the_only_one(place: Place, folder: Path) -> None:
    manifest = a_write(place, folder)
    reconciler = committed(place, manifest)
    ledger = reconciler.current_ledger()
    assert not has_more(ledger, manifest.spec, place.settings, lambda: NOW)
    pq.write_table(rows_of(range(90, 95)), folder / "in" / "new.parquet")
    assert has_more(ledger, manifest.spec, place.settings, lambda: NOW)

    again = reconciler_for(manifest, place)
    again.observer.once_more_after = 1
    ended = drive(again)

    assert ended.key.epoch == 2
    assert ended.commit is not None
    assert ended.commit.rows_read == 5
    assert sorted(row["id"] for row in place.rows()) == [*range(20), *range(90, 95)]
    # What began it is the manifest's own runNonce: another run finds nothing to do.
    assert not any(isinstance(action, OpenEpoch) for action in reconciler_for(manifest, place).step().actions)


def test_a_run_after_the_commit_tells_it_and_again_without_news_does_nothing(place: Place, folder: Path) -> None:
    manifest = a_write(place, folder)
    committed(place, manifest)
    command = CommandLine(folder / "cli", place, manifest)

    for arguments in ((), ("--again",)):
        code, output = command.run(*arguments)

        assert code == 0, output
        assert "already committed" in output
        assert "nothing is new since" in output


def test_again_takes_a_new_file_with_a_driver_of_its_own(place: Place, folder: Path) -> None:
    manifest = a_write(place, folder)
    committed(place, manifest)
    pq.write_table(rows_of(range(90, 95)), folder / "in" / "new.parquet")
    code, output = CommandLine(folder / "cli", place, manifest).run("--again")

    assert code == 0, output
    assert "epoch 2 begins: --again asks for it" in output
    assert "committed 5 rows" in output

"""Write, audit, publish by the whole loop on one machine: what the function is given, what it refuses, deaths of the runner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkpoint_commit.sinks.registry import open_sink
from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_control.loop.reconcile import Round
from checkpoint_control.writes.deletion import Deleted, delete_write
from checkpoint_local.cli import exits
from checkpoint_local.runner import identify
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.store.object_store import open_store
from checkpoint_work.audits.staged_table import StagedTable
from tests.support.command_line import CommandLine
from tests.support.crashes import Died, DyingStore, Effects, dying_sink
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import IcebergPlace, on_disk
from tests.support.position_deletes import delete_first_row
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, rows_of, write_inputs

ROWS = 400
STRANGER = range(10_000, 10_003)
#: What the functions below do, and what they were given.
said: Any = None
given: list[dict[str, Any]] = []


def judge(table: StagedTable) -> Any:
    """The audit of these tests, in the drivers' process, which is this one."""
    given.append(
        {
            "name": table.name,
            "rows": sorted(table.to_arrow(["id"])["id"].to_pylist()),
            "added": table.count(added=True),
            "text": table.to_arrow(["text"], "id = 7").to_pylist(),
        }
    )
    if isinstance(said, BaseException):
        raise said
    return said


async def judge_later(table: StagedTable) -> Any:
    return judge(table)


AUDIT = {"audit": f"{__name__}:judge"}
CODE_PATH = str(Path(__file__).parents[2])


@pytest.fixture
def place(tmp_path: Path) -> IcebergPlace:
    """A table with rows of a stranger."""
    global said
    said = None
    given.clear()
    return make(tmp_path / "place")


def make(folder: Path) -> IcebergPlace:
    made = on_disk(folder, "iceberg")
    assert isinstance(made, IcebergPlace)
    made.create(SCHEMA)
    made.append(rows_of(STRANGER))
    return made


def run(place: IcebergPlace, source: Path, drivers: DirectDrivers | None = None, **spec: Any) -> Round:
    return drive(reconciler_for(manifest_for(place, source, **{"sink": AUDIT, **spec}), place, drivers))


def ids(place: IcebergPlace, ref: str = "main") -> list[int]:
    return sorted(row["id"] for row in place.table().scan().use_ref(ref).to_arrow().to_pylist())


def branches(place: IcebergPlace) -> list[str]:
    return sorted(place.table().metadata.refs)


def test_the_function_sees_the_table_as_it_would_be_and_what_passes_is_published(place: IcebergPlace, tmp_path: Path) -> None:
    ended = run(place, write_inputs(tmp_path / "in"))

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert ids(place) == [*range(ROWS), *STRANGER]
    assert branches(place) == ["main"]
    assert given == [
        {
            "name": f"test.{place.name}",
            "rows": [*range(ROWS), *STRANGER],
            "added": ROWS,
            "text": [{"text": "zeile 7"}],
        }
    ]
    assert ended.commit is not None
    assert ended.commit.commit_id == place.table().metadata.current_snapshot_id


def test_an_overwrite_is_seen_as_it_would_be_and_the_next_epoch_is_audited_too(place: IcebergPlace, tmp_path: Path) -> None:
    source = write_inputs(tmp_path / "in")
    overwriting = {**AUDIT, "mode": "OverwriteAll"}

    assert isinstance(run(place, source, sink=overwriting).outcome, Finish)
    (source / "part-0.parquet").unlink()
    assert isinstance(run(place, source, sink=overwriting, runNonce="2").outcome, Finish)

    assert [seen["rows"] for seen in given] == [list(range(ROWS)), list(range(100, ROWS))]
    assert ids(place) == list(range(100, ROWS))


def test_rows_that_the_table_has_deleted_are_not_in_what_is_audited(place: IcebergPlace, tmp_path: Path) -> None:
    delete_first_row(place)

    assert isinstance(run(place, write_inputs(tmp_path / "in")).outcome, Finish)

    assert given[0]["rows"] == [*range(ROWS), *list(STRANGER)[1:]] == ids(place)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("3 flights have no airport", "judge refuses the rows (test."),
        (ValueError("3 flights have no airport"), "it raised ValueError: 3 flights have no airport ("),
        (False, "it returned False"),
        (42, "it returned int; it has to return nothing (or True)"),
        (SystemExit(3), "it raised SystemExit: 3"),
    ],
)
def test_what_is_refused_stops_with_the_words_of_the_function_and_stays_on_the_branch(
    place: IcebergPlace, tmp_path: Path, answer: Any, words: str
) -> None:
    global said
    said = answer

    ended = run(place, write_inputs(tmp_path / "in"))

    assert isinstance(ended.outcome, Stall)
    assert ended.outcome.reason == reasons.AUDIT_REFUSED
    assert words in ended.outcome.message
    if isinstance(answer, str):
        assert answer in ended.outcome.message
    assert ids(place) == list(STRANGER)
    branch = f"cw-audit-{ended.key.uid}"
    assert branches(place) == [branch, "main"]
    assert branch in ended.outcome.message
    assert ids(place, branch) == [*range(ROWS), *STRANGER]


def test_once_the_code_is_edited_the_same_rows_are_audited_again_and_not_computed_again(
    place: IcebergPlace, tmp_path: Path
) -> None:
    global said
    source, code = write_inputs(tmp_path / "in"), tmp_path / "code"
    code.mkdir()
    (code / "checks.py").write_text("# refuses")
    said = "no"
    store = open_store(place.checkpoint_uri, place.settings)
    drivers = DirectDrivers(store, place.settings)
    reconciler = reconciler_for(manifest_for(place, source, sink=AUDIT, code={"path": str(code)}), place, drivers, store)
    assert isinstance(drive(reconciler).outcome, Stall)
    tasks = drivers.tasks_run
    assert isinstance(drive(reconciler).outcome, Stall)
    assert len(given) == 1, "nothing has changed"

    said = None
    (code / "checks.py").write_text("# lets pass")
    ended = run(place, source, drivers, code={"path": str(code)})

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert len(given) == 2
    assert drivers.tasks_run == tasks
    assert ids(place) == [*range(ROWS), *STRANGER]


def test_another_function_in_the_manifest_is_asked_and_none_commits_without_an_audit(place: IcebergPlace, tmp_path: Path) -> None:
    global said
    source = write_inputs(tmp_path / "in")
    said = "no"
    assert isinstance(run(place, source).outcome, Stall)
    assert isinstance(run(place, source, sink={"audit": f"{__name__}:judge_later"}).outcome, Stall)
    assert len(given) == 2

    ended = run(place, source, sink=place.sink())

    assert isinstance(ended.outcome, Finish)
    assert ids(place) == [*range(ROWS), *STRANGER]
    assert branches(place) == ["main"]


def test_a_function_that_is_not_there_and_a_column_that_is_not_there_are_named(place: IcebergPlace, tmp_path: Path) -> None:
    source = write_inputs(tmp_path / "in")

    missing = run(place, source, sink={"audit": "no_such_module:check"}).outcome
    wrong = run(place, source, sink={"audit": f"{__name__}:ask_for_a_wrong_column"}).outcome

    assert isinstance(missing, Stall)
    assert (missing.reason, "no module 'no_such_module'" in missing.message) == (reasons.CODE_MISSING, True)
    assert isinstance(wrong, Stall)
    assert "has no column 'price' (it has id, text)" in wrong.message


def ask_for_a_wrong_column(table: StagedTable) -> None:
    table.to_arrow(["price"])


def test_a_store_that_does_not_answer_while_the_rows_are_read_is_no_refusal(place: IcebergPlace, tmp_path: Path) -> None:
    global said
    said = Retryable(reasons.STORE_UNAVAILABLE, "the store did not answer")

    ended = run(place, write_inputs(tmp_path / "in"), backoffLimit=0).outcome

    assert isinstance(ended, Stall)
    assert ended.reason == reasons.BACKOFF_LIMIT_EXCEEDED
    assert "the store did not answer" in ended.message
    said = None
    assert isinstance(run(place, tmp_path / "in", backoffLimit=0).outcome, Finish)


def test_rows_that_others_append_while_the_audit_runs_are_in_nobodys_way(place: IcebergPlace, tmp_path: Path) -> None:
    ended = run(place, write_inputs(tmp_path / "in"), sink={"audit": f"{__name__}:append_meanwhile"})

    assert isinstance(ended.outcome, Finish)
    assert ids(place) == [*range(ROWS), *STRANGER, 77_777]


def append_meanwhile(table: StagedTable) -> None:
    appending_to.append(rows_of([77_777]))


appending_to: Any = None


@pytest.fixture(autouse=True)
def _appending(place: IcebergPlace) -> None:
    global appending_to
    appending_to = place


@pytest.mark.slow
def test_a_death_around_each_effect_of_the_runner_leaves_the_rows_once_and_readers_see_them_after_the_audit_only(
    tmp_path: Path,
) -> None:
    global said
    said = None
    source, effects = write_inputs(tmp_path / "in", files=1, rows=10), Effects()
    assert not run_until_death(make(tmp_path / "clean"), source, effects)
    assert {"stage", "publish"} <= set(effects.names)
    published = effects.names.index("publish")

    first = next(number for number, name in enumerate(effects.names) if "commit/claim-0" in name)
    for point, name in list(enumerate(effects.names))[first:]:
        for after in (False, True):
            place = make(tmp_path / f"{point}-{after}")
            assert run_until_death(place, source, Effects(point, after)), (name, after)
            assert (0 in ids(place)) == (point > published or (point == published and after)), (name, after)

            ended = run(place, source)

            assert isinstance(ended.outcome, Finish), (name, after, ended.outcome)
            assert ids(place) == [*range(10), *STRANGER], (name, after)
            assert branches(place) == ["main"], (name, after)


def run_until_death(place: IcebergPlace, source: Path, effects: Effects) -> bool:
    manifest = manifest_for(place, source, sink=AUDIT)
    store = open_store(place.checkpoint_uri, place.settings)
    drivers = DirectDrivers(store, place.settings)
    try:
        drive(reconciler_for(manifest, place, drivers, DyingStore(store, effects), dying_sink(manifest, place.settings, effects)))
    except Died:
        drivers.finish()
        return True
    return False


def test_a_write_that_is_deleted_while_its_rows_are_refused_leaves_neither_branch_nor_files(
    place: IcebergPlace, tmp_path: Path
) -> None:
    global said
    said = "no"
    manifest = manifest_for(place, write_inputs(tmp_path / "in"), sink=AUDIT)
    store = open_store(place.checkpoint_uri, place.settings)
    assert isinstance(drive(reconciler_for(manifest, place)).outcome, Stall)
    uid = identify(store, manifest)
    files = place.folder.rglob(f"cw-{uid}/*.parquet")
    assert len(list(files)) > 0

    outcome = delete_write(store, uid, open_sink(manifest.spec.sink, place.settings))

    assert isinstance(outcome, Deleted)
    assert branches(place) == ["main"]
    assert ids(place) == list(STRANGER)
    assert list(place.folder.rglob(f"cw-{uid}/*.parquet")) == []
    assert not list(store.list(f"staged/{uid}/"))


CHECKS = """
def whole_days(table):
    frame = table.to_spark(["id", "text"], "id >= 0", added=True)
    first, last, rows = frame.selectExpr("min(id)", "max(id)", "count(distinct text)").first()
    if (first, last, rows) != (0, {last}, {last} + 1):
        return f"rows {{first}} to {{last}} were added, {{rows}} in all, which is not a whole day"
    assert table.count() == rows + 3
"""


@pytest.mark.spark
def test_by_the_installed_command_with_spark_rows_are_refused_and_after_an_edit_published(
    place: IcebergPlace, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "checks.py").write_text(CHECKS.format(last=ROWS))
    source = write_inputs(tmp_path / "in")
    manifest = manifest_for(place, source, sink={"audit": "checks:whole_days"}, code={"path": str(code)})
    command = CommandLine(tmp_path / "command", place, manifest)

    refused, said_then = command.run()

    assert refused == exits.FAILED, said_then
    assert "AuditRefused" in said_then
    assert "the log of the last driver: " in said_then, "that of the rows, which has gone on with the audit"
    assert f"rows 0 to {ROWS - 1} were added, {ROWS} in all, which is not a whole day" in " ".join(said_then.split())
    assert ids(place) == list(STRANGER)
    (code / "checks.py").write_text(CHECKS.format(last=ROWS - 1))

    done, said_now = command.run()

    assert done == exits.DONE, said_now
    assert ids(place) == [*range(ROWS), *STRANGER]
    assert branches(place) == ["main"]


def test_an_upsert_is_audited_with_the_rows_that_it_replaces_gone(place: IcebergPlace, tmp_path: Path) -> None:
    place.append(rows_of([7]))

    ended = run(place, write_inputs(tmp_path / "in"), sink={**AUDIT, "mode": "Upsert", "upsertKeys": ["id"]})

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert given[0]["rows"] == [*range(ROWS), *STRANGER] == ids(place)
    assert given[0]["added"] == ROWS
    assert branches(place) == ["main"]

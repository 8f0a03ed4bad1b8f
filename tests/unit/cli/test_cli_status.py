"""`checkpointed-write status`: one word for a write, told from its store alone, and an exit code that a script can wait on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from checkpoint_local.cli.main import main
from checkpoint_protocol.manifest.spec import parse_manifest
from checkpoint_protocol.records import NameRecord, Quarantined, QuarantinedRow, RowPosition, encode
from checkpoint_protocol.rows.positions import Range
from tests.support.records import TOKEN, launch, seal
from tests.support.stored_writes import StoredWrite

COMMITTED, FAILED, MANIFEST_WRONG, NOT_COMMITTED = 0, 1, 2, 3
PARSE = f"parse-{'a' * 16}-1"


def run(file: Path, *arguments: str) -> Result:
    return CliRunner(env={"XDG_CONFIG_HOME": "/nonexistent"}).invoke(
        main, ["status", str(file), *arguments], catch_exceptions=False
    )


def status_of(write: StoredWrite) -> tuple[int, dict[str, Any]]:
    result = run(write.file, "-o", "json")
    answer: dict[str, Any] = json.loads(result.stdout)
    return result.exit_code, answer


def only_named(write: StoredWrite) -> None:
    write.begin()


def recorded(write: StoredWrite) -> None:
    write.begin()
    write.launch()


def half_sealed(write: StoredWrite) -> None:
    recorded(write)
    write.plan()
    write.seal(0)


def all_sealed(write: StoredWrite) -> None:
    half_sealed(write)
    write.seal(1)


def with_nothing_to_read(write: StoredWrite) -> None:
    recorded(write)
    write.plan(tasks=0)


def closed_half_sealed(write: StoredWrite) -> None:
    half_sealed(write)
    write.close()


def closed_and_complete(write: StoredWrite) -> None:
    all_sealed(write)
    write.close()


def ended_by_the_network(write: StoredWrite) -> None:
    half_sealed(write)
    write.fail("Retryable", "StoreUnavailable", "no route")


def ended_by_the_code(write: StoredWrite) -> None:
    half_sealed(write)
    write.fail("NeedsChange", "CodeFailed", "step 'clean' raised")


def closed_after_the_code_failed(write: StoredWrite) -> None:
    ended_by_the_code(write)
    write.close()


def failed_after_all_was_sealed(write: StoredWrite) -> None:
    all_sealed(write)
    write.fail("NeedsChange", "CodeFailed", "at exit")


def tried_again_after_the_code_failed(write: StoredWrite) -> None:
    closed_after_the_code_failed(write)
    write.launch(2, counted=(1,))


def committed(write: StoredWrite) -> None:
    write.begin()
    write.commit()


@pytest.mark.parametrize(
    ("state", "phase", "code"),
    [
        (only_named, "Pending", NOT_COMMITTED),
        (recorded, "Running", NOT_COMMITTED),
        (half_sealed, "Running", NOT_COMMITTED),
        (all_sealed, "Sealed", NOT_COMMITTED),
        (with_nothing_to_read, "Sealed", NOT_COMMITTED),
        (closed_half_sealed, "Pending", NOT_COMMITTED),
        (closed_and_complete, "Sealed", NOT_COMMITTED),
        (ended_by_the_network, "Pending", NOT_COMMITTED),
        (ended_by_the_code, "Stalled", NOT_COMMITTED),
        (closed_after_the_code_failed, "Stalled", NOT_COMMITTED),
        (failed_after_all_was_sealed, "Sealed", NOT_COMMITTED),
        (tried_again_after_the_code_failed, "Running", NOT_COMMITTED),
        (committed, "Committed", COMMITTED),
    ],
)
def test_the_phase_and_the_exit_code_of_a_write_that_is(
    state: Callable[[StoredWrite], None], phase: str, code: int, tmp_path: Path
) -> None:
    write = StoredWrite(tmp_path)
    state(write)

    exit_code, answer = status_of(write)

    assert (answer["phase"], exit_code) == (phase, code)


def test_a_write_that_runs_tells_tasks_and_rows(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    tried_again_after_the_code_failed(write)
    write.plan(2, tasks=1)

    _, answer = status_of(write)

    assert (answer["epoch"], answer["attempt"], answer["tasks"], answer["tasksDone"]) == (1, 2, 1, 0)
    assert answer["sealed"]["rowsRead"] == 10
    assert answer["inputFiles"] == 2
    assert answer["failure"] == {"attempt": 1, "family": "NeedsChange", "reason": "CodeFailed", "message": "step 'clean' raised"}
    assert answer["commit"] is None


def test_a_committed_write_tells_where_it_is(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    committed(write)

    _, answer = status_of(write)

    assert answer["committedEpoch"] == 1
    assert (answer["commit"]["target"], answer["commit"]["commitId"], answer["commit"]["rowsWritten"]) == ("lake.db.rows", 8, 20)


def test_the_text_says_phase_reason_and_failure(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    closed_after_the_code_failed(write)

    result = run(write.file)

    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0] == "default/nightly: Stalled"
    assert "reason CodeFailed (more: checkpointed-write explain CodeFailed)" in lines
    assert "failure attempt 1: CodeFailed: step 'clean' raised" in lines
    assert "tasks 1 of 2 done" in lines


def test_the_name_of_a_step_is_not_taken_for_an_emoji(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    half_sealed(write)
    write.fail("NeedsChange", "CodeFailed", "steps:one: ValueError")

    assert "CodeFailed: steps:one: ValueError" in run(write.file).stdout


def test_yaml_says_the_same_as_json(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    half_sealed(write)

    assert yaml.safe_load(run(write.file, "-o", "yaml").stdout) == status_of(write)[1]


# --- runNonce -----------------------------------------------------------------------------------------------------------------


def test_a_new_run_nonce_after_the_commit_wants_an_epoch_that_is_not_begun(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    committed(write)
    write.run_nonce = "tuesday"

    code, answer = status_of(write)

    assert code == NOT_COMMITTED
    assert (answer["phase"], answer["epoch"], answer["newEpochWanted"]) == ("Pending", 2, True)
    assert (answer["committedEpoch"], answer["commit"]["commitId"]) == (1, 8)


def test_a_new_run_nonce_before_the_commit_finishes_the_epoch_first(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    half_sealed(write)
    write.run_nonce = "tuesday"

    code, answer = status_of(write)

    assert code == NOT_COMMITTED
    assert (answer["phase"], answer["epoch"], answer["newEpochWanted"]) == ("Running", 1, True)


def test_a_second_epoch_under_way_still_tells_the_commit_of_the_first(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    committed(write)
    write.epoch, write.run_nonce = 2, "tuesday"
    write.launch()

    code, answer = status_of(write)

    assert code == NOT_COMMITTED
    assert (answer["phase"], answer["epoch"], answer["newEpochWanted"]) == ("Running", 2, False)
    assert (answer["committedEpoch"], answer["commit"]["commitId"]) == (1, 8)


# --- errors -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["control/UID/1/commit/done.json", "control/UID/1/closed/1.json", "staged/UID/1/1/seals/0/0.json"]
)
def test_an_unreadable_record_is_an_error_and_never_a_phase(path: str, tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    committed(write)
    write.break_record(path.replace("UID", write.uid))

    code, answer = status_of(write)

    assert code == FAILED
    assert answer["phase"] == "Unknown"
    assert [error["object"] for error in answer["errors"]] == [path.replace("UID", write.uid)]


def test_an_unreadable_name_is_an_error_and_not_a_write_that_has_not_begun(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    committed(write)
    write.break_record(write.name_path())

    result = run(write.file)

    assert result.exit_code == FAILED
    assert write.name_path() in result.stderr
    assert "Pending" not in result.output


def test_a_name_that_means_no_uid_is_an_error(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    forged = encode(NameRecord(token=TOKEN, uid="u")).replace(b'"u"', b'"../../etc"')
    write.store.put_if_absent(write.name_path(), forged)

    result = run(write.file)

    assert result.exit_code == FAILED
    assert "is not a valid name record: uid" in result.stderr


def test_a_changed_identity_is_an_error_that_names_the_section_and_the_state_is_shown(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    committed(write)
    file = write.file
    file.write_text(file.read_text().replace("db.rows", "db.others"))

    result = run(file)

    assert result.exit_code == MANIFEST_WRONG
    assert "IdentityChanged: spec.sink:" in result.stderr
    assert "default/nightly: Committed" in result.stdout


def test_a_wrong_manifest_exits_with_2(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    file = write.file
    file.write_text(file.read_text().replace("format: parquet", "fromat: parquet"))

    result = run(file)

    assert result.exit_code == MANIFEST_WRONG
    assert "spec.source.files.fromat" in result.stderr


# --- nothing is made ----------------------------------------------------------------------------------------------------------


def test_a_store_that_does_not_exist_is_not_made_and_the_write_has_not_begun(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    file = write.file
    file.write_text(file.read_text().replace(str(write.uri), str(tmp_path / "chekpoints")))
    before = sorted(tmp_path.rglob("*"))

    result = run(file, "-o", "json")

    assert result.exit_code == NOT_COMMITTED
    assert json.loads(result.stdout)["phase"] == "Pending"
    assert json.loads(result.stdout)["uid"] is None
    assert sorted(tmp_path.rglob("*")) == before


def test_asking_changes_nothing_in_the_store(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    half_sealed(write)
    file = write.file
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}

    run(file)

    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before


def test_the_write_of_another_namespace_is_another_write(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    committed(write)
    file = write.file
    file.write_text(file.read_text().replace("namespace: default", "namespace: team"))

    result = run(file, "-o", "json")

    assert result.exit_code == NOT_COMMITTED
    assert json.loads(result.stdout)["phase"] == "Pending"


def test_rows_that_failed_are_counted_with_where_they_are_listed(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    recorded(write)
    write.plan()
    row = QuarantinedRow(
        row=RowPosition(range=Range(file=0, start=3, end=4)), step="predict", error="ValueError", message="m", traceback=""
    )
    sealed = seal(0, 0, [(0, 0, 10)], rows=10, last=True)
    write.ledger.seals.put_seal(sealed.model_copy(update={"quarantined": Quarantined(rows=(row,))}))

    said = run(write.file).stdout

    assert f"1 row quarantined: checkpointed-write failed {write.file} lists them" in said
    assert status_of(write)[1]["sealed"]["rowsQuarantined"] == 1


@pytest.mark.parametrize(("most", "phase"), [(0, "Stalled"), (1, "Sealed")])
def test_sealed_rows_of_which_too_many_failed_are_told_as_stalled(most: int, phase: str, tmp_path: Path) -> None:
    plain = StoredWrite(tmp_path).manifest.model_dump(mode="json", by_alias=True)
    limits = {"onRowError": "Quarantine", "quarantine": {"maxRows": most, "maxShare": "100%"}}
    write = StoredWrite(tmp_path, given=parse_manifest({**plain, "spec": {**plain["spec"], **limits}}))
    write.begin()
    now = {"source": write.manifest.spec.source, "on_row_error": "Quarantine"}
    write.ledger.attempts.put_launch(launch().model_copy(update=now))
    write.plan(tasks=1)
    row = QuarantinedRow(
        row=RowPosition(range=Range(file=0, start=3, end=4)), step="predict", error="ValueError", message="m", traceback=""
    )
    sealed = seal(0, 0, [(0, 0, 10)], rows=10, last=True)
    write.ledger.seals.put_seal(sealed.model_copy(update={"quarantined": Quarantined(rows=(row,))}))
    write.close()

    _, answer = status_of(write)

    assert answer["phase"] == phase
    assert (answer["failure"] or {}).get("reason") == ("TooManyRowErrors" if phase == "Stalled" else None)


def test_a_write_of_stages_says_what_a_run_would_do_with_each(tmp_path: Path) -> None:
    (tmp_path / "docs.py").write_text("def parse(row): return row\n")
    manifest = yaml.safe_load(StoredWrite(tmp_path).file.read_text())
    stages = [{"name": name, "steps": [{"call": "docs:parse", "input": "row"}]} for name in ("parse", "embed")]
    manifest["spec"] = {**manifest["spec"], "steps": [], "stages": stages, "code": {"path": str(tmp_path)}}
    file = tmp_path / "staged.yaml"
    file.write_text(yaml.safe_dump(manifest))

    told = json.loads(run(file, "-o", "json").stdout)

    assert [(stage["name"], stage["what"]) for stage in told["stages"]] == [("parse", "begin"), ("embed", "begin")]
    assert [line.split() for line in run(file).stdout.splitlines()[-2:]] == [["parse", "begin"], ["embed", "begin"]]
    (tmp_path / "docs.py").unlink()
    file.write_text(file.read_text().replace(f"path: {tmp_path}", f"path: {tmp_path}/missing"))
    assert json.loads(run(file, "-o", "json").stdout)["stages"] == []


def piped(folder: Path) -> StoredWrite:
    """Return a write of the stages parse and embed, which is begun; what follows is about the first of them."""
    plain = StoredWrite(folder).manifest.model_dump(mode="json", by_alias=True)
    stages = [{"name": name, "steps": [{"call": "docs:parse", "input": "row"}]} for name in ("parse", "embed")]
    write = StoredWrite(folder, given=parse_manifest({**plain, "spec": {**plain["spec"], "stages": stages}}), stage=PARSE)
    write.begin()
    return write


def stage_fails(write: StoredWrite) -> None:
    ended_by_the_code(write)


def stage_runs(write: StoredWrite) -> None:
    half_sealed(write)


def stage_is_done(write: StoredWrite) -> None:
    write.commit()


def last_stage_runs(write: StoredWrite) -> None:
    write.commit()
    write.stage = ""
    half_sealed(write)


def stage_is_done_anew(write: StoredWrite) -> None:
    last_stage_runs(write)
    write.close()
    write.stage = PARSE.replace("-1", "-2")
    half_sealed(write)


def stage_is_done_anew_of_another_hash(write: StoredWrite) -> None:
    half_sealed(write)
    write.close()
    write.stage = f"parse-{'0' * 16}-1"
    half_sealed(write)


def stage_that_is_no_more(write: StoredWrite) -> None:
    write.stage = f"wash-{'f' * 16}-1"
    closed_half_sealed(write)
    write.stage = PARSE
    closed_half_sealed(write)


def merge_runs(write: StoredWrite) -> None:
    last_stage_runs(write)
    write.seal(1)
    write.close()
    write.stage = "merge-1"
    half_sealed(write)


def merge_is_done(write: StoredWrite) -> None:
    merge_runs(write)
    write.seal(1)
    write.close()
    write.record_commit()


@pytest.mark.parametrize(
    ("state", "phase", "stage"),
    [
        (stage_fails, "Stalled", "parse"),
        (stage_runs, "Running", "parse"),
        (stage_is_done, "Pending", "parse"),
        (last_stage_runs, "Running", "embed"),
        (stage_is_done_anew, "Running", "parse"),
        (stage_is_done_anew_of_another_hash, "Running", "parse"),
        (stage_that_is_no_more, "Pending", "parse"),
        (merge_runs, "Running", "merge-1"),
        (merge_is_done, "Sealed", "embed"),
    ],
)
def test_the_stage_that_is_at_work_or_was_last_is_told(
    state: Callable[[StoredWrite], None], phase: str, stage: str | None, tmp_path: Path
) -> None:
    write = piped(tmp_path)
    state(write)

    code, answer = status_of(write)

    assert code == NOT_COMMITTED
    assert (answer["phase"], answer["stage"], answer["attempt"], answer["tasks"]) == (phase, stage, 1, 2)


@pytest.mark.parametrize(("state", "rows"), [(merge_runs, 20), (stage_runs, 10)])
def test_rows_that_a_merge_follows_are_told_as_sealed(state: Callable[[StoredWrite], None], rows: int, tmp_path: Path) -> None:
    write = piped(tmp_path)
    state(write)

    assert status_of(write)[1]["sealed"]["rowsRead"] == rows


def audit_is_refused(write: StoredWrite, stage: str, function: str) -> None:
    write.stage = stage
    now = {"source": write.manifest.spec.source, "audit": function}
    write.ledger.attempts.put_launch(launch().model_copy(update=now))
    write.fail("NeedsChange", "AuditRefused", f"{function} refuses the rows")
    write.close()


@pytest.mark.parametrize(
    ("function", "phase", "said"),
    [
        ("checks:strict", "Stalled", "checks:strict refuses the rows"),
        ("checks:mild", "Stalled", "checks:mild refuses the rows"),
        ("checks:new", "Sealed", None),
        (None, "Sealed", None),
    ],
)
def test_of_several_audits_the_one_by_the_function_of_the_manifest_is_told(
    function: str | None, phase: str, said: str | None, tmp_path: Path
) -> None:
    write = StoredWrite(tmp_path)
    closed_and_complete(write)
    audit_is_refused(write, "audit-7-0000000a", "checks:strict")
    audit_is_refused(write, "audit-7-0000000b", "checks:mild")
    spec = write.manifest.spec
    sink = spec.sink.model_copy(update={"audit": function})
    write.given = write.manifest.model_copy(update={"spec": spec.model_copy(update={"sink": sink})})

    _, answer = status_of(write)

    assert (answer["phase"], (answer["failure"] or {}).get("message")) == (phase, said)
    assert answer["sealed"]["rowsRead"] == 20


def test_the_text_says_in_which_stage_what_failed(tmp_path: Path) -> None:
    write = piped(tmp_path)
    stage_fails(write)

    lines = [" ".join(line.split()) for line in run(write.file).stdout.splitlines()]

    assert lines[0] == "default/nightly: Stalled"
    assert "epoch 1, stage parse, attempt 1" in lines
    assert "failure attempt 1: CodeFailed: step 'clean' raised" in lines


def test_a_new_run_nonce_in_the_first_stage_wants_another_epoch_after_this_one(tmp_path: Path) -> None:
    write = piped(tmp_path)
    stage_runs(write)
    assert not status_of(write)[1]["newEpochWanted"]
    write.given = write.manifest.model_copy(update={"spec": write.manifest.spec.model_copy(update={"run_nonce": "tuesday"})})

    assert status_of(write)[1]["newEpochWanted"]


def test_rows_that_failed_in_stages_before_are_told_while_the_last_stage_is_at_work_and_afterwards(tmp_path: Path) -> None:
    write = piped(tmp_path)
    write.launch()
    write.record_commit(failed=2, failed_before=1)
    write.stage = ""
    write.launch(reads=PARSE)
    write.plan()

    told = status_of(write)[1]

    assert told["inputStage"] == "parse"
    assert "2 files of the stage parse, " in run(write.file).stdout
    assert (told["rowsQuarantinedBefore"], told["sealed"]["rowsQuarantined"]) == (3, 0)
    assert "3 rows quarantined, 3 of them by stages before" in run(write.file).stdout
    write.record_commit(failed=1, failed_before=3)
    assert status_of(write)[1]["commit"]["rowsQuarantinedBefore"] == 3


def test_the_record_of_a_stage_that_another_has_read_and_that_is_gone_is_an_error(tmp_path: Path) -> None:
    write = piped(tmp_path)
    write.stage = ""
    write.launch(reads=PARSE)

    told = status_of(write)[1]

    assert told["phase"] == "Unknown"
    assert [PARSE in error["object"] for error in told["errors"]] == [True]


def test_a_committed_write_of_stages_tells_no_stage(tmp_path: Path) -> None:
    write = piped(tmp_path)
    write.commit()
    write.stage = PARSE.replace("-1", "-2")
    half_sealed(write)
    write.stage = ""
    write.commit()

    code, answer = status_of(write)

    assert code == COMMITTED
    assert (answer["phase"], answer["stage"]) == ("Committed", None)

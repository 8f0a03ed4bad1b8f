"""`checkpointed-write inspect`: what is in a store is shown, all of it, and what cannot be read is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner, Result

from checkpoint_control.views.inspection import inspect_store
from checkpoint_control.writes.deletion import Deleted, retain_write
from checkpoint_local.cli.commands.inspect import sink_text, source_text
from checkpoint_local.cli.main import main
from checkpoint_protocol import writes
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sources.source import Source
from checkpoint_protocol.records import Began, InputRecord, KeyColumn, NameRecord, Retried, RowKey, RowPosition, encode
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.store import layout
from checkpoint_work.steps.quarantine import Allowance, QuarantineOfSegment
from tests.support.records import TOKEN, launch, seal
from tests.support.stored_writes import StoredWrite
from tests.support.stores import MemoryStore, Wrapped
from tests.unit.decision.test_deletion import FakeSink

GOLDEN = """
{
  "uri": "STORE",
  "writes": [
    {
      "uid": "00000000000000aa",
      "namespace": "default",
      "name": "nightly",
      "names": ["default/nightly"],
      "isDeleted": false,
      "source": {"files": {"format": "parquet", "paths": ["/in"]}},
      "sink": {"iceberg": {"catalog": "lake", "table": "db.rows"}},
      "epochs": [
        {
          "epoch": 1,
          "stage": null,
          "audit": null,
          "phase": "Committed",
          "runNonce": "",
          "began": null,
          "inputFiles": 2,
          "inputBytes": 2000,
          "inputTable": null,
          "inputStage": null,
          "inputKeys": [],
          "rowsRetried": 0,
          "attempts": [
            {
              "attempt": 1,
              "codeDigest": "dddddddddddd",
              "target": "db.rows",
              "counted": [],
              "tasks": 2,
              "tasksDone": 1,
              "inputFilesDone": 0,
              "sealed": {
                "seals": 2, "rowsRead": 14, "rowsWritten": 14, "stagedFiles": 2, "stagedBytes": 200, "rowsQuarantined": 0
              },
              "sealsNotCounted": 1,
              "closed": true,
              "complete": false,
              "failure": {"attempt": 1, "family": "Retryable", "reason": "DriverFailed", "message": "out of memory"},
              "quarantined": []
            },
            {
              "attempt": 2,
              "codeDigest": "eeeeeeeeeeee",
              "target": "db.rows",
              "counted": [1],
              "tasks": 1,
              "tasksDone": 1,
              "inputFilesDone": 0,
              "sealed": {"seals": 1, "rowsRead": 6, "rowsWritten": 6, "stagedFiles": 1, "stagedBytes": 100, "rowsQuarantined": 0},
              "sealsNotCounted": 0,
              "closed": true,
              "complete": true,
              "failure": null,
              "quarantined": []
            }
          ],
          "sealed": {"seals": 3, "rowsRead": 20, "rowsWritten": 20, "stagedFiles": 3, "stagedBytes": 300, "rowsQuarantined": 0},
          "rowsQuarantinedBefore": 0,
          "claims": [{"index": 0, "tableIdentity": "the-table", "base": 7}],
          "isCommitted": true,
          "wasDeleted": false,
          "isCleaned": false,
          "stages": [],
          "commit": {
            "target": "lake.db.rows",
            "tableIdentity": "the-table",
            "commitId": 8,
            "rowsRead": 20,
            "rowsWritten": 20,
            "files": 2,
            "attempts": 1,
            "codeDigests": ["dddddddddddd"],
            "readDigests": [],
            "rowsQuarantined": 0,
            "rowsQuarantinedBefore": 0
          }
        },
        {
          "epoch": 2,
          "stage": null,
          "audit": null,
          "phase": "Running",
          "runNonce": "tuesday",
          "began": {"why": "Trigger", "at": "2026-01-02T03:04:05+00:00", "files": 3, "sizeBytes": 2048},
          "inputFiles": null,
          "inputBytes": null,
          "inputTable": null,
          "inputStage": null,
          "inputKeys": [],
          "rowsRetried": 0,
          "attempts": [
            {
              "attempt": 1,
              "codeDigest": "dddddddddddd",
              "target": "db.rows",
              "counted": [],
              "tasks": null,
              "tasksDone": 0,
              "inputFilesDone": null,
              "sealed": {"seals": 0, "rowsRead": 0, "rowsWritten": 0, "stagedFiles": 0, "stagedBytes": 0, "rowsQuarantined": 0},
              "sealsNotCounted": 0,
              "closed": false,
              "complete": null,
              "failure": null,
              "quarantined": []
            }
          ],
          "sealed": {"seals": 0, "rowsRead": 0, "rowsWritten": 0, "stagedFiles": 0, "stagedBytes": 0, "rowsQuarantined": 0},
          "rowsQuarantinedBefore": 0,
          "claims": [],
          "isCommitted": false,
          "wasDeleted": false,
          "isCleaned": false,
          "stages": [],
          "commit": null
        }
      ]
    },
    {
      "uid": "00000000000000bb",
      "namespace": "default",
      "name": "planned",
      "names": ["default/planned"],
      "isDeleted": false,
      "source": null,
      "sink": null,
      "epochs": []
    }
  ],
  "errors": [],
  "strays": ["control/notes.txt"]
}
"""


def run(*arguments: str) -> Result:
    """Call the command, with no settings but those given."""
    return CliRunner(env={"XDG_CONFIG_HOME": "/nonexistent"}).invoke(main, ["inspect", *arguments], catch_exceptions=False)


def shown(*arguments: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(run(*arguments, "-o", "json").stdout)
    return answer


def write_with_two_attempts_and_two_epochs(folder: Path) -> StoredWrite:
    write = StoredWrite(folder)
    write.begin()
    write.launch()
    write.plan()
    write.seal(0)
    write.seal(1, 0, last=False, rows=4)
    write.close()
    write.seal(1, 1, rows=6)
    write.fail("Retryable", "DriverFailed", "out of memory")
    write.launch(2, counted=(1,), digest="e" * 64)
    write.plan(2, tasks=1)
    write.seal(0, attempt=2, rows=6)
    write.close(2)
    write.claim()
    write.record_commit()
    write.epoch, write.run_nonce = 2, "tuesday"
    write.launch(began=Began(why="Trigger", at="2026-01-02T03:04:05+00:00", files=3, size_bytes=2048))
    return write


def test_a_store_with_all_that_there_is_gives_the_golden_json(tmp_path: Path) -> None:
    write = write_with_two_attempts_and_two_epochs(tmp_path)
    writes.name_write(write.store, "default", "planned", "00000000000000bb")
    (write.uri / "control" / "notes.txt").write_text("what is this?")

    result = run(str(write.uri), "-o", "json")

    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == json.loads(GOLDEN.replace("STORE", str(write.uri)))


def test_a_write_of_a_cluster_is_found_by_its_name_and_by_its_cluster_where_two_have_it(tmp_path: Path) -> None:
    write = write_with_two_attempts_and_two_epochs(tmp_path)
    for number, cluster in enumerate(("east", "west")):
        uid = f"00000000000000c{number}"
        writes.name_write(write.store, layout.scope_in_cluster(cluster, "team"), "nightly", uid)
        writes.name_write(write.store, layout.scope_in_cluster(cluster, "team"), f"only-in-{cluster}", uid)

    assert [one["uid"] for one in shown(str(write.uri), "--write", "team/only-in-west")["writes"]] == ["00000000000000c1"]
    assert [one["uid"] for one in shown(str(write.uri), "--write", "cluster=east/team/nightly")["writes"]] == ["00000000000000c0"]
    ambiguous = run(str(write.uri), "--write", "nightly")
    assert ambiguous.exit_code != 0
    assert "cluster=east/team/nightly, cluster=west/team/nightly" in ambiguous.output.replace("\n", " ")


def test_an_epoch_that_has_ended_by_a_deletion_says_so_and_misses_nothing(tmp_path: Path) -> None:
    write = write_with_two_attempts_and_two_epochs(tmp_path)
    second = Ledger(write.store, EpochKey(write.uid, 2))
    assert second.commits.read_commit() is None

    ended = retain_write(write.store, write.uid, FakeSink())

    assert isinstance(ended, Deleted)
    (shown_write,) = shown(str(write.uri))["writes"]
    first, last = shown_write["epochs"]
    assert (first["isCommitted"], first["wasDeleted"], first["phase"]) == (True, False, "Committed")
    assert (last["isCommitted"], last["wasDeleted"], last["phase"]) == (False, True, "Deleting")
    assert shown(str(write.uri))["errors"] == []
    assert "ended by a deletion, not committed" in run(str(write.uri)).output


def test_yaml_says_the_same_as_json(tmp_path: Path) -> None:
    write = write_with_two_attempts_and_two_epochs(tmp_path)

    result = run(str(write.uri), "-o", "yaml")

    assert yaml.safe_load(result.stdout) == shown(str(write.uri))


def test_the_table_shows_each_attempt_what_counts_and_the_commit(tmp_path: Path) -> None:
    write = write_with_two_attempts_and_two_epochs(tmp_path)

    result = run(str(write.uri))

    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "default/nightly uid 00000000000000aa" in lines
    assert "epoch 1: 2 files, 2.0 KiB; committed to lake.db.rows as 8: 20 rows in 2 files" in lines
    assert "1 dddddddddddd 1/2 2 14 14 2 200 B closed, incomplete; 1 seal too late; DriverFailed: out of memory" in lines
    assert "2 eeeeeeeeeeee 1/1 1 6 6 1 100 B closed, complete; takes over 1" in lines
    assert "all 3 20 20 3 300 B what counts" in lines
    assert (
        "epoch 2, runNonce 'tuesday', begun by the trigger for 3 new files: input not fixed yet; Running, not committed" in lines
    )


@pytest.mark.parametrize(
    ("began", "said"),
    [
        (Began(why="First", at="2026-01-02T03:04:05+00:00"), ""),
        (Began(why="RunNonce", at="2026-01-02T03:04:05+00:00"), ""),
        (Began(why="Trigger", at="2026-01-02T03:04:05+00:00"), ", begun by the trigger"),
        (Began(why="Trigger", at="2026-01-02T03:04:05+00:00", files=1, size_bytes=9), ", begun by the trigger for 1 new file"),
    ],
    ids=lambda value: f"{value.why}-{value.files}" if isinstance(value, Began) else "",
)
def test_why_an_epoch_of_a_write_with_a_trigger_began_is_told(began: Began, said: str, tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    write.begin()
    write.launch(began=began)

    (epoch,) = shown(str(write.uri))["writes"][0]["epochs"]
    assert epoch["began"] == {"why": began.why, "at": began.at, "files": began.files, "sizeBytes": began.size_bytes}
    assert f"epoch 1{said}: " in run(str(write.uri)).stdout


def test_an_open_attempt_counts_its_seals_up_to_the_first_gap(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    write.begin()
    write.launch()
    write.plan()
    write.seal(0, 0, last=False, rows=1)
    write.seal(0, 2, rows=4)

    (attempt,) = shown(str(write.uri))["writes"][0]["epochs"][0]["attempts"]

    assert (attempt["sealed"]["rowsRead"], attempt["sealsNotCounted"]) == (1, 1)
    assert (attempt["tasks"], attempt["tasksDone"], attempt["closed"], attempt["complete"]) == (2, 0, False, None)


def test_results_of_other_code_that_a_restart_dropped_are_not_in_the_sum(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    write.begin()
    write.launch()
    write.plan()
    write.seal(0)
    write.close()
    write.launch(2, counted=(), digest="e" * 64)

    (epoch,) = shown(str(write.uri))["writes"][0]["epochs"]

    assert epoch["attempts"][0]["sealed"]["rowsRead"] == 10
    assert epoch["sealed"]["rowsRead"] == 0


# --- what cannot be read ----------------------------------------------------------------------------------------------------


#: A record, the field that is null then, and what the table says of it.
BREAKABLE = (
    ("control/UID/write.json", "source", "? source and sink cannot be read"),
    ("control/UID/deleted.json", "isDeleted", "? whether it was deleted cannot be read"),
    ("control/UID/1/launch/1.json", "codeDigest", "1 ? 2/2"),
    ("control/UID/1/closed/1.json", "closed", "? whether it is closed cannot be read"),
    ("control/UID/1/commit/claim-0.json", "tableIdentity", "epoch 1"),
    ("control/UID/1/commit/done.json", "isCommitted", "? whether it is committed cannot be read"),
    ("staged/UID/1/input.json", "inputFiles", "epoch 1: ? files"),
    ("staged/UID/1/1/plan.json", "tasks", "1 dddddddddddd ? 2"),
    ("staged/UID/1/1/failure.json", "failure", "? why its driver ended cannot be read"),
)


@pytest.mark.parametrize(("path", "field", "cell"), BREAKABLE)
def test_an_unreadable_record_is_named_and_the_rest_is_shown(path: str, field: str, cell: str, tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    write.begin()
    write.commit()
    write.fail("Retryable", "DriverFailed", "late")
    writes.put_deleted(write.store, write.uid)
    other = StoredWrite(tmp_path, name="other", uid="00000000000000bb")
    other.begin()
    other.commit()
    path = path.replace("UID", write.uid)
    write.break_record(path)

    result = run(str(write.uri), "-o", "json")

    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert [error["object"] for error in answer["errors"]] == [path]
    assert path in result.stderr
    broken, whole = answer["writes"]
    epoch = broken["epochs"][0]
    place = next(place for place in (broken, epoch, epoch["attempts"][0], epoch["claims"][0]) if field in place)
    assert place[field] is None  # never a false "no"
    assert whole["epochs"][0]["sealed"]["rowsRead"] == 20
    assert whole["epochs"][0]["isCommitted"] is True
    assert cell in " ".join(run(str(write.uri)).stdout.split())


def test_an_unreadable_seal_is_named_and_the_other_seals_are_summed(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    write.begin()
    write.commit()
    broken = write.ledger.at.seal(1, 1, 0)
    write.break_record(broken)

    result = run(str(write.uri), "-o", "json")

    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert [error["object"] for error in answer["errors"]] == [broken]
    assert answer["writes"][0]["epochs"][0]["attempts"][0]["sealed"]["rowsRead"] == 10


def test_an_unreadable_name_is_named_and_its_write_is_shown_by_uid(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    write.begin()
    write.break_record(write.name_path())

    result = run(str(write.uri), "-o", "json")

    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert [error["object"] for error in answer["errors"]] == [write.name_path()]
    assert [(found["uid"], found["name"], found["names"]) for found in answer["writes"]] == [(write.uid, "nightly", [])]


@pytest.mark.parametrize(
    ("gone", "why"),
    [
        ("control/UID/1/launch/1.json", "attempt 1 has left records"),
        ("control/UID/write.json", "the write has epochs"),
        ("staged/UID/1/1/plan.json", "there are seals of it"),
        ("staged/UID/1/1/seals/1/0.json", "it counts"),
    ],
)
def test_a_record_that_others_rest_on_and_that_is_gone_is_an_error(gone: str, why: str, tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    write.begin()
    write.commit()
    (write.uri / gone.replace("UID", write.uid)).unlink()

    result = run(str(write.uri), "-o", "json")

    assert result.exit_code == 1
    (error,) = json.loads(result.stdout)["errors"]
    assert error["object"] == gone.replace("UID", write.uid)
    assert why in error["message"]


def test_the_input_of_a_commit_that_is_gone_without_a_cleaning_is_not_said_to_be_cleaned(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    write.begin()
    write.commit()
    (write.uri / write.ledger.at.input).unlink()

    said = run(str(write.uri)).stdout
    assert "input not fixed yet; committed to" in said
    assert "closed, complete" in said
    assert "cleaned" not in said


def test_a_deleted_write_is_shown_as_such_and_what_deletion_has_removed_is_not_missed(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    write.begin()
    write.commit()
    writes.put_deleted(write.store, write.uid)
    shutil.rmtree(write.uri / "staged")

    result = run(str(write.uri))

    assert result.exit_code == 0, result.output
    assert "deleted: nothing of it is committed any more" in result.stdout
    answer = shown(str(write.uri))
    assert answer["writes"][0]["isDeleted"] is True
    assert (answer["errors"], answer["strays"]) == ([], [])


def test_a_closed_list_that_a_later_attempt_builds_on_and_that_is_gone_is_an_error(tmp_path: Path) -> None:
    write = write_with_two_attempts_and_two_epochs(tmp_path)
    (write.uri / "control" / write.uid / "1" / "closed" / "1.json").unlink()

    answer = shown(str(write.uri))

    assert [error["object"] for error in answer["errors"]] == [f"control/{write.uid}/1/closed/1.json"]


def test_a_store_that_stops_answering_ends_the_inspection_instead_of_asking_for_every_record() -> None:
    class Silent(Wrapped):
        asked = 0

        def get(self, path: str, most_bytes: int) -> bytes | None:
            self.asked += 1
            raise Retryable("StoreUnavailable", f"no answer for {path}")

    inner = MemoryStore()
    for number in range(100):
        writes.name_write(inner, "default", f"write-{number}", "00000000000000aa")
    store = Silent(inner)

    with pytest.raises(Retryable):
        inspect_store(store)

    assert store.asked < 10


# --- which store, which write -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", ["other", "default/other", "00000000000000bb"])
def test_one_write_is_found_by_name_and_by_uid(wanted: str, tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    write.begin()
    write.commit()
    write.break_record(write.ledger.at.commit_record)
    other = StoredWrite(tmp_path, name="other", uid="00000000000000bb")
    other.begin()

    result = run(str(write.uri), "--write", wanted, "-o", "json")

    assert result.exit_code == 0, result.output
    assert [found["name"] for found in json.loads(result.stdout)["writes"]] == ["other"]


def test_an_unknown_write_is_an_error_that_lists_the_known_names(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    write.begin()

    result = run(str(write.uri), "--write", "nigthly")

    assert result.exit_code == 1
    assert result.stdout == ""
    assert "default/nightly" in result.stderr
    assert "default/nightly" in run(str(write.uri)).stdout, "the URI alone lists what there is"


def test_a_name_of_two_namespaces_is_refused_until_the_namespace_is_said(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    write.begin()
    writes.name_write(write.store, "team", "nightly", "00000000000000bb")

    assert run(str(write.uri), "--write", "nightly").exit_code == 1
    assert shown(str(write.uri), "--write", "team/nightly")["writes"][0]["uid"] == "00000000000000bb"


def test_a_mistyped_folder_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    result = run(str(tmp_path / "chekpoints"))

    assert result.exit_code == 1
    assert "there is no folder" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_store_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("")

    result = run(str(tmp_path / "checkpoints"))

    assert result.exit_code == 1
    assert "is a file" in result.stderr

    assert "correct the URI" in result.stderr
    (tmp_path / "there").mkdir()
    assert run(str(tmp_path / "there")).exit_code == 0


def test_an_empty_store_holds_no_writes_and_stays_empty(tmp_path: Path) -> None:
    result = run(str(tmp_path))

    assert result.exit_code == 0
    assert "holds no writes" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_inspecting_changes_nothing_in_the_store(tmp_path: Path) -> None:
    write = write_with_two_attempts_and_two_epochs(tmp_path)
    before = {path: path.read_bytes() for path in write.uri.rglob("*") if path.is_file()}
    folders = {path for path in write.uri.rglob("*") if path.is_dir()}

    assert run(str(write.uri)).exit_code == 0

    assert {path: path.read_bytes() for path in write.uri.rglob("*") if path.is_file()} == before
    assert {path for path in write.uri.rglob("*") if path.is_dir()} == folders


def test_objects_that_are_no_records_are_strays_and_no_errors(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    write.begin()
    write.commit()
    token = "0a" * 16
    for path in (
        f"control/{write.uid}/code/{token * 2}.zip",
        f"staged/{write.uid}/1/stages/wash/rows/1-0-{token}.arrow",
        f"staged/{write.uid}/1/merge-keys.json",
        f"staged/{write.uid}/1/merge-keys/{token}.parquet",
    ):
        write.store.put_if_absent(path, b"what records name is no stray")
    strays = [
        f"control/{write.uid}/code/flights.zip",
        "names/readme",
        f"control/{write.uid}/lock",
        f"control/{write.uid}/01/launch/1.json",
        f"control/{write.uid}/1/commit/claim-x.json",
        f"staged/{write.uid}/1/1/seals/0/00.json",
        f"staged/{write.uid}/1/stages/wash/rows/1-0.arrow",
        f"staged/{write.uid}/1/merge-keys/{token}.json",
        "control/not a uid/write.json",
    ]
    for path in strays:
        (write.uri / path).parent.mkdir(parents=True, exist_ok=True)
        (write.uri / path).write_text("?")

    result = run(str(write.uri), "-o", "json")

    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["strays"] == sorted(strays)


def test_a_name_that_means_no_uid_is_an_error(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    forged = encode(NameRecord(token=TOKEN, uid="u")).replace(b'"u"', b'"../../etc"')
    write.store.put_if_absent(write.name_path(), forged)

    result = run(str(write.uri), "-o", "json")

    assert result.exit_code == 1
    assert json.loads(result.stdout)["writes"] == []
    assert "is not a valid name record: uid" in result.stderr


def test_wrong_settings_exit_with_2(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("catalog: {}\n")

    result = run(str(tmp_path), "--settings", str(tmp_path / "settings.yaml"))

    assert result.exit_code == 2
    assert "did you mean 'catalogs'" in result.stderr


def test_the_sums_are_those_that_the_ledger_counts(tmp_path: Path) -> None:
    """The ledger is what commits; showing anything else would be a lie."""
    write = write_with_two_attempts_and_two_epochs(tmp_path)
    ledger = Ledger(write.store, EpochKey(write.uid, 1))
    seals = list(ledger.chains.counted_seals((1, 2)))

    (epoch, _) = shown(str(write.uri))["writes"][0]["epochs"]

    assert epoch["sealed"]["seals"] == len(seals)
    assert epoch["sealed"]["rowsRead"] == sum(seal.rows_read for seal in seals)


# --- rows that failed -----------------------------------------------------------------------------------------------------


def with_rows_that_failed(tmp_path: Path, count: int) -> StoredWrite:
    """Return a write whose first task has sealed so many rows that failed, one of them in the seal and the others beside it."""
    write = StoredWrite(tmp_path)
    write.begin()
    write.ledger.attempts.put_launch(launch().model_copy(update={"on_row_error": "Quarantine"}))
    write.plan()
    collected = QuarantineOfSegment(write.ledger, 1, Allowance(100, rows_of_a_seal=1, rows_of_an_object=2), 0)
    for number in range(count):
        where = RowPosition(range=Range(file=0, start=number, end=number + 1))
        collected.add(where, "", "predict", ValueError(f"bad [bold] {number}\nand more"))
    sealed = seal(0, 0, [(0, 0, 100)], rows=100, last=True).model_copy(update={"quarantined": collected.finish()})
    write.ledger.seals.put_seal(sealed)
    return write


def test_rows_that_failed_are_listed_with_place_step_and_error(tmp_path: Path) -> None:
    write = with_rows_that_failed(tmp_path, 3)

    said = run(str(write.uri)).stdout

    assert "3 rows quarantined" in said
    assert "row 2 of /in/part-0.parquet: predict: ValueError: bad [bold] 2 and more" in said
    assert "no known kind" not in said


def test_rows_that_are_known_by_keys_are_listed_by_their_keys(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    columns = (KeyColumn(name="land", type="string"), KeyColumn(name="nr", type="bigint"))
    again = Retried(retry="Also", rows=4)
    write.ledger.inputs.put_input(InputRecord(token=TOKEN, files=(), arrow_schema="", keys=columns, retried=again))
    write.begin()
    write.ledger.attempts.put_launch(launch().model_copy(update={"on_row_error": "Quarantine"}))
    write.plan()
    collected = QuarantineOfSegment(write.ledger, 1, Allowance(100), 0)
    collected.add(RowKey(source=0, values=("Österreich", "7")), "", "predict", ValueError("bad"))
    collected.add(RowKey(source=1, values=("Chile", "9")), "", "predict", ValueError("worse"))
    write.ledger.seals.put_seal(seal(0, 0, last=True, rows=5).model_copy(update={"quarantined": collected.finish()}))

    said = run(str(write.uri)).stdout

    assert "epoch 1: rows by land, nr, of them 4 quarantined rows tried again" in said
    assert "row with land=Österreich, nr=7: predict: ValueError: bad" in said
    assert "row with land=Chile, nr=9 of source 1: predict: ValueError: worse" in said
    (attempt,) = shown(str(write.uri))["writes"][0]["epochs"][0]["attempts"]
    assert attempt["quarantined"][1]["key"] == {"land": "Chile", "nr": "9"}
    assert attempt["quarantined"][1]["source"] == 1


def test_of_many_rows_that_failed_the_first_are_listed_and_json_has_all(tmp_path: Path) -> None:
    write = with_rows_that_failed(tmp_path, 25)

    assert "and 5 more" in run(str(write.uri)).stdout
    (attempt,) = json.loads(run(str(write.uri), "-o", "json").stdout)["writes"][0]["epochs"][0]["attempts"]
    assert attempt["sealed"]["rowsQuarantined"] == 25
    assert [row["start"] for row in attempt["quarantined"]] == list(range(25))
    last = attempt["quarantined"][-1]
    assert (last["file"], last["etag"], last["unit"], last["end"]) == ("/in/part-0.parquet", "e", "rows", 25)
    assert (last["step"], last["error"], last["message"]) == ("predict", "ValueError", "bad [bold] 24\nand more")
    assert last["traceback"]


SOURCES: Final[tuple[tuple[dict[str, Any], str], ...]] = (
    ({"files": {"format": "csv", "paths": ["/a", "/b"]}}, "csv /a, /b"),
    ({"iceberg": {"catalog": "lake", "table": "db.rows"}, "where": "id > 5"}, "iceberg lake.db.rows where id > 5"),
    ({"lance": {"uri": "/a.lance"}}, "lance /a.lance"),
    ({"kafka": {"topics": ["a", "b"], "format": "json"}}, "kafka topics a, b"),
    ({"kafka": {"pattern": "orders-.*", "format": "raw"}}, "kafka topics orders-.*"),
    ({"spark": {"format": "jdbc", "keyColumns": ["id"]}}, "spark jdbc, by id"),
    ({"spark": {"table": "lake.db.rows", "keyColumns": ["id"]}}, "spark lake.db.rows, by id"),
    ({"program": {"call": "jobs:main", "keyColumns": ["a", "b"]}}, "program jobs:main, by a, b"),
    ({"program": {"call": "jobs:main", "stream": {}}}, "program jobs:main, a stream"),
    ({"union": [{"files": {"format": "parquet", "paths": ["/a"]}}, {"lance": {"uri": "/b"}}]}, "parquet /a; lance /b"),
)


@pytest.mark.parametrize(("source", "said"), SOURCES)
def test_each_kind_of_source_is_named(source: dict[str, Any], said: str) -> None:
    assert source_text(source) == said


def test_no_kind_of_source_is_left_out() -> None:
    assert {next(iter(source)) for source, _ in SOURCES} == Source.model_fields.keys() - {"columns", "where", "changes"}


@pytest.mark.parametrize(
    ("sink", "shown"),
    [
        ({"iceberg": {"catalog": "lake", "table": "db.rows"}}, "iceberg lake.db.rows"),
        ({"lance": {"uri": "s3://b/rows.lance"}}, "lance s3://b/rows.lance"),
        ({"none": {}}, "none"),
        ({"delta": {"uri": "s3://b/rows"}}, "of a kind that this release does not know"),
    ],
)
def test_each_kind_of_sink_is_named_and_one_of_a_later_release_is_not_called_none(sink: dict[str, Any], shown: str) -> None:
    assert sink_text(sink) == shown


EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b[31m\u202eexe"


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_what_a_driver_says_does_not_steer_the_terminal(tmp_path: Path, output: str) -> None:
    written = StoredWrite(tmp_path)
    written.begin()
    written.launch()
    written.fail("NeedsChange", "CodeFailed", f"a {EVIL} b")

    shown = CliRunner().invoke(main, ["inspect", str(written.uri), "-o", output]).output

    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "52;c;ZXZpbA==" in shown


def test_a_reason_that_a_driver_makes_up_is_shown_as_text_under_one_of_ours(tmp_path: Path) -> None:
    written = StoredWrite(tmp_path)
    written.begin()
    written.launch()
    written.fail("NeedsChange", f"AllIsWell{EVIL}", "nothing to see")
    written.close()

    for command in (["inspect", str(written.uri)], ["status", str(written.file)]):
        shown = CliRunner().invoke(main, command).output
        assert "FailureUnknown" in shown
        assert r"AllIsWell\x1b]52" in shown
        assert "\x1b" not in shown

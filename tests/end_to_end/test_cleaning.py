"""A cleaner removes what ended epochs have staged, and nothing that anybody still needs."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import obstore
import pytest
from click.testing import CliRunner

from checkpoint_control.loop.reconcile import Reconciler
from checkpoint_control.progress.epoch_progress import measure
from checkpoint_control.views.inspection import inspect_store
from checkpoint_control.writes.cleaning import CleanedEpoch, Cleaner, KeptEpoch
from checkpoint_local.cli.main import main
from checkpoint_local.runner import LocalHost
from checkpoint_protocol import writes
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import IcebergFile
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.layout import EpochLayout
from checkpoint_protocol.store.object_store import ObjectStore, open_raw_store, open_store
from tests.support.checks import assert_exactly_once
from tests.support.command_line import CommandLine
from tests.support.direct_drivers import DirectDrivers
from tests.support.driver_threads import Killed
from tests.support.places import IcebergPlace, LancePlace, Place
from tests.support.slow import slow_except_on
from tests.support.stores import Wrapped
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, write_inputs

#: All that there is has ended before, and is older.
LATER = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)


def write_of(place: Place, source: Path, nonce: str = "", **spec: Any) -> Reconciler:
    return reconciler_for(manifest_for(place, source, runNonce=nonce, onReplaced="Skip", **spec), place)


def store_of(place: Place) -> ObjectStore:
    return open_store(place.checkpoint_uri, place.settings)


def uid_of(place: Place) -> str:
    uid = writes.look_up_name(store_of(place), "default", "write")
    assert uid is not None
    return uid


def clean(
    place: Place, before: datetime.datetime = LATER, *, dry_run: bool = False, store: ObjectStore | None = None
) -> list[CleanedEpoch | KeptEpoch]:
    return list(Cleaner(store or store_of(place), place.settings, before, dry_run).clean(uid_of(place)))


def staged(place: Place) -> list[str]:
    return sorted(stored.path for stored in store_of(place).list(layout.staged_folder(uid_of(place))))


def put_beside(place: Place, *names: str) -> None:
    """Put files into the folder that the table has for the write: as tries that died leave them, or anybody."""
    assert isinstance(place, IcebergPlace)
    folder = f"{place.table().location()}/data/cw-{uid_of(place)}"
    for name in names:
        if "/" not in name and urlsplit(folder).scheme in ("", "file"):
            (Path(urlsplit(folder).path) / name).write_bytes(b"rows of nobody")
        else:
            obstore.put(open_raw_store(folder, place.settings), name, b"rows of nobody")


def files_beside(place: Place) -> set[str]:
    assert isinstance(place, IcebergPlace)
    folder = f"{place.table().location()}/data/cw-{uid_of(place)}"
    return {meta["path"] for chunk in obstore.list(open_raw_store(folder, place.settings)) for meta in chunk}


@slow_except_on("place", "iceberg-rest-disk", "lance-disk")
def test_of_a_committed_epoch_only_its_input_stays_and_the_next_takes_what_is_new(place: Place, tmp_path: Path) -> None:
    source = write_inputs(tmp_path / "in", files=3, rows=40)
    place.create(SCHEMA)
    drive(write_of(place, source))
    before = len(staged(place))

    (done,) = clean(place)

    assert isinstance(done, CleanedEpoch)
    assert done.objects == before - 1 > 3
    assert staged(place) == [f"staged/{uid_of(place)}/1/input.json"]
    assert_exactly_once(place, range(120))
    write_inputs(source, files=4, rows=40)
    drive(write_of(place, source, "2"))
    assert_exactly_once(place, range(160))
    (again, second) = clean(place)
    assert isinstance(again, CleanedEpoch)
    assert isinstance(second, CleanedEpoch)
    assert (again.objects, again.data_files) == (0, 0)
    assert second.objects > 0


@pytest.mark.parametrize("name", ["iceberg-sql-disk", "iceberg-sql-s3"])
def test_data_files_that_no_seal_names_go_and_those_of_others_stay(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    from tests.end_to_end.conftest import make_place

    place = make_place(name, tmp_path, request)
    source = write_inputs(tmp_path / "in", files=3, rows=40)
    place.create(SCHEMA)
    drive(write_of(place, source))
    named = files_beside(place)
    lost, foreign = {f"1-1-0-{new_token()}.parquet"}, {f"2-1-0-{new_token()}.parquet", "1 a file.parquet", "x.parquet"}
    put_beside(place, *lost, *foreign)

    (done,) = clean(place)

    assert isinstance(done, CleanedEpoch)
    assert (done.data_files, done.data_bytes) == (1, len(b"rows of nobody"))
    assert files_beside(place) == named | foreign
    assert_exactly_once(place, range(120))


def test_files_that_a_stage_of_the_epoch_has_staged_stay_where_it_is_done(iceberg_place: Place, tmp_path: Path) -> None:
    source = write_inputs(tmp_path / "in", files=1, rows=1)
    iceberg_place.create(SCHEMA)
    epoch = drive(write_of(iceberg_place, source)).key
    first = Ledger(store_of(iceberg_place), epoch)
    names = {stage: f"1-1-0-{new_token()}.parquet" for stage in ("done", "given-up")}
    put_beside(iceberg_place, *names.values())
    for stage, name in names.items():
        ledger = Ledger(store_of(iceberg_place), epoch.of_stage(stage))
        launch, plan, commit = (first.attempts.read_launch(1), first.plans.read_plan(1), first.commits.read_commit())
        assert launch is not None
        assert plan is not None
        assert commit is not None
        (seal,) = first.chains.counted_seals([1])
        (file,) = seal.files
        assert isinstance(file, IcebergFile)
        beside = file.model_copy(update={"path": f"{file.path.rpartition('/')[0]}/{name}"})
        ledger.attempts.put_launch(launch)
        ledger.plans.put_plan(plan)
        ledger.seals.put_seal(seal.model_copy(update={"files": (beside,)}))
        ledger.chains.close(1)
        if stage == "done":
            ledger.commits.put_commit(commit)

    (done,) = clean(iceberg_place)

    assert isinstance(done, CleanedEpoch)
    assert done.data_files == 1
    assert names["done"] in files_beside(iceberg_place)
    assert names["given-up"] not in files_beside(iceberg_place)


def test_data_files_that_are_young_stay(iceberg_place: Place, tmp_path: Path) -> None:
    source = write_inputs(tmp_path / "in", files=3, rows=40)
    iceberg_place.create(SCHEMA)
    drive(write_of(iceberg_place, source))
    named = files_beside(iceberg_place)
    ended = datetime.datetime.now(datetime.UTC)
    lost = f"1-1-0-{new_token()}.parquet"
    put_beside(iceberg_place, lost)

    (done,) = clean(iceberg_place, ended)

    assert isinstance(done, CleanedEpoch)
    assert done.data_files == 0
    assert files_beside(iceberg_place) == {*named, lost}


@slow_except_on("place", "iceberg-sql-disk", "lance-s3")
def test_of_what_is_not_committed_nothing_is_removed_and_nothing_sealed_is_computed_again(place: Place, tmp_path: Path) -> None:
    source = write_inputs(tmp_path / "in", files=4, rows=40)
    place.create(SCHEMA)
    first = write_of(place, source)
    drivers = first.observer.drivers
    assert isinstance(drivers, DirectDrivers)

    def die(number: int) -> None:
        if number == 1:
            raise Killed

    drivers.between_tasks = die
    while drivers.started == 0 or first.observer.current_ledger.attempts.read_closed(1) is None:
        first.step()
        drivers.wait_a_moment()
    before = staged(place)

    (kept,) = clean(place)

    assert isinstance(kept, KeptEpoch)
    assert (kept.why, kept.problem) == ("it is not committed yet", None)
    assert staged(place) == before
    second = write_of(place, source)
    drive(second)
    assert_exactly_once(place, range(160))
    launch = second.observer.current_ledger.attempts.read_launch(2)
    assert launch is not None
    assert launch.counted == (1,)


def test_an_epoch_that_has_ended_too_short_a_time_ago_is_kept(iceberg_place: Place, tmp_path: Path) -> None:
    iceberg_place.create(SCHEMA)
    drive(write_of(iceberg_place, write_inputs(tmp_path / "in")))
    before = staged(iceberg_place)

    (kept,) = clean(iceberg_place, datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1))

    assert isinstance(kept, KeptEpoch)
    assert "too short a time ago" in kept.why
    assert staged(iceberg_place) == before


def test_rows_that_are_quarantined_are_taken_again_after_a_cleaning(iceberg_place: Place, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "a.csv").write_text("id,text\n1,one\nx,two\n3,three\n")
    iceberg_place.create(SCHEMA)
    csv = {"files": {"format": "csv", "paths": [str(source)], "types": {"id": "int64"}}}
    drive(
        reconciler_for(
            manifest_for(iceberg_place, csv, onRowError="Quarantine", quarantine={"maxRows": 5, "maxShare": "100%"}),
            iceberg_place,
        )
    )
    assert_exactly_once(iceberg_place, [1, 3])

    clean(iceberg_place)
    csv["files"]["types"] = {"id": "string"}
    again = manifest_for(
        iceberg_place, csv, onRowError="Quarantine", runNonce="2", quarantine={"retry": "Only", "maxRows": 5, "maxShare": "100%"}
    )
    reconciler = reconciler_for(again, iceberg_place)
    drive(reconciler)

    input_record = reconciler.observer.current_ledger.inputs.read_input()
    assert input_record is not None
    assert input_record.totals.retried == 1


@dataclass
class CutOff(Wrapped):
    """A store that stops answering after so many requests that change something."""

    left: int = 0

    def _count(self) -> None:
        if self.left == 0:
            raise Retryable("StoreUnavailable", "cut off")
        self.left -= 1

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._count()
        return self.inner.put_if_absent(path, data)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._count()
            self.inner.delete([path])


def test_a_cleaning_that_is_cut_off_anywhere_is_ended_by_the_next_and_inspect_takes_nothing_for_lost(
    iceberg_place: Place, tmp_path: Path
) -> None:
    source = write_inputs(tmp_path / "in", files=3, rows=40)
    iceberg_place.create(SCHEMA)
    for number in range(1, 4):
        write_inputs(source, files=number, rows=40)
        drive(write_of(iceberg_place, source, str(number)))
    named = files_beside(iceberg_place)
    put_beside(iceberg_place, f"1-1-0-{new_token()}.parquet", f"2-1-0-{new_token()}.parquet")

    for requests in range(1, 40):
        kept = [
            one for one in clean(iceberg_place, store=CutOff(store_of(iceberg_place), requests)) if isinstance(one, KeptEpoch)
        ]
        assert {one.problem for one in kept} <= {"StoreUnavailable"}
        assert inspect_store(store_of(iceberg_place)).errors == ()
        assert_exactly_once(iceberg_place, range(120))
        if not kept:
            break

    assert staged(iceberg_place) == [f"staged/{uid_of(iceberg_place)}/{number}/input.json" for number in (1, 2, 3)]
    assert files_beside(iceberg_place) == named


def test_a_committed_write_is_found_committed_after_a_cleaning_by_whoever_runs_it_again(
    iceberg_place: Place, tmp_path: Path
) -> None:
    source = write_inputs(tmp_path / "in")
    iceberg_place.create(SCHEMA)
    drive(write_of(iceberg_place, source, onRowError="Quarantine"))
    clean(iceberg_place)

    again = write_of(iceberg_place, source, onRowError="Quarantine")
    drive(again)

    assert isinstance(again.observer.drivers, DirectDrivers)
    assert again.observer.drivers.started == 0
    commit = again.observer.current_ledger.commits.read_commit()
    assert measure(again.current_tallies(), commit).rows_written == 400
    (epoch,) = inspect_store(store_of(iceberg_place)).writes[0].epochs
    assert epoch.is_cleaned
    assert epoch.commit is not None


def test_status_and_inspect_tell_after_a_cleaning_what_was_committed_and_which_rows_failed(
    iceberg_place: Place, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "a.csv").write_text("id,text\n1,one\nx,two\n3,three\n")
    iceberg_place.create(SCHEMA)
    csv = {"files": {"format": "csv", "paths": [str(source)], "types": {"id": "int64"}}}
    a_row_a_seal = {"uri": iceberg_place.checkpoint_uri, "interval": "1h", "maximumRows": 1}
    allowed = {"maxShare": "100%"}
    manifest = manifest_for(iceberg_place, csv, checkpoint=a_row_a_seal, onRowError="Quarantine", quarantine=allowed)
    files = CommandLine(tmp_path / "manifests", iceberg_place, manifest)
    drive(reconciler_for(manifest, iceberg_place))
    assert "3 rows read, 2 written, in 3 seals\n" in told(files, "status")
    assert "line at byte 14 of" in told(files, "inspect")

    # All that is needed to try the row again stays.
    assert store_of(iceberg_place).put_if_absent(f"{EpochLayout(EpochKey(uid_of(iceberg_place), 1)).staged}/a-report", b"{}")
    clean(iceberg_place)

    assert "3 rows read, 2 written\n" in told(files, "status")
    assert "what it staged is cleaned" in told(files, "inspect")
    assert "line at byte 14 of" in told(files, "inspect")


def test_of_a_committed_epoch_whose_input_is_cleaned_too_nothing_is_said_to_be_missing(
    iceberg_place: Place, tmp_path: Path
) -> None:
    iceberg_place.create(SCHEMA)
    step = {"call": f"{__name__}:same", "input": "row", "output": {"id": "int64", "text": "string"}}
    stages = [{"name": name, "steps": [step]} for name in ("first", "second")]
    manifest = manifest_for(iceberg_place, write_inputs(tmp_path / "in"), stages=stages)
    files = CommandLine(tmp_path / "manifests", iceberg_place, manifest)
    drive(reconciler_for(manifest, iceberg_place, host=LocalHost(digest_of=lambda spec: "d" * 64)))

    clean(iceberg_place)

    said = told(files, "status") + told(files, "inspect")
    assert "400 rows read, 400 written\n" in said
    assert "its input is cleaned; committed to" in said
    for wrong in ("not planned yet", "not fixed yet", " 0 rows read"):
        assert wrong not in said


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def told(files: CommandLine, what: Literal["status", "inspect"]) -> str:
    of = str(files.file) if what == "status" else files.place.checkpoint_uri
    done = CliRunner().invoke(main, [what, of, "--settings", str(files.settings_file)])
    assert done.exit_code == 0, done.output
    return done.output


def command(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["clean", *arguments])
    return done.exit_code, done.output


def test_the_command_says_what_would_go_removes_it_and_then_finds_nothing(iceberg_place: Place, tmp_path: Path) -> None:
    iceberg_place.create(SCHEMA)
    drive(write_of(iceberg_place, write_inputs(tmp_path / "in")))
    uri, before = iceberg_place.checkpoint_uri, staged(iceberg_place)

    code, told = command(uri, "--older-than", "0s", "--dry-run", "-o", "json")
    assert code == 0
    (would,) = json.loads(told)["cleaned"]
    assert (would["write"], would["epoch"], would["objects"]) == ("default/write", 1, len(before) - 1)
    assert staged(iceberg_place) == before

    assert command(uri, "--write", "write")[1].endswith("removed 0 objects and 0 data files, 0 B\n")  # 7d by default
    assert f"removed {would['objects']:,} objects" in command(uri, "--older-than", "0s")[1]
    assert command(uri, "--older-than", "0s")[1] == "removed 0 objects and 0 data files, 0 B\n"
    assert command(uri, "--older-than", "soon")[0] == 2


def counted(place: Place, epochs: Sequence[int]) -> list[bool]:
    return [Ledger(store_of(place), EpochKey(uid_of(place), epoch)).commits.read_cleaned() is not None for epoch in epochs]


def test_lance_datasets_keep_every_file_and_the_store_is_cleaned(lance_place: Place, tmp_path: Path) -> None:
    assert isinstance(lance_place, LancePlace)
    lance_place.create(SCHEMA)
    drive(write_of(lance_place, write_inputs(tmp_path / "in", files=2, rows=30)))

    (done,) = clean(lance_place)

    assert isinstance(done, CleanedEpoch)
    assert done.data_files == 0
    assert counted(lance_place, [1]) == [True]
    assert_exactly_once(lance_place, range(60))

"""Committed, and the table is gone since: `run` and `status` say it, and `checkpointed-write forget` lets the name begin anew."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner, Result

from checkpoint_commit.iceberg.table import PyicebergTable
from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_local.cli.main import main
from checkpoint_local.forgetting import Forgotten, forget
from checkpoint_local.lock import RunnerLock
from checkpoint_local.runner import identify
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.manifest.spec import Metadata, parse_manifest
from checkpoint_protocol.records import ClaimRecord, IcebergBase
from checkpoint_protocol.store import layout
from tests.support.places import IcebergPlace, on_disk
from tests.support.records import TOKEN, appended, launch, seal
from tests.support.stored_writes import UID, StoredWrite
from tests.support.stores import ListHides, MemoryStore, Wrapped

METADATA = Metadata(name="nightly")
NONE = Sink.model_validate({"none": {}})


@pytest.fixture(autouse=True)
def _signals_as_they_were() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@dataclass
class Ground:
    """A write whose table is real; `commit` does what a run of it would have done."""

    folder: Path
    place: IcebergPlace = field(init=False)
    stored: StoredWrite = field(init=False)

    def __post_init__(self) -> None:
        place = on_disk(self.folder, "iceberg")
        assert isinstance(place, IcebergPlace)
        self.place = place
        (self.folder / "in").mkdir()
        entry = place.settings.catalogs["test"]
        catalog = {"type": "sql", "uri": entry.uri, "warehouse": entry.warehouse}
        (self.folder / "settings.yaml").write_text(yaml.safe_dump({"catalogs": {"test": catalog}}))
        self.document: dict[str, Any] = {
            "apiVersion": "checkpointed.dev/v1alpha1",
            "kind": "CheckpointedWrite",
            "metadata": {"name": "nightly"},
            "spec": {
                "source": {"files": {"format": "parquet", "paths": [str(self.folder / "in")]}},
                "sink": {**place.sink(), "create": True},
                "checkpoint": {"uri": str(self.folder / "checkpoints")},
            },
        }
        self.make_store()

    def make_store(self) -> None:
        self.stored = StoredWrite(self.folder, given=parse_manifest(self.document))

    @property
    def file(self) -> Path:
        file = self.folder / "write.yaml"
        file.write_text(yaml.safe_dump(self.document))
        return file

    @property
    def table(self) -> PyicebergTable:
        return PyicebergTable(self.place.catalog, self.place.name, self.place.settings)

    def commit(self) -> None:
        """All is sealed, claimed, in the table, and recorded."""
        key = self.stored.ledger.key
        target = self.table.create(encode_schema(pa.schema([("id", pa.int64())])), self.stored.manifest.spec.sink)
        self.seal_all()
        port = PyicebergTable(self.place.catalog, self.place.name, self.place.settings, written_by="default/nightly")
        state = port.load(key)
        assert state is not None
        self.claim(target.table_uuid)
        port.swap(state, key, appended(()))
        stored = self.stored
        stored.record_commit(key.snapshot_id)
        # The commit record names the table as a run would have.
        path = self.folder / "checkpoints" / layout.EpochLayout(key).commit_record
        path.write_text(path.read_text().replace("the-table", target.table_uuid))

    def seal_all(self) -> None:
        self.stored.begin()
        self.stored.launch()
        self.stored.plan()
        self.stored.seal(0)
        self.stored.seal(1)
        self.stored.close()

    def claim(self, uuid: str) -> None:
        base = IcebergBase(table_uuid=uuid, snapshot_id=None)
        self.stored.ledger.commits.put_claim(ClaimRecord(token=TOKEN, index=0, base=base))

    def drop(self) -> None:
        self.place.opened().drop_table(self.place.name)

    def call(self, command: str, *arguments: str, answer: str = "") -> Result:
        environment = {"XDG_CONFIG_HOME": "/nonexistent", "XDG_STATE_HOME": str(self.folder / "state"), "COLUMNS": "300"}
        words = [command, str(self.file), "--settings", str(self.folder / "settings.yaml"), *arguments]
        return CliRunner(env=environment).invoke(main, words, input=answer, catch_exceptions=False)

    def uid(self) -> str | None:
        return writes.look_up_name(self.stored.store, "default", "nightly")

    def staged(self) -> list[str]:
        return [stored.path for stored in self.stored.store.list(layout.staged_folder(UID))]


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


# --- the table is gone ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["run", "status"])
def test_a_committed_write_whose_table_is_there_exits_with_0(command: str, ground: Ground) -> None:
    ground.commit()

    result = ground.call(command)

    assert result.exit_code == 0, result.output
    assert "forget" not in result.output


@pytest.mark.parametrize("command", ["run", "status"])
def test_a_committed_write_whose_table_was_dropped_is_said_with_the_way_out(command: str, ground: Ground) -> None:
    ground.commit()
    ground.drop()

    result = ground.call(command)

    assert result.exit_code == 1, result.output
    assert "already committed" not in result.output
    assert "TableMissing: the write was committed to" in result.stderr
    assert "the table is gone since" in result.stderr
    assert f"checkpointed-write forget {ground.file}" in result.stderr


@pytest.mark.parametrize("is_made_again", [False, True])
def test_validate_finds_once_that_a_committed_table_was_dropped_and_made_again(is_made_again: bool, ground: Ground) -> None:
    ground.commit()
    ground.drop()
    if is_made_again:
        ground.place.create(pa.schema([("id", pa.int64())]))

    result = ground.call("validate", "-o", "json")

    assert result.exit_code == 2, result.output
    problems = [one for one in json.loads(result.stdout)["problems"] if one["path"] == "spec.sink.iceberg.table"]
    assert len(problems) == 1, problems
    said = "since then it was dropped and made again" if is_made_again else "the table is gone since"
    assert said in problems[0]["message"]
    assert f"checkpointed-write forget {ground.file}" in problems[0]["message"]


def test_validate_finds_that_the_table_is_gone_with_the_rows_before_also_where_one_would_be_made(ground: Ground) -> None:
    ground.commit()
    ground.drop()
    ground.document["spec"]["runNonce"] = "2"

    result = ground.call("validate")

    assert result.exit_code == 2, result.output
    assert "spec.sink.iceberg.table" in result.output
    assert "is gone, and with it what earlier epochs of the write had committed (epoch 1:" in result.output


@pytest.mark.parametrize("command", ["run", "status"])
def test_a_committed_write_whose_table_was_made_again_is_said(command: str, ground: Ground) -> None:
    ground.commit()
    ground.drop()
    ground.place.create(pa.schema([("id", pa.int64())]))

    result = ground.call(command)

    assert result.exit_code == 1, result.output
    assert "TableReplaced" in result.stderr


@pytest.mark.parametrize("command", ["run", "status"])
def test_a_committed_write_whose_table_was_rolled_back_is_a_warning(command: str, ground: Ground) -> None:
    ground.place.create(pa.schema([("id", pa.int64())]))
    ground.place.append(pa.table({"id": [1]}))
    before = ground.place.table().metadata.current_snapshot_id
    assert before is not None
    ground.commit()
    ground.place.table().manage_snapshots().set_current_snapshot(before).commit()

    result = ground.call(command)

    assert result.exit_code == 0, result.output
    assert "warning: the write was committed to" in result.stderr
    assert "rolled back" in result.stderr


@pytest.mark.parametrize("command", ["run", "status"])
def test_a_catalog_that_does_not_answer_leaves_what_the_store_says(command: str, ground: Ground) -> None:
    ground.commit()
    catalog = {"type": "rest", "uri": "http://127.0.0.1:1/"}
    (ground.folder / "settings.yaml").write_text(yaml.safe_dump({"catalogs": {"test": catalog}}))

    result = ground.call(command)

    assert result.exit_code == 0, result.output
    assert "could not be read" in result.stderr


def test_status_as_json_has_what_the_table_shows(ground: Ground) -> None:
    ground.commit()
    assert json.loads(ground.call("status", "-o", "json").stdout)["table"] == "Here"
    ground.drop()
    assert json.loads(ground.call("status", "-o", "json").stdout)["table"] == "Gone"


# --- the store is gone, and the table is not ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["run", "validate"])
def test_rows_of_a_former_write_of_that_name_are_said_before_everything_is_done_again(command: str, ground: Ground) -> None:
    ground.commit()
    ground.document["spec"]["suspend"] = True  # so that nothing is run
    assert "former write" not in ground.call(command).stderr
    shutil.rmtree(ground.folder / "checkpoints")

    said = " ".join(ground.call(command).stderr.split())

    assert f"has rows of a former write named default/nightly (key {UID}/1)" in said
    assert "appends all rows once more" in said
    ground.document["metadata"]["name"] = "hourly"
    assert "former write" not in ground.call(command).stderr

    ground.document["metadata"]["name"] = "nightly"
    ground.drop()
    assert "former write" not in ground.call(command).stderr


# --- forgetting -----------------------------------------------------------------------------------------------------------


def test_a_forgotten_write_begins_anew_under_its_name(ground: Ground) -> None:
    ground.commit()
    ground.drop()

    result = ground.call("forget", "--yes")

    assert result.exit_code == 0, result.output
    assert "forgotten: default/nightly" in result.stdout
    assert ground.uid() not in (UID, None)
    assert ground.staged() == []
    status = ground.call("status", "-o", "json")
    assert (status.exit_code, json.loads(status.stdout)["phase"]) == (3, "Pending")
    assert ground.stored.ledger.commits.is_deleted(), "who was slow must find the note"
    shown = json.loads(CliRunner().invoke(main, ["inspect", str(ground.stored.uri), "-o", "json"]).stdout)
    assert (shown["errors"], shown["strays"]) == ([], [])
    assert [write["names"] for write in shown["writes"] if write["uid"] == UID] == [[]]


def test_without_yes_it_is_asked_and_no_means_that_nothing_is_removed(ground: Ground) -> None:
    ground.commit()
    before = {stored.path for stored in ground.stored.store.list("")}

    result = ground.call("forget", answer="n\n")

    assert result.exit_code == 1
    assert "would append them once more" in result.stderr, "the table has its rows"
    assert {stored.path for stored in ground.stored.store.list("")} == before
    assert ground.call("forget", answer="y\n").exit_code == 0
    assert ground.uid() != UID


def test_a_table_into_which_nothing_is_appended_is_not_to_be_dropped(ground: Ground) -> None:
    ground.document["spec"]["sink"] |= {"mode": "Upsert", "upsertKeys": ["id"]}
    ground.make_store()
    ground.commit()

    asked = " ".join(ground.call("forget", answer="n\n").stderr.split())
    ground.document["spec"]["suspend"] = True  # so that nothing is run
    shutil.rmtree(ground.folder / "checkpoints")
    warned = " ".join(ground.call("run").stderr.split())

    assert "which stay there: a run would do everything again, by sink.mode Upsert with the table as it is" in asked
    assert "A run does everything again, by sink.mode Upsert with the table as it is; bring the former store back" in warned
    assert "drop" not in asked + warned


@pytest.mark.parametrize("command", ["forget", "validate"])
def test_rows_that_wait_for_a_merge_that_failed_are_told_as_sealed(command: str, ground: Ground) -> None:
    pq.write_table(pa.table({"id": [1]}), ground.folder / "in" / "a.parquet")
    ground.seal_all()
    ground.stored.stage = "merge-1"
    ground.stored.launch()
    ground.stored.fail("NeedsChange", "OutputKeyRepeated", "several rows of the output have one key")
    ground.stored.close()

    said = " ".join(ground.call(command, answer="n\n").output.split())

    assert "Stalled" in said
    assert "epoch 1, stage merge-1, attempt 1" in said
    assert "20 rows " in said


def test_forgetting_what_was_never_begun_or_is_forgotten_already_does_nothing(ground: Ground) -> None:
    assert ground.call("forget", "--yes").exit_code == 0
    assert not (ground.folder / "checkpoints" / "names").exists()
    ground.commit()
    ground.call("forget", "--yes")
    forgotten = ground.uid()

    result = ground.call("forget", "--yes")

    assert result.exit_code == 0
    assert "nothing to forget" in result.stdout
    assert ground.uid() == forgotten


def test_a_commit_that_may_be_on_its_way_is_buried_in_the_sink_that_the_write_began_with(ground: Ground) -> None:
    place = ground.place
    target = ground.table.create(encode_schema(pa.schema([("id", pa.int64())])), ground.stored.manifest.spec.sink)
    ground.seal_all()
    ground.claim(target.table_uuid)
    prepared = ground.table
    state = prepared.load(ground.stored.ledger.key)
    assert state is not None
    ground.document["spec"]["sink"]["iceberg"]["table"] = "elsewhere.rows"

    result = ground.call("forget", "--yes")

    assert result.exit_code == 0, result.output
    assert place.rows() == []
    assert len(place.keys()) == 1, "a tombstone"
    assert type(prepared.swap(state, ground.stored.ledger.key, appended(()))).__name__ == "Refused"


def test_where_nobody_knows_whether_a_commit_landed_nothing_is_forgotten(ground: Ground) -> None:
    ground.table.create(encode_schema(pa.schema([("id", pa.int64())])), ground.stored.manifest.spec.sink)
    ground.seal_all()
    ground.place.append(pa.table({"id": [1]}))
    ground.place.append(pa.table({"id": [1]}))
    table = ground.place.table()
    first = table.metadata.snapshots[0].snapshot_id
    base = IcebergBase(table_uuid=str(table.metadata.table_uuid), snapshot_id=first)
    ground.stored.ledger.commits.put_claim(ClaimRecord(token=TOKEN, index=0, base=base))
    table.maintenance.expire_snapshots().by_id(first).commit()
    staged = ground.staged()

    result = ground.call("forget", "--yes")

    assert result.exit_code == 1
    assert "CommitOutcomeUnknown" in result.stderr
    assert ground.uid() == UID
    assert ground.staged() == staged


def test_a_run_at_work_on_this_machine_is_named_and_not_forgotten(ground: Ground) -> None:
    ground.commit()
    lock = RunnerLock(ground.folder / "state" / "checkpointed-writes" / UID / "runner.lock")
    assert lock.take()
    result = ground.call("forget", "--yes", "--force")
    lock.release()

    assert result.exit_code == 1
    assert "WriteAtWork" in result.stderr
    assert f"process {os.getpid()}" in result.stderr
    assert not ground.stored.ledger.commits.is_deleted()
    assert ground.call("forget", "--yes").exit_code == 0, "it is gone"


def test_an_open_attempt_of_another_machine_is_forgotten_only_by_force(ground: Ground) -> None:
    ground.stored.begin()
    record = launch().model_copy(update={"recorded_by": "another"})
    ground.stored.ledger.attempts.put_launch(record)

    result = ground.call("forget", "--yes")

    assert result.exit_code == 1
    assert "another machine" in result.stderr
    assert "--force" in result.stderr
    assert not ground.stored.ledger.commits.is_deleted()
    assert ground.call("forget", "--yes", "--force").exit_code == 0
    assert ground.uid() != UID


def test_an_open_attempt_of_another_machine_in_a_stage_is_forgotten_only_by_force(ground: Ground) -> None:
    ground.stored.begin()
    stage = replace(ground.stored.ledger, key=ground.stored.ledger.key.of_stage("wash"))
    stage.attempts.put_launch(launch().model_copy(update={"recorded_by": "another"}))

    result = ground.call("forget", "--yes")

    assert result.exit_code == 1
    assert "another machine" in result.stderr
    assert "attempt 1 of the stage wash" in result.stderr
    assert not ground.stored.ledger.commits.is_deleted()
    assert ground.call("forget", "--yes", "--force").exit_code == 0
    assert ground.uid() != UID


def test_a_wrong_manifest_exits_with_2(ground: Ground) -> None:
    ground.document["spec"]["sink"] = {}

    assert ground.call("forget", "--yes").exit_code == 2


# --- cut off, slow, and at once ---------------------------------------------------------------------------------------------


class Died(BaseException):
    pass


@dataclass
class DiesAt(Wrapped):
    """Dies before the n-th change of the store."""

    left: int = 1_000_000

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._live()
        return super().put_if_absent(path, data)

    def delete(self, paths: Iterable[str]) -> None:
        self._live()
        super().delete(paths)

    def _live(self) -> None:
        if not self.left:
            raise Died
        self.left -= 1


def sealed_store() -> MemoryStore:
    store = MemoryStore()
    writes.name_write(store, "default", "nightly", UID)
    ledger = Ledger(store, EpochKey(UID, 1))
    ledger.attempts.put_launch(launch())
    ledger.seals.put_seal(seal(0, 0, [(0, 0, 1)], files=[], last=True))
    return store


class Unclaimed:
    """A sink of which nothing was claimed."""

    title = "db.rows"

    def discard(self, key: EpochKey, targets: Any, files: Any) -> int:
        return 0


def forgotten(store: Any) -> Forgotten:
    ended = forget(store, METADATA, UID, lambda sink: Unclaimed(), NONE, force=True)  # type: ignore[arg-type, return-value]
    assert isinstance(ended, Forgotten)
    return ended


@pytest.mark.usefixtures("_state_of_its_own")
def test_a_forgetting_that_is_cut_off_anywhere_is_ended_by_the_next_and_no_run_begins_in_between(tmp_path: Path) -> None:
    manifest, died = StoredWrite(tmp_path).manifest, 0
    while True:
        store = sealed_store()
        try:
            forgotten(DiesAt(store, left=died))
        except Died:
            pass
        else:
            break
        assert writes.look_up_name(store, "default", "nightly") == UID
        if died:
            with pytest.raises(NeedsChange, match="checkpointed-write forget ends it") as caught:
                identify(store, manifest)
            assert caught.value.reason == reasons.WRITE_DELETED
        ended = forgotten(store)
        assert writes.look_up_name(store, "default", "nightly") == ended.new_uid
        died += 1
    assert died == 3, "the note, the staged object, the name"


@pytest.mark.usefixtures("_state_of_its_own")
def test_one_who_forgets_late_does_not_take_the_name_from_the_write_that_has_begun_since() -> None:
    store = sealed_store()
    first = forgotten(store).new_uid

    assert forgotten(store).new_uid == first
    assert writes.rename(store, "default", "nightly", UID, "f" * 16) == first
    assert writes.look_up_name(store, "default", "nightly") == first


def test_a_name_that_is_forgotten_many_times_means_the_newest_also_where_a_listing_is_late() -> None:
    store = MemoryStore()
    uids = [f"{number:016x}" for number in range(6)]
    writes.name_write(store, "default", "nightly", uids[0])
    for old, new in itertools.pairwise(uids):
        assert writes.rename(store, "default", "nightly", old, new) == new

    late = ListHides(store, {layout.name_path("default", "nightly", number) for number in (4, 5)})

    assert writes.look_up_name(store, "default", "nightly") == uids[-1]
    assert writes.look_up_name(late, "default", "nightly") == uids[-1]
    assert writes.name_write(store, "default", "nightly", "f" * 16) == uids[-1]
    del store.objects[layout.name_path("default", "nightly", 5)]
    assert writes.look_up_name(store, "default", "nightly") == uids[-2]


def test_a_name_whose_record_cannot_be_read_means_no_older_uid() -> None:
    store = MemoryStore()
    writes.name_write(store, "default", "nightly", UID)
    writes.rename(store, "default", "nightly", UID, "f" * 16)
    store.objects[layout.name_path("default", "nightly", 1)] = b"{"

    with pytest.raises(Corrupt):
        writes.look_up_name(store, "default", "nightly")


@pytest.fixture
def _state_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

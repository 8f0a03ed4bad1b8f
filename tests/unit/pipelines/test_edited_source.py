"""An edit of the source of a pipeline, by what its stages have sealed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from checkpoint_control.writes.registration import changed_parts
from checkpoint_protocol import writes
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import CheckpointedWrite, Spec, parse_manifest
from checkpoint_protocol.records import StageIdentity
from tests.support.records import DIGEST, launch, seal
from tests.support.stored_writes import StoredWrite


def reading(folder: Path, path: str) -> CheckpointedWrite:
    step = {"call": "work:wash", "input": "row"}
    return parse_manifest(
        {
            "apiVersion": "checkpointed.dev/v1alpha1",
            "kind": "CheckpointedWrite",
            "metadata": {"name": "nightly"},
            "spec": {
                "source": {"files": {"format": "parquet", "paths": [path]}},
                "stages": [{"name": "wash", "steps": [step]}, {"name": "cook", "steps": [step]}],
                "sink": {"iceberg": {"catalog": "lake", "table": "db.rows"}},
                "checkpoint": {"uri": str(folder / "checkpoints")},
            },
        }
    )


@pytest.fixture
def write(tmp_path: Path) -> StoredWrite:
    """A write that began with /one."""
    stored = StoredWrite(tmp_path, given=reading(tmp_path, "/one"))
    stored.begin()
    return stored


def launch_of(write: StoredWrite, path: str, folder: str) -> Ledger:
    """Begin a stage that reads a source, in a folder."""
    identity = StageIdentity(name="wash", reads="", hash_in=DIGEST, algorithm=1)
    ledger = replace(write.ledger, key=write.ledger.key.of_stage(folder))
    source = reading(write.folder, path).spec.source
    ledger.attempts.put_launch(launch().model_copy(update={"source": source, "stage": identity}))
    return ledger


def changed(write: StoredWrite, path: str) -> tuple[str, ...]:
    registered = writes.read_write(write.store, write.uid)
    assert registered is not None
    spec: Spec = reading(write.folder, path).spec
    return changed_parts(write.store, registered, spec)


def test_a_source_of_which_a_stage_has_sealed_nothing_may_be_another(write: StoredWrite) -> None:
    launch_of(write, "/one", "wash-1111111111111111-1")

    assert changed(write, "/two") == ()


def test_a_source_of_which_a_stage_has_sealed_something_may_not(write: StoredWrite) -> None:
    launch_of(write, "/one", "wash-1111111111111111-1").seals.put_seal(seal())

    assert changed(write, "/two") == ("source",)
    assert changed(write, "/one") == ()


def test_what_the_driver_of_the_former_source_seals_late_does_not_stop_the_write(write: StoredWrite) -> None:
    former = launch_of(write, "/one", "wash-1111111111111111-1")
    launch_of(write, "/two", "wash-2222222222222222-1").seals.put_seal(seal())

    former.seals.put_seal(seal())

    assert changed(write, "/two") == ()
    assert changed(write, "/three") == ("source",)


def test_a_later_epoch_has_the_source_of_the_first(write: StoredWrite) -> None:
    write.commit()
    write.epoch = 2
    launch_of(write, "/one", "wash-1111111111111111-1")

    assert changed(write, "/two") == ("source",)
    assert changed(write, "/one") == ()


def test_the_merge_that_a_commit_needs_reads_no_source(write: StoredWrite) -> None:
    write.launch()
    merge = replace(write.ledger, key=write.ledger.key.of_stage("merge-1"))
    merge.attempts.put_launch(launch())
    merge.seals.put_seal(seal())

    assert changed(write, "/one") == ()
    assert changed(write, "/two") == ()

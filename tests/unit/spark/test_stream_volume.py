"""Spark's own checkpoint in a volume that drivers share: no driver can change what another one goes by."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.records import DrivenBy
from checkpoint_spark.streams.checkpoint import Checkpoint, Known
from checkpoint_spark.streams.volume import StreamVolume
from tests.unit.spark.test_stream_checkpoint import UID, spark_runs


def volume_of(mount: Path, epoch: int, attempt: int = 1) -> StreamVolume:
    return StreamVolume(mount, UID, DrivenBy(epoch=epoch, attempt=attempt))


def known(checkpoint: Checkpoint, committed: int) -> Known:
    return Known(committed, checkpoint.digest_of(committed - 1))


def folders(mount: Path) -> list[str]:
    return sorted("-".join(entry.name.split("-")[:2]) for entry in (mount / "streams" / UID).iterdir())


@pytest.fixture
def first(tmp_path: Path) -> Checkpoint:
    """The folder of the first driver, whose micro-batches 0 to 3 are committed, with state."""
    found = volume_of(tmp_path, 1).begin(Known(0, None))
    spark_runs(found, *range(4))
    (found.folder / "state" / "0").mkdir(parents=True)
    (found.folder / "state" / "0" / "4.delta").write_text("sums")
    return found


def test_the_next_driver_begins_with_all_of_the_one_before_in_a_folder_of_its_own(first: Checkpoint, tmp_path: Path) -> None:
    following = volume_of(tmp_path, 5, 2).begin(known(first, 4))

    assert following.folder != first.folder
    assert following.digest_of(3) == first.digest_of(3)
    assert (following.folder / "state" / "0" / "4.delta").read_text() == "sums"
    assert folders(tmp_path) == ["1-1", "5-2"]


def test_what_a_driver_that_was_given_up_goes_on_to_put_is_not_in_the_folder_of_the_next(
    first: Checkpoint, tmp_path: Path
) -> None:
    following = volume_of(tmp_path, 5, 2).begin(known(first, 4))
    before = following.digest_of(3)

    # As Spark puts a file: whole, under another name, and then in the place of whatever has the name.
    for name, number in (("offsets", "3"), ("offsets", "4"), ("state/0", "4.delta")):
        made = first.folder / name / ".made"
        made.write_text("of a driver that was given up")
        os.replace(made, first.folder / name / number)

    assert following.digest_of(3) == before
    assert not (following.folder / "offsets" / "4").exists()
    assert (following.folder / "state" / "0" / "4.delta").read_text() == "sums"
    # Its folder is not taken any more, though it is there: that of the next one is.
    third = volume_of(tmp_path, 5, 3).begin(Known(4, before))
    assert third.digest_of(3) == before


def test_a_folder_of_a_driver_given_up_that_went_another_way_is_passed_over_for_that_of_the_table(
    first: Checkpoint, tmp_path: Path
) -> None:
    committed = volume_of(tmp_path, 5, 1).begin(known(first, 4))
    given_up = volume_of(tmp_path, 5, 2).begin(known(first, 4))
    spark_runs(committed, 4)
    spark_runs(given_up, 4, source=" of another")

    following = volume_of(tmp_path, 6, 2).begin(known(committed, 5))

    assert following.digest_of(4) == committed.digest_of(4)


def test_a_driver_that_has_committed_removes_the_folders_before_its_own_and_none_after_it(
    first: Checkpoint, tmp_path: Path
) -> None:
    volume_of(tmp_path, 4, 1).begin(known(first, 4))
    own = volume_of(tmp_path, 5, 1)
    mine = own.begin(known(first, 4))
    volume_of(tmp_path, 5, 1).begin(known(first, 4))
    volume_of(tmp_path, 5, 2).begin(known(first, 4))

    own.remove_older(mine)

    assert folders(tmp_path) == ["5-1", "5-2"]
    assert mine.folder.is_dir()


def test_a_copy_that_was_cut_off_is_no_folder_of_a_driver(first: Checkpoint, tmp_path: Path) -> None:
    now = known(first, 4)
    cut_off = first.folder.with_name(".9-1-cut")
    (cut_off / "offsets").mkdir(parents=True)

    assert volume_of(tmp_path, 5).begin(now).digest_of(3) == now.offsets


def test_a_volume_without_hard_links_is_copied(first: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)

    assert volume_of(tmp_path, 5).begin(known(first, 4)).digest_of(3) == first.digest_of(3)


def test_another_volume_is_lost_until_the_claim_has_the_one_of_before(first: Checkpoint, tmp_path: Path) -> None:
    now = known(first, 4)

    (tmp_path / "another").mkdir()
    with pytest.raises(NeedsChange, match="has no folder of a driver") as lost:
        volume_of(tmp_path / "another", 5).begin(now)

    assert lost.value.reason == reasons.CHECKPOINT_LOST
    assert volume_of(tmp_path, 5).begin(now).digest_of(3) == now.offsets


def test_a_driver_that_died_before_it_had_planned_leaves_nothing_that_stops_the_next(tmp_path: Path) -> None:
    died = volume_of(tmp_path, 1, 1).begin(Known(0, None))
    (died.folder / "offsets").mkdir()
    (died.folder / "offsets" / "0").write_text("v1\n")

    following = volume_of(tmp_path, 1, 2).begin(Known(0, None))

    assert following.digest_of(0) == died.digest_of(0)


def test_a_volume_that_may_not_be_written_is_named_with_what_to_do_and_used_once_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", refuse)
        with pytest.raises(NeedsChange, match=r"let the group of the pods \(fsGroup\) read and write it") as refused:
            volume_of(tmp_path, 1).begin(Known(0, None))
    assert refused.value.reason == reasons.CREDENTIALS_REFUSED

    assert volume_of(tmp_path, 1).begin(Known(0, None)).folder.is_dir()


def test_a_volume_that_does_not_answer_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(os, "mkdir", fail)

    with pytest.raises(Retryable, match="Stale file handle"):
        volume_of(tmp_path, 1).begin(Known(0, None))

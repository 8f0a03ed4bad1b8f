"""Spark's own checkpoint of a stream, held against what is committed: without Spark, whose files are plain."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_spark.streams.checkpoint import Checkpoint, Known

UID = "0123456789abcdef"


def spark_runs(checkpoint: Checkpoint, *batches: int, source: str = "") -> None:
    """Do what Spark does with the folder for each micro-batch."""
    for number in batches:
        for name in ("offsets", "commits"):
            (checkpoint.folder / name).mkdir(exist_ok=True)
            (checkpoint.folder / name / str(number)).write_text(f"v1\n{name} of {number}{source}\n")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """That of a write whose micro-batches 0 to 3 are committed."""
    found = Checkpoint.below(str(tmp_path), UID)
    found.prepare(Known(0, None))
    spark_runs(found, *range(4))
    return found


def known(checkpoint: Checkpoint, committed: int = 4) -> Known:
    return Known(committed, checkpoint.digest_of(committed - 1))


def remove(name: str) -> Callable[[Checkpoint, Path], object]:
    def do(checkpoint: Checkpoint, _older: Path) -> None:
        path = checkpoint.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return do


def restore(checkpoint: Checkpoint, older: Path) -> None:
    shutil.rmtree(checkpoint.folder)
    shutil.copytree(older, checkpoint.folder)


def go_on_from_older(checkpoint: Checkpoint, older: Path) -> None:
    restore(checkpoint, older)
    spark_runs(checkpoint, 2, 3, source=" by which time there was more")


def run_further(checkpoint: Checkpoint, _older: Path) -> None:
    spark_runs(checkpoint, 4)


def be_another(checkpoint: Checkpoint, _older: Path) -> None:
    (checkpoint.folder / "metadata").write_text('{"id":"4d097d71-4b6f-4061-9bf0-16b62022d79d"}')


@pytest.mark.parametrize(
    ("lose", "word"),
    [
        pytest.param(remove(""), "has no metadata", id="the folder"),
        pytest.param(remove("metadata"), "has no metadata", id="only metadata"),
        pytest.param(remove("commits"), "no note that micro-batch 2 is done", id="only commits"),
        pytest.param(remove("offsets"), "ends before micro-batch 3", id="only offsets"),
        pytest.param(remove("offsets/3"), "ends before micro-batch 3", id="the last offsets"),
        pytest.param(restore, "ends before micro-batch 3", id="an older copy"),
        pytest.param(go_on_from_older, "other offsets for micro-batch 3", id="an older copy that went on"),
        pytest.param(run_further, "is ahead", id="a newer copy"),
        pytest.param(be_another, "is that of another query", id="another write's"),
    ],
)
def test_a_folder_that_is_not_the_one_of_the_table_is_lost_until_it_is_put_back(
    checkpoint: Checkpoint, lose: Callable[[Checkpoint, Path], object], word: str, tmp_path: Path
) -> None:
    older, whole, now = tmp_path / "older", tmp_path / "whole", known(checkpoint)
    shutil.copytree(checkpoint.folder, whole)
    shutil.copytree(checkpoint.folder, older)
    for name in ("offsets", "commits"):
        for number in (2, 3):
            (older / name / str(number)).unlink()

    lose(checkpoint, older)

    with pytest.raises(NeedsChange, match=word) as lost:
        checkpoint.prepare(now)
    assert lost.value.reason == reasons.CHECKPOINT_LOST
    assert "Put the folder back" in lost.value.message
    shutil.rmtree(checkpoint.folder, ignore_errors=True)
    shutil.copytree(whole, checkpoint.folder)
    checkpoint.prepare(now)


def test_what_a_kill_leaves_is_taken_as_it_is(checkpoint: Checkpoint) -> None:
    now = known(checkpoint)
    # Killed after the commit, and before Spark's own note.
    (checkpoint.folder / "commits" / "3").unlink()
    checkpoint.prepare(now)
    # Killed after Spark has logged what the next micro-batch reads, and maybe after an attempt has planned with that.
    (checkpoint.folder / "commits" / "3").write_text("v1\n{}\n")
    (checkpoint.folder / "offsets" / "4").write_text("v1\nmore\n")
    checkpoint.prepare(now)
    checkpoint.prepare(Known(now.committed, now.offsets, (checkpoint.digest_of(4),)))


def test_a_micro_batch_that_was_planned_with_other_offsets_is_another_one(checkpoint: Checkpoint) -> None:
    now = known(checkpoint)
    planned = Known(now.committed, now.offsets, ("ab" * 32,))
    with pytest.raises(NeedsChange, match="does not say what micro-batch 4 has read"):
        checkpoint.prepare(planned)
    (checkpoint.folder / "offsets" / "4").write_text("v1\nmore\n")
    for offsets in (planned.planned, (checkpoint.digest_of(4), *planned.planned)):
        with pytest.raises(NeedsChange, match="other offsets for micro-batch 4"):
            checkpoint.prepare(Known(now.committed, now.offsets, offsets))


def test_the_query_has_the_identity_of_the_write_whoever_begins_it(tmp_path: Path) -> None:
    one = Checkpoint.below(f"file://{tmp_path}", UID)
    one.prepare(Known(0, None))
    one.prepare(Known(0, None))
    assert one.query_id in (one.folder / "metadata").read_text()
    assert str(uuid.UUID(one.query_id)) == one.query_id != Checkpoint.below(str(tmp_path), "fedcba9876543210").query_id
    of_cluster = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
    assert Checkpoint.below(str(tmp_path), of_cluster).query_id == of_cluster

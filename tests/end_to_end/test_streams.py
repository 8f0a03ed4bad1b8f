"""Streams: each micro-batch of Spark is an epoch, whose rows are in the table once, whatever dies and whatever is lost."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from checkpoint_control.views.stored_status import read_status
from checkpoint_protocol import reasons
from checkpoint_protocol.store.object_store import open_store
from checkpoint_spark.streams.checkpoint import Checkpoint
from tests.end_to_end.keyed_writes import TEXTS, KeyedWrite, session
from tests.end_to_end.streamed_writes import StreamedWrite
from tests.support import streams
from tests.support.checks import assert_exactly_once
from tests.support.places import Place
from tests.support.slow import slow_except_on

__all__ = ["session"]
pytestmark = pytest.mark.spark


def test_each_micro_batch_is_one_commit_and_the_end_of_the_query_is_none(
    session: Any, iceberg_place: Place, tmp_path: Path
) -> None:
    iceberg_place.create(TEXTS)
    write = StreamedWrite(session, iceberg_place, tmp_path / "in")

    first = write.finish(30)
    second = write.finish(20)
    status = read_status(write.manifest, open_store(iceberg_place.checkpoint_uri, iceberg_place.settings))

    assert (status.phase, status.committed_epoch, status.failure) == ("Committed", 2, None)
    assert_exactly_once(iceberg_place, range(50))
    assert first is not None
    assert second is not None
    assert [first.rows_read, second.rows_read] == [30, 20]
    assert iceberg_place.keys() == [f"{write.uid}/2", f"{write.uid}/1"]
    assert [first.offsets, second.offsets] == [write.checkpoint.digest_of(0), write.checkpoint.digest_of(1)]
    ended = write.ledger(3).attempts.read_failure(1)
    assert ended is not None
    assert ended.reason == reasons.STREAM_ENDED


@slow_except_on("disk_place", "iceberg-sql-disk")
def test_half_a_micro_batch_is_staged_anew_as_a_whole_whatever_its_partitions_are(
    session: Any, disk_place: Place, tmp_path: Path
) -> None:
    disk_place.create(TEXTS)
    arguments = {"number": 41, "until": str(tmp_path / "mended"), "column": "id"}
    steps = [{"call": "tests.support.keyed_steps:fail_at", "input": "row", "arguments": arguments}]
    write = StreamedWrite(session, disk_place, tmp_path / "in", steps=steps)
    write.finish(30)

    # Row 41 is in the second of two partitions: the first is sealed.
    write.stall(reasons.CODE_FAILED, "not yet 41", "partition 1 of micro-batch 1")
    assert write.sealed(epoch=2, attempt=2) == [15]
    (tmp_path / "mended").touch()
    write.partitions = 3
    write.finish(40)

    # What the replayed one reads was logged before; then comes the next.
    assert [write.sealed(2, 3), write.sealed(3, 1)] == [[10, 10, 10], [14, 13, 13]]
    assert_exactly_once(disk_place, range(100))
    assert disk_place.keys() == [f"{write.uid}/{epoch}" for epoch in (3, 2, 1)]


@slow_except_on("disk_place", "iceberg-sql-disk")
def test_a_complete_result_takes_the_place_of_the_one_before_and_goes_on_over_a_replay(
    session: Any, disk_place: Place, tmp_path: Path
) -> None:
    disk_place.create(TEXTS)
    sink = {**disk_place.sink(), "mode": "OverwriteAll"}
    write = StreamedWrite(session, disk_place, tmp_path / "in", "count", {"outputMode": "Complete"}, more={"sink": sink})

    write.finish(30)
    write.finish(20)

    assert {row["id"]: row["text"] for row in disk_place.rows()} == {0: "17", 1: "17", 2: "16"}
    # Killed between the commit and Spark's note of it: computed once more, so that the sums go on, and not committed again.
    for name in ("1", ".1.crc"):
        (write.checkpoint.folder / "commits" / name).unlink()
    write.finish(10)
    assert {row["id"]: row["text"] for row in disk_place.rows()} == {0: "20", 1: "20", 2: "20"}
    assert disk_place.keys() == [f"{write.uid}/{epoch}" for epoch in (3, 2, 1)]


@slow_except_on("disk_place", "iceberg-sql-disk")
def test_in_a_volume_each_driver_goes_on_from_a_copy_with_the_offsets_and_the_state(
    session: Any, disk_place: Place, tmp_path: Path
) -> None:
    disk_place.create(TEXTS)
    sink = {**disk_place.sink(), "mode": "OverwriteAll"}
    stream, mount = {"outputMode": "Complete"}, tmp_path / "volume"
    mount.mkdir()
    write = StreamedWrite(session, disk_place, tmp_path / "in", "count", stream, more={"sink": sink}, mount=mount)

    write.finish(30)
    write.finish(20)
    last = write.finish(10)

    assert {row["id"]: row["text"] for row in disk_place.rows()} == {0: "20", 1: "20", 2: "20"}
    folders = {path.name.rpartition("-")[0]: path for path in (mount / "streams" / write.uid).iterdir()}
    assert sorted(folders) == ["3-2"], "that of the driver that has committed last"
    assert last is not None
    assert Checkpoint(folders["3-2"], write.uid).digest_of(2) == last.offsets
    assert not write.checkpoint.folder.exists()
    mount.rename(tmp_path / "another")
    mount.mkdir()
    write.stall(reasons.CHECKPOINT_LOST, "has no folder of a driver")


def test_a_micro_batch_without_rows_makes_no_version_and_an_empty_result_takes_the_place_of_all(
    session: Any, lance_place: Place, tmp_path: Path
) -> None:
    lance_place.create(TEXTS)
    write = StreamedWrite(session, lance_place, tmp_path / "in")
    write.folder.mkdir()
    (write.folder / "only").write_text("id >= 15")

    nothing, some = write.finish(10), write.finish(10)

    assert nothing is not None
    assert some is not None
    assert (nothing.commit_id, nothing.rows_written, some.rows_written) == (None, 0, 5)
    assert lance_place.keys() == [f"{write.uid}/2"]
    (write.folder / "only").write_text("id < 0")
    sink = {**lance_place.sink(), "mode": "OverwriteAll"}
    whole = StreamedWrite(
        session, lance_place, write.folder, "count", {"outputMode": "Complete"}, more={"sink": sink}, name="whole"
    )
    empty = whole.finish()
    assert empty is not None
    assert empty.commit_id is not None
    assert lance_place.rows() == []


def test_what_cannot_be_replayed_or_is_the_writes_own_is_refused_by_name(
    session: Any, lance_place: Place, tmp_path: Path
) -> None:
    lance_place.create(TEXTS)
    write = StreamedWrite(session, lance_place, tmp_path / "in", "try_what_is_refused")

    write.finish(5)

    words = [
        "Spark's source FileSource",
        "Spark's source socket",
        "Spark's source FileSource",
        "DataStreamWriter that is no stream; give it a DataFrame of spark.readStream",
        "DataFrame that is no stream",
        "outputMode='complete', and source.program.stream.outputMode is Append",
        "does not take queryName: leave it out",
        "does not take checkpointLocation: leave it out",
        "does not take realTime: real-time mode",
        "does not take continuous",
        "does not take once: say availableNow=True",
        "does not take format: rows go to the sink",
        "does not take partitionBy: say sink.partitionBy",
        "availableNow or processingTime, not both",
        "job.write was called, and the source is a stream",
        "job.read was called, and the source is a stream",
        "job.stream was called a second time",
    ]
    for said, word in zip((write.folder / "refused").read_text().splitlines(), words, strict=True):
        assert word in said
    assert_exactly_once(lance_place, range(5))


def test_a_program_of_rows_by_key_that_streams_is_told_what_to_say(session: Any, lance_place: Place, tmp_path: Path) -> None:
    lance_place.create(TEXTS)
    write = StreamedWrite(session, lance_place, tmp_path / "in")
    write.offer(5)
    source = {"program": {"call": "tests.support.streams:append", "keyColumns": ["id"]}}
    by_key = KeyedWrite(session, lance_place, tmp_path, source, name="by-key")
    os.environ[streams.FOLDER] = str(write.folder)

    by_key.stall(reasons.STREAM_REFUSED, "say source.program.stream in their place")
    write.finish()

    assert_exactly_once(lance_place, range(5))

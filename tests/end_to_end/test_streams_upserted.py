"""Streams that are upserted: each micro-batch's changed results take the place of those before, once, whatever dies."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.writes import list_stages
from tests.end_to_end.conftest import make_place
from tests.end_to_end.keyed_writes import TEXTS, session
from tests.end_to_end.streamed_writes import StreamedWrite
from tests.end_to_end.test_kills_of_streams import AFTER, BEFORE, Death, MortalStore, killed
from tests.support import streams
from tests.support.command_line import CommandLine, driver_of, kill
from tests.support.crashes import Died, DyingStore, dying_sink
from tests.support.places import Place
from tests.support.slow import slow_except_on
from tests.support.waiting import patience, until
from tests.support.writes import rows_of

__all__ = ["session"]
pytestmark = pytest.mark.spark
UPSERT: dict[str, Any] = {"mode": "Upsert", "upsertKeys": ["id"]}


def make(session: Any, place: Place, folder: Path, program: str = "count_by_15", **more: Any) -> StreamedWrite:
    stream = {} if program == "append" else {"outputMode": "Update"}
    sink = {**place.sink(), **UPSERT, **more.pop("sink", {})}
    return StreamedWrite(session, place, folder / "in", program, stream, more={"sink": sink, "backoffLimit": 3, **more})


def texts(place: Place) -> dict[int, str]:
    """Return the rows by their keys, each of which is there once."""
    rows = place.rows()
    by_key = {row["id"]: row["text"] for row in rows}
    assert len(by_key) == len(rows)
    return by_key


def merges(write: StreamedWrite, epoch: int) -> list[Ledger]:
    ledger = write.ledger(epoch)
    return [Ledger(ledger.store, key) for key in list_stages(ledger.store, ledger.key)]


@slow_except_on("disk_place", "iceberg-sql-disk")
def test_changed_results_take_the_place_of_those_before_by_the_driver_of_the_stream(
    session: Any, disk_place: Place, tmp_path: Path
) -> None:
    disk_place.create(TEXTS)
    write = make(session, disk_place, tmp_path)

    write.finish(20)
    assert texts(disk_place) == {0: "15", 1: "5"}
    write.finish(20)
    assert texts(disk_place) == {0: "15", 1: "15", 2: "10"}
    started = write.drivers.started
    write.finish(10)

    assert texts(disk_place) == {0: "15", 1: "15", 2: "15", 3: "5"}
    assert disk_place.keys() == [f"{write.uid}/{epoch}" for epoch in (3, 2, 1)]
    assert (started, write.drivers.started) == (1, 1), "no driver beside that of the stream"


def test_rows_of_an_append_stream_take_the_place_of_those_with_their_keys(
    session: Any, lance_place: Place, tmp_path: Path
) -> None:
    lance_place.create(TEXTS)
    lance_place.append(rows_of([3, 7, 30]).set_column(1, "text", [["alt", "alt", "alt"]]))
    write = make(session, lance_place, tmp_path, "append")

    write.finish(10)

    assert texts(lance_place) == {**{number: f"zeile {number}" for number in range(10)}, 30: "alt"}


def test_a_micro_batch_without_changes_makes_no_version(session: Any, iceberg_place: Place, tmp_path: Path) -> None:
    iceberg_place.create(TEXTS)
    write = make(session, iceberg_place, tmp_path, "append")
    write.folder.mkdir()
    (write.folder / "only").write_text("id >= 10")

    nothing, some = write.finish(10), write.finish(10)

    assert nothing is not None
    assert some is not None
    assert (nothing.commit_id, nothing.rows_written, some.rows_written) == (None, 0, 10)
    assert (iceberg_place.keys(), merges(write, 1)) == ([f"{write.uid}/2"], [])


def test_a_key_that_repeats_in_a_micro_batch_stops_the_write_until_it_is_said_which_row_counts(
    session: Any, iceberg_place: Place, tmp_path: Path
) -> None:
    """The key is not that of the groups: two groups have as many rows. The driver of the stream finds it, in the merge."""
    iceberg_place.create(TEXTS)
    sink = {"upsertKeys": ["text"]}
    write = make(session, iceberg_place, tmp_path, sink=sink)
    write.offer(35)

    write.stall(reasons.OUTPUT_KEY_REPEATED)
    assert write.drivers.started == 1
    make(session, iceberg_place, tmp_path, sink={**sink, "onDuplicate": "Last", "orderBy": "id"}).finish()

    # The next driver finds more: groups 2 to 4.
    assert texts(iceberg_place) == {2: "5", 3: "15", 4: "10"}
    assert write.ledger(1).attempts.list_attempts() == [1], "nothing is staged again"


@dataclass
class DeathAt(Death):
    """Dies at an effect whose whole name matches."""

    def around(self, name: str, effect: Any) -> Any:
        return super().around(self.name if re.fullmatch(self.name, name) else "", effect)


@pytest.mark.parametrize(
    ("place_name", "effect", "after", "is_merged"),
    [
        # Between its last seal and the commit, before or after it was asked for the merge.
        pytest.param("lance-disk", "get control/2/closed/2.json", AFTER, False, id="before the merge", marks=pytest.mark.slow),
        pytest.param(
            "iceberg-sql-disk", "staged/2/.*merge.*/plan.json", BEFORE, False, id="before its plan", marks=pytest.mark.slow
        ),
        pytest.param("lance-disk", "staged/2/.*merge.*/plan.json", AFTER, False, id="after its plan"),
        pytest.param(
            "iceberg-sql-disk",
            "staged/2/.*merge.*/plan.json",
            AFTER,
            False,
            id="after its plan, of Iceberg",
            marks=pytest.mark.slow,
        ),
        pytest.param("lance-disk", "get control/3/launch/1.json", BEFORE, True, id="after the commit", marks=pytest.mark.slow),
    ],
)
def test_a_merge_whose_driver_dies_is_done_by_another_and_the_micro_batch_is_not_staged_again(
    session: Any, place_name: str, effect: str, after: bool, is_merged: bool, tmp_path: Path, request: Any
) -> None:
    place, death = make_place(place_name, tmp_path, request), DeathAt(name=effect, after=after, kill=killed)
    place.create(TEXTS)
    write = make(session, place, tmp_path)
    write.finish(20)
    write.of_driver = lambda store: MortalStore(store, Death() if death.dead.is_set() else death)

    write.finish(20)

    assert death.dead.is_set()
    assert_last_values(write, place)
    assert write.ledger(2).attempts.list_attempts() == [1, 2]
    (merge,) = merges(write, 2)
    first = merge.attempts.read_launch(1)
    assert first is not None
    # A driver that is seen to be gone before the merge is recorded is not asked for it.
    is_asked_in_vain = first.driven_by is not None and not is_merged
    assert merge.attempts.list_attempts() == ([1, 2] if is_asked_in_vain else [1])


@pytest.mark.parametrize(
    ("place_name", "effect"),
    [
        pytest.param("iceberg-sql-disk", "control/2/closed/2.json", id="closed", marks=pytest.mark.slow),
        pytest.param("lance-disk", "control/2/stages/.*/launch/1.json", id="the merge is recorded"),
        pytest.param(
            "iceberg-sql-disk",
            "control/2/stages/.*/launch/1.json",
            id="the merge is recorded, of Iceberg",
            marks=pytest.mark.slow,
        ),
        pytest.param("lance-disk", "control/2/stages/.*/closed/1.json", id="the merge is sealed", marks=pytest.mark.slow),
        pytest.param("iceberg-sql-disk", "control/2/stages/.*/commit/done.json", id="the merge is done", marks=pytest.mark.slow),
        pytest.param("lance-disk", "control/2/commit/claim-0.json", id="claimed", marks=pytest.mark.slow),
        pytest.param("lance-disk", "fence", id="the fence of Lance", marks=pytest.mark.slow),
        pytest.param("lance-disk", "update", id="committed to Lance", marks=pytest.mark.slow),
        pytest.param("iceberg-sql-disk", "swap", id="committed to Iceberg"),
        pytest.param("lance-disk", "control/2/commit/done.json", id="recorded", marks=pytest.mark.slow),
        pytest.param("iceberg-sql-disk", "control/3/launch/1.json", id="the next epoch"),
    ],
)
def test_runner_and_driver_that_die_after_an_effect_of_an_upsert_leave_one(
    session: Any, place_name: str, effect: str, tmp_path: Path, request: Any
) -> None:
    place, death = make_place(place_name, tmp_path, request), DeathAt(name=effect, after=AFTER)
    place.create(TEXTS)
    write = make(session, place, tmp_path)
    write.finish(20)
    dying = replace(
        write,
        of_driver=lambda store: MortalStore(store, death),
        of_runner=lambda store: DyingStore(store, death),
        sink=dying_sink(write.manifest, place.settings, death),
    )
    with pytest.raises(Died):
        dying.run()
    dying.drivers.finish()

    write.finish()

    assert_last_values(write, place)


def assert_last_values(write: StreamedWrite, place: Place) -> None:
    """Each epoch is one commit of 20 rows more: how many there are depends on how many drivers have asked for more."""
    keys = place.keys()
    assert keys == [f"{write.uid}/{epoch}" for epoch in range(len(keys), 0, -1)]
    assert texts(place) == counts(20 * len(keys))


def counts(rows: int) -> dict[int, str]:
    """Return what counts of so many rows are, by 15."""
    return {group: str(min(15, rows - 15 * group)) for group in range(-(-rows // 15))}


@pytest.mark.slow
def test_an_endless_stream_is_upserted_on_over_kills_of_its_driver_and_its_runner(
    session: Any, iceberg_place: Place, tmp_path: Path
) -> None:
    iceberg_place.create(TEXTS)
    write = make(session, iceberg_place, tmp_path)
    write.offer(10)
    (write.folder / "for ever").touch()
    os.environ[streams.FOLDER] = str(write.folder)
    command = CommandLine(tmp_path / "cli", iceberg_place, write.manifest)

    runner = command.start()
    until(lambda: len(iceberg_place.keys()) >= 3, "three commits")
    first = driver_of(runner)
    kill(first)
    so_far = len(iceberg_place.keys())
    until(lambda: len(iceberg_place.keys()) >= so_far + 3, "three more by other drivers")
    second = driver_of(runner)
    assert second.pid != first.pid
    runner.kill()
    psutil.wait_procs([second], timeout=patience(60))
    assert not second.is_running()
    (write.folder / "for ever").unlink()
    launch = write.ledger(1).attempts.read_launch(1)
    assert launch is not None
    write.recorder = launch.recorded_by
    write.finish()

    assert texts(iceberg_place) == counts(10 * len(iceberg_place.keys()))

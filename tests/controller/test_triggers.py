"""A write with a trigger, as its controller looks after it: epochs for what is new, and nothing at all while nothing is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from checkpoint_commit.ports import FoundItem
from checkpoint_control.loop.looks import Known
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import LaunchRecord, TakenRecord
from tests.controller.harness import World
from tests.support.slow import slow_except_on
from tests.support.writes import rows_of

EVERY_MINUTE = {"every": "1m"}


def ids(world: World) -> list[int]:
    return sorted(row["id"] for row in world.place.rows())


def put_file(folder: Path, name: str, numbers: range) -> None:
    pq.write_table(rows_of(numbers), folder / name)


def up_to_date(world: World) -> tuple[str, str] | None:
    condition = world.condition("UpToDate")
    return (condition.status, condition.reason) if condition is not None else None


def until_up_to_date(world: World, epoch: int) -> None:
    world.until(lambda: world.status.epoch == epoch and world.is_true("Committed") and world.is_true("UpToDate"))


def launch_of(world: World, epoch: int) -> LaunchRecord:
    key = EpochKey(world.status.write_uid or "", epoch)
    launch = Ledger(world.store(), key).attempts.read_launch(1)
    assert launch is not None
    return launch


def test_the_metrics_count_the_rows_of_each_epoch(world: World, source: Path) -> None:
    world.apply(source, trigger=EVERY_MINUTE)
    until_up_to_date(world, 1)
    put_file(source, "b.parquet", range(200, 210))
    until_up_to_date(world, 2)
    world.pass_time(300)

    sample = world.operator.controller.metrics.registry.get_sample_value
    of_format = {"format": "iceberg" if "iceberg" in world.place.sink() else "lance"}
    assert sample("checkpointed_writes_commits_total", {**of_format, "outcome": "committed"}) == 2
    assert sample("checkpointed_writes_committed_rows_total", of_format) == 210
    assert sample("checkpointed_writes_staged_rows_total") == 210


@slow_except_on("world", "iceberg")
def test_a_thousand_looks_without_news_make_no_pod_no_epoch_no_version_and_no_write_to_the_api(
    world: World, source: Path
) -> None:
    world.apply(source, trigger=EVERY_MINUTE)
    until_up_to_date(world, 1)
    world.pass_time(300)
    looks = count_looks(world)
    before, objects, versions = list(world.api.writes_made), store_objects(world), world.place.keys()

    world.pass_time(60 * 1000)

    assert len(looks) >= 990
    assert world.api.writes_made == before
    assert store_objects(world) == objects
    assert world.place.keys() == versions
    assert up_to_date(world) == ("True", "NothingNew")
    assert world.status.phase == "Committed"


def count_looks(world: World) -> list[TakenRecord]:
    """Return what grows with each look at the source: what was taken before it."""
    found: list[TakenRecord] = []
    looks = world.operator.controller._sessions[world.key].reconciler.observer.looks
    assert looks is not None
    list_news = looks.list_news

    def look(taken: TakenRecord, known: Known) -> Iterator[FoundItem] | None:
        found.append(taken)
        return list_news(taken, known)

    looks.list_news = look
    return found


def store_objects(world: World) -> list[str]:
    return sorted(stored.path for folder in ("control/", "staged/") for stored in world.store().list(folder))


def test_new_files_are_epochs_and_the_status_keeps_the_last_five(world: World, source: Path) -> None:
    world.apply(source, trigger=EVERY_MINUTE)
    until_up_to_date(world, 1)

    for number in range(7):
        # An older name each time: what was taken is a set, and no watermark.
        put_file(source, f"a-{9 - number}.parquet", range(1_000 + number, 1_001 + number))
        until_up_to_date(world, number + 2)

    assert ids(world) == [*range(200), *range(1_000, 1_007)]
    assert len(world.place.keys()) == 8
    assert [epoch.number for epoch in world.status.epochs or ()] == [4, 5, 6, 7, 8]
    assert [epoch.rows for epoch in world.status.epochs or ()] == [1] * 5
    assert [(launch_of(world, epoch).began or None) is not None for epoch in (1, 2)] == [True, True]
    began = launch_of(world, 5).began
    assert began is not None
    assert (began.why, began.files) == ("Trigger", 1)


def test_less_than_at_least_waits_and_is_told_with_how_much_and_since_when(world: World, source: Path) -> None:
    world.apply(source, trigger={"every": "1m", "atLeast": {"files": 2}})
    until_up_to_date(world, 1)
    put_file(source, "x.parquet", range(1_000, 1_001))

    world.until(lambda: up_to_date(world) == ("False", "Behind"))

    condition = world.condition("UpToDate")
    assert condition is not None
    assert condition.message.startswith("1 new file, ")
    assert "since 20" in condition.message
    before = list(world.api.writes_made)
    world.pass_time(3_600)
    assert world.api.writes_made == before, "it is told once"
    assert world.status.epoch == 1
    put_file(source, "y.parquet", range(1_001, 1_002))
    until_up_to_date(world, 2)
    assert ids(world) == [*range(200), 1_000, 1_001]


def test_what_is_more_than_at_most_is_taken_by_epochs_that_follow_at_once(world: World, source: Path) -> None:
    world.apply(source, trigger={"every": "24h", "atMost": {"files": 1}})

    until_up_to_date(world, len(list(source.iterdir())))

    assert world.clock.now_s < 3_600
    assert ids(world) == list(range(200))


def test_a_suspended_write_looks_at_nothing_and_goes_on_afterwards(world: World, source: Path) -> None:
    world.apply(source, trigger=EVERY_MINUTE)
    until_up_to_date(world, 1)
    world.edit(suspend=True)
    world.until(lambda: world.status.phase == "Suspended")
    put_file(source, "x.parquet", range(1_000, 1_001))
    looks = count_looks(world)

    world.pass_time(600)

    assert looks == []
    assert world.status.epoch == 1
    world.edit(suspend=False)
    until_up_to_date(world, 2)
    assert ids(world) == [*range(200), 1_000]


def test_a_restarted_operator_begins_no_epoch_without_news_and_finds_what_came_meanwhile(world: World, source: Path) -> None:
    world.apply(source, trigger=EVERY_MINUTE)
    until_up_to_date(world, 1)
    world.restart_operator()
    world.pass_time(200)
    assert world.status.epoch == 1
    put_file(source, "x.parquet", range(1_000, 1_001))
    world.restart_operator()

    until_up_to_date(world, 2)

    assert ids(world) == [*range(200), 1_000]


def test_a_file_that_the_driver_passes_over_begins_one_epoch_and_not_one_at_each_look(world: World, source: Path) -> None:
    world.apply(source, trigger=EVERY_MINUTE, onReplaced="Skip")
    until_up_to_date(world, 1)
    taken = sorted(source.iterdir())[0]
    taken.rename(source / "moved.parquet")  # passed over: its rows are taken already

    until_up_to_date(world, 2)
    world.pass_time(3_600)

    assert world.status.epoch == 2
    assert ids(world) == list(range(200))
    assert len(world.place.keys()) == 1, "an epoch without rows makes no version"


def test_a_schedule_that_cannot_be_read_stalls_the_write_and_names_the_field(world: World, source: Path) -> None:
    world.apply(source, trigger={"cron": "61 * * * *"})

    world.until_stalled()

    assert world.status.reason == reasons.MANIFEST_INVALID
    assert "spec.trigger.cron" in (world.status.message or "")


def test_a_deleted_object_ends_its_looks(world: World, source: Path) -> None:
    world.apply(source, trigger=EVERY_MINUTE)
    until_up_to_date(world, 1)
    world.delete()
    put_file(source, "x.parquet", range(1_000, 1_001))

    world.pass_time(600)

    assert ids(world) == list(range(200))


# --- keepDriver -----------------------------------------------------------------------------------------------------------

KEPT = {"every": "1s", "keepDriver": "1h"}


def drivers_of(world: World) -> list[str]:
    """Return the driver pods that there are, by the epoch and the attempt that they were started for."""
    return sorted("-".join(name.rsplit("-", 2)[1:]) for _, name in world.api.pods)


def attempts_of(world: World, epoch: int) -> list[int]:
    return Ledger(world.store(), EpochKey(world.status.write_uid or "", epoch)).attempts.list_attempts()


@pytest.mark.parametrize("world", ["iceberg"], indirect=True)
def test_a_driver_that_waits_does_the_epochs_that_follow_until_the_write_is_suspended(world: World, source: Path) -> None:
    world.apply(source, trigger=KEPT)
    until_up_to_date(world, 1)
    put_file(source, "b.parquet", range(1000, 1010))
    until_up_to_date(world, 2)
    world.restart_operator()  # which driver waits is known from the store
    put_file(source, "c.parquet", range(1010, 1020))
    until_up_to_date(world, 3)

    assert (drivers_of(world), world.kubelet.drivers_run) == (["1-1"], 1)

    world.edit(suspend=True)
    world.until(lambda: drivers_of(world) == [])
    world.edit(suspend=False)
    put_file(source, "d.parquet", range(1020, 1030))
    until_up_to_date(world, 4)

    assert drivers_of(world) == ["4-1"]
    assert [attempts_of(world, epoch) for epoch in (1, 2, 3, 4)] == [[1], [1], [1], [1]]
    assert ids(world) == [*range(200), *range(1000, 1030)]


@pytest.mark.parametrize("world", ["iceberg"], indirect=True)
def test_a_driver_that_is_lost_while_it_waits_costs_no_attempt_and_one_that_was_started_otherwise_is_ended(
    world: World, source: Path
) -> None:
    world.apply(source, trigger=KEPT)
    until_up_to_date(world, 1)
    (pod,) = world.api.pods.values()
    world.api.remove_pod(pod)
    put_file(source, "b.parquet", range(1000, 1010))
    until_up_to_date(world, 2)
    assert (drivers_of(world), attempts_of(world, 2)) == (["2-1"], [1])

    world.edit(driver={"cores": 2})
    world.until(lambda: drivers_of(world) == [])
    put_file(source, "c.parquet", range(1010, 1020))
    until_up_to_date(world, 3)

    assert (drivers_of(world), attempts_of(world, 3)) == (["3-1"], [1])
    assert ids(world) == [*range(200), *range(1000, 1020)]

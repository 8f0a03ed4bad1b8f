"""A stream in a cluster: one pod does epoch after epoch, and whatever becomes of it, each row is in the table once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from checkpoint_operator.pods.driver_pod import ATTEMPT_LABEL, EPOCH_LABEL, ROLE_LABEL, UID_LABEL
from checkpoint_operator.status.round_status import RETRY_ANNOTATION
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.writes import list_stages
from tests.controller.harness import World
from tests.controller.test_triggers import drivers_of, ids
from tests.support.driver_threads import Killed
from tests.support.fake_streams import FakeStream, hold
from tests.support.places import on_disk
from tests.support.slow import slow_except
from tests.support.waiting import patience
from tests.support.writes import SCHEMA, rows_of

SOURCE: dict[str, Any] = {"program": {"call": "jobs:main", "stream": {"checkpointVolume": {"claimName": "spark-state"}}}}


@pytest.fixture
def world(tmp_path: Path) -> World:
    place = on_disk(tmp_path, "iceberg")
    place.create(SCHEMA)
    return World(place)


@pytest.fixture
def stream(world: World, tmp_path: Path) -> FakeStream:
    made = FakeStream(world.place.settings, tmp_path / "volume")

    def end_if_deleted(pod: dict[str, Any]) -> None:
        if (pod["metadata"]["namespace"], pod["metadata"]["name"]) not in world.api.pods:
            raise Killed

    made.is_gone = end_if_deleted
    made.volume.mkdir()
    world.kubelet.stream = made.drive
    return made


def ledger_of(world: World, epoch: int) -> Ledger:
    return Ledger(world.store(), EpochKey(world.status.write_uid or "", epoch))


def is_committed(world: World, epoch: int) -> bool:
    return world.status.commit is not None and world.status.commit.key == f"{world.status.write_uid}/{epoch}"


def begin(world: World, stream: FakeStream, **spec: Any) -> None:
    """Apply a stream that goes on, and wait until two of its micro-batches are committed, by one pod."""
    stream.lasts = True
    stream.offer(10)
    world.apply(None, source=SOURCE, **spec)
    world.until(lambda: is_committed(world, 1))
    stream.offer(5)
    world.until(lambda: is_committed(world, 2))
    assert drivers_of(world) == ["1-1"]


def finish(world: World, stream: FakeStream, rows: int) -> None:
    """Let the query end, and expect so many rows, each once."""
    stream.lasts = False
    world.until_committed()
    assert ids(world) == list(range(rows))


def test_one_pod_does_each_micro_batch_as_an_epoch_and_the_status_names_it(world: World, stream: FakeStream) -> None:
    begin(world, stream)

    assert world.status.epoch == 3
    assert (world.status.phase, world.status.driver_pod) == ("Running", next(iter(world.api.pods))[1])
    assert world.status.rows_committed == 5
    assert world.place.keys() == [f"{world.status.write_uid}/{epoch}" for epoch in (2, 1)]
    finish(world, stream, 15)
    assert drivers_of(world) == ["1-1"]


def test_a_query_that_has_ended_goes_on_where_a_person_asks_for_it(world: World, stream: FakeStream) -> None:
    stream.offer(10)
    world.apply(None, source=SOURCE)
    world.until_committed()
    stream.offer(5)
    world.pass_time(120)
    assert (ids(world), drivers_of(world)) == (list(range(10)), ["1-1"])

    world.api.annotate(world.key, RETRY_ANNOTATION, "2")

    world.until(lambda: is_committed(world, 2))
    world.until_committed()
    assert ids(world) == list(range(15))
    assert drivers_of(world) == ["1-1", "2-2"]


@pytest.mark.parametrize("where", ["before_offsets", "before_tasks", "after_tasks"])
def test_a_pod_of_many_epochs_that_dies_is_replaced_by_one_of_the_epoch_at_hand(
    world: World, stream: FakeStream, where: str
) -> None:
    def die(pod: dict[str, Any], number: int) -> None:
        if pod["metadata"]["labels"][EPOCH_LABEL] == "1" and number == 2:
            raise Killed

    setattr(stream, where, die)
    begin(world, stream)
    stream.offer(5)
    world.until(lambda: is_committed(world, 3))

    # What is sealed as a whole is committed without a driver, and the next one begins with the epoch after.
    following = "4-1" if where == "after_tasks" else "3-2"
    world.until(lambda: following in drivers_of(world))
    finish(world, stream, 20)
    assert drivers_of(world) == ["1-1", following]


def test_a_pod_that_is_deleted_while_no_operator_is_there_is_gone_and_replaced_once(world: World, stream: FakeStream) -> None:
    begin(world, stream)
    (pod,) = world.api.pods.values()
    world.api.remove_pod(pod)
    # It ends before there are rows that it could still seal.
    world.kubelet.threads[0].join(patience(30))
    assert not world.kubelet.threads[0].is_alive()
    world.restart_operator()

    stream.offer(5)
    world.until(lambda: is_committed(world, 3))

    assert drivers_of(world) == ["3-2"]
    assert ledger_of(world, 3).attempts.list_attempts() == [1, 2]
    stream.offer(5)
    world.until(lambda: is_committed(world, 4))
    assert drivers_of(world) == ["3-2"]
    finish(world, stream, 25)


@pytest.mark.parametrize("where", slow_except(["before_offsets", "before_tasks"], "before_tasks"))
def test_a_driver_that_was_given_up_and_wakes_later_changes_nothing_that_the_next_goes_by(
    world: World, stream: FakeStream, where: str
) -> None:
    """It is held where it could do most: before it logs what a micro-batch reads, and before the tasks of its plan."""
    reached, released = threading.Event(), threading.Event()

    def stop(pod: dict[str, Any], number: int) -> None:
        if pod["metadata"]["labels"][EPOCH_LABEL] == "1" and number == 2:
            hold(reached, released)

    setattr(stream, where, stop)
    begin(world, stream)
    stream.offer(5)
    world.until(reached.is_set)
    (pod,) = world.api.pods.values()
    zombie = world.kubelet.threads[0]
    world.kubelet.waiting.add("zombie")
    # Its node does not answer: the pod is removed, and its processes go on.
    world.api.remove_pod(pod)
    stream.offer(2)
    world.until(lambda: is_committed(world, 3))
    stream.offer(3)
    world.kubelet.waiting.remove("zombie")
    released.set()
    zombie.join(patience(30))
    assert not zombie.is_alive()
    stream.offer(1)
    world.until(lambda: len(ids(world)) == 26)

    # The next driver finds what the rows of the table come from.
    following = next(iter(world.api.pods.values()))
    world.api.remove_pod(following)
    stream.offer(4)
    world.until(lambda: len(ids(world)) == 30)
    finish(world, stream, 30)


def test_executors_are_looked_for_by_the_pod_that_has_asked_for_them(world: World, stream: FakeStream) -> None:
    reached, released = threading.Event(), threading.Event()

    def stop(pod: dict[str, Any], number: int) -> None:
        if number == 2:
            hold(reached, released)

    stream.before_tasks = stop
    begin(world, stream)
    labels = {UID_LABEL: world.status.write_uid, EPOCH_LABEL: "1", ATTEMPT_LABEL: "1", ROLE_LABEL: "executor"}
    metadata = {"name": "executor-1", "namespace": "default", "uid": "e1", "labels": labels}
    world.api.put_pod({"metadata": metadata, "status": {"phase": "Running"}})
    world.api.refuse_pods = "exceeded quota"
    stream.offer(5)
    world.until(reached.is_set)
    world.kubelet.waiting.add("the driver that is held")

    world.pass_time(20)

    assert world.status.reason != reasons.EXECUTORS_REFUSED
    world.kubelet.waiting.clear()
    released.set()
    world.until(lambda: is_committed(world, 3))
    finish(world, stream, 20)


def test_an_edit_of_the_claim_stops_a_write_of_which_rows_are_committed_until_it_is_undone(
    world: World, stream: FakeStream
) -> None:
    begin(world, stream)

    world.edit(source={"program": {"call": "jobs:main", "stream": {"checkpointVolume": {"claimName": "another"}}}})
    world.until_stalled()
    assert world.status.reason == reasons.IDENTITY_CHANGED

    world.edit(source=SOURCE)
    stream.offer(5)
    world.until(lambda: is_committed(world, 3))
    finish(world, stream, 20)


UPSERT: dict[str, Any] = {"mode": "Upsert", "upsertKeys": ["id"]}


def begin_upserts(world: World, stream: FakeStream) -> None:
    """Begin with rows in the table whose keys come again, and expect them to be replaced: those that follow are so, too."""
    world.place.append(rows_of(range(25)).set_column(1, "text", [["alt"] * 25]))
    begin(world, stream, sink={**world.place.sink(), **UPSERT})
    assert texts(world) == {**{number: f"zeile {number}" for number in range(15)}, **dict.fromkeys(range(15, 25), "alt")}


def texts(world: World) -> dict[int, str]:
    rows = world.place.rows()
    assert len(rows) == len({row["id"] for row in rows})
    return {row["id"]: row["text"] for row in rows}


def merge_of(world: World, epoch: int) -> Ledger:
    (key,) = list_stages(world.store(), EpochKey(world.status.write_uid or "", epoch))
    return Ledger(world.store(), key)


def test_the_pod_of_a_stream_does_the_merges_of_its_upserts_while_no_other_may_start(world: World, stream: FakeStream) -> None:
    world.config = world.config.model_copy(update={"drivers_per_namespace": 1})
    world.restart_operator()
    at_work: list[tuple[str | None, str | None]] = []
    stream.before_merge = lambda pod, number: at_work.append((pod["metadata"]["name"], pod["metadata"]["labels"][EPOCH_LABEL]))

    begin_upserts(world, stream)
    finish(world, stream, 25)

    assert at_work == [(next(iter(world.api.pods))[1], "1")] * 2
    assert drivers_of(world) == ["1-1"]
    assert [merge_of(world, epoch).attempts.list_attempts() for epoch in (1, 2)] == [[1], [1]]


def test_a_merge_whose_pod_of_the_stream_dies_has_its_own_and_the_next_pod_begins_with_the_next_micro_batch(
    world: World, stream: FakeStream
) -> None:
    def die(pod: dict[str, Any], number: int) -> None:
        if pod["metadata"]["labels"][EPOCH_LABEL] == "1" and number == 2:
            raise Killed

    stream.before_merge = die
    begin_upserts(world, stream)
    stream.offer(5)
    world.until(lambda: is_committed(world, 3))

    assert ledger_of(world, 3).attempts.list_attempts() == [1]
    assert merge_of(world, 3).attempts.list_attempts() == [1, 2]
    stream.offer(5)
    world.until(lambda: is_committed(world, 4))
    finish(world, stream, 25)
    assert set(texts(world).values()) == {f"zeile {number}" for number in range(25)}


def test_an_operator_that_starts_anew_among_merges_waits_for_the_pod_of_the_stream_and_names_it(
    world: World, stream: FakeStream
) -> None:
    reached, released = threading.Event(), threading.Event()

    def stop(pod: dict[str, Any], number: int) -> None:
        if number == 2:
            hold(reached, released)

    stream.before_merge = stop
    begin_upserts(world, stream)
    stream.offer(5)
    world.until(reached.is_set)
    (pod,) = world.api.pods.values()
    world.restart_operator()
    world.pass_time(5)

    assert (world.status.epoch, world.status.stage) == (3, merge_of(world, 3).key.stage)
    assert world.status.driver_pod == pod["metadata"]["name"]
    released.set()
    world.until(lambda: is_committed(world, 3))
    assert drivers_of(world) == ["1-1"]
    finish(world, stream, 25)


def test_a_write_that_is_suspended_in_a_merge_stops_the_pod_and_goes_on_with_the_merge(world: World, stream: FakeStream) -> None:
    reached, released = threading.Event(), threading.Event()

    def stop(pod: dict[str, Any], number: int) -> None:
        if number == 2 and not released.is_set():
            hold(reached, released)
            stream.is_gone(pod)

    stream.before_merge = stop
    begin_upserts(world, stream)
    stream.offer(5)
    world.until(reached.is_set)

    world.edit(suspend=True)
    world.until(lambda: not world.api.pods)
    released.set()
    world.edit(suspend=False)
    world.until(lambda: is_committed(world, 3))

    assert merge_of(world, 3).attempts.list_attempts() == [1, 2]
    assert ledger_of(world, 3).attempts.list_attempts() == [1]
    finish(world, stream, 25)

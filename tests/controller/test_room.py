"""Too little room: executors that find none, namespaces that take few pods, many writes at once."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from checkpoint_operator.config import OperatorConfig
from checkpoint_operator.crd.status_model import Status
from checkpoint_operator.pods.driver_pod import EXECUTOR_CONTAINER, ROLE_LABEL, UID_LABEL
from checkpoint_operator.status.object_status import status_of
from checkpoint_operator.watch.cache import WriteName
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import PlanRecord
from checkpoint_protocol.rows.positions import Range
from tests.controller.harness import WORKLOADS, World
from tests.support.places import on_disk
from tests.support.writes import SCHEMA

NO_ROOM = {
    "phase": "Pending",
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: Insufficient cpu."}
    ],
}


def ids(world: World) -> list[int]:
    return sorted(row["id"] for row in world.place.rows())


def add_executor(world: World, driver: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    """Put an executor's pod beside a driver, as Spark does."""
    name = f"{driver['metadata']['name']}-exec-1"
    labels = {**driver["metadata"]["labels"], ROLE_LABEL: EXECUTOR_CONTAINER}
    owner = {"kind": "Pod", "name": driver["metadata"]["name"], "uid": driver["metadata"]["uid"]}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-of-{name}", "labels": labels, "ownerReferences": [owner]}
    pod = {"metadata": metadata, "status": status}
    world.api.pods["default", name] = pod
    return pod


def starve(world: World, attempts: int, status: dict[str, Any] | None = None) -> None:
    """The first drivers run, and their executor does not."""
    run = world.kubelet.run

    def start(pod: dict[str, Any]) -> None:
        if len([name for _, name in world.api.pods if not name.endswith("-exec-1")]) and (world.status.attempt or 0) <= attempts:
            add_executor(world, pod, status or NO_ROOM)
            world.api.set_pod_status(pod, {"phase": "Running"})
        else:
            run(pod)

    world.api.on_pod = start


def test_executors_that_find_no_room_are_told_with_the_schedulers_words_once(world: World, source: Path) -> None:
    starve(world, 1)
    world.apply(source)

    world.pass_time(120)

    assert (world.status.phase, world.status.reason) == ("Running", reasons.EXECUTORS_PENDING)
    condition = world.condition("Running")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", reasons.EXECUTORS_PENDING)
    assert "Insufficient cpu" in condition.message
    assert [event["reason"] for event in world.api.warnings] == [reasons.EXECUTORS_PENDING]


def test_time_without_executors_is_no_failure_and_room_that_is_made_is_used(world: World, source: Path) -> None:
    starve(world, 1)
    world.apply(source, backoffLimit=0)
    world.pass_time(300)

    world.api.pods = {place: pod for place, pod in world.api.pods.items() if not place[1].endswith("-exec-1")}
    (driver,) = world.api.pods.values()
    world.kubelet.run(driver)
    world.until_committed()

    assert ids(world) == list(range(200))
    assert world.status.attempt == 1
    condition = world.condition("Running")
    assert condition is not None
    assert condition.reason != reasons.EXECUTORS_PENDING


def test_a_driver_without_executors_gives_way_and_is_not_counted(world: World, source: Path) -> None:
    starve(world, 2)
    world.apply(source, backoffLimit=0)

    world.pass_time(3600)

    assert world.is_true("Committed")
    assert [attempt.cause for attempt in world.status.attempts or ()] == ["Scheduling", "Scheduling", "Completed"]
    assert ids(world) == list(range(200))


def test_of_several_drivers_without_executors_one_gives_way_sooner_than_one_alone(world: World, source: Path) -> None:
    starve(world, 1)
    for name in ("first", "second"):
        world.key = WriteName("default", name)
        world.apply(source, backoffLimit=0)

    world.pass_time(500)

    ended = [
        attempt.cause for body in world.api.writes.values() for attempt in status_of(body).attempts or () if attempt.closed_at
    ]
    assert "Scheduling" in ended, "alone, a driver is waited for 600 s at the least"


def test_executors_that_a_quota_refuses_are_told_with_its_words(world: World, source: Path) -> None:
    def plan_and_wait(pod: dict[str, Any]) -> None:
        key = EpochKey(pod["metadata"]["labels"][UID_LABEL], 1)
        tasks = ((Range(file=0, start=0, end=50),),)
        plan = PlanRecord(token=new_token(), attempt=1, tasks=tasks, done_files=0, done_rows=0)
        Ledger(world.store(), key).plans.put_plan(plan)
        world.api.set_pod_status(pod, {"phase": "Running"})
        world.api.refuse_pods = 'pods "x" is forbidden: exceeded quota: two-pods'

    world.api.on_pod = plan_and_wait
    world.apply(source)

    world.pass_time(40)

    assert (world.status.phase, world.status.reason) == ("Running", reasons.EXECUTORS_REFUSED)
    assert "exceeded quota: two-pods" in (world.status.message or "")

    # The quota is raised.
    world.api.refuse_pods = None
    world.pass_time(60)
    assert (world.status.phase, world.status.reason) == ("Running", None)


def seal_nothing(world: World) -> None:
    """Drivers plan a task, and have it at work. The quota takes no more pods."""

    def plan_and_work(pod: dict[str, Any]) -> None:
        key = EpochKey(pod["metadata"]["labels"][UID_LABEL], 1)
        tasks = ((Range(file=0, start=0, end=50),),)
        plan = PlanRecord(token=new_token(), attempt=1, tasks=tasks, done_files=0, done_rows=0)
        Ledger(world.store(), key).plans.put_plan(plan)
        world.api.set_pod_status(pod, {"phase": "Running"})
        world.api.refuse_pods = 'pods "x" is forbidden: exceeded quota: two-pods'

    world.api.on_pod = plan_and_work


BY_NEED = {"minInstances": 0, "instances": 8}


def test_a_driver_that_keeps_one_of_eight_executors_has_enough(world: World, source: Path) -> None:
    seal_nothing(world)
    world.apply(source, executor=BY_NEED)
    world.pass_time(5)
    (driver,) = list(world.api.pods.values())
    add_executor(world, driver, {"phase": "Running"})

    world.pass_time(300)

    assert (world.status.phase, world.status.reason) == ("Running", None)
    assert world.api.warnings == []


def test_a_pod_that_is_given_up_before_it_ran_waits_for_no_room(world: World, source: Path) -> None:
    seal_nothing(world)
    world.apply(source, executor=BY_NEED)
    world.pass_time(5)
    (driver,) = list(world.api.pods.values())
    add_executor(world, driver, NO_ROOM)["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    world.pass_time(60)

    assert world.status.reason != reasons.EXECUTORS_PENDING


def test_a_driver_that_may_do_without_executors_and_has_work_for_one_is_starved_where_none_comes(
    world: World, source: Path
) -> None:
    seal_nothing(world)
    world.apply(source, executor=BY_NEED)

    world.pass_time(60)

    assert (world.status.phase, world.status.reason) == ("Running", reasons.EXECUTORS_REFUSED)


def test_a_busy_driver_costs_no_questions_about_its_executors(world: World, source: Path) -> None:
    asked: list[str] = []
    world.api.before = asked.append
    world.apply(source)

    world.until_committed()

    assert "list pods" not in asked
    assert "try pod" not in asked


@pytest.fixture
def crowded(tmp_path: Path) -> World:
    place = on_disk(tmp_path, "iceberg")
    place.create(SCHEMA)
    return World(
        place,
        config=OperatorConfig(namespaces=("default",), workloads=WORKLOADS, allow_local_paths=True, drivers_per_namespace=2),
    )


def statuses(world: World) -> dict[str, Status]:
    return {key.name: status_of(body) for key, body in world.api.writes.items()}


def apply_many(world: World, source: Path, count: int) -> None:
    for number in range(count):
        world.key = WriteName("default", f"write-{number}")
        world.apply(source)


def hold_drivers(world: World) -> None:
    """Pods run, and their drivers do nothing yet."""
    world.api.on_pod = lambda pod: world.api.set_pod_status(pod, {"phase": "Running"})


def let_drivers_go_on(world: World) -> None:
    world.api.on_pod = world.kubelet.run
    for pod in list(world.api.pods.values()):
        world.kubelet.run(pod)


def test_more_writes_than_may_have_drivers_wait_for_their_turn_and_say_so(crowded: World, source: Path) -> None:
    hold_drivers(crowded)
    apply_many(crowded, source, 5)

    crowded.pass_time(100)

    waiting = {name: status for name, status in statuses(crowded).items() if status.reason == reasons.DRIVER_QUEUED}
    assert len(crowded.api.pods) == 2
    assert sorted(status.queue_position or 0 for status in waiting.values()) == [1, 2, 3]
    assert {status.phase for status in waiting.values()} == {"Pending"}
    assert not crowded.api.warnings, "to wait for a turn is nothing that a person has to act on"
    let_drivers_go_on(crowded)
    crowded.until(lambda: all(status.phase == "Committed" for status in statuses(crowded).values()), 4000)
    assert len(crowded.place.rows()) == 5 * 200


def test_never_more_drivers_are_at_work_than_may_be(crowded: World, source: Path) -> None:
    most = 0
    run = crowded.kubelet.run

    def note(pod: dict[str, Any]) -> None:
        nonlocal most
        at_work = [pod for pod in crowded.api.pods.values() if pod["status"]["phase"] in ("Pending", "Running")]
        most = max(most, len(at_work))
        run(pod)

    crowded.api.on_pod = note
    apply_many(crowded, source, 12)

    crowded.until(lambda: all(status.phase == "Committed" for status in statuses(crowded).values()), 4000)

    assert most == 2
    assert crowded.kubelet.drivers_run == 12


def test_a_write_that_waits_and_is_deleted_holds_nobody_up(crowded: World, source: Path) -> None:
    hold_drivers(crowded)
    apply_many(crowded, source, 4)
    crowded.pass_time(60)
    first = next(name for name, status in statuses(crowded).items() if status.queue_position == 1)

    crowded.api.delete(WriteName("default", first))
    crowded.pass_time(30)
    let_drivers_go_on(crowded)

    crowded.until(lambda: all(status.phase == "Committed" for status in statuses(crowded).values()), 4000)
    assert len(crowded.place.rows()) == 3 * 200


def test_pauses_of_different_writes_differ(crowded: World, source: Path) -> None:
    starts: dict[str, list[float]] = {}

    def end_at_once(pod: dict[str, Any]) -> None:
        starts.setdefault(pod["metadata"]["name"].rsplit("-", 3)[0], []).append(crowded.clock.now_s)
        ended = {"name": "driver", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
        crowded.api.set_pod_status(pod, {"phase": "Failed", "containerStatuses": [ended]})

    crowded.api.on_pod = end_at_once
    apply_many(crowded, source, 4)

    crowded.pass_time(200)

    pauses = {round(later - earlier) for times in starts.values() for earlier, later in itertools.pairwise(times[1:])}
    assert len(pauses) > 1

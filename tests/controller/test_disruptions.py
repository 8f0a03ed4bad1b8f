"""A driver whose place the cluster or a person takes away: named, paused, never counted as a failure of the write."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from checkpoint_protocol import reasons
from tests.controller.harness import World
from tests.support.driver_threads import Killed


def taken_away(reason: str, message: str = "") -> dict[str, Any]:
    """The status of a pod that is disrupted, as Kubernetes writes it before the pod ends."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    ended = {"name": "driver", "state": {"terminated": {"exitCode": 143, "reason": "Error"}}}
    return {"phase": "Failed", "conditions": [condition], "containerStatuses": [ended]}


def delete_the_first(world: World, drivers: int) -> Callable[[int], None]:
    """Return a hook that deletes the pods of the first so many drivers before they seal anything."""

    def between_tasks(number: int) -> None:
        if world.kubelet.drivers_run <= drivers:
            for pod in list(world.api.pods.values()):
                world.api.remove_pod(pod)
            raise Killed

    return between_tasks


def causes(world: World) -> list[str | None]:
    return [attempt.cause for attempt in world.status.attempts or ()]


DISRUPTIONS: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "drained": (taken_away("EvictionByEvictionAPI", "Eviction API: evicting"), "Evicted"),
    "preempted": (taken_away("PreemptionByScheduler", "default-scheduler: preempting"), "Preempted"),
    "on a node under pressure": (taken_away("TerminationByKubelet", "The node was low on resource: memory."), "Evicted"),
    "on a node that is lost": (taken_away("DeletionByTaintManager", "Taint manager: deleting"), "NodeLost"),
    "on a node that was removed": (taken_away("DeletionByPodGC", "PodGC: node no longer exists"), "NodeLost"),
    "evicted by an older kubelet": ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, "Evicted"),
}


@pytest.mark.parametrize("case", DISRUPTIONS)
def test_four_disrupted_drivers_do_not_stall_a_write_and_are_named(world: World, source: Path, case: str) -> None:
    status, cause = DISRUPTIONS[case]
    world.kubelet.instead = dict.fromkeys(range(1, 5), status)
    world.apply(source, backoffLimit=0)

    world.until_committed()

    assert causes(world) == [cause, cause, cause, cause, "Completed"]


def test_four_deleted_drivers_do_not_stall_a_write_and_are_named(world: World, source: Path) -> None:
    world.kubelet.between_tasks = delete_the_first(world, 4)
    world.apply(source, backoffLimit=0)

    world.until_committed()

    assert causes(world) == ["Deleted", "Deleted", "Deleted", "Deleted", "Completed"]
    assert "deleted" in ((world.status.attempts or ())[0].message or "")


def test_a_driver_that_is_deleted_before_its_plan_is_named_and_followed_after_a_pause(world: World, source: Path) -> None:
    starts: list[float] = []
    run = world.kubelet.run

    def start(pod: dict[str, Any]) -> None:
        starts.append(world.clock.now_s)
        if len(starts) == 4:
            run(pod)

    def delete_or_see_committed() -> bool:
        for pod in list(world.api.pods.values()) if len(starts) < 4 else ():
            world.api.remove_pod(pod)
        return world.is_true("Committed")

    world.api.on_pod = start
    world.apply(source, backoffLimit=0)

    world.until(delete_or_see_committed)

    assert causes(world) == ["Deleted", "Deleted", "Deleted", "Completed"]
    pauses = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert 10 <= pauses[0] < 20 <= pauses[1] < 40 <= pauses[2] < 80


def test_a_pod_that_is_being_deleted_is_named_as_deleted_although_its_driver_ended_by_a_signal(
    world: World, source: Path
) -> None:
    def delete_gracefully(pod: dict[str, Any]) -> None:
        if pod["metadata"]["name"].endswith("-1"):
            ended = {"name": "driver", "state": {"terminated": {"exitCode": 143, "reason": "Error"}}}
            terminating = {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:30Z"}
            world.api.put_pod({**pod, "metadata": terminating, "status": {"phase": "Running", "containerStatuses": [ended]}})
        else:
            world.kubelet.run(pod)

    world.api.on_pod = delete_gracefully
    world.apply(source, backoffLimit=0)

    world.until_committed()

    assert causes(world) == ["Deleted", "Completed"]


def test_disruptions_between_failures_do_not_hide_them(world: World, source: Path) -> None:
    world.kubelet.instead = {2: taken_away("EvictionByEvictionAPI"), 4: taken_away("EvictionByEvictionAPI")}

    def die(number: int) -> None:
        raise Killed

    world.kubelet.between_tasks = die
    world.apply(source, backoffLimit=1)

    world.until_stalled()

    assert world.status.reason == reasons.BACKOFF_LIMIT_EXCEEDED
    assert causes(world) == ["Unknown", "Evicted", "Unknown"]

"""Driver pods by their names: one of another write is unknown, is not counted on, and is not deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from checkpoint_control.decision.observation import DriverState
from checkpoint_operator.pods.driver_pod import UID_LABEL, pod_name
from checkpoint_operator.pods.pod_drivers import PodDrivers
from checkpoint_operator.watch.cache import Cache
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from tests.support.fake_cluster import FakeApi
from tests.support.records import launch
from tests.unit.cluster.test_pods import DEFAULTS, KEY, OWNER, spec_of

PLACE = (OWNER.namespace, pod_name(OWNER.name, KEY, 1))


def made(api: FakeApi, *, is_watched: bool = True) -> PodDrivers:
    cache = Cache()
    for pod in api.pods.values() if is_watched else ():
        cache.put_pod(pod)
    return PodDrivers(api, cache, OWNER, spec_of(), "s3://b/cw", DEFAULTS)


def api_with(uid: str | None) -> FakeApi:
    """A cluster in which a pod of this write (None: of none) runs under the name of our first driver."""
    api = FakeApi(Cache(), lambda key: None)
    metadata: dict[str, Any] = {"namespace": PLACE[0], "name": PLACE[1], "uid": "p"}
    if uid is not None:
        metadata["labels"] = {UID_LABEL: uid}
    api.pods[PLACE] = {"metadata": metadata, "status": {"phase": "Running"}}
    return api


@pytest.mark.parametrize("is_watched", [True, False])
@pytest.mark.parametrize("uid", ["another-uid", None])
def test_a_pod_of_another_write_is_no_driver_of_ours(uid: str | None, is_watched: bool) -> None:
    """Of a write that had this name, or of whoever made it by hand."""
    nobody = FakeApi(Cache(), lambda key: None)

    assert made(api_with(uid), is_watched=is_watched).observe(KEY, 1) == made(nobody).observe(KEY, 1)


@pytest.mark.parametrize("uid", ["another-uid", None])
def test_a_pod_of_another_write_is_never_deleted(uid: str | None) -> None:
    api = api_with(uid)

    made(api).stop(KEY, 1)

    assert PLACE in api.pods


def test_a_pod_of_another_write_in_the_place_of_our_driver_is_for_a_person() -> None:
    api = api_with("another-uid")

    with pytest.raises(NeedsChange) as refused:
        made(api).start(KEY, launch(1))

    assert refused.value.reason == reasons.POD_REFUSED
    assert PLACE[1] in refused.value.message

    del api.pods[PLACE]
    made(api).start(KEY, launch(1))
    assert PLACE in api.pods


def test_a_pod_of_the_write_is_its_driver_and_is_stopped_whichever_object_it_was_made_for() -> None:
    api = api_with(KEY.uid)
    drivers = made(api)

    assert drivers.observe(KEY, 1).state is DriverState.RUNNING
    drivers.stop(KEY, 1)
    assert PLACE not in api.pods


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_driver_that_has_ended_keeps_its_pod_with_the_log(phase: str) -> None:
    api = api_with(KEY.uid)
    api.pods[PLACE]["status"]["phase"] = phase

    made(api).stop(KEY, 1)

    assert PLACE in api.pods


class WithPendingExecutors(FakeApi):
    """Its node has no room for the executors of the driver."""

    def list_executor_pods(self, namespace: str, labels: Mapping[str, str | None]) -> Sequence[Mapping[str, Any]]:
        told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}
        return [{"metadata": {"name": "e"}, "status": {"phase": "Pending", "conditions": [told]}}]


def test_a_driver_without_executors_is_judged_by_what_it_was_started_with_and_not_by_the_manifest_of_now() -> None:
    """`executor.instances: 0` is the way out that the message names. It helps the next driver, and not this one."""
    api = WithPendingExecutors(Cache(), lambda key: None)
    edited = spec_of(executor={"instances": 0})

    for spec in (spec_of(), edited):
        starved = PodDrivers(api, Cache(), OWNER, spec, "s3://b/cw", DEFAULTS).find_starvation(KEY, 1, has_plan=True)

        assert starved is not None
        assert starved.reason == reasons.EXECUTORS_PENDING

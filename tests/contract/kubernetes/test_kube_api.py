"""The API port of the controller: one suite on a real API server and on the fake that the controller's tests lean on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config

from checkpoint_operator.crd.status_model import UNOBSERVED_STATUS
from checkpoint_operator.kube.api import Conflict, KubeApi
from checkpoint_operator.kube.client import KubernetesApi, named
from checkpoint_operator.pods.capacity import with_way_out
from checkpoint_operator.pods.driver_pod import DRIVER_CONTAINER, EXECUTOR_CONTAINER, ROLE_LABEL
from checkpoint_operator.status.events import event_body
from checkpoint_operator.watch.cache import Cache
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.manifest.spec import API_VERSION, KIND
from devtools.kubernetes.api_server_only import ApiServer
from tests.support.fake_cluster import FakeApi
from tests.support.waiting import until

CRDS = Path(__file__).resolve().parents[3] / "crds"
SPEC = {
    "source": {"files": {"format": "parquet", "paths": ["s3://b/in"]}},
    "sink": {"iceberg": {"catalog": "c", "table": "db.t"}},
    "checkpoint": {"uri": "s3://b/cw"},
}


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": {**SPEC, **spec}}


def pod(name: str) -> dict[str, Any]:
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "driver", "image": "none", "securityContext": security}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"a": "b"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }


@dataclass
class World:
    """One API, and what a user does beside it."""

    api: KubeApi
    fake: FakeApi | None
    custom: Any = None

    def apply(self, name: str, **spec: Any) -> Mapping[str, Any]:
        if self.fake is not None:
            return self.fake.writes[self.fake.apply(manifest(name, **spec))]
        group, version = API_VERSION.split("/")
        made: dict[str, Any] = self.custom.create_namespaced_custom_object(
            group, version, "default", "checkpointedwrites", manifest(name, **spec)
        )
        return made

    def make_secret(self, name: str) -> None:
        if self.fake is not None:
            self.fake.put_secret("default", name)
            return
        core = client.CoreV1Api(self.custom.api_client)
        core.create_namespaced_secret("default", client.V1Secret(metadata=client.V1ObjectMeta(name=name)))


@pytest.fixture(scope="module")
def real_api(api_server: ApiServer) -> KubernetesApi:
    api_server.kubectl("apply", "--server-side", "-f", str(CRDS))
    api_server.wait_for_kinds()
    configuration = client.Configuration()
    config.load_kube_config(str(api_server.kubeconfig), client_configuration=configuration)  # type: ignore[no-untyped-call]
    api = KubernetesApi(named(client.ApiClient(configuration)))
    until(partial(answers, api), "the kind to be served")
    return api


def answers(api: KubernetesApi) -> bool:
    try:
        api.check()
    except Exception:
        return False
    return True


@pytest.fixture(params=["real", "fake"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "fake":
        fake = FakeApi(Cache(), lambda key: None)
        yield World(fake, fake)
        return
    api: KubernetesApi = request.getfixturevalue("real_api")
    custom = client.CustomObjectsApi(api._api)
    yield World(api, None, custom)
    api_server: ApiServer = request.getfixturevalue("api_server")
    api_server.kubectl("delete", "checkpointedwrites,pods,secrets", "--all", "-n", "default", "--wait=true")


def version_of(body: Mapping[str, Any]) -> str:
    version: str = body["metadata"]["resourceVersion"]
    return version


def listed_with(count: int, ask: Callable[[], Sequence[Mapping[str, Any]]]) -> Sequence[Mapping[str, Any]]:
    """Return a list once it has so many entries: lists are as new as the server has them at hand."""
    return until(lambda: found if len(found := ask()) >= count else (), f"{count} entries")


def test_what_is_not_there_is_none(world: World) -> None:
    assert world.api.get_write("default", "nobody") is None
    assert world.api.get_pod("default", "nobody") is None
    assert world.api.get_config_map("default", "nobody") is None
    assert world.api.get_secret("default", "nobody") is None


def test_an_entry_is_added_to_a_secret_once_of_two_who_do_so_at_the_same_time(world: World) -> None:
    world.make_secret("keys")
    empty = world.api.get_secret("default", "keys")
    assert empty is not None
    assert not empty.get("data")

    first = {"metadata": {"resourceVersion": version_of(empty)}, "data": {"1-a": "b25l"}}
    changed = world.api.patch_secret("default", "keys", first)
    with pytest.raises(Conflict):
        world.api.patch_secret("default", "keys", {**first, "data": {"2-b": "dHdv"}})

    assert changed is not None
    assert changed["data"] == {"1-a": "b25l"}
    again = world.api.patch_secret(
        "default", "keys", {"metadata": {"resourceVersion": version_of(changed)}, "data": {"2-b": "dHdv"}}
    )
    assert again is not None
    assert again["data"] == {"1-a": "b25l", "2-b": "dHdv"}
    assert world.api.get_secret("default", "keys") == again


def test_there_is_nothing_to_change_in_a_secret_that_does_not_exist(world: World) -> None:
    assert world.api.patch_secret("default", "nowhere", {"data": {"a": "b25l"}}) is None


def test_a_secret_that_is_made_twice_stays_as_it_was_first(world: World) -> None:
    made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "immutable": True, "data": {"a": "b25l"}}
    world.api.create_secret("default", made)
    first = world.api.get_secret("default", "keys")
    world.api.create_secret("default", {**made, "data": {"a": "dHdv"}})

    assert first is not None
    assert first["data"] == {"a": "b25l"}
    assert world.api.get_secret("default", "keys") == first


def test_a_secret_that_a_quota_refuses_is_told_in_its_words(real_api: KubernetesApi, api_server: ApiServer) -> None:
    def refusals() -> Sequence[Retryable]:
        try:
            real_api.create_secret("default", {"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "tried-"}})
        except Retryable as error:
            return [error]
        return []

    api_server.kubectl("create", "quota", "no-secrets", "--hard=secrets=0", "-n", "default")
    try:
        (told,) = until(refusals, "the API server to read the quota")
    finally:
        api_server.kubectl("delete", "quota", "no-secrets", "-n", "default")
        api_server.kubectl("delete", "secrets", "--all", "-n", "default")

    assert told.reason == reasons.POD_REFUSED
    assert "the Secret with the keys for the driver's pod" in told.message
    assert "no-secrets" in told.message


def test_a_secret_that_the_operator_has_no_right_to_make_is_told_as_that(real_api: KubernetesApi, api_server: ApiServer) -> None:
    api_server.kubectl("create", "serviceaccount", "without-rights", "-n", "default")
    configuration = client.Configuration()
    file = api_server.service_account_kubeconfig("default", "without-rights")
    config.load_kube_config(str(file), client_configuration=configuration)  # type: ignore[no-untyped-call]

    with pytest.raises(Retryable, match="without-rights") as refused:
        KubernetesApi(client.ApiClient(configuration)).create_secret(
            "default", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}}
        )

    assert refused.value.reason == reasons.API_FORBIDDEN
    assert real_api.get_secret("default", "keys") is None


def test_an_applied_write_has_a_uid_a_generation_and_a_version(world: World) -> None:
    world.apply("a")
    body = world.api.get_write("default", "a")
    assert body is not None
    assert body["metadata"]["uid"]
    assert body["metadata"]["generation"] == 1
    assert version_of(body)
    assert body["status"] == UNOBSERVED_STATUS, "no operator has seen it"


def test_a_list_of_writes_has_their_metadata(world: World) -> None:
    body = world.apply("a")

    (listed,) = listed_with(1, lambda: world.api.list_writes("default"))

    assert listed["metadata"]["uid"] == body["metadata"]["uid"]
    assert version_of(listed) == version_of(body)
    assert "spec" not in listed
    assert "status" not in listed


def test_a_status_is_patched_and_does_not_change_the_generation(world: World) -> None:
    body = world.apply("a")

    patched = world.api.patch_status(
        "default", "a", {"metadata": {"resourceVersion": version_of(body)}, "status": {"phase": "Running", "epoch": 1}}
    )

    assert patched["status"] == {**UNOBSERVED_STATUS, "phase": "Running", "epoch": 1}
    assert patched["metadata"]["generation"] == 1
    assert version_of(patched) != version_of(body)
    again = world.api.patch_status("default", "a", {"status": {"phase": None}})
    assert again["status"] == {name: value for name, value in {**UNOBSERVED_STATUS, "epoch": 1}.items() if name != "phase"}


def test_the_manager_of_the_fields_that_the_operator_sets_has_its_name(world: World) -> None:
    world.apply("a")
    patched = world.api.patch_status("default", "a", {"status": {"phase": "Running"}})

    # The fake has none.
    entries = patched["metadata"].get("managedFields") or ()
    assert {entry["manager"] for entry in entries if entry.get("subresource") == "status"} <= {"checkpointed-write-operator"}


def test_a_patch_of_an_object_that_has_changed_since_is_a_conflict(world: World) -> None:
    body = world.apply("a")
    stale = version_of(body)
    world.api.patch_status("default", "a", {"metadata": {"resourceVersion": stale}, "status": {"phase": "Running"}})

    with pytest.raises(Conflict):
        world.api.patch_status("default", "a", {"metadata": {"resourceVersion": stale}, "status": {"phase": "Sealed"}})
    with pytest.raises(Conflict):
        world.api.patch_write("default", "a", {"metadata": {"resourceVersion": stale, "finalizers": ["x.dev/y"]}})


def test_a_patch_of_the_object_leaves_its_status_alone(world: World) -> None:
    world.apply("a")
    world.api.patch_status("default", "a", {"status": {"phase": "Running"}})

    patched = world.api.patch_write("default", "a", {"metadata": {"finalizers": ["checkpointed.dev/test"]}})

    assert patched["status"] == {**UNOBSERVED_STATUS, "phase": "Running"}
    assert patched["metadata"]["finalizers"] == ["checkpointed.dev/test"]
    world.api.patch_write("default", "a", {"metadata": {"finalizers": None}})


def test_a_deleted_write_stays_until_its_finalizer_is_off(world: World) -> None:
    body = world.apply("a")
    world.api.patch_write("default", "a", {"metadata": {"finalizers": ["checkpointed.dev/test"]}})

    world.api.delete_write("default", "a", body["metadata"]["uid"])
    held = world.api.get_write("default", "a")
    assert held is not None
    assert held["metadata"]["deletionTimestamp"]

    world.api.patch_write("default", "a", {"metadata": {"finalizers": None}})
    assert world.api.get_write("default", "a") is None


def test_only_the_write_with_that_uid_is_deleted(world: World) -> None:
    world.apply("a")

    world.api.delete_write("default", "a", "11111111-1111-1111-1111-111111111111")

    assert world.api.get_write("default", "a") is not None


def test_deleting_what_is_gone_is_no_error(world: World) -> None:
    world.api.delete_write("default", "nobody", "11111111-1111-1111-1111-111111111111")
    world.api.delete_pod("default", "nobody", "11111111-1111-1111-1111-111111111111")


def test_a_pod_is_made_once(world: World) -> None:
    made = world.api.create_pod("default", pod("p"))
    assert made is not None
    assert made["metadata"]["uid"]

    assert world.api.create_pod("default", pod("p")) is None


def test_only_the_pod_with_that_uid_is_deleted(world: World) -> None:
    made = world.api.create_pod("default", pod("p"))
    assert made is not None

    world.api.delete_pod("default", "p", "11111111-1111-1111-1111-111111111111")
    assert world.api.get_pod("default", "p") is not None

    world.api.delete_pod("default", "p", made["metadata"]["uid"])
    assert world.api.get_pod("default", "p") is None


def test_drivers_pods_are_listed_and_no_others(world: World) -> None:
    driver = pod("driver")
    driver["metadata"]["labels"] = {ROLE_LABEL: DRIVER_CONTAINER}
    made = world.api.create_pod("default", driver)
    assert made is not None
    world.api.create_pod("default", pod("other"))

    def listed(namespace: str | None) -> list[str]:
        return [found["metadata"]["uid"] for found in world.api.list_driver_pods(namespace)]

    until(lambda: listed("default"), "a list as new as the pod")
    assert listed("default") == listed(None) == [made["metadata"]["uid"]]
    assert listed("kube-system") == []


# --- what only a real server does ---------------------------------------------------------------------------------------------


def test_an_event_is_taken_by_the_api_server(real_api: KubernetesApi, api_server: ApiServer) -> None:
    world = World(real_api, None, client.CustomObjectsApi(real_api._api))
    body = world.apply("told")

    real_api.create_event(
        "default", event_body(body, "told.1", "ImageUnavailable", "no such image", "2026-01-01T00:00:00.000000Z", "operator-0")
    )

    events = api_server.get("events.events.k8s.io", "-n", "default")["items"]
    assert [event["note"] for event in events if event["reason"] == "ImageUnavailable"] == ["no such image"]


def test_a_pod_that_admission_refuses_is_told_in_the_servers_words(real_api: KubernetesApi, api_server: ApiServer) -> None:
    api_server.kubectl("create", "namespace", "strict")
    api_server.kubectl("label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted")
    bad = pod("p")
    bad["metadata"]["namespace"] = "strict"
    del bad["spec"]["containers"][0]["securityContext"]

    with pytest.raises(Retryable) as refused:
        real_api.create_pod("strict", bad)

    assert refused.value.reason == reasons.POD_REFUSED
    assert "restricted" in refused.value.message


@pytest.mark.slow
def test_a_server_that_is_down_is_retryable_and_comes_back(real_api: KubernetesApi, api_server: ApiServer) -> None:
    api_server.stop()
    try:
        with pytest.raises(Retryable) as down:
            real_api.get_write("default", "a")
        assert down.value.reason == reasons.API_UNAVAILABLE
    finally:
        api_server.start()
    real_api.check()


def executor_of(driver: str, name: str) -> dict[str, Any]:
    made = pod(name)
    made["metadata"]["labels"] = {ROLE_LABEL: EXECUTOR_CONTAINER, "checkpointed.dev/attempt": driver}
    return made


def test_the_executors_of_a_driver_are_listed_with_what_their_pods_say(world: World) -> None:
    for driver, name in (("1", "first-exec-1"), ("2", "second-exec-1"), ("2", "second-exec-2")):
        world.api.create_pod("default", executor_of(driver, name))

    found = listed_with(2, lambda: world.api.list_executor_pods("default", {"checkpointed.dev/attempt": "2"}))

    assert sorted(item["metadata"]["name"] for item in found) == ["second-exec-1", "second-exec-2"]
    assert {item["status"]["phase"] for item in found} == {"Pending"}


def test_a_pod_that_is_only_tried_is_not_made(world: World) -> None:
    assert world.api.try_pod("default", pod("tried")) is None

    assert world.api.get_pod("default", "tried") is None


def test_what_a_quota_says_against_a_pod_is_told_in_its_words(real_api: KubernetesApi, api_server: ApiServer) -> None:
    api_server.kubectl("create", "quota", "no-pods", "--hard=pods=0", "-n", "default")
    try:
        refusal = until(lambda: real_api.try_pod("default", pod("tried")), "the API server to read the quota")
    finally:
        api_server.kubectl("delete", "quota", "no-pods", "-n", "default")

    assert refusal is not None
    assert "exceeded quota: no-pods" in refusal or "no-pods" in refusal


@pytest.mark.parametrize("ask", ["create_pod", "try_pod"])
def test_a_misspelt_field_of_a_pod_is_refused_by_its_name(real_api: KubernetesApi, ask: str) -> None:
    wrong = pod("wrong")
    wrong["spec"]["containers"][0]["resoures"] = {"limits": {"cpu": "1"}}

    with pytest.raises(NeedsChange, match=r"resoures") as caught:
        getattr(real_api, ask)("default", wrong)

    assert caught.value.reason == reasons.MANIFEST_INVALID
    assert real_api.get_pod("default", "wrong") is None


def test_a_pod_of_which_a_quota_wants_limits_is_admitted_once_the_template_gives_what_the_refusal_names(
    real_api: KubernetesApi, api_server: ApiServer
) -> None:
    api_server.kubectl("create", "quota", "limits", "--hard=limits.cpu=8,requests.cpu=8", "-n", "default")
    try:
        refusal = until(lambda: real_api.try_pod("default", pod("tried")), "the API server to read the quota")
        told = with_way_out(refusal or "", "driver")
        (template,) = re.findall(r"give it in spec\.driver\.template: (.*)", told)
        corrected = pod("tried")
        (container,) = yaml.safe_load(template.replace("...", "1"))["spec"]["containers"]
        assert container.pop("name") == "driver"
        corrected["spec"]["containers"][0] |= container
        assert real_api.try_pod("default", corrected) is None
    finally:
        api_server.kubectl("delete", "quota", "limits", "-n", "default")

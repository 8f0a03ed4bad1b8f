"""The watches on a real API server: one namespace that is refused is that namespace's matter, and nothing ends the others."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config

from checkpoint_operator.config import OperatorConfig, WorkloadDefaults
from checkpoint_operator.controller import Controller
from checkpoint_operator.kube.client import PLURAL, KubernetesApi
from checkpoint_operator.metrics.counters import Metrics
from checkpoint_operator.watch.cache import Cache, WriteName
from checkpoint_operator.watch.resync import DEAD_AFTER_S, Resync
from checkpoint_operator.watch.watch_errors import Watched, WatchErrors
from checkpoint_operator.watch.watching import Pauses, watch_until
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.manifest.spec import API_VERSION, KIND
from devtools.kubernetes.api_server_only import ApiServer
from tests.support.waiting import patience, until

CRDS = Path(__file__).resolve().parents[3] / "crds"
SPEC = {
    "source": {"files": {"format": "parquet", "paths": ["s3://b/in"]}},
    "sink": {"iceberg": {"catalog": "c", "table": "db.t"}},
    "checkpoint": {"uri": "s3://b/cw"},
}
HOME, ONE, OTHER = "watching-home", "watching-one", "watching-other"
#: Long enough that a refusal is met many times over, and Kopf would have given up after its own pauses if these were counted.
PAUSES = Pauses(first_s=0.05, most_s=0.4)
WATCH_S = 2


@dataclass
class Watching:
    """The watches in a thread, with the rights of the operator's account, and what they have told."""

    namespaces: tuple[str, ...]
    cache: Cache = field(default_factory=Cache)
    errors: WatchErrors = field(default_factory=WatchErrors)
    woken: list[WriteName] = field(default_factory=list)
    ended: list[Exception | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        watching = watch_until(self._stop, self.cache, self.woken.append, self.namespaces, self.errors, PAUSES, WATCH_S)
        try:
            self._loop.run_until_complete(watching)
            self.ended.append(None)
        except Exception as error:
            self.ended.append(error)
        finally:
            # Connections with TLS are closed a moment after their session.
            self._loop.run_until_complete(asyncio.sleep(0.5))
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(patience(30))
        assert not self._thread.is_alive()

    def knows(self, namespace: str, name: str) -> bool:
        return self.cache.write(WriteName(namespace, name)) is not None


@dataclass
class World:
    server: ApiServer
    kubeconfig: Path

    def apply(self, namespace: str, name: str) -> None:
        metadata = {"name": name, "namespace": namespace}
        self._apply({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": SPEC})

    def create_hostile(self, namespace: str, name: str, within: str, depth: int = 3000, values: int = 150_000) -> None:
        """Create a write with a value that is nested as deep, or a list of so many. As text: to write it takes as much."""
        if within == "a list":
            nested = "[" + "{}," * (values - 1) + "{}]"
        else:
            nested = '{"a":' * depth + "1" + "}" * depth if within == "template" else "[" * depth + "]" * depth
        steps = [{"call": "steps:double", "arguments": {"it": "NESTED"}}]
        spec = {**SPEC, "driver": {"template": {"spec": "NESTED"}}} if within == "template" else {**SPEC, "steps": steps}
        metadata = {"name": name, "namespace": namespace}
        body = json.dumps({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec})
        self.server.kubectl("create", "-f", "-", manifest=body.replace('"NESTED"', nested))

    def bind(self, namespace: str) -> None:
        account = {"kind": "ServiceAccount", "name": "operator", "namespace": HOME}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "watching-test"}
        metadata = {"name": "operator", "namespace": namespace}
        self._apply(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": metadata,
                "subjects": [account],
                "roleRef": role,
            }
        )

    def unbind(self, namespace: str) -> None:
        self.server.kubectl("delete", "rolebinding", "operator", "-n", namespace)

    def as_administrator(self) -> KubernetesApi:
        configuration = client.Configuration()
        config.load_kube_config(str(self.server.kubeconfig), client_configuration=configuration)  # type: ignore[no-untyped-call]
        return KubernetesApi(client.ApiClient(configuration))

    def _apply(self, body: dict[str, Any]) -> None:
        self.server.kubectl("apply", "-f", "-", manifest=json.dumps(body))


@pytest.fixture(scope="module")
def prepared(api_server: ApiServer) -> World:
    api_server.kubectl("apply", "--server-side", "-f", str(CRDS))
    api_server.wait_for_kinds()
    for namespace in (HOME, ONE, OTHER):
        api_server.kubectl("create", "namespace", namespace)
    api_server.kubectl("create", "serviceaccount", "operator", "-n", HOME)
    api_server.kubectl(
        "create",
        "clusterrole",
        "watching-test",
        "--verb=get,list,watch",
        "--resource=checkpointedwrites.checkpointed.dev,pods",
    )
    return World(api_server, api_server.service_account_kubeconfig(HOME, "operator"))


@pytest.fixture
def world(prepared: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("KUBECONFIG", str(prepared.kubeconfig))
    for namespace in (ONE, OTHER):
        prepared.bind(namespace)
    yield prepared
    for namespace in (ONE, OTHER):
        prepared.server.kubectl("delete", "checkpointedwrites", "--all", "-n", namespace, "--wait=true")


@pytest.fixture
def watching(world: World) -> Iterator[Watching]:
    watching = Watching((ONE, OTHER))
    yield watching
    watching.stop()


def controller_of(api: KubernetesApi, cache: Cache) -> Controller:
    """A controller that comes as far as the store, which does not answer."""

    def refuse(*_: object) -> Any:
        raise Retryable(reasons.STORE_UNAVAILABLE, "it does not answer")

    return Controller(
        api=api,
        cache=cache,
        config=OperatorConfig(namespaces=(ONE, OTHER), workloads=WorkloadDefaults(image="spark:1")),
        metrics=Metrics(),
        settings_of=refuse,
        catalogs=None,
        open_store=refuse,
        open_sink=refuse,
        code_source=refuse,  # type: ignore[arg-type]
        instance="operator-0",
    )


def test_a_namespace_that_is_refused_does_not_end_the_watch_of_another_and_is_watched_again(
    world: World, watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    world.apply(ONE, "before")
    world.apply(OTHER, "before")
    until(lambda: watching.knows(ONE, "before") and watching.knows(OTHER, "before"))

    world.unbind(ONE)
    refused = {Watched(ONE, "checkpointedwrites"), Watched(ONE, "pods")}
    until(lambda: watching.errors.now().keys() == refused)
    time.sleep(12 * PAUSES.most_s)  # Kopf's own patience is eight tries

    assert not watching.ended
    assert all("403" in problem for problem in watching.errors.now().values())
    world.apply(OTHER, "meanwhile")
    until(lambda: watching.knows(OTHER, "meanwhile"))
    world.apply(ONE, "unseen")
    time.sleep(1)
    assert not watching.knows(ONE, "unseen")
    assert watching.errors.now().keys() == refused
    told = [
        record.getMessage() for record in caplog.records if f"in namespace {ONE} cannot be watched: 403" in record.getMessage()
    ]
    assert len(told) == 2, "once for the writes, once for the pods"

    world.bind(ONE)
    until(lambda: watching.knows(ONE, "unseen"))
    until(lambda: not watching.errors.now())
    assert not watching.ended
    assert "the watches ended" not in caplog.text, "the other namespace was listed anew for this one"


def test_a_namespace_that_is_refused_is_no_dead_watch_for_the_resync(world: World, watching: Watching) -> None:
    configuration = client.Configuration()
    config.load_kube_config(str(world.server.kubeconfig), client_configuration=configuration)  # type: ignore[no-untyped-call]
    as_administrator = KubernetesApi(client.ApiClient(configuration))
    until(lambda: not watching.errors.now())
    world.unbind(ONE)
    until(lambda: watching.errors.is_forbidden(ONE, PLURAL))
    world.apply(ONE, "unseen")
    now = [0.0]

    def is_forbidden(namespace: str | None) -> bool:
        return watching.errors.is_forbidden(namespace, PLURAL)

    resync = Resync(as_administrator, watching.cache, lambda key: None, (ONE, OTHER), is_forbidden, lambda: now[0])
    for _ in range(3):
        assert resync.run()
        now[0] += DEAD_AFTER_S


@pytest.mark.parametrize(
    ("within", "told"),
    [
        ("arguments", "nested more than 32 deep"),
        pytest.param("template", "nested more than 32 deep", marks=pytest.mark.slow),
        pytest.param("a list", "has more than 50,000 values", marks=pytest.mark.slow),
    ],
)
def test_an_object_that_is_nested_too_deep_or_has_too_many_values_is_refused_alone_and_the_others_are_reconciled(
    world: World, watching: Watching, caplog: pytest.LogCaptureFixture, within: str, told: str
) -> None:
    as_administrator = world.as_administrator()
    controller = controller_of(as_administrator, watching.cache)
    world.create_hostile(ONE, "deep", within)
    world.apply(OTHER, "beside")
    until(lambda: watching.knows(ONE, "deep") and watching.knows(OTHER, "beside"))

    for namespace, name, reason in ((ONE, "deep", reasons.MANIFEST_INVALID), (OTHER, "beside", reasons.STORE_UNAVAILABLE)):
        controller.reconcile(WriteName(namespace, name))
        body = as_administrator.get_write(namespace, name)
        assert body is not None
        assert body["status"]["reason"] == reason
    assert told in str((watching.cache.write(WriteName(ONE, "deep")) or {}).get("status"))
    if within == "a list":
        assert isinstance((watching.cache.write(WriteName(ONE, "deep")) or {})["spec"], str)

    assert {body["metadata"]["name"] for body in as_administrator.list_writes(None)} == {"deep", "beside"}
    from_the_list = Watching((ONE, OTHER))
    until(lambda: from_the_list.knows(ONE, "deep") and from_the_list.knows(OTHER, "beside"))
    from_the_list.stop()
    # What a watch of metadata alone would have to read.
    shown = world.server.kubectl("get", "checkpointedwrite", "deep", "-n", ONE, "-o=json", "--show-managed-fields")
    assert (shown.count('"f:a"') == 3000) == (within == "template")
    world.server.kubectl("delete", "checkpointedwrite", "deep", "-n", ONE, "--wait=true")
    until(lambda: not watching.knows(ONE, "deep"))
    world.apply(ONE, "after")
    until(lambda: watching.knows(ONE, "after"))
    assert "the watches ended" not in caplog.text
    unheld = '{"metadata": {"finalizers": null}}'
    world.server.kubectl("patch", "checkpointedwrite", "beside", "-n", OTHER, "--type=merge", "-p", unheld)


@pytest.mark.slow
def test_an_api_server_that_is_down_for_long_and_comes_back_goes_on_being_watched(world: World, watching: Watching) -> None:
    world.apply(ONE, "before")
    until(lambda: watching.knows(ONE, "before"))

    world.server.stop()
    try:
        until(lambda: len(watching.errors.now()) == 4)
        time.sleep(12 * PAUSES.most_s)
        assert not watching.ended
    finally:
        world.server.start()
    world.apply(ONE, "after")
    until(lambda: watching.knows(ONE, "after"))
    until(lambda: not watching.errors.now())


def test_credentials_that_are_refused_for_a_while_are_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refused = tmp_path / "kubeconfig"
    text = world.kubeconfig.read_text()
    token = yaml.safe_load(text)["users"][0]["user"]["token"]
    refused.write_text(text.replace(token, token[:-8] + "AAAAAAAA"))
    monkeypatch.setenv("KUBECONFIG", str(refused))
    watching = Watching((ONE, OTHER))
    try:
        until(lambda: any("401" in problem for problem in watching.errors.now().values()))
        time.sleep(5)
        assert not watching.ended
        refused.write_text(text)
        world.apply(ONE, "a")
        until(lambda: watching.knows(ONE, "a"))
        assert "the watches ended" not in caplog.text
    finally:
        watching.stop()
    assert watching.ended == [None]

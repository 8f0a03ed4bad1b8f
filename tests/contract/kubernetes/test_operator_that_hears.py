"""The operator's process on a real API server: whatever comes back, a write that is applied afterwards is seen.

Kubernetes starts a process that ends anew; here the tests do.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from checkpoint_protocol.manifest.spec import API_VERSION, KIND
from devtools.kubernetes.api_server_only import ApiServer
from devtools.ports import free_port
from devtools.server_process import ServerProcess
from tests.support.waiting import until

CRDS = Path(__file__).resolve().parents[3] / "crds"
HOME, ONE, OTHER = "hearing-home", "hearing-one", "hearing-other"
RESYNC_S = 10
#: Longer than leases, and than connections take to be made; ten times as long takes another request or two.
PAUSE_S = float(os.environ.get("PAUSE_S", "12"))


@dataclass
class Operator:
    """The operator, with the rights that the chart gives it, and what a user does beside it."""

    server: ApiServer
    process: ServerProcess
    log: Path
    lake: Path

    def apply(self, namespace: str, name: str) -> None:
        """A write that stalls when it is looked at: its table does not exist."""
        spec = {
            "source": {"files": {"format": "parquet", "paths": [f"{self.lake}/in"]}},
            "sink": {"lance": {"uri": f"{self.lake}/none.lance"}},
            "checkpoint": {"uri": f"{self.lake}/checkpoints"},
        }
        metadata = {"name": name, "namespace": namespace}
        self._apply({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec})

    def has_seen(self, namespace: str, name: str) -> bool:
        return bool(self.server.get("checkpointedwrite", name, "-n", namespace)["status"].get("conditions"))

    def forget_writes(self, namespace: str) -> None:
        """Their finalizers come off without the store."""
        if self.server.get("checkpointedwrites", "-n", namespace)["items"]:
            self.server.kubectl("annotate", "checkpointedwrites", "--all", "-n", namespace, "checkpointed.dev/abandon=true")

    def delete_crd(self) -> None:
        self.server.kubectl("delete", "-f", str(CRDS), "--wait=true")

    def apply_crd(self) -> None:
        self.server.kubectl("apply", "--server-side", "-f", str(CRDS))
        self.server.wait_for_kinds()

    def bind(self) -> None:
        """As the chart does: its own kind in the cluster, pods and events in each namespace."""
        self._bind("ClusterRoleBinding", {"name": "hearing-writes"}, "hearing-writes")
        for namespace in (ONE, OTHER):
            self._bind("RoleBinding", {"name": "operator", "namespace": namespace}, "hearing-drivers")

    def unbind(self) -> None:
        self.server.kubectl("delete", "clusterrolebinding", "hearing-writes")
        for namespace in (ONE, OTHER):
            self.server.kubectl("delete", "rolebinding", "operator", "-n", namespace)

    def _bind(self, kind: str, metadata: dict[str, str], role: str) -> None:
        account = {"kind": "ServiceAccount", "name": "operator", "namespace": HOME}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        body = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata}
        self._apply({**body, "subjects": [account], "roleRef": reference})

    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def _apply(self, body: dict[str, Any]) -> None:
        self.server.kubectl("apply", "-f", "-", manifest=json.dumps(body))


@pytest.fixture(scope="module")
def prepared(api_server: ApiServer) -> ApiServer:
    api_server.kubectl("apply", "--server-side", "-f", str(CRDS))
    api_server.wait_for_kinds()
    for namespace in (HOME, ONE, OTHER):
        api_server.kubectl("create", "namespace", namespace)
    api_server.kubectl("create", "serviceaccount", "operator", "-n", HOME)
    writes = "checkpointedwrites.checkpointed.dev,checkpointedwrites.checkpointed.dev/status"
    api_server.kubectl("create", "clusterrole", "hearing-writes", "--verb=*", f"--resource={writes}")
    api_server.kubectl("create", "clusterrole", "hearing-drivers", "--verb=*", "--resource=pods,events.events.k8s.io")
    return api_server


@pytest.fixture
def operator(prepared: ApiServer, tmp_path: Path) -> Iterator[Operator]:
    health = free_port()
    configuration = {
        "namespaces": [ONE, OTHER],
        "workloads": {"image": "none"},
        "allowLocalPaths": True,
        "resyncSeconds": RESYNC_S,
        "healthPort": health,
        "metricsPort": free_port(),
    }
    (tmp_path / "operator.yaml").write_text(yaml.safe_dump(configuration))
    (tmp_path / "settings.yaml").write_text("{}")
    (tmp_path / "in").mkdir()
    arguments = ["--config", str(tmp_path / "operator.yaml"), "--settings", str(tmp_path / "settings.yaml")]
    process = ServerProcess(
        [sys.executable, "-m", "checkpoint_operator.main", *arguments],
        port=health,
        ready_path="/readyz",
        log=tmp_path / "log",
        environment={"KUBECONFIG": str(prepared.service_account_kubeconfig(HOME, "operator")), "HOME": str(tmp_path)},
    )
    operator = Operator(prepared, process, tmp_path / "log", tmp_path)
    operator.apply_crd()
    operator.bind()
    try:
        process.start()
        yield operator
        operator.apply_crd()
        # The one that runs may be about to end, as its kind was gone; another one lets go of the writes.
        process.stop()
        process.start()
        for namespace in (ONE, OTHER):
            operator.forget_writes(namespace)
            prepared.kubectl("delete", "checkpointedwrites", "--all", "-n", namespace, "--wait=true")
    finally:
        process.stop()


@pytest.mark.slow
def test_where_the_kind_vanishes_the_process_ends_and_the_next_one_sees_the_writes_of_the_new_kind(operator: Operator) -> None:
    operator.apply(ONE, "before")
    until(lambda: operator.has_seen(ONE, "before"))
    operator.forget_writes(ONE)
    operator.delete_crd()

    until(lambda: operator.process.exit_code() is not None)
    assert operator.process.exit_code() == 1
    told = [line["message"] for line in operator.messages() if line["level"] == "error"]
    assert any("does not know CheckpointedWrites any more: apply the files of crds/ again" in message for message in told)

    operator.apply_crd()
    operator.process.start()
    operator.apply(ONE, "after")
    operator.apply(OTHER, "after")
    until(lambda: operator.has_seen(ONE, "after") and operator.has_seen(OTHER, "after"))


@pytest.mark.slow
def test_the_log_of_an_operator_that_begins_when_its_kind_was_installed_just_now_has_no_error(operator: Operator) -> None:
    operator.process.stop()
    operator.delete_crd()
    operator.log.write_text("")

    operator.apply_crd()
    operator.process.start()
    operator.apply(ONE, "first")
    until(lambda: operator.has_seen(ONE, "first"))
    assert [line["message"] for line in operator.messages() if line["level"] == "error"] == []


@pytest.mark.slow
def test_a_kind_that_is_back_at_once_is_watched(operator: Operator) -> None:
    operator.delete_crd()
    operator.apply_crd()
    operator.apply(ONE, "after")

    def is_seen() -> bool:
        if operator.process.exit_code() is not None:
            operator.process.start()
        return operator.has_seen(ONE, "after")

    until(is_seen)


def test_a_namespace_that_comes_back_is_watched_again_by_the_same_process(operator: Operator) -> None:
    operator.apply(ONE, "before")
    until(lambda: operator.has_seen(ONE, "before"))
    operator.forget_writes(ONE)
    operator.server.kubectl("delete", "namespace", ONE, "--wait=true")
    operator.apply(OTHER, "meanwhile")
    until(lambda: operator.has_seen(OTHER, "meanwhile"))

    operator.server.kubectl("create", "namespace", ONE)
    operator.bind()
    operator.apply(ONE, "before")

    until(lambda: operator.has_seen(ONE, "before"))
    assert operator.process.exit_code() is None


@pytest.mark.slow
def test_rights_that_are_taken_and_given_back_leave_no_write_unseen(operator: Operator) -> None:
    operator.apply(ONE, "before")
    until(lambda: operator.has_seen(ONE, "before"))
    operator.unbind()
    operator.apply(ONE, "unseen")
    time.sleep(RESYNC_S)
    assert not operator.has_seen(ONE, "unseen")

    operator.bind()
    until(lambda: operator.has_seen(ONE, "unseen"))
    operator.apply(OTHER, "seen")
    until(lambda: operator.has_seen(OTHER, "seen"))
    assert operator.process.exit_code() is None


@pytest.mark.slow
@pytest.mark.parametrize("who", ["process", "etcd"])
def test_an_api_server_or_etcd_that_pauses_is_watched_afterwards_by_the_same_process(operator: Operator, who: str) -> None:
    paused: ServerProcess = getattr(operator.server, who)
    with paused.paused():
        time.sleep(PAUSE_S)

    until(lambda: operator.server.kubectl("get", "--raw", "/readyz"))
    operator.apply(ONE, f"after-{who}")
    until(lambda: operator.has_seen(ONE, f"after-{who}"))
    assert operator.process.exit_code() is None

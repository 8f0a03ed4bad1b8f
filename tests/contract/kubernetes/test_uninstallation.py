"""The chart where a workload namespace is ending or missing, and what `helm uninstall` asks first: on an API server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from checkpoint_operator.ends.deleting import FINALIZER
from devtools.kubernetes.api_server_only import ApiServer, start_api_server_only
from devtools.kubernetes.kube_client import CommandFailed
from tests.contract.kubernetes.test_chart import SET_REPOSITORIES
from tests.support.manifests import manifest
from tests.support.waiting import patience, until

ROOT: Final = Path(__file__).resolve().parents[3]
CHART: Final = ROOT / "charts" / "checkpointed-write-operator"
NAMESPACE: Final = "checkpointed-writes-system"
RELEASE: Final = "cw"
NAME: Final = f"{RELEASE}-checkpointed-write-operator"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with start_api_server_only(tmp_path_factory.mktemp("uninstallation")) as server:
        server.kubectl("create", "namespace", NAMESPACE)
        server.kubectl("apply", "--server-side", "--filename", str(ROOT / "crds"))
        server.wait_for_kinds()
        yield server


@pytest.fixture
def team(server: ApiServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the name of a workload namespace that is not made yet; end with nothing installed."""
    yield "team-" + f"{abs(hash(request.node.name)):x}"[:8]
    for write in server.get("checkpointedwrites", "--all-namespaces")["items"]:
        let_go(server, write["metadata"]["namespace"])
    uninstall(server)


def installed(server: ApiServer, team: str, **values: Any) -> str:
    """Install or upgrade the release for a namespace; return what Helm says."""
    sets = [f"--set={name.replace('__', '.')}={value}" for name, value in {"watch__namespaces": f"{{{team}}}", **values}.items()]
    return server.helm("upgrade", "--install", RELEASE, str(CHART), "--namespace", NAMESPACE, SET_REPOSITORIES, *sets)


def uninstall(server: ApiServer) -> None:
    # Its question is asked by a pod, and there are no nodes here.
    server.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--no-hooks", "--ignore-not-found")


def make_held_write(server: ApiServer, team: str) -> None:
    """Apply a write, and hold it as the operator does when it first sees it."""
    server.kubectl("apply", "--namespace", team, "--filename", "-", manifest=json.dumps(manifest()))
    patch = json.dumps({"metadata": {"finalizers": [FINALIZER]}})
    server.kubectl("patch", "cw", "flights", "--namespace", team, "--type=merge", "--patch", patch)


def let_go(server: ApiServer, team: str) -> None:
    """Take the finalizer off, as the operator does when nothing of the write can be committed any more."""
    server.kubectl("patch", "cw", "flights", "--namespace", team, "--type=merge", "--patch", '{"metadata":{"finalizers":null}}')


def delete_namespace(server: ApiServer, team: str) -> None:
    """Return when it is ending, with its write still there."""
    server.kubectl("delete", "namespace", team, "--wait=false")
    until(lambda: server.get("namespace", team)["status"]["phase"] == "Terminating", "the namespace ends")


def is_gone(server: ApiServer, team: str) -> bool:
    return not server.kubectl("get", "namespace", team, "--ignore-not-found")


def test_after_operator_and_namespace_were_deleted_in_this_order_the_same_values_install_and_the_namespace_ends(
    server: ApiServer, team: str
) -> None:
    installed(server, team)
    make_held_write(server, team)
    uninstall(server)
    delete_namespace(server, team)

    said = installed(server, team)

    assert f"nothing was made in the namespace {team}, which is being deleted" in said
    let_go(server, team)
    until(lambda: is_gone(server, team), "the namespace is gone")
    assert "WARNING" not in installed(server, team)
    server.kubectl("get", "serviceaccount,role,rolebinding", "checkpointed-write-driver", "--namespace", team)
    server.kubectl("get", "role,rolebinding", NAME, "--namespace", team)


def test_an_upgrade_while_a_namespace_is_deleted_does_all_that_is_not_in_it(server: ApiServer, team: str) -> None:
    installed(server, team)
    make_held_write(server, team)
    delete_namespace(server, team)

    said = installed(server, team, replicas=2)

    assert f"nothing was made in the namespace {team}, which is being deleted" in said
    assert server.get("deployment", NAME, "--namespace", NAMESPACE)["spec"]["replicas"] == 2
    let_go(server, team)
    until(lambda: is_gone(server, team), "the namespace is gone")


def test_a_namespace_that_does_not_exist_and_is_not_to_be_made_stops_nothing_and_is_prepared_by_the_next_upgrade(
    server: ApiServer, team: str
) -> None:
    said = installed(server, team, workloads__createNamespaces="false")

    assert f"nothing was made in the namespace {team}, which does not exist" in said
    server.kubectl("create", "namespace", team)
    assert "WARNING" not in installed(server, team, workloads__createNamespaces="false")
    server.kubectl("get", "serviceaccount,role,rolebinding", "checkpointed-write-driver", "--namespace", team)


def before_uninstall(server: ApiServer, team: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run what the hook's pod runs, with the rights of its account."""
    (folder / "operator.yaml").write_text(yaml.safe_dump({"namespaces": [team], "workloads": {"image": "none"}}))
    return subprocess.run(
        [
            *(sys.executable, "-m", "checkpoint_operator.main", "--before-uninstall"),
            *("--config", str(folder / "operator.yaml")),
        ],
        env={"KUBECONFIG": str(server.service_account_kubeconfig(NAMESPACE, NAME)), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=patience(120),
        check=False,
    )


def test_an_uninstallation_is_refused_while_there_are_writes_and_says_what_to_do(
    server: ApiServer, team: str, tmp_path: Path
) -> None:
    installed(server, team)
    assert before_uninstall(server, team, tmp_path).returncode == 0
    make_held_write(server, team)

    refused = before_uninstall(server, team, tmp_path)

    assert refused.returncode == 1
    assert f"1 CheckpointedWrites are there ({team}/flights)" in refused.stderr
    assert "kubectl delete checkpointedwrites" in refused.stderr
    assert "helm uninstall --no-hooks" in refused.stderr


def test_the_question_is_asked_by_helm_before_anything_is_deleted(server: ApiServer, team: str) -> None:
    """Without nodes its pod does not end; Helm gives up, and nothing is deleted."""
    installed(server, team)

    with pytest.raises(CommandFailed, match="before-uninstall"):
        server.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--timeout", "1s")

    server.kubectl("get", "deployment", NAME, "--namespace", NAMESPACE)

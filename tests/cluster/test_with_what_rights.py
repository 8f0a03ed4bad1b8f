"""Which rights are used, as the API server's audit log tells: after all other tests on the cluster, by the order of names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from devtools.kubernetes import Cluster
from devtools.kubernetes.audit import Request
from tests.cluster.installation import NAMESPACE, WORKLOADS, Installation

#: Group, resource and verb, as a role has them.
Right = tuple[str, str, str]
#: For a write that a listing does not show and whose deletion no watch has told.
RARELY: Final[set[Right]] = {("checkpointed.dev", "checkpointedwrites", "get")}


@dataclass(frozen=True)
class Grant:
    """A right in a namespace, or in all where that is empty; to the objects of these names, or to all where there are none."""

    right: Right
    namespace: str
    names: frozenset[str]

    def allows(self, request: Request) -> bool:
        return (
            self.right == right_of(request)
            and self.namespace in {"", request.namespace}
            and (not self.names or request.name in self.names)
        )


def right_of(request: Request) -> Right:
    return request.group, request.resource, request.verb


def roles_of(cluster: Cluster, account: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the roles that are bound to a service account itself, each with the namespace where it holds."""
    account_namespace, name = account.split("/")
    for kind in ("rolebindings", "clusterrolebindings"):
        for binding in cluster.get(kind, "--all-namespaces")["items"]:
            subjects = [(subject.get("namespace"), subject["name"]) for subject in binding.get("subjects") or ()]
            if (account_namespace, name) in subjects:
                role, namespace = binding["roleRef"], binding["metadata"].get("namespace", "")
                place = ["-n", namespace] if role["kind"] == "Role" else []
                yield namespace, cluster.get(role["kind"].lower(), role["name"], *place)


def grants_of(cluster: Cluster, account: str) -> set[Grant]:
    return {
        Grant((group, resource, verb), namespace, frozenset(rule.get("resourceNames", ())))
        for namespace, role in roles_of(cluster, account)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used_by(requests: list[Request], account: str) -> set[Right]:
    return {right_of(request) for request in requests if request.account == account}


@pytest.mark.parametrize(
    "account", [f"{NAMESPACE}/operator-checkpointed-write-operator", f"{WORKLOADS}/checkpointed-write-driver"]
)
def test_every_right_is_used_and_nothing_is_asked_for_in_vain(
    installation: Installation, account: str, request: pytest.FixtureRequest
) -> None:
    installation.make_sound()
    cluster = installation.cluster
    requests = cluster.requests_of_accounts()
    there = {item["metadata"]["name"] for item in cluster.get("namespaces")["items"]}
    grants = grants_of(cluster, account)
    granted = {grant.right for grant in grants}
    denied = {
        each
        for each in requests
        if each.account == account
        and not each.is_allowed
        # Of a namespace that is being deleted, the role goes before the writes.
        and each.namespace in {"", *there}
        # A server that has only just begun refuses what is granted, until it has read all roles and bindings.
        and not any(grant.allows(each) for grant in grants)
    }

    assert granted
    assert not denied, json.dumps(sorted(map(str, denied)), indent=2)
    assert used_by(requests, account) <= granted
    if all_were_run(request):
        assert granted - used_by(requests, account) <= RARELY


def all_were_run(request: pytest.FixtureRequest) -> bool:
    """Whether all tests on the cluster were asked for, and none of them has failed."""
    here = Path(__file__).parent
    files = {item.path for item in request.session.items if item.path.parent == here}
    is_narrowed = bool(request.config.option.keyword or request.config.option.markexpr)
    return files == set(here.glob("test_*.py")) and not is_narrowed and not request.session.testsfailed

"""Who reaches the pods of writes where the network enforces the chart's policies, and what whoever does can do there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.cluster.installation import NAMESPACE, WORKLOADS
from tests.cluster.user import User

pytestmark = pytest.mark.slow

#: Of one write, which is at work for as long as anybody asks.
ROWS, SECONDS = 20_000, 0.1
_OF_WRITES: Final = {"app.kubernetes.io/managed-by": "checkpointed-write-operator"}
#: Tries each address; where it is let in, it asks for something as Spark does, without a word of who it is.
_PROBE: Final = """
import socket, struct, sys
for place in sys.argv[1:]:
    host, port = place.split(":")
    try:
        peer = socket.create_connection((host, int(port)), timeout=5)
    except OSError as error:
        print(f"{place} is out of reach: {type(error).__name__}", flush=True)
        continue
    body = b"no secret"
    message = struct.pack(">bqi", 3, 1, len(body)) + body
    peer.sendall(struct.pack(">q", 8 + len(message)) + message)
    peer.settimeout(20)
    try:
        print(f"{place} answers: {peer.recv(65536)!r}", flush=True)
    except OSError as error:
        print(f"{place} lets in: {type(error).__name__}", flush=True)
"""
#: At once, when what judges connections may not know the pod's address yet. Later it is told to try again.
_AT_ONCE: Final = f"{_PROBE}\nimport time\ntime.sleep(3600)\n"


@dataclass
class Probe:
    """A pod that tries addresses: when it begins, and again when its address is known."""

    user: User
    name: str
    namespace: str
    places: list[str]

    def answers_at_once(self) -> list[str]:
        def lines() -> list[str]:
            return self.user.kubectl("logs", self.name, "-n", self.namespace).splitlines()

        self._until_known()
        self.user.until(lambda: len(lines()) == len(self.places), 60, f"the pod {self.name} has tried each address")
        return lines()

    def answers(self) -> list[str]:
        self._until_known()
        again = ("exec", self.name, "-n", self.namespace, "--", "python", "-c", _PROBE, *self.places)
        return self.user.kubectl(*again).splitlines()

    def _until_known(self) -> None:
        def is_known() -> bool:
            status = self.user.installation.cluster.get("pod", self.name, "-n", self.namespace)["status"]
            return status.get("phase") == "Running" and bool(status.get("podIP"))

        self.user.until(is_known, 60, f"the pod {self.name} runs")


@dataclass
class Probes:
    user: User
    image: str
    #: The namespace of strangers.
    others: str
    begun: list[Probe] = field(default_factory=list)

    def begin(self, name: str, namespace: str, labels: dict[str, str], places: list[str]) -> Probe:
        container = {
            "name": "probe",
            "image": self.image,
            "imagePullPolicy": "Never",
            "command": ["python", "-c", _AT_ONCE, *places],
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
        specification: dict[str, Any] = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": specification}
        self.user.kubectl("create", "-n", namespace, "-f", "-", manifest=json.dumps(body))
        self.begun.append(Probe(self.user, name, namespace, places))
        return self.begun[-1]


@pytest.fixture
def probes(user: User) -> Iterator[Probes]:
    """Pods that try addresses, in the writes' namespace and in one of strangers. They end with the test."""
    image = user.installation.values()["workloads"]["image"]
    others = f"strangers-to-{user.name}"
    user.kubectl("create", "namespace", others)
    made = Probes(user, f"{image['repository']}:{image['tag']}", others)
    yield made
    for probe in made.begun:
        user.kubectl("delete", "pod", probe.name, "-n", probe.namespace, "--wait=false")
    user.kubectl("delete", "namespace", others, "--wait=false")


def test_a_driver_is_reached_by_pods_of_writes_only_and_tells_nothing_to_one_without_its_secret(
    user: User, probes: Probes
) -> None:
    user.make_place("iceberg")
    user.apply(user.write(user.put_rows("a.parquet", 0, ROWS), SECONDS, executors=1))
    user.wait_until_sealed(1)
    (executor,) = user.pods("executor")
    environment = {item["name"]: item.get("value", "") for item in executor["spec"]["containers"][0]["env"]}
    driver = environment["SPARK_DRIVER_URL"].partition("@")[2]

    beside = probes.begin("beside", WORKLOADS, {}, [driver])
    elsewhere = probes.begin("elsewhere", probes.others, _OF_WRITES, [driver])
    of_another_write = probes.begin("of-another-write", WORKLOADS, _OF_WRITES, [driver])

    for stranger in (beside, elsewhere):
        assert stranger.answers_at_once() == [f"{driver} is out of reach: TimeoutError"]
        assert stranger.answers() == [f"{driver} is out of reach: TimeoutError"]
    (told,) = of_another_write.answers()
    assert told.startswith(f"{driver} answers:")
    assert "Expected SaslMessage" in told
    # Driver and executors reach each other all the while.
    user.wait_until_sealed(user.sealed_rows() + 1)
    assert user.status()["attempt"] == 1


def container_of(user: User, pod: str) -> dict[str, Any]:
    (container,) = user.installation.cluster.get("pod", pod, "-n", NAMESPACE)["status"]["containerStatuses"]
    return {name: container[name] for name in ("ready", "restartCount")}


def test_metrics_are_reached_by_whom_the_values_name_and_health_by_the_kubelet_only(user: User, probes: Probes) -> None:
    """The values name the namespace of the writes, and this machine."""
    installation = user.installation
    (name,) = installation.operator_pods()
    address = installation.cluster.get("pod", name, "-n", NAMESPACE)["status"]["podIP"]
    metrics, health = f"{address}:9090", f"{address}:8080"

    before = container_of(user, name)
    assert before["ready"]

    named = probes.begin("named", WORKLOADS, {}, [metrics, health])
    stranger = probes.begin("stranger", probes.others, {}, [metrics, health])

    let_in, kept_out = named.answers()
    assert let_in.startswith((f"{metrics} answers:", f"{metrics} lets in:"))
    assert kept_out == f"{health} is out of reach: TimeoutError"
    out_of_reach = [f"{metrics} is out of reach: TimeoutError", f"{health} is out of reach: TimeoutError"]
    assert stranger.answers_at_once() == out_of_reach
    assert stranger.answers() == out_of_reach
    assert installation.metrics()
    # Its probes come from the kubelet: three in vain, and it would not be ready.
    assert container_of(user, name) == before

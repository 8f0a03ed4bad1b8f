"""The operator as a user installs it: the project's own images and its chart."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from checkpoint_operator.pods.pod_policy import DEFAULT_FIELDS
from devtools.kubernetes import Cluster, CommandFailed
from devtools.kubernetes.project_images import build
from tests.cluster.lake import CATALOG, VENDING, Lake
from tests.support.waiting import patience, until

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "checkpointed-write-operator"
RELEASE, NAMESPACE = "operator", "checkpointed-operator"
WORKLOADS = "writes"
DEPLOYMENT = "deployment/operator-checkpointed-write-operator"


@dataclass
class Installation:
    """One helm release. `make_sound` brings it back to one replica of the built image, whatever the last test did."""

    cluster: Cluster
    lake: Lake
    folder: Path
    _is_installed: bool = field(default=False)
    #: As `values` say, and not as a test has changed it.
    _is_as_made: bool = field(default=False)

    def make_sound(self) -> None:
        if not self._is_installed:
            self.load_images()
            (self.folder / "values.yaml").write_text(yaml.safe_dump(self.values()))
            self.cluster.kubectl("apply", "--server-side", "--filename", str(ROOT / "crds"))
            self._is_installed = True
        if not self._is_as_made:
            self.upgrade()
        self.wait_ready()

    def load_images(self) -> None:
        """Make the images known to each node that runs."""
        for name in ("operator", "spark"):
            self.cluster.load_image(build(name).archive)

    def values(self) -> dict[str, Any]:
        operator, _, operator_tag = build("operator").reference.rpartition(":")
        spark, _, spark_tag = build("spark").reference.rpartition(":")
        storage = [
            {
                "prefix": "s3://",
                "namespaces": ["*"],
                "overwrites": True,
                "endpoint": self.lake.s3.endpoint,
                "region": self.lake.s3.region,
                "access_key_id": self.lake.s3.access_key,
                "secret_access_key": self.lake.s3.secret_key,
            },
            {
                "prefix": self.lake.vended_prefix,
                "namespaces": ["*"],
                "endpoint": self.lake.s3.endpoint,
                "region": self.lake.s3.region,
                "credentials": "vended",
            },
        ]
        grants = [{"namespaces": ["*"], "overwrites": True}]
        catalogs = {
            CATALOG: {"type": "rest", "uri": self.lake.gate.uri, "grants": grants},
            VENDING: {"type": "rest", "uri": self.lake.vending.uri, "credentials": "vended", "grants": grants},
        }
        return {
            "image": {"repository": operator, "tag": operator_tag, "pullPolicy": "Never"},
            "workloads": {
                "image": {"repository": spark, "tag": spark_tag, "pullPolicy": "Never"},
                "storage": storage,
                # For the annotation that Pod Security refuses.
                "allowed": {"templateFields": [*DEFAULT_FIELDS, "metadata.annotations"]},
            },
            "watch": {"namespaces": [WORKLOADS]},
            "settings": {"catalogs": catalogs, "storage": storage},
            # Tests read the metrics from outside of the cluster.
            "networkPolicies": {
                "metricsFrom": [
                    {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": WORKLOADS}}},
                    {"ipBlock": {"cidr": f"{self.cluster.host_address}/32"}},
                ]
            },
            "resyncSeconds": 60,
        }

    def upgrade(self, **values: Any) -> None:
        """`helm upgrade --install`; `values` are set on top, by path with dots as underscores twice."""
        self._is_as_made = False
        sets = [f"--set={name.replace('__', '.')}={value}" for name, value in values.items()]
        self.cluster.helm(
            *("upgrade", "--install", RELEASE, str(CHART), "--namespace", NAMESPACE, "--create-namespace", "--force-conflicts"),
            *("--values", str(self.folder / "values.yaml"), "--skip-crds", *sets),
        )
        self._is_as_made = not values

    def forget(self) -> None:
        """Somebody else has uninstalled it, or installed it in another way: `make_sound` begins again."""
        self._is_installed = self._is_as_made = False

    def wait_ready(self) -> None:
        self.cluster.kubectl("rollout", "status", DEPLOYMENT, "-n", NAMESPACE, f"--timeout={patience(100):.0f}s")

    def operator_pods(self) -> list[str]:
        pods = self.cluster.get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=operator")["items"]
        return [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def kill_operator(self) -> None:
        """kill -9, as a crash: the kubelet starts its container again."""
        self.signal_operator(signal.SIGKILL)

    def signal_operator(self, number: signal.Signals) -> None:
        for pod in self.operator_pods():
            signal_first_process(pod, number)

    def stop_operator(self) -> None:
        component = "app.kubernetes.io/component=operator"
        self.scale(0)
        until(lambda: not self.cluster.get("pods", "-n", NAMESPACE, "-l", component)["items"], "the operator's end", every=0.5)

    def start_operator(self, replicas: int = 1) -> None:
        self.scale(replicas)
        self.wait_ready()

    def scale(self, replicas: int) -> None:
        self._is_as_made = False
        self.cluster.kubectl("scale", DEPLOYMENT, "-n", NAMESPACE, f"--replicas={replicas}")

    def logs(self) -> str:
        try:
            return self.cluster.kubectl("logs", DEPLOYMENT, "-n", NAMESPACE, "--tail=200")
        except CommandFailed as error:
            return str(error)

    def metrics(self) -> dict[str, float]:
        """What the operator's first pod counts, by name with labels."""
        pod = json.loads(self.cluster.kubectl("get", "pod", self.operator_pods()[0], "-n", NAMESPACE, "-o", "json"))
        with urllib.request.urlopen(f"http://{pod['status']['podIP']}:9090/metrics", timeout=patience(10)) as answer:
            lines = answer.read().decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def signal_first_process(pod: str, number: signal.Signals) -> None:
    """From this machine: the kernel keeps the first process of a container from signals that come from inside."""
    process = first_process(pod)
    assert process is not None, f"no process of {pod} was found"
    os.kill(process, number)


def first_process(pod: str) -> int | None:
    """Return the process of a pod's container as this machine numbers it; None if there is none (any more)."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
            is_first = (process / "status").read_text().split("NSpid:")[1].splitlines()[0].split()[-1] == "1"
        except (OSError, IndexError):
            continue
        command = (process / "cmdline").read_bytes()
        if f"HOSTNAME={pod}".encode() in environment and is_first and b"pause" not in command:
            return int(process.name)
    return None

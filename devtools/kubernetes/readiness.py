"""Whether the programs of a cluster answer yet, each asked in its own way."""

import ssl
import time
import urllib.request
from collections.abc import Callable

from devtools.kubernetes.kube_client import CommandFailed, KubeClient
from devtools.kubernetes.machine import Machine, MachineFailed
from devtools.kubernetes.node import QUEUE, Node

READY_SECONDS = 120.0


def wait(machine: Machine, program: str, is_ready: Callable[[], bool]) -> None:
    """With the program's last words if it ends, or does not get ready in time."""
    deadline = time.monotonic() + READY_SECONDS
    while not is_ready():
        if machine.pid(program) is None:
            raise MachineFailed(f"{program} ended:\n{machine.last_words(program)}")
        if time.monotonic() > deadline:
            raise MachineFailed(f"{program} was not ready within {READY_SECONDS:.0f} s:\n{machine.last_words(program)}")
        time.sleep(0.1)


def of_api(client: KubeClient) -> bool:
    trust = ssl.create_default_context(cafile=client.authority)
    try:
        with urllib.request.urlopen(f"{client.url}/readyz", context=trust, timeout=5):  # noqa: S310 the tests' own API server
            return True
    except OSError:
        return False


def of_containerd(machine: Machine, node: Node) -> bool:
    try:
        machine.run(*node.ctr("version"))
    except MachineFailed:
        return False
    return True


def of_node(client: KubeClient, node: Node) -> bool:
    """Whether pods are scheduled there: the taint of a node that was not ready goes a moment after it is."""
    try:
        found = client.get("node", node.name)
    except CommandFailed:
        return False
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in found["status"].get("conditions", ()))
    return ready and not any(taint["key"].startswith("node.kubernetes.io/") for taint in found["spec"].get("taints", ()))


def of_network_policies(machine: Machine) -> bool:
    """Whether somebody judges connections: the kernel knows a queue for as long as one reads from it."""
    queues = machine.run("cat", "/proc/net/netfilter/nfnetlink_queue").splitlines()
    return any(int(queue.split()[0]) == QUEUE for queue in queues)

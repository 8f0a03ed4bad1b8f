"""What a cluster is made of, and making it: the first time for many minutes, then from the cache."""

import time
from collections.abc import Callable

from devtools.kubernetes import binaries, debian, images

Progress = Callable[[str], None]
QUICK_SECONDS = 1.0


def make_all(say: Progress) -> None:
    for title, make in PARTS:
        started = time.monotonic()
        make()
        seconds = time.monotonic() - started
        if seconds > QUICK_SECONDS:
            say(f"made {title} in {seconds:.0f} s")


PARTS: tuple[tuple[str, Callable[[], object]], ...] = (
    ("iptables", debian.node_tools),
    ("etcd", binaries.etcd),
    ("kube-apiserver, kube-controller-manager, kubectl", binaries.control_plane),
    ("kube-scheduler, kubelet, kube-proxy", binaries.node),
    ("containerd", binaries.containerd),
    ("runc", binaries.runc),
    ("network plugins", binaries.cni_plugins),
    ("what enforces NetworkPolicies", binaries.network_policies),
    ("helm", binaries.helm),
    ("the pause image", images.pause_archive),
)

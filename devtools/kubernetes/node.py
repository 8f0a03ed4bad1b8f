"""How containerd, the kubelet and kube-proxy are set up and started. All paths are those of the machine that they run in."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from devtools.kubernetes import binaries, cgroups, images
from devtools.kubernetes.control_plane import ControlPlane

POD_RANGE = "10.244.0.0/16"
#: Of the kernel, with the connections that are judged by NetworkPolicies.
QUEUE = 98


@dataclass(frozen=True)
class Node:
    """A kubelet and its containerd. `number` tells two nodes on one machine apart, in every path, port and address."""

    number: int
    address: str
    configuration: Path

    @property
    def name(self) -> str:
        return f"node-{self.number}"

    @property
    def pods(self) -> str:
        return f"10.244.{self.number - 1}.0/24"

    @property
    def data(self) -> str:
        return f"/var/lib/{self.name}"

    @property
    def socket(self) -> str:
        return f"/run/{self.name}/containerd.sock"

    def containerd(self) -> list[str]:
        return [str(binaries.containerd() / "containerd"), f"--config={self._containerd_configuration()}"]

    def ctr(self, *arguments: str) -> list[str]:
        return [str(binaries.containerd() / "ctr"), f"--address={self.socket}", "--namespace=k8s.io", *arguments]

    def kubelet(self, plane: ControlPlane) -> list[str]:
        return [
            str(binaries.node() / "kubelet"),
            f"--config={self._kubelet_configuration(plane)}",
            f"--kubeconfig={plane.kubeconfig_of(f'system:node:{self.name}', 'system:nodes')}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            f"--root-dir={self.data}/kubelet",
            f"--cert-dir={self.data}/kubelet/pki",
        ]

    def kube_proxy(self, plane: ControlPlane) -> list[str]:
        configuration = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "clusterCIDR": POD_RANGE,
            "hostnameOverride": self.name,
            "clientConnection": {"kubeconfig": str(plane.kubeconfig_of("system:kube-proxy"))},
            "bindAddress": self.address,
            "healthzBindAddress": "127.0.0.1:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            "iptables": {"localhostNodePorts": False},
            # The kernel lets the outermost network namespace only set these.
            "conntrack": {"maxPerCore": 0, "min": 0},
        }
        return [str(binaries.node() / "kube-proxy"), f"--config={self._write('kube-proxy.json', json.dumps(configuration))}"]

    def network_policies(self, plane: ControlPlane) -> list[str]:
        kubeconfig = plane.kubeconfig_of("network-policies", "system:masters")
        return [str(binaries.network_policies()), f"--kubeconfig={kubeconfig}", f"--node={self.name}", f"--queue={QUEUE}"]

    def judged_connections(self) -> list[str]:
        """What has each connection to a pod of this node judged by its policies; not those of the node itself, as the kubelet's.

        Where nobody judges, none comes through.
        """
        connections = ["--destination", self.pods, "--match", "conntrack", "--ctstate", "NEW"]
        judged = ["--jump", "NFQUEUE", "--queue-num", str(QUEUE)]
        return ["iptables", "--table", "mangle", "--append", "FORWARD", *connections, *judged]

    @property
    def environment(self) -> dict[str, str]:
        """containerd looks for its shim on the PATH."""
        return {"PATH": os.pathsep.join([str(binaries.containerd()), "/usr/sbin", "/usr/bin", "/sbin", "/bin"])}

    def _containerd_configuration(self) -> Path:
        runtime = "plugins.'io.containerd.cri.v1.runtime'"
        return self._write(
            "containerd.toml",
            f"""
version = 3
root = "{self.data}/containerd"
state = "/run/{self.name}/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
address = "{self.socket}"
[plugins.'io.containerd.internal.v1.opt']
path = "{self.data}/opt"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{images.PAUSE}"
[{runtime}]
# A container's score is not set below containerd's own: in a container or a sandbox that takes a right that root may not have.
restrict_oom_score_adj = true
[{runtime}.cni]
bin_dirs = ["{binaries.cni_plugins()}"]
conf_dir = "{self._network_configuration()}"
[{runtime}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{runtime}.containerd.runtimes.runc.options]
BinaryName = "{binaries.runc()}"
SystemdCgroup = false
""",
        )

    def _network_configuration(self) -> Path:
        """A cable for each pod rather than a bridge: answers of a service then pass through iptables, whatever the kernel has."""
        plugins = [
            {
                "type": "ptp",
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": self.pods}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                    "dataDir": f"{self.data}/addresses",
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ]
        content = {"cniVersion": "1.0.0", "name": self.name, "plugins": plugins}
        return self._write("network/pods.conflist", json.dumps(content)).parent

    def _kubelet_configuration(self, plane: ControlPlane) -> Path:
        serving = plane.authority.server(f"{self.name}-kubelet", [self.address], [self.name])
        configuration = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "healthzPort": 10248 + 10 * (self.number - 1),
            "tlsCertFile": str(serving.certificate),
            "tlsPrivateKeyFile": str(serving.key),
            "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(plane.authority.own.certificate)}},
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{cgroups.NAME}/{self.name}",
            # A node is known to be lost after 25 s instead of 50: its lease is renewed each five seconds.
            "nodeLeaseDurationSeconds": 20,
            "failCgroupV1": False,
            "failSwapOn": False,
            "podLogsDir": f"{self.data}/pod-logs",
            "volumePluginDir": f"{self.data}/volume-plugins",
            # Pods have no names but their own: there is no DNS server.
            "resolvConf": "",
            # A threshold that is not named is none: where the disk fills up, the kubelet would remove images, which nothing here
            # could pull again.
            "evictionHard": {"memory.available": "100Mi"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "shutdownGracePeriod": "0s",
        }
        return self._write("kubelet.json", json.dumps(configuration))

    def _write(self, name: str, text: str) -> Path:
        path = self.configuration / self.name / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

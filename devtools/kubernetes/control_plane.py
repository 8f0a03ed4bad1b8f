"""How etcd, the API server, the controller manager and the scheduler are started: commands only, nobody is started here.

Authorization is Node and RBAC; admission is what Kubernetes has by default, which includes Pod Security and quotas, with
NodeRestriction.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from devtools.kubernetes import audit, binaries
from devtools.kubernetes.certificates import Authority

SERVICE_RANGE = "10.96.0.0/16"
# The first address of the range: the API server's own service.
API_SERVICE = "10.96.0.1"
LOOPBACK = "127.0.0.1"
ISSUER = "https://kubernetes.default.svc.cluster.local"
SERVICE_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


@dataclass(frozen=True)
class Ports:
    """etcd, controller manager and scheduler are on loopback."""

    api: int
    etcd: int
    etcd_peers: int
    controllers: int
    scheduler: int


class ControlPlane:
    def __init__(self, directory: Path, host: str, ports: Ports) -> None:
        self.directory = directory
        self.ports = ports
        self.host = host
        self.url = f"https://{host}:{ports.api}"
        self.authority = Authority(directory / "pki")
        self.kubeconfig = self.kubeconfig_of("admin", "system:masters")

    def kubeconfig_of(self, name: str, *groups: str) -> Path:
        path = self.directory / f"{name.replace(':', '-')}.kubeconfig"
        return self.authority.kubeconfig(self.url, path, name, *groups)

    def etcd(self) -> list[str]:
        clients, peers = f"http://{LOOPBACK}:{self.ports.etcd}", f"http://{LOOPBACK}:{self.ports.etcd_peers}"
        return [
            str(binaries.etcd()),
            "--name=tests",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=tests={peers}",
            # A power cut is not tested, a busy disk is no reason to fail.
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def api_server(self, *extra: str) -> list[str]:
        authority = self.authority
        serving = authority.server("api-server", sorted({self.host, LOOPBACK, API_SERVICE}), SERVICE_NAMES)
        to_kubelets = authority.client("kube-apiserver-kubelet-client", "system:masters")
        return [
            str(binaries.control_plane() / "kube-apiserver"),
            f"--bind-address={self.host}",
            f"--advertise-address={self.host}",
            f"--secure-port={self.ports.api}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={authority.own.certificate}",
            f"--etcd-servers=http://{LOOPBACK}:{self.ports.etcd}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={authority.token_key()}",
            f"--service-account-signing-key-file={authority.token_key()}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            # Whether a pod may be privileged is for Pod Security to say.
            "--allow-privileged=true",
            f"--kubelet-certificate-authority={authority.own.certificate}",
            f"--kubelet-client-certificate={to_kubelets.certificate}",
            f"--kubelet-client-key={to_kubelets.key}",
            "--kubelet-preferred-address-types=InternalIP",
            "--profiling=false",
            f"--audit-policy-file={self._audit_policy()}",
            f"--audit-log-path={self.audit_log}",
            *extra,
        ]

    @property
    def audit_log(self) -> Path:
        return self.directory / "audit.log"

    def _audit_policy(self) -> Path:
        path = self.directory / "audit-policy.json"
        path.write_text(json.dumps(audit.POLICY))
        return path

    def controller_manager(self, *extra: str) -> list[str]:
        authority = self.authority
        return [
            str(binaries.control_plane() / "kube-controller-manager"),
            *self._as_client("system:kube-controller-manager", self.ports.controllers),
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={authority.token_key()}",
            f"--root-ca-file={authority.own.certificate}",
            f"--cluster-signing-cert-file={authority.own.certificate}",
            f"--cluster-signing-key-file={authority.own.key}",
            # Else it makes a folder in /usr.
            f"--flex-volume-plugin-dir={self.directory / 'volume-plugins'}",
            # Its first act is a service account for each of its controllers, and the default limit makes that take seconds.
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            # See the kubelet's lease.
            "--node-monitor-grace-period=25s",
            *extra,
        ]

    def scheduler(self) -> list[str]:
        return [str(binaries.node() / "kube-scheduler"), *self._as_client("system:kube-scheduler", self.ports.scheduler)]

    def _as_client(self, name: str, port: int) -> Sequence[str]:
        kubeconfig = self.kubeconfig_of(name)
        serving = self.authority.server(f"{name}-serving", [LOOPBACK])
        return (
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={port}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            # There is one of each: waiting for a lease would only make restarts slow.
            "--leader-elect=false",
            "--profiling=false",
        )

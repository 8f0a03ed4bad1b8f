"""An API server without nodes, for tests of the controller: real watches, conflicts, admission, finalizers and RBAC, but no pod
ever runs. The tests write the pods' status themselves.

    from devtools.kubernetes import start_api_server_only

    @pytest.fixture(scope="session")
    def api_server(tmp_path_factory):
        with start_api_server_only(tmp_path_factory.mktemp("api_server")) as server:
            yield server

    server.kubeconfig                           a file, for an administrator
    server.url, server.authority                https://127.0.0.1:<port>, and the file with the certificate to trust
    server.kubectl("get", "pods", "-A")         what it printed; CommandFailed with its words when it failed
    server.kubectl("apply", "-f", "-", manifest="...")
    server.get("pod", "driver", "-n", "team")   the object as a dict
    server.helm("install", ...)
    server.service_account_kubeconfig("team", "operator")     a file that has exactly that account's rights
    server.kill(), server.stop(), server.start()              the API server goes away and comes back: same port, same objects
    server.restart_api_server()
    with server.process.paused(): ...                         nobody answers; server.etcd is that behind it

All servers are on loopback, at ports of their own, so that several can run at once; they end with the block, or with the process.
"""

import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from devtools.kubernetes.control_plane import ControlPlane, Ports
from devtools.kubernetes.kube_client import KubeClient
from devtools.ports import LOOPBACK, free_port
from devtools.server_process import ServerProcess


class ApiServer(KubeClient):
    def __init__(self, plane: ControlPlane, process: ServerProcess, etcd: ServerProcess) -> None:
        super().__init__(plane.kubeconfig, plane.url, plane.authority.own.certificate, plane.directory)
        self.process = process
        self.etcd = etcd

    def start(self) -> None:
        """Returns when it answers that it is ready."""
        self.process.start()

    def stop(self) -> None:
        self.process.stop()

    def kill(self) -> None:
        self.process.kill()

    def restart_api_server(self) -> None:
        self.stop()
        self.start()


@contextmanager
def start_api_server_only(directory: Path, *, api_server_flags: tuple[str, ...] = ()) -> Iterator[ApiServer]:
    """etcd, kube-apiserver and kube-controller-manager with all its default controllers, in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    plane = ControlPlane(directory, LOOPBACK, _free_ports())
    trust = ssl.create_default_context(cafile=plane.authority.own.certificate)
    # Without nodes nobody asks for the addresses behind the API's own service, and loopback would be refused as one.
    flags = ("--endpoint-reconciler-type=none", *api_server_flags)
    with ExitStack() as running:

        def server(name: str, command: list[str], port: int, ready_path: str, tls: ssl.SSLContext | None) -> ServerProcess:
            log = directory / f"{name}.log"
            process = ServerProcess(command, port=port, ready_path=ready_path, log=log, environment={}, tls=tls)
            process.start()
            running.callback(process.stop)
            return process

        etcd = server("etcd", plane.etcd(), plane.ports.etcd, "/readyz", None)
        process = server("kube-apiserver", plane.api_server(*flags), plane.ports.api, "/readyz", trust)
        api_server = ApiServer(plane, process, etcd)
        server("kube-controller-manager", plane.controller_manager(), plane.ports.controllers, "/healthz", trust)
        api_server.wait_for_controllers()
        yield api_server


def _free_ports() -> Ports:
    """Apart from each other: none of them is bound yet while the next is looked for."""
    ports: set[int] = set()
    while len(ports) < 5:
        ports.add(free_port())
    return Ports(*ports)

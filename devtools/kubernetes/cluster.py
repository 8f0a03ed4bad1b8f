"""A whole cluster of one node, on which pods really run, and a second node for tests that take one away.

There is one on a machine at a time, because it has fixed addresses. It is kept up between test runs: `up` costs half a minute.

    cluster = Cluster()                        of the cache folder, running or not
    cluster.up(print)                          harmless when it is up
    cluster.kubectl(...), cluster.get(...), cluster.helm(...), cluster.kubeconfig     as for an API server only
    cluster.load_image(archive)                makes the images of an archive known to every node; their names
    cluster.host_address                       where servers of this machine can be reached from pods, if they listen there
    cluster.restart_api_server(), cluster.stop_api_server(), cluster.start_api_server()
    cluster.start_second_kubelet(), cluster.stop_second_kubelet()           a node that comes, and is lost
    cluster.stop_second_node()                                              it leaves, with all that runs on it
    cluster.down()                             leaves nothing running, mounted or routed

This machine reaches pods and services at their addresses. Pods reach this machine, each other and the API, and nothing else:
there is no way to the Internet, and no DNS. NetworkPolicies of pods of the first node are enforced, for
connections from everywhere but the node itself.
"""

import contextlib
import fcntl
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from devtools import cache
from devtools.kubernetes import audit, cgroups, debian, images, parts, readiness
from devtools.kubernetes.control_plane import SERVICE_RANGE, ControlPlane, Ports
from devtools.kubernetes.kube_client import KubeClient
from devtools.kubernetes.machine import ADDRESS, HOST_ADDRESS, Machine, MachineFailed
from devtools.kubernetes.node import POD_RANGE, Node
from devtools.kubernetes.parts import Progress

PORTS = Ports(api=6443, etcd=2379, etcd_peers=2380, controllers=10257, scheduler=10259)
SECOND_ADDRESS = "10.244.254.2"
#: What new images take of the disk, in their archives and unpacked on a node. A pod that finds it full says less.
LEAST_GIB = 6


class Cluster(KubeClient):
    host_address = HOST_ADDRESS

    def __init__(self) -> None:
        self._state = cache.cache_root().absolute() / "cluster"
        self._started = self._state / "started"
        self._machine = Machine(self._state, [POD_RANGE, SERVICE_RANGE])
        configuration = self._state / "configuration"
        self._first = Node(1, ADDRESS, configuration)
        self._second = Node(2, SECOND_ADDRESS, configuration)
        url = f"https://{ADDRESS}:{PORTS.api}"
        control = self._state / "control"
        super().__init__(control / "admin.kubeconfig", url, control / "pki" / "ca.crt", control)

    @property
    def logs(self) -> Path:
        return self._machine.logs

    def requests_of_accounts(self) -> list[audit.Request]:
        """What service accounts have asked since the cluster was made, but for those of Kubernetes itself."""
        return list(audit.read(self._plane().audit_log))

    def is_up(self) -> bool:
        """Wholly: not while it starts, nor after a start that was cut short."""
        init = self._machine.init
        return init is not None and self._started.exists() and self._started.read_text() == str(init)

    def require_judge(self) -> None:
        """Raise MachineFailed, with its last words, when what judges connections has ended: none comes through any more."""
        if self._machine.pid("network-policies") is None:
            raise MachineFailed(f"network-policies ended:\n{self._machine.last_words('network-policies')}")

    def up(self, say: Progress, *, keep: bool = False) -> None:
        """Returns when the node is ready. With `keep`, with the objects of the last time; images stay in any case."""
        with self._alone():
            if self.is_up():
                say("the cluster is running already")
            else:
                self._up(say, keep=keep)

    def down(self) -> None:
        """Harmless when it is down. Logs and images stay in the cache folder."""
        with self._alone():
            self._machine.destroy()

    def _up(self, say: Progress, *, keep: bool) -> None:
        self._check_room()
        parts.make_all(say)
        self._machine.destroy()
        self._clear(keep=keep)
        try:
            self._machine.boot()
            self._machine.run(*debian.node_tools().mount)
            self._start_control_plane(say)
            self._start_node(self._first, say)
            self._machine.start("kube-proxy", self._first.kube_proxy(self._plane()), self._first.environment)
            self._machine.start("network-policies", self._first.network_policies(self._plane()))
            self._machine.run(*self._first.judged_connections(), environment=self._first.environment)
            self._wait("network-policies", lambda: readiness.of_network_policies(self._machine))
            self._wait("kubelet@1", lambda: readiness.of_node(self, self._first))
            self.wait_for_controllers()
            self._started.write_text(str(self._machine.init))
            say("the node is ready")
        except BaseException:
            self._machine.destroy()
            say(f"the cluster did not come up; what its programs said is in {self.logs}")
            raise

    def _check_room(self) -> None:
        free = shutil.disk_usage(self._state).free / 2**30
        if free < LEAST_GIB:
            raise MachineFailed(
                f"{free:.1f} GiB of disk are free in {cache.cache_root()}, and a cluster with the images of this project needs "
                f"{LEAST_GIB} GiB; make room, or name another folder in CHECKPOINTED_WRITES_CACHE"
            )

    def load_image(self, archive: Path) -> list[str]:
        names = images.references(archive)
        for node in self._nodes():
            if not set(names) <= self._images_of(node).keys():
                self._machine.run(*node.ctr("images", "import", "--local", str(archive.absolute())))
                if old := images.replaced(names, self._images_of(node)):
                    # Waited for, as a cluster that is ended soon never gets the space back.
                    self._machine.run(*node.ctr("images", "remove", "--sync", *old))
        return names

    def _images_of(self, node: Node) -> dict[str, str]:
        """Return what a node has: names, and the digests that they stand for."""
        _, *lines = self._machine.run(*node.ctr("images", "list")).splitlines()
        return {fields[0]: fields[2] for fields in map(str.split, lines)}

    def start_api_server(self) -> None:
        self._machine.start("kube-apiserver", self._plane().api_server())
        self._wait("kube-apiserver", lambda: readiness.of_api(self))

    def stop_api_server(self, *, kill: bool = False) -> None:
        self._machine.stop("kube-apiserver", signal.SIGKILL if kill else signal.SIGTERM)

    def restart_api_server(self, *, kill: bool = False) -> None:
        """With `kill` as a power cut would. Returns when it answers again; its objects are in etcd all the while."""
        self.stop_api_server(kill=kill)
        self.start_api_server()

    def start_second_kubelet(self) -> None:
        """The node `node-2`, with a containerd and images of its own; after `stop_second_kubelet` the same node again."""
        if self._machine.pid("containerd@2") is None:
            self._machine.run("ip", "address", "replace", f"{SECOND_ADDRESS}/32", "dev", "lo")
            self._start_node(self._second, lambda text: None)
        else:
            self._start_kubelet(self._second)
        self._wait("kubelet@2", lambda: readiness.of_node(self, self._second))

    def stop_second_kubelet(self) -> None:
        """As if the node lost its network: its pods run on, and nobody hears of them. Seen as `NotReady` after 50 s."""
        self._machine.stop("kubelet@2", signal.SIGKILL)

    def stop_second_node(self) -> None:
        """The node leaves the cluster, with everything that runs on it. Harmless when it is not there."""
        self.stop_second_kubelet()
        if self._machine.pid("containerd@2") is not None:
            self._wait("containerd@2", self._ends_tasks_of_second_node)
            self._machine.stop("containerd@2")
        self.kubectl("delete", "node", self._second.name, "--ignore-not-found")

    def _ends_tasks_of_second_node(self) -> bool:
        """Whether nothing runs there any more, having told what does to end. What ends or begins just now cannot be told."""
        tasks = self._machine.run(*self._second.ctr("tasks", "list", "--quiet")).split()
        for task in tasks:
            with contextlib.suppress(MachineFailed):
                self._machine.run(*self._second.ctr("tasks", "delete", "--force", task))
        return not tasks

    @contextlib.contextmanager
    def reserved(self) -> Iterator[None]:
        """For one process, until it leaves or ends. Raises MachineFailed at once where another one has it."""
        self._state.mkdir(parents=True, exist_ok=True)
        with (self._state / "reserved").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise MachineFailed(
                    f"process {file.read().strip()} uses the cluster of this machine; wait until it ends"
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def _alone(self) -> AbstractContextManager[None]:
        self._state.mkdir(parents=True, exist_ok=True)
        return cache.locked(self._state / "lock")

    def _plane(self) -> ControlPlane:
        return ControlPlane(self._state / "control", ADDRESS, PORTS)

    def _nodes(self) -> list[Node]:
        return [node for node in (self._first, self._second) if self._machine.pid(f"containerd@{node.number}") is not None]

    def _clear(self, *, keep: bool) -> None:
        shutil.rmtree(self.logs, ignore_errors=True)
        if not keep:
            shutil.rmtree(self._state / "control", ignore_errors=True)
            for node in (self._first, self._second):
                shutil.rmtree(self._state / "var-lib" / node.name / "kubelet", ignore_errors=True)

    def _start_control_plane(self, say: Progress) -> None:
        plane = self._plane()
        self._machine.start("etcd", plane.etcd())
        self.start_api_server()
        say(f"the API server answers at {plane.url}")
        self._machine.start("kube-controller-manager", plane.controller_manager())
        self._machine.start("kube-scheduler", plane.scheduler())

    def _start_node(self, node: Node, say: Progress) -> None:
        cgroups.make(node.name)
        self._machine.start(f"containerd@{node.number}", node.containerd(), node.environment)
        self._wait(f"containerd@{node.number}", lambda: readiness.of_containerd(self._machine, node))
        # Of an earlier life of the node; no process of theirs is left.
        for container in self._machine.run(*node.ctr("containers", "list", "--quiet")).split():
            self._machine.run(*node.ctr("containers", "delete", container))
        self._machine.run(*node.ctr("images", "import", "--local", str(images.pause_archive())))
        say("containerd answers")
        self._start_kubelet(node)

    def _start_kubelet(self, node: Node) -> None:
        self._machine.start(f"kubelet@{node.number}", node.kubelet(self._plane()), node.environment)

    def _wait(self, program: str, done: Callable[[], bool]) -> None:
        readiness.wait(self._machine, program, done)

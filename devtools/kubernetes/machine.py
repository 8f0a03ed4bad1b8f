"""A machine inside the machine: processes, mounts, network, host name and /run of its own, as `kind` has it from a container.

Everything that the cluster starts, mounts, or writes into the kernel's tables is inside, down to what containerd's shims leave
behind, so that one kill ends it all: when the first process of a PID namespace dies, the kernel kills the others, and mounts,
bridges, iptables rules and network namespaces go with them. That holds after a crash of whoever started it, too.

Outside there are: one end of a network cable, two routes through it, and a cgroup. `destroy` removes them.
"""

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from devtools import build_tools
from devtools.kubernetes import cgroups, processes

# Names the machine in the environment of all its processes: found by it, they need no file of process ids, which could lie.
MACHINE_VARIABLE = "CHECKPOINTED_WRITES_MACHINE"
PROGRAM_VARIABLE = "CHECKPOINTED_WRITES_PROGRAM"
CABLE = "cw-cluster"
LINK_RANGE = "10.244.255.0/30"
HOST_ADDRESS = "10.244.255.1"
ADDRESS = "10.244.255.2"
SECONDS = 30.0
# Adopts and forgets whoever lost its parent, as an init does.
INIT = "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nwhile True:\n    signal.pause()\n"
# Places that programs write to wherever they are told to keep their data.
OWN_FOLDERS = ("/var/lib", "/var/log")


#: Of its own: all that programs, mounts and kernel tables live in.
NAMESPACES = ("--fork", "--pid", "--mount", "--mount-proc", "--net", "--uts", "--ipc")


class MachineFailed(Exception):
    pass


#: What a machine is made with, tried in namespaces that end at once: a cable, and packages laid over /usr.
_TRIAL = """set -e
ip link add cw-trial type veth peer name cw-trial-end
mount -t tmpfs tmpfs /mnt
mkdir /mnt/over
mount -t overlay -o lowerdir=/mnt/over:/usr overlay /usr
"""


@functools.cache
def why_impossible() -> str | None:
    """Return why this process cannot make a machine, say in a container that keeps it from namespaces; None if it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "it takes root on Linux"
    try:
        tried = subprocess.run(["unshare", *NAMESPACES, "sh", "-c", _TRIAL], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "it takes `unshare` of util-linux"
    if tried.returncode != 0:
        return f"it takes namespaces with network devices and overlay mounts of their own: {tried.stderr.strip()}"
    try:
        cgroups.make("trial")
        cgroups.remove_one("trial")
    except OSError as error:
        return f"it takes cgroups of its own: {error}"
    return None


class Machine:
    """`state` keeps what is in /var/lib and /var/log; a machine that is booted on the same folder finds it again."""

    def __init__(self, state: Path, routes: Sequence[str]) -> None:
        self.state = state
        self.logs = state / "logs"
        self._routes = routes

    @property
    def init(self) -> int | None:
        """The id of the machine's first process; None when there is no machine."""
        return next((pid for pid in self._processes() if processes.inner_pid(pid) == 1), None)

    def boot(self) -> None:
        if os.geteuid() != 0:
            raise MachineFailed("the test cluster needs root; or use `make cluster CLUSTER=kind`, which needs Docker")
        _refuse_taken_ranges([LINK_RANGE, *self._routes])
        self.logs.mkdir(parents=True, exist_ok=True)
        # The command ends when the machine's first process does; it is nobody's child, so that it outlives the caller.
        command = ["setsid", "--fork", "unshare", *NAMESPACES, sys.executable, "-I", "-S", "-c", INIT]
        # It outlives the caller, so it must hold none of the caller's pipes open.
        none = subprocess.DEVNULL
        subprocess.run(command, env=self._environment("init"), check=True, stdin=none, stdout=none, stderr=none)
        _wait_for("the first process of the machine", lambda: self.init is not None)
        self._plug_in(self._require_init())
        self._mount_own_folders()

    def destroy(self) -> None:
        """Ends everything at once, also what is left of a machine whose start was cut short. Harmless when there is nothing."""
        for pid in self._processes():
            processes.kill(pid, signal.SIGKILL)
        _wait_for("the end of the machine's processes", lambda: not self._processes() and not cgroups.processes())
        cgroups.remove()
        # The kernel takes the cable away with the network namespace, but in its own time.
        if (Path("/sys/class/net") / CABLE).exists():
            subprocess.run(["ip", "link", "delete", CABLE], check=False, capture_output=True)
        _wait_for("the end of the machine's network", lambda: not (Path("/sys/class/net") / CABLE).exists())

    def run(self, *command: str, environment: Mapping[str, str] | None = None) -> str:
        """Inside, to its end; what it printed. Raises MachineFailed with its last words."""
        done = subprocess.run(
            [*self._enter(), *command],
            env=self._environment("command", environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise MachineFailed(
                f"{' '.join(command[:4])} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
            )
        return done.stdout

    def start(self, program: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """In the background, until it is stopped or the machine ends. It writes to `<program>.log`."""
        if self.pid(program) is not None:
            raise MachineFailed(f"{program} is running already")
        with (self.logs / f"{program}.log").open("ab") as log:
            # The shell leaves it to the machine's first process and ends.
            in_background = ["sh", "-c", '"$@" </dev/null &', "sh", *command]
            subprocess.run(
                [*self._enter(), *in_background],
                env=self._environment(program, environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=True,
                start_new_session=True,
            )
        _wait_for(f"the start of {program}: see {self.logs / program}.log", lambda: self.pid(program) is not None)

    def stop(self, program: str, signal_number: signal.Signals = signal.SIGTERM) -> None:
        """Returns when it is gone. Programs that it started itself stay."""
        pid = self.pid(program)
        if pid is not None:
            processes.kill(pid, signal_number)
            _wait_for(f"the end of {program}", lambda: processes.has_ended(pid))

    def pid(self, program: str) -> int | None:
        """Of the program itself, as the outside knows it. `kubelet@2` is a second one of the program `kubelet`."""
        for pid in self._processes():
            marked = processes.environment(pid).get(PROGRAM_VARIABLE) == program
            if marked and processes.executable(pid) == program.partition("@")[0]:
                return pid
        return None

    def last_words(self, program: str) -> str:
        return (self.logs / f"{program}.log").read_text(errors="replace")[-4000:]

    def _plug_in(self, init: int) -> None:
        _ip("link", "add", CABLE, "type", "veth", "peer", "name", "eth0", "netns", str(init))
        _ip("address", "add", f"{HOST_ADDRESS}/30", "dev", CABLE)
        _ip("link", "set", CABLE, "up")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "address", "add", f"{ADDRESS}/30", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")
        self.run("ip", "route", "add", "default", "via", HOST_ADDRESS)
        self.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        for route in self._routes:
            _ip("route", "add", route, "via", ADDRESS, "dev", CABLE)

    def _mount_own_folders(self) -> None:
        self.run("hostname", "tests")
        # What is mounted in here is passed on to containers; nothing is passed on to the outside.
        self.run("mount", "--make-rshared", "/")
        for folder in OWN_FOLDERS:
            if self.state.is_relative_to(folder):
                raise MachineFailed(f"the cache folder must not be inside {folder}: the test cluster has a {folder} of its own")
            own = self.state / folder.strip("/").replace("/", "-")
            own.mkdir(exist_ok=True)
            self.run("mount", "--bind", str(own), folder)
        self.run("mount", "-t", "tmpfs", "tmpfs", "/run")

    def _enter(self) -> list[str]:
        return ["nsenter", f"--target={self._require_init()}", "--pid", "--mount", "--net", "--uts", "--ipc", "--"]

    def _environment(self, program: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
        own = {MACHINE_VARIABLE: str(self.state), PROGRAM_VARIABLE: program, "LANG": "C.UTF-8"}
        return {"PATH": os.environ.get("PATH", os.defpath), **(more or {}), **own}

    def _require_init(self) -> int:
        init = self.init
        if init is None:
            raise MachineFailed("the cluster is not running: make cluster")
        return init

    def _processes(self) -> list[int]:
        return processes.with_variable(MACHINE_VARIABLE, str(self.state))


def _refuse_taken_ranges(ranges: Sequence[str]) -> None:
    for taken in ranges:
        routes = subprocess.run(["ip", "route", "show", "root", taken], capture_output=True, text=True, check=True).stdout
        if routes.strip():
            raise MachineFailed(f"this machine uses addresses that the test cluster needs ({taken}): {routes.strip()}")


def _ip(*arguments: str) -> None:
    build_tools.run([build_tools.find("ip"), *arguments])


def _wait_for(what: str, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise MachineFailed(f"waited {SECONDS:.0f} s for {what}")
        time.sleep(0.02)

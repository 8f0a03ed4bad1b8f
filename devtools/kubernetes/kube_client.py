"""What every cluster offers to a test: a kubeconfig, kubectl and helm, and kubeconfigs of less mighty users."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from devtools.kubernetes import binaries
from devtools.kubernetes.certificates import write_kubeconfig

COMMAND_SECONDS = 120.0


class CommandFailed(Exception):
    """kubectl or helm ended with an error; the text is what it said."""


class KubeClient:
    def __init__(self, kubeconfig: Path, url: str, authority: Path, directory: Path) -> None:
        self.kubeconfig = kubeconfig
        self.url = url
        self.authority = authority
        self._directory = directory

    def kubectl(self, *arguments: str, manifest: str | None = None, seconds: float = COMMAND_SECONDS) -> str:
        """What it printed. `manifest` goes to its standard input: `kubectl("apply", "-f", "-", manifest=...)`."""
        return _output([str(binaries.control_plane() / "kubectl"), *arguments], self._environment(), manifest, seconds)

    def get(self, *arguments: str) -> Any:
        """`kubectl get` as the objects that it is about: `get("pod", "driver", "-n", "team")`."""
        return json.loads(self.kubectl("get", "-o", "json", *arguments))

    def helm(self, *arguments: str) -> str:
        return _output([str(binaries.helm()), *arguments], self._environment(), None)

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """To act with exactly the rights of a service account, for an hour."""
        token = self.kubectl("create", "token", name, "--namespace", namespace).strip()
        path = self._directory / f"{namespace}-{name}.kubeconfig"
        return write_kubeconfig(path, self.url, self.authority, {"token": token})

    def wait_for_controllers(self) -> None:
        """Until all controllers run, of which one makes the first service account.

        An API server that is killed before takes the controller manager with it; later they wait for each other.
        """
        deadline = time.monotonic() + COMMAND_SECONDS
        while "default" not in self.kubectl("get", "serviceaccounts", "-o", "name"):
            if time.monotonic() > deadline:
                raise CommandFailed(f"no controller made a service account within {COMMAND_SECONDS:.0f} s")
            time.sleep(0.1)

    def wait_for_kinds(self) -> None:
        """Until objects can be made of every custom kind. (`kubectl wait` gives up on one whose conditions are not there yet.)"""
        deadline = time.monotonic() + COMMAND_SECONDS
        while not all(map(_is_established, self.get("crd")["items"])):
            if time.monotonic() > deadline:
                raise CommandFailed(f"the custom kinds were not established within {COMMAND_SECONDS:.0f} s")
            time.sleep(0.1)

    def _environment(self) -> dict[str, str]:
        # A developer's own clusters, plugins and chart repositories must not reach a test.
        home = self._directory / "home"
        home.mkdir(parents=True, exist_ok=True)
        return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "KUBECONFIG": str(self.kubeconfig)}


def _is_established(kind: Any) -> bool:
    conditions = (kind.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)


def _output(command: list[str], environment: dict[str, str], text: str | None, seconds: float = COMMAND_SECONDS) -> str:
    program = f"{Path(command[0]).name} {' '.join(command[1:3])}"
    try:
        # An empty input rather than the terminal's: no command may wait for somebody to type.
        done = subprocess.run(
            command, env=environment, input=text or "", capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise CommandFailed(f"{program} did not end within {seconds:.0f} s") from late
    if done.returncode != 0:
        raise CommandFailed(f"{program} ended with {done.returncode}:\n{done.stderr[-4000:]}{done.stdout[-1000:]}")
    return done.stdout

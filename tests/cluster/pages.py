"""Somebody who types what a page says, into a shell that has kubectl and helm for the cluster of the tests."""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from devtools.kubernetes import binaries
from tests.cluster.installation import NAMESPACE, RELEASE, ROOT, Installation
from tests.cluster.user import User
from tests.support.waiting import patience, until

#: The workload namespace of all pages.
PAGES_NAMESPACE = "checkpointed-writes"
_INSTALL, _UNINSTALL = "docs/operations/install.md", "docs/operations/uninstall.md"


def blocks(document: str) -> list[str]:
    found = re.findall(r"^ *```(?:console|sh)\n(.*?)^ *```", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(text) for text in found]


def block(document: str, beginning: str) -> str:
    """Return the first block of a page whose first command begins so."""
    return next(text for text in blocks(document) if text.removeprefix("$ ").startswith(beginning))


def commands(document: str, beginning: str) -> list[str]:
    """Return the commands of the block that begins so, each with the lines that it goes on in."""
    return [_command(text) for text in re.split(r"^\$ ", block(document, beginning), flags=re.MULTILINE)[1:]]


def said(document: str, words: str) -> str:
    """Return the command that stands within a sentence of a page."""
    text = " ".join((ROOT / document).read_text().split())
    assert f"`{words}`" in text, f"{document} does not say {words} any more"
    return words


def _command(text: str) -> str:
    lines = text.splitlines()
    until_line = 1
    while lines[until_line - 1].endswith("\\"):
        until_line += 1
    if "<<EOF" in lines[0]:
        until_line = lines.index("EOF") + 1
    return "\n".join(lines[:until_line])


@dataclass
class Reader:
    """Works in a folder that looks like a clone, in which my-values.yaml and the examples fit this installation."""

    installation: Installation
    folder: Path
    #: Whether what is installed is as the page says.
    _is_pages: bool = field(default=False)
    _users: list[User] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "bin").mkdir()
        for program in (binaries.control_plane() / "kubectl", binaries.helm()):
            (self.folder / "bin" / program.name).symlink_to(program)
        (self.folder / "charts").symlink_to(ROOT / "charts")
        self._checked = f"s3://{self.installation.lake.s3.make_bucket(f'b-{uuid.uuid4().hex[:12]}')}/"

    # --- type -------------------------------------------------------------------------------------------------------------

    def start(self, line: str) -> subprocess.Popen[str]:
        """Start what does not end by itself."""
        return subprocess.Popen(
            ["/bin/bash", "-c", f"exec {line}"],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def ended(self, line: str) -> tuple[int, str]:
        """Run a line; return its exit code and what it printed."""
        done = subprocess.run(
            ["/bin/bash", "-c", line],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=patience(100),
        )
        return done.returncode, done.stdout

    def run(self, line: str) -> str:
        code, printed = self.ended(line)
        assert code == 0, f"{line}\n{printed}\n{self.installation.logs()}"
        return printed

    def follow(self, document: str, beginning: str) -> str:
        """Run the block that begins so, command by command; return what was printed."""
        return "".join(self.run(line) for line in commands(document, beginning))

    def _environment(self) -> dict[str, str]:
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return {"PATH": path, "HOME": str(self.folder), "KUBECONFIG": str(self.installation.cluster.kubeconfig)}

    # --- install and uninstall --------------------------------------------------------------------------------------------

    def install(self) -> str:
        """As the page says, in place of what other tests have; return what was printed. Only the first time."""
        if self._is_pages and self.is_installed():
            return ""
        self.uninstall_what_is_there()
        self.installation.load_images()
        self.put_values(PAGES_NAMESPACE)
        printed = self.follow(_INSTALL, "helm install")
        self.installation.wait_ready()
        self._is_pages = True
        return printed

    def is_installed(self) -> bool:
        return self.ended(f"helm status {RELEASE} -n {NAMESPACE}")[0] == 0

    def put_values(self, *namespaces: str, **values: object) -> None:
        """Write my-values.yaml: the images, the catalog and the storage of the installation."""
        made = {**self.installation.values(), "watch": {"namespaces": list(namespaces)}, **values}
        # Not only buckets that are yet to come: those are not checked.
        made["settings"]["storage"].append(made["settings"]["storage"][0] | {"prefix": self._checked})
        (self.folder / "my-values.yaml").write_text(yaml.safe_dump(made))

    def uninstall_what_is_there(self) -> None:
        self._is_pages = False
        if self.is_installed():
            self.follow(_UNINSTALL, "kubectl delete")
        self.installation.forget()

    def leave(self) -> None:
        """Leave nothing to other tests but the CRD."""
        self.uninstall_what_is_there()
        self.run(f"kubectl delete namespace {PAGES_NAMESPACE} --ignore-not-found")

    def until_gone(self, what: str) -> None:
        until(lambda: not self.run(f"kubectl get {what} --ignore-not-found"), f"the end of {what}", 100, every=0.5)

    def user(self, name: str, namespace: str = PAGES_NAMESPACE) -> User:
        """Return somebody who works with a write of that name."""
        folder = self.folder / f"{name}-{len(list(self.folder.iterdir()))}"
        folder.mkdir()
        self._users.append(User(self.installation, folder, name=name, namespace=namespace))
        return self._users[-1]

    def clear(self) -> None:
        """Delete the writes that are there, if there is somebody who lets go of them."""
        users, self._users = self._users, []
        for user in users:
            user.open_barrier()
        if not self.is_installed():
            return
        for user in users:
            user.leave()
        for namespace in {user.namespace for user in users}:
            self.until_gone(f"cw -n {namespace}")

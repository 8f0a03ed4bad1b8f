"""Who is who in a cluster: one authority, a certificate for each program, and kubeconfigs that hold all they need.

Everything is made anew for each cluster, with the `openssl` command, and is worth nothing anywhere else.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from devtools import build_tools

DAYS = "30"


@dataclass(frozen=True)
class KeyPair:
    certificate: Path
    key: Path


class Authority:
    """Signs for one cluster; what was made before in the same folder is kept, so that a restart changes nobody's identity."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._openssl = build_tools.find("openssl")
        self.own = KeyPair(directory / "ca.crt", directory / "ca.key")
        if not self.own.certificate.exists():
            self._make("ca", "/CN=checkpointed-writes-tests", ["basicConstraints=critical,CA:TRUE", "keyUsage=keyCertSign"], [])

    def client(self, name: str, *groups: str) -> KeyPair:
        return self._signed(name, groups, ["extendedKeyUsage=clientAuth"])

    def server(self, name: str, addresses: Sequence[str], hosts: Sequence[str] = ()) -> KeyPair:
        names = ",".join([*(f"IP:{address}" for address in addresses), *(f"DNS:{host}" for host in hosts)])
        return self._signed(name, (), ["extendedKeyUsage=serverAuth", f"subjectAltName={names}"])

    def token_key(self) -> Path:
        """Signs the tokens of service accounts."""
        key = self._directory / "service-accounts.key"
        if not key.exists():
            build_tools.run([self._openssl, "genrsa", "-out", str(key), "2048"])
        return key

    def kubeconfig(self, server: str, path: Path, name: str, *groups: str) -> Path:
        """A file that lets a program be `name` at `server`; it names no other file, so it can be copied anywhere."""
        pair = self.client(name, *groups)
        user = {"client-certificate-data": _encoded(pair.certificate), "client-key-data": _encoded(pair.key)}
        return write_kubeconfig(path, server, self.own.certificate, user)

    def _signed(self, name: str, groups: Sequence[str], extensions: list[str]) -> KeyPair:
        file_name = name.replace(":", "-")
        pair = KeyPair(self._directory / f"{file_name}.crt", self._directory / f"{file_name}.key")
        if not pair.certificate.exists():
            subject = "".join([*(f"/O={group}" for group in groups), f"/CN={name}"])
            signer = ["-CA", str(self.own.certificate), "-CAkey", str(self.own.key)]
            self._make(file_name, subject, ["basicConstraints=critical,CA:FALSE", *extensions], signer)
        return pair

    def _make(self, file_name: str, subject: str, extensions: list[str], signer: list[str]) -> None:
        # A configuration of our own: the machine's may add extensions that contradict these.
        configuration = self._directory / "openssl.cnf"
        configuration.write_text("[req]\ndistinguished_name=name\n[name]\n")
        unfinished = self._directory / f"{file_name}.unfinished"
        build_tools.run(
            [
                *(self._openssl, "req", "-x509", "-config", str(configuration), "-nodes", "-days", DAYS, "-subj", subject),
                *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
                *("-keyout", str(self._directory / f"{file_name}.key"), "-out", str(unfinished), *signer),
                *(argument for extension in extensions for argument in ("-addext", extension)),
            ]
        )
        unfinished.rename(self._directory / f"{file_name}.crt")


def write_kubeconfig(path: Path, server: str, authority: Path, user: dict[str, str]) -> Path:
    cluster = {"server": server, "certificate-authority-data": _encoded(authority)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "tests", "user": user}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
        "current-context": "tests",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    # JSON is YAML.
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()

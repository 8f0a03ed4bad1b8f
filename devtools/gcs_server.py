"""A server of Google Cloud Storage: fake-gcs-server, with an XML API of ours before it (`gcs_server.go` says whose is what)."""

import hashlib
import http.client
import json
from pathlib import Path
from urllib.parse import urlparse

from devtools import build_tools, cache
from devtools.ports import LOOPBACK, free_port
from devtools.server_process import Server, ServerProcess

MODULE = "github.com/fsouza/fake-gcs-server"
VERSION = "v1.56.1"
SOURCE = Path(__file__).with_name("gcs_server.go")


def gcs_binary() -> Path:
    made_of = hashlib.sha256(f"{VERSION} {SOURCE.read_text()}".encode()).hexdigest()[:12]
    return cache.ensure(f"gcs-server-{VERSION}-{made_of}", _build) / "gcs-server"


def _build(target: Path) -> None:
    go = build_tools.find("go")
    (target / "go.mod").write_text(f"module gcs\ngo 1.25.0\nrequire {MODULE} {VERSION}\n")
    (target / "main.go").write_bytes(SOURCE.read_bytes())
    command = [go, "build", "-trimpath", "-mod=mod", "-ldflags=-s -w", "-o", str(target / "gcs-server"), "."]
    build_tools.fetch(command, environment={"CGO_ENABLED": "0"}, cwd=target)


class GcsServer(Server):
    """Runs inside `with`. What it has is gone when it ends. Buckets named public-* are for anybody, others need the key."""

    def __init__(self, directory: Path, host: str = LOOPBACK) -> None:
        port = free_port(host)
        self.endpoint = f"http://{host}:{port}"
        self.key_file = directory / "service_account.json"
        self._process = ServerProcess(
            [str(gcs_binary()), f"{host}:{port}", str(self.key_file)],
            host=host,
            port=port,
            ready_path="/_internal/healthcheck",
            log=directory / "gcs_server.log",
            environment={},
        )

    @property
    def token(self) -> str:
        """A token as one gets it for the key, without an end."""
        return self.key_file.with_name(f"{self.key_file.name}.token").read_text()

    def make_bucket(self, name: str) -> str:
        """By the JSON API."""
        connection = http.client.HTTPConnection(urlparse(self.endpoint).netloc, timeout=30)
        try:
            connection.request("POST", "/storage/v1/b", json.dumps({"name": name}))
            if (answer := connection.getresponse()).status != http.HTTPStatus.OK:
                raise ValueError(f"no bucket {name!r}: {answer.read()!r}")
        finally:
            connection.close()
        return name

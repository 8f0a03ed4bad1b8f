"""Azure Blob Storage: Microsoft's own emulator, Azurite, which keeps everything in memory."""

import base64
import hashlib
import hmac
import http.client
import secrets
import socket
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from devtools import build_tools, cache
from devtools.ports import LOOPBACK, free_port
from devtools.server_process import Server, ServerProcess

#: The last one for Node 20.
VERSION = "3.35.0"
API_VERSION = "2025-07-05"


def azurite_script() -> Path:
    return cache.ensure(f"azurite-{VERSION}", _install) / "node_modules/azurite/dist/src/blob/main.js"


def _install(target: Path) -> None:
    options = ("--no-audit", "--no-fund", "--ignore-scripts", f"--prefix={target}")
    build_tools.fetch([build_tools.find("npm"), "install", *options, f"azurite@{VERSION}"], cwd=target)


class AzureServer(Server):
    """Runs inside `with`. Started again it has the same port and keys, and no containers."""

    def __init__(self, directory: Path, host: str = LOOPBACK) -> None:
        self.account = f"account{secrets.token_hex(4)}"
        self.key = base64.b64encode(secrets.token_bytes(64)).decode()
        self._address = host, free_port(host)
        self.endpoint = f"http://{host}:{self._address[1]}/{self.account}"
        self._process = ServerProcess(
            [
                *(build_tools.find("node"), str(azurite_script())),
                *(f"--blobHost={host}", f"--blobPort={self._address[1]}", "--inMemoryPersistence"),
                *("--silent", "--skipApiVersionCheck", "--disableTelemetry", "--disableProductStyleUrl"),
            ],
            host=host,
            port=self._address[1],
            is_ready=self._answers,
            log=directory / "azure_server.log",
            environment={"AZURITE_ACCOUNTS": f"{self.account}:{self.key}"},
        )

    def make_bucket(self, name: str) -> str:
        """Make a container, which obstore cannot. Three or more characters."""
        self.request("PUT", name, "restype=container")
        return name

    def sas_token(self, lifetime: timedelta) -> str:
        """A token of the account for all of its containers. https://learn.microsoft.com/rest/api/storageservices/create-account-sas"""
        end = (datetime.now(UTC) + lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")
        said = {"sp": "rwdlac", "ss": "b", "srt": "sco", "st": "", "se": end, "sip": "", "spr": "https,http", "sv": API_VERSION}
        signed = "\n".join([self.account, *said.values(), "", ""])
        digest = hmac.digest(base64.b64decode(self.key), signed.encode(), hashlib.sha256)
        given = {name: value for name, value in said.items() if value}
        return urlencode({**given, "sig": base64.b64encode(digest).decode()})

    def request(self, method: str, path: str, query: str, **headers: str) -> None:
        """Send a request that obstore does not know, signed by the account's key. Header names are written with _ for -."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        ours = dict(sorted({**named, "x-ms-date": formatdate(usegmt=True), "x-ms-version": API_VERSION}.items()))
        signed = [method, "", "", "", *[""] * 8, *(f"{name}:{value}" for name, value in ours.items())]
        signed += [f"/{self.account}/{self.account}/{path}", *(f"{name}:{value}" for name, value in sorted(parse_qsl(query)))]
        digest = hmac.digest(base64.b64decode(self.key), "\n".join(signed).encode(), hashlib.sha256)
        signature = base64.b64encode(digest).decode()
        connection = http.client.HTTPConnection(*self._address, timeout=30)
        try:
            connection.request(
                method,
                f"/{self.account}/{path}?{query}",
                b"",
                {**ours, "Content-Length": "0", "Authorization": f"SharedKey {self.account}:{signature}"},
            )
            answer = connection.getresponse()
            if answer.status >= http.HTTPStatus.BAD_REQUEST:
                raise ValueError(f"{method} {path}?{query}: {answer.status} {answer.read().decode(errors='replace')}")
        finally:
            connection.close()

    def _answers(self) -> bool:
        try:
            socket.create_connection(self._address, timeout=5).close()
        except OSError:
            return False
        return True

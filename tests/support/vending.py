"""A REST catalog, or Lance namespace, that hands out keys with its tables, which an S3 server lets in while they live."""

from __future__ import annotations

import json
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from devtools.ports import LOOPBACK
from devtools.s3_server import S3Server
from tests.support.http_server import serving_by

#: What a server may not choose, and sends with each table.
UNWANTED = {
    "s3.endpoint": "http://127.0.0.1:9",
    "s3.region": "elsewhere",
    "client.region": "elsewhere",
    "py-io-impl": "no_such_module.Files",
    "token": "another token",
    "s3.signer": "S3V4RestSigner",
}


@dataclass
class Vending:
    """`handed`: the access keys so far. `as_config`: they come as properties of the table, and not by prefix."""

    s3: S3Server
    lifetime_s: float
    as_config: bool = False
    uri: str = ""
    handed: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    #: The catalog hands out no more keys.
    is_refusing: bool = False
    #: The store does not let in those that it hands out.
    are_worthless: bool = False
    _living: set[str] = field(default_factory=set)
    _ends: list[threading.Timer] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hand_out(self) -> tuple[str, str, str]:
        """Return access key, secret key, and the end in milliseconds."""
        access, secret = secrets.token_hex(10), secrets.token_hex(20)
        if not self.are_worthless:
            self.s3.make_user(access, secret)
        ends_ms = int((time.time() + self.lifetime_s) * 1000)
        end = threading.Timer(self.lifetime_s, self._end, [access])
        with self._lock:
            self.handed.append(access)
            self._living.add(access)
            self._ends.append(end)
        end.start()
        return access, secret, str(ends_ms)

    def end_all(self) -> None:
        """Let none of the keys in that were handed out so far."""
        for access in list(self._living):
            self._end(access)

    def _end(self, access: str) -> None:
        with self._lock:
            if access not in self._living:
                return
            self._living.remove(access)
        with suppress(ValueError):
            self.s3.remove_user(access)
        self.ended.append(access)

    def with_keys(self, answer: dict[str, Any]) -> dict[str, Any]:
        access, secret, ends_ms = self.hand_out()
        if "metadata" not in answer:  # of a Lance namespace
            keys = {"aws_access_key_id": access, "aws_secret_access_key": secret, "expires_at_millis": ends_ms}
            return {**answer, "storage_options": {"aws_endpoint": "http://127.0.0.1:9", "aws_region": "elsewhere", **keys}}
        keys = {"s3.access-key-id": access, "s3.secret-access-key": secret, "s3.session-token-expires-at-ms": ends_ms}
        if self.as_config:
            return {**answer, "config": {**UNWANTED, **keys}}
        by_prefix = [{"prefix": answer["metadata"]["location"], "config": {**UNWANTED, **keys}}]
        return {**answer, "config": UNWANTED, "storage-credentials": by_prefix}

    def close(self) -> None:
        for end in self._ends:
            end.cancel()


@contextmanager
def vending(
    behind: str, s3: S3Server, lifetime_s: float = 3_600.0, *, as_config: bool = False, host: str = LOOPBACK
) -> Iterator[Vending]:
    """Serve what is at the address `behind`, with keys for its tables, while the body runs."""
    front = Vending(s3, lifetime_s, as_config)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, text = _ask(f"{behind}{self.path}", self.command, body)
            has_keys = (self.command == "GET" and b'"metadata-location"' in text) or "/describe?" in self.path
            if status == 200 and has_keys:
                if front.is_refusing:
                    refusal = {"message": "no keys for you", "type": "ForbiddenException", "code": 403}
                    status, text = 403, json.dumps({"error": refusal}).encode()
                else:
                    text = json.dumps(front.with_keys(json.loads(text))).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else text)

        do_GET = do_POST = do_DELETE = do_HEAD = _answer  # noqa: N815 the names of http.server

        def log_message(self, *_: Any) -> None:
            pass

    with serving_by(Handler, host) as front.uri:
        try:
            yield front
        finally:
            front.close()


def _ask(url: str, method: str, body: bytes) -> tuple[int, bytes]:
    request = urllib.request.Request(url, body or None, {"Content-Type": "application/json"}, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310 a server of the test
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()

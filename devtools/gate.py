"""A gate before an HTTP server: one request can be held, on its way there or its answer on the way back, as networks do.

with Gate(catalog.uri) as gate:
    held = gate.hold(is_commit)             the next request that is one
    held.wait(30)                           it has come, and its sender waits
    held.let_go()                           it goes on, whether its sender still lives or not
    held.answer_status(30)                  what the server said to it
"""

from __future__ import annotations

import http.client
import threading
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Literal, Self

from devtools.ports import LOOPBACK, free_port

#: Method, path and body.
Matches = Callable[[str, str, bytes], bool]


@dataclass
class Held:
    """One request in the gate's hands."""

    matches: Matches
    side: Literal["request", "answer"]
    _come: threading.Event = field(default_factory=threading.Event)
    _gone: threading.Event = field(default_factory=threading.Event)
    _answered: threading.Event = field(default_factory=threading.Event)
    _status: int | None = None

    def wait(self, seconds: float) -> None:
        assert self._come.wait(seconds), f"no such request came within {seconds:.0f} s"

    def let_go(self) -> None:
        self._gone.set()

    def answer_status(self, seconds: float) -> int:
        assert self._answered.wait(seconds), f"the server has not answered within {seconds:.0f} s"
        assert self._status is not None
        return self._status

    def stop_here(self, side: str) -> None:
        if side == self.side:
            self._come.set()
            self._gone.wait()

    def note(self, status: int) -> None:
        self._status = status
        self._answered.set()


class Gate:
    """Runs inside `with`, at `uri`; everything passes but what is held."""

    def __init__(self, upstream: str, host: str = LOOPBACK) -> None:
        self._upstream = urllib.parse.urlsplit(upstream).netloc
        self._armed: list[Held] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer((host, free_port(host)), self._handler())
        self._server.daemon_threads = True
        self.uri = f"http://{host}:{self._server.server_address[1]}"

    def hold(self, matches: Matches, side: Literal["request", "answer"] = "request") -> Held:
        """Hold the next request that matches; those after it pass."""
        held = Held(matches, side)
        with self._lock:
            self._armed.append(held)
        return held

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, name="gate", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for held in self._armed:
            held.let_go()
        self._server.shutdown()
        self._server.server_close()

    def _take(self, method: str, path: str, body: bytes) -> Held | None:
        with self._lock:
            for held in self._armed:
                if held.matches(method, path, body):
                    self._armed.remove(held)
                    return held
        return None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        gate = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                held = gate._take(self.command, self.path, body)
                if held is not None:
                    held.stop_here("request")
                onward = http.client.HTTPConnection(gate._upstream, timeout=60)
                try:
                    headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
                    onward.request(self.command, self.path, body or None, headers)
                    answer = onward.getresponse()
                    content = answer.read()
                finally:
                    onward.close()
                if held is not None:
                    held.note(answer.status)
                    held.stop_here("answer")
                try:
                    self._give_back(answer, content)
                except OSError:
                    self.close_connection = True  # nobody waits for it any more

            def _give_back(self, answer: http.client.HTTPResponse, content: bytes) -> None:
                self.send_response(answer.status, answer.reason)
                for name, value in answer.getheaders():
                    if name.lower() not in ("connection", "content-length", "transfer-encoding", "date", "server"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_POST = do_DELETE = do_HEAD = _pass  # noqa: N815 - the base class looks for these names

            def log_message(self, format: str, *arguments: object) -> None:
                """Say nothing: the server behind the gate has a log."""

        return Handler

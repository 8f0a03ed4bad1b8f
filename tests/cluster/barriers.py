"""Barriers at which steps in pods wait until a test opens them: what is killed in the middle is surely in the middle.

with Barriers(cluster.host_address) as barriers:
    barrier = barriers.make()
    urllib.request.urlopen(barrier.uri)     in a step: answered once the barrier is open
    barrier.open()                          in the test
"""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from devtools.ports import free_port


@dataclass(frozen=True)
class Barrier:
    uri: str
    _is_open: threading.Event = field(default_factory=threading.Event)

    def open(self) -> None:
        """Let all pass who wait, and all who come. Harmless when it is open."""
        self._is_open.set()

    def wait(self) -> None:
        self._is_open.wait()


class Barriers:
    """Serves them inside `with`; at its end all are opened."""

    def __init__(self, host: str) -> None:
        self._made: dict[str, Barrier] = {}
        self._server = ThreadingHTTPServer((host, free_port(host)), self._handler())
        self._server.daemon_threads = True
        self._uri = f"http://{host}:{self._server.server_address[1]}"

    def make(self) -> Barrier:
        path = f"/{uuid.uuid4().hex}"
        self._made[path] = Barrier(f"{self._uri}{path}")
        return self._made[path]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, name="barriers", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for barrier in self._made.values():
            barrier.open()
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        made = self._made

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                made[self.path].wait()
                try:
                    self.send_response(204)
                    self.end_headers()
                except OSError:
                    self.close_connection = True  # who waited was killed

            def log_message(self, format: str, *arguments: object) -> None:
                """Say nothing: a step that comes through shows in the table."""

        return Handler

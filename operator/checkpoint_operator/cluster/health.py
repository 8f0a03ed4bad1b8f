"""The probes: alive if work still goes round, ready if the API server answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

_STALE_AFTER_S: Final = 90.0


@dataclass(slots=True)
class Health:
    """`round_trip` is noted by the workers themselves when they have carried the canary, a key that is queued every few seconds.

    An API server that is down makes us not ready. It does not make us dead: a restart would not help. A watch that has told
    nothing of what the API server has listed for long makes us dead: a restart begins it anew.
    """

    clock: Callable[[], float] = time.monotonic
    last_round_trip: float = 0.0
    api_answers: bool = False
    watch_is_dead: bool = False

    def __post_init__(self) -> None:
        self.last_round_trip = self.clock()

    def note_round_trip(self, api_answers: bool) -> None:
        self.last_round_trip = self.clock()
        self.api_answers = api_answers

    @property
    def is_alive(self) -> bool:
        return self.clock() - self.last_round_trip < _STALE_AFTER_S and not self.watch_is_dead

    @property
    def is_ready(self) -> bool:
        return self.is_alive and self.api_answers


def serve(health: Health, port: int) -> ThreadingHTTPServer:
    """Answer /healthz and /readyz in a thread of their own; the caller shuts the server down."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state = {"/healthz": health.is_alive, "/readyz": health.is_ready}.get(self.path)
            code = 404 if state is None else 200 if state else 503
            body = b"ok\n" if code == 200 else b"not ok\n"
            self.send_response(code)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Probes come every few seconds; nobody reads of them."""

    server = ThreadingHTTPServer(("", port), Handler)
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return server

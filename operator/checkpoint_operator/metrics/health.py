"""The probes: alive if work still goes round, ready if the API server answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

#: A commit of very many files may take many minutes, and every worker may wait for its turn to commit. All requests end by
#: themselves far earlier, so workers of which none has come back for so long hang by a defect.
_LONGEST_TURN_S: Final = 3600.0
_PROBE_TIMEOUT_S: Final = 10.0


@dataclass(slots=True)
class Health:
    """What the workers note of themselves, and what follows from it for the probes. Thread-safe.

    Alive is who still takes work, however much of it waits and however slowly it goes. A free worker takes the canary, which
    comes before all other work, within seconds; so if nobody has for long, either every worker has a write in hand, and that is
    right while one of them has taken its own not too long ago, or the workers or their queue are broken. A restart helps
    against the second only: a backlog, a store or a catalog that does not answer, and a long commit are the same afterwards,
    and the commit would begin anew.

    An API server that is down, or a namespace that is forbidden, makes us not dead either. A watch that has told nothing of
    what the API server has listed for long, though we may watch there, does: a restart begins it anew. So does an API server
    that said once that it does not know our kind: watches that began at that time found nothing to watch.
    """

    clock: Callable[[], float] = time.monotonic
    stale_after_s: float = 90.0
    workers: int = 0
    last_round_trip: float = 0.0
    api_answers: bool = False
    watch_is_dead: bool = False
    kind_was_gone: bool = False
    _in_hand: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.last_round_trip = self.clock()

    def note_round_trip(self, api_answers: bool) -> None:
        self.last_round_trip = self.clock()
        self.api_answers = api_answers

    def note_taken(self, worker: str) -> None:
        """This worker has a write in hand from now on."""
        with self._lock:
            self._in_hand[worker] = self.clock()

    def note_back(self, worker: str) -> None:
        """This worker takes the next work."""
        with self._lock:
            self._in_hand.pop(worker, None)

    @property
    def is_alive(self) -> bool:
        if self.watch_is_dead or self.kind_was_gone:
            return False
        return self.clock() - self.last_round_trip < self.stale_after_s or self._are_all_busy()

    @property
    def is_ready(self) -> bool:
        return self.is_alive and self.api_answers

    def _are_all_busy(self) -> bool:
        with self._lock:
            taken = list(self._in_hand.values())
        return len(taken) >= max(1, self.workers) and self.clock() - max(taken) < _LONGEST_TURN_S


def serve(health: Health, port: int) -> ThreadingHTTPServer:
    """Answer /healthz and /readyz in a thread of their own; the caller shuts the server down."""

    class Handler(BaseHTTPRequestHandler):
        #: Who connects and says nothing would keep a thread for good.
        timeout = _PROBE_TIMEOUT_S

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

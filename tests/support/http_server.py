"""A small HTTP server that answers as a test's handler says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from devtools.ports import LOOPBACK


@contextmanager
def serving_by(handler: type[BaseHTTPRequestHandler], host: str = LOOPBACK) -> Iterator[str]:
    """Serve in threads while the body runs. Give the server's URL, without a slash at its end."""
    with ThreadingHTTPServer((host, 0), handler) as server:
        # By default it looks twice a second whether it is to end.
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"http://{host}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()

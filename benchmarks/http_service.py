"""A service that answers each request with its path after a fixed time, and counts it, so that it takes little of a core.

python -m benchmarks.http_service SECONDS    says its port on standard output, and serves until it is ended

GET /counts tells how many requests there were, and of how many paths.
"""

from __future__ import annotations

import asyncio
import http.client
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

_LOOPBACK: Final = "127.0.0.1"
_COUNTS: Final = "counts"
_ROOT: Final = Path(__file__).parents[1]


@contextmanager
def serving(latency_s: float) -> Iterator[str]:
    """Run the service in a process of its own while the body runs; give its URL."""
    command = [sys.executable, "-m", "benchmarks.http_service", str(latency_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=_ROOT, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://{_LOOPBACK}:{int(process.stdout.readline())}"
        finally:
            process.kill()


def counts(url: str) -> tuple[int, int]:
    """Return how many requests a service was sent, and of how many paths."""
    with closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)) as connection:
        connection.request("GET", f"/{_COUNTS}")
        total, paths = map(int, connection.getresponse().read().split())
    return total, paths


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, latency_s: float, seen: Counter[bytes]) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].removeprefix(b"/")
            if path == _COUNTS.encode():
                path = b"%d %d" % (seen.total(), len(seen))
            else:
                seen[path] += 1
                await asyncio.sleep(latency_s)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(path), path))
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def _serve(latency_s: float) -> None:
    seen: Counter[bytes] = Counter()
    server = await asyncio.start_server(
        lambda reader, writer: _answer(reader, writer, latency_s, seen), _LOOPBACK, 0, backlog=1024
    )
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))

"""A service that answers each request with its path after a fixed time, and does no more, so that it takes little of a core.

python -m benchmarks.http_service SECONDS    says its port on standard output, and serves until it is ended
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_LOOPBACK: Final = "127.0.0.1"
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


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, latency_s: float) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].removeprefix(b"/")
            await asyncio.sleep(latency_s)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(path), path))
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def _serve(latency_s: float) -> None:
    server = await asyncio.start_server(lambda reader, writer: _answer(reader, writer, latency_s), _LOOPBACK, 0, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))

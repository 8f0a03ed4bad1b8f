"""A service that answers each request with its path after a fixed time, and counts it, so that it takes little of a core.

python -m benchmarks.http_service SECONDS [PART]    says its port on standard output, and serves until it is ended

PART of the requests, by chance, are answered at once with 429 and `Retry-After: 1`. GET /counts tells what there was.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

_LOOPBACK: Final = "127.0.0.1"
_COUNTS: Final = "counts"
_ROOT: Final = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Counts:
    """What a service was sent: requests, of how many paths, how many of them it refused, and from the first to the last."""

    requests: int
    paths: int
    refused: int
    seconds: float


@contextmanager
def serving(latency_s: float, refuse: float = 0.0) -> Iterator[str]:
    """Run the service in a process of its own while the body runs; give its URL."""
    command = [sys.executable, "-m", "benchmarks.http_service", str(latency_s), str(refuse)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=_ROOT, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://{_LOOPBACK}:{int(process.stdout.readline())}"
        finally:
            process.kill()


def counts(url: str) -> Counts:
    """Return what a service was sent so far."""
    with closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)) as connection:
        connection.request("GET", f"/{_COUNTS}")
        return Counts(**json.loads(connection.getresponse().read()))


@dataclass(slots=True)
class _Service:
    latency_s: float
    refuse: float
    seen: Counter[bytes] = field(default_factory=Counter)
    refused: int = 0
    first_s: float = 0.0
    last_s: float = 0.0
    chance: random.Random = field(default_factory=lambda: random.Random(11))  # noqa: S311 no secret

    def counts(self) -> Counts:
        return Counts(self.seen.total(), len(self.seen), self.refused, self.last_s - self.first_s)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer_of(head.split(b" ", 2)[1].removeprefix(b"/")))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer_of(self, path: bytes) -> bytes:
        if path == _COUNTS.encode():
            path = json.dumps(asdict(self.counts())).encode()
        else:
            self.seen[path] += 1
            self.last_s = time.monotonic()
            self.first_s = self.first_s or self.last_s
            if self.chance.random() < self.refuse:
                self.refused += 1
                return b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
            await asyncio.sleep(self.latency_s)
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(path), path)


async def _serve(service: _Service) -> None:
    server = await asyncio.start_server(service.answer, _LOOPBACK, 0, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(_Service(float(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)))

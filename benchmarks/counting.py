"""A proxy before a server that counts the bytes it gives: what readers really fetched, whoever they are and however they died."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import urllib.parse
from types import TracebackType
from typing import Final, Self

_PIECE_BYTES: Final = 1 << 18


class CountingProxy:
    """Runs inside `with`, at `endpoint`. Headers are counted too: a few hundred bytes a request."""

    def __init__(self, upstream: str) -> None:
        parts = urllib.parse.urlsplit(upstream)
        assert parts.hostname is not None
        assert parts.port is not None
        self._upstream = (parts.hostname, parts.port)
        self._given = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="counting-proxy", daemon=True)

    @property
    def given_bytes(self) -> int:
        """All that was given to clients so far."""
        return self._given

    def __enter__(self) -> Self:
        self._thread.start()
        start = asyncio.start_server(self._serve, self._upstream[0], 0)
        self._server = asyncio.run_coroutine_threadsafe(start, self._loop).result(30)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.endpoint = f"http://{host}:{port}"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            up_reader, up_writer = await asyncio.open_connection(*self._upstream)
            await asyncio.gather(_pump(reader, up_writer), self._give(up_reader, writer))

    async def _give(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(_PIECE_BYTES):
                writer.write(piece)
                await writer.drain()
                self._given += len(piece)
        writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(_PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    # The client has said all: so may the server, before it is told that nobody listens any more.
    with contextlib.suppress(OSError, RuntimeError):
        if writer.can_write_eof():
            writer.write_eof()

"""A TCP proxy that lets each request wait, as a store far away does. A process of its own, which costs the measured one nothing.

    python -m benchmarks.slow_proxy PORT TARGET_PORT SECONDS

A request is what a client sends after an answer, or first on a connection. Answers are passed on as they come.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

HOST = "127.0.0.1"


class Link:
    """One connection of a client, and ours to the server."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.is_answered = True

    async def forward(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 18):
            if self.is_answered:
                self.is_answered = False
                await asyncio.sleep(self.delay_s)
            target.write(data)
            await target.drain()

    async def back(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 18):
            self.is_answered = True
            target.write(data)
            await target.drain()


async def serve(port: int, target_port: int, delay_s: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(delay_s)
        with contextlib.suppress(OSError):
            server_reader, server_writer = await asyncio.open_connection(HOST, target_port)
            ways = {
                asyncio.create_task(link.forward(reader, server_writer)),
                asyncio.create_task(link.back(server_reader, writer)),
            }
            try:
                # Whichever side hangs up, the other has nobody left to talk to.
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
                server_writer.close()
                writer.close()

    server = await asyncio.start_server(connected, HOST, port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))

"""A TCP proxy that lets each request wait, as a store far away does. A process of its own, which costs the measured one nothing.

    python -m benchmarks.slow_proxy PORT TARGET_PORT SECONDS [TRACE]

A request is what a client sends after an answer, or first on a connection. Answers are passed on as they come. A trace has a line
for each: when it was sent, when its answer began, the method and the path.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import time
from typing import TextIO

HOST = "127.0.0.1"


class Link:
    """One connection of a client, and ours to the server."""

    def __init__(self, delay_s: float, trace: TextIO | None) -> None:
        self.delay_s, self.trace = delay_s, trace
        self.is_answered = True
        self.asked = ""

    async def forward(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 18):
            if self.is_answered:
                self.is_answered = False
                line = re.match(rb"[A-Z]+ \S+", data)  # else it is a body that had to wait for the answer to its headers
                self.asked = f"{time.time()} %s {line[0].decode() if line else 'body'}\n"
                await asyncio.sleep(self.delay_s)
            target.write(data)
            await target.drain()

    async def back(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 18):
            if not self.is_answered and self.trace is not None:
                self.trace.write(self.asked.replace("%s", str(time.time()), 1))
                self.trace.flush()
            self.is_answered = True
            target.write(data)
            await target.drain()


async def serve(port: int, target_port: int, delay_s: float, trace: TextIO | None) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(delay_s, trace)
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
    port, target, seconds, *traces = sys.argv[1:]
    with open(traces[0], "a") if traces else contextlib.nullcontext() as opened:
        asyncio.run(serve(int(port), int(target), float(seconds), opened))

"""A service over HTTP as steps call it: it takes a while, knows what it was asked, and can hold answers back or refuse."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.support.waiting import patience

_PATIENCE_S = 30.0


@dataclass
class Service:
    """Answers GET /<id> with the id. May be asked by many at once; each request is counted when it comes.

    `answer` gives the status of an answer, by the number of the request; `held_after`: so many requests are answered, and the
    others when it is opened. `headers`: of each answer.
    """

    latency_s: float = 0.02
    answer: Callable[[int], int] = lambda number: 200
    held_after: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    asked: Counter[int] = field(default_factory=Counter)
    most_at_once: int = 0
    url: str = ""
    _at_once: int = 0
    _opened: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._opened.set)

    async def handle(self, request: web.Request) -> web.Response:
        self.asked[int(request.match_info["row"])] += 1
        number = self.asked.total()
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await asyncio.sleep(self.latency_s)
            if self.held_after is not None and number > self.held_after:
                await self._opened.wait()
        finally:
            self._at_once -= 1
        return web.Response(status=self.answer(number), text=request.match_info["row"], headers=self.headers)

    async def serve(self, began: threading.Event, ended: asyncio.Event) -> None:
        app = web.Application()
        app.router.add_get("/{row}", self.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            self.url = f"http://{host}:{port}"
            began.set()
            await ended.wait()
        finally:
            await runner.cleanup()


@contextmanager
def serving(service: Service) -> Iterator[Service]:
    """Serve on loopback, in a thread, while the body runs."""
    loop, began, ended = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    service._loop = loop

    def run() -> None:
        loop.run_until_complete(service.serve(began, ended))
        loop.close()

    thread = threading.Thread(target=run, name="service", daemon=True)
    thread.start()
    assert began.wait(patience(_PATIENCE_S))
    try:
        yield service
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(patience(_PATIENCE_S))

"""A service like one of a language model, small enough for this machine: it takes a while, and now and then it refuses.

    python examples/answer_service.py [--port 8750] [--latency 0.05] [--refuse 0.05]

POST /answer with {"question": ...} is answered with {"answer": ..., "tokens": ...}. A question that comes again under its
Idempotency-Key is answered from memory, and not paid for again. Every few seconds, and at the end, it says what it was asked.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
from contextlib import suppress
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class Answers:
    """The service, and what it counts: calls, those refused, and those whose key it knew."""

    latency_s: float
    refused_share: float
    random: random.Random = field(default_factory=random.Random)
    known: dict[str, dict[str, object]] = field(default_factory=dict)
    calls: int = 0
    refused: int = 0
    again: int = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.calls += 1
        if self.random.random() < self.refused_share:
            self.refused += 1
            return web.json_response({"error": "too many requests"}, status=429, headers={"Retry-After": "1"})
        key = request.headers.get("Idempotency-Key", "")
        if key in self.known:
            self.again += 1
            return web.json_response(self.known[key])
        question = (await request.json())["question"]
        await asyncio.sleep(self.random.uniform(0.5, 1.5) * self.latency_s)
        made: dict[str, object] = {"answer": f"I would say: {question.upper()}", "tokens": len(question.split())}
        if key:
            self.known[key] = made
        return web.json_response(made)

    def __str__(self) -> str:
        return f"{self.calls:,} calls, {self.refused:,} of them refused, {self.again:,} answered from memory"


async def serve(answers: Answers, port: int, say_every_s: float = 5.0) -> None:
    """Serve on loopback until it is interrupted, or asked to end."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    app = web.Application()
    app.router.add_post("/answer", answers.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        print(f"serving on http://127.0.0.1:{port}/answer", flush=True)
        said = ""
        while not ended.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), say_every_s)
            if (now := str(answers)) != said:
                said = now
                print(now, flush=True)
    finally:
        await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description="A service like one of a language model.")
    parser.add_argument("--port", type=int, default=8750)
    parser.add_argument("--latency", type=float, default=0.05, help="seconds, on the average")
    parser.add_argument("--refuse", type=float, default=0.05, help="share of the calls that are refused with 429")
    given = parser.parse_args()
    asyncio.run(serve(Answers(given.latency, given.refuse), given.port))


if __name__ == "__main__":
    main()

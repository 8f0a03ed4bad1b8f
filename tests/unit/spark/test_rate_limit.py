"""How many calls begin in a time, on an event loop whose clock jumps to the next timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from checkpoint_protocol.steps import RateLimit
from checkpoint_spark.steps.rate_limit import Pacing


class JumpingLoop(asyncio.SelectorEventLoop):
    """Waits for nothing: where all wait for a time, it is that time."""

    now_s = 0.0

    def time(self) -> float:
        return self.now_s

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            # Time passes while code runs, too: a timer that is set for now, again and again, would never end.
            self.now_s = max(self.now_s + 1e-6, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def run(work: Callable[[JumpingLoop], Coroutine[Any, Any, Any]]) -> Any:
    loop = JumpingLoop()
    try:
        return loop.run_until_complete(work(loop))
    finally:
        loop.close()


def limit(calls: int, per: str) -> RateLimit:
    return RateLimit.model_validate_json(f'{{"calls": {calls}, "per": "{per}"}}')


@pytest.mark.parametrize(("calls", "per", "tasks"), [(600, "1m", 1), (3000, "1m", 2), (2, "1s", 1), (100_000, "1h", 4)])
def test_a_task_begins_its_share_of_the_calls_and_no_more(calls: int, per: str, tasks: int) -> None:
    async def work(loop: JumpingLoop) -> float:
        pacing = Pacing(limit(calls, per), tasks, loop.time)
        for _ in range(500):
            await pacing.begin()
        return loop.time()

    expected_s = 500 / (calls / limit(calls, per).per / tasks)
    assert run(work) == pytest.approx(expected_s, rel=0.03)


def refused_at(rate: float) -> Callable[[JumpingLoop], Coroutine[Any, Any, list[float]]]:
    """Call for a minute a service that takes so many calls a second; return when each that it took began."""

    async def work(loop: JumpingLoop) -> list[float]:
        pacing = Pacing(limit(100, "1s"), 1, loop.time)
        taken: list[float] = []
        while loop.time() < 60:
            await pacing.begin()
            if sum(at > loop.time() - 1 for at in taken[-200:]) >= rate:
                pacing.refused()
            else:
                taken.append(loop.time())
        return taken

    return work


def test_a_service_that_takes_fewer_is_called_less_often_and_near_what_it_takes() -> None:
    taken = run(refused_at(40))

    last = [at for at in taken if at > 30]
    assert 40 * 30 * 0.85 <= len(last) <= 40 * 31


def test_when_it_takes_more_again_the_share_comes_back() -> None:
    async def work(loop: JumpingLoop) -> float:
        pacing = Pacing(limit(100, "1s"), 1, loop.time)
        while loop.time() < 5:
            await pacing.begin()
            pacing.refused()
        least = pacing.share
        while loop.time() < 60:
            await pacing.begin()
        assert least < 0.3
        return pacing.share

    assert run(work) == 1.0


def test_a_few_refusals_slow_nothing() -> None:
    async def work(loop: JumpingLoop) -> int:
        pacing, begun = Pacing(limit(100, "1s"), 1, loop.time), 0
        while loop.time() < 60:
            await pacing.begin()
            begun += 1
            if begun % 20 == 0:
                pacing.refused()
        return begun

    assert run(work) == pytest.approx(6000, rel=0.02)

"""How many calls begin in a time, on an event loop whose clock jumps to the next timer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from checkpoint_protocol.manifest.steps import RateLimit
from checkpoint_work.steps.calling.rate_limit import Pacing


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


def run(work: Callable[[JumpingLoop], Coroutine[Any, Any, Any]], kind: type[JumpingLoop] = JumpingLoop) -> Any:
    loop = kind()
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


@pytest.mark.parametrize(("calls", "tasks"), [(60, 1), (300, 2), (3000, 8), (3000, 2), (30_000, 1)])
def test_refusals_that_come_by_chance_slow_nothing_though_some_seconds_have_many(calls: int, tasks: int) -> None:
    """One call in twenty is refused: of five calls of a second that may be two, and is no sign of too many calls."""

    async def work(loop: JumpingLoop) -> float:
        pacing, begun, chance = Pacing(limit(calls, "1m"), tasks, loop.time), 0, random.Random(7)
        while loop.time() < 600 and begun < 15_000:
            await pacing.begin()
            begun += 1
            if chance.random() < 0.05:
                pacing.refused()
        return begun / loop.time()

    assert run(work) == pytest.approx(calls / 60 / tasks, rel=0.03)


class LateLoop(JumpingLoop):
    """Its timers are late, as on a busy machine: by five milliseconds on the average."""

    def __init__(self) -> None:
        super().__init__()
        self.chance = random.Random(7)

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now_s = max(self.now_s, self._scheduled[0].when()) + min(self.chance.expovariate(200), 0.05)  # type: ignore[attr-defined]
        super()._run_once()


@pytest.mark.parametrize("calls", [60, 1_200, 24_000])
def test_calls_are_as_many_though_timers_are_late(calls: int) -> None:
    async def work(loop: JumpingLoop) -> float:
        pacing = Pacing(limit(calls, "1m"), 1, loop.time)
        for _ in range(3_000):
            await pacing.begin()
        return 3_000 / loop.time()

    assert run(work, LateLoop) == pytest.approx(calls / 60, rel=0.02)

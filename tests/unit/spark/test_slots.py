"""Slots for calls: never more at once than there are, in the order of the rows, whoever gives up."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_work.steps.calling.rows_at_work import Slots
from tests.support.effort import examples


def test_who_waits_gets_a_slot_in_the_order_of_the_rows() -> None:
    async def work() -> list[int]:
        slots, got = Slots(1), []

        async def one(number: int) -> None:
            async with slots.slot((0, number)):
                got.append(number)
                await asyncio.sleep(0)

        await asyncio.gather(*map(one, (7, 5, 9, 1, 8)))
        return got

    assert asyncio.run(work()) == [7, 1, 5, 8, 9]


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 12)), max_size=20))
@settings(deadline=None, max_examples=examples(60))
def test_no_slot_is_lost_and_none_is_given_twice_whenever_calls_are_cancelled(
    count: int, calls: list[tuple[int, int, int]]
) -> None:
    """Each call has the number of its row, takes so many turns of the loop, and is cancelled after so many."""

    async def work() -> None:
        slots, held = Slots(count), 0

        async def one(number: int, turns: int) -> None:
            nonlocal held
            async with slots.slot((0, number)):
                held += 1
                assert held <= count
                try:
                    for _ in range(turns):
                        await asyncio.sleep(0)
                finally:
                    held -= 1

        tasks = [asyncio.ensure_future(one(number, turns)) for number, turns, _ in calls]
        for turn in range(14):
            for task, (_, _, ends) in zip(tasks, calls, strict=True):
                if ends == turn:
                    task.cancel()
            await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await asyncio.gather(*tasks, return_exceptions=True)
        assert all(task.cancelled() or task.exception() is None for task in tasks)
        assert slots.free == count

    asyncio.run(work())

"""What is told of the pace of a stage goes by when its plans and seals were put."""

from __future__ import annotations

from datetime import timedelta

from checkpoint_control.pipelines.shown import Pace, pace_of
from tests.support.records import launch, ledger_over, plan, seal
from tests.support.stores import MemoryStore


def test_the_pace_is_that_from_the_plan_to_the_last_seal() -> None:
    store = MemoryStore()
    ledger = ledger_over(store)
    ledger.attempts.put_launch(launch())
    store.now += timedelta(hours=1)
    ledger.plans.put_plan(plan([(0, 0, 100)]))
    for link in (0, 1):
        store.now += timedelta(seconds=30)
        ledger.seals.put_seal(seal(0, link, [(0, link * 50, link * 50 + 50)], rows=50))

    assert pace_of(ledger) == Pace(rows=100, seconds=60)


def test_a_stage_of_which_nothing_is_sealed_has_no_pace() -> None:
    ledger = ledger_over(MemoryStore())
    assert pace_of(ledger) is None
    ledger.attempts.put_launch(launch(1))
    ledger.plans.put_plan(plan([(0, 0, 100)]))

    assert pace_of(ledger) is None


def test_rows_that_are_left_take_as_long_each_as_those_that_are_done() -> None:
    assert Pace(rows=200, seconds=80).seconds_for(1_000) == 400

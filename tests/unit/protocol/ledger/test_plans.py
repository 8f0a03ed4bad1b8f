"""The plan decides which driver an attempt has."""

from __future__ import annotations

import pytest

from checkpoint_protocol.errors import Retryable, Superseded
from tests.support.records import ledger_over, plan
from tests.support.stores import LosesAnswers, MemoryStore, RetriesItsPuts

TASKS = [[(0, 0, 10)], [(0, 10, 20)], [(1, 0, 5)]]


def test_a_second_driver_of_an_attempt_is_superseded_before_any_task() -> None:
    store = MemoryStore()
    first = plan(*TASKS)
    assert ledger_over(store).plans.put_plan(first) == first

    with pytest.raises(Superseded) as caught:
        ledger_over(store).plans.put_plan(plan(*TASKS))

    assert caught.value.reason == "SecondDriver"
    assert ledger_over(store).plans.read_plan(1) == first


def test_a_driver_whose_put_of_the_plan_had_no_answer_goes_on_with_its_own_plan() -> None:
    ours = plan(*TASKS)
    store = LosesAnswers()

    with pytest.raises(Retryable):
        ledger_over(store).plans.put_plan(ours)
    assert ledger_over(store).plans.put_plan(ours) == ours
    assert ledger_over(RetriesItsPuts()).plans.put_plan(ours) == ours

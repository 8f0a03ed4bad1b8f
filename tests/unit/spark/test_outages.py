"""Calls that keep failing: whether their row is at fault, or the service is out."""

from __future__ import annotations

import pytest

from checkpoint_work.steps.calling.outages import Outages, Tried, Verdict


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Service:
    """Calls of a step, one after another; each takes so long."""

    def __init__(self, *, may_doubt: bool = True) -> None:
        self.clock = Clock()
        self.outages = Outages(self.clock, may_doubt)

    def answers(self, tried: Tried | None = None, seconds: float = 1.0) -> None:
        tried = tried or self.outages.begin()
        self.outages.call(tried)
        self.clock.now_s += seconds
        self.outages.answered(tried)

    def fails(self, tried: Tried | None = None, times: int = 1, seconds: float = 1.0) -> bool:
        tried = tried or self.outages.begin()
        is_out = False
        for _ in range(times):
            self.outages.call(tried)
            self.clock.now_s += seconds
            is_out = self.outages.failed(tried)
        return is_out

    def gives_up(self, tried: Tried | None = None) -> Tried:
        tried = tried or self.outages.begin()
        self.fails(tried, 5)
        return tried

    def verdict(self, tried: Tried, *, is_idle: bool = False) -> Verdict:
        return self.outages.judge(tried, is_idle=is_idle)


def test_a_row_that_fails_while_others_are_answered_is_at_fault() -> None:
    service = Service()
    row = service.outages.begin()
    for _ in range(5):
        service.fails(row)
        service.answers()

    assert service.verdict(row) is Verdict.ROW


def test_nothing_is_said_of_a_row_until_a_call_that_began_after_its_last_is_answered() -> None:
    service = Service()
    earlier = service.outages.begin()
    service.outages.call(earlier)
    row = service.gives_up()
    service.outages.answered(earlier)

    assert service.verdict(row) is Verdict.OPEN
    service.answers()
    assert service.verdict(row) is Verdict.ROW


def test_where_most_others_fail_too_it_is_an_outage_although_one_is_answered() -> None:
    service = Service()
    row = service.outages.begin()
    for _ in range(5):
        service.fails(row)
        service.fails(times=2)
    service.answers()

    assert service.verdict(row) is Verdict.OUTAGE


def test_rows_that_fail_together_are_an_outage_at_once() -> None:
    service = Service()
    for _ in range(100):
        service.answers()
    rows = [service.outages.begin() for _ in range(8)]
    service.answers()
    for _ in range(5):
        for row in rows:
            service.fails(row)

    assert {service.verdict(row) for row in rows} == {Verdict.OUTAGE}


def test_several_rows_that_fail_among_many_that_are_answered_are_at_fault() -> None:
    service = Service()
    rows = [service.outages.begin() for _ in range(3)]
    for _ in range(5):
        for row in rows:
            service.fails(row)
        for _ in range(10):
            service.answers()
    for row in rows:
        service.fails(row)

    assert {service.verdict(row) for row in rows} == {Verdict.OPEN}
    assert {service.verdict(row, is_idle=True) for row in rows} == {Verdict.ROW}
    assert service.outages.is_uncertain


@pytest.mark.parametrize(("failures", "verdict"), [(1, Verdict.OPEN), (2, Verdict.OPEN), (3, Verdict.OUTAGE)])
def test_one_or_two_failures_of_another_row_meanwhile_are_no_outage(failures: int, verdict: Verdict) -> None:
    service = Service()
    row = service.gives_up()
    service.fails(times=failures)

    assert service.verdict(row) is verdict


def test_an_answer_between_tells_that_the_rows_before_it_were_at_fault() -> None:
    service = Service()
    for _ in range(20):
        service.answers()
        row = service.gives_up()
        service.answers()
        assert service.verdict(row) is Verdict.ROW


def test_a_row_that_is_alone_is_set_apart_for_the_time_being_and_an_answer_settles_it() -> None:
    service = Service()
    row = service.gives_up()

    assert service.verdict(row, is_idle=True) is Verdict.ROW
    assert service.outages.is_uncertain
    service.answers()
    assert not service.outages.is_uncertain


def test_a_second_row_without_an_answer_between_is_an_outage() -> None:
    service = Service()
    service.answers()
    first = service.gives_up()
    assert service.verdict(first, is_idle=True) is Verdict.ROW

    assert service.verdict(service.gives_up(), is_idle=True) is Verdict.OUTAGE


def test_where_a_row_that_fails_ends_the_task_one_that_is_alone_is_not_blamed() -> None:
    service = Service(may_doubt=False)

    assert service.verdict(service.gives_up(), is_idle=True) is Verdict.OUTAGE


def test_when_most_calls_of_a_minute_have_failed_the_service_is_out_before_any_row_is_given_up() -> None:
    service = Service()
    for _ in range(30):
        service.answers()

    said = [service.fails() for _ in range(60)]

    assert not any(said[:29])
    assert said[-1]


def test_a_few_failures_of_a_slow_step_are_not_most_of_anything() -> None:
    service = Service()

    assert not any(service.fails(seconds=20.0) for _ in range(30))


def test_the_last_minute_counts_and_not_what_was_before() -> None:
    service = Service()
    for _ in range(1000):
        service.answers(seconds=0.01)
    service.clock.now_s += 3600
    for _ in range(100):
        service.fails(seconds=0.5)

    assert service.fails(seconds=30.0)

"""How long the next attempt waits."""

from __future__ import annotations

from checkpoint_control.decision.attempt_clock import pause_after


def test_after_an_attempt_that_has_sealed_something_the_next_follows_at_once() -> None:
    assert pause_after(0) == 1.0


def test_attempts_that_seal_nothing_follow_one_another_as_the_pods_of_a_job_do() -> None:
    assert [pause_after(failures) for failures in (1, 2, 3, 4, 5, 6, 7, 100)] == [10, 20, 40, 80, 160, 300, 300, 300]

"""Turns to commit: so many at once, shared between namespaces."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from checkpoint_operator.turns.turns import CommitTurns
from checkpoint_operator.watch.cache import WriteName
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable


class Committing:
    """Writes that hold a turn until they are let go."""

    def __init__(self, most: int) -> None:
        self.now_s = 0.0
        self.woken: list[WriteName] = []
        self.turns = CommitTurns(most, lambda: self.now_s, self.woken.append)
        self._held: dict[WriteName, ExitStack] = {}

    def begin(self, *keys: WriteName) -> list[bool]:
        began = []
        for key in keys:
            self.now_s += 1
            stack = ExitStack()
            try:
                stack.enter_context(self.turns.take(key))
            except Retryable:
                began.append(False)
            else:
                began.append(True)
                self._held[key] = stack
        return began

    def end(self, key: WriteName) -> None:
        self._held.pop(key).close()


def write(namespace: str, number: int = 1) -> WriteName:
    return WriteName(namespace, f"write-{number}")


def test_no_more_commits_than_there_are_turns() -> None:
    committing = Committing(2)

    assert committing.begin(write("a", 1), write("a", 2), write("a", 3)) == [True, True, False]
    with pytest.raises(Retryable) as caught, committing.turns.take(write("b")):
        pass
    assert caught.value.reason == reasons.COMMIT_QUEUED


def test_a_turn_that_is_free_again_wakes_who_waits_longest() -> None:
    committing = Committing(1)
    committing.begin(write("a", 1), write("a", 2), write("a", 3))

    committing.end(write("a", 1))

    assert committing.woken == [write("a", 2)]
    assert committing.begin(write("a", 3), write("a", 2)) == [False, True]


def test_a_namespace_with_many_commits_comes_after_one_that_has_none_at_work() -> None:
    committing = Committing(2)
    committing.begin(*(write("a", number) for number in range(1, 6)), write("b"))

    committing.end(write("a", 1))

    assert committing.woken == [write("b")]
    assert committing.begin(write("a", 3), write("b")) == [False, True]


def test_an_error_in_a_commit_gives_its_turn_back() -> None:
    committing = Committing(1)
    with pytest.raises(ValueError, match="refused"), committing.turns.take(write("a")):
        raise ValueError("refused")

    assert committing.begin(write("b")) == [True]


def test_who_has_not_asked_for_long_keeps_nobody_waiting() -> None:
    committing = Committing(1)
    committing.begin(write("a", 1), write("b"))
    committing.end(write("a", 1))
    committing.now_s += 1_000

    assert committing.begin(write("a", 2)) == [True]

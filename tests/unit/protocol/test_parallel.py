"""Requests side by side: their answers come in order, and no end of theirs holds up a process."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from checkpoint_protocol.store.parallel import in_threads, streamed
from tests.support.waiting import patience


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """Set at the end at the latest: the threads of a test that failed could not end otherwise."""
    event = threading.Event()
    yield event
    event.set()


def test_answers_come_in_the_order_of_the_items() -> None:
    assert list(streamed(in_threads, lambda item: item * 2, range(100), 4)) == [item * 2 for item in range(100)]
    assert list(streamed(in_threads, lambda item: item, [])) == []


def test_a_stream_that_is_left_in_the_middle_is_closed_without_waiting_for_its_threads(held: threading.Event) -> None:
    """The garbage collector closes it, perhaps in the middle of `threading`: to wait for a thread there may never end."""

    def answer(item: int) -> int:
        if item:
            held.wait()
        return item

    answers = streamed(in_threads, answer, range(100), 4)
    assert next(answers) == 0

    closing = threading.Thread(target=answers.close, daemon=True)
    closing.start()
    closing.join(patience(10))

    assert not closing.is_alive()


def test_what_was_not_asked_when_a_stream_is_left_is_never_asked(held: threading.Event) -> None:
    asked: list[int] = []

    def answer(item: int) -> int:
        asked.append(item)
        if item:
            held.wait()
        return item

    before = set(threading.enumerate())
    answers = streamed(in_threads, answer, range(100), 2)
    next(answers)
    answers.close()
    held.set()
    for thread in set(threading.enumerate()) - before:
        thread.join()

    assert max(asked) <= 3


def test_an_error_ends_the_stream_when_no_thread_of_it_is_at_work_any_more() -> None:
    before = set(threading.enumerate())

    def answer(item: int) -> int:
        if item == 3:
            raise ValueError("the third")
        return item

    with pytest.raises(ValueError, match="the third"):
        list(streamed(in_threads, answer, range(100), 4))
    assert set(threading.enumerate()) <= before

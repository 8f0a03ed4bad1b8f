"""Threads that stand for drivers end with their test, as pods end with their cluster.

A driver that waits for an operator would go on for minutes, in a store that is the test's no more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from checkpoint_protocol.store.object_store import ObjectStore
from tests.support.waiting import Late, patience


class Killed(BaseException):
    """The driver's process ends here, without a word."""


@dataclass
class _Drivers:
    """Those of one test."""

    ended: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)


class _Store:
    """A driver's store while its test runs."""

    def __init__(self, store: ObjectStore, ended: threading.Event) -> None:
        self._store, self._ended = store, ended

    def __getattr__(self, name: str) -> Any:
        if self._ended.is_set():
            raise Killed("the test is over")
        return getattr(self._store, name)


S = TypeVar("S", bound=ObjectStore)

_drivers = _Drivers()
#: In a driver's thread: that test's drivers.
_mine = threading.local()


def while_the_test_runs(store: S) -> S:
    """Return the store as a driver of this test has it: once the test is over, each call ends the driver."""
    return cast(S, _Store(store, _drivers.ended))


def end_with_the_test() -> None:
    """In a driver that waits without a look into its store: raise Killed once the test is over."""
    if _mine.drivers.ended.is_set():
        raise Killed("the test is over")


def start(drive: Callable[[], None]) -> threading.Thread:
    """Start a driver of this test, which has its store by `while_the_test_runs`."""
    drivers = _drivers

    def run() -> None:
        _mine.drivers = drivers
        with suppress(Killed):
            drive()

    thread = threading.Thread(target=run, name="driver", daemon=True)
    drivers.threads.append(thread)
    thread.start()
    return thread


def let_threads_be_killed() -> None:
    """Let threads that a killed driver had begun end without a word, as it does. Any other error of theirs fails their test."""
    usual = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if not issubclass(args.exc_type, Killed):
            usual(args)

    threading.excepthook = hook


def end_all() -> None:
    """End the drivers of the test that is over. Raises Late if one does not end."""
    global _drivers
    over, _drivers = _drivers, _Drivers()
    over.ended.set()
    for thread in over.threads:
        thread.join(patience(10))
        if thread.is_alive():
            raise Late("a driver that the test had started did not end with it: does it wait for something of the test?")

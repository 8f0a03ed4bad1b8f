"""Python's collector, while many objects are made."""

from __future__ import annotations

import gc
import weakref

import pytest

from checkpoint_work.driver.attempt import without_collector


class Held:
    """Holds itself, so that only the collector can free it."""

    def __init__(self) -> None:
        self.itself = self


def test_the_collector_rests_meanwhile_and_works_again_afterwards_also_after_an_error() -> None:
    def make_many() -> None:
        with without_collector():
            held = weakref.ref(Held())
            kept: list[list[int]] = [[] for _ in range(100_000)]
            assert held() is not None, f"it was freed while {len(kept)} objects were made"
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        make_many()

    assert gc.isenabled()


def test_one_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with without_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()

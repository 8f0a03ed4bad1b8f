"""Parameters of which `make test` takes some values: the others prove the same again, and are left to `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pytest

from tests.support.places import DISK_PLACES, KINDS, PLACES

_VALUES: Final = {"place": PLACES, "disk_place": DISK_PLACES, "world": KINDS}


def slow_except(values: Iterable[object], *kept: object) -> list[object]:
    """Return the values for a parametrization, each marked as slow but the kept ones; a tuple has a value for each name.

    Raises ValueError where a kept one is none of the values.
    """
    found = list(values)
    if unknown := [value for value in kept if value not in found]:
        raise ValueError(f"not among {found}: {unknown}")
    return [value if value in kept else _slow(value) for value in found]


def slow_except_on(fixture: str, *kept: str) -> pytest.MarkDecorator:
    """Return a mark for a test in which it hardly matters which place, or which kind of table, that fixture has made."""
    return pytest.mark.parametrize(fixture, slow_except(_VALUES[fixture], *kept), indirect=True)


def _slow(value: object) -> object:
    return pytest.param(*value if isinstance(value, tuple) else (value,), marks=pytest.mark.slow)

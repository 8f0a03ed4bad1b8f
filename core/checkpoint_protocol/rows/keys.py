"""Arithmetic of key sets: what sets of keys that do not meet add up to. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from checkpoint_protocol.records import KeySet

_LANE_BITS: Final = 64
_LANE: Final = (1 << _LANE_BITS) - 1


def key_set(rows: int, first: int, second: int) -> KeySet:
    """Return the set of so many keys whose hashes add up to these two sums; only their lowest 64 bits count."""
    return KeySet(rows=rows, fingerprint=f"{first & _LANE:016x}{second & _LANE:016x}")


def add_key_sets(sets: Iterable[KeySet]) -> KeySet:
    """Return the union of sets that have no key in common. Order does not matter; of no sets it is the empty set."""
    rows = first = second = 0
    for each in sets:
        rows += each.rows
        both = int(each.fingerprint, 16)
        first += both >> _LANE_BITS
        second += both & _LANE
    return key_set(rows, first, second)


def subtract_key_set(everything: KeySet, part: KeySet) -> KeySet:
    """Return what is left of a set without a part of it."""
    of_all, of_part = int(everything.fingerprint, 16), int(part.fingerprint, 16)
    lanes = (of_all >> _LANE_BITS) - (of_part >> _LANE_BITS), (of_all & _LANE) - (of_part & _LANE)
    return key_set(everything.rows - part.rows, *lanes)

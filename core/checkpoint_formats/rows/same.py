"""Which rows of two arrays have the same value, at every depth. Pure."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_formats.rows.nested import entries, flat

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]

#: Bits tell a NaN from another, and 0.0 from -0.0, as what a step makes of them may.
_BITS: Final = {pa.float16(): pa.uint16(), pa.float32(): pa.uint32(), pa.float64(): pa.uint64()}


def same_rows(one: pa.Array, other: pa.Array) -> Mask:
    """Return in which rows two arrays of one length have the same value.

    NULL is the same as NULL, floats are compared by their bits, and values of different types are not the same.
    """
    if not one.type.equals(other.type):
        return np.zeros(len(one), np.bool_)
    there, there_too = _there(one), _there(other)
    found = ~there & ~there_too
    both = np.flatnonzero(there & there_too)
    if len(both):
        found[both] = _same_values(one.take(pa.array(both)), other.take(pa.array(both)))
    return found


def _same_values(one: pa.Array, other: pa.Array) -> Mask:
    kind = one.type
    if isinstance(kind, pa.BaseExtensionType):
        return same_rows(one.storage, other.storage)
    if pa.types.is_dictionary(kind):
        return same_rows(one.cast(kind.value_type), other.cast(kind.value_type))
    if pa.types.is_struct(kind):
        found = np.ones(len(one), np.bool_)
        for field, field_too in zip(one.flatten(), other.flatten(), strict=True):
            found &= same_rows(field, field_too)
        return found
    if pa.types.is_fixed_size_list(kind):
        return _same_lists(np.full(len(one), kind.list_size), [(flat(one), flat(other))])
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _same_of_any_length(one, other)
    if kind in _BITS:
        one, other = one.view(_BITS[kind]), other.view(_BITS[kind])
    return _of(pc.equal(one, other))


def _same_of_any_length(one: pa.Array, other: pa.Array) -> Mask:
    lengths = _lengths(one)
    found: Mask = lengths == _lengths(other)
    if found.all():
        parts = list(zip(entries(one), entries(other), strict=True)) if pa.types.is_map(one.type) else [(flat(one), flat(other))]
        return _same_lists(lengths, parts)
    alike = np.flatnonzero(found)
    if len(alike):
        found[alike] = _same_of_any_length(one.take(pa.array(alike)), other.take(pa.array(alike)))
    return found


def _same_lists(lengths: np.ndarray[Any, Any], parts: list[tuple[pa.Array, pa.Array]]) -> Mask:
    """Return which lists are the same, of the elements of all of them, one after another. Maps have keys and items."""
    found = np.ones(len(lengths), np.bool_)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    for elements, elements_too in parts:
        found[owner[~same_rows(elements, elements_too)]] = False
    return found


def _lengths(lists: pa.Array) -> np.ndarray[Any, Any]:
    # A map has offsets, and no list_value_length.
    offsets = lists.offsets.to_numpy()
    made: np.ndarray[Any, Any] = np.diff(offsets)
    return made


def _there(array: pa.Array) -> Mask:
    return _of(array.is_valid())


def _of(booleans: pa.Array) -> Mask:
    made: Mask = booleans.to_numpy(zero_copy_only=False)
    return made

"""Python values become Arrow: those of row steps, and objects in pandas frames. What is made holds just these values.

Dicts, lists and maps are taken apart here, the same way at every depth. pyarrow finds the types of the plain values in them. What
it would change without a word (the zone of a time of day, nanoseconds, text beside bytes) is refused, or gets a type for it.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkpoint_formats.rows.nested import number_of
from checkpoint_formats.rows.plain_types import has_default, left_out
from checkpoint_work.steps.values.schema_cast import encoded

_LISTS: Final = (list, tuple, set, frozenset, np.ndarray)
_MOST_IN_A_LIST: Final = 2**31 - 1
_MOST_DIGITS: Final = 76
_Kinds = frozenset[type]


def as_arrow(values: Sequence[Any], hint: pa.DataType | None = None, path: str = "") -> pa.Array:
    """Return the values in the types that they have; of those that several types hold, `hint` says which.

    A dict is a struct, or a map where the hint is one, and pairs are a list, or a map. An integer beyond 64 bits is a decimal
    where the hint is one. A field that a dict lacks has the default of the hint's field, or is NULL. A hint that the values
    do not have is passed over. `path` names the values in messages.
    Raises what pyarrow raises, ValueError among it, for a value that no type holds beside the others.
    """
    while hint is not None and (stored := encoded(hint)) is not None:
        hint = stored
    kinds = frozenset(map(type, values)) - {type(None)}
    if any(issubclass(kind, pa.Scalar) for kind in kinds):
        return as_arrow([value.as_py() if isinstance(value, pa.Scalar) else value for value in values], hint, path)
    if hint is not None and pa.types.is_map(hint) and (made := _maps(values, hint, path)) is not None:
        return made
    if kinds and all(issubclass(kind, dict) for kind in kinds):
        return _structs(values, hint, path)
    if kinds and all(issubclass(kind, _LISTS) for kind in kinds):
        return _lists(values, kinds, hint, path)
    return _plain(values, kinds, hint, path)


# --- nested values --------------------------------------------------------------------------------------------------------


def _structs(values: Sequence[Any], hint: pa.DataType | None, path: str) -> pa.Array:
    names = dict.fromkeys(chain.from_iterable(value for value in values if value is not None))
    if (wrong := next((name for name in names if not isinstance(name, str)), None)) is not None:
        raise ValueError(f"{_place(path)}a dict has the key {wrong!r}, and the fields of a struct are named by text (str)")
    mask = _null_among(values)
    if not names:
        return pa.array([None if value is None else {} for value in values], pa.struct([]))
    children = [_child(values, name, _field_of(hint, name), path) for name in names]
    return pa.StructArray.from_arrays(children, names=list(names), mask=mask)


def _child(values: Sequence[Any], name: str, hint: pa.Field | None, path: str) -> pa.Array:
    default = default_of(hint)
    parts = [None if value is None else value.get(name, default) for value in values]
    return as_arrow(parts, None if hint is None else hint.type, f"{path}.{name}")


def _field_of(hint: pa.DataType | None, name: str) -> pa.Field | None:
    if hint is None or not pa.types.is_struct(hint) or (number := number_of(hint, name)) is None:
        return None
    return hint.field(number)


def default_of(field: pa.Field | None) -> Any:
    """Return what a row has that lacks the field."""
    return left_out(field, 1)[0].as_py() if field is not None and has_default(field) else None


def _lists(values: Sequence[Any], kinds: _Kinds, hint: pa.DataType | None, path: str) -> pa.Array:
    there = [value for value in values if value is not None]
    dtypes = {array.dtype for array in there if array.ndim == 1} if kinds == {np.ndarray} else set()
    if len(dtypes) == 1 and (dtype := dtypes.pop()).kind in "biuf" and all(array.ndim == 1 for array in there):
        items = pa.array(np.concatenate(there).astype(dtype.newbyteorder("="), copy=False))
    else:
        of_items = hint.value_type if hint is not None and _is_list(hint) else None
        items = as_arrow(list(chain.from_iterable(there)), of_items, path)
    lengths = [0 if value is None else len(value) for value in values]
    mask = _null_among(values)
    made: Any = pa.ListArray if len(items) <= _MOST_IN_A_LIST else pa.LargeListArray
    return made.from_arrays(_offsets(lengths, len(items)), items, mask=mask)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _maps(values: Sequence[Any], hint: pa.MapType, path: str) -> pa.Array | None:
    """Return dicts, or lists of pairs, as maps; None if the values are others."""
    lengths: list[int] = []
    pairs: list[tuple[Any, Any]] = []
    for value in values:
        found = value.items() if isinstance(value, dict) else () if value is None else value
        if not isinstance(found, Iterable) or isinstance(found, str | bytes):
            return None
        before = len(pairs)
        for pair in found:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                return None
            pairs.append((pair[0], pair[1]))
        lengths.append(len(pairs) - before)
    if any(key is None for key, _ in pairs):
        raise ValueError(f"{_place(path)}a key of a map is None")
    if pairs:
        keys = as_arrow([key for key, _ in pairs], hint.key_type, f"{path} (keys)")
        items = as_arrow([item for _, item in pairs], hint.item_type, path)
    else:
        keys, items = pa.nulls(0, hint.key_type), pa.nulls(0, hint.item_type)
    mask = _null_among(values)
    return pa.MapArray.from_arrays(_offsets(lengths, 0), keys, items, pa.map_(keys.type, items.type), mask=mask)


def _null_among(values: Sequence[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


def _offsets(lengths: list[int], items: int) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return pa.array(offsets, pa.int32() if items <= _MOST_IN_A_LIST else pa.int64())


# --- plain values ---------------------------------------------------------------------------------------------------------


def _plain(values: Sequence[Any], kinds: _Kinds, hint: pa.DataType | None, path: str) -> pa.Array:
    for kind in kinds:
        if kind.__name__ in ("NaTType", "NAType") and kind.__module__.startswith("pandas."):
            raise ValueError(f"{_place(path)}pandas.{kind.__name__[:-4]} is no value; give None where there is none")
    families = sorted({_family(kind) for kind in kinds})
    if len(families) > 1 and tuple(families) not in _TOGETHER:
        # pyarrow would take all for the kind of the first: times for dates, text for bytes, a decimal for a time of day.
        raise ValueError(f"{f'{path!r} has ' if path else ''}{' and '.join(families)} beside one another")
    if _MOMENTS.intersection(families):
        return _times(values, path)
    if "decimals" in families:
        return _decimals(values, path)
    if families == ["UUIDs", "bytes"]:
        values = [value.bytes if isinstance(value, uuid.UUID) else value for value in values]
    if families == ["floats", "integers"] and hint is not None and pa.types.is_float32(hint):
        _refuse_inexact(values, path)
    if families == ["integers"] and len(kinds) > 1:  # numpy's own are not mixed by pyarrow
        values = [None if value is None else int(value) for value in values]
    try:
        return pa.array(values)
    except OverflowError:
        if families != ["integers"]:
            raise
    return _large_integers([None if value is None else int(value) for value in values], hint, path)


#: What may lie beside one another: as decimals; as floats, of which pyarrow refuses an integer that is none; as bytes.
_TOGETHER: Final = frozenset({("decimals", "integers"), ("floats", "integers"), ("UUIDs", "bytes")})
_MOMENTS: Final = frozenset({"dates", "times", "times of day", "durations"})
#: The first that fits counts: a bool is an int, a datetime a date, and numpy's timedelta64 an integer.
_FAMILIES: Final[tuple[tuple[str, tuple[type, ...]], ...]] = (
    ("booleans", (bool, np.bool_)),
    ("numpy's durations", (np.timedelta64,)),
    ("integers", (int, np.integer)),
    ("floats", (float, np.floating)),
    ("decimals", (Decimal,)),
    ("text (str)", (str,)),
    ("bytes", (bytes, bytearray, memoryview)),
    ("UUIDs", (uuid.UUID,)),
    ("times", (datetime.datetime,)),
    ("dates", (datetime.date,)),
    ("times of day", (datetime.time,)),
    ("durations", (datetime.timedelta,)),
)


def _family(kind: type) -> str:
    return next((name for name, types in _FAMILIES if issubclass(kind, types)), f"values of {kind.__name__}")


def _place(path: str) -> str:
    return f"{path!r}: " if path else ""


def _times(values: Sequence[Any], path: str) -> pa.Array:
    """Return dates, times and durations as they are, with the nanoseconds that pyarrow would drop."""
    there = [value for value in values if value is not None]
    zoned = {getattr(value, "tzinfo", None) is not None for value in there}
    if len(zoned) > 1:
        raise ValueError(f"{f'{path!r} has ' if path else ''}times with a zone and times without a zone beside one another")
    if True in zoned and isinstance(there[0], datetime.time):
        raise ValueError(f"{_place(path)}a time of day with a zone ({there[0]}), for which there is no type; give it without one")
    made = pa.array(values)
    # Of pandas: Timestamp and Timedelta.
    if any(getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0) for value in there):
        is_duration = pa.types.is_duration(made.type)
        return pa.array(values, pa.duration("ns") if is_duration else pa.timestamp("ns", made.type.tz))
    return made


def _decimals(values: Sequence[Any], path: str) -> pa.Array:
    numbers = [Decimal(value) if type(value) is int else value for value in values]
    for value in numbers:
        if isinstance(value, Decimal) and not value.is_finite():
            raise ValueError(f"{_place(path)}{value!r} is no decimal number; give None where there is none")
    return pa.array(numbers)


def _refuse_inexact(values: Sequence[Any], path: str) -> None:
    """Refuse integers beside floats that a float32 does not hold: as doubles, which hold more, they would be rounded later."""
    for value in values:
        if not isinstance(value, int | np.integer):
            continue
        with np.errstate(over="ignore"):
            held = float(np.float32(int(value)))  # as Python's: numpy compares an int with a float32 as two of these
        if held != int(value):
            raise ValueError(
                f"{_place(path)}{value} is an integer that a float32 does not hold; give a float if it may be rounded"
            )


def _large_integers(values: list[int | None], hint: pa.DataType | None, path: str) -> pa.Array:
    there = [value for value in values if value is not None]
    if min(there) >= 0 and max(there) < 2**64:
        return pa.array(values, pa.uint64())
    if hint is not None and pa.types.is_decimal(hint):
        return pa.array(values, pa.decimal256(_MOST_DIGITS, 0))
    largest = max(there, key=abs)
    raise ValueError(f"{_place(path)}{largest} is beyond 64 bits, which only a decimal column holds: declare decimal(38, 0)")

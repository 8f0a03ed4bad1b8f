"""Two arrays are compared row by row, at every depth, as Python compares their values."""

from __future__ import annotations

import datetime
import decimal
import math
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_formats.rows.same import same_rows

_LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-2, 2),
    pa.float64(): st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf]),
    pa.string(): st.sampled_from(["", "a", "b\0"]),
    pa.large_binary(): st.sampled_from([b"", b"a"]),
    pa.bool_(): st.booleans(),
    pa.decimal128(5, 2): st.sampled_from([decimal.Decimal("1.00"), decimal.Decimal("1.01")]),
    pa.timestamp("ns"): st.integers(0, 1),
    pa.date32(): st.sampled_from([datetime.date(1, 1, 1), datetime.date(2, 1, 1)]),
    pa.null(): st.none(),
}


def typed() -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """Return types, each with its values."""

    def wrapped(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(
            inner.map(lambda one: (pa.list_(one[0]), st.lists(one[1], max_size=3))),
            inner.map(lambda one: (pa.large_list(one[0]), st.lists(one[1], max_size=3))),
            inner.map(lambda one: (pa.list_(one[0], 2), st.lists(one[1], min_size=2, max_size=2))),
            inner.map(lambda one: (pa.map_(pa.string(), one[0]), st.lists(st.tuples(st.sampled_from("ab"), one[1]), max_size=2))),
            st.tuples(inner, inner).map(
                lambda two: (
                    pa.struct([("x", two[0][0]), ("y", two[1][0])]),
                    st.fixed_dictionaries({"x": two[0][1], "y": two[1][1]}),
                )
            ),
        ).map(lambda one: (one[0], st.none() | one[1]))

    leaves = st.sampled_from(list(_LEAVES.items())).map(lambda one: (one[0], st.none() | one[1]))
    return st.recursive(leaves, wrapped, max_leaves=4)


def plain(value: Any) -> Any:
    """Return a value that is equal to another where both are the same: floats by their bits."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return value


@settings(max_examples=150, deadline=None)
@given(data=st.data(), kind=typed())
def test_rows_are_the_same_where_python_says_so(data: st.DataObject, kind: tuple[pa.DataType, st.SearchStrategy[Any]]) -> None:
    pairs = data.draw(st.lists(st.tuples(kind[1], kind[1]), min_size=1, max_size=12))
    pairs += [(one, one) for one, _ in pairs]
    arrays = [pa.array([pair[side] for pair in pairs], kind[0]) for side in (0, 1)]
    cut = data.draw(st.integers(0, len(pairs)))

    found = same_rows(arrays[0].slice(cut), arrays[1].slice(cut))

    assert found.tolist() == [plain(one) == plain(other) for one, other in pairs][cut:]


def test_what_lies_below_null_is_no_value() -> None:
    below = [pa.StructArray.from_arrays([pa.array([1, number])], ["x"], mask=pa.array([False, True])) for number in (2, 3)]
    assert same_rows(*below).tolist() == [True, True]
    lists = [
        pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array([1, number]), mask=pa.array([False, True]))
        for number in (2, 3)
    ]
    assert same_rows(*lists).tolist() == [True, True]


@pytest.mark.parametrize("other", [pa.int32(), pa.float64(), pa.string()])
def test_values_of_another_type_are_not_the_same(other: pa.DataType) -> None:
    assert not same_rows(pa.array([1, None]), pa.array([1, None]).cast(other)).any()

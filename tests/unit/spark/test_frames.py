"""A pandas step that changes nothing gives the values that it was given, whatever pandas makes of them on the way."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_work.steps.batch_steps import batch_as_frame, frame_as_batch
from tests.support.effort import examples

LARGE = (1 << 53) + 1  # which no double is


def back(column: pa.Array) -> pa.Array:
    """Return a column after a step that changes nothing."""
    batch = pa.RecordBatch.from_arrays([pa.array(range(len(column))), column], ["id", "v"])
    made, _ = frame_as_batch(batch_as_frame(batch), {field.name: field.type for field in batch.schema})
    assert made.schema.names == ["id", "v"]
    return made.column(1)


_LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.just(LARGE) | st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=3),
    pa.binary(2): st.binary(min_size=2, max_size=2),
    pa.float64(): st.floats(allow_nan=False),
    pa.timestamp("us", "Asia/Tokyo"): st.integers(0, 10**15),
    pa.timestamp("ns"): st.integers(0, 10**18),
    pa.timestamp("ns", "UTC"): st.integers(0, 10**18),
    pa.timestamp("us"): st.integers(0, 10**15),
    pa.date32(): st.integers(0, 10**4),
}


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        inner.map(lambda kind: pa.struct([("x", kind), ("y", pa.int64())])),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
    )


KINDS = _nested(st.recursive(st.sampled_from([*[pa.int64()] * 5, *_LEAVES]), _nested, max_leaves=2))


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        made: st.SearchStrategy[Any] = st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    elif pa.types.is_map(kind):
        made = st.dictionaries(st.text(max_size=2), values_of(kind.item_type), max_size=2).map(lambda found: list(found.items()))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        made = st.lists(values_of(kind.value_type), max_size=2)
    else:
        made = _LEAVES[kind]
    return st.none() | made


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_values_of_all_types_with_null_at_every_depth_come_back(data: st.DataObject) -> None:
    kind = data.draw(KINDS)
    values = data.draw(st.lists(values_of(kind), min_size=1, max_size=4))
    column = pa.array(values, kind)

    assert back(column).to_pylist() == column.to_pylist()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.list_(pa.int64()), [[LARGE, None], None, []]),
        (pa.struct([("x", pa.int64())]), [{"x": LARGE}, {"x": None}, None]),
        (pa.list_(pa.struct([("x", pa.int64())])), [[{"x": LARGE}, None, {"x": None}], None]),
        (pa.map_(pa.string(), pa.int64()), [[("a", LARGE), ("b", None)], None]),
        (pa.list_(pa.list_(pa.int64())), [[[LARGE, None], None, []]]),
        (pa.list_(pa.decimal128(5, 2)), [[Decimal("999.99"), None]]),
    ],
    ids=str,
)
def test_integers_beside_null_stay_integers_at_every_depth(kind: pa.DataType, values: list[Any]) -> None:
    assert back(pa.array(values, kind)).to_pylist() == values


def test_lists_are_arrays_of_numpy_as_long_as_pandas_holds_their_values() -> None:
    """A step may compute with them, and nobody pays for Python lists of vectors."""
    frame = batch_as_frame(pa.record_batch({"v": pa.array([[1.0, 2.0]], pa.list_(pa.float32())), "n": pa.array([[1, None]])}))

    assert frame["v"].iloc[0].dtype == "float32"
    assert frame["n"].iloc[0].tolist() == [1, None]


def test_nan_beside_null_is_null_as_the_guide_says() -> None:
    assert back(pa.array([1.5, None, float("nan")])).to_pylist() == [1.5, None, None]


def test_a_column_of_maps_that_becomes_something_else_has_the_type_of_that() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64()))], ["v"])
    frame = batch_as_frame(batch)
    frame["v"] = ["a", None]

    assert frame_as_batch(frame, {})[0].column(0).to_pylist() == ["a", None]


def test_nanoseconds_of_objects_in_a_frame_are_not_cut_off() -> None:
    import pandas as pd

    times = [{"t": pd.Timestamp(1, unit="ns")}]

    made, _ = frame_as_batch(pd.DataFrame({"v": times}), {})

    assert made.column(0).type == pa.struct([("t", pa.timestamp("ns"))])
    assert made.column(0).field(0).cast(pa.int64()).to_pylist() == [1]

"""What transforms make of columns: as pyiceberg computes it value by value, and by the hashes that the specification lists."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
    parse_transform,
)
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from checkpoint_formats.iceberg.writing.transforms import as_stored, encoded, transformed, value_type, why_not_computed
from tests.support.effort import examples

#: The years 1 to 9999, which Python has.
_MICROSECONDS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
#: Each type with its values as Iceberg stores them, and how Arrow takes these.
TYPES: dict[str, tuple[IcebergType, st.SearchStrategy[Any], Callable[[list[Any]], pa.Array]]] = {
    # Whole multiples of the width below the smallest number do not exist: Iceberg's own Java wraps around there.
    "int": (IntegerType(), st.integers(-(1 << 31) + 100, (1 << 31) - 1), lambda values: pa.array(values, pa.int32())),
    "long": (LongType(), st.integers(-(1 << 63) + 100, (1 << 63) - 1), lambda values: pa.array(values, pa.int64())),
    "decimal": (
        DecimalType(18, 3),
        st.decimals(-(10**14), 10**14, places=3, allow_nan=False),
        lambda values: pa.array(values, pa.decimal128(18, 3)),
    ),
    "date": (DateType(), st.integers(-700_000, 2_900_000), lambda values: pa.array(values, pa.int32()).cast(pa.date32())),
    "time": (TimeType(), st.integers(0, 86_400_000_000 - 1), lambda values: pa.array(values, pa.time64("us"))),
    "timestamp": (TimestampType(), _MICROSECONDS, lambda values: pa.array(values, pa.timestamp("us"))),
    "timestamptz": (TimestamptzType(), _MICROSECONDS, lambda values: pa.array(values, pa.timestamp("us", "UTC"))),
    "string": (StringType(), st.text(), lambda values: pa.array(values, pa.large_string())),
    "binary": (BinaryType(), st.binary(), lambda values: pa.array(values, pa.large_binary())),
    "fixed": (FixedType(4), st.binary(min_size=4, max_size=4), lambda values: pa.array(values, pa.binary(4))),
    "uuid": (UUIDType(), st.binary(min_size=16, max_size=16), lambda values: pa.array(values, pa.uuid())),
}
TRANSFORMS: tuple[Transform[Any, Any], ...] = (
    IdentityTransform(),
    BucketTransform(1),
    BucketTransform(16),
    TruncateTransform(1),
    TruncateTransform(10),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
)


def computed(kind: IcebergType, transform: Transform[Any, Any], values: pa.Array) -> list[Any]:
    """What becomes of a column, by way of the binary form."""
    schema = Schema(NestedField(1, "x", kind))
    result = value_type(PartitionField(source_id=1, field_id=1000, transform=transform, name="p"), schema)
    batch = pa.record_batch([values], names=["x"])
    found = [encoded(result, value) for value in as_stored(transformed(batch, schema, 1, transform)).to_pylist()]
    return [None if value is None else from_bytes(result, value) for value in found]


def plain(value: Any) -> Any:
    return value.bytes if isinstance(value, uuid.UUID) else value


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_each_transform_of_each_type_makes_what_pyiceberg_makes_of_the_values_one_by_one(name: str, data: st.DataObject) -> None:
    kind, strategy, as_arrow = TYPES[name]
    values = data.draw(st.lists(st.none() | strategy, min_size=1, max_size=20))

    for transform in TRANSFORMS:
        if transform.can_transform(kind):
            found = computed(kind, transform, as_arrow(values))
            assert [plain(value) for value in found] == [transform.transform(kind)(value) for value in values], transform


@pytest.mark.parametrize(
    ("kind", "coarser", "zone"),
    [(TimestampNanoType(), TimestampType(), None), (TimestamptzNanoType(), TimestamptzType(), "UTC")],
    ids=str,
)
@settings(max_examples=examples(40))
@given(values=st.lists(st.none() | st.integers(-(1 << 62), 1 << 62), min_size=1))
def test_nanoseconds_are_in_the_partition_of_the_microsecond_that_they_lie_in_also_before_1970(
    kind: IcebergType, coarser: IcebergType, zone: str | None, values: list[int | None]
) -> None:
    given_values = pa.array(values, pa.timestamp("ns", zone))

    for transform in TRANSFORMS:
        if transform.can_transform(kind) and not isinstance(transform, IdentityTransform):
            alone = transform.transform(coarser)
            expected = [None if value is None else alone(value // 1000) for value in values]
            assert computed(kind, transform, given_values) == expected, transform
    assert computed(kind, IdentityTransform(), given_values) == values


@pytest.mark.parametrize(
    ("kind", "value", "hashed"),
    [
        (IntegerType(), pa.array([34], pa.int32()), 2017239379),
        (LongType(), pa.array([34], pa.int64()), 2017239379),
        (DecimalType(9, 2), pa.array([decimal.Decimal("14.20")], pa.decimal128(9, 2)), -500754589),
        (DateType(), pa.array([datetime.date(2017, 11, 16)], pa.date32()), -653330422),
        (TimeType(), pa.array([datetime.time(22, 31, 8)], pa.time64("us")), -662762989),
        (TimestampType(), pa.array([datetime.datetime.fromisoformat("2017-11-16T22:31:08")], pa.timestamp("us")), -2047944441),
        (TimestampNanoType(), pa.array([1510871468000001001], pa.timestamp("ns")), -1207196810),
        (StringType(), pa.array(["iceberg"], pa.large_string()), 1210000089),
        (UUIDType(), pa.array([uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes], pa.uuid()), 1488055340),
        (FixedType(4), pa.array([b"\x00\x01\x02\x03"], pa.binary(4)), -188683207),
        (BinaryType(), pa.array([b"\x00\x01\x02\x03"], pa.large_binary()), -188683207),
    ],
    ids=str,
)
def test_buckets_follow_from_the_hashes_that_the_specification_lists(kind: IcebergType, value: pa.Array, hashed: int) -> None:
    buckets = 1_000_003

    assert computed(kind, BucketTransform(buckets), value) == [(hashed & 0x7FFFFFFF) % buckets]


def test_a_column_inside_structs_and_one_with_dots_in_its_name_are_found() -> None:
    inner = StructType(NestedField(3, "b", LongType(), required=False))
    schema = Schema(NestedField(1, "x.y", LongType()), NestedField(2, "a", inner, required=False))
    batch = pa.record_batch({"x.y": [1, 2], "a": pa.array([{"b": 7}, None])})

    assert transformed(batch, schema, 1, IdentityTransform()).to_pylist() == [1, 2]
    assert transformed(batch, schema, 3, IdentityTransform()).to_pylist() == [7, None]


def test_void_is_null_whatever_the_column_is_and_also_where_it_was_dropped() -> None:
    schema = Schema(NestedField(1, "x", StringType()))
    batch = pa.record_batch({"x": ["a", "b"]})

    assert transformed(batch, schema, 1, VoidTransform()).null_count == 2
    assert transformed(batch, schema, 7, VoidTransform()).null_count == 2


def test_what_cannot_be_computed_is_said() -> None:
    assert why_not_computed(parse_transform("zorder"), LongType()) == "its transform is not known"
    assert why_not_computed(IdentityTransform(), None) == "its column was dropped"
    assert why_not_computed(HourTransform(), DateType()) == "hour does not apply to date"
    assert why_not_computed(VoidTransform(), None) is None

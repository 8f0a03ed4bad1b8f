"""Data files as an Iceberg table wants them: rows in its sort order, metrics in its modes, row groups and files of its sizes."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, Transform, TruncateTransform, VoidTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from checkpoint_commit.iceberg.metadata.checks import FileChecks
from checkpoint_formats.iceberg.stager import IcebergStager
from checkpoint_formats.iceberg.writing.metrics import modes_of, most_bound_bytes
from checkpoint_formats.iceberg.writing.transforms import sorted_rows, why_not_sorted
from checkpoint_formats.iceberg.writing.write_properties import parse
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import FieldMetrics, IcebergFile, IcebergTarget
from tests.support.effort import examples
from tests.support.records import KEY

FLAT = Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))


def stager(
    folder: Path,
    schema: Schema = FLAT,
    *,
    order: SortOrder | None = None,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    properties: Sequence[tuple[str, str]] = (),
    target_bytes: int = 1 << 20,
) -> IcebergStager:
    target = IcebergTarget(
        table="c.db.t",
        table_uuid="u",
        data_location=str(folder),
        table_schema_json=schema.model_dump_json(),
        partition_spec_json=spec.model_dump_json(),
        codec="zstd",
        sort_order_json=None if order is None else order.model_dump_json(),
        write_properties=tuple(properties),
    )
    return IcebergStager(target, KEY, "1-0", target_bytes, StorageSettings())


def ordered_by(
    field_id: int = 1,
    transform: Transform[Any, Any] | None = None,
    direction: SortDirection = SortDirection.ASC,
    nulls: NullOrder = NullOrder.NULLS_FIRST,
) -> SortField:
    return SortField(source_id=field_id, transform=transform or IdentityTransform(), direction=direction, null_order=nulls)


def rows_of(file: IcebergFile) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(file.path).to_pylist()
    return rows


# --- sort orders ----------------------------------------------------------------------------------------------------------


def test_each_file_of_a_sorted_table_is_in_order_as_a_whole_and_says_so(tmp_path: Path) -> None:
    order = SortOrder(ordered_by(2), ordered_by(1, direction=SortDirection.DESC, nulls=NullOrder.NULLS_LAST), order_id=3)
    made = stager(tmp_path, order=order, properties=[("write.parquet.row-group-size-bytes", "20000")], target_bytes=100_000)
    rows: list[dict[str, Any]] = [
        {"id": (number * 7919) % 10_007, "text": None if number % 11 == 0 else f"{number % 13}"} for number in range(10_000)
    ]
    batches = [pa.RecordBatch.from_pylist(rows[start : start + 1_000], made.arrow_schema) for start in range(0, 10_000, 1_000)]

    files = made.stage(iter(batches))

    assert len(files) > 1, "it is rolled"
    assert {file.sort_order_id for file in files} == {3}
    assert all(pq.ParquetFile(file.path).num_row_groups > 1 for file in files[:-1])
    for file in files:
        found = rows_of(file)
        assert found == sorted(found, key=lambda row: (row["text"] is not None, row["text"] or "", -row["id"]))
    everything = [row for file in files for row in rows_of(file)]
    assert sorted(everything, key=lambda row: row["id"]) == sorted(rows, key=lambda row: row["id"])


def test_files_of_each_partition_are_sorted_and_memory_is_bounded_over_all_of_them(tmp_path: Path) -> None:
    spec = PartitionSpec(PartitionField(source_id=1, field_id=1000, transform=BucketTransform(8), name="b"))
    made = stager(tmp_path, order=SortOrder(ordered_by(1)), spec=spec)
    rows = [{"id": (number * 7919) % 5_003, "text": "x"} for number in range(5_000)]

    files = made.stage(iter([pa.RecordBatch.from_pylist(rows, made.arrow_schema)]))

    assert len({file.partition for file in files}) == len(files) == 8
    for file in files:
        ids = [row["id"] for row in rows_of(file)]
        assert ids == sorted(ids)
    assert sum(file.rows for file in files) == 5_000


def test_a_table_without_a_sort_order_keeps_the_order_of_the_rows_and_says_nothing(tmp_path: Path) -> None:
    made = stager(tmp_path)

    (file,) = made.stage(iter([pa.RecordBatch.from_pylist([{"id": n, "text": None} for n in (3, 1, 2)], made.arrow_schema)]))

    assert [row["id"] for row in rows_of(file)] == [3, 1, 2]
    assert file.sort_order_id is None


def sorted_values(kind: IcebergType, values: pa.Array, *fields: SortField) -> list[Any]:
    schema = Schema(NestedField(1, "x", kind, required=False))
    batch = pa.record_batch([values], names=["x"])
    found: list[Any] = values.take(sorted_rows(batch, schema, SortOrder(*fields))).to_pylist()
    return found


def bits(value: float) -> int:
    """The number of a float in the total order of IEEE 754."""
    number: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return number if number >= 0 else number ^ 0x7FFFFFFFFFFFFFFF


@pytest.mark.parametrize("direction", SortDirection)
@pytest.mark.parametrize("nulls", NullOrder)
@settings(max_examples=examples(60))
@given(values=st.lists(st.none() | st.floats(allow_nan=True)))
def test_floating_point_numbers_are_in_the_total_order_with_null_where_the_order_wants_it(
    direction: SortDirection, nulls: NullOrder, values: list[float | None]
) -> None:
    found = sorted_values(DoubleType(), pa.array(values, pa.float64()), ordered_by(1, None, direction, nulls))

    there = sorted((value for value in values if value is not None), key=bits, reverse=direction == SortDirection.DESC)
    missing = [None] * values.count(None)
    expected = [*missing, *there] if nulls == NullOrder.NULLS_FIRST else [*there, *missing]
    assert [value if value is None else bits(value) for value in found] == [v if v is None else bits(v) for v in expected]


def test_zeros_infinities_and_nan_of_both_signs_are_in_order_as_floats_of_32_bits() -> None:
    wanted = [-math.nan, -math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan]

    found = sorted_values(FloatType(), pa.array(wanted[::-1], pa.float32()), ordered_by())

    assert [math.copysign(1, value) for value in found] == [-1.0] * 4 + [1.0] * 4
    assert [str(abs(value)) for value in found] == [str(abs(value)) for value in wanted]


@pytest.mark.parametrize(
    ("kind", "given_values", "transform", "expected"),
    [
        (IntegerType(), pa.array([9, 11, 1, 19, None], pa.int32()), TruncateTransform(10), [None, 9, 1, 11, 19]),
        (StringType(), pa.array(["bz", "ay", "ba", "ax"], pa.large_string()), TruncateTransform(1), ["ay", "ax", "bz", "ba"]),
        (LongType(), pa.array([3, 2, 1], pa.int64()), VoidTransform(), [3, 2, 1]),
        (LongType(), pa.array([0, 1, 2, 3, 4, 5, 6], pa.int64()), BucketTransform(2), None),
    ],
    ids=["truncated numbers", "truncated text", "void", "buckets"],
)
def test_rows_are_sorted_by_what_the_transform_makes_and_stay_as_they_are_within_it(
    kind: IcebergType, given_values: pa.Array, transform: Transform[Any, Any], expected: list[Any] | None
) -> None:
    alone = transform.transform(kind)
    by_python = sorted(given_values.to_pylist(), key=lambda value: alone(value) or 0 if value is not None else -1)

    assert sorted_values(kind, given_values, ordered_by(1, transform)) == (expected or by_python)


def test_times_are_sorted_by_day() -> None:
    hours = pa.array([50, 49, 1, 30, 25], pa.int64())

    found = sorted_values(
        TimestampType(),
        pa.array([hour.as_py() * 3_600_000_000 for hour in hours], pa.timestamp("us")),
        ordered_by(1, DayTransform()),
    )

    assert [(moment.day, moment.hour) for moment in found] == [(1, 1), (2, 6), (2, 1), (3, 2), (3, 1)]


def test_an_order_by_what_cannot_be_computed_is_named() -> None:
    assert why_not_sorted(SortOrder(ordered_by(1), ordered_by(9)), FLAT) == "its column was dropped"
    assert why_not_sorted(SortOrder(ordered_by(2, DayTransform())), FLAT) == "day does not apply to string (column 'text')"


# --- metrics --------------------------------------------------------------------------------------------------------------


def metrics_of(file: IcebergFile) -> dict[int, FieldMetrics]:
    return {metrics.field_id: metrics for metrics in map(FieldMetrics._make, file.metrics)}


def decoded(bound: str | None) -> bytes | None:
    return None if bound is None else base64.b64decode(bound)


@pytest.mark.parametrize(
    ("mode", "values", "lower", "upper"),
    [
        ("none", None, None, None),
        ("Counts", 3, None, None),
        ("truncate(4)", 3, b"aaaa", b"bbbc"),
        ("full", 3, b"a" * 40, b"b" * 40),
        (None, 3, b"a" * 16, b"b" * 15 + b"c"),
    ],
)
def test_metrics_are_what_the_mode_of_the_column_says(
    tmp_path: Path, mode: str | None, values: int | None, lower: bytes | None, upper: bytes | None
) -> None:
    properties = [] if mode is None else [("write.metadata.metrics.column.text", mode)]
    made = stager(tmp_path, properties=properties)
    rows = [{"id": 1, "text": "a" * 40}, {"id": 2, "text": None}, {"id": 3, "text": "b" * 40}]

    (file,) = made.stage(iter([pa.RecordBatch.from_pylist(rows, made.arrow_schema)]))

    text, number = metrics_of(file)[2], metrics_of(file)[1]
    assert (text.value_count, decoded(text.lower), decoded(text.upper)) == (values, lower, upper)
    assert text.null_count == (None if mode == "none" else 1)
    assert text.column_size
    assert decoded(number.upper) == struct.pack("<q", 3), "other columns have the usual metrics"


@pytest.mark.parametrize("mode", ["full", "truncate(1024)", "truncate(100000)"])
def test_bounds_of_texts_and_bytes_have_an_end_whatever_the_mode_says(tmp_path: Path, mode: str) -> None:
    schema = Schema(
        NestedField(1, "text", StringType()), NestedField(2, "raw", BinaryType()), NestedField(3, "f", FixedType(3_000))
    )
    properties = [("write.metadata.metrics.default", mode)]
    made = stager(tmp_path, schema, properties=properties)
    rows = [{"text": "é" * 1_500, "raw": b"b" * 3_000, "f": b"f" * 3_000}]

    (file,) = made.stage(iter([pa.RecordBatch.from_pylist(rows, made.arrow_schema)]))

    text, raw, fixed = (metrics_of(file)[field_id] for field_id in (1, 2, 3))
    assert (decoded(text.lower), decoded(text.upper)) == (("é" * 1_024).encode(), ("é" * 1_023 + "ê").encode())
    assert (decoded(raw.lower), decoded(raw.upper)) == (b"b" * 1_024, b"b" * 1_023 + b"c")
    assert (fixed.lower, fixed.upper, fixed.value_count) == (None, None, 1)
    most = most_bound_bytes(schema, modes_of(schema, None, dict(properties)))
    assert FileChecks({0: schema}, {0: most}).problem_of(file) is None, "what is staged is committed"


def test_bounds_may_be_as_long_as_the_mode_has_them() -> None:
    schema = Schema(NestedField(1, "text", StringType()), NestedField(2, "raw", BinaryType()), NestedField(3, "n", LongType()))

    def most(*properties: tuple[str, str]) -> dict[int, int]:
        return most_bound_bytes(schema, modes_of(schema, None, dict(properties)))

    assert most() == {1: 64, 2: 16}
    assert most(("write.metadata.metrics.default", "none"), ("write.metadata.metrics.column.raw", "full")) == {1: 64, 2: 1_024}
    assert most(("write.metadata.metrics.default", "truncate(4)")) == {1: 16, 2: 4}


def test_bounds_of_nanoseconds_are_not_cut_off(tmp_path: Path) -> None:
    """An upper bound that is too low hides rows from a filter."""
    made = stager(tmp_path, Schema(NestedField(1, "at", TimestampNanoType())), target_bytes=2_000)
    values = [1_600_000_000_123_456_789, None, -1]

    (file,) = made.stage(iter([pa.record_batch([pa.array(values, pa.timestamp("ns"))], schema=made.arrow_schema)]))

    metrics = metrics_of(file)[1]
    assert (decoded(metrics.lower), decoded(metrics.upper)) == (struct.pack("<q", -1), struct.pack("<q", values[0]))
    (empty,) = made.stage(iter([pa.record_batch([pa.nulls(3, pa.timestamp("ns"))], schema=made.arrow_schema)]))
    assert (metrics_of(empty)[1].lower, metrics_of(empty)[1].null_count) == (None, 3)


_YEAR_9999 = 253_402_300_799_000_000


@pytest.mark.parametrize(
    ("kind", "values", "lower", "upper"),
    [
        (
            TimestamptzType(),
            pa.array([0, _YEAR_9999 + 18_000_000_000], pa.timestamp("us", "UTC")),
            0,
            _YEAR_9999 + 18_000_000_000,
        ),
        (TimestampType(), pa.array([-(2**63), 2**63 - 1], pa.timestamp("us")), -(2**63), 2**63 - 1),
        (TimestampNanoType(), pa.array([-(2**63), 2**63 - 1], pa.timestamp("ns")), -(2**63), 2**63 - 1),
        (TimeType(), pa.array([1, 86_400_000_000], pa.time64("us")), 1, 86_400_000_000),
    ],
)
def test_bounds_of_times_that_python_does_not_have_are_told(
    tmp_path: Path, kind: IcebergType, values: pa.Array, lower: int, upper: int
) -> None:
    made = stager(tmp_path, Schema(NestedField(1, "at", kind)))

    (file,) = made.stage(iter([pa.record_batch([values], schema=made.arrow_schema)]))

    metrics = metrics_of(file)[1]
    assert (decoded(metrics.lower), decoded(metrics.upper)) == (struct.pack("<q", lower), struct.pack("<q", upper))


def test_bounds_of_dates_that_python_does_not_have_are_told(tmp_path: Path) -> None:
    made = stager(tmp_path, Schema(NestedField(1, "on", DateType())))
    values = pa.array([-(2**31), 2**31 - 1], pa.date32())

    (file,) = made.stage(iter([pa.record_batch([values], schema=made.arrow_schema)]))

    metrics = metrics_of(file)[1]
    assert (decoded(metrics.lower), decoded(metrics.upper)) == (struct.pack("<i", -(2**31)), struct.pack("<i", 2**31 - 1))


def test_a_bound_that_cannot_be_told_is_left_out_and_the_other_columns_have_theirs(tmp_path: Path) -> None:
    made = stager(tmp_path)
    no_text = pa.array([b"\xff\xfe", None], pa.large_binary()).view(pa.large_string())

    (file,) = made.stage(iter([pa.record_batch([pa.array([1, 2]), no_text], schema=made.arrow_schema)]))

    number, text = metrics_of(file)[1], metrics_of(file)[2]
    assert (text.lower, text.upper, text.value_count, text.null_count) == (None, None, 2, 1)
    assert (decoded(number.lower), decoded(number.upper)) == (struct.pack("<q", 1), struct.pack("<q", 2))


@pytest.mark.parametrize("place", [0, 1])
def test_a_row_group_whose_texts_are_too_long_for_statistics_leaves_no_bounds_that_are_too_narrow(
    tmp_path: Path, place: int
) -> None:
    """Bounds of the other row groups would hide its rows from a filter."""
    made = stager(tmp_path, properties=[("write.parquet.row-group-size-bytes", "1")])
    rows = [{"id": 1, "text": "m"}, {"id": 2, "text": "m"}]
    rows[place]["text"] = ("a" if place else "z") * 9_000

    (file,) = made.stage(iter([pa.RecordBatch.from_pylist([row], made.arrow_schema) for row in rows]))

    text = metrics_of(file)[2]
    assert (text.lower, text.upper, text.null_count) == (None, None, 0)


def test_a_row_group_of_null_or_nan_only_does_not_take_the_bounds_of_the_others_away(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "x", DoubleType()), NestedField(2, "text", StringType()))
    made = stager(tmp_path, schema, properties=[("write.parquet.row-group-size-bytes", "1")])
    rows = [{"x": math.nan, "text": None}, {"x": 1.0, "text": "a"}, {"x": None, "text": "b"}]

    (file,) = made.stage(iter([pa.RecordBatch.from_pylist([row], made.arrow_schema) for row in rows]))

    number, text = metrics_of(file)[1], metrics_of(file)[2]
    assert (decoded(number.lower), decoded(number.upper)) == (struct.pack("<d", 1), struct.pack("<d", 1))
    assert (decoded(text.lower), decoded(text.upper)) == (b"a", b"b")


WIDE = Schema(
    NestedField(1, "s", StructType(*(NestedField(10 + n, f"i{n}", LongType()) for n in range(3)))),
    *(NestedField(100 + n, f"c{n}", LongType()) for n in range(4)),
)


@pytest.mark.parametrize(
    ("properties", "default", "columns"),
    [
        ({}, "truncate(16)", {}),
        ({"write.metadata.metrics.default": "full"}, "full", {}),
        (
            {"write.metadata.metrics.max-inferred-column-defaults": "5"},
            "none",
            dict.fromkeys(("c0", "c1", "c2", "c3", "s.i0"), "truncate(16)"),
        ),
        ({"write.metadata.metrics.max-inferred-column-defaults": "2"}, "none", dict.fromkeys(("c0", "c1"), "truncate(16)")),
        ({"write.metadata.metrics.default": "counts", "write.metadata.metrics.column.c1": "full"}, "counts", {"c1": "full"}),
    ],
)
def test_the_modes_of_columns_follow_from_the_properties_as_in_iceberg(
    properties: dict[str, str], default: str, columns: dict[str, str]
) -> None:
    modes = modes_of(WIDE, None, properties)

    assert modes.pop("write.metadata.metrics.default") == default
    assert {name.removeprefix("write.metadata.metrics.column."): mode for name, mode in modes.items()} == columns


@pytest.mark.parametrize(("default", "mode"), [("none", "truncate(16)"), ("counts", "truncate(16)"), ("full", "full")])
def test_columns_that_a_table_is_sorted_by_have_bounds_unless_they_have_a_mode_of_their_own(default: str, mode: str) -> None:
    order = SortOrder(ordered_by(100), ordered_by(101, BucketTransform(4)), ordered_by(102))
    properties = {"write.metadata.metrics.default": default, "write.metadata.metrics.column.c2": "counts"}

    modes = modes_of(WIDE, order, properties)

    assert modes["write.metadata.metrics.column.c0"] == mode
    assert "write.metadata.metrics.column.c1" not in modes
    assert modes["write.metadata.metrics.column.c2"] == "counts"


# --- properties -----------------------------------------------------------------------------------------------------------


def test_row_groups_are_of_the_size_that_the_table_wants(tmp_path: Path) -> None:
    rows = [{"id": number, "text": None} for number in range(10_000)]
    counts = []
    for size in ("10000", "100000000"):
        made = stager(tmp_path, properties=[("write.parquet.row-group-size-bytes", size)])
        (file,) = made.stage(iter([pa.RecordBatch.from_pylist(rows, made.arrow_schema)]))
        counts.append(pq.ParquetFile(file.path).num_row_groups)

    assert counts[0] > 5
    assert counts[1] == 1


def test_a_dictionary_ends_at_the_size_that_the_table_wants(tmp_path: Path) -> None:
    rows = [{"id": 1, "text": f"{number % 500:0200}"} for number in range(20_000)]
    sizes = []
    for size in ("1000", "1000000"):
        made = stager(tmp_path, properties=[("write.parquet.dict-size-bytes", size), ("write.parquet.page-size-bytes", "5000")])
        (file,) = made.stage(iter([pa.RecordBatch.from_pylist(rows, made.arrow_schema)]))
        sizes.append(pq.ParquetFile(file.path).metadata.row_group(0).column(1).total_uncompressed_size)

    assert sizes[0] > 2 * sizes[1]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.format.default", "avro"),
        ("write.parquet.compression-codec", "lzo"),
        ("write.parquet.compression-level", "fast"),
        ("write.parquet.compression-level", "99"),
        ("write.parquet.row-group-size-bytes", "0"),
        ("write.parquet.page-size-bytes", "-1"),
        ("write.parquet.dict-size-bytes", "2MB"),
        ("write.target-file-size-bytes", ""),
        ("write.metadata.metrics.default", "truncate(0)"),
        ("write.metadata.metrics.column.id", "everything"),
        ("write.metadata.metrics.max-inferred-column-defaults", "many"),
    ],
)
def test_a_property_that_says_nothing_is_named_with_what_is_expected(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=r"can be written|is expected") as caught:
        parse({name: value}, WIDE, None)

    assert str(caught.value).startswith(f"{name} is '{value}', and ")


def test_a_codec_without_levels_passes_over_one() -> None:
    assert (
        parse({"write.parquet.compression-codec": "snappy", "write.parquet.compression-level": "3"}, FLAT, None).codec_level
        is None
    )
    assert parse({"write.parquet.compression-level": "3"}, FLAT, None).codec_level == 3

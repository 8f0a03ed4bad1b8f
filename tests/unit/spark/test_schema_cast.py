"""Making output fit the table: by column name, with no cast that changes what a value means."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_formats.rows.plain_types import with_default
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_work.steps.values.schema_cast import check_columns, fit


def column(given: pa.Array, wanted: pa.DataType, nullable: bool = True) -> list[Any]:
    """Fit one column and return its values."""
    fitted = fit(pa.record_batch({"a": given}), pa.schema([pa.field("a", wanted, nullable=nullable)]))
    assert fitted.schema.field("a").type == wanted
    values: list[Any] = fitted.column(0).to_pylist()
    return values


def refusal(given: pa.Array, wanted: pa.DataType) -> str:
    with pytest.raises(NeedsChange) as caught:
        column(given, wanted)
    assert caught.value.reason == reasons.OUTPUT_SCHEMA_WRONG
    assert "'a'" in caught.value.message
    return caught.value.message


# --- columns --------------------------------------------------------------------------------------------------------------

TABLE = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string()), ("more", pa.float64())])


def test_columns_are_taken_by_name_in_the_tables_order() -> None:
    given = pa.record_batch({"more": [0.5], "text": ["x"], "id": [1]})

    assert fit(given, TABLE).schema.names == ["id", "text", "more"]
    assert fit(given, TABLE).to_pylist() == [{"id": 1, "text": "x", "more": 0.5}]


def test_an_optional_column_that_is_not_given_is_null() -> None:
    assert fit(pa.record_batch({"id": [1, 2]}), TABLE).to_pylist() == [
        {"id": 1, "text": None, "more": None},
        {"id": 2, "text": None, "more": None},
    ]


def test_a_batch_that_fits_is_passed_on_as_it_is() -> None:
    schema = pa.schema([("id", pa.int64())])
    batch = pa.RecordBatch.from_pydict({"id": [1]}, schema=schema)

    assert fit(batch, schema) is batch


def test_no_rows_fit_too() -> None:
    assert fit(pa.record_batch({"id": pa.array([], pa.int64())}), TABLE).num_rows == 0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"id": [1], "extra": [2]}, ["'extra'", "id, text, more"]),
        ({"ID": [1]}, ["'ID'"]),
        ({"text": ["x"]}, ["requires the column 'id'", "(they give text)"]),
        ({"id": ["1"]}, ["string", "'id'", "int64", "cast it in a step"]),
        ({"id": [None]}, ["NULL in the column 'id'", "requires"]),
        ({"id": pa.array([None], pa.int64())}, ["NULL in the column 'id'"]),
    ],
)
def test_columns_that_cannot_go_into_the_table_are_named(given: dict[str, Any], says: list[str]) -> None:
    with pytest.raises(NeedsChange) as caught:
        fit(pa.record_batch(given), TABLE)

    assert caught.value.reason == reasons.OUTPUT_SCHEMA_WRONG
    for part in says:
        assert part in caught.value.message


def test_a_column_that_is_given_twice_is_refused() -> None:
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])

    with pytest.raises(NeedsChange, match="'id' more than once"):
        fit(twice, TABLE)


def test_the_columns_can_be_checked_before_the_first_batch() -> None:
    check_columns(pa.schema([("id", pa.int32())]), TABLE)
    with pytest.raises(NeedsChange, match="'id'"):
        check_columns(pa.schema([("id", pa.bool_())]), TABLE)


def test_null_in_a_required_column_is_refused_although_the_batch_says_that_it_has_none() -> None:
    """Arrow does not check what a schema promises."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])

    with pytest.raises(NeedsChange, match="'id'"):
        fit(pa.RecordBatch.from_arrays([pa.array([1, None])], schema=schema), schema)


# --- values that keep their meaning ---------------------------------------------------------------------------------------

UTC = datetime.UTC
naive = datetime.datetime.fromisoformat
INTS, LONGS = pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64())
PAIRS, PAIR_OF_FLOATS = pa.list_(pa.float64(), 2), pa.list_(pa.float32(), 2)


@pytest.mark.parametrize(
    ("given", "wanted", "values"),
    [
        (pa.array([1, None], pa.int8()), pa.int64(), [1, None]),
        (pa.array([1], pa.int64()), pa.int32(), [1]),
        (pa.array([1], pa.uint64()), pa.int64(), [1]),
        (pa.array([3], pa.int64()), pa.float64(), [3.0]),
        (pa.array([3], pa.int64()), pa.decimal128(38, 2), [Decimal("3.00")]),
        (pa.array([1.5], pa.float32()), pa.float64(), [1.5]),
        (pa.array([1.5], pa.float64()), pa.float32(), [1.5]),
        (pa.array([Decimal("1.50")]), pa.decimal128(10, 1), [Decimal("1.5")]),
        (pa.array([Decimal("1.5")]), pa.decimal128(20, 4), [Decimal("1.5000")]),
        (pa.array([datetime.date(2024, 2, 29)]), pa.timestamp("us"), [naive("2024-02-29")]),
        (pa.array([1000], pa.timestamp("ns")), pa.timestamp("us"), [naive("1970-01-01T00:00:00.000001")]),
        (pa.array([-1], pa.timestamp("s")), pa.timestamp("us"), [naive("1969-12-31T23:59:59")]),
        (
            pa.array([0], pa.timestamp("us", "Europe/Berlin")),
            pa.timestamp("us", "UTC"),
            [datetime.datetime(1970, 1, 1, tzinfo=UTC)],
        ),
        (pa.array(["ü"]), pa.large_string(), ["ü"]),
        (pa.array(["ü"], pa.large_string()), pa.string(), ["ü"]),
        (pa.array([b"x"]), pa.large_binary(), [b"x"]),
        (pa.array([b"abcd"]), pa.binary(4), [b"abcd"]),
        (pa.array([None, None]), pa.string(), [None, None]),
        (pa.array([None]), pa.struct([("x", pa.int64())]), [None]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), pa.string(), ["a", "b", "a"]),
        (pa.array([[1], None, []], pa.list_(pa.int32())), pa.list_(pa.int64()), [[1], None, []]),
        (pa.array([[1]]), pa.large_list(pa.int64()), [[1]]),
        (pa.array([[]]), pa.list_(pa.string()), [[]]),
        (pa.array([{"x": 1}], pa.struct([("x", pa.int32())])), pa.struct([("x", pa.int64())]), [{"x": 1}]),
        (pa.array([{"y": 1, "x": 2}]), pa.struct([("x", pa.int64()), ("y", pa.int64())]), [{"x": 2, "y": 1}]),
        (pa.array([{"x": 2}, None]), pa.struct([("x", pa.int64()), ("y", pa.int64())]), [{"x": 2, "y": None}, None]),
        (
            pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
            pa.map_(pa.string(), pa.int64()),
            [[("k", 1)]],
        ),
        (pa.array([[("k", 1)], None, [], [("l", 2), ("m", None)]], INTS).slice(1), LONGS, [None, [], [("l", 2), ("m", None)]]),
        (pa.array([[1.5, 2.5], None, [3.5, None]], PAIRS).slice(1), pa.list_(pa.float32(), 2), [None, [3.5, None]]),
        (pa.array([[1.5, 2.5], None]), pa.list_(pa.float32(), 2), [[1.5, 2.5], None]),
        (pa.array([[1.5, 2.5], None], PAIRS), pa.list_(pa.float32()), [[1.5, 2.5], None]),
        (pa.array([float("nan"), float("inf")]), pa.float32(), None),
    ],
    ids=str,
)
def test_a_cast_that_keeps_the_value_is_made(given: pa.Array, wanted: pa.DataType, values: list[Any] | None) -> None:
    fitted = column(given, wanted)

    if values is None:
        assert str(fitted) == "[nan, inf]"
    else:
        assert fitted == values


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pa.array([1.0]), pa.int64()),
        (pa.array([True]), pa.int64()),
        (pa.array([1]), pa.bool_()),
        (pa.array(["1"]), pa.int64()),
        (pa.array([1]), pa.string()),
        (pa.array([Decimal("1.5")]), pa.float64()),
        (pa.array([1.5]), pa.decimal128(10, 2)),
        (pa.array(["2024-01-01"]), pa.date32()),
        (pa.array([0], pa.timestamp("us")), pa.date32()),
        (pa.array([0], pa.timestamp("us")), pa.timestamp("us", "UTC")),
        (pa.array([0], pa.timestamp("us", "UTC")), pa.timestamp("us")),
        (pa.array([b"x"]), pa.string()),
        (pa.array(["x"]), pa.binary()),
        (pa.array([1], pa.duration("us")), pa.int64()),
        (pa.array([[1.5]]), pa.list_(pa.int64())),
        (pa.array([{"x": 1, "y": 2}]), pa.struct([("x", pa.int64())])),
        (pa.array([{"x": 1}]), pa.struct([("y", pa.int64())])),
        (pa.array([[("k", "v")]], pa.map_(pa.string(), pa.string())), pa.map_(pa.string(), pa.int64())),
        (pa.array(["1"]).dictionary_encode(), pa.int64()),
    ],
    ids=str,
)
def test_a_column_of_another_kind_is_refused_with_both_types(given: pa.Array, wanted: pa.DataType) -> None:
    message = refusal(given, wanted)

    assert str(given.type) in message
    assert str(wanted) in message


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pa.array([1 << 31]), pa.int32()),
        (pa.array([-1]), pa.uint8()),
        (pa.array([1 << 63], pa.uint64()), pa.int64()),
        (pa.array([(1 << 53) + 1]), pa.float64()),
        (pa.array([Decimal("1.25")]), pa.decimal128(10, 1)),
        (pa.array([Decimal("100")]), pa.decimal128(3, 1)),
        (pa.array([1], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([1 << 62], pa.timestamp("s")), pa.timestamp("us")),
        (pa.array([b"abc"]), pa.binary(4)),
        (pa.array([[1 << 40]]), pa.list_(pa.int32())),
        (pa.array([{"x": None}], pa.struct([("x", pa.int64())])), pa.struct([pa.field("x", pa.int64(), nullable=False)])),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_refused_and_never_cut_off(given: pa.Array, wanted: pa.DataType) -> None:
    assert str(wanted) in refusal(given, wanted)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pa.array([1e300]), pa.float32()),
        (pa.array([[1e300, 1.0]]), pa.list_(pa.float32())),
        (pa.array([[1e300, 1.0]], PAIRS), pa.list_(pa.float32(), 2)),
        (pa.array([[1e300, 1.0]]), pa.list_(pa.float32(), 2)),
        (pa.array([[("k", 1e300)]], pa.map_(pa.string(), pa.float64())), pa.map_(pa.string(), pa.float32())),
        (pa.array([{"x": [[1e300, 1.0]]}], pa.struct([("x", pa.list_(PAIRS))])), pa.struct([("x", pa.list_(PAIR_OF_FLOATS))])),
    ],
    ids=str,
)
def test_a_float_that_is_too_large_is_refused_and_does_not_become_infinite(given: pa.Array, wanted: pa.DataType) -> None:
    refusal(given, wanted)


def test_a_null_in_a_list_of_required_elements_is_refused() -> None:
    refusal(pa.array([[1, None]]), pa.list_(pa.field("element", pa.int64(), nullable=False)))


def test_an_integer_that_fits_a_small_decimal_is_taken() -> None:
    assert column(pa.array([12]), pa.decimal128(10, 2)) == [Decimal("12.00")]


# --- UUIDs and defaults ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given_type", [pa.binary(16), pa.binary(), pa.large_binary(), pa.uuid()], ids=str)
def test_the_sixteen_bytes_of_a_uuid_go_into_a_column_of_uuids(given_type: pa.DataType) -> None:
    number = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")

    assert column(pa.array([number.bytes, None], given_type), pa.uuid()) == [number, None]


@pytest.mark.parametrize(
    "given", [pa.array([b"short"]), pa.array(["f79c3e09-677c-4bbd-a479-3f349cb785e7"])], ids=["bytes", "text"]
)
def test_what_is_not_sixteen_bytes_is_no_uuid(given: pa.Array) -> None:
    assert "uuid" in refusal(given, pa.uuid())


def test_columns_and_fields_that_rows_lack_have_the_default_of_the_table_and_null_stays_null() -> None:
    inner = pa.struct([pa.field("x", pa.int64()), with_default(pa.field("y", pa.int64(), nullable=False), 7)])
    wanted = pa.schema(
        [
            pa.field("id", pa.int64()),
            with_default(pa.field("must", pa.string(), nullable=False), "some"),
            with_default(pa.field("may", pa.decimal128(9, 2)), Decimal("1.50")),
            pa.field("place", inner),
        ]
    )

    lacking = fit(pa.record_batch({"id": [1, 2], "place": pa.array([{"x": 1}, None])}), wanted)
    given = fit(pa.record_batch({"id": [1], "must": ["own"], "may": pa.nulls(1), "place": pa.array([{"x": 1, "y": 2}])}), wanted)

    assert lacking.to_pylist() == [
        {"id": 1, "must": "some", "may": Decimal("1.50"), "place": {"x": 1, "y": 7}},
        {"id": 2, "must": "some", "may": Decimal("1.50"), "place": None},
    ]
    assert given.to_pylist() == [{"id": 1, "must": "own", "may": None, "place": {"x": 1, "y": 2}}]

"""Values of Avro as rows: what a library has encoded arrives exactly, and what no column holds is refused by its path."""

from __future__ import annotations

import datetime
import json
import math
import uuid
from decimal import Decimal
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_formats.kafka.avro import columns, decoder
from checkpoint_formats.kafka.avro_schema import parse
from checkpoint_formats.kafka.no_column import NoColumn

UTC: Final = datetime.UTC


def record(*fields: dict[str, Any], name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [*fields]}


def column(kind: Any, name: str = "x", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def logical(kind: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


def encoded(schema: Any, value: Any) -> bytes:
    stream = BytesIO()
    schemaless_writer(stream, parse_schema(json.loads(json.dumps(schema))), value, strict=True)
    return stream.getvalue()


def batch(written: Any, value: Any, read: Any = None, chosen: list[str] | None = None) -> pa.RecordBatch:
    """Return one row, of a value of the schema `written`, as the schema `read` has its columns."""
    reader = parse(json.dumps(written if read is None else read))
    fields = columns(reader, chosen)
    decoding = decoder(parse(json.dumps(written)), reader, fields.names, "error" if chosen is None else "ignore")
    return pa.RecordBatch.from_pylist([decoding.row(encoded(written, value))], schema=fields)


def read(kind: Any, value: Any) -> tuple[pa.DataType, Any]:
    """Return the type of a column, and what it has of a value."""
    found = batch(record(column(kind)), {"x": value})
    return found.schema.field("x").type, found.column("x")[0]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("boolean", True, pa.bool_()),
        ("int", -(2**31), pa.int32()),
        ("long", 2**63 - 1, pa.int64()),
        ("long", 2**53 + 1, pa.int64()),
        ("float", 1.5, pa.float32()),
        ("double", 0.1, pa.float64()),
        ("double", math.inf, pa.float64()),
        ("bytes", b"\0\xff", pa.binary()),
        ("string", "Zürich \U0001f600", pa.string()),
        ({"type": "fixed", "name": "F", "size": 3}, b"abc", pa.binary(3)),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", pa.string()),
        ({"type": "array", "items": ["null", "long"]}, [1, None, 2**60], pa.list_(pa.int64())),
        (["null", "string"], None, pa.string()),
        (["int", "null"], 7, pa.int32()),
        (
            record(column("int", "a"), column({"type": "array", "items": "string"}, "b"), name="Inner"),
            {"a": 1, "b": ["x"]},
            pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]),
        ),
        (logical("int", "date"), datetime.date(1969, 12, 31), pa.date32()),
        (logical("int", "time-millis"), datetime.time(23, 59, 59, 999000), pa.time64("us")),
        (logical("long", "time-micros"), datetime.time(23, 59, 59, 999999), pa.time64("us")),
        (
            logical("long", "timestamp-micros"),
            datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
            pa.timestamp("us", "UTC"),
        ),
        (logical("long", "timestamp-millis"), datetime.datetime(1, 1, 1, 0, 0, 0, 1000, UTC), pa.timestamp("ms", "UTC")),
        (
            logical("long", "local-timestamp-micros"),
            datetime.datetime.fromisoformat("1969-12-31T23:00:00.000001"),
            pa.timestamp("us"),
        ),
        (
            logical("long", "local-timestamp-millis"),
            datetime.datetime.fromisoformat("2026-01-02T03:04:05.006"),
            pa.timestamp("ms"),
        ),
        (logical("bytes", "decimal", precision=38, scale=10), Decimal("-1234567890123456789012345678.0123456789"), None),
        (logical("fixed", "decimal", name="D", size=5, precision=9, scale=2), Decimal("-0.01"), pa.decimal128(9, 2)),
        (logical("bytes", "decimal", precision=4), Decimal("0"), pa.decimal128(4, 0)),
        (logical("string", "no-such-type"), "as it is", pa.string()),
    ],
)
def test_each_type_has_the_column_that_holds_its_values_exactly(kind: Any, value: Any, expected: pa.DataType | None) -> None:
    found, cell = read(kind, value)

    assert cell.as_py() == value
    assert found == (expected or pa.decimal128(38, 10))


def test_maps_uuids_and_nanoseconds_arrive_exactly() -> None:
    found, cell = read({"type": "map", "values": logical("int", "date")}, {"a": datetime.date(2026, 1, 2)})
    assert (found, cell.as_py()) == (pa.map_(pa.string(), pa.date32()), [("a", datetime.date(2026, 1, 2))])
    one = uuid.UUID("12345678-1234-5678-1234-567812345678")
    assert read(logical("string", "uuid"), one)[1].as_py() == str(one)
    # The library knows neither of them, and writes what is given.
    assert read(logical("fixed", "uuid", name="U", size=16), one.bytes)[1].as_py() == one.bytes
    found, cell = read(logical("long", "timestamp-nanos"), 1_700_000_000_123_456_789)
    assert (found, cell.value) == (pa.timestamp("ns", "UTC"), 1_700_000_000_123_456_789)
    found, cell = read(logical("long", "local-timestamp-nanos"), -1)
    assert (found, cell.value) == (pa.timestamp("ns"), -1)


# --- any schema -----------------------------------------------------------------------------------------------------------

_LONGS: Final = st.integers(-(2**63), 2**63 - 1)
_NAMES: Final = st.integers(0, 10**9)
#: Avro, what the library is given, and what a row has of it.
Sample = tuple[Any, Any, Any]


def _plain(kind: Any, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Sample]:
    return values.map(lambda value: (kind, value, value))


def _decimal(unscaled: int) -> Sample:
    value = Decimal(unscaled).scaleb(-7)
    return logical("bytes", "decimal", precision=28, scale=7), value, value


_SCALARS: Final = st.one_of(
    _plain("boolean", st.booleans()),
    _plain("int", st.integers(-(2**31), 2**31 - 1)),
    _plain("long", _LONGS),
    _plain("float", st.floats(width=32, allow_nan=False)),
    _plain("double", st.floats(allow_nan=False)),
    _plain("bytes", st.binary(max_size=9)),
    _plain("string", st.text(max_size=9)),
    _plain(logical("int", "date"), st.dates()),
    _plain(logical("long", "time-micros"), st.times()),
    _plain(logical("long", "timestamp-micros"), st.datetimes(timezones=st.just(UTC))),
    _plain(logical("long", "local-timestamp-micros"), st.datetimes()),
    st.integers(-(10**28) + 1, 10**28 - 1).map(_decimal),
)


def _optional(one: Sample, is_null: bool) -> Sample:
    kind, value, row = one
    return (["null", kind], None, None) if is_null else (["null", kind], value, row)


@st.composite
def _records(draw: st.DrawFn, inner: st.SearchStrategy[Sample]) -> Sample:
    parts = draw(st.lists(inner, min_size=1, max_size=4))
    name = f"R{draw(st.uuids()).hex}"
    fields = [column(kind, f"f{number}") for number, (kind, _, _) in enumerate(parts)]
    values, rows = ({f"f{number}": part[at] for number, part in enumerate(parts)} for at in (1, 2))
    return record(*fields, name=name), values, rows


def _is_optional(one: Sample) -> bool:
    return isinstance(one[0], list)


def _deeper(inner: st.SearchStrategy[Sample]) -> st.SearchStrategy[Sample]:
    plain = inner.filter(lambda one: not _is_optional(one))
    return st.one_of(
        st.builds(_optional, plain, st.booleans()),
        st.builds(lambda one, n: ({"type": "array", "items": one[0]}, [one[1]] * n, [one[2]] * n), inner, st.integers(0, 3)),
        st.builds(lambda one: ({"type": "map", "values": one[0]}, {"k": one[1]}, [("k", one[2])]), inner),
        _records(inner),
    )


@given(_records(st.recursive(_SCALARS, _deeper, max_leaves=8)))
def test_a_value_of_any_schema_is_read_as_it_was_written(sample: Sample) -> None:
    schema, value, row = sample

    assert batch(schema, value).to_pylist() == [row]


@given(st.binary(max_size=40))
def test_bytes_that_are_no_value_of_the_schema_are_refused_and_end_nothing(data: bytes) -> None:
    inner = record(column("double", "a"), column({"type": "enum", "name": "E", "symbols": ["A"]}, "b"), name="Inner")
    schema = parse(
        json.dumps(
            record(
                column(["null", "string"]),
                column({"type": "array", "items": inner}, "y"),
                column({"type": "map", "values": logical("bytes", "decimal", precision=3)}, "z"),
            )
        )
    )
    decoding = decoder(schema, schema, ["x", "y", "z"], "error")

    # Either a row or a refusal, and no other exception.
    try:
        rows = [decoding.row(data)]
    except ValueError:
        return
    assert rows[0].keys() == {"x", "y", "z"}


# --- resolution -----------------------------------------------------------------------------------------------------------


def test_fields_are_found_by_name_or_alias_and_take_the_readers_default_or_null_where_the_writer_has_none() -> None:
    written = record(column("int", "id"), column("string", "old"))
    now = record(
        column("string", "new", aliases=["old"]),
        column("long", "id"),
        column("string", "color", default="red"),
        column(logical("bytes", "decimal", precision=4, scale=2), "price", default="\u0001\u0000"),
        column(["null", "long"], "maybe", default=None),
        column("long", "late"),
        column({"type": "array", "items": "int"}, "list", default=[1]),
    )

    assert batch(written, {"id": 1, "old": "x"}, now).to_pylist() == [
        {"new": "x", "id": 1, "color": "red", "price": Decimal("2.56"), "maybe": None, "late": None, "list": [1]}
    ]


def test_a_field_that_the_columns_lack_is_refused_unless_fields_are_chosen() -> None:
    written, now = record(column("int", "id"), column("string", "gone")), record(column("int", "id"))

    with pytest.raises(ValueError, match="gone: the schema of the value has this field, and the columns do not"):
        batch(written, {"id": 1, "gone": "x"}, now)
    assert batch(written, {"id": 1, "gone": "x"}, now, chosen=["id"]).to_pylist() == [{"id": 1}]
    inside = record(column(record(column("int", "a"), name="I"), "in"))
    wider = record(column(record(column("int", "a"), column("int", "b"), name="I"), "in"))
    with pytest.raises(ValueError, match=r"in\.b: the schema of the value has this field"):
        batch(wider, {"in": {"a": 1, "b": 2}}, inside, chosen=["in"])


@pytest.mark.parametrize(
    ("written", "value", "now"),
    [
        ("long", 2**53 + 1, "double"),
        ("int", 2**24 + 1, "float"),
        ("long", 1, "int"),
        ("string", "1", "int"),
        (logical("long", "timestamp-millis"), 1, logical("long", "timestamp-micros")),
        (logical("long", "timestamp-millis"), 1, "long"),
        (
            logical("bytes", "decimal", precision=9, scale=3),
            Decimal("1.234"),
            logical("bytes", "decimal", precision=9, scale=2),
        ),
        (["int", "string"], 1, "int"),
    ],
)
def test_what_would_be_another_value_in_the_column_is_refused(written: Any, value: Any, now: Any) -> None:
    with pytest.raises(ValueError, match=r"^x: "):
        batch(record(column(written)), {"x": value}, record(column(now)))


def test_promotions_that_change_no_value_are_made() -> None:
    for written, value, now in (("int", 7, "long"), ("int", -(2**31), "double"), ("float", 0.1, "double")):
        (found,) = batch(record(column(written)), {"x": value}, record(column(now))).to_pylist()
        assert found == {"x": pa.scalar(value, pa.float32()).as_py() if written == "float" else value}
    assert batch(record(column("string")), {"x": "ä"}, record(column("bytes"))).to_pylist() == [{"x": "ä".encode()}]
    assert batch(record(column("bytes")), {"x": "ä".encode()}, record(column("string"))).to_pylist() == [{"x": "ä"}]
    old = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    new = {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"}
    assert batch(record(column(old)), {"x": "B"}, record(column(new))).to_pylist() == [{"x": "A"}]
    with pytest.raises(ValueError, match="the symbol B is not one of the enum"):
        batch(record(column(old)), {"x": "B"}, record(column({**old, "symbols": ["A"]})))


# --- what no column has ---------------------------------------------------------------------------------------------------

_TREE: Final = record(column("int", "id"), column(["null", "Order"], "next"))


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (record(column(["int", "string"], "a")), "a: a union of several types"),
        (record(column({"type": "array", "items": record(column(["int", "long"], "b"), name="I")}, "a")), r"a\[\]\.b: a union"),
        (record(column(logical("fixed", "duration", name="D", size=12), "a")), "a: a duration has no type"),
        (record(column("null", "a")), "a: a null has no type"),
        (record(column(record(name="Empty"), "a")), "a: a record without fields"),
        (record(column(logical("bytes", "decimal", precision=39, scale=1), "a")), "a: a decimal of 39 digits"),
        (_TREE, "next: it is a Order inside of a Order"),
        (record(column({"type": "array", "items": "null"}, "a")), r"a\[\]: values of a null that take no bytes"),
        (record(column("int", "a", default=2**40)), "a"),
        ("string", "the value of the schema is a string, and a record is expected"),
        (["null", record(column("int", "a"))], "the value of the schema is a null or record"),
        ({"type": "nothing"}, "the schema is no Avro schema"),
    ],
)
def test_what_no_column_has_is_refused_by_the_path_of_its_field(schema: Any, problem: str) -> None:
    with pytest.raises(NoColumn, match=problem):
        columns(parse(json.dumps(schema)))


def test_a_schema_that_is_too_deep_or_has_too_many_types_is_refused_before_anything_is_made_of_it() -> None:
    deep: Any = "int"
    for _ in range(40):
        deep = {"type": "array", "items": deep}
    with pytest.raises(NoColumn, match="more than 32 levels deep"):
        parse(json.dumps(record(column(deep))))
    doubling: Any = record(column("int", "a"), column("int", "b"), name="R0")
    for level in range(1, 25):
        doubling = record(column(doubling, "a"), column(f"R{level - 1}", "b"), name=f"R{level}")
    with pytest.raises(NoColumn, match="more than 10,000 types"):
        parse(json.dumps(doubling))
    with pytest.raises(NoColumn, match="more than 32 levels deep"):
        parse("[" * 100_000)


def test_a_field_that_no_column_has_may_be_left_out() -> None:
    schema = record(column("int", "id"), column(["int", "string"], "any"))

    assert batch(schema, {"id": 1, "any": "x"}, chosen=["id"]).to_pylist() == [{"id": 1}]


def test_names_of_other_schemas_and_of_namespaces_are_followed() -> None:
    money = {**record(column("long", "cents"), name="Money"), "namespace": "shop"}
    order = {**record(column("Money", "price"), column(["null", "shop.Money"], "tax")), "namespace": "shop"}

    schema = parse(json.dumps(order), [json.dumps(money)])

    kind = pa.struct([("cents", pa.int64())])
    assert columns(schema) == pa.schema([("price", kind), ("tax", kind)])
    assert decoder(schema, schema, ["price", "tax"], "error").row(b"\x02\x02\x04") == {"price": {"cents": 1}, "tax": {"cents": 2}}

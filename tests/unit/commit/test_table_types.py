"""Tables that are made for what pandas and Arrow give: every type becomes one that the format has, or is refused by its name."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from checkpoint_commit.footers import columns_of, parquet_rows
from checkpoint_commit.lance.columns import schema_of_new
from checkpoint_commit.sinks.registry import open_sink
from checkpoint_commit.sinks.table_types import finer_than_iceberg, iceberg_schema, lance_schema
from checkpoint_formats.iceberg.stager import IcebergStager
from checkpoint_formats.rows.plain_types import decode_schema, encode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.records import IcebergTarget, LanceTarget
from checkpoint_work.steps.values.schema_cast import ValueMismatch, fit
from tests.support.places import on_disk
from tests.support.records import KEY

naive = datetime.datetime.fromisoformat
STRINGS = pa.dictionary(pa.int8(), pa.string())
VIEWS = pa.struct([("text", pa.string_view()), ("bytes", pa.binary_view())])

#: What is given, what Iceberg has for it, and values of both kinds.
KEPT: list[tuple[pa.Array, str, list[Any] | None]] = [
    (pa.array([1_000, None], pa.timestamp("ns")), "timestamp", [naive("1970-01-01T00:00:00.000001"), None]),
    (pa.array([1_000], pa.timestamp("ns", "Europe/Berlin")), "timestamptz", [naive("1970-01-01T00:00:00.000001+00:00")]),
    (pa.array([0], pa.timestamp("s", "+02:00")), "timestamptz", [naive("1970-01-01T00:00:00+00:00")]),
    (pa.array([1], pa.timestamp("ms")), "timestamp", [naive("1970-01-01T00:00:00.001")]),
    (pa.array([255], pa.uint8()), "int", [255]),
    (pa.array([65_535], pa.uint16()), "int", [65_535]),
    (pa.array([(1 << 32) - 1], pa.uint32()), "long", [(1 << 32) - 1]),
    (pa.array([(1 << 64) - 1], pa.uint64()), "decimal(20, 0)", [Decimal((1 << 64) - 1)]),
    (pa.array([-128], pa.int8()), "int", [-128]),
    (pa.array([1.5], pa.float16()), "float", [1.5]),
    (pa.array([Decimal("1.5")], pa.decimal256(30, 2)), "decimal(30, 2)", [Decimal("1.50")]),
    (pa.array([Decimal("1.5")], pa.decimal32(5, 2)), "decimal(5, 2)", [Decimal("1.50")]),
    (pa.array([Decimal("1500")], pa.decimal128(10, -2)), "decimal(12, 0)", [Decimal("1500")]),
    (pa.array([datetime.date(2024, 2, 29)], pa.date64()), "date", [datetime.date(2024, 2, 29)]),
    (pa.array([5], pa.time32("s")), "time", [datetime.time(0, 0, 5)]),
    (pa.array([5_000], pa.time64("ns")), "time", [datetime.time(0, 0, 0, 5)]),
    (pa.array(["a", "b"]).cast(pa.string_view()), "string", ["a", "b"]),
    (pa.array(["a"], pa.large_string()), "string", ["a"]),
    (pa.array([b"a"], pa.large_binary()), "binary", [b"a"]),
    (pa.array([b"ab"], pa.binary(2)), "fixed[2]", [b"ab"]),
    (pa.array(["a", "b", "a"]).dictionary_encode(), "string", ["a", "b", "a"]),
    (pa.array([1_000]).cast(pa.timestamp("ns")).dictionary_encode(), "timestamp", [naive("1970-01-01T00:00:00.000001")]),
    (pa.array([1, 1]).cast(pa.int64()), "long", [1, 1]),
    (pa.array([[1.5, 2.5], None], pa.list_(pa.float32(), 2)), "list<float>", [[1.5, 2.5], None]),
    (pa.array([[1]], pa.large_list(pa.uint32())), "list<long>", [[1]]),
    (pa.array([[1_000]], pa.list_(pa.timestamp("ns"))), "list<timestamp>", [[naive("1970-01-01T00:00:00.000001")]]),
    (pa.array([["a"]], pa.list_(STRINGS)), "list<string>", [["a"]]),
    (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.uint16())), "map<string, int>", [[("k", 1)]]),
    (pa.array([{"text": "a", "bytes": b"b"}], VIEWS), "struct<2: text: optional string, 3: bytes: optional binary>", None),
    (pa.array([b"\1" * 16], pa.uuid()), "uuid", None),
    (pa.array(["{}"], pa.json_()), "string", ["{}"]),
    (pa.RunEndEncodedArray.from_arrays([2], [7]), "long", [7, 7]),
]


def iceberg(folder: Path, schema: pa.Schema) -> IcebergTarget:
    """Make an Iceberg table on disk for this output."""
    place = on_disk(folder, "iceberg")
    sink = open_sink(Sink.model_validate({**place.sink(), "create": True}), place.settings)
    target = sink.create(encode_schema(schema))
    assert isinstance(target, IcebergTarget)
    return target


def test_every_type_that_has_a_counterpart_becomes_it_and_keeps_its_values(tmp_path: Path) -> None:
    given = pa.schema([(f"c{number}", array.type) for number, (array, _, _) in enumerate(KEPT)])

    target = iceberg(tmp_path, given)

    table = Schema.model_validate_json(target.table_schema_json)
    stager = IcebergStager(target, KEY, "t", 1 << 20, on_disk(tmp_path / "none", "lance").settings)
    for number, (array, wanted, values) in enumerate(KEPT):
        name = f"c{number}"
        if "struct" not in wanted:
            assert str(table.find_type(name)) == wanted, array.type
        fitted = fit(pa.RecordBatch.from_arrays([array], [name]), pa.schema([stager.arrow_schema.field(name)]))
        fitted.validate(full=True)
        expected = array.to_pylist() if values is None else values
        assert fitted.column(0).to_pylist() == expected, array.type


def test_a_file_with_columns_of_every_type_has_the_footer_that_the_commit_expects(tmp_path: Path) -> None:
    target = iceberg(tmp_path, pa.schema([(f"c{number}", array.type) for number, (array, _, _) in enumerate(KEPT)]))
    stager = IcebergStager(target, KEY, "t", 1 << 20, on_disk(tmp_path / "none", "lance").settings)
    nothing = pa.RecordBatch.from_pylist([{}], stager.arrow_schema)
    (staged,) = stager.stage(iter([nothing]))
    data = Path(staged.path.removeprefix("file://")).read_bytes()

    written = schema_to_pyarrow(Schema.model_validate_json(target.table_schema_json), include_field_ids=True)

    assert parquet_rows(staged.path, lambda most_bytes: data[-most_bytes:], (columns_of(written),)) == 1


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1], pa.timestamp("ns")),
        pa.array([1], pa.timestamp("ns", "Europe/Berlin")),
        pa.array([1], pa.time64("ns")),
        pa.array([1], pa.timestamp("ns")).dictionary_encode(),
        pa.array([[1]], pa.list_(pa.timestamp("ns"))),
        pa.array([{"t": 1}], pa.struct([("t", pa.timestamp("ns"))])),
        pa.array([1 << 62], pa.timestamp("s")),
    ],
    ids=lambda array: str(array.type),
)
def test_a_value_that_would_lose_digits_in_iceberg_fails_as_a_row(array: pa.Array) -> None:
    wanted = iceberg_schema(pa.schema([("c", array.type)]))

    with pytest.raises(ValueMismatch, match="'c'"):
        fit(pa.RecordBatch.from_arrays([array], ["c"]), wanted)


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (pa.duration("us"), "c"),
        (pa.decimal256(50, 2), "c"),
        (pa.decimal128(38, -2), "c"),
        (pa.month_day_nano_interval(), "c"),
        (pa.null(), "c"),
        (pa.list_view(pa.int64()), "c"),
        (pa.dense_union([pa.field("a", pa.int64())]), "c"),
        (pa.struct([]), "c"),
        (pa.bool8(), "c"),
        (pa.list_(pa.null()), "c.element"),
        (pa.struct([("how_long", pa.duration("s"))]), "c.how_long"),
        (pa.map_(pa.string(), pa.duration("s")), "c.value"),
        (pa.dictionary(pa.int8(), pa.duration("s")), "c"),
    ],
    ids=str,
)
def test_a_type_without_a_counterpart_in_iceberg_is_refused_with_its_column(
    given: pa.DataType, path: str, tmp_path: Path
) -> None:
    with pytest.raises(NeedsChange) as caught:
        iceberg(tmp_path, pa.schema([("id", pa.int64()), ("c", given)]))

    assert caught.value.reason == reasons.OUTPUT_SCHEMA_WRONG
    assert f"{path!r}" in caught.value.message
    assert "in a step" in caught.value.message
    assert "uri" not in caught.value.message


def test_every_column_that_cannot_be_made_is_named_at_once() -> None:
    with pytest.raises(NeedsChange) as caught:
        iceberg_schema(pa.schema([("a", pa.duration("s")), ("b", pa.int64()), ("c", pa.null())]))

    assert "'a'" in caught.value.message
    assert "duration[s]" in caught.value.message
    assert "'c'" in caught.value.message
    assert "'b'" not in caught.value.message

    for way in ([("b", pa.int64())], [("a", pa.string()), ("b", pa.int64()), ("c", pa.int64())]):
        assert len(iceberg_schema(pa.schema(way))) == len(way), "left out, or cast in a step"


def test_columns_that_are_finer_than_iceberg_are_told() -> None:
    nested = pa.list_(pa.struct([("t", pa.dictionary(pa.int8(), pa.time64("ns")))]))

    assert finer_than_iceberg(pa.schema([("a", pa.timestamp("ns")), ("b", pa.timestamp("us")), ("c", nested)])) == ("a", "c")

    assert finer_than_iceberg(pa.schema([("a", pa.timestamp("us"))])) == (), "rounded in a step"


def test_required_columns_stay_required() -> None:
    given = pa.schema(
        [pa.field("t", pa.timestamp("ns"), nullable=False), pa.field("l", pa.list_(pa.field("x", pa.int8(), False)))]
    )

    made = iceberg_schema(given)

    assert not made.field("t").nullable
    assert not made.field("l").type.value_field.nullable


# --- Lance ----------------------------------------------------------------------------------------------------------------

#: What Lance keeps as it is, and what it makes of the others.
IN_LANCE: list[tuple[pa.Array, pa.DataType | None]] = [
    (pa.array([1], pa.timestamp("ns", "Europe/Berlin")), None),
    (pa.array([1], pa.duration("us")), None),
    (pa.array([Decimal("1.5")], pa.decimal256(50, 2)), None),
    (pa.array([1], pa.time64("ns")), None),
    (pa.array([1 << 63], pa.uint64()), None),
    (pa.array([1.5], pa.float16()), None),
    (pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)), None),
    (pa.array([b"\1" * 16], pa.uuid()), None),
    (pa.array([Decimal("1.5")], pa.decimal32(5, 2)), pa.decimal128(5, 2)),
    (pa.array([["a", "b"], None], pa.list_(pa.string(), 2)), pa.list_(pa.string())),
    (pa.array(["a"]).dictionary_encode(), pa.string()),
    (pa.array([1_000], pa.timestamp("ns")).dictionary_encode(), pa.timestamp("ns")),
    (pa.array(["a"], pa.string_view()), pa.string()),
    (pa.RunEndEncodedArray.from_arrays([2], [7]), pa.int64()),
]


@pytest.mark.parametrize(("array", "wanted"), IN_LANCE, ids=lambda value: str(getattr(value, "type", value)))
def test_lance_keeps_what_it_can_store_and_its_values(array: pa.Array, wanted: pa.DataType | None, tmp_path: Path) -> None:
    place = on_disk(tmp_path, "lance")
    sink = open_sink(Sink.model_validate({**place.sink(), "create": True}), place.settings)

    target = sink.create(encode_schema(pa.schema([("c", array.type)])))

    assert isinstance(target, LanceTarget)
    schema = decode_schema(target.arrow_schema)
    assert schema.field("c").type == (wanted or array.type)
    fitted = fit(pa.RecordBatch.from_arrays([array], ["c"]), schema)
    written = lance.write_dataset(pa.Table.from_batches([fitted]), target.uri, mode="append")
    assert written.to_table().column("c").to_pylist() == array.to_pylist()


@pytest.mark.parametrize(
    "given",
    [pa.null(), pa.list_(pa.null()), pa.month_day_nano_interval(), pa.list_view(pa.int64()), pa.struct([])],
    ids=str,
)
def test_a_type_that_lance_cannot_store_is_refused_with_its_column(given: pa.DataType) -> None:
    with pytest.raises(NeedsChange, match="'c") as caught:
        lance_schema(pa.schema([("c", given)]))

    assert caught.value.reason == reasons.OUTPUT_SCHEMA_WRONG


UNFIT_NAMES: dict[str, tuple[pa.Schema, str]] = {
    "two by case": (pa.schema([("ID", pa.int64()), ("id", pa.string())]), "the columns 'ID' and 'id' differ by case only"),
    "two in a struct": (
        pa.schema([("s", pa.list_(pa.struct([("É", pa.int64()), ("é", pa.string())])))]),
        "differ by case only, so that Spark cannot read the table",
    ),
    "empty": (pa.schema([("", pa.int64()), ("a", pa.int64())]), "a column has no name (''; pandas writes its index so)"),
    "blank": (pa.schema([(" \t", pa.int64())]), "a column has no name"),
    "blank in a struct": (pa.schema([("s", pa.struct([("", pa.int64())]))]), "a column has no name ('s.'"),
}


@pytest.mark.parametrize("schema_of", [iceberg_schema, lance_schema])
@pytest.mark.parametrize("name", UNFIT_NAMES)
def test_names_by_which_a_table_could_not_be_read_are_refused(name: str, schema_of: Callable[[pa.Schema], pa.Schema]) -> None:
    given, told = UNFIT_NAMES[name]

    with pytest.raises(NeedsChange) as refused:
        schema_of(given)

    assert refused.value.reason == reasons.OUTPUT_SCHEMA_WRONG
    assert told in refused.value.message
    renamed = pa.schema([field.with_name(f"other{number}") for number, field in enumerate(given)])
    if not any(pa.types.is_nested(kind) for kind in given.types):
        assert schema_of(renamed).names == renamed.names
    assert schema_of(given.remove(0)).names == given.names[1:]


# --- what a hostile driver gives ----------------------------------------------------------------------------------------------


def nested(levels: int) -> pa.DataType:
    found: pa.DataType = pa.int64()
    for number in range(levels):
        found = pa.struct([("a", found)]) if number % 2 else pa.list_(found)
    return found


HOSTILE: dict[str, tuple[str, str]] = {
    "nothing": ("", "is no Arrow schema"),
    "garbage": ("/////w==", "is no Arrow schema"),
    "cut off": (encode_schema(pa.schema([("a", pa.int64())]))[:40], "is no Arrow schema"),
    "nested deeper than Arrow reads": (encode_schema(pa.schema([("a", nested(200))])), "is no Arrow schema"),
    "nested deeper than libraries hand over": (encode_schema(pa.schema([("a", nested(60))])), "'a' is nested more than 32 deep"),
}


@pytest.mark.parametrize("format_name", ["iceberg", "lance"])
@pytest.mark.parametrize("name", HOSTILE)
def test_an_output_of_which_no_table_can_be_made_is_refused_and_nothing_is_made(
    name: str, format_name: str, tmp_path: Path
) -> None:
    text, told = HOSTILE[name]
    place = on_disk(tmp_path, format_name)
    sink = open_sink(Sink.model_validate({**place.sink(), "create": True}), place.settings)

    with pytest.raises(NeedsChange, match=told) as caught:
        sink.create(text)

    assert caught.value.reason == reasons.OUTPUT_SCHEMA_WRONG
    assert sink.describe(KEY) is None


def test_a_column_of_thirty_two_levels_has_a_table() -> None:
    given = pa.schema([("a", nested(32))])

    assert lance_schema(given) == given
    assert iceberg_schema(given) == given


def test_a_column_without_a_dot_in_its_name_has_a_lance_dataset() -> None:
    with pytest.raises(NeedsChange, match=r"'a\.b' has a dot in its name.*: rename it in a step, or leave it out"):
        schema_of_new(pa.schema([("a.b", pa.int64()), ("id", pa.int64())]), None)

    for fields in ([("a_b", pa.int64()), ("id", pa.int64())], [("id", pa.int64())]):
        schema = schema_of_new(pa.schema(fields), None)
        assert lance.write_dataset(schema.empty_table(), "memory://new", schema=schema).schema == schema

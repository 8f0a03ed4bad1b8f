"""The type names of source.files.types."""

from __future__ import annotations

import pyarrow as pa
import pytest

from checkpoint_formats.rows.plain_types import plain_type
from checkpoint_formats.rows.type_names import parse_type
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bool", pa.bool_()),
        ("int8", pa.int8()),
        ("uint64", pa.uint64()),
        ("float32", pa.float32()),
        ("float64", pa.float64()),
        (" double ", pa.float64()),
        ("string", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("time", pa.time64("us")),
        ("timestamp", pa.timestamp("us")),
        ("timestamp[s]", pa.timestamp("s")),
        ("timestamp[ns]", pa.timestamp("ns")),
        ("timestamp[us, UTC]", pa.timestamp("us", "UTC")),
        ("timestamp[ms,tz=Europe/Berlin]", pa.timestamp("ms", "Europe/Berlin")),
        ("timestamp[us, +02:00]", pa.timestamp("us", "+02:00")),
        ("decimal(10,2)", pa.decimal128(10, 2)),
        ("decimal( 38 , 38 )", pa.decimal128(38, 38)),
    ],
)
def test_type_of_a_name(name: str, kind: pa.DataType) -> None:
    assert parse_type("x", name) == kind


@pytest.mark.parametrize(
    "name",
    ["", "int", "text", "timestamp[h]", "timestamp[us, Nowhere/At_all]", "timestamp[us, ../x]", "decimal(39,2)", "decimal(2,3)"],
)
def test_unknown_type_names_the_column_and_lists_the_known_ones(name: str) -> None:
    with pytest.raises(NeedsChange) as refused:
        parse_type("amount", name)
    assert refused.value.reason == reasons.MANIFEST_INVALID
    for part in ("source.files.types.amount", repr(name), "int64", "decimal(precision, scale)"):
        assert part in refused.value.message


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.string()),
        pa.map_(pa.string(), pa.decimal128(10, 2)),
        pa.struct(
            [("a b", pa.timestamp("us", "UTC")), ("y", pa.list_(pa.struct([("z", pa.map_(pa.int64(), pa.list_(pa.bool_())))])))]
        ),
    ],
)
def test_lists_structs_and_maps_are_named_as_arrow_writes_them(kind: pa.DataType) -> None:
    name = str(kind).replace("decimal128", "decimal").replace("tz=", "")

    assert parse_type("x", name, nested=True) == kind
    assert parse_type("x", name.replace("item: ", "").replace(", ", ","), nested=True) == kind
    with pytest.raises(NeedsChange, match="unknown type"):
        parse_type("x", name)


@pytest.mark.parametrize(
    "name",
    [
        "list",
        "list<>",
        "list<int64",
        "list<int64>>",
        "list<int64>, string",
        "list<int64, string>",
        "list<strin>",
        "map<string>",
        "map<string, >",
        "struct<>",
        "struct<a>",
        "struct<: int64>",
        "struct<a: int64, a: string>",
        "struct<a: int64,>",
        "set<int64>",
        "list<" * 17 + "int64" + ">" * 17,
        "list<" * 400 + "int64" + ">" * 400,
    ],
)
def test_what_is_no_list_struct_or_map_is_refused_with_those_that_there_are(name: str) -> None:
    with pytest.raises(NeedsChange, match="struct<name: type"):
        parse_type("x", name, nested=True)


def test_close_name_is_suggested() -> None:
    with pytest.raises(NeedsChange, match="did you mean string"):
        parse_type("x", "strin")


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.run_end_encoded(pa.int32(), pa.int64()), pa.int64()),
        (pa.string_view(), pa.string()),
        (pa.large_list(pa.field("element", pa.large_binary(), nullable=False)), pa.list_(pa.binary())),
        (pa.list_(pa.float32(), 3), pa.list_(pa.float32(), 3)),
        (pa.map_(pa.large_string(), pa.binary_view()), pa.map_(pa.string(), pa.binary())),
        (pa.struct([pa.field("x", pa.large_string(), nullable=False)]), pa.struct([("x", pa.string())])),
        (pa.uuid(), pa.binary(16)),
        (pa.decimal128(10, 2), pa.decimal128(10, 2)),
    ],
)
def test_plain_type(given: pa.DataType, plain: pa.DataType) -> None:
    assert plain_type(given) == plain

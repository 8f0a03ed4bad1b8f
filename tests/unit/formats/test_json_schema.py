"""JSON Schemas as columns: a property has the type of its values, and one of several types is refused until it is named."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_formats.kafka.json_schema import columns_of
from checkpoint_formats.kafka.no_column import NoColumn

POINT = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "number"}}}
POINT_TYPE = pa.struct([("x", pa.int64()), ("y", pa.float64())])
NULL = {"type": "null"}


def nested(levels: int) -> dict[str, Any]:
    return {"type": "array", "items": nested(levels - 1)} if levels else {"type": "string"}


def of(properties: dict[str, Any], given: dict[str, pa.DataType] | None = None, **more: Any) -> pa.Schema:
    document = {"type": "object", "properties": properties, "$defs": {"Point": POINT, "a/b~1 c": POINT}}
    others = {"point.json": json.dumps({"definitions": {"P": POINT}, "$ref": "#/definitions/P"})}
    return columns_of(json.dumps(document), others, given or {}, **more)[0]


@pytest.mark.parametrize(
    ("node", "kind"),
    [
        ({"type": "string", "format": "date-time"}, pa.string()),
        ({"type": "integer", "minimum": 0}, pa.int64()),
        ({"type": "number"}, pa.float64()),
        ({"type": ["integer", "number"]}, pa.float64()),
        ({"type": ["number", "integer"]}, pa.float64()),
        ({"type": "boolean"}, pa.bool_()),
        ({"type": ["null", "string"]}, pa.string()),
        ({"type": "array", "items": {"type": ["string", "null"]}}, pa.list_(pa.string())),
        ({"type": "array", "items": {"$ref": "#/$defs/Point"}}, pa.list_(POINT_TYPE)),
        (POINT, POINT_TYPE),
        ({"properties": {"x": {"type": "integer"}, "y": {"type": "number"}}}, POINT_TYPE),
        ({"$ref": "#/$defs/Point"}, POINT_TYPE),
        ({"$ref": "#/$defs/a~1b~01%20c"}, POINT_TYPE),
        ({"$ref": "point.json"}, POINT_TYPE),
        ({"$ref": "point.json#/definitions/P"}, POINT_TYPE),
        ({"oneOf": [NULL, {"$ref": "#/$defs/Point"}]}, POINT_TYPE),
        ({"anyOf": [{"type": "integer"}, NULL]}, pa.int64()),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, pa.float64()),
        ({"anyOf": [{"type": "string", "maxLength": 3}, {"type": "string", "enum": ["longer"]}]}, pa.string()),
        ({"allOf": [{"$ref": "#/$defs/Point"}]}, POINT_TYPE),
        ({"allOf": [{"$ref": "#/$defs/Point"}, {"description": "where it is"}]}, POINT_TYPE),
        ({"type": "object", "allOf": [{"$ref": "#/$defs/Point"}]}, POINT_TYPE),
        ({"allOf": [{"type": "string", "minLength": 1}, {"type": "string", "maxLength": 9}]}, pa.string()),
        ({**POINT, "anyOf": [{"required": ["x"]}, {"required": ["y"]}]}, POINT_TYPE),
        ({"type": "string", "oneOf": [{"format": "date"}, {"const": "never"}]}, pa.string()),
        ({"type": ["string", "null"], "anyOf": [{"type": "string"}, {"type": "integer"}]}, pa.string()),
        ({"enum": ["red", "blue", None]}, pa.string()),
        ({"const": True}, pa.bool_()),
    ],
)
def test_a_property_has_the_type_of_its_values(node: Any, kind: pa.DataType) -> None:
    assert of({"it": node}) == pa.schema([("it", kind)])


@pytest.mark.parametrize(
    "node",
    [
        {},
        True,
        {"type": ["string", "integer"]},
        {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        {"oneOf": [POINT, {"type": "string"}]},
        {"oneOf": [POINT, {"properties": {"z": {"type": "integer"}}}]},
        {"anyOf": [{"type": "string"}, {"minLength": 1}]},
        {**POINT, "allOf": [{"properties": {"z": {"type": "integer"}}}]},
        {**POINT, "oneOf": [{"properties": {"z": {"type": "integer"}}}, {"required": ["x"]}]},
        {"allOf": [POINT, {"properties": {"z": {"type": "integer"}}}]},
        {"enum": ["red", 7]},
        {"type": "array"},
        {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]},
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"inner": {"type": ["string", "integer"]}}},
    ],
)
def test_a_property_whose_values_may_have_several_types_is_refused_with_the_way_out_and_taken_as_it_is_named(node: Any) -> None:
    with pytest.raises(NoColumn, match=r"^it.*: its values may have several types; name a type .* by source\.kafka\.types"):
        of({"id": {"type": "integer"}, "it": node})

    assert of({"id": {"type": "integer"}, "it": node}, {"it": pa.string()}).field("it").type == pa.string()
    assert of({"id": {"type": "integer"}, "it": node}, chosen=["id"]).names == ["id"]


def test_the_names_of_all_properties_are_told_with_the_columns_that_are_chosen() -> None:
    text = json.dumps({"type": "object", "properties": {"b": {"type": "string"}, "a": {}}})

    assert columns_of(text, {}, {}, ["b"]) == (pa.schema([("b", pa.string())]), ("b", "a"))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"type": "string"}, "not one of objects with properties"),
        ({"type": "object"}, "not one of objects with properties"),
        ([], "a schema is expected, and [] is none"),
        ({"properties": {"it": 7}}, "it: a schema is expected, and 7 is none"),
        ({"properties": {"it": {"$ref": "#/$defs/None"}}}, "it: it refers to '#/$defs/None', which is not there"),
        (
            {"properties": {"it": {"$ref": "https://example.com/x"}}},
            'it: it refers to "https://example.com/x", which is not there',
        ),
        ({"properties": {"it": {"$ref": "#Point"}}}, 'it: it refers to "#Point", which is not there'),
        ({"properties": {"it": nested(40)}}, "it: it is more than 32 levels deep, or refers to itself"),
        ({"properties": {"it": {"$ref": "#"}}}, "it: it is more than 32 levels deep, or refers to itself"),
        ({"properties": {"it": {"anyOf": {}}}}, "it: its anyOf is no list"),
        ({"properties": {"it": {"properties": 3, "type": "object"}}}, "it: its properties are no object"),
    ],
)
def test_what_is_no_schema_of_columns_is_said_with_its_place(document: Any, said: str) -> None:
    with pytest.raises(NoColumn, match=re.escape(said)):
        columns_of(json.dumps(document), {}, {})


def test_a_schema_whose_few_lines_stand_for_too_many_types_is_refused() -> None:
    levels = {f"L{n}": {"properties": {each: {"$ref": f"#/$defs/L{n + 1}"} for each in "ab"}} for n in range(15)}
    document = {"properties": {"it": {"$ref": "#/$defs/L0"}}, "$defs": {**levels, "L15": {"type": "string"}}}

    with pytest.raises(NoColumn, match="of more than 10,000 types"):
        columns_of(json.dumps(document), {}, {})


def test_a_schema_that_is_no_json_is_no_schema() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        columns_of("{", {}, {})

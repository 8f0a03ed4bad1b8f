"""Avro schemas as trees: names are resolved, and each part knows its place. Nothing is decoded here."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
from fastavro import parse_schema
from fastavro.schema import SchemaParseException, UnknownType

from checkpoint_formats.kafka.no_column import DEEPEST, NoColumn, refuse_too_many

_PRIMITIVE: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_MOST_DIGITS: Final = 38

#: The types that values of logical types have exactly, by the type that they are written in.
_LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    # Arrow has milliseconds too, and tables have not.
    ("int", "time-millis"): pa.time64("us"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
    ("string", "uuid"): pa.string(),
    ("fixed", "uuid"): pa.binary(16),
}
_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record. `default`: as JSON has it, in a tuple; empty if there is none."""

    name: str
    aliases: tuple[str, ...]
    node: Node
    default: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A type. `optional`: NULL is a value too. `kind` is Avro's name; "union" is one of several types that are not null."""

    kind: str
    optional: bool = False
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    items: Node | None = None
    fields: tuple[Field, ...] = ()

    @property
    def described(self) -> str:
        """The type in words, with its logical type."""
        if self.logical == "decimal":
            return f"decimal({self.precision}, {self.scale})"
        return self.logical or self.kind


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """The schema of a value. `plain` is what fastavro decodes by: without logical types, so that it gives what is written."""

    root: Node
    plain: Any = field(repr=False)


def parse(text: str, references: Sequence[str] = ()) -> AvroSchema:
    """Return a schema, of which `references` are the texts that it refers to, each before those that refer to it.

    NoColumn if it is no schema, or refers to itself; ValueError if it is no JSON.
    """
    try:
        loaded = [json.loads(one) for one in (*references, text)]
        return AvroSchema(_Parsing(_named(loaded)).node(_parsed(loaded), "", ()), _parsed([_plain(one) for one in loaded]))
    except (SchemaParseException, UnknownType) as error:
        raise NoColumn(f"the schema is no Avro schema: {error}") from error
    except RecursionError as error:
        raise NoColumn(f"the schema is more than {DEEPEST} levels deep") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise NoColumn(f"the schema is no Avro schema: {type(error).__name__}: {error}") from error


def _named(loaded: Sequence[Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for one in loaded:
        parse_schema(one, named_schemas=named)
    return named


def _parsed(loaded: Sequence[Any]) -> Any:
    named: dict[str, Any] = {}
    return [parse_schema(one, named_schemas=named) for one in loaded][-1]


def _plain(part: Any) -> Any:
    if isinstance(part, list):
        return [_plain(one) for one in part]
    if isinstance(part, dict):
        return {name: one if name == "default" else _plain(one) for name, one in part.items() if name != "logicalType"}
    return part


@dataclass(slots=True)
class _Parsing:
    named: Mapping[str, Any]
    _types: int = 0

    def node(self, part: Any, path: str, within: tuple[str, ...]) -> Node:
        self._types += 1
        refuse_too_many(self._types, path)
        if len(within) > DEEPEST:
            raise NoColumn(f"{path}: the schema is more than {DEEPEST} levels deep")
        if isinstance(part, str):
            if part in _PRIMITIVE:
                return Node(part)
            if part in within:
                raise NoColumn(f"{path}: it is a {part} inside of a {part}, and no column has a type that contains itself")
            return self.node(self.named[part], path, within)
        if isinstance(part, list):
            return self._union(part, path, within)
        kind = part["type"]
        deeper = (*within, str(part.get("name", "")))
        if isinstance(kind, dict | list):
            return self.node(kind, path, deeper)
        match kind:
            case "record" | "error":
                return Node("record", fields=tuple(self._field(one, path, deeper) for one in part["fields"]))
            case "array":
                items = self.node(part["items"], f"{path}[]", deeper)
                if _takes_no_bytes(items):
                    # A few bytes could stand for more items than memory holds.
                    raise NoColumn(f"{path}[]: values of a {items.kind} that take no bytes cannot be the items of an array")
                return Node("array", items=items)
            case "map":
                return Node("map", items=self.node(part["values"], f"{path}{{}}", deeper))
            case "enum":
                return Node("enum", symbols=tuple(part["symbols"]), default_symbol=part.get("default"))
            case _ if kind in _PRIMITIVE or kind == "fixed":
                return _logical(kind, part, path)
            case _:
                return self.node(kind, path, deeper)

    def _field(self, part: Any, path: str, within: tuple[str, ...]) -> Field:
        name = part["name"]
        default = (part["default"],) if "default" in part else ()
        return Field(name, tuple(part.get("aliases", ())), self.node(part["type"], below(path, name), within), default)

    def _union(self, part: list[Any], path: str, within: tuple[str, ...]) -> Node:
        nodes = [self.node(one, path, (*within, "")) for one in part]
        others = [node for node in nodes if node.kind != "null"]
        if not others:
            return Node("null", optional=True)
        node = others[0] if len(others) == 1 else Node("union")
        return replace(node, optional=True) if len(others) < len(nodes) else node


def _takes_no_bytes(node: Node) -> bool:
    if node.kind == "record" and not node.optional:
        return all(_takes_no_bytes(one.node) for one in node.fields)
    return node.kind == "null" or (node.kind == "fixed" and not node.size and not node.optional)


def _logical(kind: str, part: Mapping[str, Any], path: str) -> Node:
    logical, size = part.get("logicalType"), part.get("size", 0)
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = part.get("precision"), part.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision or precision < 1:
            raise NoColumn(f"{path}: a decimal needs a precision, and a scale that is no larger")
        return Node(kind, logical=logical, precision=precision, scale=scale, size=size)
    # As Avro has it, a logical type that is not known counts for nothing: what is written arrives.
    known = (kind, logical) in _LOGICAL or (kind, logical) == ("fixed", "duration")
    return Node(kind, logical=logical if known else None, size=size)


def below(path: str, name: str) -> str:
    """Return the path of a field."""
    return f"{path}.{name}" if path else name


def refuse_no_record(schema: AvroSchema) -> None:
    """Raise NoColumn if the values of a schema are not all records, whose fields are columns."""
    if schema.root.kind != "record" or schema.root.optional:
        null = "null or " if schema.root.optional else ""
        raise NoColumn(f"the value of the schema is a {null}{schema.root.described}, and a record is expected")


def columns_of(schema: AvroSchema, chosen: Collection[str] | None = None) -> pa.Schema:
    """Return the columns of the fields of a record, or of those that are chosen. NULL is a value of each.

    NoColumn names the field that no column can have.
    """
    refuse_no_record(schema)
    fields = [one for one in schema.root.fields if chosen is None or one.name in chosen]
    return pa.schema([pa.field(one.name, type_of(one.node, one.name)) for one in fields])


def type_of(node: Node, path: str) -> pa.DataType:
    """Return the type that has each value of a node exactly. NoColumn if there is none."""
    if node.logical == "decimal":
        if node.precision > _MOST_DIGITS:
            raise NoColumn(f"{path}: a decimal of {node.precision} digits, and columns have {_MOST_DIGITS} at the most")
        return pa.decimal128(node.precision, node.scale)
    if node.logical is not None and (kind := _LOGICAL.get((node.kind, node.logical))) is not None:
        return kind
    match node.kind:
        case "fixed" if node.logical is None:
            return pa.binary(node.size)
        case "array":
            assert node.items is not None
            return pa.list_(type_of(node.items, f"{path}[]"))
        case "map":
            assert node.items is not None
            return pa.map_(pa.string(), type_of(node.items, f"{path}{{}}"))
        case "record" if node.fields:
            return pa.struct([pa.field(one.name, type_of(one.node, below(path, one.name))) for one in node.fields])
        case "union":
            raise NoColumn(f"{path}: a union of several types, and a column has one")
        case kind if kind in _PLAIN:
            return _PLAIN[kind]
        case _:
            raise NoColumn(f"{path}: a {node.described}{' without fields' * (node.kind == 'record')} has no type of a column")

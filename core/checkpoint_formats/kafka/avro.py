"""Values of Avro: bytes by their writer's schema, as rows by the reader's. A value arrives exactly, or is refused.

fastavro decodes by the schema of the writer without logical types. What it gives is fitted to the columns here, by Avro's rules
for resolution: fields by name or alias, defaults for those that a writer lacks. Of the promotions those that round (long to
double, int and long to float) are refused.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final, Literal

import pyarrow as pa
from fastavro import schemaless_reader

from checkpoint_formats.kafka.avro_schema import AvroSchema, Field, Node, below, columns_of, refuse_no_record, type_of
from checkpoint_formats.kafka.no_column import NoColumn

_Conversion = Callable[[Any], Any]
#: As many of its units a day has.
_TIMES: Final = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
_PROMOTIONS: Final = {("int", "long"), ("int", "double"), ("float", "double"), ("string", "bytes"), ("bytes", "string")}
_PROMOTE: Final[dict[str, _Conversion]] = {"long": int, "double": float, "bytes": str.encode, "string": bytes.decode}


class NoFit(ValueError):
    """Values of a writer's schema that do not fit the columns; the message begins with the path of the field."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decodes values of one writer's schema."""

    writer: AvroSchema
    convert: _Conversion

    def row(self, payload: bytes) -> dict[str, Any]:
        """Return the row of a value, without the header of its wire format. ValueError if it is no value of the schema."""
        stream = io.BytesIO(payload)
        try:
            decoded = schemaless_reader(stream, self.writer.plain, None)
        except (EOFError, IndexError, OverflowError, RecursionError, TypeError) as error:
            raise ValueError(f"the value does not have the form of its schema ({error or 'it ends too early'})") from error
        if left := len(payload) - stream.tell():
            raise ValueError(f"{left} bytes are left over behind the value of its schema")
        row: dict[str, Any] = self.convert(decoded)
        return row


def columns(schema: AvroSchema, chosen: Collection[str] | None = None) -> pa.Schema:
    """Return the columns of a reader's schema, or those that are chosen, whose defaults fit them.

    NoColumn names the field that no column can have.
    """
    found = columns_of(schema, chosen)
    for field in schema.root.fields:
        if field.name in found.names:
            _check_default(field, field.name)
    return found


def decoder(writer: AvroSchema, reader: AvroSchema, chosen: Collection[str], others: Literal["error", "ignore"]) -> Decoder:
    """Return what decodes values of a writer's schema into the chosen fields of the reader's.

    `others`: whether the writer may have fields that the reader's schema lacks; inside of a column it may not.
    NoFit or NoColumn if the schemas cannot be resolved.
    """
    refuse_no_record(writer)
    return Decoder(writer, _record(writer.root, reader.root, "", others, chosen))


def _record(
    writer: Node,
    reader: Node,
    path: str,
    others: Literal["error", "ignore"] = "error",
    chosen: Collection[str] | None = None,
) -> _Conversion:
    written = {one.name: one for one in writer.fields}
    parts: list[tuple[str, str, _Conversion]] = []
    constants: dict[str, Any] = {}
    for field in reader.fields:
        at = below(path, field.name)
        name = next((name for name in (field.name, *field.aliases) if name in written), None)
        source = None if name is None else written.pop(name)
        if chosen is not None and field.name not in chosen:
            continue
        if source is None:
            constants[field.name] = _default(field, at)
        else:
            parts.append((source.name, field.name, _conversion(source.node, field.node, at)))
    if written and others == "error":
        raise NoFit(f"{below(path, next(iter(written)))}: the schema of the value has this field, and the columns do not")

    def convert(value: Any) -> dict[str, Any]:
        return {name: part(value[source]) for source, name, part in parts} | constants

    return convert


def _conversion(writer: Node, reader: Node, path: str) -> _Conversion:
    """Return what makes a value of a column of what fastavro gives. NoFit if the types cannot be resolved exactly."""
    type_of(reader, path)
    if writer.kind == "null":
        return _same
    plain = _of_values(writer, reader, path)
    return plain if not writer.optional else lambda value: None if value is None else plain(value)


def _of_values(writer: Node, reader: Node, path: str) -> _Conversion:
    ways = (writer.kind, reader.kind)
    if writer.kind == "union":
        raise NoFit(f"{path}: the schema of the value has a union of several types here, and a column has one")
    if ways[0] != ways[1] and (ways not in _PROMOTIONS or reader.logical is not None or writer.logical is not None):
        raise NoFit(f"{path}: the value is a {writer.described}, and the column is a {reader.described}")
    is_alike = (writer.logical, writer.scale, writer.size) == (reader.logical, reader.scale, reader.size)
    if not is_alike or writer.precision > reader.precision:
        raise NoFit(f"{path}: the value is a {writer.described}, and the column is a {reader.described}")
    if ways[0] != ways[1]:
        return _PROMOTE[reader.kind]
    if reader.logical == "decimal":
        return partial(_decimal, reader.precision, reader.scale, path)
    if reader.logical in _TIMES:
        return partial(_time, reader.logical, path)
    match reader.kind:
        case "record":
            return _record(writer, reader, path)
        case "array":
            assert writer.items is not None
            assert reader.items is not None
            item = _conversion(writer.items, reader.items, f"{path}[]")
            return lambda value: [item(one) for one in value]
        case "map":
            assert writer.items is not None
            assert reader.items is not None
            item = _conversion(writer.items, reader.items, f"{path}{{}}")
            return lambda value: [(key, item(one)) for key, one in value.items()]
        case "enum":
            return partial(_symbol, frozenset(reader.symbols), reader.default_symbol, path)
        case _:
            return _same


def _same(value: Any) -> Any:
    return value


def _symbol(symbols: frozenset[str], default: str | None, path: str, value: str) -> str:
    if value in symbols:
        return value
    if default is None:
        raise NoFit(f"{path}: the symbol {value} is not one of the enum, which has no default")
    return default


def _time(logical: str, path: str, value: int) -> int:
    if not 0 <= value < _TIMES[logical]:
        raise NoFit(f"{path}: {value} is no {logical} of a day")
    return value * 1000 if logical == "time-millis" else value


def _decimal(precision: int, scale: int, path: str, value: bytes) -> Decimal:
    unscaled = int.from_bytes(value, "big", signed=True)
    digits = tuple(map(int, str(abs(unscaled))))
    if len(digits) > precision:
        raise NoFit(f"{path}: the value has more digits than its decimal({precision}, {scale})")
    return Decimal((int(unscaled < 0), digits, -scale))


def _default(field: Field, path: str) -> Any:
    """Return the value of a column for rows whose writer lacks it: the reader's default, or NULL."""
    return _conversion(field.node, field.node, path)(_written(field.node, field.default[0], path)) if field.default else None


def _written(node: Node, default: Any, path: str) -> Any:
    """Return a default, which is JSON, as fastavro gives values."""
    match node.kind, default:
        case _, None if node.optional:
            return None
        case (("bytes" | "fixed"), str()):
            return default.encode("latin-1")
        case "array", list():
            assert node.items is not None
            return [_written(node.items, one, path) for one in default]
        case "map", dict():
            assert node.items is not None
            return {key: _written(node.items, one, path) for key, one in default.items()}
        case "record", dict():
            return {one.name: _written_field(one, default, below(path, one.name)) for one in node.fields}
        case "boolean", bool():
            return default
        case (("int" | "long"), int()) if not isinstance(default, bool):
            return default
        case (("float" | "double"), int() | float()) if not isinstance(default, bool):
            return float(default)
        case (("string" | "enum"), str()):
            return default
        case _:
            raise NoFit(f"{path}: its default is no {node.described}")


def _written_field(field: Field, record: dict[str, Any], path: str) -> Any:
    if field.name not in record and not field.default:
        raise NoFit(f"{path}: the default of its record does not have it")
    return _written(field.node, record.get(field.name, field.default[0] if field.default else None), path)


def _check_default(field: Field, path: str) -> None:
    """Refuse defaults of a field, and of those inside of it, that its column does not hold."""
    try:
        pa.array([_default(field, path)], type_of(field.node, path))
    except NoFit as error:
        raise NoColumn(str(error)) from error
    except (UnicodeError, pa.ArrowException) as error:
        raise NoColumn(f"{path}: its default does not fit: {error}") from error
    node, at = field.node, path
    while node.items is not None:
        at += "{}" if node.kind == "map" else "[]"
        node = node.items
    for inner in node.fields:
        _check_default(inner, below(at, inner.name))

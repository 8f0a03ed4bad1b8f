"""Values in Protobuf with the ids of their schemas (Confluent's wire format).

A value is read by its own schema, and its fields go to those of the newest one by their numbers. So a field that was absent
stays so, and one that had its default keeps it, where the newest schema says otherwise. A registry is asked for schemas as
descriptors, so that no text of Protobuf is parsed here.

Source of the rules: Confluent's wire format (message indexes); the Protobuf language guide (presence, defaults, unknown fields).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from checkpoint_formats.kafka.decoded import Decode, Others
from checkpoint_formats.kafka.protobuf_schema import (
    TIMESTAMP,
    WRAPPERS,
    columns,
    find_change,
    is_map,
    is_repeated,
    main_of,
    parse,
)
from checkpoint_formats.kafka.registered import unusable
from checkpoint_formats.kafka.registry import SchemaRegistry
from checkpoint_protocol.records import PinnedSchema

#: One index, which is 0; serializers write no more than a 0 for that.
_NUMBERS_OF_FIRST: Final = (b"\x00", b"\x02\x00")


@dataclass(frozen=True, slots=True)
class Protobuf:
    """An Encoding."""

    registry: SchemaRegistry

    def columns(self, one: PinnedSchema, chosen: Collection[str] | None) -> tuple[pa.Schema, tuple[str, ...]]:
        try:
            root = main_of(self._messages(one.schema_id))
            return columns(root, chosen), tuple(field.name for field in root.fields)
        except ValueError as error:
            raise unusable(one, error) from error

    def decoder(self, schema_id: int, reader: PinnedSchema, names: Sequence[str], others: Others) -> Decode:
        written, root = self._messages(schema_id), main_of(self._messages(reader.schema_id))
        number = next((number for number, one in enumerate(written) if one.full_name == root.full_name), None)
        if number is None:
            raise ValueError(f"it has no message {root.full_name}, which the newest schema has")
        fields = [root.fields_by_name[name] for name in names if name in root.fields_by_name]
        if (change := find_change(written[number], fields)) is not None:
            raise ValueError(change)
        return _Decoder(GetMessageClass(written[number]), number, fields, others).row

    def _messages(self, schema_id: int) -> list[Descriptor]:
        found = self.registry.by_id(schema_id, "PROTOBUF")
        return parse(found.text, found.by_name)


@dataclass(frozen=True, slots=True)
class _Decoder:
    """Reads values that are messages of this number in their file. `fields`: those of the newest schema that are asked for."""

    message: type[Message]
    number: int
    fields: Sequence[FieldDescriptor]
    others: Others

    def row(self, payload: bytes) -> dict[str, Any]:
        """Return the values of a message. ValueError if it is none, or has fields that the columns lack."""
        message = self.message()
        try:
            message.ParseFromString(self._without_number(payload))
        except DecodeError as error:
            raise ValueError("it is no message of this schema") from error
        if missing := message.FindInitializationErrors():
            raise ValueError(f"it lacks the required field {missing[0]}")
        self._refuse_others(message, self.fields, "")
        return _values(message, self.fields)

    def _without_number(self, payload: bytes) -> bytes:
        for start in _NUMBERS_OF_FIRST if self.number == 0 else (b"\x02" + _zigzag(self.number),):
            if payload.startswith(start):
                return payload[len(start) :]
        raise ValueError(f"it is another message of its schema than {self.message.DESCRIPTOR.full_name}")

    def _refuse_others(self, message: Message, fields: Iterable[FieldDescriptor], path: str) -> None:
        """A field that is asked for and is not as its schema says is refused in any case: it would read as absent."""
        asked = {field.number: field for field in fields}
        for one in UnknownFieldSet(message):
            if (field := asked.get(one.field_number)) is not None:
                raise ValueError(f"the field {path}{field.name} is not of its schema's type, or has a value that its enum lacks")
            if self.others == "error":
                raise ValueError(f"it has the field number {one.field_number} in {path or 'it'}, which its schema lacks")
        for field, value in message.ListFields():
            if (now := asked.get(field.number)) is None:
                if self.others == "error":
                    raise ValueError(f"it has the field {path}{field.name}, which the columns lack")
            elif field.message_type is not None:
                for inner in _messages(field, value):
                    self._refuse_others(inner, _type_of_values(now).fields, f"{path}{field.name}.")


def _type_of_values(field: FieldDescriptor) -> Descriptor:
    return field.message_type.fields_by_name["value"].message_type if is_map(field) else field.message_type


def _messages(field: FieldDescriptor, value: Any) -> Iterable[Message]:
    if is_map(field):
        return value.values() if field.message_type.fields_by_name["value"].message_type is not None else ()
    return value if is_repeated(field) else (value,)


def _values(message: Message, fields: Iterable[FieldDescriptor]) -> dict[str, Any]:
    return {field.name: _value(message, field) for field in fields}


def _value(message: Message, now: FieldDescriptor) -> Any:
    """Return the value that a message has for a field of the newest schema."""
    then = message.DESCRIPTOR.fields_by_number.get(now.number)
    if then is None:
        return _value(GetMessageClass(now.containing_type)(), now)
    value = getattr(message, then.name)
    if is_map(then):
        inner = then.message_type.fields_by_name["value"], now.message_type.fields_by_name["value"]
        # Their order is another one in each process.
        return [(key, _one(value[key], *inner)) for key in sorted(value)]
    if is_repeated(then):
        return [_one(each, then, now) for each in value]
    is_absent = then.has_presence and not message.HasField(then.name)
    if is_repeated(now):
        return [] if is_absent else [_one(value, then, now)]
    return None if is_absent else _one(value, then, now)


def _one(value: Any, then: FieldDescriptor, now: FieldDescriptor) -> Any:
    """Return one value of a field as an Arrow array of its column's type takes it."""
    if then.enum_type is not None:
        if (known := then.enum_type.values_by_number.get(value)) is None:
            raise ValueError(f"the field {then.name} has the number {value}, which its enum lacks")
        if known.name not in now.enum_type.values_by_name:
            raise ValueError(f"the field {now.name} has the value {known.name}, which the newest schema lacks")
        return known.name
    if then.message_type is None:
        return value
    if now.message_type.full_name == TIMESTAMP:
        return _microseconds(value, now)
    if now.message_type.full_name in WRAPPERS:
        return value.value
    return _values(value, now.message_type.fields)


def _microseconds(value: Any, field: FieldDescriptor) -> int:
    if value.nanos % 1_000 or not 0 <= value.nanos < 1_000_000_000:
        raise ValueError(f"the field {field.name} has {value.nanos} nanoseconds, and its column has microseconds")
    return int(value.seconds * 1_000_000 + value.nanos // 1_000)


def _zigzag(number: int) -> bytes:
    """Return a number that is not negative as Protobuf writes it in a signed varint."""
    left, found = number << 1, bytearray()
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*found, left))

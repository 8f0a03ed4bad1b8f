"""Files of Protobuf as a registry gives them, and values of their messages, written by Protobuf's own library."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf import duration_pb2, json_format, message_factory, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

#: Number and type of each field; a type is a scalar's name or a message's, after "repeated", "optional" or "map" (of string).
Fields = Mapping[str, tuple[int, str]]
_SCALARS: Final = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}


def file_of(
    messages: Mapping[str, Fields],
    *,
    enums: Mapping[str, Sequence[str]] = {},
    imports: Sequence[str] = (),
    syntax: str = "proto3",
    name: str = "orders.proto",
) -> FileDescriptorProto:
    """Return a file of the package `shop`. Enums have the numbers 0, 1, and so on."""
    file = FileDescriptorProto(name=name, package="shop", syntax=syntax, dependency=imports)
    for each, values in enums.items():
        enum = file.enum_type.add(name=each)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    for each, fields in messages.items():
        message = file.message_type.add(name=each)
        for field, (number, kind) in fields.items():
            _add(message, field, number, kind.split(), enums)
    return file


def _add(message: DescriptorProto, name: str, number: int, kind: list[str], enums: Mapping[str, Sequence[str]]) -> None:
    field = message.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    if "map" in kind:
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        _add(entry, "key", 1, ["string"], enums)
        _add(entry, "value", 2, kind[1:], enums)
        kind = ["repeated", f"{message.name}.{entry.name}"]
    if "repeated" in kind:
        field.label = FieldDescriptorProto.LABEL_REPEATED
    if "required" in kind:
        field.label = FieldDescriptorProto.LABEL_REQUIRED
    if "optional" in kind:
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
    if (scalar := _SCALARS.get(kind[-1])) is not None:
        field.type = scalar
        return
    field.type = FieldDescriptorProto.TYPE_ENUM if kind[-1] in enums else FieldDescriptorProto.TYPE_MESSAGE
    field.type_name = kind[-1] if kind[-1].startswith(".") else f".shop.{kind[-1]}"


def in_base64(file: FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def value_of(
    schema_id: int, file: FileDescriptorProto, row: Mapping[str, Any], message: str = "Order", others: Sequence[Any] = ()
) -> bytes:
    """Return a value as a serializer of Confluent writes it: a zero byte, the id, the message's number, and the message."""
    number = [each.name for each in file.message_type].index(message)
    numbers = b"\2" + bytes([number * 2]) if number else b"\0"
    return b"\0" + schema_id.to_bytes(4, "big") + numbers + encoded(file, row, message, others)


def encoded(file: FileDescriptorProto, row: Mapping[str, Any], message: str = "Order", others: Sequence[Any] = ()) -> bytes:
    """Return a message that JSON says."""
    pool = DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2, struct_pb2, duration_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    for each in (*others, file):
        pool.Add(each)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{message}"))()
    json_format.ParseDict(row, made, descriptor_pool=pool)
    data: bytes = made.SerializePartialToString()
    return data

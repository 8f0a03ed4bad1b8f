"""Schemas of Protobuf as columns: of each field of a message the type of its values, and what an older schema has in its place.

Source of the rules: the Protobuf language guide (scalar types, presence, updating a message type, well-known types).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

from checkpoint_formats.kafka.no_column import DEEPEST, NoColumn, refuse_too_many

#: Files that every compiler of Protobuf has, and no registry keeps.
_WELL_KNOWN: Final = (
    *(any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2, struct_pb2, timestamp_pb2),
    *(wrappers_pb2, type_pb2, api_pb2),  # the last two import others of these
)
#: Messages of this package are values of their own kinds.
_OWN: Final = "google.protobuf."
TIMESTAMP: Final = "google.protobuf.Timestamp"
#: Messages of one field that stand for a scalar that may be absent.
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_F: Final = FieldDescriptor
#: The largest values of unsigned ones have no place in signed ones of their size.
_SCALARS: Final[Mapping[int, pa.DataType]] = {
    _F.TYPE_DOUBLE: pa.float64(),
    _F.TYPE_FLOAT: pa.float32(),
    _F.TYPE_INT64: pa.int64(),
    _F.TYPE_SINT64: pa.int64(),
    _F.TYPE_SFIXED64: pa.int64(),
    _F.TYPE_UINT64: pa.decimal128(20, 0),
    _F.TYPE_FIXED64: pa.decimal128(20, 0),
    _F.TYPE_INT32: pa.int32(),
    _F.TYPE_SINT32: pa.int32(),
    _F.TYPE_SFIXED32: pa.int32(),
    _F.TYPE_UINT32: pa.int64(),
    _F.TYPE_FIXED32: pa.int64(),
    _F.TYPE_BOOL: pa.bool_(),
    _F.TYPE_STRING: pa.string(),
    _F.TYPE_BYTES: pa.binary(),
    _F.TYPE_ENUM: pa.string(),
}
#: Columns that can have each value of a column.
_WIDER: Final[Mapping[pa.DataType, Sequence[pa.DataType]]] = {
    pa.int32(): (pa.int64(), pa.decimal128(20, 0)),
    pa.int64(): (pa.decimal128(20, 0),),
    pa.float32(): (pa.float64(),),
    pa.string(): (pa.binary(),),
}


def parse(text: str, references: Mapping[str, str]) -> list[Descriptor]:
    """Return the messages of a file that is given in base64, as a registry has it. `references`: the files that it imports.

    ValueError if it is no such file, or imports one that is not there.
    """
    pool, files = DescriptorPool(), {name: _file(other, name) for name, other in references.items()}
    for module in _WELL_KNOWN:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    root = _file(text, "")
    added: set[str] = {module.DESCRIPTOR.name for module in _WELL_KNOWN}

    def add(file: descriptor_pb2.FileDescriptorProto) -> None:
        added.add(file.name)
        for name in file.dependency:
            if name not in added:
                if name not in files:
                    raise ValueError(f"it imports {name}, which is not among its references in the registry")
                add(files[name])
        pool.Add(file)

    try:
        add(root)
        by_name = pool.FindFileByName(root.name).message_types_by_name
    except (TypeError, KeyError) as error:
        raise ValueError(f"it is no valid file of Protobuf: {error}") from error
    return [by_name[one.name] for one in root.message_type]


def _file(text: str, name: str) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    try:
        file.ParseFromString(base64.b64decode(text, validate=True))
    except (binascii.Error, message.DecodeError) as error:
        raise ValueError("the registry does not give schemas of Protobuf as descriptors (format=serialized)") from error
    file.name = name or "schema.proto"
    return file


def main_of(messages: Sequence[Descriptor]) -> Descriptor:
    """Return the only message of a file that no other one of it contains. NoColumn if there is none, or more than one."""
    contained = {name for one in messages for name in _contained(one) if name != one.full_name}
    found = [one for one in messages if one.full_name not in contained]
    if len(found) != 1:
        names = ", ".join(one.full_name for one in found) or "none"
        raise NoColumn(f"it is to have one message that no other one contains, and has {names}")
    return found[0]


def _contained(of: Descriptor) -> Iterator[str]:
    for field in of.fields:
        if field.message_type is not None:
            yield field.message_type.full_name
    for nested in of.nested_types:
        yield from _contained(nested)


def columns(root: Descriptor, chosen: Collection[str] | None) -> pa.Schema:
    """Return the columns of a message, those that are chosen. NoColumn names a field that can be none."""
    fields = [field for field in root.fields if chosen is None or field.name in chosen]
    made = _Columns()
    return pa.schema([(field.name, made.type_of(field, field.name, 0)) for field in fields])


def is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


@dataclass(slots=True)
class _Columns:
    _types: int = 0

    def type_of(self, field: FieldDescriptor, path: str, depth: int) -> pa.DataType:
        if is_map(field):
            key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            return pa.map_(_SCALARS[key.type], self._one(value, path, depth + 1))
        return pa.list_(self._one(field, path, depth + 1)) if is_repeated(field) else self._one(field, path, depth)

    def _one(self, field: FieldDescriptor, path: str, depth: int) -> pa.DataType:
        self._types += 1
        refuse_too_many(self._types, path)
        if field.message_type is None:
            return _SCALARS[field.type]
        name = field.message_type.full_name
        if name == TIMESTAMP:
            return pa.timestamp("us", "UTC")
        if name in WRAPPERS:
            return _SCALARS[field.message_type.fields[0].type]
        if name.startswith(_OWN):
            raise NoColumn(f"{path}: a {name} has no column")
        if depth >= DEEPEST:
            raise NoColumn(f"{path}: it is more than {DEEPEST} levels deep, or contains itself")
        if not field.message_type.fields:
            raise NoColumn(f"{path}: the message {name} has no fields")
        inner = field.message_type.fields
        return pa.struct([(one.name, self.type_of(one, f"{path}.{one.name}", depth + 1)) for one in inner])


def find_change(then: Descriptor, now: Iterable[FieldDescriptor], path: str = "") -> str | None:
    """Say of which of these fields an older message may have values that are none of now; None if of none.

    `now`: fields that have columns, so that no message among them contains itself.
    """
    for field in now:
        old, name = then.fields_by_number.get(field.number), f"{path}{field.name}"
        if old is None:
            continue
        if is_repeated(old) and not is_repeated(field):
            return f"the field {name} had several values"
        if is_map(old) != is_map(field) or not _takes_values(old, field):
            return f"the field {name} had another type"
        if field.message_type is not None:
            kinds = {old.message_type.full_name, field.message_type.full_name}
            if len(kinds) > 1 and any(kind.startswith(_OWN) for kind in kinds):
                return f"the field {name} had another type"
            if (found := find_change(old.message_type, field.message_type.fields, f"{name}.")) is not None:
                return found
    return None


def _takes_values(old: FieldDescriptor, now: FieldDescriptor) -> bool:
    if old.type == now.type:
        return True
    if _F.TYPE_ENUM in (old.type, now.type) or not {old.type, now.type} <= _SCALARS.keys():
        return False
    before, after = _SCALARS[old.type], _SCALARS[now.type]
    return before == after or after in _WIDER.get(before, ())

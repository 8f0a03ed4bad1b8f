"""Which columns a data file of Lance says that it has, by its own schema, and which one has that was written for a dataset.

The schema is a message of Protocol Buffers, of which four fields of each column are read here. pylance gives it together with the
encoding of each page in words, of which a hostile file can make gigabytes.

Pure. https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

import pyarrow as pa
from lance.schema import LanceSchema

from checkpoint_formats.rows.plain_types import decode_schema
from checkpoint_protocol.records import LanceTarget

#: Fields of FileDescriptor, of Schema in it, and of Field in that. https://lance.org/format/file/
_SCHEMA, _FIELDS = 1, 1
_NAME, _ID, _PARENT, _TYPE = 2, 3, 4, 5
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_LONGEST_VARINT_BYTES: Final = 10


class FileField(NamedTuple):
    """One column at any depth. `parent`: the id of the one that it is in, and -1, as 64 bits without a sign, for none."""

    id: int
    parent: int
    name: bytes
    type: bytes


def fields_in(descriptor: bytes) -> Iterator[FileField]:
    """Give the columns of a file from its first global buffer. ValueError or IndexError for what is none."""
    for number, schema in _message(descriptor):
        if number == _SCHEMA:
            for part, field in _message(_bytes(schema)):
                if part == _FIELDS:
                    yield _field(_bytes(field))


def fields_of_target(target: LanceTarget) -> tuple[FileField, ...]:
    """Return the columns of a file that is written for all columns of a target."""
    return fields_of_schema(decode_schema(target.arrow_schema), [known.id for known in target.fields])


def fields_of_schema(schema: pa.Schema, known_ids: Sequence[int]) -> tuple[FileField, ...]:
    """Return the columns of a file that is written with a schema, at any depth, each before those in it; as are their ids."""
    # Pickling is the only way in which pylance gives Lance's own names of types.
    _, (_, *messages) = LanceSchema.from_pyarrow(schema).__reduce__()
    numbered = [_field(bytes(message)) for message in messages]
    ids = {field.id: known for field, known in zip(numbered, known_ids, strict=True)}
    return tuple(field._replace(id=ids[field.id], parent=ids.get(field.parent, field.parent)) for field in numbered)


def is_written_for(said: Iterator[FileField], ids: Collection[int], wanted: Sequence[Sequence[FileField]]) -> bool:
    """Whether a file has columns of one of these schemas only, in its order, and among them those with these ids."""
    fields = tuple(islice(said, max(map(len, wanted)) + 1))
    known = {field.id for field in fields}
    return known.issuperset(ids) and any(fields == tuple(each for each in schema if each.id in known) for schema in wanted)


def _field(data: bytes) -> FileField:
    # What is not written is 0 or empty.
    parts = dict(_message(data))
    return FileField(
        _number(parts.get(_ID, 0)), _number(parts.get(_PARENT, 0)), _bytes(parts.get(_NAME, b"")), _bytes(parts.get(_TYPE, b""))
    )


def _message(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Give number and value of each field of a message."""
    at, value = 0, 0
    while at < len(data):
        header, at = _varint(data, at)
        kind = header & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield header >> 3, value
            continue
        if kind == _BYTES:
            size_bytes, at = _varint(data, at)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            size_bytes = 8 if kind == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"its schema has a field of the unknown kind {kind}")
        if at + size_bytes > len(data):
            raise ValueError("its schema ends within a field")
        yield header >> 3, data[at : at + size_bytes]
        at += size_bytes


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_LONGEST_VARINT_BYTES):
        byte = data[at + place]
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, at + place + 1
    raise ValueError("its schema has a number of more than 64 bits")


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("its schema has bytes where a number is to be")
    return value


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("its schema has a number where bytes are to be")
    return value

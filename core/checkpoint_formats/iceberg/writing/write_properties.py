"""How a table wants its files written (`write.*`), and the columns that rows get from the table's defaults.

A property that is wrong is a ValueError that names it. Source: the list of table properties in Iceberg's documentation.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import ListType, MapType, NestedField, StructType

from checkpoint_formats.iceberg.writing.metrics import modes_of
from checkpoint_formats.rows.plain_types import with_default

_CODEC: Final = "write.parquet.compression-codec"
_LEVEL: Final = "write.parquet.compression-level"
_FILE_SIZE: Final = "write.target-file-size-bytes"
_ROW_GROUP: Final = "write.parquet.row-group-size-bytes"
_PAGE: Final = "write.parquet.page-size-bytes"
_DICTIONARY: Final = "write.parquet.dict-size-bytes"
_METRICS: Final = "write.metadata.metrics."
_CODECS: Final = ("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed")
_WITH_LEVELS: Final = ("zstd", "gzip", "brotli")
_MOST: Final = 1 << 50


@dataclass(frozen=True, slots=True)
class WriteProperties:
    """None: the table does not say. `metrics` are the modes as properties, with all that follows from the schema."""

    codec: str
    codec_level: int | None
    file_size_bytes: int | None
    row_group_bytes: int | None
    page_bytes: int | None
    dictionary_bytes: int | None
    metrics: Mapping[str, str]


def parse(properties: Mapping[str, str], schema: Schema, order: SortOrder | None) -> WriteProperties:
    """Return what the properties say. ValueError names one that says nothing that can be done."""
    if properties.get("write.format.default", "parquet").lower() != "parquet":
        raise ValueError(f"write.format.default is {properties['write.format.default']!r}, and Parquet files can be written")
    codec = properties.get(_CODEC, "zstd").lower()
    if codec not in _CODECS:
        raise ValueError(f"{_CODEC} is {properties[_CODEC]!r}, and {', '.join(_CODECS)} can be written")
    return WriteProperties(
        codec=codec,
        codec_level=_level(properties, codec),
        file_size_bytes=_number(properties, _FILE_SIZE),
        row_group_bytes=_number(properties, _ROW_GROUP),
        page_bytes=_number(properties, _PAGE),
        dictionary_bytes=_number(properties, _DICTIONARY),
        metrics=modes_of(schema, order, properties),
    )


def kept(properties: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return those that stagers have to be told, besides the codec."""
    return tuple(
        sorted(
            (name, value)
            for name, value in properties.items()
            if name in (_ROW_GROUP, _PAGE, _DICTIONARY) or name.startswith(_METRICS)
        )
    )


def _level(properties: Mapping[str, str], codec: str) -> int | None:
    if codec not in _WITH_LEVELS:  # the others have none, and Iceberg's own Java passes over the property
        return None
    least, most = pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec)
    return _number(properties, _LEVEL, least, most)


def _number(properties: Mapping[str, str], name: str, least: int = 1, most: int = _MOST) -> int | None:
    if name not in properties:
        return None
    try:
        number = int(properties[name])
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise ValueError(f"{name} is {properties[name]!r}, and a whole number from {least} to {most} is expected")
    return number


# The Arrow schema of rows that are to go into an Iceberg table, with the table's defaults for what they lack.
#
# Source of the rules: the Iceberg table specification (default values): a writer that has no value for a field writes its
# `write-default`.


def with_defaults(arrow: pa.Schema, schema: Schema) -> pa.Schema:
    """Return the Arrow schema of this Iceberg schema with the defaults of its fields."""
    fields = zip(arrow, schema.fields, strict=True)
    return pa.schema([_field(one, other) for one, other in fields], metadata=arrow.metadata)


def _field(arrow: pa.Field, field: NestedField) -> pa.Field:
    made = arrow.with_type(_type(arrow.type, field.field_type))
    default = field.write_default
    return made if default is None else with_default(made, _plain(default))


def _type(arrow: pa.DataType, kind: Any) -> pa.DataType:
    match kind:
        case StructType():
            return pa.struct([_field(one, other) for one, other in zip(arrow, kind.fields, strict=True)])
        case ListType():
            return pa.large_list(_field(arrow.value_field, kind.element_field))
        case MapType():
            return pa.map_(_field(arrow.key_field, kind.key_field), _field(arrow.item_field, kind.value_field))
        case _:
            return arrow


def _plain(value: Any) -> Any:
    return value.bytes if isinstance(value, uuid.UUID) else value

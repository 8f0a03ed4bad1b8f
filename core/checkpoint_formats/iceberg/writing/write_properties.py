"""How a table wants its data files written: its `write.*` properties, as far as there is something for them here.

A property that is wrong is a ValueError that names it. Source: the list of table properties in Iceberg's documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from checkpoint_formats.iceberg.writing.metrics import modes_of

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

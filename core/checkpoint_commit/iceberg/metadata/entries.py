"""Staged Iceberg files as manifest entries: Avro bytes, made once per file, a few dozen bytes each until they are written.

pyiceberg's own writer goes through each value of each entry as an object and compresses each entry by itself: with 100,000
files that is most of a commit. Here an entry is put together field by field, in the order of pyiceberg's own schema of a
manifest: where that has other fields, none is made. A thousand entries make a block of the file, compressed together.

Sources of the rules: the Iceberg table specification (manifests), the Avro specification (binary encoding, container files).
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from typing import Final

from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.avro.resolver import construct_writer
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    ManifestWriter,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record as PartitionRecord
from pyiceberg.typedef import TableVersion
from pyiceberg.types import NestedField, StructType, UnknownType

from checkpoint_commit.iceberg.metadata.metadata_files import MetadataFile
from checkpoint_formats.iceberg.writing.transforms import value_type
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.records import IcebergFile

#: Entries that are compressed together; a reader takes a block at a time.
_BLOCK_ENTRIES: Final = 1_000
_NUMBERED: Final = ("status", "snapshot_id", "sequence_number", "file_sequence_number")
_HEAD: Final = {1: ("status", "snapshot_id"), 2: _NUMBERED, 3: _NUMBERED}
_NAME: Final = ("file_path", "file_format", "partition", "record_count", "file_size_in_bytes")
_METRICS: Final = (
    *("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds"),
    *("key_metadata", "split_offsets"),
)
_DATA_FILE: Final = {
    1: (*_NAME, "block_size_in_bytes", *_METRICS, "sort_order_id"),
    2: ("content", *_NAME, *_METRICS, "equality_ids", "sort_order_id"),
    3: (
        *("content", *_NAME, *_METRICS, "equality_ids", "sort_order_id"),
        *("first_row_id", "referenced_data_file", "content_offset", "content_size_in_bytes"),
    ),
}
#: What format 1 wants to be told of each file, and nobody reads.
_BLOCK_SIZE: Final = 64 << 20

_NULL: Final = b"\x00"
_PRESENT: Final = b"\x02"
_NOTHING: Final = b"\x02\x00"
_END: Final = b"\x00"
_ADDED: Final = b"\x02"
_DATA: Final = b"\x00"
_PARQUET: Final = b"\x0ePARQUET"
#: Field ids, lengths, counts of a row group: most numbers are met again and again.
_KNOWN_COUNTS: Final = 1 << 14
#: The columns of a table are the same for its files, and a write has one table.
_KNOWN_FIELDS: Final = 64
_KNOWN_MAPS: Final = 1_024

_Partition = tuple[str | None, ...]


def _long(number: int) -> bytes:
    """Return a number as Avro writes it: zigzag, seven bits a byte."""
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


_COUNTS: Final = tuple(_long(number) for number in range(_KNOWN_COUNTS))


def _count(number: int) -> bytes:
    """Return a number that is not negative."""
    if number < _KNOWN_COUNTS:
        return _COUNTS[number]
    if number < 1 << 20:
        return bytes((number << 1 & 0x7F | 0x80, number >> 6 & 0x7F | 0x80, number >> 13))
    return _long(number)


def _text(text: str) -> bytes:
    data = text.encode()
    return _count(len(data)) + data


def _map(pairs: Sequence[bytes], width: int) -> bytes:
    """Return an optional map or list that is there: one block, or none. `pairs` has `width` pieces for each item."""
    return b"".join((_PRESENT, _count(len(pairs) // width), *pairs, _END)) if pairs else _NOTHING


@lru_cache(maxsize=_KNOWN_FIELDS)
def _keys(field_ids: tuple[int, ...]) -> tuple[bytes, ...]:
    return tuple(_long(field_id) for field_id in field_ids)


@lru_cache(maxsize=_KNOWN_MAPS)
def _few_counts(field_ids: tuple[int, ...], counts: tuple[int | None, ...]) -> bytes:
    """Return a map of counts that are the same for many files: of NULL and NaN most have none."""
    present = ((key, _count(count)) for key, count in zip(_keys(field_ids), counts, strict=True) if count is not None)
    return _map([piece for pair in present for piece in pair], 2)


def _add_counts(parts: list[bytes], keys: tuple[bytes, ...], counts: tuple[int | None, ...]) -> None:
    numbers, known = _COUNTS, _KNOWN_COUNTS
    present = len(counts) - counts.count(None)
    if not present:
        parts.append(_NOTHING)
        return
    add = parts.append
    add(_PRESENT)
    add(_count(present))
    for key, count in zip(keys, counts, strict=True):
        if count is not None:
            add(key)
            add(numbers[count] if count < known else _count(count))
    add(_END)


def _add_bounds(parts: list[bytes], keys: tuple[bytes, ...], bounds: tuple[str | None, ...]) -> None:
    decode = binascii.a2b_base64
    present = len(bounds) - bounds.count(None)
    if not present:
        parts.append(_NOTHING)
        return
    add = parts.append
    add(_PRESENT)
    add(_count(present))
    for key, bound in zip(keys, bounds, strict=True):
        if bound is not None:
            data = decode(bound)
            add(key)
            add(_count(len(data)))
            add(data)
    add(_END)


def _metrics(file: IcebergFile) -> bytes:
    """Return the fields from column_sizes to split_offsets."""
    parts: list[bytes] = []
    if file.metrics:
        field_ids, sizes, values, nulls, nans, lowers, uppers = zip(*file.metrics, strict=True)
        keys = _keys(field_ids)
        _add_counts(parts, keys, sizes)
        _add_counts(parts, keys, values)
        parts += (_few_counts(field_ids, nulls), _few_counts(field_ids, nans))
        _add_bounds(parts, keys, lowers)
        _add_bounds(parts, keys, uppers)
    else:
        parts += [_NOTHING] * 6
    parts.append(_NULL)
    parts.append(_map([_count(offset) for offset in file.split_offsets], 1) if file.split_offsets else _NULL)
    return b"".join(parts)


def _check_schema(format_version: TableVersion) -> None:
    """Refuse a pyiceberg whose manifests have other fields than those that are made here, before one is made."""
    schema = _entry_schema(format_version, StructType())
    names = tuple(part.name for part in schema.fields)
    data_file = schema.find_field("data_file").field_type
    assert isinstance(data_file, StructType)
    if (names[:-1], tuple(part.name for part in data_file.fields)) != (_HEAD[format_version], _DATA_FILE[format_version]):
        raise NeedsChange(
            reasons.TABLE_UNSUPPORTED,
            f"this release does not know the manifests of format version {format_version} as the installed pyiceberg writes them",
        )


@dataclass(frozen=True, slots=True)
class _Block:
    """Entries that are compressed together, and the distinct partition values of their files."""

    entries: int
    rows: int
    data: bytes
    partitions: tuple[PartitionRecord, ...]


@dataclass(slots=True)
class SpecEntries:
    """The entries of all files of one partition spec."""

    spec: PartitionSpec
    schema: Schema
    head: bytes
    format_version: TableVersion
    blocks: list[_Block] = field(default_factory=list)
    _partitions: dict[_Partition, tuple[PartitionRecord, bytes]] = field(default_factory=dict)
    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    _pending: list[bytes] = field(default_factory=list)
    _pending_rows: int = 0
    _pending_partitions: set[_Partition] = field(default_factory=set)

    def add(self, file: IcebergFile) -> None:
        """Take a file in. Corrupt if its partition values are not of the spec's types."""
        if file.partition not in self._partitions:
            self._partitions[file.partition] = self._partition(file)
        is_first = self.format_version == 1
        self._pending += (
            self.head,
            _text(file.path),
            _PARQUET,
            self._partitions[file.partition][1],
            _count(file.rows),
            _count(file.size_bytes),
            _count(_BLOCK_SIZE) if is_first else b"",
            _metrics(file),
            # Nothing of equality deletes, which format 1 does not know.
            b"" if is_first else _NULL,
            _NULL if file.sort_order_id is None else _PRESENT + _count(file.sort_order_id),
            # A first row id is inherited from the manifest list; the others are of deletion vectors.
            4 * _NULL if self.format_version == 3 else b"",
        )
        self.files += 1
        self.rows += file.rows
        self.size_bytes += file.size_bytes
        self._pending_rows += file.rows
        self._pending_partitions.add(file.partition)
        if self.files % _BLOCK_ENTRIES == 0:
            self.finish()

    def finish(self) -> None:
        """Compress what was added since the last block."""
        if self._pending:
            entries = self.files - sum(block.entries for block in self.blocks)
            # As Avro wants it: raw deflate, without zlib's header and checksum.
            compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
            data = compressor.compress(b"".join(self._pending)) + compressor.flush()
            partitions = tuple(self._partitions[value][0] for value in self._pending_partitions)
            self.blocks.append(_Block(entries, self._pending_rows, data, partitions))
            self._pending, self._pending_rows, self._pending_partitions = [], 0, set()

    @property
    def partitions(self) -> Collection[_Partition]:
        """The distinct partition values of the files, as these have them."""
        return self._partitions.keys()

    def partition_paths(self) -> set[str]:
        """Return the distinct partitions as people read them; none where the spec does not partition."""
        if self.spec.is_unpartitioned():
            return set()
        return {self.spec.partition_to_path(partition, self.schema) for partition, _ in self._partitions.values()}

    def _partition(self, file: IcebergFile) -> tuple[PartitionRecord, bytes]:
        partition = partition_of(file, self.spec, self.schema)
        written = BytesIO()
        construct_writer(_partition_type(self.spec, self.schema)).write(BinaryEncoder(written), partition)
        return partition, written.getvalue()

    def is_made_for(self, metadata: TableMetadata) -> bool:
        """Whether the entries are what they would be if they were made for this version of the table."""
        spec = metadata.specs().get(self.spec.spec_id)
        return (
            metadata.format_version == self.format_version
            and spec == self.spec
            and _partition_type(spec, metadata.schema()) == _partition_type(self.spec, self.schema)
        )

    def rolled(self, target_bytes: int) -> Iterator[list[_Block]]:
        """Give the blocks of each manifest."""
        blocks: list[_Block] = []
        size_bytes = 0
        for block in self.blocks:
            blocks.append(block)
            size_bytes += len(block.data)
            if size_bytes >= target_bytes:
                yield blocks
                blocks, size_bytes = [], 0
        if blocks:
            yield blocks

    def write(self, file: MetadataFile, metadata: TableMetadata, snapshot_id: int, blocks: Sequence[_Block]) -> ManifestFile:
        """Write one manifest."""
        writer = _Writer(self.spec, metadata.schema(), file, snapshot_id, "deflate", metadata.format_version)
        writer._partitions = [partition for block in blocks for partition in block.partitions]
        writer._added_files = sum(block.entries for block in blocks)
        writer._added_rows = sum(block.rows for block in blocks)
        with writer:
            container = writer._writer
            for block in blocks:
                container.encoder.write(_count(block.entries) + _count(len(block.data)))
                container.encoder.write(block.data)
                container.encoder.write(container.sync_bytes)
        return writer.to_manifest_file()


class _Writer(ManifestWriter):
    """pyiceberg's writer of manifests, with the partition fields of the entries that are made here."""

    def __init__(
        self,
        spec: PartitionSpec,
        schema: Schema,
        output_file: MetadataFile,
        snapshot_id: int,
        compression: AvroCompressionCodec,
        version: TableVersion,
    ) -> None:
        super().__init__(spec, schema, output_file, snapshot_id, compression)
        self._version = version

    def content(self) -> ManifestContent:
        return ManifestContent.DATA

    @property
    def version(self) -> TableVersion:
        return self._version

    @property
    def _meta(self) -> dict[str, str]:
        return super()._meta if self._version == 1 else {**super()._meta, "content": "data"}

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        return AvroOutputFile(
            output_file=self._output_file,
            file_schema=_entry_schema(self._version, _partition_type(self._spec, self._schema)),
            schema_name="manifest_entry",
            metadata=self._meta,
        )

    def prepare_entry(self, entry: ManifestEntry) -> ManifestEntry:
        return entry


def _entry_schema(version: TableVersion, partition: StructType) -> Schema:
    return manifest_entry_schema_with_data_file(version, data_file_with_partition(partition, version))


def _partition_type(spec: PartitionSpec, schema: Schema) -> StructType:
    """Return the partition values of a manifest, as Java writes them.

    All are optional, also those of required columns, as a void transform makes NULL of these, too. Of a column that was dropped
    there is nothing but NULL, which is no choice.
    """
    types = [value_type(part, schema) for part in spec.fields]
    return StructType(
        *(
            NestedField(part.field_id, part.name, kind, required=isinstance(kind, UnknownType))
            for part, kind in zip(spec.fields, types, strict=True)
        )
    )


def entries_under(metadata: TableMetadata, spec_id: int, snapshot_id: int) -> SpecEntries:
    """Return no entries yet, for files that a snapshot adds under a spec of this version of the table."""
    version = metadata.format_version
    _check_schema(version)
    head = _ADDED + (_long(snapshot_id) if version == 1 else _PRESENT + _long(snapshot_id) + _NULL + _NULL + _DATA)
    return SpecEntries(metadata.specs()[spec_id], metadata.schema(), head, version)


def partition_of(file: IcebergFile, spec: PartitionSpec, schema: Schema) -> PartitionRecord:
    """Return a file's partition values. Corrupt if they are not of the spec's types."""
    try:
        return PartitionRecord(
            *(
                None if value is None else from_bytes(value_type(part, schema), base64.b64decode(value))
                for part, value in zip(spec.fields, file.partition, strict=True)
            )
        )
    except (ValueError, TypeError, struct.error) as error:
        raise Corrupt(
            reasons.STAGED_RESULT_REFUSED, f"the partition of {file.path} is not of the spec's types: {error}"
        ) from error

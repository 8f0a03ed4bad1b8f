"""Partitions of topics: an offset is a position, and what was compacted away or aborted is a position without a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from checkpoint_formats.files.numbering import empty_chunk
from checkpoint_formats.files.parsing import BadLine
from checkpoint_formats.kafka.cluster import Cluster
from checkpoint_formats.kafka.columns import WAY_OUT, Parts, metadata_column, metadata_fields, parse_values
from checkpoint_formats.kafka.decoded import WAY_OUT as WAY_OUT_OF_DECODED
from checkpoint_formats.kafka.decoded import DecodedValues
from checkpoint_formats.kafka.encodings import encoding_of
from checkpoint_formats.kafka.failures import lost, unreadable
from checkpoint_formats.kafka.records import RecordReader, Records, offset_of
from checkpoint_formats.kafka.registered import text_behind_id
from checkpoint_formats.kafka.registry import registry_of
from checkpoint_formats.port import Chunk, Reader
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_formats.rows.type_names import parse_type
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import KafkaPartition, PinnedSchema
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range

#: A chunk has about as many bytes at the most, by what records before had.
_CHUNK_BYTES: Final = 8 << 20
_FIRST_ROWS: Final = 100


class KafkaReader(Reader):
    """Positions are offsets. `sets_apart`: values that cannot be read, and with onLost: Skip lost offsets, are rows that failed.

    Reading may begin at any offset.
    """

    def __init__(
        self,
        source: KafkaSource,
        columns: Sequence[str] | None,
        storage: StorageSettings,
        *,
        schemas: Sequence[PinnedSchema] = (),
        sets_apart: bool = False,
    ) -> None:
        self._source = source
        self._columns = columns
        self._sets_apart = sets_apart
        self._types = {name: parse_type(name, text) for name, text in source.types.items()}
        self._cluster = Cluster(source, storage)
        self._records = RecordReader(self._cluster)
        self._decoded = None
        if source.is_decoded:
            registry = registry_of(source.bootstrap_servers, storage)
            self._decoded = DecodedValues(encoding_of(source, registry), registry, schemas, columns)

    def check_unchanged(self, file: SourceFile) -> None:
        self._cluster.check_unchanged(file)

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        assert file.kafka is not None
        assert piece.end is not None
        if piece.start == piece.end:
            yield empty_chunk(piece, schema)
            return
        self._cluster.check_unchanged(file)
        sizes = _Sizes(sizing)
        for records in self._records.read(file, piece.start, piece.end, sizes.most_rows):
            sizes.note(records.messages)
            if records.is_lost:
                yield self._lost(file.kafka, records, schema)
            elif self._source.format == "raw":
                yield _chunk(records, _raw_batch(records.messages, schema))
            else:
                yield from self._chunks(file.kafka, records, schema)

    def _lost(self, place: KafkaPartition, records: Records, schema: pa.Schema) -> Chunk:
        error = lost([(place, records.start, records.end)])
        if self._source.on_lost == "Stall" or not self._sets_apart:
            raise error
        return _failed(records.start, records.end, schema, error)

    def _parsed(self, place: KafkaPartition, values: Sequence[bytes | None], fields: pa.Schema) -> Parts:
        if self._decoded is not None:
            return self._decoded.parse(place.topic, values, fields)
        text_of = text_behind_id if self._source.has_registered_schemas else bytes
        return parse_values(values, fields, "ignore" if self._columns else "error", self._types, text_of)

    def _chunks(self, place: KafkaPartition, records: Records, schema: pa.Schema) -> Iterator[Chunk]:
        """Give the records in chunks: the good ones between two bad ones are one."""
        beside = {field.name for field in metadata_fields(self._source)}
        fields = pa.schema([field for field in schema if field.name not in beside])
        messages, at = records.messages, records.start
        if not messages:
            yield _chunk(records, pa.RecordBatch.from_pylist([], schema=schema))
            return
        values = [message.value() for message in messages]
        for start, end, found in self._parsed(place, values, fields):
            part = messages[start:end]
            after = records.end if end == len(messages) else offset_of(messages[end - 1]) + 1
            if isinstance(found, BadLine):
                offset = offset_of(part[0])
                if not self._sets_apart:
                    way_out = WAY_OUT if self._decoded is None else WAY_OUT_OF_DECODED
                    raise unreadable(place, offset, found.message, way_out)
                if offset > at:
                    yield _chunk(Records([], at, offset), pa.RecordBatch.from_pylist([], schema=schema))
                yield _failed(offset, after, schema, found)
            else:
                arrays = [
                    metadata_column(field.name, part) if field.name in beside else found.column(field.name) for field in schema
                ]
                yield _chunk(Records(part, at, after), pa.RecordBatch.from_arrays(arrays, schema=schema))
            at = after


class _Sizes:
    """How many records come next: as the steps are fast, and not so large together that they fill the memory."""

    def __init__(self, sizing: BatchSizing) -> None:
        self._sizing = sizing
        self._bytes_each: float | None = None

    def most_rows(self) -> int:
        if self._bytes_each is None:
            return min(self._sizing.rows, _FIRST_ROWS)
        return max(1, min(self._sizing.rows, int(_CHUNK_BYTES / max(1.0, self._bytes_each))))

    def note(self, messages: Sequence[Message]) -> None:
        if messages:
            self._bytes_each = sum(map(len, messages)) / len(messages)


def _raw_batch(messages: Sequence[Message], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([metadata_column(field.name, messages) for field in schema], schema=schema)


def _chunk(records: Records, batch: pa.RecordBatch) -> Chunk:
    if len(records.messages) == records.end - records.start:
        return Chunk(batch, records.start, records.end)
    offsets = np.fromiter(map(offset_of, records.messages), np.int64, len(records.messages))
    return Chunk(batch, records.start, records.end, pa.array(offsets - records.start, pa.uint64()))


def _failed(start: int, end: int, schema: pa.Schema, error: CheckpointError) -> Chunk:
    bounds: Callable[[], Sequence[tuple[int, int]]] = lambda: [(start, end)]  # noqa: E731
    return Chunk(pa.RecordBatch.from_pylist([], schema=schema), start, end, row_bounds=bounds, failed=error)

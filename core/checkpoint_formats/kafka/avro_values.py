"""Values in Avro with the ids of their schemas (Confluent's wire format)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa

from checkpoint_formats.kafka.avro import columns, decoder
from checkpoint_formats.kafka.avro_schema import AvroSchema, parse
from checkpoint_formats.kafka.decoded import Decode, Others
from checkpoint_formats.kafka.registered import unusable
from checkpoint_formats.kafka.registry import SchemaRegistry
from checkpoint_protocol.records import PinnedSchema


@dataclass(frozen=True, slots=True)
class Avro:
    """An Encoding."""

    registry: SchemaRegistry

    def columns(self, one: PinnedSchema, chosen: Collection[str] | None) -> tuple[pa.Schema, tuple[str, ...]]:
        try:
            schema = self._schema(one.schema_id)
            return columns(schema, chosen), tuple(field.name for field in schema.root.fields)
        except ValueError as error:
            raise unusable(one, error) from error

    def decoder(self, schema_id: int, reader: PinnedSchema, names: Sequence[str], others: Others) -> Decode:
        return decoder(self._schema(schema_id), self._schema(reader.schema_id), names, others).row

    def _schema(self, schema_id: int) -> AvroSchema:
        """Return a schema. ValueError if there is no such one, or it cannot be used."""
        found = self.registry.by_id(schema_id, "AVRO")
        return parse(found.text, found.referred)

"""Which encodings of values there are that are decoded by their schemas. Each is imported when it is asked for."""

from __future__ import annotations

from checkpoint_formats.kafka.decoded import Encoding
from checkpoint_formats.kafka.registry import SchemaRegistry
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource


def encoding_of(source: KafkaSource, registry: SchemaRegistry) -> Encoding:
    """Return the encoding of a source's values, which `is_decoded`."""
    if source.format == "avro":
        from checkpoint_formats.kafka.avro_values import Avro

        return Avro(registry)
    from checkpoint_formats.kafka.protobuf_values import Protobuf

    return Protobuf(registry)

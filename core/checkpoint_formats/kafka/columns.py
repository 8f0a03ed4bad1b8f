"""The columns that records of Kafka have beside what their values hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
RAW: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("topic", pa.string()),
    ]
)
#: Before the name of such a column, beside the fields of a value.
_PREFIX: Final = "kafka_"


def metadata_fields(source: KafkaSource) -> list[pa.Field]:
    """Return the columns beside those of the value, where values are taken apart."""
    return [pa.field(_PREFIX + name, RAW.field(name).type) for name in source.metadata]


def metadata_column(name: str, messages: Sequence[Message]) -> pa.Array:
    """Return a column of some messages by its name, with or without the prefix."""
    plain = name.removeprefix(_PREFIX)
    kind = RAW.field(plain).type
    match plain:
        case "key":
            return pa.array([message.key() for message in messages], kind)
        case "value":
            return pa.array([message.value() for message in messages], kind)
        case "headers":
            return pa.array([_headers(message) for message in messages], kind)
        case "timestamp":
            return pa.array([_timestamp_us(message) for message in messages], pa.int64()).cast(kind)
        case "partition":
            return pa.array([message.partition() for message in messages], kind)
        case "offset":
            return pa.array([message.offset() for message in messages], kind)
        case "topic":
            return pa.array([message.topic() for message in messages], kind)
        case other:
            raise AssertionError(other)


def _headers(message: Message) -> list[dict[str, object]]:
    headers = message.headers()
    return [{"key": header[0], "value": header[1]} for header in headers] if headers else []


def _timestamp_us(message: Message) -> int | None:
    stamp = message.timestamp()
    return None if stamp[0] == TIMESTAMP_NOT_AVAILABLE else stamp[1] * 1000

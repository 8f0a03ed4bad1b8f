"""The columns of Kafka records: fields of values that are JSON objects, and what records have beside their values."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Final, Literal

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from checkpoint_formats.files.json.objects import infer_schema, parse_objects
from checkpoint_formats.files.lines import Lines
from checkpoint_formats.files.parsing import MOST_PARTS_OF_A_SAMPLE, BadLine, what_is_wrong
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import one_line
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource

_EXPECTED: Final = "one JSON object is expected, with the fields that the first values have"
WAY_OUT: Final = (
    f"{_EXPECTED}; set onRowError: Quarantine to set such records apart and go on, or name the field, or a type that holds "
    "all its values (string holds any, as its JSON text), by source.kafka.types (steps and table have to take it); what is "
    "sealed stays"
)
#: A record without a value, as those that mark a key as deleted, is a row of NULLs.
_NOTHING: Final = b"{}"


#: Values from one to another: their rows, or what is wrong with the only one.
Parts = Iterator[tuple[int, int, pa.RecordBatch | BadLine]]


def parse_values(
    values: Sequence[bytes | None],
    schema: pa.Schema,
    others: Literal["error", "ignore"],
    given: Container[str],
    text_of: Callable[[bytes], bytes] = bytes,
) -> Parts:
    """Give values that are JSON objects in parts, as `in_parts` does. `text_of` returns that of a value, or raises ValueError."""

    def texts(some: Sequence[bytes | None]) -> list[bytes | None]:
        return [None if value is None else text_of(value) for value in some]

    def parse(some: Sequence[bytes | None]) -> pa.RecordBatch:
        if (lines := _lines(texts(some))) is None:
            raise ValueError("the value is empty")
        return parse_objects(lines, schema, others, given)

    def describe(value: bytes | None, error: Exception) -> str:
        try:
            lines = _lines(texts([value]))
        except ValueError as wrong:
            return one_line(wrong)
        return what_is_wrong(lines or Lines(b"", 0, 0, 0), error)

    return in_parts(values, parse, describe)


def in_parts(
    values: Sequence[bytes | None],
    parse: Callable[[Sequence[bytes | None]], pa.RecordBatch],
    describe: Callable[[bytes | None, Exception], str],
) -> Parts:
    """Give the values in parts, from and to: those that can be read, and between them each that cannot, with what is wrong in it.

    Found by halving, as far as the parts are asked for. `parse` raises ArrowException or ValueError if a value cannot be read.
    """
    parts = [(0, len(values))]
    while parts:
        start, end = parts.pop()
        try:
            yield start, end, parse(values[start:end])
        except (pa.ArrowException, ValueError) as error:
            if end - start > 1:
                middle = (start + end) // 2
                parts += [(middle, end), (start, middle)]
                continue
            yield start, end, BadLine(reasons.SOURCE_UNREADABLE, describe(values[start], error))


def infer_fields(values: Sequence[bytes | None], given: Mapping[str, pa.DataType], *, sets_apart: bool) -> pa.Schema:
    """Return the fields of some values, in the order of their appearance. `sets_apart`: those that are no object are passed over.

    ArrowException or ValueError where they have no common types.
    """
    if sets_apart:
        values = _those_that_can_be_read(values, given)
    lines = _lines(values)
    if lines is None:
        raise ValueError("a value is empty")
    return infer_schema(lines, given)


def _those_that_can_be_read(values: Sequence[bytes | None], given: Mapping[str, pa.DataType]) -> list[bytes | None]:
    schema = pa.schema(list(given.items()))
    parts = parse_values(values, schema, "ignore", given)
    good: list[bytes | None] = []
    for number, (start, end, found) in enumerate(parts):
        if number == MOST_PARTS_OF_A_SAMPLE:
            break
        if not isinstance(found, BadLine):
            good += values[start:end]
    return good


def _lines(values: Sequence[bytes | None]) -> Lines | None:
    """Return the values as lines; None if one is empty. A line break in an object is space: texts have \\n for it."""
    texts = [_NOTHING if value is None else _on_one_line(value) for value in values]
    if not all(texts):
        return None
    data = b"\n".join(texts)
    return Lines(data, 0, len(data), 0)


def _on_one_line(value: bytes) -> bytes:
    if b"\n" in value or b"\r" in value:
        value = value.replace(b"\r", b" ").replace(b"\n", b" ")
    return value.strip()


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

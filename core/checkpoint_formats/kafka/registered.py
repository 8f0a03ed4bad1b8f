"""Values with the ids of their schemas in a registry (Confluent's wire format): the schemas that an epoch goes by, and columns.

The columns are those of the newest schema of each topic when the epoch began.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import pyarrow as pa

from checkpoint_formats.kafka.registry import SchemaRegistry
from checkpoint_formats.rows.uniting import united_type
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, one_line
from checkpoint_protocol.records import PinnedSchema

_NO_COLUMNS: Final = (
    "choose other fields by source.columns, register a schema without it, or say format: raw and decode the values in a step"
)
_HEADER: Final = 5

#: Returns the columns of a pinned schema, those that are asked for, and the names of all its fields.
ColumnsOf = Callable[[PinnedSchema], tuple[pa.Schema, Sequence[str]]]


def taken_apart(value: bytes) -> tuple[int, bytes]:
    """Return the id of a value's schema, and the value without it. ValueError if it does not begin so."""
    if len(value) < _HEADER or value[0] != 0:
        raise ValueError(
            "the value does not begin with a zero byte and the id of its schema, as serializers of a schema registry write it"
        )
    return int.from_bytes(value[1:_HEADER], "big"), value[_HEADER:]


def text_behind_id(value: bytes) -> bytes:
    return taken_apart(value)[1]


def pin_schemas(registry: SchemaRegistry, topics: Sequence[str], filled: Collection[str]) -> tuple[PinnedSchema, ...]:
    """Return the newest schemas of topics, by the names that producers give to subjects unless they are told otherwise.

    To be asked for after the ends of the logs: a schema is registered before the first record that has it.
    NeedsChange(SourceUnreadable) if one of the `filled` topics has none.
    """
    found = []
    for topic in topics:
        subject = f"{topic}-value"
        schema_id = registry.newest_id(subject)
        if schema_id is not None:
            found.append(PinnedSchema(topic=topic, schema_id=schema_id))
        elif topic in filled:
            raise NeedsChange(
                reasons.SOURCE_UNREADABLE,
                f"source: the schema registry {registry.url} has no subject {subject}, which has the schemas of the values of "
                "the topic; register their schema there, or say format: raw and decode the values in a step",
            )
    return tuple(found)


def columns_of_schemas(pinned: Sequence[PinnedSchema], columns_of: ColumnsOf) -> tuple[pa.Schema, tuple[str, ...]]:
    """Return the columns of all topics, and the names of all fields that there are.

    NeedsChange(SourceUnreadable) names a field that no column can have, or for which two topics have no common type.
    """
    kinds: dict[str, pa.DataType] = {}
    names: dict[str, None] = {}
    for of_topic in pinned:
        columns, fields = columns_of(of_topic)
        names |= dict.fromkeys(fields)
        for column in columns:
            kind = united_type(kinds.get(column.name, column.type), column.type)
            if kind is None:
                raise NeedsChange(
                    reasons.SOURCE_UNREADABLE,
                    f"source: the field {column.name} is {column.type} in the schema of topic {of_topic.topic}, and "
                    f"{kinds[column.name]} in that of another topic; choose other fields by source.columns, or use one write for "
                    "each topic",
                )
            kinds[column.name] = kind
    return pa.schema(list(kinds.items())), tuple(names)


def unusable(one: PinnedSchema, error: ValueError) -> NeedsChange:
    """Return that a pinned schema cannot be used."""
    return NeedsChange(
        reasons.SOURCE_UNREADABLE,
        f"source.kafka: the schema {one.schema_id} of the values of topic {one.topic}: {one_line(error)}; {_NO_COLUMNS}",
    )

"""Values in Avro with the ids of their schemas (Confluent's wire format), as rows of the columns that an epoch has fixed.

The columns are those of the newest schema of each topic when the epoch began, which is the reader's schema of all its values.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pyarrow as pa

from checkpoint_formats.kafka.avro import Decoder, columns, decoder
from checkpoint_formats.kafka.avro_schema import AvroSchema, NoColumn, parse
from checkpoint_formats.kafka.columns import Parts, in_parts
from checkpoint_formats.kafka.registered import taken_apart, unusable
from checkpoint_formats.kafka.registry import SchemaRegistry, UnknownSchema
from checkpoint_formats.rows.uniting import united_type
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange, one_line
from checkpoint_protocol.records import PinnedSchema

WAY_OUT: Final = (
    "set onRowError: Quarantine to set such records apart and go on, and quarantine.retry: Also to read them by the newest "
    "schema of a later epoch; leave out fields that it has no more by source.columns (as long as nothing is sealed)"
)
#: So many writers' schemas of one topic are kept ready.
_MOST_READY: Final = 1_000


def columns_of_avro(
    registry: SchemaRegistry, one: PinnedSchema, chosen: Collection[str] | None
) -> tuple[pa.Schema, tuple[str, ...]]:
    """Return the columns of a pinned schema, those that are chosen, and the names of all its fields."""
    schema = _reader_schema(registry, one)
    return _columns(one, schema, chosen), tuple(field.name for field in schema.root.fields)


class AvroValues:
    """Reads values by the schemas that are pinned. `chosen`: the fields that are asked for; None: all, and no others may come."""

    def __init__(self, registry: SchemaRegistry, pinned: Sequence[PinnedSchema], chosen: Sequence[str] | None) -> None:
        self._registry = registry
        self._pinned = {one.topic: one for one in pinned}
        self._others: Literal["error", "ignore"] = "error" if chosen is None else "ignore"
        self._topics: dict[tuple[str, pa.Schema], _TopicValues] = {}

    def parse(self, topic: str, values: Sequence[bytes | None], fields: pa.Schema) -> Parts:
        """Give the values of a topic in parts. Retryable if the registry does not answer: that is the fault of no record."""
        if (found := self._topics.get((topic, fields))) is None:
            if (pinned := self._pinned.get(topic)) is None:
                raise Corrupt(reasons.RECORD_UNREADABLE, f"the input record does not have the schema of topic {topic}")
            reader = _reader_schema(self._registry, pinned)
            kinds = _kinds(self._registry, pinned, reader, fields)
            found = self._topics[topic, fields] = _TopicValues(self._registry, reader, kinds, fields, self._others)
        return in_parts(values, found.rows, lambda _, error: one_line(error))


@dataclass(frozen=True, slots=True)
class _TopicValues:
    """The values of one topic. `kinds` are the types that its own schema gives the columns `fields`."""

    registry: SchemaRegistry
    reader: AvroSchema
    kinds: Sequence[pa.DataType]
    fields: pa.Schema
    others: Literal["error", "ignore"]
    #: By the ids of writers' schemas; why one cannot be used, so that not each of its records asks for it again.
    ready: dict[int, Decoder | ValueError] = field(default_factory=dict)

    def rows(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        """Return a row for each value. ArrowException or ValueError if there is one that cannot be read."""
        rows: list[dict[str, Any]] = [{} if value is None else self._row(value) for value in values]
        columns = zip(self.fields, self.kinds, strict=True)
        arrays = [pa.array([row.get(one.name) for row in rows], kind).cast(one.type) for one, kind in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.fields)

    def _row(self, value: bytes) -> dict[str, Any]:
        schema_id, payload = taken_apart(value)
        try:
            return self._decoder(schema_id).row(payload)
        except ValueError as error:
            raise ValueError(f"of the schema {schema_id}: {error}") from error

    def _decoder(self, schema_id: int) -> Decoder:
        found = self.ready.get(schema_id)
        if found is None:
            try:
                found = decoder(_schema(self.registry, schema_id), self.reader, self.fields.names, self.others)
            except ValueError as error:
                found = error
            if len(self.ready) >= _MOST_READY:
                self.ready.clear()
            self.ready[schema_id] = found
        if isinstance(found, ValueError):
            raise found
        return found


def _kinds(registry: SchemaRegistry, pinned: PinnedSchema, reader: AvroSchema, fields: pa.Schema) -> list[pa.DataType]:
    """Return the types that a reader's schema gives columns. NeedsChange(SourceChanged) if they are not those of the input."""
    own = _columns(pinned, reader, fields.names)
    kinds = [own.field(one.name).type if one.name in own.names else one.type for one in fields]
    for one, kind in zip(fields, kinds, strict=True):
        if united_type(kind, one.type) != one.type:
            raise NeedsChange(
                reasons.SOURCE_CHANGED,
                f"source: the schema {pinned.schema_id} of topic {pinned.topic} has {kind} for the field {one.name}, and had "
                f"{one.type} when the input was fixed: {registry.url} is another schema registry than then; put the former url "
                "back in schema_registry of the cluster's entry, or start a new write",
            )
    return kinds


def _reader_schema(registry: SchemaRegistry, one: PinnedSchema) -> AvroSchema:
    try:
        return _schema(registry, one.schema_id)
    except ValueError as error:
        raise unusable(one, error) from error


def _columns(one: PinnedSchema, schema: AvroSchema, chosen: Collection[str] | None) -> pa.Schema:
    try:
        return columns(schema, chosen)
    except NoColumn as error:
        raise unusable(one, error) from error


def _schema(registry: SchemaRegistry, schema_id: int) -> AvroSchema:
    """Return a schema. ValueError if there is no such one, or it cannot be used."""
    found = registry.by_id(schema_id)
    if found.kind != "AVRO":
        raise UnknownSchema(f"it is a schema of type {found.kind}, and AVRO is expected")
    return parse(found.text, found.referred)

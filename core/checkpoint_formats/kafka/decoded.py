"""Values that are decoded one by one, each by its own schema in a registry, as rows of the columns that an epoch has fixed.

The columns are those of the newest schema of each topic when the epoch began, which is the reader's schema of all its values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import pyarrow as pa

from checkpoint_formats.kafka.columns import Parts, in_parts
from checkpoint_formats.kafka.registered import taken_apart
from checkpoint_formats.kafka.registry import SchemaRegistry
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

#: What a field that the columns lack does to its row.
Others = Literal["error", "ignore"]
#: Returns the row that a value without its header is. ValueError says what is wrong with it.
Decode = Callable[[bytes], dict[str, Any]]


class Encoding(Protocol):
    """How values are encoded."""

    def columns(self, one: PinnedSchema, chosen: Collection[str] | None) -> tuple[pa.Schema, tuple[str, ...]]:
        """Return the columns of a pinned schema, those that are chosen, and the names of all its fields.

        NeedsChange(SourceUnreadable) if it cannot be used.
        """

    def decoder(self, schema_id: int, reader: PinnedSchema, names: Sequence[str], others: Others) -> Decode:
        """Return what decodes values of a schema to rows of the reader's. ValueError if there is none."""


class DecodedValues:
    """Reads values by the schemas that are pinned. `chosen`: the fields that are asked for; None: all, and no others may come."""

    def __init__(
        self, encoding: Encoding, registry: SchemaRegistry, pinned: Sequence[PinnedSchema], chosen: Sequence[str] | None
    ) -> None:
        self._encoding = encoding
        self._registry = registry
        self._pinned = {one.topic: one for one in pinned}
        self._others: Others = "error" if chosen is None else "ignore"
        self._topics: dict[tuple[str, pa.Schema], _TopicValues] = {}

    def parse(self, topic: str, values: Sequence[bytes | None], fields: pa.Schema) -> Parts:
        """Give the values of a topic in parts. Retryable if the registry does not answer: that is the fault of no record."""
        if (found := self._topics.get((topic, fields))) is None:
            if (pinned := self._pinned.get(topic)) is None:
                raise Corrupt(reasons.RECORD_UNREADABLE, f"the input record does not have the schema of topic {topic}")
            kinds = self._kinds(pinned, fields)
            found = self._topics[topic, fields] = _TopicValues(self._encoding, pinned, kinds, fields, self._others)
        return in_parts(values, found.rows, lambda _, error: one_line(error))

    def _kinds(self, pinned: PinnedSchema, fields: pa.Schema) -> list[pa.DataType]:
        """Return the types that a schema gives columns. NeedsChange(SourceChanged) if they are not those of the input."""
        own, _ = self._encoding.columns(pinned, fields.names)
        kinds = [own.field(one.name).type if one.name in own.names else one.type for one in fields]
        for one, kind in zip(fields, kinds, strict=True):
            if united_type(kind, one.type) != one.type:
                raise NeedsChange(
                    reasons.SOURCE_CHANGED,
                    f"source: the schema {pinned.schema_id} of topic {pinned.topic} has {kind} for the field {one.name}, and had "
                    f"{one.type} when the input was fixed: {self._registry.url} is another schema registry than then; put the "
                    "former url back in schema_registry of the cluster's entry, or start a new write",
                )
        return kinds


@dataclass(frozen=True, slots=True)
class _TopicValues:
    """The values of one topic. `kinds` are the types that its own schema gives the columns `fields`."""

    encoding: Encoding
    reader: PinnedSchema
    kinds: Sequence[pa.DataType]
    fields: pa.Schema
    others: Others
    #: By the ids of writers' schemas; why one cannot be used, so that not each of its records asks for it again.
    ready: dict[int, Decode | ValueError] = field(default_factory=dict)

    def rows(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        """Return a row for each value. ArrowException or ValueError if there is one that cannot be read."""
        rows: list[dict[str, Any]] = [{} if value is None else self._row(value) for value in values]
        columns = zip(self.fields, self.kinds, strict=True)
        arrays = [pa.array([row.get(one.name) for row in rows], kind).cast(one.type) for one, kind in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.fields)

    def _row(self, value: bytes) -> dict[str, Any]:
        schema_id, payload = taken_apart(value)
        try:
            return self._decoder(schema_id)(payload)
        except ValueError as error:
            raise ValueError(f"of the schema {schema_id}: {error}") from error

    def _decoder(self, schema_id: int) -> Decode:
        found = self.ready.get(schema_id)
        if found is None:
            try:
                found = self.encoding.decoder(schema_id, self.reader, self.fields.names, self.others)
            except ValueError as error:
                found = error
            if len(self.ready) >= _MOST_READY:
                self.ready.clear()
            self.ready[schema_id] = found
        if isinstance(found, ValueError):
            raise found
        return found

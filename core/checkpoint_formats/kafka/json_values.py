"""The columns of values in JSON that have the ids of their schemas in a registry.

The columns are those of the newest schema of each topic when the epoch began. A value tells its fields itself, so that the schema
it was written by is not asked for: what does not fit the columns is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from checkpoint_formats.kafka.json_schema import columns_of
from checkpoint_formats.kafka.registered import unusable
from checkpoint_formats.kafka.registry import SchemaRegistry
from checkpoint_protocol.records import PinnedSchema


def columns_of_json(
    registry: SchemaRegistry, one: PinnedSchema, given: Mapping[str, pa.DataType], chosen: Collection[str] | None
) -> tuple[pa.Schema, tuple[str, ...]]:
    """Return the columns of a pinned schema, those that are chosen, and the names of all its properties.

    `given`: the types of some columns. NeedsChange(SourceUnreadable) names a property that no column can have.
    """
    try:
        found = registry.by_id(one.schema_id, "JSON")
        return columns_of(found.text, found.by_name, given, chosen)
    except ValueError as error:
        raise unusable(one, error) from error

"""The columns of a stage's result."""

from __future__ import annotations

import pyarrow as pa

from checkpoint_formats.rows.plain_types import plain_field


def stored_schema(given: pa.Schema) -> pa.Schema:
    """Return the columns under which a stage's output is stored: as the steps give them, without dictionaries.

    A file has one dictionary for a column, and the batches of a task may each have one of their own. UUIDs are their sixteen
    bytes, as those of any source, and a table that is made of them later has UUIDs.
    """
    return pa.schema(
        [plain_field(field) if isinstance(field.type, pa.UuidType) else _without_dictionaries(field) for field in given]
    )


def _without_dictionaries(field: pa.Field) -> pa.Field:
    return field.with_type(_decoded(field.type))


def _decoded(given: pa.DataType) -> pa.DataType:
    kind = pa.types
    if kind.is_dictionary(given) or kind.is_run_end_encoded(given):
        return _decoded(given.value_type)
    if kind.is_struct(given):
        return pa.struct([_without_dictionaries(field) for field in given])
    if kind.is_map(given):
        return pa.map_(_without_dictionaries(given.key_field), _without_dictionaries(given.item_field), given.keys_sorted)
    if kind.is_fixed_size_list(given):
        return pa.list_(_without_dictionaries(given.value_field), given.list_size)
    if kind.is_large_list(given):
        return pa.large_list(_without_dictionaries(given.value_field))
    if kind.is_list(given):
        return pa.list_(_without_dictionaries(given.value_field))
    return given

"""The columns of a data file as those of the table, by field id.

pyiceberg's visitor does it. Of lists and maps of structs it makes new arrays, without those that are NULL: they would be empty.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import ArrowAccessor, ArrowProjectionVisitor
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.types import ListType, MapType


def projected(batch: pa.RecordBatch, wanted: Schema, there: Schema, constants: dict[int, Any]) -> pa.RecordBatch:
    """Return the batch, which has the schema `there`, with the wanted columns. `constants`: of columns that it lacks, by id.

    ResolveError for a required column that is not there, ValueError for one of another type.
    """
    visitor = _Projection(
        there, downcast_ns_timestamp_to_us=True, projected_missing_fields=constants, allow_timestamp_tz_mismatch=True
    )
    made: Any = visit_with_partner(wanted, batch.to_struct_array(), visitor, ArrowAccessor(there))
    return pa.RecordBatch.from_struct_array(made)


class _Projection(ArrowProjectionVisitor):
    def list(self, list_type: ListType, list_array: pa.Array | None, value_array: pa.Array | None) -> pa.Array | None:
        return _with_null_of(list_array, super().list(list_type, list_array, value_array))

    def map(
        self, map_type: MapType, map_array: pa.Array | None, key_result: pa.Array | None, value_result: pa.Array | None
    ) -> pa.Array | None:
        return _with_null_of(map_array, super().map(map_type, map_array, key_result, value_result))


def _with_null_of(given: pa.Array | None, made: pa.Array | None) -> pa.Array | None:
    if given is None or made is None or given.null_count == made.null_count:
        return made
    offsets = pc.add(made.offsets, pa.scalar(0, made.offsets.type))  # a part of others must not be beside a mask
    if pa.types.is_map(made.type):
        return pa.MapArray.from_arrays(offsets, made.keys, made.items, type=made.type, mask=given.is_null())
    kind: Any = pa.LargeListArray if pa.types.is_large_list(made.type) else pa.ListArray
    return kind.from_arrays(offsets, made.values, type=made.type, mask=given.is_null())

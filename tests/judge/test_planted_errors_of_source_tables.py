"""Whether the judge of source tables sees: errors that are put into the reader on purpose, each found in a few tables."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import IcebergType, MapType, NestedField, StructType

from checkpoint_formats.iceberg import projection, reader
from checkpoint_protocol.errors import CheckpointError
from tests.contract.test_source_tables import in_folder
from tests.judge import readers_of_tables
from tests.judge.iceberg_histories import History, Red, compare, compare_part, history_in

#: Each error is found in one of so many tables.
TABLES: Final = 20

Struct = Callable[[Any, pa.Array, StructType, StructType], pa.Array]
_struct: Final[Struct] = projection._Projection.struct
_values: Final = projection._Projection._values
_promoted: Final = projection._promoted
_without: Final = reader._without
_projection: Final = reader.IcebergReader._projection


def with_number(field: NestedField, number: int) -> NestedField:
    return NestedField(number, field.name, field.field_type, required=field.required)


def is_table(wanted: StructType) -> bool:
    return any(field.name == "id" for field in wanted.fields)


def by_name(wanted: StructType, there: StructType) -> StructType:
    numbers = {field.name: field.field_id for field in wanted.fields}
    return StructType(*(with_number(field, numbers.get(field.name, -field.field_id)) for field in there.fields))


def columns_by_name(self: Any, structs: pa.Array, wanted: StructType, there: StructType) -> pa.Array:
    return _struct(self, structs, wanted, by_name(wanted, there) if is_table(wanted) else there)


def nested_by_name(self: Any, structs: pa.Array, wanted: StructType, there: StructType) -> pa.Array:
    return _struct(self, structs, wanted, there if is_table(wanted) else by_name(wanted, there))


def nested_by_place(self: Any, structs: pa.Array, wanted: StructType, there: StructType) -> pa.Array:
    numbers = [field.field_id for field in wanted.fields] + [-field.field_id for field in there.fields]
    places = StructType(*map(with_number, there.fields, numbers))
    return _struct(self, structs, wanted, there if is_table(wanted) else places)


def old_values_for_a_name_that_was_added_again(self: Any, structs: pa.Array, wanted: StructType, there: StructType) -> pa.Array:
    known, names = {field.field_id for field in there.fields}, {field.name: field for field in there.fields}
    again = [
        with_number(names[field.name], field.field_id)
        for field in wanted.fields
        if field.field_id not in known and field.name in names and names[field.name].field_type == field.field_type
    ]
    return _struct(self, structs, wanted, StructType(*there.fields, *again))


def two_alike_exchanged(self: Any, structs: pa.Array, wanted: StructType, there: StructType) -> pa.Array:
    numbers = {field.field_id: field.field_id for field in there.fields}
    for one, other in pairwise(there.fields):
        if one.field_type == other.field_type and one.required == other.required:
            numbers |= {one.field_id: other.field_id, other.field_id: one.field_id}
            break
    return _struct(self, structs, wanted, StructType(*(with_number(field, numbers[field.field_id]) for field in there.fields)))


def maps_as_they_are(self: Any, values: pa.Array, wanted: IcebergType, there: IcebergType) -> pa.Array:
    return values if isinstance(wanted, MapType) else _values(self, values, wanted, there)


def a_missing_field_as_zero(self: Any, field: NestedField, rows: int) -> pa.Array:
    kind = schema_to_pyarrow(field.field_type, include_field_ids=False)
    return pa.repeat(pa.scalar(0, kind), rows) if pa.types.is_integer(kind) else pa.nulls(rows, kind)


def no_null_structs(structs: pa.Array, children: list[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.StructArray.from_arrays(children, fields=list(kind))


def all_values_of_a_slice(lists: pa.Array) -> pa.Array:
    return lists.values


def promoted_by_way_of_a_float(values: pa.Array, wanted: IcebergType, there: IcebergType) -> pa.Array:
    if pa.types.is_integer(values.type) and wanted != there:
        values = values.cast(pa.float32(), safe=False).cast(values.type, safe=False)
    return _promoted(values, wanted, there)


def statistics_of_the_names_of_now(self: Any, file: Any, physical: pa.Schema, schema: pa.Schema) -> Any:
    made = _projection(self, file, physical, schema)
    return replace(made, judged={name: name for name in schema.names if name in physical.names})


def no_deletes(self: Any, file: Any) -> None:
    return None


def deletes_by_their_place_in_the_chunk(chunk: Any, deleted: Any) -> Any:
    return _without(chunk, None if deleted is None else np.asarray(deleted) + chunk.start)


PLANTED: Final[dict[Any, tuple[Any, str]]] = {
    columns_by_name: (projection._Projection, "struct"),
    nested_by_name: (projection._Projection, "struct"),
    nested_by_place: (projection._Projection, "struct"),
    old_values_for_a_name_that_was_added_again: (projection._Projection, "struct"),
    two_alike_exchanged: (projection._Projection, "struct"),
    maps_as_they_are: (projection._Projection, "_values"),
    a_missing_field_as_zero: (projection._Projection, "_missing"),
    no_null_structs: (projection, "with_fields"),
    all_values_of_a_slice: (projection, "flat"),
    promoted_by_way_of_a_float: (projection, "_promoted"),
    statistics_of_the_names_of_now: (reader.IcebergReader, "_projection"),
    no_deletes: (reader.IcebergReader, "deleted_rows"),
    deletes_by_their_place_in_the_chunk: (reader, "_without"),
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[History]]:
    """Tables that are read rightly."""
    folder: Path = tmp_path_factory.mktemp("tables")
    catalog = in_folder(folder)
    made = [history_in(catalog, f"db.table_{seed}", folder, seed) for seed in range(TABLES)]
    assert first_red(made) is None
    yield made
    catalog.close()


def first_red(tables: list[History]) -> int | None:
    """Return the number of the first table that is not read as it is."""
    for number, table in enumerate(tables):
        of = random.Random(number)
        try:
            compare("the product", table, readers_of_tables.by_product(table.catalog, of, table.name))
            compare_part(table, of)
        except (Red, CheckpointError):
            return number
    return None


@pytest.mark.parametrize("error", PLANTED, ids=lambda error: error.__name__)
def test_the_judge_finds_an_error_that_was_planted(tables: list[History], error: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[error], error)

    assert first_red(tables) is not None

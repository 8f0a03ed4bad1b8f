"""Structs inside of lists and maps whose fields were renamed, exchanged, and dropped and added again since files were written.

DuckDB tells what the table has: it finds fields by their ids, and shares no code with the way in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, LongType, MapType, NestedField, StringType, StructType

from checkpoint_formats.iceberg.plan import find_files
from checkpoint_formats.readers import reader_for
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol.rows.positions import Range
from tests.contract.test_source_tables import STORAGE, columns_to_read, iceberg_source, in_folder, pinned_in
from tests.end_to_end.test_read_back import load_duckdb_extensions
from tests.support.iceberg_upserts import COPY_ON_WRITE, World
from tests.support.places import IcebergPlace, on_disk

STRUCT = StructType(*(NestedField(11 + number, name, LongType(), required=False) for number, name in enumerate("abcd")))
GIVEN = {"a": 1, "b": 2, "c": 3, "d": 4}
#: After `change`: a and b are exchanged, c was dropped and one of its name added, d was renamed to e.
SINCE = {"b": 1, "a": 2, "e": 4, "c": None}


def list_of(number: int, kind: IcebergType) -> ListType:
    return ListType(number, kind, element_required=False)


def map_of(number: int, kind: IcebergType) -> MapType:
    return MapType(number, StringType(), number + 1, kind, value_required=False)


#: Of each shape its type, the path of the struct in it, and a value around a struct.
SHAPES: dict[str, tuple[IcebergType, tuple[str, ...], Any]] = {
    "struct": (STRUCT, (), lambda row: row),
    "list<struct>": (list_of(20, STRUCT), ("element",), lambda row: [row, None]),
    "map<_, struct>": (map_of(20, STRUCT), ("value",), lambda row: [("k", row)]),
    "list<list<struct>>": (list_of(20, list_of(22, STRUCT)), ("element", "element"), lambda row: [None, [row], []]),
    "map<_, list<struct>>": (map_of(20, list_of(22, STRUCT)), ("value", "element"), lambda row: [("k", [row]), ("l", None)]),
    "list<map<_, struct>>": (list_of(20, map_of(22, STRUCT)), ("element", "value"), lambda row: [[("k", row)], None]),
    "list<list<list<struct>>>": (
        list_of(20, list_of(22, list_of(24, STRUCT))),
        ("element", "element", "element"),
        lambda row: [[[row]]],
    ),
}


def change(table: Table, path: tuple[str, ...]) -> None:
    def place(name: str) -> tuple[str, ...]:
        return ("value", *path, name)

    for before, after in (("a", "t"), ("b", "a"), ("t", "b"), ("d", "e")):
        with table.update_schema() as update:
            update.rename_column(place(before), after)
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column(place("c"))
    with table.update_schema() as update:
        update.add_column(place("c"), LongType())


def by_duckdb(table: Table, folder: Path) -> list[dict[str, Any]]:
    with duckdb.connect(config={"extension_directory": str(folder / "duckdb")}) as connection:
        load_duckdb_extensions(connection)
        metadata = table.metadata_location.removeprefix("file://")
        rows: list[dict[str, Any]] = connection.sql(f"FROM iceberg_scan('{metadata}') ORDER BY id").to_arrow_table().to_pylist()
    return rows


def schema_of(kind: IcebergType) -> Schema:
    return Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "value", kind, required=False))


def rows_of(schema: Schema, values: list[Any]) -> pa.Table:
    columns = schema_to_pyarrow(schema, include_field_ids=False)
    return pa.table([pa.array(range(len(values)), pa.int64()), pa.array(values, columns.field("value").type)], schema=columns)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_source_table_gives_each_value_under_the_name_that_its_field_has_now(shape: str, tmp_path: Path) -> None:
    kind, path, around = SHAPES[shape]
    catalog = in_folder(tmp_path)
    table = catalog.create_table("db.source", schema_of(kind))
    table.append(rows_of(table.schema(), [around(GIVEN), None]))
    change(table, path)
    source = iceberg_source()
    pinned = pinned_in(catalog, source)
    (file,) = find_files(pinned, None, STORAGE, None, "Fail")

    chunks = reader_for(source, STORAGE, (pinned,)).read(
        file, Range(file=0, start=0, end=2), columns_to_read(pinned, source), BatchSizing(60.0)
    )
    found = [row for chunk in chunks for row in chunk.batch.to_pylist()]

    assert found == by_duckdb(catalog.load_table("db.source"), tmp_path)
    assert found[0] == {"id": 0, "value": around(SINCE)}


@pytest.mark.parametrize("shape", SHAPES)
def test_an_upsert_of_one_row_that_writes_a_file_anew_keeps_the_values_of_the_others(shape: str, tmp_path: Path) -> None:
    kind, path, around = SHAPES[shape]
    place = on_disk(tmp_path, "iceberg")
    assert isinstance(place, IcebergPlace)
    catalog = place.opened()
    catalog.create_namespace(place.name.split(".")[0])
    table = catalog.create_table(place.name, schema_of(kind), properties=dict(COPY_ON_WRITE))
    table.append(rows_of(table.schema(), [None, around(GIVEN), None]))
    change(table, path)
    before = by_duckdb(place.table(), tmp_path)

    World(place, tmp_path / "input").upsert(pa.table({"id": pa.array([0], pa.int64())}))

    assert len(place.data_files()) == 2
    assert by_duckdb(place.table(), tmp_path)[1:] == before[1:]
    assert before[1] == {"id": 1, "value": around(SINCE)}


@pytest.mark.parametrize("lacks", ["the input", "a data file"])
def test_an_optional_struct_with_a_required_field_is_null_in_rows_that_lack_it(lacks: str, tmp_path: Path) -> None:
    """Also two such structs deep: Parquet's writer wants a value in a required field below NULL."""
    deep = StructType(NestedField(13, "x", LongType(), required=True))
    kind = StructType(NestedField(12, "deep", deep, required=True), NestedField(14, "y", deep, required=False))
    place = on_disk(tmp_path, "iceberg")
    assert isinstance(place, IcebergPlace)
    catalog = place.opened()
    catalog.create_namespace(place.name.split(".")[0])
    schema = schema_of(kind)
    columns = schema.fields if lacks == "the input" else schema.fields[:1]
    table = catalog.create_table(place.name, Schema(*columns), properties=dict(COPY_ON_WRITE))
    if lacks == "a data file":
        table.append(pa.table({"id": pa.array([0, 1], pa.int64())}))
        with table.update_schema() as update:
            update.add_column("value", kind)

    World(place, tmp_path / "input").upsert(pa.table({"id": pa.array([0], pa.int64())}))

    rows = [{"id": number, "value": None} for number in range(1 if lacks == "the input" else 2)]
    assert by_duckdb(place.table(), tmp_path) == rows

"""Columns staged in a table of Iceberg or Lance, and read by libraries that share no code with the product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import lance
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import assign_fresh_schema_ids

from checkpoint_formats.iceberg.stager import IcebergStager
from checkpoint_formats.lance.stager import Writing
from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_formats.stage_results.stager import StageResultStager
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import IcebergTarget, StageTarget
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.places import Place
from tests.judge.arrow_types import Value
from tests.support.records import KEY

_STORAGE = StorageSettings()
_DECLARED: Final = {
    pa.bool_(): "bool",
    pa.float32(): "float32",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.time64("us"): "time",
}
Column = tuple[pa.Field, pa.Array]
#: The numbers of columns, and the values in each.
Found = tuple[list[int], list[list[Any]]]


def is_of(kind: pa.DataType, leaves: dict[pa.DataType, Value]) -> bool:
    if pa.types.is_map(kind):
        return is_of(kind.key_type, leaves) and is_of(kind.item_type, leaves)
    if pa.types.is_nested(kind):
        return all(is_of(kind.field(number).type, leaves) for number in range(kind.num_fields))
    return kind in leaves


def plain_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values of a type as a source has them: optional, and a UUID as its bytes."""
    return pa.array(values, _plain(kind))


def _plain(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.UuidType):
        return kind.storage_type
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    return pa.list_(_plain(kind.value_type)) if pa.types.is_nested(kind) else kind


def by_iceberg(folder: str, columns: Sequence[Column]) -> Iterator[Found]:
    """Give what readers of Parquet find in a data file: Arrow's, and DuckDB in the columns whose names it can tell apart."""
    schema = pa.schema([field.with_name(f"v{number}") for number, (field, _) in enumerate(columns)])
    table = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema))
    target = IcebergTarget(
        table="c.db.t",
        table_uuid="u",
        data_location=folder,
        table_schema_json=table.model_dump_json(),
        partition_spec_json=UNPARTITIONED_PARTITION_SPEC.model_dump_json(),
        codec="zstd",
    )
    stager = IcebergStager(target, KEY, "1-0", 1 << 20, _STORAGE)
    batch = pa.RecordBatch.from_arrays([column for _, column in columns], schema=schema)
    (made,) = Pipeline([]).apply(batch, Place("/in/a", "rows", 0), stager.arrow_schema)
    (file,) = stager.stage(iter([made]))
    found = pq.read_table(file.path)
    yield list(range(len(columns))), [column.to_pylist() for column in found.columns]
    # To DuckDB, names that differ in case only are one name.
    known = [number for number, (field, _) in enumerate(columns) if not has_names_of_one_case(field.type)]
    if known:
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            rows = connection.read_parquet(file.path).select(*[f"v{number}" for number in known]).to_arrow_table()
        yield known, [column.to_pylist() for column in rows.columns]


def by_stage(folder: str, columns: Sequence[Column]) -> Iterator[Found]:
    """Give what Arrow finds in the result of a stage."""
    schema = pa.schema([pa.field(f"v{number}", field.type) for number, (field, _) in enumerate(columns)])
    batch = pa.RecordBatch.from_arrays([column for _, column in columns], schema=schema)
    target = StageTarget(folder=folder, arrow_schema=encode_schema(schema))
    (file,) = StageResultStager(target, "1-0", 1 << 20, _STORAGE).stage(iter([batch]))
    with pa.ipc.open_file(Path(folder, file.name)) as opened:
        yield list(range(len(columns))), [column.to_pylist() for column in opened.read_all().columns]


def declared(kind: pa.DataType) -> str | None:
    """Return a type as a step declares it; None if it has no name there."""
    if pa.types.is_struct(kind):
        parts = [(field.name, declared(field.type)) for field in kind]
        is_plain = all(name.isalnum() and name.strip() and part for name, part in parts)
        return f"struct<{', '.join(f'{name}: {part}' for name, part in parts)}>" if is_plain else None
    if pa.types.is_map(kind):
        key, item = declared(kind.key_type), declared(kind.item_type)
        return f"map<{key}, {item}>" if key and item else None
    if pa.types.is_list(kind):
        item = declared(kind.value_type)
        return f"list<{item}>" if item else None
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    return _DECLARED.get(kind, str(kind) if pa.types.is_integer(kind) or pa.types.is_timestamp(kind) else None)


def has_names_of_one_path(kind: pa.DataType) -> bool:
    """Whether two fields have one path with dots, which an Iceberg schema cannot have."""
    paths = list(_paths(kind))
    return len(set(paths)) < len(paths)


def _paths(kind: pa.DataType) -> Iterator[str]:
    for number in range(kind.num_fields):
        part = kind.field(number)
        yield part.name
        yield from (f"{part.name}.{path}" for path in _paths(part.type))


def has_names_of_one_case(kind: pa.DataType) -> bool:
    parts = [kind.field(number) for number in range(kind.num_fields)]
    names = {part.name.casefold() for part in parts}
    return len(names) < len(parts) or any(has_names_of_one_case(part.type) for part in parts)


def by_lance(folder: str, columns: Sequence[Column]) -> Iterator[Found]:
    """Give what Lance's own scan finds in the fragments that were staged for a dataset, once they are committed."""
    schema = pa.schema([pa.field(f"v{number}", field.type) for number, (field, _) in enumerate(columns)])
    table = pa.Table.from_arrays([column for _, column in columns], schema=schema)
    path = str(Path(folder, "t.lance"))
    dataset = lance.write_dataset(schema.empty_table(), path, data_storage_version="2.2")
    writing = Writing(dataset, dataset.schema, {})
    writing.put(table.to_batches()[0])
    committed = lance.LanceDataset.commit(path, lance.LanceOperation.Append(writing.finish()), read_version=dataset.version)
    for number in range(len(columns)):
        try:
            found = committed.to_table([f"v{number}"])
        except Exception:
            if not _is_lost_by_lance(folder, table.select([number])):
                raise
        else:
            yield [number], [found.column(0).to_pylist()]


def _is_lost_by_lance(folder: str, column: pa.Table) -> bool:
    """Whether Lance, by itself, can not read a column again that it wrote: some lists of structs with NULL at several depths."""
    fresh = pa.table({"v": pa.array(column.column(0).to_pylist(), column.schema.field(0).type)})
    try:
        lance.write_dataset(fresh, str(Path(folder, "plain.lance")), mode="overwrite", data_storage_version="2.2").to_table()
    except Exception:
        return True
    return False

"""NULL at every depth of nesting is NULL in the table, whatever reads it, whatever step passes it on, and whatever stages it."""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids, schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema, assign_fresh_schema_ids

from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.iceberg.merge import as_source
from checkpoint_formats.iceberg.reader import IcebergReader
from checkpoint_formats.iceberg.stager import IcebergStager
from checkpoint_formats.lance.reader import LanceReader, find_fragments
from checkpoint_formats.rows.plain_types import plain_schema
from checkpoint_protocol.manifest.sources.source import LanceSource
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import IcebergTarget, PinnedIceberg
from checkpoint_protocol.rows.positions import Range
from checkpoint_work.steps.engine import Pipeline
from checkpoint_work.steps.places import Place
from tests.support.effort import examples
from tests.support.reading import chunks_of, open_reader, read_whole
from tests.support.records import KEY

LARGE = (1 << 53) + 1
_STORAGE = StorageSettings()


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        inner.map(pa.list_),
        inner.map(lambda kind: pa.struct([("x", kind), ("y", pa.int64())])),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
    )


KINDS = _nested(st.recursive(st.sampled_from([pa.int64(), pa.string()]), _nested, max_leaves=2))


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        made: st.SearchStrategy[Any] = st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    elif pa.types.is_map(kind):
        made = st.dictionaries(st.sampled_from("ab"), values_of(kind.item_type), max_size=2).map(
            lambda found: list(found.items())
        )
    elif pa.types.is_list(kind):
        made = st.lists(values_of(kind.value_type), max_size=2)
    else:
        made = st.just(LARGE) if pa.types.is_integer(kind) else st.sampled_from(["", "a"])
    return st.none() | made


columns = KINDS.flatmap(lambda kind: st.lists(values_of(kind), min_size=1, max_size=4).map(lambda found: pa.array(found, kind)))


def has_a_map(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(has_a_map(kind.field(number).type) for number in range(kind.num_fields))


# --- readers and stagers --------------------------------------------------------------------------------------------------


def table_of(schema: pa.Schema) -> Schema:
    return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema))


def stage_iceberg(folder: str, batch: pa.RecordBatch, made_by: Callable[[pa.RecordBatch, pa.Schema], pa.RecordBatch]) -> pa.Array:
    """Stage the batch, which `made_by` fits to the table, and return what a reader of the table gives."""
    table = table_of(batch.schema)
    target = IcebergTarget(
        table="c.db.t",
        table_uuid="u",
        data_location=folder,
        table_schema_json=table.model_dump_json(),
        partition_spec_json=UNPARTITIONED_PARTITION_SPEC.model_dump_json(),
        codec="zstd",
    )
    stager = IcebergStager(target, KEY, "1-0", 1 << 20, _STORAGE)
    (file,) = stager.stage(iter([made_by(batch, stager.arrow_schema)]))
    pinned = PinnedIceberg(
        table="c.db.t",
        table_uuid="u",
        location=folder,
        metadata_location=f"{folder}/m.json",
        snapshot_id=1,
        format_version=2,
        table_schema_json=table.model_dump_json(),
        partition_specs_json=(UNPARTITIONED_PARTITION_SPEC.model_dump_json(),),
        name_mapping_json=None,
    )
    reader = IcebergReader(pinned, SourceFiles(_STORAGE), None)
    schema = plain_schema(schema_to_pyarrow(table, include_field_ids=False))
    return joined(chunks_of(reader, as_source(file), Range(file=0, start=0, end=file.rows), schema))


def through_parquet(folder: str, batch: pa.RecordBatch) -> pa.Array:
    pq.write_table(pa.Table.from_batches([batch]), f"{folder}/a.parquet")
    reader = open_reader("parquet")
    (file,), schema = reader.describe([f"{folder}/a.parquet"])
    return joined(chunks_of(reader, file, Range(file=0, start=0, end=file.end), schema))


def through_lance(folder: str, batch: pa.RecordBatch) -> pa.Array:
    lance.write_dataset(pa.Table.from_batches([batch]), f"{folder}/t.lance", data_storage_version="2.2")
    described, pinned = find_fragments(LanceSource(uri=f"{folder}/t.lance"), None, _STORAGE, (), "Fail")
    (file,) = described.files
    reader = LanceReader(pinned, _STORAGE)
    return joined(chunks_of(reader, file, Range(file=0, start=0, end=file.end), described.schema))


def through_json(folder: str, rows: str) -> list[Any]:
    path = Path(folder, "a.json")
    path.write_text(rows, encoding="utf-8")
    reader = open_reader("json")
    files, schema = reader.describe([str(path)])
    return [row["v"] for row in read_whole(reader, files, schema)]


def joined(chunks: list[Any]) -> pa.Array:
    return pa.concat_arrays([chunk.batch.column(chunk.batch.schema.get_field_index("v")) for chunk in chunks])


def as_it_is(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    (made,) = Pipeline([]).apply(batch, Place("/in/a", "rows", 0), schema)
    return made


@settings(max_examples=examples(150), deadline=None)
@given(columns)
def test_every_reader_of_tables_and_files_gives_null_as_it_is(column: pa.Array) -> None:
    batch = pa.RecordBatch.from_arrays([column], ["v"])
    with tempfile.TemporaryDirectory() as folder:
        assert stage_iceberg(folder, batch, as_it_is).to_pylist() == column.to_pylist()
        assert through_parquet(folder, batch).to_pylist() == column.to_pylist()
        assert through_lance(folder, batch).to_pylist() == column.to_pylist()


def test_lines_of_json_give_null_as_it_is() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = through_json(folder, '{"v": [{"x": null}, null]}\n{"v": null}\n{"v": []}\n{"v": [{"x": [1, null]}]}\n')

    assert found == [[{"x": None}, None], None, [], [{"x": [1, None]}]]


# --- steps ----------------------------------------------------------------------------------------------------------------

_numbers = itertools.count()


@pytest.fixture(scope="module")
def passed_on(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return a function that changes nothing, as a step names it."""
    folder, name = tmp_path_factory.mktemp("code"), f"passing_code_{next(_numbers)}"
    (folder / f"{name}.py").write_text("def work(given): return given\n", encoding="utf-8")
    sys.path.insert(0, str(folder))
    yield f"{name}:work"
    sys.path.remove(str(folder))


@pytest.mark.parametrize("kinds", [["row"], ["arrow"], ["pandas"], ["row", "pandas", "row", "arrow"]], ids="-".join)
@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(column=columns)
def test_steps_that_change_nothing_give_null_as_it_is(passed_on: str, kinds: list[Any], column: pa.Array) -> None:
    if len(kinds) > 1 and has_a_map(column.type):
        kinds = kinds[-1:]  # of maps between a row step and a batch step nobody knows the type
    steps = [Step(call=passed_on, input=kind) for kind in kinds]

    def made_by(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        (made,) = Pipeline(steps).apply(batch, Place("/in/a", "rows", 0), schema)
        return made

    with tempfile.TemporaryDirectory() as folder:
        found = stage_iceberg(folder, pa.RecordBatch.from_arrays([column], ["v"]), made_by)
    assert found.to_pylist() == column.to_pylist()

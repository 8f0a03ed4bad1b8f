"""Which columns of a Parquet file get a dictionary."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType

from checkpoint_formats.iceberg.stager import IcebergStager
from checkpoint_formats.rows.parquet_rows import not_worth_a_dictionary
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.places.settings import Settings
from tests.support.records import ICEBERG

ROWS = 5_000
DAY = datetime.date(2026, 1, 1)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int32(), int),
        (pa.int64(), int),
        (pa.float64(), float),
        (pa.string(), str),
        (pa.large_string(), str),
        (pa.binary(), lambda number: b"%d" % number),
        (pa.binary(16), lambda number: number.to_bytes(16)),
        (pa.uuid(), lambda number: uuid.UUID(int=number).bytes),
        (pa.decimal128(38, 2), Decimal),
        (pa.date32(), lambda number: DAY + datetime.timedelta(days=number)),
        (pa.timestamp("us", "UTC"), int),
        (pa.time64("us"), int),
    ],
    ids=lambda of: str(of) if isinstance(of, pa.DataType) else of.__name__.strip("<>"),
)
def test_distinct_values_get_none_and_repeated_ones_do(kind: pa.DataType, value: Any) -> None:
    distinct = pa.array([value(number) for number in range(ROWS)], kind)
    repeated = pa.array([value(number % 20) for number in range(ROWS)], kind)

    assert not_worth_a_dictionary(pa.table({"distinct": distinct, "repeated": repeated})) == {"distinct"}


def test_few_distinct_long_texts_get_one_though_half_of_the_rows_differ() -> None:
    texts = pa.array([f"{number // 2:0100}" for number in range(ROWS)])
    numbers = pa.array([number // 2 for number in range(ROWS)], pa.int16())

    assert not_worth_a_dictionary(pa.table({"texts": texts, "numbers": numbers})) == {"numbers"}


def test_columns_without_values_and_nested_columns_are_left_to_the_writer() -> None:
    columns = {"none": pa.nulls(ROWS, pa.int64()), "list": pa.array([[number] for number in range(ROWS)])}

    assert not_worth_a_dictionary(pa.table(columns)) == set()
    assert not_worth_a_dictionary(pa.table(columns).slice(0, 0)) == set()


def test_a_staged_file_has_dictionaries_where_they_are_worth_it(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "kind", StringType()),
        NestedField(3, "list", ListType(element_id=4, element=IntegerType(), element_required=False)),
    )
    target = ICEBERG.model_copy(
        update={
            "data_location": f"file://{tmp_path}",
            "table_schema_json": schema.model_dump_json(),
            "partition_spec_json": UNPARTITIONED_PARTITION_SPEC.model_dump_json(),
        }
    )
    stager = IcebergStager(target, EpochKey("u" * 16, 1), "1-0", 1 << 20, Settings())
    columns = {"id": list(range(ROWS)), "kind": [str(n % 3) for n in range(ROWS)], "list": [[n % 5] for n in range(ROWS)]}
    batch = pa.RecordBatch.from_pydict(columns, schema=stager.arrow_schema)

    (file,) = stager.stage(iter([batch]))

    group = pq.read_metadata(file.path.removeprefix("file://")).row_group(0)
    paths = [group.column(place).path_in_schema for place in range(group.num_columns)]
    assert [group.column(place).has_dictionary_page for place in range(group.num_columns)] == [False, True, True], paths

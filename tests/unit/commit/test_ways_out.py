"""Iceberg tables that cannot be written, and columns that are no keys; changed as the message says, they can, and are."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import HourTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, StructType, UnknownType

from checkpoint_commit.iceberg.support import why_no_key, why_unsupported
from tests.support.places import IcebergPlace, on_disk
from tests.support.writes import SCHEMA

_ID: Final = NestedField(1, "id", LongType(), required=False)
_SPEC: Final = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=HourTransform(), name="hour"), spec_id=0)
_ORDER: Final = SortOrder(SortField(source_id=2, transform=HourTransform()), order_id=1)
_UNKNOWN: Final = Schema(_ID, NestedField(2, "text", UnknownType(), required=False), schema_id=0)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"schemas": [_UNKNOWN], "current_schema_id": 0}, "which cannot be written: drop the column"),
        ({"partition_specs": [_SPEC], "default_spec_id": 0}, "of which no values can be made: {}; replace that partition field"),
        (
            {"sort_orders": [_ORDER], "default_sort_order_id": 1},
            "in which rows cannot be put: {}; replace it (WRITE UNORDERED in Spark)",
        ),
    ],
)
def test_a_table_that_is_changed_as_the_message_says_can_be_written(tmp_path: Path, wrong: dict[str, Any], says: str) -> None:
    place = on_disk(tmp_path, "iceberg")
    assert isinstance(place, IcebergPlace)
    place.create(SCHEMA)
    right = place.table().metadata

    problem = why_unsupported(right.model_copy(update=wrong))

    assert problem is not None
    assert all(part in problem for part in says.split("{}")), problem
    assert why_unsupported(right) is None, "without it"


def test_another_column_that_is_named_as_the_message_says_is_a_key() -> None:
    inner = StructType(NestedField(4, "inner", StringType()))
    schema = Schema(_ID, NestedField(2, "rate", DoubleType()), NestedField(3, "outer", inner))

    for name, says in (
        ("ID", "there is no column 'ID' (there are id, rate, outer); correct it"),
        ("outer.inner", "is within another one; name columns of the table"),
        ("rate", "UUIDs and binaries only; name another one"),
    ):
        assert says in (why_no_key(name, schema) or "")
    assert why_no_key("id", schema) is None

"""Partitions of a new table: what the manifest says of them and the output does not have is a wrong manifest."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from checkpoint_commit.iceberg.target import new_partition_spec, new_table
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.manifest.spec import validate_model

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ({"column": "dya"}, "has no column 'dya' (it has id, text)"),
        ({"column": "text", "transform": "day"}, "day does not apply to string of 'text'"),
    ],
)
def test_a_partition_that_cannot_be_made_is_a_wrong_manifest(field: dict[str, str], words: str) -> None:
    sink = validate_model(Sink, {"iceberg": {"catalog": "c", "table": "db.t"}, "create": True, "partitionBy": [field]})

    with pytest.raises(NeedsChange) as refused:
        new_partition_spec(SCHEMA, sink)

    assert refused.value.reason == reasons.MANIFEST_INVALID
    assert refused.value.message.startswith("spec.sink.partitionBy.0: ")
    assert words in refused.value.message


def test_a_column_that_is_renamed_as_the_message_says_leaves_the_partition_its_name() -> None:
    by_month = [{"column": "day", "transform": "month"}]
    sink = validate_model(Sink, {"iceberg": {"catalog": "c", "table": "db.t"}, "create": True, "partitionBy": by_month})

    with pytest.raises(
        NeedsChange, match="name 'day_month', which is that of a column of the output; rename the column in a step"
    ):
        new_table(pa.schema([("day", pa.date32()), ("day_month", pa.int32())]), sink)

    _, partitions = new_table(pa.schema([("day", pa.date32()), ("month", pa.int32())]), sink)
    assert [field.name for field in partitions.fields] == ["day_month"]

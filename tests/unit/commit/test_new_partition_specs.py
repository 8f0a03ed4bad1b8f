"""Partitions of a new table: what the manifest says of them and the output does not have is a wrong manifest."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from checkpoint_operator.commit.iceberg_target import new_partition_spec
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest import validate_model
from checkpoint_protocol.sink import Sink

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

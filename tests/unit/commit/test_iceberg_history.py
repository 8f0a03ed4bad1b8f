"""What a table's properties say of the epochs of a write once an epoch is committed."""

from __future__ import annotations

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from checkpoint_commit.iceberg.history import commit_properties, committed_snapshot
from checkpoint_protocol.identity import EpochKey

UID = "0123456789abcdef"


@pytest.mark.parametrize(("committed", "follows", "known"), [(1, 2, 2), (3, 2, 3)], ids=["in order", "an earlier one late"])
def test_the_last_epoch_that_was_committed_stays_known_and_with_it_those_before(committed: int, follows: int, known: int) -> None:
    properties = {EpochKey(UID, committed).property_name: str(committed)}
    metadata = new_table_metadata(Schema(), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///t", properties)

    properties |= commit_properties(metadata, EpochKey(UID, follows))

    after = metadata.model_copy(update={"properties": properties})
    assert [epoch for epoch in range(1, 5) if committed_snapshot(after, (), EpochKey(UID, epoch))] == list(range(1, known + 1))

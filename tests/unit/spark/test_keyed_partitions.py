"""How many tasks an attempt over a source by key may have."""

from __future__ import annotations

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.records import MAX_TASKS
from checkpoint_spark.dataframes.attempt import refuse_too_many


def test_a_plan_of_spark_with_more_partitions_than_an_attempt_may_have_is_refused_with_the_way_out() -> None:
    refuse_too_many(MAX_TASKS)
    with pytest.raises(NeedsChange, match="numPartitions") as refused:
        refuse_too_many(MAX_TASKS + 1)

    assert refused.value.reason == reasons.RECORD_TOO_LARGE

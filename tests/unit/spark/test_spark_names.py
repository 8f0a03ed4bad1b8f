"""Columns that Spark gives to the steps: each name once."""

from __future__ import annotations

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_spark.dataframes.reading import refuse_repeated


def test_two_columns_of_one_name_are_refused_as_a_step_would_see_one() -> None:
    with pytest.raises(NeedsChange, match=r"two columns 'order\.id'; name them apart") as caught:
        refuse_repeated(["order.id", "text", "order.id"])
    assert caught.value.reason == reasons.OUTPUT_SCHEMA_WRONG

    refuse_repeated(["order.id", "text", "other"])


def test_names_that_differ_in_case_are_two() -> None:
    refuse_repeated(["id", "ID", "`id`"])

"""Columns that others add to the table while a write goes on: rows may leave them out."""

from __future__ import annotations

import json

from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.records import IcebergTarget, LaunchRecord, TargetRecord
from checkpoint_work.driver.output import later_columns
from tests.support.records import ICEBERG, KEY, launch
from tests.support.stores import MemoryStore

ROW_STEP = Step(call="m:f", input="row")


def table(*names: str) -> IcebergTarget:
    return ICEBERG.model_copy(update={"table_schema_json": json.dumps({"fields": [{"name": name} for name in names]})})


def attempt(number: int, target: IcebergTarget | None, *steps: Step) -> LaunchRecord:
    return launch(number, target=target).model_copy(update={"steps": steps or (ROW_STEP,)})


def test_columns_that_the_table_had_when_the_write_began_are_not_later() -> None:
    ledger = Ledger(MemoryStore(), KEY)
    ledger.attempts.put_launch(attempt(1, table("a")))
    ledger.attempts.put_launch(second := attempt(2, table("a", "b")))

    assert later_columns(ledger, second, table("a", "b")) == ("b",)
    assert later_columns(ledger, attempt(1, table("a")), table("a")) == ()


def test_a_table_that_was_made_for_an_attempt_is_what_the_write_began_with() -> None:
    """The first attempt failed before it had a table."""
    ledger = Ledger(MemoryStore(), KEY)
    for number in (1, 2):
        ledger.attempts.put_launch(attempt(number, None))
    ledger.attempts.put_target(2, TargetRecord(token=new_token(), target=table("a", "b")))
    ledger.attempts.put_launch(third := attempt(3, table("a", "b", "c")))

    assert later_columns(ledger, third, table("a", "b", "c")) == ("c",)


def test_an_epoch_goes_by_the_first_one_of_its_write() -> None:
    store = MemoryStore()
    Ledger(store, EpochKey(KEY.uid, 1)).attempts.put_launch(attempt(1, table("a")))
    second = Ledger(store, EpochKey(KEY.uid, 2))
    second.attempts.put_launch(launched := attempt(1, table("a", "b")))

    assert later_columns(second, launched, table("a", "b")) == ("b",)


def test_nothing_is_later_where_no_attempt_has_had_a_table_or_no_rows_are_given() -> None:
    ledger = Ledger(MemoryStore(), KEY)
    ledger.attempts.put_launch(attempt(1, None))
    ledger.attempts.put_launch(second := attempt(2, None))

    assert later_columns(ledger, second, table("a")) == ()
    assert later_columns(ledger, attempt(2, table("a"), Step(call="m:f")), table("a")) == ()

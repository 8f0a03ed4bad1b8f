"""What the query of a stream does with a micro-batch, by its number and the records: without Spark, whose calls are made here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from checkpoint_protocol.errors import NeedsChange, Superseded
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.sources.stream_source import ProgramStream
from checkpoint_protocol.records import DrivenBy
from checkpoint_spark.streams.checkpoint import Checkpoint, Known
from checkpoint_spark.streams.query import StagesOfCommit, _Query
from checkpoint_work.process.reporting import AtWork
from tests.support.records import KEY, end_epoch, launch, ledger_over, plan
from tests.support.stores import MemoryStore
from tests.unit.spark.test_stream_checkpoint import spark_runs


@dataclass
class Frame:
    """A frame, its writers and its query, all in one: calls with one micro-batch, once Spark has logged what that reads."""

    number: int
    log: Callable[[], None] = lambda: None
    computed: int = 0

    def _itself(self, *_args: object, **_options: object) -> Frame:
        return self

    outputMode = format = mode = start = _itself  # noqa: N815 Spark's names
    write = writeStream = property(_itself)  # noqa: N815

    def foreachBatch(self, function: Callable[[Frame, int], None]) -> Frame:
        self.function = function
        return self

    def save(self) -> None:
        self.computed += 1

    def awaitTermination(self) -> None:
        self.log()
        self.function(self, self.number)


def query_at(folder: Path) -> tuple[_Query, Checkpoint, Ledger]:
    """Return the query of the second attempt of epoch 3; with which offsets the first had planned and was closed is recorded.

    What that has planned after it was closed counts for nothing, nor does that of a third.
    """
    store = MemoryStore(uri=str(folder))
    checkpoint = Checkpoint.below(store.uri, KEY.uid)
    checkpoint.prepare(Known(0, None))
    spark_runs(checkpoint, 0, 1, 2)
    (checkpoint.folder / "commits" / "2").unlink()
    for number in (1, 2):
        end_epoch(ledger_over(store, key=replace(KEY, epoch=number)), offsets=checkpoint.digest_of(number - 1))
    ledger = ledger_over(store, key=replace(KEY, epoch=3))
    for attempt, offsets in ((1, checkpoint.digest_of(2)), (2, "ab" * 32)):
        ledger.attempts.put_launch(launch(attempt))
        if attempt == 2:
            ledger.chains.close(attempt)
        ledger.plans.put_plan(plan(attempt=attempt).model_copy(update={"offsets": offsets}))
        ledger.chains.close(attempt)
    at_work = AtWork((ledger, 3))
    session: Any = None
    return _Query(session, ProgramStream(), 1, lambda _: None, at_work, lambda _: None), checkpoint, ledger


def test_a_micro_batch_that_is_committed_is_computed_once_more_and_nothing_of_it_is_staged(tmp_path: Path) -> None:
    query, _, _ = query_at(tmp_path)
    frame: Any = Frame(1)

    query.run(frame, available_now=False, processing_time=None)

    assert frame.computed == 1


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "other offsets for micro-batch 0"),
        (1, "other offsets for micro-batch 1"),
        (2, "other offsets for micro-batch 2"),
        (3, "is at micro-batch 3, and 2 is the next one"),
    ],
)
def test_a_micro_batch_with_other_offsets_than_those_recorded_or_ahead_of_the_records_is_lost(
    number: int, said: str, tmp_path: Path
) -> None:
    query, checkpoint, _ = query_at(tmp_path)
    frame: Any = Frame(number, lambda: spark_runs(checkpoint, number, source=" by which time there was more"))

    with pytest.raises(NeedsChange, match=said):
        query.run(frame, available_now=False, processing_time=None)

    assert not frame.computed


def test_a_driver_does_not_begin_where_the_next_micro_batch_was_planned_with_other_offsets(tmp_path: Path) -> None:
    query, checkpoint, _ = query_at(tmp_path)
    spark_runs(checkpoint, 2, source=" by which time there was more")
    (checkpoint.folder / "commits" / "2").unlink()
    frame: Any = Frame(2)

    with pytest.raises(NeedsChange, match="other offsets for micro-batch 2"):
        query.run(frame, available_now=False, processing_time=None)


@pytest.mark.parametrize(
    ("other", "is_own"),
    [
        (DrivenBy(epoch=3, attempt=3), True),
        (DrivenBy(epoch=3, attempt=2), False),
        (DrivenBy(epoch=2, attempt=3), False),
        (None, False),
    ],
)
def test_an_epoch_and_a_stage_that_are_recorded_for_another_driver_are_left_to_it(
    other: DrivenBy | None, is_own: bool, tmp_path: Path
) -> None:
    query, _, ledger = query_at(tmp_path)
    following, stage = (replace(ledger, key=key) for key in (replace(KEY, epoch=4), ledger.key.of_stage("merge-7")))
    for recorded in (following, stage):
        recorded.attempts.put_launch(launch().model_copy(update={"driven_by": other}))
    done: list[Ledger] = []

    StagesOfCommit(query.at_work, query._life, done.append).do_recorded()

    assert [each.key for each in done] == [stage.key] * is_own
    if is_own:
        query._go_on(ledger)
    else:
        with pytest.raises(Superseded, match="has another driver"):
            query._go_on(ledger)
    assert query.at_work.now[0].key == (following if is_own else ledger).key

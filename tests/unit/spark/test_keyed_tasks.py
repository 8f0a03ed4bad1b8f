"""A task of rows known by keys: where it may cut, what a second try passes over, and what it refuses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from checkpoint_formats import keys_objects
from checkpoint_formats.none import NoStager
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import KeysCovered, NoTarget, PlanRecord, Seal
from checkpoint_protocol.rows.keys import add_key_sets, key_set
from checkpoint_spark.dataframes import keys
from checkpoint_spark.dataframes.tasks import PartitionOrder, run_keyed_task
from checkpoint_work.tasks.ending import Ending, Left
from tests.support.records import KEY, launch, ledger_over
from tests.support.steps_here import steps_here
from tests.support.stores import MemoryStore

TASK = 3


class Noting(NoStager):
    """Keeps the numbers of the rows that come: all, and those of each segment's files."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.segments: list[list[int]] = []

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[()]:
        self.segments.append([])
        for batch in batches:
            numbers = batch.column("id").to_pylist()
            self.seen += numbers
            self.segments[-1] += numbers
        return ()


def batches_of(*numbers: int | None, size: int = 5) -> Iterator[pa.RecordBatch]:
    """Rows as Spark gives them, with hashes that differ where the numbers do."""
    for start in range(0, len(numbers), size):
        part = numbers[start : start + size]
        hashes = [((number or 0) * 0x9E3779B97F4A7C15) % (1 << 64) for number in part]
        signed = np.array(hashes, np.uint64).view(np.int64)
        yield pa.record_batch(
            {
                "id": pa.array(part, pa.int64()),
                keys.FIRST: pa.array(signed),
                keys.SECOND: pa.array(~signed),
            }
        )


def order_of(*, cuts: bool = True, expands: bool = False) -> PartitionOrder:
    return PartitionOrder(
        uri="memory", uid=KEY.uid, epoch=1, attempt=1, target=NoTarget(), key_names=("id",), cuts=cuts, expands=expands
    )


@pytest.fixture
def ledger() -> Ledger:
    ledger = ledger_over(MemoryStore())
    ledger.plans.put_plan(
        PlanRecord(token=new_token(), attempt=1, tasks=(), done_files=0, done_rows=0, partitions=4, skipped=add_key_sets(()))
    )
    return ledger


def run(
    ledger: Ledger,
    batches: Iterator[pa.RecordBatch],
    order: PartitionOrder | None = None,
    stager: Noting | None = None,
    every_s: float = 1e9,
    number: int = TASK,
    ending: Ending = Ending(),  # noqa: B008 it never changes
) -> None:
    """Run the task with a clock that goes on by `every_s` at each look: more than an interval of 60 s cuts after each piece."""
    ticks = itertools.count()
    stager = stager or Noting()
    run_keyed_task(
        order or order_of(),
        number,
        batches,
        launch(target=NoTarget()),
        steps_here(stager),
        stager,
        ledger,
        lambda: next(ticks) * every_s,
        ending=ending,
    )


def chain_of(ledger: Ledger) -> tuple[Seal, ...]:
    return ledger_over_same(ledger).chains.read_chain(1, TASK)


def ledger_over_same(ledger: Ledger) -> Ledger:
    assert isinstance(ledger.store, MemoryStore)
    return ledger_over(ledger.store)


def keys_in(ledger: Ledger, seal: Seal) -> list[int]:
    assert isinstance(seal.covered, KeysCovered)
    found: list[int] = []
    for item in seal.covered.objects:
        data = ledger.store.get(item.path, item.size_bytes)
        assert data is not None
        assert len(data) == item.size_bytes
        table = keys_objects.read_object(data)
        assert table.num_rows == item.rows
        found += table["k0"].to_pylist()
    assert seal.rows_read == seal.covered.keys.rows == len(found)
    return found


def test_segments_are_cut_where_the_order_is_trusted_and_name_their_keys(ledger: Ledger) -> None:
    run(ledger, batches_of(*range(12)))

    chain = chain_of(ledger)
    assert len(chain) > 2
    assert [number for seal in chain for number in keys_in(ledger, seal)] == list(range(12))
    assert [seal.last for seal in chain] == [False] * (len(chain) - 1) + [True]


def test_where_the_order_is_not_trusted_only_the_end_of_the_task_seals(ledger: Ledger) -> None:
    run(ledger, batches_of(*range(12)), order_of(cuts=False))

    assert [keys_in(ledger, seal) for seal in chain_of(ledger)] == [list(range(12))]


def test_a_task_whose_executor_ends_seals_and_leaves_where_the_order_is_trusted(ledger: Ledger, tmp_path: Path) -> None:
    ending = Ending(tmp_path)
    ending.announce()

    with pytest.raises(Left):
        run(ledger, batches_of(*range(12)), ending=ending, every_s=0)
    run(ledger_over_same(ledger), batches_of(*range(12)), every_s=0)

    chain = chain_of(ledger)
    assert [seal.left_by_try for seal in chain] == [0, None]
    assert [number for seal in chain for number in keys_in(ledger, seal)] == list(range(12))


def test_a_task_that_is_sealed_at_its_end_only_goes_on_whatever_its_executor_does(ledger: Ledger, tmp_path: Path) -> None:
    ending = Ending(tmp_path)
    ending.announce()

    run(ledger, batches_of(*range(12)), order_of(cuts=False), ending=ending)

    assert [(seal.last, seal.left_by_try) for seal in chain_of(ledger)] == [(True, None)]


def test_an_empty_partition_is_sealed_as_nothing(ledger: Ledger) -> None:
    run(ledger, batches_of())

    (seal,) = chain_of(ledger)
    assert seal.last
    assert seal.covered == KeysCovered(objects=(), keys=key_set(0, 0, 0))


def test_a_segment_never_ends_inside_a_key(ledger: Ledger) -> None:
    stager = Noting()
    run(ledger, batches_of(1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 4, 5), order_of(expands=True), stager)

    chain = chain_of(ledger)
    assert len(chain) > 1
    assert [number for seal in chain for number in keys_in(ledger, seal)] == [1, 2, 3, 4, 5]
    # A key is named once, where it begins: only the files tell whether all of its rows are in the same segment.
    rows = {1: 2, 2: 6, 3: 2, 4: 1, 5: 1}
    expected = [[number for number in keys_in(ledger, seal) for _ in range(rows[number])] for seal in chain]
    assert stager.segments == expected


def test_a_second_try_passes_over_what_the_first_has_sealed(ledger: Ledger) -> None:
    def dying() -> Iterator[pa.RecordBatch]:
        yield from itertools.islice(batches_of(*range(20)), 3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(ledger, dying())
    sealed = [number for seal in chain_of(ledger) for number in keys_in(ledger, seal)]
    assert sealed == list(range(len(sealed)))
    assert 0 < len(sealed) < 15
    stager = Noting()

    # Other batches than before: what counts is the order of the rows.
    run(ledger_over_same(ledger), batches_of(*range(20), size=7), stager=stager)

    assert stager.seen == list(range(len(sealed), 20))
    assert [number for seal in chain_of(ledger) for number in keys_in(ledger, seal)] == list(range(20))


def test_a_second_try_passes_over_all_rows_of_the_keys_that_are_sealed(ledger: Ledger) -> None:
    rows = (1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4)

    def dying() -> Iterator[pa.RecordBatch]:
        yield from itertools.islice(batches_of(*rows), 2)
        yield from batches_of(4)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(ledger, dying(), order_of(expands=True))
    assert [number for seal in chain_of(ledger) for number in keys_in(ledger, seal)] == [1, 2, 3]
    stager = Noting()

    run(ledger_over_same(ledger), batches_of(*rows, size=3), order_of(expands=True), stager)

    assert stager.seen == [4, 4]


def test_a_second_try_that_meets_another_order_gives_up_and_seals_nothing(ledger: Ledger) -> None:
    def dying() -> Iterator[pa.RecordBatch]:
        yield from itertools.islice(batches_of(*range(20)), 3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(ledger, dying())
    before = chain_of(ledger)

    with pytest.raises(Retryable) as caught:
        run(ledger_over_same(ledger), batches_of(*reversed(range(20))))

    assert caught.value.reason == reasons.ORDER_CHANGED
    assert chain_of(ledger) == before

    # The way out: a fixed order.
    run(ledger_over_same(ledger), batches_of(*range(20)))
    assert [number for seal in chain_of(ledger) for number in keys_in(ledger, seal)] == list(range(20))


def test_a_key_that_was_passed_over_and_comes_again_is_refused(ledger: Ledger) -> None:
    def dying() -> Iterator[pa.RecordBatch]:
        yield from itertools.islice(batches_of(*range(10)), 2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(ledger, dying())
    before = chain_of(ledger)

    # Two rows have the key 2, and nobody knows which of them was sealed.
    with pytest.raises(NeedsChange, match="id=2") as caught:
        run(ledger_over_same(ledger), batches_of(*range(10), 2))

    assert caught.value.reason == reasons.KEYS_NOT_UNIQUE
    assert not chain_of(ledger)[-1].last
    assert chain_of(ledger)[: len(before)] == before


def test_the_rows_before_a_key_that_was_passed_over_and_comes_again_are_sealed(ledger: Ledger) -> None:
    """The batch that has it is read ahead, while they are worked on: it is refused when its turn comes."""

    def dying() -> Iterator[pa.RecordBatch]:
        yield from itertools.islice(batches_of(*range(10)), 2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(ledger, dying(), every_s=61.0)
    before = chain_of(ledger)

    with pytest.raises(NeedsChange, match="id=2"):
        run(ledger_over_same(ledger), batches_of(*range(10), 2), every_s=61.0)

    sealed = [number for seal in chain_of(ledger)[len(before) :] for number in keys_in(ledger, seal)]
    assert sealed == list(range(sum(seal.rows_read for seal in before), 10))


def test_a_task_that_is_sealed_reads_nothing(ledger: Ledger) -> None:
    run(ledger, batches_of(1, 2))

    def unread() -> Iterator[pa.RecordBatch]:
        raise AssertionError("was read")
        yield

    run(ledger_over_same(ledger), unread())


def test_a_try_that_loses_a_link_raises_unless_the_winner_has_done_all(ledger: Ledger) -> None:
    def overtaken(until: int, rows: int) -> Iterator[pa.RecordBatch]:
        """Another try seals this task, wholly or not, while this one reads."""
        for number, batch in enumerate(batches_of(*range(rows))):
            if number == until:
                run(ledger_over_same(ledger), batches_of(*range(rows)), every_s=0)
            yield batch

    # Its segment ends with the last row, as nothing is old: the other one has sealed all of it, so there is nothing left to do.
    run(ledger, overtaken(1, 8), every_s=0)
    (seal,) = chain_of(ledger)
    assert keys_in(ledger, seal) == list(range(8))


def test_a_try_that_loses_a_link_of_an_unfinished_chain_is_tried_again(ledger: Ledger) -> None:
    def dying(rows: Sequence[int]) -> Iterator[pa.RecordBatch]:
        yield from batches_of(*rows)
        raise KeyboardInterrupt

    def overtaken() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches_of(*range(15))):
            if number == 1:
                with pytest.raises(KeyboardInterrupt):
                    run(ledger_over_same(ledger), dying(range(10)))
            yield batch

    with pytest.raises(Retryable, match="begins again"):
        run(ledger, overtaken())

    sealed = [number for seal in chain_of(ledger) for number in keys_in(ledger, seal)]
    assert sealed == list(range(len(sealed)))
    assert 0 < len(sealed) < 10


def test_a_null_key_is_refused(ledger: Ledger) -> None:
    with pytest.raises(NeedsChange, match="'id' is NULL in a row of partition 3") as caught:
        run(ledger, batches_of(1, None, 3))

    assert caught.value.reason == reasons.KEYS_UNSUITABLE
    assert chain_of(ledger) == ()


@pytest.mark.parametrize(("rows", "expands"), [((1, 2, 3, 1), False), ((1, 1), False), ((1, 1, 2, 1), True)])
def test_a_key_that_comes_twice_in_a_segment_is_refused(ledger: Ledger, rows: tuple[int, ...], expands: bool) -> None:
    with pytest.raises(NeedsChange, match="id=1") as caught:
        run(ledger, batches_of(*rows), order_of(expands=expands))

    assert caught.value.reason == reasons.KEYS_NOT_UNIQUE
    assert chain_of(ledger) == ()


def test_a_task_that_the_plan_does_not_have_is_corrupt(ledger: Ledger) -> None:
    with pytest.raises(Corrupt):
        run(ledger, batches_of(1), number=4)


def test_fingerprints_add_up_whatever_the_order() -> None:
    parts = [key_set(1, 5, (1 << 64) - 1), key_set(2, 1 << 63, 7), key_set(3, 1 << 63, 9)]

    assert add_key_sets(parts) == add_key_sets(reversed(parts)) == key_set(6, 5, 15)
    assert add_key_sets(()) == key_set(0, 0, 0)

"""Rows known by keys that fail: set apart with their keys, and taken again by the epochs that ask for it, each once."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_commit.results import gather
from checkpoint_control.loop.keys_objects import compacting
from checkpoint_formats import keys_objects
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.epoch_index import EpochIndex
from checkpoint_protocol.manifest.spec import Quarantine
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.records import (
    CommitRecord,
    IcebergFile,
    InputRecord,
    KeyColumn,
    KeysCovered,
    KeySet,
    KeysObject,
    LaunchRecord,
    PlanRecord,
    Retried,
    RowKey,
    Seal,
    TakenKeys,
)
from checkpoint_protocol.rows.keys import add_key_sets, key_set, subtract_key_set
from checkpoint_protocol.rows.quarantine import most_rows
from checkpoint_spark.dataframes import keys
from checkpoint_spark.dataframes.anti_join import Sealed, quarantined, sealed_by, with_result
from checkpoint_spark.dataframes.tasks import PartitionOrder, run_keyed_task
from tests.support.effort import examples
from tests.support.records import DIGEST, ICEBERG, KEY, launch, staged_files
from tests.support.remembered_files import RememberedFiles
from tests.support.sources import source_of
from tests.support.steps_here import steps_here
from tests.support.stores import MemoryStore

Retry = Literal["Never", "Also", "Only"]
SOURCE = source_of({"spark": {"format": "orc", "paths": ["/in"], "keyColumns": ("id",)}})
EMPTY = add_key_sets(())


def fail_in(row: dict[str, Any], poison: list[int]) -> dict[str, Any]:
    """A step that raises on some rows."""
    if row["id"] in poison:
        raise ValueError(f"poison {row['id']}")
    return row


def hashed(key: int) -> KeySet:
    return key_set(1, (key + 1) * 0x9E3779B97F4A7C15, (key + 1) * 0xC2B2AE3D27D4EB4F)


def sum_of(numbers: Iterable[int]) -> KeySet:
    return add_key_sets(hashed(number) for number in numbers)


def batches_of(rows: Sequence[int], size: int = 7) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        lanes = zip(*(divmod(int(hashed(key).fingerprint, 16), 1 << 64) for key in part), strict=True)
        first, second = ([value - (1 << 64) if value >> 63 else value for value in lane] for lane in lanes)
        yield pa.record_batch(
            {"id": pa.array(part, pa.int64()), keys.FIRST: pa.array(first, pa.int64()), keys.SECOND: pa.array(second, pa.int64())}
        )


@dataclass
class World:
    """One write over all of its epochs; Spark's part, which rows have which keys, is played by sets."""

    store: MemoryStore = field(default_factory=MemoryStore)
    files: RememberedFiles = field(default_factory=RememberedFiles)
    table: Counter[int] = field(default_factory=Counter)

    def ledger(self, epoch: int) -> Ledger:
        return Ledger(self.store, EpochKey(KEY.uid, epoch), pause=lambda _: None)

    def taken_before(self, epoch: int) -> TakenKeys:
        index = EpochIndex(self.store, KEY.uid, lambda _: None, compacting(self.store, KEY.uid))
        none = add_key_sets(())
        return index.ensure(epoch - 1).keys or TakenKeys(columns=(), objects=(), with_result=none, quarantined=none)

    def keys_in(self, sealed: Sealed) -> set[int]:
        """Return the keys of these objects, after a look whether they add up to what is said of them."""
        found = self.exact_keys(sealed.objects)
        assert sealed.keys == sum_of(found)
        return found

    def exact_keys(self, objects: Iterable[KeysObject]) -> set[int]:
        found: set[int] = set()
        for item in objects:
            data = self.store.get(item.path, item.size_bytes)
            assert data is not None
            table = keys_objects.read_object(data)
            assert table.num_rows == item.rows
            found |= set(table["k0"].to_pylist())
        return found

    def run_epoch(
        self, epoch: int, source: Sequence[int], poison: Sequence[int], retry: Retry, dies: bool, left_out: Collection[int] = ()
    ) -> Ledger:
        """Do an epoch as driver, tasks and operator do it; after a death another attempt does the rest.

        What is `left_out` never comes to the tasks, as rows that `sql` does not take.
        """
        ledger = self.ledger(epoch)
        earlier = self.taken_before(epoch)
        skipped, again = self.keys_in(with_result(earlier)), self.exact_keys(quarantined(earlier).objects)
        if retry == "Never":
            skipped |= again
        wanted = [key for key in source if key not in skipped and (retry != "Only" or key in again) and key not in left_out]
        retried = None if retry == "Never" else Retried(retry=retry, rows=len(again))
        columns = (KeyColumn(name="id", type="bigint"),)
        ledger.inputs.put_input(InputRecord(token=new_token(), files=(), arrow_schema="", keys=columns, retried=retried))
        if dies:
            self.attempt(ledger, 1, (), wanted, poison, dies)
        number = 2 if dies else 1
        self.attempt(ledger, number, tuple(range(1, number)), wanted, poison, False)
        results = gather(self.ledger(epoch), number)
        files = staged_files(results)
        self.table.update(key for made in files if isinstance(made, IcebergFile) for key in self.files.rows[made.path])
        ledger.commits.put_commit(
            CommitRecord(
                token=new_token(),
                key=str(ledger.key),
                target="t",
                table_identity=None,
                commit_id=None,
                rows_read=results.rows_read,
                rows_written=results.rows_written,
                files=len(files),
                attempts=number,
                code_digests=(DIGEST,),
                rows_quarantined=results.rows_quarantined,
            )
        )
        return ledger

    def attempt(
        self,
        ledger: Ledger,
        number: int,
        counted: tuple[int, ...],
        wanted: Sequence[int],
        poison: Sequence[int],
        dies: bool,
    ) -> None:
        record = launched(number, counted, poison)
        ledger.attempts.put_launch(record)
        own = self.keys_in(sealed_by(ledger, counted))
        plan = PlanRecord(
            token=new_token(),
            attempt=number,
            tasks=(),
            done_files=0,
            done_rows=len(own),
            partitions=2,
            skipped=sum_of(own),
        )
        ledger.plans.put_plan(plan)
        left = [key for key in wanted if key not in own]
        for task in range(2):
            rows = left[task::2]
            if dies and task:
                continue
            run(ledger, number, task, rows, record, self.files)
        assert ledger.chains.close(number).complete == (not dies)


def launched(number: int, counted: tuple[int, ...], poison: Sequence[int], limit: int = 1000) -> LaunchRecord:
    step = Step(call=f"{__name__}:fail_in", input="row", name="predict", arguments={"poison": list(poison)})
    changes = {
        "source": SOURCE,
        "steps": (step,),
        "on_row_error": "Quarantine",
        "quarantine": Quarantine(max_rows=limit, max_share="100%"),  # type: ignore[arg-type]
    }
    return launch(number, counted).model_copy(update=changes)


def run(
    ledger: Ledger,
    attempt: int,
    task: int,
    rows: Sequence[int],
    record: LaunchRecord,
    files: RememberedFiles,
    clock: Callable[[], float] = lambda: 0.0,
) -> None:
    order = PartitionOrder(
        uri="memory",
        uid=KEY.uid,
        epoch=ledger.key.epoch,
        attempt=attempt,
        target=ICEBERG,
        key_names=("id",),
        cuts=True,
        expands=False,
    )
    run_keyed_task(order, task, batches_of(rows), record, steps_here(files, record.steps, sets_apart=True), files, ledger, clock)


def test_a_row_that_fails_is_sealed_with_its_key_apart_from_the_keys_of_the_others() -> None:
    world = World()

    ledger = world.run_epoch(1, range(20), [3, 14], "Never", False)

    seals = list(ledger.chains.counted_seals([1]))
    failed = [row for seal in seals for row in ledger.quarantine.quarantined_rows(seal)]
    found = sorted((row.row.source, row.row.values) for row in failed if isinstance(row.row, RowKey))
    assert found == [(0, ("14",)), (0, ("3",))]
    assert {(row.step, row.error, row.message) for row in failed} == {
        ("predict", "ValueError", "poison 3"),
        ("predict", "ValueError", "poison 14"),
    }
    assert world.table == Counter(key for key in range(20) if key not in (3, 14))
    objects = [item for seal in seals if isinstance(seal.covered, KeysCovered) for item in seal.covered.objects]
    assert world.keys_in(Sealed(tuple(item for item in objects if item.quarantined), sum_of([3, 14]))) == {3, 14}


@pytest.mark.parametrize("seconds", [0, 100_000], ids=["in one segment", "in several segments"])
def test_one_failed_row_too_many_ends_the_task_with_its_key_and_rows_before_are_sealed(
    seconds: int,
) -> None:
    world = World()
    ledger = world.ledger(1)
    ledger.inputs.put_input(
        InputRecord(token=new_token(), files=(), arrow_schema="", keys=(KeyColumn(name="id", type="bigint"),))
    )
    record = launched(1, (), [1, 8, 15], limit=2)
    ledger.attempts.put_launch(record)
    ledger.plans.put_plan(
        PlanRecord(token=new_token(), attempt=1, tasks=(), done_files=0, done_rows=0, partitions=1, skipped=EMPTY)
    )

    with pytest.raises(NeedsChange, match=r"3 rows of one task failed, and .*maxRows allows 2; the last is the row with id=15"):
        run(ledger, 1, 0, range(21), record, world.files, itertools.count(0, seconds).__next__)

    seals = ledger.chains.read_chain(1, 0)
    assert (len(seals) > 1) == (seconds > 0)
    assert sum(seal.rows_read for seal in seals) == 14
    assert sum(seal.rows_quarantined for seal in seals) == 2


def test_a_share_of_rows_that_are_known_by_keys_is_judged_when_all_are_read() -> None:
    limits = Quarantine(max_rows=100, max_share="10%")  # type: ignore[arg-type]
    columns = (KeyColumn(name="id", type="bigint"),)
    again = Retried(retry="Also", rows=5)
    record = InputRecord(token=new_token(), files=(), arrow_schema="", keys=columns, retried=again)

    assert most_rows(limits, record) == 105
    assert most_rows(limits, record, rows_read=45) == 4 + 5


def test_taking_parts_from_a_set_of_keys_leaves_the_others() -> None:
    assert subtract_key_set(sum_of(range(9)), sum_of([2, 5, 6])) == sum_of([0, 1, 3, 4, 7, 8])
    assert subtract_key_set(sum_of([1]), sum_of([1])) == EMPTY


def misnamed(one: Seal, **changes: Any) -> Seal:
    assert isinstance(one.covered, KeysCovered)
    return one.model_copy(update={"token": new_token(), "covered": one.covered.model_copy(update=changes)})


@pytest.mark.parametrize("lie", ["objects", "sum", "rows"])
def test_a_seal_whose_quarantined_rows_and_keys_disagree_is_refused(lie: str) -> None:
    """Else a later epoch would take rows again that have a result."""
    world = World()
    ledger = world.run_epoch(1, range(10), [3], "Never", False)
    seals = list(ledger.chains.counted_seals([1]))
    (one,) = [seal for seal in seals if seal.rows_quarantined]
    assert isinstance(one.covered, KeysCovered)
    match lie:
        case "objects":
            swapped = tuple(KeysObject(**{**dict(item), "quarantined": True}) for item in one.covered.objects)
            wrong = misnamed(one, objects=swapped)
        case "sum":
            wrong = misnamed(one, quarantined=None)
        case _:
            wrong = one.model_copy(update={"quarantined": None})
    del world.store.objects[ledger.at.seal(1, one.task, one.link)]
    ledger.seals.put_seal(wrong)

    with pytest.raises(Corrupt, match="and names the keys of") as caught:
        gather(world.ledger(1), 1)
    assert caught.value.reason == reasons.STAGED_RESULT_REFUSED


EPOCHS = st.lists(
    st.tuples(
        st.frozensets(st.integers(0, 30), max_size=25),  # what comes to the source
        st.frozensets(st.integers(0, 30), max_size=5),  # what leaves it
        st.frozensets(st.integers(0, 30), max_size=5),  # what sql leaves out
        st.frozensets(st.integers(0, 30), max_size=10),  # what is poison in this epoch
        st.sampled_from(["Never", "Also", "Only"]),
        st.booleans(),  # whether its first driver dies
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=examples(60))
@given(EPOCHS)
def test_whatever_fails_and_is_taken_again_each_row_that_once_worked_is_there_once(
    epochs: list[tuple[frozenset[int], frozenset[int], frozenset[int], frozenset[int], Retry, bool]],
) -> None:
    world = World()
    source: set[int] = set()
    done: set[int] = set()
    failed: set[int] = set()
    for epoch, (come, leave, left_out, poison, retry, dies) in enumerate(epochs, 1):
        source = (source | come) - leave
        taken = set() if retry == "Only" else source - done - failed
        taken |= failed & source if retry != "Never" else set()
        taken -= left_out
        world.run_epoch(epoch, sorted(source), sorted(poison), retry, dies, left_out)

        done |= taken - poison
        failed = (failed - taken) | (taken & poison)
        assert world.table == Counter(done)
        earlier = world.taken_before(epoch + 1)
        assert world.keys_in(with_result(earlier)) == done
        assert world.exact_keys(quarantined(earlier).objects) - done == failed
        if not earlier.was_retried:
            assert world.keys_in(quarantined(earlier)) == failed


def test_a_row_that_fails_and_whose_key_python_cannot_hold_is_set_apart_by_its_bytes_or_number() -> None:
    no_text = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")])
    far_day = pa.array([4_000_000], pa.int32()).view(pa.date32())
    far_moment = pa.array([1 << 62], pa.int64()).view(pa.timestamp("us"))

    assert keys.texts_of([keys.value_at(column, 0) for column in (no_text, far_day, far_moment)]) == (
        "b'\\xff\\xfe'",
        "4000000",
        str(1 << 62),
    )

"""Rows known by keys, whatever dies: attempts, tries and zombies at random over the production task, ledger and gathering.

Spark's part is played by a few lines: which rows have a sealed key, how many they are, and how the others are cut.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_commit.results import gather
from checkpoint_formats import keys_objects
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.records import IcebergFile, KeysCovered, KeySet, PlanRecord
from checkpoint_protocol.rows.keys import add_key_sets, key_set
from checkpoint_spark.dataframes import keys
from checkpoint_spark.dataframes.tasks import PartitionOrder, run_keyed_task
from tests.support.effort import examples
from tests.support.records import ICEBERG, KEY, input_of, launch, ledger_over, staged_files
from tests.support.remembered_files import RememberedFiles
from tests.support.sources import source_of
from tests.support.steps_here import steps_here
from tests.support.stores import MemoryStore

SOURCE = source_of({"spark": {"format": "orc", "paths": ["/in"], "keyColumns": ("key",)}})
SCHEMA = pa.schema([("key", pa.int64()), ("id", pa.int64())])
#: A row: its key, and a number that no other row has.
Row = tuple[int, int]


class Died(BaseException):
    """The process ends here, without a word."""


def hashed(key: int) -> KeySet:
    return key_set(1, key * 0x9E3779B97F4A7C15, key * 0xC2B2AE3D27D4EB4F)


def batches_of(rows: Sequence[Row], size: int, dies_after: int | None) -> Iterator[pa.RecordBatch]:
    """Give the rows as Spark does, and die on the way if so many rows were given."""
    for start in range(0, len(rows), size):
        if dies_after is not None and start >= dies_after:
            raise Died
        part = rows[start : start + size]
        lanes = [divmod(int(hashed(key).fingerprint, 16), 1 << 64) for key, _ in part]
        signed = [[value - (1 << 64) if value >> 63 else value for value in lane] for lane in zip(*lanes, strict=True)]
        yield pa.record_batch(
            {
                "key": pa.array([key for key, _ in part], pa.int64()),
                "id": pa.array([number for _, number in part], pa.int64()),
                keys.SOURCE: pa.array([0] * len(part), pa.int32()),
                keys.FIRST: pa.array(signed[0], pa.int64()),
                keys.SECOND: pa.array(signed[1], pa.int64()),
            }
        )
    if dies_after is not None:
        raise Died


@dataclass
class World:
    """One write: its store, its source as it is now, and what the table would show of each file."""

    source: list[Row]
    store: MemoryStore = field(default_factory=MemoryStore)
    files: RememberedFiles = field(default_factory=RememberedFiles)

    def sealed_keys(self, counted: tuple[int, ...]) -> tuple[set[int], KeySet]:
        """What a driver reads of the counted attempts: exact keys from their objects, and what they add up to."""
        found: set[int] = set()
        sets: list[KeySet] = []
        for seal in ledger_over(self.store).chains.counted_seals(counted):
            assert isinstance(seal.covered, KeysCovered)
            sets.append(seal.covered.keys)
            for item in seal.covered.objects:
                data = self.store.get(item.path, item.size_bytes)
                assert data is not None
                found.update(keys_objects.read_object(data)["k0"].to_pylist())
        return found, add_key_sets(sets)

    def plan(self, attempt: int, counted: tuple[int, ...], partitions: int) -> list[list[Row]]:
        """Do what the driver does before any task. NeedsChange if what it would skip is not what is sealed."""
        ledger = ledger_over(self.store)
        ledger.attempts.put_launch(launch(attempt, counted).model_copy(update={"source": SOURCE}))
        sealed, adds_up = self.sealed_keys(counted)
        skipped = add_key_sets(hashed(key) for key, _ in self.source if key in sealed)
        if skipped != adds_up:
            raise NeedsChange(reasons.KEYS_NOT_UNIQUE, "what would be skipped is not what is sealed")
        left = [row for row in self.source if row[0] not in sealed]
        ledger.plans.put_plan(
            PlanRecord(
                token=new_token(),
                attempt=attempt,
                tasks=(),
                done_files=0,
                done_rows=skipped.rows,
                partitions=partitions,
                skipped=skipped,
            )
        )
        size = -(-len(left) // partitions) or 1
        return [left[number * size : (number + 1) * size] for number in range(partitions)]

    def try_task(self, attempt: int, task: int, rows: Sequence[Row], size: int, dies_after: int | None, cuts: bool) -> bool:
        """Run one try; return whether it came to the end of the task."""
        order = PartitionOrder(
            uri="memory",
            uid=KEY.uid,
            epoch=1,
            attempt=attempt,
            target=ICEBERG,
            key_names=("key",),
            cuts=cuts,
            expands=False,
        )
        ticks = itertools.count()
        record = launch(attempt)
        try:
            run_keyed_task(
                order,
                task,
                batches_of(rows, size, dies_after),
                record,
                steps_here(self.files),
                self.files,
                ledger_over(self.store),
                lambda: next(ticks) * 1e6,
            )
        except (Died, Retryable):
            return False
        return True

    def table(self, attempt: int) -> Counter[int]:
        """What is in the table after the commit of this attempt."""
        files = staged_files(gather(ledger_over(self.store), attempt))
        return Counter(number for made in files if isinstance(made, IcebergFile) for number in self.files.rows[made.path])


def live(world: World, draw: st.DrawFn, most_attempts: int = 4) -> int:
    """Run attempts that die, with zombies of those before, and one that does not; return its number."""
    earlier: list[tuple[int, int, list[Row]]] = []
    ledger_over(world.store).inputs.put_input(input_of())
    for attempt in range(1, draw(st.integers(1, most_attempts)) + 1):
        partitions = world.plan(attempt, tuple(range(1, attempt)), draw(st.integers(1, 4)))
        for task, rows in enumerate(partitions):
            earlier.append((attempt, task, rows))
            for _ in range(draw(st.integers(0, 2))):
                given = list(reversed(rows)) if draw(st.booleans()) else rows
                dies_after = draw(st.none() | st.integers(0, len(rows)))
                world.try_task(attempt, task, given, draw(st.integers(1, 9)), dies_after, draw(st.booleans()))
        ledger_over(world.store).chains.close(attempt)
        # Tasks of any attempt so far may go on, as nobody has proved that they are dead.
        for _ in range(draw(st.integers(0, 2))):
            world.try_task(*draw(st.sampled_from(earlier)), draw(st.integers(1, 9)), None, draw(st.booleans()))
    last = attempt + 1
    for task, rows in enumerate(world.plan(last, tuple(range(1, last)), draw(st.integers(1, 4)))):
        assert world.try_task(last, task, rows, 5, None, True)
    assert ledger_over(world.store).chains.close(last).complete
    return last


@st.composite
def lives(draw: st.DrawFn, unique: bool) -> tuple[World, int | None]:
    drawn = list(range(draw(st.integers(0, 40)))) if unique else draw(st.lists(st.integers(0, 3), max_size=6))
    world = World([(key, number) for number, key in enumerate(drawn)])
    try:
        return world, live(world, draw)
    except NeedsChange as refused:
        if unique or refused.reason != reasons.KEYS_NOT_UNIQUE:
            raise
        return world, None


@settings(max_examples=examples(150))
@given(lives(unique=True))
def test_every_row_is_there_once_whatever_died(lived: tuple[World, int | None]) -> None:
    world, last = lived

    assert last is not None
    assert world.table(last) == Counter(number for _, number in world.source)


@settings(max_examples=examples(150))
@given(lives(unique=False))
def test_rows_that_share_a_key_are_refused_or_there_once_each_and_never_lost(lived: tuple[World, int | None]) -> None:
    world, last = lived

    if last is not None:
        assert world.table(last) == Counter(number for _, number in world.source)

"""Inputs and plans that are too large for one object: put in parts, read as they are needed, whole or not there at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_commit.results import Coverage, gather
from checkpoint_control.progress.tallies import place_of
from checkpoint_control.views.inspection import inspect_store
from checkpoint_control.writes.deletion import delete_write
from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.planning import MOST_PIECES, plan_tasks
from checkpoint_formats.port import NOTHING_TAKEN, Chunk, Described, TakenColumns
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import Quarantine
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import (
    MAX_RECORD_BYTES,
    InputPartRecord,
    InputRecord,
    NoTarget,
    QuarantinedRow,
    RowPosition,
    Seal,
    WriteRecord,
    encode,
)
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.rows.quarantine import most_rows
from checkpoint_protocol.store.object_store import open_store
from checkpoint_protocol.store.parts import Input, InputInParts, cut_files
from checkpoint_protocol.store.put_once import put_once
from checkpoint_work.driver.attempt import run_attempt
from checkpoint_work.inputs.epoch_input import fix_input
from checkpoint_work.tasks.executor import execute_order
from tests.support.effort import examples
from tests.support.inputs import input_of_files
from tests.support.records import DIGEST, KEY, TOKEN, end_epoch, input_of, launch, ledger_over, plan, rows_file, seal
from tests.support.sources import source_of
from tests.support.stored_writes import StoredWrite
from tests.support.stores import MemoryStore, Wrapped

#: In a part of this size there are about ten files.
_PART_BYTES = 1_000


@dataclass
class Counts(Wrapped):
    """Notes what was put and what was asked for, in order."""

    puts: list[str] = field(default_factory=list)
    gets: list[str] = field(default_factory=list)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.puts.append(path)
        return super().put_if_absent(path, data)

    def get(self, path: str, most_bytes: int) -> bytes | None:
        self.gets.append(path)
        return super().get(path, most_bytes)


def many(count: int = 100) -> InputRecord:
    return input_of(*(rows_file(10, path=f"/in/part-{number}.parquet") for number in range(count)))


def driver(store: MemoryStore | Counts, epoch: int = 1) -> Ledger:
    """Return the ledger of a process that puts what is larger than a kilobyte in parts."""
    return Ledger(store, EpochKey(KEY.uid, epoch), pause=lambda _: None, part_bytes=_PART_BYTES)


def fixed(store: MemoryStore | Counts, record: InputRecord) -> Input:
    """Put an input in parts; return it as another process reads it."""
    driver(store).inputs.put_input(record)
    read = ledger_over(store).inputs.read_input()
    assert read is not None
    return read


def parts_in(store: MemoryStore) -> list[str]:
    return [path for path in store.objects if "/input/" in path or "/plan/" in path]


# --- the input ------------------------------------------------------------------------------------------------------------


def test_an_input_that_is_too_large_for_one_object_is_read_as_it_was_put() -> None:
    store, record = MemoryStore(), many()

    read = fixed(store, record)

    assert isinstance(read, InputInParts)
    assert tuple(read.files) == record.files
    assert [read.files[number] for number in (0, 99, 50, -1)] == [record.files[number] for number in (0, 99, 50, 99)]
    assert read.files[3:5] == list(record.files[3:5])
    assert len(read.files) == 100
    assert (read.token, read.arrow_schema, read.tables, read.keys) == (record.token, "", (), ())
    assert read.totals == record.totals
    with pytest.raises(IndexError):
        read.files[100]


def test_no_object_of_a_large_input_is_much_larger_than_a_part_however_many_files_there_are() -> None:
    store = MemoryStore()

    fixed(store, many(1_000))

    assert len(parts_in(store)) > 50
    assert max(len(store.objects[path]) for path in parts_in(store)) <= _PART_BYTES + 150


def test_the_parts_are_there_before_the_input_is() -> None:
    store = Counts()

    driver(store).inputs.put_input(many())

    assert store.puts[-1] == ledger_over(store).at.input
    assert len(store.puts) == len(set(store.puts)) > 5


def test_a_small_input_is_one_object_as_it_always_was() -> None:
    store, record = MemoryStore(), many(3)

    driver(store).inputs.put_input(record)

    assert store.objects == {ledger_over(store).at.input: encode(record)}


def test_of_two_drivers_the_input_of_the_first_stands_and_the_other_goes_on_with_it() -> None:
    store, first, second = MemoryStore(), many(100), many(120)

    driver(store).inputs.put_input(first)
    recorded = driver(store).inputs.put_input(second)

    assert tuple(recorded.files) == first.files


@pytest.mark.parametrize(("first", "second"), [(3, 100), (100, 3)])
def test_an_input_in_parts_and_one_that_is_not_contend_for_one_name(first: int, second: int) -> None:
    """As when a file comes between two listings."""
    store, wins, loses = MemoryStore(), many(first), many(second)

    driver(store).inputs.put_input(wins)
    recorded = driver(store).inputs.put_input(loses)

    assert tuple(recorded.files) == wins.files
    read = ledger_over(store).inputs.read_input()
    assert read is not None
    assert tuple(read.files) == wins.files


def test_a_task_reads_only_the_parts_that_have_its_files() -> None:
    store = Counts()
    read = fixed(store, many())
    store.gets.clear()

    assert [read.files[number].path for number in range(20, 30)] == [f"/in/part-{number}.parquet" for number in range(20, 30)]

    assert 1 <= len(store.gets) <= 3
    assert len(set(store.gets)) == len(store.gets), "a part is read once"


def test_how_many_files_and_rows_there_are_is_known_without_reading_files() -> None:
    store = Counts()
    read = fixed(store, many())
    store.gets.clear()

    assert (read.totals.files, read.totals.size_bytes, read.totals.rows) == (100, 100_000, 1_000)
    assert most_rows(Quarantine.model_validate_json('{"maxRows": 500, "maxShare": "10%"}'), read) == 100
    assert store.gets == []


def test_a_part_that_is_gone_is_never_taken_for_files_that_are_not_there() -> None:
    store = MemoryStore()
    read = fixed(store, many())
    (path, *_) = parts_in(store)
    store.delete([path])

    with pytest.raises(Corrupt, match=f"{path} is gone"):
        list(read.files)


def test_a_part_that_is_not_what_was_put_is_refused() -> None:
    store = MemoryStore()
    read = fixed(store, many())
    path, other, *_ = parts_in(store)
    store.objects[path] = store.objects[other]

    with pytest.raises(Corrupt, match=f"{path} is not what was put"):
        list(read.files)


def test_a_file_that_is_larger_than_a_part_is_a_part_of_its_own() -> None:
    wide = dataclasses.replace(rows_file(5_000), cuts=tuple(range(5_000)))
    files = (rows_file(1, path="/in/a"), wide, rows_file(1, path="/in/z"))

    assert [len(piece) for piece in cut_files(files, _PART_BYTES)] == [1, 1, 1]


@given(st.lists(st.integers(0, 60), max_size=40), st.integers(1, 3_000))
@settings(deadline=None, max_examples=examples(50))
def test_cutting_loses_no_file_and_keeps_their_order(cuts: list[int], part_bytes: int) -> None:
    files = [dataclasses.replace(rows_file(100, path=f"/{n}"), cuts=tuple(range(count))) for n, count in enumerate(cuts)]

    pieces = cut_files(files, part_bytes)

    assert [file for piece in pieces for file in piece] == files
    assert all(pieces)


def check_coverage(seals: Iterable[Seal], read: Input) -> None:
    coverage = Coverage("here")
    for one in seals:
        coverage.add(one)
    coverage.check(read)


# --- who reads it -----------------------------------------------------------------------------------------------------------


def test_what_is_committed_is_compared_with_every_part_which_is_read_once() -> None:
    store = Counts()
    read = fixed(store, many())
    store.gets.clear()
    seals = [seal(0, 0, [(number, 0, 10) for number in range(60)]), seal(1, 0, [(number, 0, 10) for number in range(60, 100)])]

    check_coverage(seals, read)
    assert len(set(store.gets)) == len(store.gets)

    with pytest.raises(Corrupt, match=r"no seal covers rows 0 to 10 of /in/part-60\.parquet"):
        check_coverage(seals[:1], read)
    with pytest.raises(Corrupt, match=r"two seals cover rows 3 to 10 of /in/part-99\.parquet"):
        check_coverage([*seals, seal(1, 1, [(99, 3, 10)])], read)
    with pytest.raises(Corrupt, match="file number 100"):
        check_coverage([*seals, seal(1, 1, [(100, 0, 1)])], read)


def test_a_row_that_failed_is_named_by_its_file_in_whichever_part_it_is() -> None:
    read = fixed(MemoryStore(), many())
    row = RowPosition(range=Range(file=77, start=4, end=5))

    assert (
        place_of(QuarantinedRow(row=row, step="s", error="E", message="", traceback=""), read) == "row 4 of /in/part-77.parquet"
    )


class _Listing:
    """A reader of which only the listing is asked."""

    def __init__(self, files: Sequence[SourceFile]) -> None:
        self._files = tuple(files)

    def check(self, file: FoundFile) -> None:
        raise AssertionError

    def describe(self, found: Sequence[FoundFile], taken: TakenColumns = NOTHING_TAKEN) -> Described:
        return Described(self._files, pa.schema([("id", pa.int64())]), "/in", ("id",))

    def align(self, file: SourceFile, position: int, slack: int) -> int:
        raise AssertionError

    def read(self, file: SourceFile, piece: Range, schema: pa.Schema, sizing: BatchSizing) -> Iterator[Chunk]:
        raise AssertionError

    def check_unchanged(self, file: SourceFile) -> None:
        """All that an earlier epoch had is still there."""


def next_epoch(store: MemoryStore, files: Sequence[SourceFile]) -> list[str]:
    reader = _Listing(files)
    end_epoch(driver(store))
    taken = fix_input(
        driver(store, epoch=2), launch(), lambda earlier: input_of_files(launch(), reader, lambda path: path, earlier)
    )
    return [file.path for file in taken.files]


def test_the_next_epoch_takes_what_is_in_no_part_of_the_one_before() -> None:
    store, before = MemoryStore(), many(100).files
    fixed(store, many(100))
    new = rows_file(10, path="/in/new.parquet")

    assert next_epoch(store, [*before, new]) == ["/in/new.parquet"]


def test_the_next_epoch_takes_nothing_while_a_part_of_the_one_before_is_gone() -> None:
    store, before = MemoryStore(), many(100).files
    fixed(store, many(100))
    store.delete(parts_in(store)[5:6])

    with pytest.raises(Corrupt, match="is gone"):
        next_epoch(store, before)


# --- the plan ---------------------------------------------------------------------------------------------------------------


def test_a_plan_of_many_ranges_is_put_in_parts_and_its_number_of_tasks_is_known_without_them() -> None:
    store, record = Counts(), plan(*([(number, 0, 10), (number, 20, None)] for number in range(100)))

    driver(store).plans.put_plan(record)

    assert store.puts[-1] == ledger_over(store).at.plan(1)
    store.gets.clear()
    ledger = ledger_over(store)
    read = ledger.plans.read_plan(1)
    assert read is not None
    assert (read.task_count, read.token, len(store.gets)) == (100, record.token, 1)
    assert tuple(ledger.plans.read_tasks(read)) == record.tasks


def test_the_driver_of_a_large_plan_goes_on_with_it_and_a_second_one_ends() -> None:
    store, record = MemoryStore(), plan(*([(number, 0, 10)] for number in range(100)))

    driver(store).plans.put_plan(record)

    assert driver(store).plans.put_plan(record).token == record.token
    with pytest.raises(Exception, match="another driver"):
        driver(store).plans.put_plan(plan(*([(number, 0, 10)] for number in range(100))))


def test_a_small_plan_is_one_object_as_it_always_was() -> None:
    store, record = MemoryStore(), plan([(0, 0, 10)])

    driver(store).plans.put_plan(record)

    assert store.objects == {ledger_over(store).at.plan(1): encode(record)}


def test_of_very_small_files_no_task_has_so_many_that_its_seals_grow_large() -> None:
    files = [rows_file(1, path="/in/a")] * (3 * MOST_PIECES + 5)

    tasks = plan_tasks(files, (), lambda file, position, slack: position, parallelism=1, split_size_bytes=1 << 40)

    assert [piece.file for task in tasks for piece in task] == list(range(len(files)))
    assert max(len(task) for task in tasks) == MOST_PIECES
    assert len(tasks) == 4
    sealed = seal(0, 0, [(1_000_000, 0, 1_000_000)] * MOST_PIECES)
    assert len(encode(sealed)) < MAX_RECORD_BYTES / 64


# --- a whole attempt ----------------------------------------------------------------------------------------------------------


def test_an_attempt_over_an_input_in_parts_does_every_row_once_and_so_does_the_one_after_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(60):
        (tmp_path / "in" / f"{number:02}.json").write_text(f'{{"id": {number}, "text": "{"x" * 500}"}}\n')
    store = open_store(str(tmp_path / "checkpoints"), StorageSettings())
    source = source_of({"files": {"format": "json", "paths": [str(tmp_path / "in")]}})
    nothing = {"source": source, "target": NoTarget(), "sink_format": "none"}

    def attempt(number: int, counted: tuple[int, ...], most_tasks: int) -> None:
        ledger = Ledger(store, KEY, part_bytes=_PART_BYTES)
        ledger.attempts.put_launch(launch(number, counted).model_copy(update=nothing))

        def run_tasks(orders: Sequence[str]) -> None:
            for order in orders[:most_tasks]:
                execute_order(order, StorageSettings())

        run_attempt(ledger, number, StorageSettings(), 20, run_tasks)
        ledger.chains.close(number)

    attempt(1, (), most_tasks=1)
    attempt(2, (1,), most_tasks=1_000)

    ledger = Ledger(store, KEY)
    read, first, second = ledger.inputs.read_input(), ledger.plans.read_plan(1), ledger.plans.read_plan(2)
    assert isinstance(read, InputInParts)
    assert len(read.index.parts) > 3
    assert first is not None
    assert second is not None
    assert 0 < second.done_files < 60
    assert 0 < second.done_rows < 60
    assert gather(ledger, 2).rows_read == 60


# --- bounds -----------------------------------------------------------------------------------------------------------------


def long_launch() -> tuple[str, WriteRecord]:
    identity = {"source": {"paths": ["x" * (MAX_RECORD_BYTES + 1)]}}
    record = WriteRecord(token=TOKEN, uid=KEY.uid, namespace="a", name="b", identity=identity, identity_digest=DIGEST)  # type: ignore[arg-type]
    return "source.files.paths", record


def test_what_nobody_could_read_is_refused_before_it_is_put_and_the_way_out_is_said() -> None:
    store = MemoryStore()
    remedy, record = long_launch()

    with pytest.raises(NeedsChange) as caught:
        put_once(store, "control/0/write.json", record)

    assert caught.value.reason == reasons.RECORD_TOO_LARGE
    assert f"{store.uri}/control/0/write.json" in caught.value.message
    assert remedy in caught.value.message
    assert store.objects == {}

    fewer = record.model_copy(update={"identity": {"source": {"paths": ["/in"]}}})
    put_once(store, "control/0/write.json", fewer)
    assert store.objects


def test_a_seal_of_too_many_data_files_is_refused_before_it_is_put() -> None:
    store = MemoryStore()
    record: Seal = seal(0, 0, [(0, 0, 1)]).model_copy(update={"code_digest": "d" * (MAX_RECORD_BYTES + 1)})

    with pytest.raises(NeedsChange, match=r"checkpoint\.interval") as caught:
        ledger_over(store).seals.put_seal(record)

    assert caught.value.reason == reasons.RECORD_TOO_LARGE
    assert store.objects == {}

    ledger_over(store).seals.put_seal(seal(0, 0, [(0, 0, 1)]))
    assert store.objects


# --- people, and the end ------------------------------------------------------------------------------------------------------


def stored_write(folder: Path) -> StoredWrite:
    write = StoredWrite(folder)
    write.begin()
    write.launch()
    in_parts = dataclasses.replace(write.ledger, part_bytes=_PART_BYTES)
    in_parts.inputs.put_input(many())
    in_parts.plans.put_plan(plan(*([(number, 0, 10)] for number in range(100))))
    return write


def test_inspect_shows_an_input_in_parts_and_takes_no_part_for_a_stray(tmp_path: Path) -> None:
    write = stored_write(tmp_path)
    nobodys = InputPartRecord(token=new_token(), files=many(3).files)
    put_once(write.store, write.ledger.at.input_part(nobodys.token), nobodys)

    shown = inspect_store(write.store)

    (epoch,) = shown.writes[0].epochs
    assert (epoch.input_files, epoch.input_bytes, epoch.attempts[0].tasks) == (100, 100_000, 100)
    assert (shown.errors, shown.strays) == ((), ())


@pytest.mark.parametrize("named_by", ["input.json", "plan.json"])
def test_inspect_names_a_part_that_is_gone(tmp_path: Path, named_by: str) -> None:
    write = stored_write(tmp_path)
    at = write.ledger.at
    folder = at.input_parts if named_by == "input.json" else at.plan_parts(1)
    path = next(stored.path for stored in write.store.list(folder))
    write.store.delete([path])

    (error,) = inspect_store(write.store).errors

    assert error.object == path
    assert f"{named_by} names it" in error.message


def test_deletion_removes_the_parts_too(tmp_path: Path) -> None:
    write = stored_write(tmp_path)

    delete_write(write.store, write.uid, _NoSink())  # type: ignore[arg-type]

    assert list(write.store.list(f"staged/{write.uid}/")) == []


class _NoSink:
    def discard(self, *_: object) -> int:
        return 0

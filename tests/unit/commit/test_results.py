"""What is committed: sealed results are believed only if they cover the input exactly once and name each file once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from checkpoint_commit.changes import Change, Pack, as_staged, only
from checkpoint_commit.none.sink import NoFormat
from checkpoint_commit.results import Results, gather
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt, NeedsChange
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import (
    IcebergFile,
    InputRecord,
    KeysCovered,
    KeySet,
    KeysObject,
    LanceDataFile,
    LanceFragment,
    NoTarget,
    Operation,
    Quarantined,
    QuarantinedRow,
    QuarantineObject,
    QuarantineRecord,
    RowPosition,
    Seal,
    StagedFile,
    Target,
    TargetRecord,
)
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.keys import add_key_sets, key_set
from checkpoint_protocol.rows.positions import Range
from tests.support.records import (
    ICEBERG,
    LANCE,
    TOKEN,
    appended,
    iceberg_file,
    input_of,
    lance_fragment,
    launch,
    ledger_over,
    plan,
    rows_file,
    seal,
    staged_files,
)
from tests.support.sources import source_of
from tests.support.stores import MemoryStore

TWO_FILES = input_of(rows_file(100), rows_file(50, path="/in/part-1.parquet"))


def stored(input_record: InputRecord, *seals: Seal) -> MemoryStore:
    """Put an epoch with one closed attempt; each task's chain ends in its last seal."""
    store = MemoryStore()
    ledger = ledger_over(store)
    ledger.inputs.put_input(input_record)
    ledger.attempts.put_launch(launch())
    tasks = max((one.task for one in seals), default=-1) + 1
    ledger.plans.put_plan(plan(*([(0, 0, None)] for _ in range(tasks))))
    for one in seals:
        ledger.seals.put_seal(one)
    ledger.chains.close(1)
    return store


def gathered(store: MemoryStore, attempt: int = 1) -> Results:
    return gather(ledger_over(store), attempt)


def only_iceberg(operation: Operation, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Change:
    return as_staged(operation, key, targets, only(IcebergFile, files, "db.rows"))


def only_lance(operation: Operation, key: EpochKey, targets: Sequence[Target], files: Iterable[StagedFile]) -> Change:
    return as_staged(operation, key, targets, only(LanceFragment, files, "/tables/rows.lance"))


def refusal(store: MemoryStore, family: type[CheckpointError] = Corrupt, pack: Pack = as_staged) -> str:
    with pytest.raises(family) as caught:
        gather(ledger_over(store), 1, pack)
    assert caught.value.reason == reasons.STAGED_RESULT_REFUSED
    return caught.value.message


# --- what is taken --------------------------------------------------------------------------------------------------------


def test_seals_that_cover_the_input_once_are_gathered_in_the_order_of_tasks() -> None:
    files = [iceberg_file(f"{number}.parquet", rows) for number, rows in enumerate((30, 30, 90))]
    store = stored(
        TWO_FILES,
        seal(0, 0, [(0, 0, 30)], files=[files[0]], rows=30, code_digest="a" * 64),
        seal(0, 1, [(0, 30, 60)], files=[files[1]], rows=30, last=True, code_digest="b" * 64),
        seal(1, 0, [(0, 60, 100), (1, 0, 50)], files=[files[2]], rows=90, last=True, code_digest="a" * 64),
    )

    results = gathered(store)

    assert results.change == appended(files)
    assert (results.rows_read, results.rows_written, results.attempts) == (150, 150, 1)
    assert results.code_digests == ("a" * 64, "b" * 64)
    assert results.targets == (ICEBERG,)


@pytest.mark.parametrize("written", [0, 9, 11])
def test_a_seal_whose_files_have_not_the_rows_that_it_wrote_is_corrupt(written: int) -> None:
    lying = seal(0, 0, WHOLE, files=[iceberg_file(rows=10)], last=True).model_copy(update={"rows_written": written})

    assert f"wrote {written} rows, and its files have 10" in refusal(stored(TWO_FILES, lying))


def test_a_seal_without_files_that_says_it_wrote_rows_is_corrupt() -> None:
    lying = seal(0, 0, WHOLE, last=True).model_copy(update={"rows_written": 10})

    assert "wrote 10 rows, and its files have 0" in refusal(stored(TWO_FILES, lying))


def test_seals_that_read_more_rows_together_than_a_commit_record_can_say_are_refused_before_any_claim() -> None:
    most = (1 << 63) - 1
    store = stored(TWO_FILES, seal(0, 0, [(0, 0, 100)], rows=most), seal(0, 1, [(1, 0, 50)], rows=1, last=True))

    assert "9,223,372,036,854,775,808 rows" in refusal(store)


def test_an_input_without_rows_needs_no_seals() -> None:
    assert len(gathered(stored(input_of(rows_file(0), rows_file(5, start=5)))).change) == 0
    assert len(gathered(stored(input_of())).change) == 0


def test_a_file_whose_end_is_known_only_after_reading_is_covered_by_an_open_range() -> None:
    text = SourceFile(path="/in/a.csv.gz", etag="e", size_bytes=9, unit="records", start=1, end=None)

    assert len(gathered(stored(input_of(text), seal(0, 0, [(0, 1, 500)]), seal(0, 1, [(0, 500, None)], last=True))).change) == 0


def test_seals_of_counted_attempts_are_gathered_and_those_of_others_are_not() -> None:
    store = stored(input_of(rows_file(100)), seal(0, 0, [(0, 0, 40)], files=[iceberg_file("one.parquet")], rows=40))
    ledger = ledger_over(store)
    for attempt, counted, covers, name in [
        (2, (1,), (0, 40, 60), "dropped.parquet"),
        (3, (1,), (0, 40, 100), "three.parquet"),
    ]:
        ledger.attempts.put_launch(launch(attempt, counted))
        ledger.plans.put_plan(plan([covers], attempt=attempt))
        ledger.seals.put_seal(seal(0, 0, [covers], attempt=attempt, files=[iceberg_file(name)], rows=1, last=True))
        ledger.chains.close(attempt)

    results = gathered(store, 3)

    files = staged_files(results)
    assert [file.path.rsplit("/")[-1] for file in files if file.format == "iceberg"] == ["one.parquet", "three.parquet"]
    assert results.attempts == 3
    assert len(results.targets) == 2


def test_the_table_that_was_made_for_an_attempt_is_its_target() -> None:
    store = MemoryStore()
    ledger = ledger_over(store)
    ledger.inputs.put_input(input_of())
    ledger.attempts.put_launch(launch(1, target=None))
    ledger.plans.put_plan(plan())
    ledger.attempts.put_target(1, TargetRecord(token=new_token(), target=ICEBERG))
    ledger.chains.close(1)

    assert gathered(store).targets == (ICEBERG,)


def test_an_attempt_that_never_got_to_know_a_table_has_none() -> None:
    store = MemoryStore()
    ledger = ledger_over(store)
    ledger.inputs.put_input(input_of())
    ledger.attempts.put_launch(launch(1, target=None))
    ledger.plans.put_plan(plan())
    ledger.chains.close(1)

    assert gathered(store).targets == ()


# --- rows lost or doubled -------------------------------------------------------------------------------------------------

WHOLE = [(0, 0, 100), (1, 0, 50)]


@pytest.mark.parametrize(
    ("covers", "says"),
    [
        ([(0, 0, 100)], "no seal covers rows 0 to 50 of /in/part-1.parquet"),
        ([(0, 0, 99), (1, 0, 50)], "no seal covers rows 99 to 100 of /in/part-0.parquet"),
        ([(0, 1, 100), (1, 0, 50)], "no seal covers rows 0 to 1 of /in/part-0.parquet"),
        ([(0, 0, 40), (0, 41, 100), (1, 0, 50)], "no seal covers rows 40 to 41 of /in/part-0.parquet"),
        ([*WHOLE, (0, 99, 100)], "two seals cover rows 99 to 100 of /in/part-0.parquet"),
        ([*WHOLE, (0, 0, 100)], "two seals cover rows 0 to 100 of /in/part-0.parquet"),
        ([*WHOLE, (0, 0, None)], "two seals cover rows 0 to the end of /in/part-0.parquet"),
        ([(0, 0, 100), (1, 0, 51)], "a seal covers rows 50 to 51 of /in/part-1.parquet, which is not input"),
        ([(0, 0, 100), (1, 0, None)], "a seal covers rows 50 to the end of /in/part-1.parquet, which is not input"),
        ([*WHOLE, (2, 0, 1)], "a seal covers file number 2, which is not input"),
        ([], "no seal covers rows 0 to 100 of /in/part-0.parquet"),
    ],
)
def test_seals_that_lose_double_or_invent_rows_are_corrupt_and_the_rows_are_named(
    covers: list[tuple[int, int, int | None]], says: str
) -> None:
    seals = [seal(0, link, [piece], last=link == len(covers) - 1) for link, piece in enumerate(covers)]

    assert says in refusal(stored(TWO_FILES, *(seals or [seal(0, 0, last=True)])))


def test_one_seal_that_covers_rows_twice_is_corrupt() -> None:
    assert "two seals cover" in refusal(stored(TWO_FILES, seal(0, 0, [*WHOLE, (1, 10, 20)], last=True)))


def test_an_open_end_that_nobody_has_reached_is_corrupt() -> None:
    text = SourceFile(path="/in/a.csv.gz", etag="e", size_bytes=9, unit="records", start=0, end=None)

    assert "no seal covers records 500 to the end of /in/a.csv.gz" in refusal(
        stored(input_of(text), seal(0, 0, [(0, 0, 500)], last=True))
    )


def test_rows_that_a_counted_attempt_and_this_one_cover_are_corrupt() -> None:
    store = stored(input_of(rows_file(100)), seal(0, 0, [(0, 0, 60)]))
    ledger = ledger_over(store)
    ledger.attempts.put_launch(launch(2, (1,)))
    ledger.plans.put_plan(plan([(0, 50, 100)], attempt=2))
    ledger.seals.put_seal(seal(0, 0, [(0, 50, 100)], attempt=2, last=True))
    ledger.chains.close(2)

    with pytest.raises(Corrupt, match="two seals cover rows 50 to 100"):
        gathered(store, 2)


# --- files ----------------------------------------------------------------------------------------------------------------


def test_a_file_that_two_seals_name_is_refused() -> None:
    twice = iceberg_file("twice.parquet")
    store = stored(TWO_FILES, seal(0, 0, [WHOLE[0]], files=[twice]), seal(0, 1, [WHOLE[1]], files=[twice], last=True))

    assert "twice.parquet is named by two seals" in refusal(store, NeedsChange)


def test_a_file_that_one_seal_names_twice_is_refused() -> None:
    twice = iceberg_file("twice.parquet")

    assert "twice.parquet" in refusal(stored(TWO_FILES, seal(0, 0, WHOLE, files=[twice, twice], last=True)), NeedsChange)


def lance_stored(*fragments: StagedFile) -> MemoryStore:
    store = MemoryStore()
    ledger = ledger_over(store)
    ledger.inputs.put_input(TWO_FILES)
    ledger.attempts.put_launch(launch(1, target=LANCE))
    ledger.plans.put_plan(plan([(0, 0, 1)]))
    ledger.seals.put_seal(seal(0, 0, WHOLE, files=fragments, last=True))
    ledger.chains.close(1)
    return store


def test_a_lance_data_file_in_two_fragments_is_refused() -> None:
    assert "b.lance" in refusal(
        lance_stored(lance_fragment("a.lance", "b.lance"), lance_fragment("b.lance", "c.lance")), NeedsChange
    )


def test_a_lance_data_file_twice_in_one_fragment_is_refused() -> None:
    assert "a.lance" in refusal(lance_stored(lance_fragment("a.lance", "a.lance")), NeedsChange)


def test_a_lance_fragment_in_an_iceberg_write_is_refused_and_not_passed_over() -> None:
    """The committer takes its own format only; passed over, the rows would be lost in silence."""
    store = stored(TWO_FILES, seal(0, 0, WHOLE, files=[iceberg_file(), lance_fragment()], last=True))

    assert "a.lance" in refusal(store, NeedsChange, only_iceberg)


def test_an_iceberg_file_in_a_lance_write_is_refused_and_not_passed_over() -> None:
    assert "other.parquet" in refusal(lance_stored(lance_fragment(), iceberg_file("other.parquet")), NeedsChange, only_lance)


def test_a_file_in_a_write_without_a_table_is_refused() -> None:
    store = MemoryStore()
    ledger = ledger_over(store)
    ledger.inputs.put_input(TWO_FILES)
    ledger.attempts.put_launch(launch(1, target=NoTarget()))
    ledger.plans.put_plan(plan([(0, 0, 1)]))
    ledger.seals.put_seal(seal(0, 0, WHOLE, files=[iceberg_file()], last=True))
    ledger.chains.close(1)

    assert "committed to (no table)" in refusal(store, NeedsChange, NoFormat().open(Settings(), None, "").pack)


# --- records that are gone ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", ["launch/1.json", "closed/1.json", "input.json"])
def test_a_record_that_is_gone_is_corrupt(gone: str) -> None:
    store = stored(TWO_FILES, seal(0, 0, WHOLE, last=True))
    store.delete([path for path in store.objects if path.endswith(gone)])

    with pytest.raises(Corrupt, match="are gone") as caught:
        gathered(store)
    assert caught.value.reason == reasons.RECORD_UNREADABLE


def test_an_attempt_that_is_not_complete_is_never_committed() -> None:
    with pytest.raises(Corrupt, match="is not complete"):
        gathered(stored(TWO_FILES, seal(0, 0, WHOLE)))


def test_a_counted_attempt_whose_closed_list_is_gone_is_corrupt() -> None:
    store = stored(input_of(rows_file(100)), seal(0, 0, [(0, 0, 60)]))
    ledger = ledger_over(store)
    ledger.attempts.put_launch(launch(2, (1,)))
    ledger.plans.put_plan(plan([(0, 60, 100)], attempt=2))
    ledger.seals.put_seal(seal(0, 0, [(0, 60, 100)], attempt=2, last=True))
    ledger.chains.close(2)
    store.delete([ledger.at.closed(1)])

    with pytest.raises(Corrupt, match=r"closed/1\.json is gone"):
        gathered(store, 2)


def test_two_data_files_of_one_fragment_are_both_named() -> None:
    parts = tuple(
        LanceDataFile(
            path=f"{number}.lance", size_bytes=1, fields=(number,), column_indices=(0,), major_version=2, minor_version=0
        )
        for number in range(2)
    )

    assert gathered(lance_stored(LanceFragment(files=parts, rows=1))).change == appended([LanceFragment(files=parts, rows=1)])


# --- rows that failed -----------------------------------------------------------------------------------------------------


def failing(covers: tuple[int, int, int], *rows: int, rows_read: int = 100, attempt: int = 1) -> Seal:
    """Return a seal whose rows at these positions are quarantined."""
    failed = tuple(
        QuarantinedRow(
            row=RowPosition(range=Range(file=0, start=row, end=row + 1)), step="s", error="KeyError", message="m", traceback=""
        )
        for row in rows
    )
    made = seal(0, 0, [covers], rows=rows_read, last=True, attempt=attempt)
    return made.model_copy(update={"quarantined": Quarantined(rows=failed)})


def stored_with_failures(one: Seal, on_row_error: str = "Quarantine") -> MemoryStore:
    store = MemoryStore()
    ledger = ledger_over(store)
    ledger.inputs.put_input(input_of(rows_file(100)))
    ledger.attempts.put_launch(launch().model_copy(update={"on_row_error": on_row_error}))
    ledger.plans.put_plan(plan([(0, 0, 100)]))
    ledger.seals.put_seal(one)
    ledger.chains.close(1)
    return store


def test_quarantined_rows_are_counted() -> None:
    assert gathered(stored_with_failures(failing((0, 0, 100), 3, 99))).rows_quarantined == 2


def test_a_row_that_its_seal_does_not_cover_is_not_quarantined_by_it() -> None:
    assert "not its own" in refusal(stored_with_failures(failing((0, 0, 100), 3, 100)))


@pytest.mark.parametrize(("row", "says"), [(99, ""), (100, "not its own")])
def test_rows_that_failed_are_compared_with_what_the_seal_covers_also_where_they_lie_beside_it(row: int, says: str) -> None:
    one = failing((0, 0, 100), 3, row)
    assert one.quarantined is not None
    first, second = one.quarantined.rows
    beside = Quarantined(rows=(first,), objects=(QuarantineObject(token=TOKEN, rows=1),))
    store = stored_with_failures(one.model_copy(update={"quarantined": beside}))
    with pytest.raises(Corrupt, match="is gone"):
        gathered(store)
    ledger_over(store).quarantine.put_quarantine(1, QuarantineRecord(token=TOKEN, rows=(second,)))

    if says:
        assert says in refusal(store)
    else:
        assert gathered(store).rows_quarantined == 2


def test_an_attempt_that_was_not_told_to_quarantines_nothing() -> None:
    assert "which it was not told to" in refusal(stored_with_failures(failing((0, 0, 100), 3), "Fail"))


def test_more_rows_than_were_read_are_not_quarantined() -> None:
    assert "2 of 1 rows" in refusal(stored_with_failures(failing((0, 0, 100), 3, 4, rows_read=1)))


def test_of_a_file_whose_rows_are_tried_again_only_these_are_covered() -> None:
    again = replace(rows_file(100), only=((3, 4), (7, 8)))

    assert len(gathered(stored(input_of(again), seal(0, 0, [(0, 3, 4), (0, 7, 8)], last=True))).change) == 0
    assert "no seal covers" in refusal(stored(input_of(again), seal(0, 0, [(0, 3, 4)], last=True)))
    assert "which is not input" in refusal(stored(input_of(again), seal(0, 0, [(0, 3, 8)], last=True)))


# --- rows known by keys ---------------------------------------------------------------------------------------------------

BY_KEYS = source_of({"spark": {"format": "orc", "paths": ["/in"], "keyColumns": ("id",)}})


def keys_seal(task: int, rows: int, *, attempt: int = 1, path: str | None = None, said: int | None = None) -> Seal:
    """A last seal of one object with so many keys, whose hashes add up to the task's number."""
    path = path or ledger_over(MemoryStore()).at.keys_object(attempt, task, new_token())
    covered = KeysCovered(
        objects=(KeysObject(path=path, rows=rows, size_bytes=100, values_bytes=12 * rows),),
        keys=key_set(rows if said is None else said, task + 1, task + 1),
    )
    files = [iceberg_file(f"{attempt}-{task}.parquet", rows)]
    return seal(task, attempt=attempt, last=True, files=files, rows=rows).model_copy(update={"covered": covered})


def stored_by_keys(first: Sequence[Seal], second: Sequence[Seal], skipped: KeySet | None) -> MemoryStore:
    """Put two closed attempts, of which the second counts the first and says that it has skipped these rows."""
    store = MemoryStore()
    ledger = ledger_over(store)
    ledger.inputs.put_input(input_of())
    for number, seals, counted, before in ((1, first, (), add_key_sets(())), (2, second, (1,), skipped)):
        ledger.attempts.put_launch(launch(number, counted).model_copy(update={"source": BY_KEYS}))
        partitions = len(seals) + (number == 1)
        made = plan(attempt=number).model_copy(update={"partitions": partitions, "skipped": before})
        ledger.plans.put_plan(made)
        for one in seals:
            ledger.seals.put_seal(one)
        ledger.chains.close(number)
    return store


def test_keys_are_gathered_if_the_last_attempt_skipped_exactly_what_is_taken_over() -> None:
    store = stored_by_keys([keys_seal(0, 3), keys_seal(1, 4)], [keys_seal(0, 5, attempt=2)], key_set(7, 3, 3))

    assert gathered(store, 2).rows_read == 12


@pytest.mark.parametrize(
    "skipped",
    [key_set(6, 3, 3), key_set(8, 3, 3), key_set(7, 3, 4), None, key_set(0, 0, 0)],
    ids=["fewer: rows would be doubled", "more: rows would be lost", "others", "nothing said", "none"],
)
def test_keys_that_were_not_skipped_as_they_were_sealed_are_corrupt(skipped: KeySet | None) -> None:
    store = stored_by_keys([keys_seal(0, 3), keys_seal(1, 4)], [keys_seal(0, 5, attempt=2)], skipped)

    with pytest.raises(Corrupt, match="lost or doubled"):
        gathered(store, 2)


def test_a_keys_object_that_two_seals_name_is_corrupt() -> None:
    one = keys_seal(0, 3)
    assert isinstance(one.covered, KeysCovered)
    store = stored_by_keys([one, keys_seal(1, 3, path=one.covered.objects[0].path)], [], key_set(6, 3, 3))

    with pytest.raises(Corrupt, match="not those of"):
        gathered(store, 2)


def test_a_keys_object_elsewhere_is_corrupt() -> None:
    store = stored_by_keys([keys_seal(0, 3, path="staged/other/1/1/keys/0-00.parquet")], [], key_set(3, 1, 1))

    with pytest.raises(Corrupt, match="not those of"):
        gathered(store, 2)


def test_a_seal_with_another_number_of_keys_than_it_says_is_corrupt() -> None:
    store = stored_by_keys([keys_seal(0, 3, said=4)], [], key_set(4, 1, 1))

    with pytest.raises(Corrupt, match="does not have as many keys"):
        gathered(store, 2)


def test_positions_where_rows_are_known_by_keys_are_corrupt_and_the_other_way_round() -> None:
    by_position = seal(0, 0, [(0, 0, 1)], last=True, rows=1)
    with pytest.raises(Corrupt, match="known by keys"):
        gathered(stored_by_keys([by_position], [], add_key_sets(())), 2)
    with pytest.raises(Corrupt, match="known by position"):
        gathered(stored(TWO_FILES, keys_seal(0, 3)))

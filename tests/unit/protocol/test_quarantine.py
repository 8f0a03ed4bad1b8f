"""Rows that failed: how many may, what is kept of each, and which are still to be made good."""

from __future__ import annotations

from dataclasses import replace

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.epoch_index import EpochIndex
from checkpoint_protocol.manifest.spec import Quarantine
from checkpoint_protocol.records import (
    MAX_ERROR_MESSAGE_LENGTH,
    MAX_RECORD_BYTES,
    MAX_TRACEBACK_LENGTH,
    CommitRecord,
    InputRecord,
    QuarantineRecord,
    RowPosition,
    Seal,
    encode,
)
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range
from checkpoint_protocol.rows.quarantine import describe_limit, most_rows
from checkpoint_work.steps.quarantine import Allowance, QuarantineOfSegment, describe
from tests.support.records import DIGEST, KEY, TOKEN, input_of, launch, ledger_over, plan, position_of, rows_file, seal
from tests.support.stores import MemoryStore

WHERE = RowPosition(range=Range(file=0, start=7, end=8))
HUNDRED = input_of(rows_file(60), rows_file(40, path="/in/part-1.parquet"))
TEXT = input_of(SourceFile(path="/in/a.csv", etag="e", size_bytes=900, unit="bytes", end=900))


def again(count: int) -> SourceFile:
    return replace(rows_file(60), only=tuple((row, row + 1) for row in range(count)))


def limits(rows: int = 1000, share_ppm: int = 1_000_000) -> Quarantine:
    return Quarantine.model_construct(max_rows=rows, max_share=share_ppm, retry="Never")


# --- how many may fail ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "record", "rows_read", "most"),
    [
        (limits(5), HUNDRED, None, 5),
        (limits(share_ppm=290_000), HUNDRED, None, 29),  # as floats, 28.999
        (limits(share_ppm=9_999), HUNDRED, None, 0),
        (limits(7, 500_000), HUNDRED, None, 7),
        (limits(7, 10_000), TEXT, None, 7),
        (limits(7, 10_000), TEXT, 300, 3),
        (limits(7), None, None, 7),
        (limits(0), input_of(again(4)), None, 4),
        (limits(5, 100_000), input_of(again(4), rows_file(20, path="/in/b")), None, 6),
        (limits(5, 100_000), input_of(again(4), rows_file(20, path="/in/b")), 24, 6),
    ],
)
def test_the_smaller_limit_stands_and_rows_that_are_tried_again_are_beyond_it(
    given: Quarantine, record: InputRecord | None, rows_read: int | None, most: int
) -> None:
    assert most_rows(given, record, rows_read) == most


def test_the_limit_is_said_in_the_words_of_the_manifest() -> None:
    assert describe_limit(limits(1000), TEXT) == "quarantine.maxRows allows 1,000"
    assert describe_limit(limits(share_ppm=2_500), HUNDRED) == "quarantine.maxShare, 0.25% of all rows, allows 0"
    assert describe_limit(limits(0), input_of(again(2))) == "quarantine.maxRows allows 0, and 2 that are tried again"


# --- what is kept of a row ------------------------------------------------------------------------------------------------


def raised(error: Exception) -> Exception:
    try:
        secret = "a value of the row"
        assert secret
        raise error
    except Exception as caught:
        return caught


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def test_a_row_is_kept_with_its_place_error_and_traceback_and_without_values() -> None:
    row = describe(WHERE, "predict", raised(ValueError("bad")))

    assert row.row == WHERE
    assert (row.step, row.error, row.message) == ("predict", "ValueError", "bad")
    assert "test_quarantine.py" in row.traceback
    assert "in raised" in row.traceback
    assert "a value of the row" not in row.traceback.replace('secret = "a value of the row"', "")


def test_an_error_of_a_library_is_named_with_its_module() -> None:
    assert describe(WHERE, "s", raised(NeedsChange("Odd", "m"))).error == "Odd"
    assert describe(WHERE, "s", raised(Unspeakable())).error.endswith("test_quarantine.Unspeakable")


def test_whatever_was_raised_it_can_be_kept() -> None:
    deep: Exception = ValueError("at the bottom")
    for _ in range(200):
        try:
            raise RuntimeError("x" * 500) from deep
        except RuntimeError as higher:
            deep = higher
    for error in (deep, raised(Unspeakable()), raised(ValueError("\udc80" * 3000)), raised(ValueError("\0" * 10_000))):
        row = describe(WHERE, "s" * 2000, error)
        assert len(row.message) <= MAX_ERROR_MESSAGE_LENGTH
        assert len(row.traceback) <= MAX_TRACEBACK_LENGTH


def test_a_full_object_of_the_worst_rows_is_no_larger_than_a_record_may_be() -> None:
    worst = describe(WHERE, "s", raised(ValueError("x"))).model_copy(
        update={"message": "\1" * MAX_ERROR_MESSAGE_LENGTH, "traceback": "\1" * MAX_TRACEBACK_LENGTH}
    )

    record = QuarantineRecord(token=TOKEN, rows=(worst,) * Allowance(1).rows_of_an_object)

    assert len(encode(record)) < MAX_RECORD_BYTES


# --- the rows of a segment ------------------------------------------------------------------------------------------------


def collect(store: MemoryStore, count: int, allowance: Allowance, before: int = 0) -> QuarantineOfSegment:
    collected = QuarantineOfSegment(ledger_over(store), 1, allowance, before)
    for number in range(count):
        where = RowPosition(range=Range(file=0, start=number, end=number + 1))
        collected.add(where, f"row {number} of /in/a", "predict", ValueError(f"bad {number}"))
    return collected


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 9])
def test_the_first_rows_lie_in_the_seal_and_the_others_in_objects_and_all_are_read_back(count: int) -> None:
    store = MemoryStore()

    kept = collect(store, count, Allowance(100, rows_of_a_seal=2, rows_of_an_object=3)).finish()

    one = seal(rows=20).model_copy(update={"quarantined": kept})
    assert one.rows_quarantined == count
    assert len(kept.rows if kept else ()) == min(count, 2)
    assert [position_of(row).start for row in ledger_over(store).quarantine.quarantined_rows(one)] == list(range(count))


def test_the_first_row_beyond_the_limit_ends_the_task_and_says_how_to_go_on() -> None:
    allowance = Allowance(5, "quarantine.maxRows allows 5")
    collect(MemoryStore(), 2, allowance, before=3)

    with pytest.raises(NeedsChange) as caught:
        collect(MemoryStore(), 3, allowance, before=3)

    assert caught.value.reason == reasons.TOO_MANY_ROW_ERRORS
    for words in ("6 rows of one task failed", "maxRows allows 5", "row 2 of /in/a", "bad 2", "quarantine.retry", "Restart"):
        assert words in caught.value.message

    collect(MemoryStore(), 3, Allowance(6, "quarantine.maxRows allows 6"), before=3)


def test_an_object_that_is_gone_or_has_other_rows_is_told() -> None:
    store = MemoryStore()
    kept = collect(store, 5, Allowance(100, rows_of_a_seal=2, rows_of_an_object=3)).finish()
    assert kept is not None
    one = seal(rows=20).model_copy(update={"quarantined": kept})
    lying = kept.model_copy(update={"objects": (kept.objects[0].model_copy(update={"rows": 2}),)})

    with pytest.raises(Corrupt, match="has 3 rows"):
        list(ledger_over(store).quarantine.quarantined_rows(one.model_copy(update={"quarantined": lying})))
    store.delete([ledger_over(store).at.quarantine(1, kept.objects[0].token)])
    with pytest.raises(Corrupt, match="is gone"):
        list(ledger_over(store).quarantine.quarantined_rows(one))


# --- what is still to be made good ----------------------------------------------------------------------------------------


def epoch(store: MemoryStore, number: int, file: SourceFile, *failed: int, marked: int | None = None) -> Ledger:
    """Put a finished epoch of one file, of which these rows failed."""
    ledger = Ledger(store, EpochKey(KEY.uid, number), pause=lambda _: None)
    ledger.inputs.put_input(input_of(file))
    ledger.attempts.put_launch(launch().model_copy(update={"on_row_error": "Quarantine"}))
    ledger.plans.put_plan(plan([(0, 0, file.end)]))
    collected = QuarantineOfSegment(ledger, 1, Allowance(100, rows_of_a_seal=1, rows_of_an_object=1), 0)
    for row in failed:
        collected.add(RowPosition(range=Range(file=0, start=row, end=row + 1)), "", "s", ValueError())
    one: Seal = seal(0, 0, [(0, 0, file.end)], rows=100, last=True).model_copy(update={"quarantined": collected.finish()})
    ledger.seals.put_seal(one)
    ledger.chains.close(1)
    ledger.commits.put_commit(
        CommitRecord(
            token=TOKEN,
            key=str(ledger.key),
            target="t",
            table_identity=None,
            commit_id=None,
            rows_read=100,
            rows_written=100,
            files=0,
            attempts=1,
            code_digests=(DIGEST,),
            rows_quarantined=len(failed) if marked is None else marked,
        )
    )
    return ledger


def still_failed(store: MemoryStore, before: int) -> dict[tuple[str, str], tuple[tuple[int, int], ...]]:
    index = EpochIndex(store, KEY.uid)
    return {(one.path, one.etag): one.rows for one in index.outstanding(index.ensure(before - 1))}


def test_a_row_waits_until_a_later_epoch_has_taken_it_and_again_if_it_failed_there() -> None:
    store, file = MemoryStore(), rows_file(60)
    version = (file.path, file.etag)
    epoch(store, 1, file, 3, 4, 9)
    assert still_failed(store, 1) == {}
    assert still_failed(store, 2) == {version: ((3, 4), (4, 5), (9, 10))}

    epoch(store, 2, replace(file, only=((3, 4), (9, 10))), 9)

    assert still_failed(store, 3) == {version: ((4, 5), (9, 10))}
    epoch(store, 3, replace(file, only=((4, 5), (9, 10))))
    assert still_failed(store, 4) == {}


def test_rows_of_a_file_that_was_replaced_are_told_apart_from_those_of_the_new_one() -> None:
    store, file = MemoryStore(), rows_file(60)
    epoch(store, 1, file, 3)
    epoch(store, 2, replace(file, etag="new"), 5)

    assert still_failed(store, 3) == {(file.path, "e"): ((3, 4),), (file.path, "new"): ((5, 6),)}


def test_a_record_that_is_gone_is_told_and_not_taken_for_no_failed_rows() -> None:
    for name in ("input", "mark", "closed", "launch"):
        store = MemoryStore()
        at = epoch(store, 1, rows_file(60), 3).at
        store.delete([{"input": at.input, "mark": at.commit_record, "closed": at.closed(1), "launch": at.launch(1)}[name]])

        with pytest.raises(Corrupt, match="is gone"):
            still_failed(store, 2)


def test_without_the_records_of_what_failed_later_epochs_go_on_and_a_retry_is_refused_until_they_are_back() -> None:
    store, file, other = MemoryStore(), rows_file(60), rows_file(60, path="/in/other.parquet")
    index = EpochIndex(store, KEY.uid)
    closed = epoch(store, 1, file, 3).at.closed(1)
    lost = store.objects.pop(closed)
    epoch(store, 2, other, 5)

    taken = index.ensure(1)
    assert [one.path for one in index.files(taken)] == [file.path], "what was taken is known without them"
    assert index.ensure(2).unread == (1,)
    with pytest.raises(Corrupt, match="is gone"):
        still_failed(store, 3)
    store.objects[closed] = lost

    known = {(file.path, "e"): ((3, 4),), (other.path, "e"): ((5, 6),)}
    assert still_failed(store, 3) == known
    epoch(store, 3, rows_file(60, path="/in/third.parquet"))
    assert still_failed(store, 4) == known
    assert index.ensure(3).unread == (), "they are in the index now, and are not read again"
